"""Functions that a query may call, wherever it runs.

`known_functions.txt` is what `SHOW FUNCTIONS` lists in Spark 4.3. Refused are those that reach outside the query, and
those whose value is not determined by the rows: an answer must be the same whenever and wherever it is computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from sqlglot import exp

from ladle.errors import Position, UnknownName, Unsupported, did_you_mean, nearest
from ladle.sql.conformant.datatypes import position_of

_REACHES_OUT = frozenset(
    (
        *("reflect", "java_method", "try_reflect", "input_file_name", "input_file_block_start"),
        *("input_file_block_length", "python_worker_logs", "current_user", "user", "session_user", "current_catalog"),
        *("current_database", "current_schema", "current_path", "current_timezone", "version", "from_avro", "to_avro"),
        *("schema_of_avro", "from_protobuf", "to_protobuf", "collations", "sql_keywords", "range", "read_files"),
        *("read_csv", "read_parquet", "read_json"),
    )
)
_UNDETERMINED = frozenset(
    (
        *("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"),
        *("monotonically_increasing_id", "spark_partition_id"),
    )
)
_WALL_CLOCK = frozenset(
    ("current_timestamp", "now", "current_date", "curdate", "current_time", "localtimestamp", "localtime")
)

_GRAMMAR = frozenset(["timestampadd", "timestampdiff", "try_cast"])
"""Calls that Spark's grammar knows and `SHOW FUNCTIONS` does not list."""

_SYNTAX: tuple[type[exp.Expr], ...] = (
    exp.And,
    exp.Or,
    exp.Xor,
    exp.Case,
    exp.If,
    exp.Cast,
    exp.TryCast,
    exp.Exists,
    exp.Extract,
    exp.Map,
    exp.Array,
    exp.Struct,
    exp.TsOrDsToDate,
    exp.TimeStrToTime,
    exp.Pad,
    exp.Trim,
    exp.StrPosition,
)
"""Nodes that the parser counts as functions but Spark's text writes otherwise, or that it adds by itself."""


@cache
def known_functions() -> frozenset[str]:
    """Names of functions that Spark may run for a query."""
    text = files("ladle.sql.conformant").joinpath("known_functions.txt").read_text(encoding="utf-8")
    return (frozenset(text.split()) | _GRAMMAR) - _REACHES_OUT - _UNDETERMINED - _WALL_CLOCK


def is_taken(name: str) -> bool:
    """Whether a function of Spark's has this name, one that can be called here or not."""
    return name.lower() in known_functions() | _REACHES_OUT | _UNDETERMINED | _WALL_CLOCK


def check_functions(tree: exp.Expr, users: Iterable[str] = ()) -> None:
    """Refuse functions that are not known (UnknownName) or that a standing query can't call (Unsupported).

    `users` are the names of users' functions.
    """
    created = frozenset(name.lower() for name in users)
    for node in tree.find_all(exp.Func):
        if isinstance(node, exp.Connector):
            continue  # AND and OR count as functions, and a long chain of them is costly to render
        names = _names(node)
        if names == {"range"} and isinstance(node.parent, exp.Table):
            continue
        refused = _refusal(names)
        if refused is not None:
            name, why, hint = refused
            raise Unsupported(f"Function '{name}' {why}", hint=hint, position=position_of(node))
        if not isinstance(node, _SYNTAX) and not names & known_functions() and not names & created:
            raise _unknown(_written(node), created, position_of(node))


def _unknown(name: str, created: frozenset[str], position: Position | None) -> UnknownName:
    # Spark has over five hundred functions: only those that look like the name help.
    near = nearest(name, sorted(known_functions() | created))
    those = "those of Spark SQL 4.3 and those made by CREATE FUNCTION"
    listed = f" Near ones: {', '.join(near)}." if near else f" Functions are {those}."
    return UnknownName(f"Function '{name}' not found.{listed}", hint=did_you_mean(near), position=position)


def _refusal(names: frozenset[str]) -> tuple[str, str, str | None] | None:
    for name in sorted(names):
        if name in _REACHES_OUT:
            return name, "reaches outside the query and can't be called here.", None
        if name in _UNDETERMINED:
            return name, "gives another value each time, so no answer could be kept or checked.", None
        if name in _WALL_CLOCK:
            return name, "reads the wall clock; an answer has its own time.", "write NOW"
    return None


def _written(node: exp.Func) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else node.sql_name().lower()


def _names(node: exp.Func) -> frozenset[str]:
    """Every name this call may have had: a class of the parser stands for several."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return frozenset((str(node.this).lower(),))
    generated = node.sql(dialect="spark").split("(", 1)[0].strip().lower()
    return frozenset((*(name.lower() for name in node.sql_names()), generated))
