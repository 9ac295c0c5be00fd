"""FROM of one relation: nothing is left to peel."""

from __future__ import annotations

from sqlglot import exp

from ladle.sql.peel.comparisons import source_rows
from ladle.sql.peel.rows import NamedRelations, NodeRows, is_rows


def single_relation(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """The one relation that is left when all clauses are taken off."""
    if not is_rows(query) or query.args.get("where") is not None or query.args.get("joins"):
        return None
    return source_rows(query.args["from_"].this, around)
