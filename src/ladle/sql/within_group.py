"""The one form of an aggregate whose values have an order: `f(x) WITHIN GROUP (ORDER BY y)`."""

from __future__ import annotations

from sqlglot import exp

ARRAYS = frozenset(("array_agg", "collect_list"))
FIRSTS = frozenset(("first", "first_value"))
LASTS = frozenset(("last", "last_value"))
TEXTS = frozenset(("string_agg", "listagg"))
ORDERED = ARRAYS | FIRSTS | LASTS | TEXTS
"""The aggregates whose values may have an order, by their names."""


def with_order_outside(call: exp.Expr | None) -> exp.Expr | None:
    """`f(x ORDER BY y)` as `f(x) WITHIN GROUP (ORDER BY y)`; of a function that takes no order, the call as it is."""
    if not isinstance(call, exp.Anonymous) or not call.expressions or call.name.lower() not in ORDERED:
        return call
    order = call.expressions[-1]
    if not isinstance(order, exp.Order) or order.this is None:
        return call
    order.replace(order.this)
    return exp.WithinGroup(this=call, expression=exp.Order(expressions=order.expressions))


def with_nulls_inside(node: exp.Expr | None) -> exp.Expr | None:
    """An ordered first or last that skips NULLs: `first(x) ... IGNORE NULLS` and `first(x, true)` as `first(x IGNORE
    NULLS)`.
    """
    said = node if isinstance(node, exp.IgnoreNulls | exp.RespectNulls) else None
    inner = node if said is None else said.this
    ordered = inner.this if isinstance(inner, exp.Filter) else inner
    if not isinstance(ordered, exp.WithinGroup) or ordered.this.name.lower() not in FIRSTS | LASTS:
        return node
    call = ordered.this
    values = call.expressions
    if said is None and len(values) == 2 and isinstance(values[1], exp.Boolean):
        call.set("expressions", [exp.IgnoreNulls(this=values[0])] if values[1].this else values[:1])
    elif len(values) != 1 or isinstance(values[0], exp.Distinct):
        return node
    elif isinstance(values[0], exp.IgnoreNulls | exp.RespectNulls):
        if said is not None:
            return node
        if isinstance(values[0], exp.RespectNulls):
            call.set("expressions", [values[0].this])
    elif isinstance(said, exp.IgnoreNulls):
        call.set("expressions", [exp.IgnoreNulls(this=values[0])])
    return inner
