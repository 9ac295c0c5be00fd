"""AS OF after a relation in FROM: at which moment of the past it is read."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from ladle.clock import to_datetime
from ladle.errors import SqlError
from ladle.plan import AsOf
from ladle.plan.as_of import NOW
from ladle.sql.bounds import constant_us, is_constant_time
from ladle.sql.names import Names
from ladle.sql.position import SourceText

_ENTRY_MAX = (1 << 63) - 1
_OUTER = "ladle_outer_now"
"""Key in the `meta` of a NOW that is the statement's, also inside of what is read as of a moment."""


def past_of(
    table: exp.Table, source: SourceText, streams: Iterable[str] = (), tables: Iterable[str] = ()
) -> AsOf | None:
    """The moment that a mention says, if it says one; NOW is then that of these streams and tables."""
    version = table.args.get("version")
    if version is None:
        return None
    moment, position = version.expression, source.of(version.expression) or source.of(version)
    while isinstance(moment, exp.Paren):
        moment = moment.this
    of = tuple(sorted(streams, key=str.lower)), tuple(sorted(tables, key=str.lower))
    if version.name == "TIMESTAMP":
        if not is_constant_time(moment):
            raise SqlError(
                "TIMESTAMP AS OF needs a constant time.",
                hint="write TIMESTAMP AS OF '2024-01-01 10:00:00'",
                position=position,
            )
        return AsOf(constant_us(moment, "TIMESTAMP AS OF", source), None, *of)
    text = moment.name if isinstance(moment, exp.Literal) else ""
    if not text.isdecimal() or int(text) > _ENTRY_MAX:
        raise SqlError(
            "VERSION AS OF needs an entry of the log: a whole number.",
            hint="answers say which entry they reflect: answer.entry in Python, `entry` over HTTP",
            position=position,
        )
    return AsOf(None, int(text), *of)


def past_of_query(table: exp.Table, source: SourceText, names: Names) -> AsOf | None:
    """The moment at which a standing query is read: NOW is that of all that it reads, as when it is invoked."""
    if table.args.get("version") is None:
        return None
    inside = names.inside(table.name)
    return past_of(table, source, inside.stream_names(), inside.table_names())


def refuse_past(table: exp.Expression, source: SourceText, what: str) -> None:
    """AS OF is for what has a past of its own."""
    version = table.args.get("version")
    if version is not None:
        raise SqlError(
            f"AS OF reads streams, tables and standing queries at another moment, and this is {what}.",
            hint="write it inside, after what is read there",
            position=source.of(version),
        )


def now_of(past: AsOf | None, nows: dict[str, AsOf]) -> exp.Expression:
    """NOW of a moment, wherever it is written: that of the statement stays it in queries that are read at another."""
    if past is None:
        now = exp.Placeholder(this=NOW)
        now.meta[_OUTER] = True
        return now
    if past.us is None:
        nows[past.parameter] = past
        # Spark takes a NULL without a type for another one: what is less an interval is an interval then.
        return exp.cast(exp.Placeholder(this=past.parameter), "timestamp")
    text = to_datetime(past.us).isoformat(" ", "microseconds").removesuffix("+00:00")
    return exp.cast(exp.Literal.string(text), "timestamp")


def with_now(tree: exp.Expression, past: AsOf, nows: dict[str, AsOf]) -> exp.Expression:
    """What a standing query computes of NOW, at the NOW that it is read at: a time is a constant, and NOW as of an
    entry a parameter, which `nows` is told.
    """
    holder = exp.Tuple(expressions=[tree])
    for node in list(tree.find_all(exp.Placeholder)):
        if node.name == NOW and _OUTER not in node.meta:
            node.replace(now_of(past, nows))
    result: exp.Expression = holder.expressions[0].pop()
    return result
