"""The SELECT list of a block without groups: what is computed of each row."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ladle.plan.nodes import OutputColumn, Project
from ladle.sql.peel.joining import with_scalars
from ladle.sql.peel.rows import (
    NamedRelations,
    NodeRows,
    NotUnderstood,
    check_expressions,
    check_from,
    is_rows,
    outputs_of,
    renamed,
    rows_below,
)
from ladle.sql.peel.scalar_subqueries import aliases_of, taken_scalars
from ladle.sql.peel.scalar_text import scalar

_PARTS = ("expressions", "from_", "joins", "where", "laterals")


def projection(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take the SELECT list off a query without groups."""
    if not isinstance(query, exp.Select) or is_rows(query):
        return None
    check_parts(query)
    check_expressions(*query.expressions, but_for_subqueries=True)
    check_from(query, around)
    outputs, scalars = taken_scalars(query.expressions, aliases_of(query), around, "a subquery in an expression")
    return projected(outputs, with_scalars(around.peel(rows_below(query), around), scalars))


def check_parts(query: exp.Select, *more: str) -> None:
    """Refuse clauses that neither this rule, nor those for what is left, would look at."""
    for part, value in query.args.items():
        if value and part not in (*_PARTS, *more):
            raise NotUnderstood(f"the clause {part.rstrip('_').upper().replace('_', ' ')}")


def projected(outputs: Sequence[exp.Expression], rows: NodeRows) -> NodeRows:
    """What a SELECT list makes of rows; one that only names them anew makes nothing of them."""
    computed = tuple(scalar(each.this if isinstance(each, exp.Alias) else each, rows) for each in outputs)
    columns = tuple(OutputColumn(each.alias_or_name, value.type) for each, value in zip(outputs, computed, strict=True))
    if [value.column for value in computed] == [(0, at) for at in range(len(rows.node.columns))]:
        return outputs_of(renamed(rows.node, columns))
    return outputs_of(Project(columns, rows.node, computed))
