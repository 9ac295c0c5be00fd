"""Window functions: OVER with partitions, order and frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from ladle.sql.conformant.casts import cast, is_ordered
from ladle.sql.conformant.expressions import expression, normalized
from ladle.sql.conformant.functions import BY_NAME
from ladle.sql.conformant.nodes import Call, call_of
from ladle.sql.conformant.scope import Scope
from ladle.sql.conformant.spark_types import INT, NotConformant, Typed, common_type

_RANKS = frozenset(("row_number", "rank", "dense_rank"))
_SHIFTS = frozenset(("lag", "lead"))

Aggregate = Callable[..., Typed]


def window(node: exp.Window, scope: Scope, aggregate: Aggregate) -> Typed:
    """`f(...) OVER (...)`; an aggregate's frame is Spark's, which is the standard's."""
    spec = node if node.args.get("alias") is None else _named(node.args["alias"], scope)
    if scope.keys is not None:
        raise NotConformant("a window function over groups")
    tail, raises = _over(spec, scope)
    inner = node.this
    filter_ = None
    if isinstance(inner, exp.Filter):
        inner, filter_ = inner.this, inner.expression.this
    called = call_of(inner)
    if called is None:
        raise NotConformant(f"{inner.sql(dialect='spark')[:40]} OVER is not proven equal in DuckDB")
    if called.name in _RANKS and not called.arguments:
        if spec.args.get("order") is None:
            raise NotConformant(f"{called.name} without ORDER BY")
        return Typed(f"CAST({called.name}(){tail} AS INTEGER)", INT, raises)
    if called.name in _SHIFTS:
        return _shift(called, scope, tail, raises)
    if called.name not in BY_NAME or not BY_NAME[called.name][0].aggregate:
        raise NotConformant(f"{called.name} OVER is not proven equal in DuckDB")
    found = aggregate(called, scope, tail=tail, filter_=filter_)
    return replace(found, may_raise=found.may_raise or raises)


def _named(name: exp.Expr, scope: Scope) -> exp.Window:
    """What WINDOW says of a name; `w2 AS w1` takes another's, and Spark allows no more than that one step."""
    for _ in range(2):
        spec = scope.named_windows.get(name.name.lower())
        if spec is None:
            break
        if spec.args.get("alias") is None:
            return spec
        name = spec.args["alias"]
    raise NotConformant(f"the window {name.name} is not defined")


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
    if _distance(start) > _distance(end):
        raise NotConformant("a frame that ends before it begins")
    return f"{kind} BETWEEN {start} AND {end}"


def _distance(bound: str) -> float:
    """How many rows a bound is after the current one."""
    amount, _, side = bound.partition(" ")
    if bound == "CURRENT ROW":
        return 0
    rows = float("inf") if amount == "UNBOUNDED" else float(amount)
    return -rows if side == "PRECEDING" else rows


def _bound(value: object, side: object, kind: str, keys: list[Typed]) -> str:
    if value == "CURRENT ROW":
        return "CURRENT ROW"
    if value == "UNBOUNDED":
        return f"UNBOUNDED {str(side).upper()}"
    if kind == "ROWS" and isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdigit():
        return f"{value.this} {str(side).upper()}"
    raise NotConformant("a frame of this kind is not proven equal in DuckDB")


def _shift(called: Call, scope: Scope, tail: str, raises: bool) -> Typed:
    """lag and lead by a constant; a default must have the value's type."""
    if "BETWEEN" in tail or "ORDER BY" not in tail or not 1 <= len(called.arguments) <= 3:
        raise NotConformant(f"{called.name} with this window is not proven equal in DuckDB")
    inside = replace(scope, windows=False)
    value = expression(called.arguments[0], inside)
    offset = called.arguments[1] if len(called.arguments) > 1 else exp.Literal.number(1)
    if not isinstance(offset, exp.Literal) or offset.is_string or not str(offset.this).isdigit():
        raise NotConformant(f"{called.name} by an amount that is not a constant")
    sql = f"{called.name}({value.sql}, {offset.this}"
    may_raise = raises or value.may_raise
    if len(called.arguments) == 3:
        other = expression(called.arguments[2], inside)
        if common_type([value, other]) != value.type:
            raise NotConformant(f"{called.name} with a default of another type")
        other = cast(other, value.type)
        sql += f", {other.sql}"
        may_raise = may_raise or other.may_raise
    return Typed(f"{sql}){tail}", value.type, may_raise)
