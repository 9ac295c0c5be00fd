"""Window functions: OVER with partitions, order and frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from ladle.sql.casts import cast, is_ordered
from ladle.sql.expressions import Scope, expression, normalized
from ladle.sql.functions import BY_NAME
from ladle.sql.nodes import CALLS
from ladle.sql.typing import DATE, INT, NotConformant, Typed, common_type, is_integral

_RANKS: Mapping[type[exp.Expression], str] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
}
_SHIFTS: Mapping[type[exp.Expression], str] = {exp.Lag: "lag", exp.Lead: "lead"}

Aggregate = Callable[..., Typed]


def window(node: exp.Window, scope: Scope, aggregate: Aggregate) -> Typed:
    """`f(...) OVER (...)`; an aggregate's frame is Spark's, which is the standard's."""
    name = node.args.get("alias")
    if name is not None:
        named = scope.named_windows.get(name.name.lower())
        if named is None:
            raise NotConformant(f"the window {name.name} is not defined")
        spec = named
    else:
        spec = node
    if scope.keys is not None:
        raise NotConformant("a window function over groups")
    tail, raises = _over(spec, scope)
    inner = node.this
    filter_ = None
    if isinstance(inner, exp.Filter):
        inner, filter_ = inner.this, inner.expression.this
    if type(inner) in _RANKS and not inner.expressions:
        if spec.args.get("order") is None:
            raise NotConformant(f"{_RANKS[type(inner)]} without ORDER BY")
        return Typed(f"CAST({_RANKS[type(inner)]}(){tail} AS INTEGER)", INT, raises)
    if type(inner) in _SHIFTS:
        return _shift(_SHIFTS[type(inner)], inner, scope, tail, raises)
    maker = CALLS.get(type(inner))
    called = maker(inner) if maker else None
    if called is None or called.name not in BY_NAME or not BY_NAME[called.name][0].aggregate:
        raise NotConformant(f"{inner.sql(dialect='spark')[:40]} OVER is not proven equal in DuckDB")
    found = aggregate(called, scope, tail=tail, filter_=filter_)
    return replace(found, may_raise=found.may_raise or raises)


def _over(spec: exp.Window, scope: Scope) -> tuple[str, bool]:
    inside = replace(scope, windows=False)
    parts: list[str] = []
    used = [normalized(expression(each, inside)) for each in spec.args.get("partition_by") or ()]
    if any(not is_ordered(each.type) for each in used):
        raise NotConformant("PARTITION BY of a nested type")
    if used:
        parts.append("PARTITION BY " + ", ".join(each.sql for each in used))
    order = spec.args.get("order")
    keys = [] if order is None else [(normalized(expression(each.this, inside)), each) for each in order.expressions]
    if keys:
        if any(not is_ordered(key.type) for key, _ in keys):
            raise NotConformant("ORDER BY of a nested type")
        parts.append("ORDER BY " + ", ".join(key.sql + direction(each) for key, each in keys))
    frame = spec.args.get("spec")
    if frame is not None:
        parts.append(_frame(frame, [key for key, _ in keys]))
    return f" OVER ({' '.join(parts)})", any(each.may_raise for each in (*used, *(key for key, _ in keys)))


def direction(ordered: exp.Ordered) -> str:
    """Spark's default, NULLS FIRST ascending and LAST descending, is set by the parser."""
    way = " DESC" if ordered.args.get("desc") else " ASC"
    return way + (" NULLS FIRST" if ordered.args.get("nulls_first") else " NULLS LAST")


def _frame(frame: exp.WindowSpec, keys: list[Typed]) -> str:
    kind = str(frame.args["kind"]).upper()
    if kind not in ("ROWS", "RANGE") or frame.args.get("exclude") is not None:
        raise NotConformant(f"a {kind} frame is not proven equal in DuckDB")
    start = _bound(frame.args.get("start"), frame.args.get("start_side"), kind, keys)
    end = _bound(frame.args.get("end") or "CURRENT ROW", frame.args.get("end_side"), kind, keys)
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(value: object, side: object, kind: str, keys: list[Typed]) -> str:
    if value == "CURRENT ROW":
        return "CURRENT ROW"
    if value == "UNBOUNDED":
        return f"UNBOUNDED {str(side).upper()}"
    if kind == "ROWS" and isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdigit():
        return f"{value.this} {str(side).upper()}"
    raise NotConformant("a frame of this kind is not proven equal in DuckDB")


def _shift(name: str, node: exp.Expression, scope: Scope, tail: str, raises: bool) -> Typed:
    if "BETWEEN" in tail or "ORDER BY" not in tail or node.args.get("ignore_nulls"):
        raise NotConformant(f"{name} with this window is not proven equal in DuckDB")
    inside = replace(scope, windows=False)
    value = expression(node.this, inside)
    offset = node.args.get("offset") or exp.Literal.number(1)
    if not isinstance(offset, exp.Literal) or offset.is_string or not str(offset.this).isdigit():
        raise NotConformant(f"{name} by an amount that is not a constant")
    sql = f"{name}({value.sql}, {offset.this}"
    default = node.args.get("default")
    may_raise = raises or value.may_raise
    if default is not None:
        other = expression(default, inside)
        if common_type([value, other]) != value.type:
            raise NotConformant(f"{name} with a default of another type")
        other = cast(other, value.type)
        sql += f", {other.sql}"
        may_raise = may_raise or other.may_raise
    return Typed(f"{sql}){tail}", value.type, may_raise)


__all__ = ["DATE", "direction", "is_integral", "window"]
