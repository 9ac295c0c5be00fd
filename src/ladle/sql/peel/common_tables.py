"""WITH: a common table expression is a relation of what comes after it, one node however often it is mentioned.

One that reads itself is a fragment.
"""

from __future__ import annotations

from sqlglot import exp

from ladle.plan.nodes import Node
from ladle.sql.conformant.bounded_loops import is_recursive
from ladle.sql.peel.fragments import fragment
from ladle.sql.peel.rows import NamedRelations, NodeRows, NotUnderstood, without
from ladle.sql.trees import copied


def common_tables(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take WITH off: each of its queries becomes a relation of the query behind it."""
    with_ = query.args.get("with_")
    if with_ is None:
        return None
    if any(cte.args["alias"].args.get("columns") for cte in with_.expressions):
        raise NotUnderstood("this form of WITH")
    for cte in with_.expressions:
        looped = with_.args.get("recursive") and is_recursive(cte)
        node = _recursion(cte, around) if looped else around.peel(cte.this, around).node
        around = around.with_relations({cte.alias: node})
    return around.peel(without(query, "with_"), around)


def _recursion(cte: exp.CTE, around: NamedRelations) -> Node:
    """All rows of a common table expression that reads itself."""
    first = cte.this
    while not isinstance(first, exp.Select):
        first = first.this
    name = exp.to_identifier(cte.alias, quoted=True)
    columns = [exp.to_identifier(each.alias_or_name, quoted=True) for each in first.expressions]
    every = exp.Select(
        expressions=[exp.alias_(exp.column(each, table=name.copy()), each.copy()) for each in columns],
        from_=exp.From(this=exp.Table(this=name.copy(), alias=exp.TableAlias(this=name.copy()))),
        with_=exp.With(expressions=[copied(cte)], recursive=True),
    )
    return fragment(every, around, "recursive WITH").node
