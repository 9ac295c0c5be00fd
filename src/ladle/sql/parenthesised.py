"""Joins in parentheses, written without them where that means the same.

The first ones of FROM: `(a JOIN b ON p) JOIN c ON q` is read from left to right anyway. Later ones, where all are
inner: `a JOIN (b JOIN c ON p) ON q` is `a CROSS JOIN b JOIN c ON p AND q`. Others stay, and are
refused where they are bound.
"""

from __future__ import annotations

from sqlglot import exp


def without_parentheses(node: exp.Select) -> None:
    """Takes joins of a SELECT out of their parentheses, in place."""
    clause = node.args.get("from_")
    if clause is None:
        return
    while (inner := _joined(clause.this)) is not None:
        joins = inner.args.get("joins") or []
        inner.set("joins", None)
        clause.set("this", inner)
        node.set("joins", [*joins, *(node.args.get("joins") or [])])
    joins = []
    for join in node.args.get("joins") or ():
        joins.extend(_flat(join))
    if joins:
        node.set("joins", joins)


def _flat(join: exp.Join) -> list[exp.Join]:
    inner = _joined(join.this)
    if inner is None:
        return [join]
    inside = inner.args.get("joins") or []
    if not inside:
        join.set("this", inner)
        return [join]
    if not all(map(_is_inner, (join, *inside))):
        return [join]
    inner.set("joins", None)
    on = join.args.get("on")
    flat = [exp.Join(this=inner, kind="CROSS"), *inside]
    if on is not None:
        last = inside[-1]
        both = on if last.args.get("on") is None else exp.and_(last.args["on"], on, copy=False)
        last.set("on", both)
        last.set("kind", None)
    return [each for part in flat for each in _flat(part)]


def _joined(node: exp.Expr) -> exp.Table | None:
    """The first relation in parentheses that have no name."""
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Table):
        return None
    others = [key for key, value in node.args.items() if value and key != "this"]
    return None if others else node.this


def _is_inner(join: exp.Join) -> bool:
    kind = (join.args.get("kind") or "").upper()
    others = any(join.args.get(key) for key in ("side", "method", "using"))
    return kind in ("", "INNER", "CROSS") and not others
