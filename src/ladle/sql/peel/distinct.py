"""SELECT DISTINCT."""

from __future__ import annotations

from sqlglot import exp

from ladle.plan.nodes import Distinct
from ladle.sql.peel.rows import NamedRelations, NodeRows, NotUnderstood, outputs_of, without


def distinct(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take DISTINCT off."""
    if not isinstance(query, exp.Select) or query.args.get("distinct") is None:
        return None
    if query.args["distinct"].args.get("on") is not None:
        raise NotUnderstood("DISTINCT ON")
    below = around.peel(without(query, "distinct"), around).node
    return outputs_of(Distinct(below.columns, below))
