"""ORDER BY, LIMIT and OFFSET: TopK, Sort or Limit above the rest. A key that is no output is computed as one beside
them, and dropped again above the order.
"""

from __future__ import annotations

from sqlglot import exp

from ladle.plan.nodes import Limit, Node, Project, Sort, TopK
from ladle.plan.scalars import Scalar, SortKey
from ladle.sql.peel.rows import NamedRelations, NodeRows, NotUnderstood, outputs_of, without

_CLAUSES = ("order", "limit", "offset")


def ordering(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take ORDER BY, LIMIT and OFFSET off."""
    if not any(query.args.get(clause) for clause in _CLAUSES):
        return None
    limit, offset = _number(query, "limit"), _number(query, "offset") or 0
    rest = without(query, *_CLAUSES)
    order = query.args.get("order")
    if order is None:
        below = around.peel(rest, around).node
        return outputs_of(Limit(below.columns, below, limit, offset))
    visible = len(_outputs(query))
    places = [_place(ordered.this, query, rest) for ordered in order.expressions]
    below = around.peel(rest, around).node
    keys = tuple(
        SortKey(_column(below, place), bool(each.args.get("desc")), bool(each.args.get("nulls_first")))
        for place, each in zip(places, order.expressions, strict=True)
    )
    ordered = _ordered(below, keys, limit, offset)
    if len(below.columns) == visible:
        return outputs_of(ordered)
    outputs = tuple(_column(below, at) for at in range(visible))
    return outputs_of(Project(below.columns[:visible], ordered, outputs))


def _ordered(below: Node, keys: tuple[SortKey, ...], limit: int | None, offset: int) -> Node:
    if limit is None and not offset:
        return Sort(below.columns, below, keys)
    return TopK(below.columns, below, keys, limit, offset)


def _column(node: Node, at: int) -> Scalar:
    return Scalar("{0}", ((0, at),), "{0}", node.columns[at].type)


def _place(key: exp.Expression, query: exp.Expression, rest: exp.Expression) -> int:
    """The position of a key among the outputs, to which it is added if it is none."""
    outputs = _outputs(query)
    if isinstance(key, exp.Literal) and not key.is_string:
        return int(key.name) - 1
    if isinstance(key, exp.Column) and not key.table:
        for at, output in enumerate(outputs):
            if output.alias_or_name.lower() == key.name.lower():
                return at
    if not isinstance(rest, exp.Select) or rest.args.get("distinct") is not None:
        raise NotUnderstood("an order by something that is not selected")
    taken = {output.alias_or_name.lower() for output in rest.expressions}
    number = len(rest.expressions)
    while f"_k{number}" in taken:
        number += 1
    rest.append("expressions", exp.alias_(key.copy(), f"_k{number}", quoted=True))
    return len(rest.expressions) - 1


def _outputs(query: exp.Expression) -> list[exp.Expression]:
    while not isinstance(query, exp.Select):
        query = query.this
    return query.expressions


def _number(query: exp.Expression, clause: str) -> int | None:
    node = query.args.get(clause)
    if node is None:
        return None
    amount = node.args.get("expression")
    if not isinstance(amount, exp.Literal) or amount.is_string or not amount.name.isdigit():
        raise NotUnderstood(f"{clause.upper()} of something that is not a number")
    return int(amount.name)
