"""WITH RECURSIVE, rendered for DuckDB: with Spark's types, and with Spark's limits of levels and of rows.

Each row has beside its columns how many steps it took, and how many rows there were before. A step reads the rows of
the one before it, which all took as many; so it is one row that says whether there may be another step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from ladle.schema import is_nested, type_name
from ladle.sql.conformant.operands import refused_at
from ladle.sql.conformant.scope import Columns, NamedTable, Subquery, TypedScope, quoted
from ladle.sql.conformant.spark_types import NotConformant, Refused

LEVELS_MAX = 100
"""Spark's limit, where MAX RECURSION LEVEL says none."""
ROWS_MAX = 1_000_000
"""Spark's limit of rows of all steps."""


def is_recursive(cte: exp.CTE) -> bool:
    """Whether a common table expression of a bound text reads itself: names are unique there."""
    return any(table.name.lower() == cte.alias.lower() for table in cte.this.find_all(exp.Table))


def recursion(
    cte: exp.CTE, query: Callable[[exp.Expr, TypedScope], Subquery], scope: TypedScope
) -> tuple[str, NamedTable]:
    """The definition of a common table expression that reads itself, and the relation that it is."""
    union = cte.this
    while isinstance(union, exp.Subquery) and union.is_wrapper:
        union = union.this
    if not isinstance(union, exp.Union) or union.args.get("with_") is not None:
        raise NotConformant("this form of a recursive WITH is not proven equal in DuckDB")
    name = cte.args["alias"].name
    anchor = query(union.this, scope)
    table = NamedTable(name, anchor.columns, may_raise=True)
    step = query(union.expression, replace(scope, tables={**scope.tables, name.lower(): table}))
    with refused_at(union.expression):
        _check_types(anchor.columns, step.columns)
    given = cte.args.get("level")
    levels = LEVELS_MAX if given is None else int(given.this.name)
    return f"{quoted(name)}({_names(anchor.columns)}) AS ({_looped(name, anchor, step, levels)})", table


def _names(columns: Columns) -> str:
    own = [quoted(name) for name, _ in columns]
    return ", ".join([*own, *_beside(columns)])


def _beside(columns: Columns) -> tuple[str, str]:
    """The names of what each row has beside its columns."""
    taken = {name.lower() for name, _ in columns}
    found = []
    for name in ("_level", "_before"):
        while name in taken:
            name += "_"
        found.append(quoted(name))
    return found[0], found[1]


def _looped(name: str, anchor: Subquery, step: Subquery, levels: int) -> str:
    level, before = _beside(anchor.columns)
    too_deep = (
        f"[RECURSION_LEVEL_LIMIT_EXCEEDED] Recursion level limit {levels} reached but query has not exhausted, "
        "try increasing it like ''WITH RECURSIVE t(col) MAX RECURSION LEVEL 200''."
    )
    too_many = (
        f"[RECURSION_ROW_LIMIT_EXCEEDED] Recursion row limit {ROWS_MAX} reached but query has not exhausted, "
        "try setting a larger LIMIT value when querying the CTE relation."
    )
    reached, counted = f"max(r.{level})", f"max(r.{before}) + count(*)"
    checked = (
        f"CASE WHEN {reached} >= {levels} THEN CAST(error('{too_deep}') AS BIGINT) "
        f"WHEN {counted} >= {ROWS_MAX} THEN CAST(error('{too_many}') AS BIGINT) ELSE {reached} + 1 END"
    )
    steps = f"SELECT {checked} AS {level}, {counted} AS {before} FROM {quoted(name)} AS r"
    return (
        f"SELECT a.*, CAST(0 AS BIGINT), CAST(0 AS BIGINT) FROM ({anchor.sql}) AS a UNION ALL "
        f"SELECT s.*, l.{level}, l.{before} FROM ({step.sql}) AS s CROSS JOIN ({steps}) AS l"
    )


def _check_types(anchor: Columns, step: Columns) -> None:
    """The step gives what the anchor gave: Spark casts neither."""
    for (name, one), (_, other) in zip(anchor, step, strict=True):
        if one == other:
            continue
        if is_nested(one) and is_nested(other):
            raise NotConformant("a recursive WITH over these types is not proven equal in DuckDB")
        raise Refused(
            f"Column '{name}' of a recursion begins as {type_name(one)}, and the step gives {type_name(other)}.",
            hint=f"write CAST(... AS {type_name(one)}) in the step, or begin with {type_name(other)}",
        )
