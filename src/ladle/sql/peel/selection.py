"""WHERE: the last conditions of it, as far as they have no subquery, are a filter above the rest."""

from __future__ import annotations

from sqlglot import exp

from ladle.plan.nodes import Filter
from ladle.sql.peel.rows import NamedRelations, NodeRows, check_expressions, is_rows
from ladle.sql.peel.scalar_text import scalar
from ladle.sql.split import conjuncts
from ladle.sql.trees import copied


def selection(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take the last plain conditions of WHERE off, as a filter."""
    where = query.args.get("where")
    if not is_rows(query) or where is None:
        return None
    rest = copied(query)
    left = conjuncts(rest.args["where"].this)
    plain: list[exp.Expression] = []
    while left and left[-1].find(exp.Query) is None:
        plain.insert(0, left.pop())
    if not plain:
        return None
    check_expressions(*plain)
    rest.set("where", exp.Where(this=exp.and_(*left)) if left else None)
    below = around.peel(rest, around)
    conditions = tuple(scalar(each, below) for each in plain)
    return NodeRows(Filter(below.node.columns, below.node, conditions), below.labels)
