"""FROM: its last join above the others. A side that reads no stream makes it a join with a relation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from ladle.plan.nodes import Join, JoinKind, RelationJoin, reads_streams
from ladle.plan.scalars import Comparison
from ladle.sql.peel.comparisons import compared, source_rows
from ladle.sql.peel.rows import NamedRelations, NodeRows, NotUnderstood, check_expressions, is_rows, kind_of
from ladle.sql.peel.scalar_text import prove, scalar
from ladle.sql.split import conjuncts
from ladle.sql.trees import copied

_KINDS = {
    "": JoinKind.INNER,
    "INNER": JoinKind.INNER,
    "CROSS": JoinKind.INNER,
    "LEFT": JoinKind.LEFT,
    "LEFT OUTER": JoinKind.LEFT,
    "RIGHT": JoinKind.RIGHT,
    "RIGHT OUTER": JoinKind.RIGHT,
    "FULL": JoinKind.FULL,
    "FULL OUTER": JoinKind.FULL,
    "SEMI": JoinKind.SEMI,
    "LEFT SEMI": JoinKind.SEMI,
    "ANTI": JoinKind.ANTI,
    "LEFT ANTI": JoinKind.ANTI,
}


def joining(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take the last join of FROM off."""
    if not is_rows(query) or query.args.get("where") is not None or not query.args.get("joins"):
        return None
    rest = copied(query)
    last = rest.args["joins"].pop()
    kind = _KINDS.get(kind_of(last))
    more = any(value for key, value in last.args.items() if key not in ("this", "side", "kind", "on"))
    if kind is None or more:
        raise NotUnderstood(f"this form of a {kind_of(last)} join".replace("  ", " "))
    on = last.args.get("on")
    terms = [] if on is None else conjuncts(on)
    check_expressions(*terms)
    right = source_rows(last.this, around)
    return joined(kind, around.peel(rest, around), right, terms)


def joined(kind: JoinKind, left: NodeRows, right: NodeRows, terms: Sequence[exp.Expression]) -> NodeRows:
    """The join of two inputs by the terms of its condition; comparisons are found where no term may raise."""
    found: list[Comparison] = []
    rest: list[exp.Expression] = []
    for term in terms:
        own = compared(term, left, right)
        found += own
        if not own:
            rest.append(term)
    if any(prove(each, left, right).may_raise for each in rest):
        found, rest = [], list(terms)
    condition = scalar(exp.and_(*rest), left, right) if rest else None
    columns = left.node.columns + (right.node.columns if kind.keeps_right else ())
    labels = left.labels + (right.labels if kind.keeps_right else ())
    node = Join if reads_streams(left.node) and reads_streams(right.node) else RelationJoin
    return NodeRows(node(columns, left.node, right.node, kind, tuple(found), condition), labels)


def with_scalars(rows: NodeRows, scalars: Sequence[NodeRows]) -> NodeRows:
    """Rows, each with the one row that scalar subqueries give."""
    return reduce(lambda one, other: joined(JoinKind.INNER, one, other, []), scalars, rows)
