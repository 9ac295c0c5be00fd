"""Window functions: OVER with partitions, order and frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ
from ladle.sql.conformant.casts import cast, is_ordered
from ladle.sql.conformant.expressions import expression, normalized
from ladle.sql.conformant.intervals import interval
from ladle.sql.conformant.parser_names import Call, call_of
from ladle.sql.conformant.scope import TypedScope
from ladle.sql.conformant.spark_types import DOUBLE, DURATION, INT, NotConformant, Typed, common_type
from ladle.sql.conformant.the_list import BY_NAME

_RANKS = frozenset(("row_number", "rank", "dense_rank"))
_SHARES = frozenset(("percent_rank", "cume_dist"))
_SHIFTS = frozenset(("lag", "lead"))
_PLACES = frozenset(("first_value", "last_value", "nth_value"))

Aggregate = Callable[..., Typed]


def window(node: exp.Window, scope: TypedScope, aggregate: Aggregate) -> Typed:
    """`f(...) OVER (...)`; an aggregate's frame is Spark's, which is the standard's."""
    spec = node if node.args.get("alias") is None else _named(node.args["alias"], scope)
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
    if called.name in _SHARES and not called.arguments and spec.args.get("order") is not None:
        return Typed(f"{called.name}(){tail}", DOUBLE, raises)
    if called.name == "ntile" and spec.args.get("order") is not None:
        return Typed(f"CAST(ntile({_number(called.arguments)}){tail} AS INTEGER)", INT, raises)
    if called.name in _PLACES:
        return _placed(called, scope, tail, raises)
    if called.name in _SHIFTS:
        return _shift(called, scope, tail, raises)
    if called.name not in BY_NAME or not BY_NAME[called.name][0].aggregate:
        raise NotConformant(f"{called.name} OVER is not proven equal in DuckDB")
    found = aggregate(called, scope, tail=tail, filter_=filter_)
    return replace(found, may_raise=found.may_raise or raises)


def _named(name: exp.Expr, scope: TypedScope) -> exp.Window:
    """What WINDOW says of a name; `w2 AS w1` takes another's, and Spark allows no more than that one step."""
    for _ in range(2):
        spec = scope.named_windows.get(name.name.lower())
        if spec is None:
            break
        if spec.args.get("alias") is None:
            return spec
        name = spec.args["alias"]
    raise NotConformant(f"the window {name.name} is not defined")


def _over(spec: exp.Window, scope: TypedScope) -> tuple[str, bool]:
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
    if kind == "RANGE" and any(isinstance(frame.args.get(side), exp.Expr) for side in ("start", "end")):
        return _range(frame, keys)
    start = _bound(frame.args.get("start"), frame.args.get("start_side"), kind, keys)
    end = _bound(frame.args.get("end") or "CURRENT ROW", frame.args.get("end_side"), kind, keys)
    if _distance(start) > _distance(end):
        raise NotConformant("a frame that ends before it begins")
    return f"{kind} BETWEEN {start} AND {end}"


def _range(frame: exp.WindowSpec, keys: list[Typed]) -> str:
    """`RANGE BETWEEN INTERVAL 10 MINUTES PRECEDING AND CURRENT ROW`: of times, by constant intervals."""
    if len(keys) != 1 or keys[0].type not in (TIMESTAMP, TIMESTAMP_NTZ):
        raise NotConformant("a RANGE frame of something that is not a timestamp")
    bounds, places = [], []
    for side, default in (("start", "UNBOUNDED"), ("end", "CURRENT ROW")):
        value, way = frame.args.get(side) or default, str(frame.args.get(f"{side}_side") or "").upper()
        if isinstance(value, exp.Interval):
            length = interval(value)
            if length.type != DURATION or not isinstance(length.constant, int) or length.constant < 0:
                raise NotConformant("a RANGE frame of months")
            places.append(-length.constant if way == "PRECEDING" else length.constant)
            bounds.append(f"to_microseconds({length.constant}) {way}")
        elif isinstance(value, str):
            bounds.append(_bound(value, way, "RANGE", keys))
            places.append(0 if value == "CURRENT ROW" else 1 << 63 if way == "FOLLOWING" else -(1 << 63))
        else:
            raise NotConformant("a frame of this kind is not proven equal in DuckDB")
    if places[0] > places[1]:
        raise NotConformant("a frame that ends before it begins")
    return f"RANGE BETWEEN {bounds[0]} AND {bounds[1]}"


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


def _number(arguments: Sequence[exp.Expr]) -> str:
    """A whole number above 0."""
    only = arguments[0] if len(arguments) == 1 else None
    if not isinstance(only, exp.Literal) or only.is_string or not only.name.isdigit() or int(only.name) == 0:
        raise NotConformant("a number of parts or rows that is not a constant")
    return only.name


def _placed(called: Call, scope: TypedScope, tail: str, raises: bool) -> Typed:
    """The value of the first, last or nth row of the frame."""
    if "ORDER BY" not in tail or not called.arguments:
        raise NotConformant(f"{called.name} without ORDER BY")
    value = expression(called.arguments[0], replace(scope, windows=False))
    place = ""
    if called.name == "nth_value":
        place = f", {_number(called.arguments[1:])}"
    elif len(called.arguments) > 1:
        raise NotConformant(f"{called.name} that skips NULLs")
    return Typed(f"{called.name}({value.sql}{place}){tail}", value.type, raises or value.may_raise)


def _shift(called: Call, scope: TypedScope, tail: str, raises: bool) -> Typed:
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
