"""Parentheses around a query say nothing."""

from __future__ import annotations

from sqlglot import exp

from ladle.sql.peel.rows import NamedRelations, NodeRows, NotUnderstood


def parentheses(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take parentheses around a query off."""
    if not isinstance(query, exp.Subquery):
        return None
    if any(value for key, value in query.args.items() if key not in ("this", "alias")):
        raise NotUnderstood("clauses around a query in parentheses")
    return around.peel(query.this, around)
