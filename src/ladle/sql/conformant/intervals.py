"""Interval literals: day-time ones as microseconds, year-month ones as months."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from sqlglot import exp

from ladle.sql.conformant.spark_types import DURATION, MONTHS, NotConformant, Typed

_MONTHS = {"YEAR": 12, "MONTH": 1}
_MICROSECONDS = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}


def interval(node: exp.Interval) -> Typed:
    """A constant interval; NotConformant for the forms that Spark only takes with `TO`."""
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal) or isinstance(unit, exp.IntervalSpan):
        raise NotConformant(f"the interval {node.sql(dialect='spark')} is not proven equal in DuckDB")
    words = str(node.this.this).split()
    if unit is not None:
        words.append(str(unit.this))
    if not words or len(words) % 2:
        raise NotConformant(f"the interval {node.sql(dialect='spark')} is not proven equal in DuckDB")
    parts = [_part(amount, name) for amount, name in zip(words[::2], words[1::2], strict=True)]
    if len({part.type for part in parts}) != 1:
        raise NotConformant("an interval of both months and days")
    total = sum(part.constant for part in parts if isinstance(part.constant, int))
    return Typed(str(total), parts[0].type, constant=total, days_only=all(part.days_only for part in parts))


def _part(amount: str, name: str) -> Typed:
    unit = name.upper().removesuffix("S")
    try:
        value = Decimal(amount)
    except InvalidOperation:
        raise NotConformant(f"the interval {amount} {name} is not proven equal in DuckDB") from None
    factor = _MONTHS.get(unit) or _MICROSECONDS.get(unit)
    if factor is None or (value != value.to_integral_value() and unit != "SECOND"):
        raise NotConformant(f"the interval {amount} {name} is not proven equal in DuckDB")
    total = value * factor
    if total != total.to_integral_value() or abs(total) >= 1 << 62:
        raise NotConformant(f"the interval {amount} {name} is not proven equal in DuckDB")
    type_ = MONTHS if unit in _MONTHS else DURATION
    return Typed(str(int(total)), type_, constant=int(total), days_only=unit in ("DAY", "WEEK"))
