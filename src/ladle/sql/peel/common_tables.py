"""WITH: a common table expression is a relation of what comes after it, one node however often it is mentioned."""

from __future__ import annotations

from sqlglot import exp

from ladle.sql.peel.rows import NamedRelations, NodeRows, NotUnderstood, without


def common_tables(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take WITH off: each of its queries becomes a relation of the query behind it."""
    with_ = query.args.get("with_")
    if with_ is None:
        return None
    if with_.args.get("recursive") or any(cte.args["alias"].args.get("columns") for cte in with_.expressions):
        raise NotUnderstood("this form of WITH")
    for cte in with_.expressions:
        around = around.with_relations({cte.alias: around.peel(cte.this, around).node})
    return around.peel(without(query, "with_"), around)
