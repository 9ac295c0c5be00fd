"""Spark's types and coercion rules (ANSI mode), over Arrow's types.

A `Typed` is an expression already rendered for DuckDB together with the type that Spark gives it. The rule kept by
every rendering: the DuckDB value has exactly the DuckDB type that `duckdb_type` names, so that no implicit cast of
DuckDB's ever decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa

from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name

BOOLEAN = pa.bool_()
TINYINT, SMALLINT, INT, BIGINT = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE = pa.float32(), pa.float64()
STRING, BINARY, DATE, VOID = pa.string(), pa.binary(), pa.date32(), pa.null()
DURATION = pa.duration("us")
"""Spark's day-time interval, only inside expressions: no stream or answer has it. BIGINT microseconds in DuckDB."""
MONTHS = pa.month_day_nano_interval()
"""Spark's year-month interval; constants only."""

DEFAULT_DECIMAL = pa.decimal128(10, 0)

INTEGRALS = (TINYINT, SMALLINT, INT, BIGINT)
FRACTIONS = (FLOAT, DOUBLE)
PRECISION_MAX = 38
SCALE_MIN_ADJUSTED = 6

_DIGITS = {TINYINT: 3, SMALLINT: 5, INT: 10, BIGINT: 20}
_DUCKDB = {
    BOOLEAN: "BOOLEAN",
    TINYINT: "TINYINT",
    SMALLINT: "SMALLINT",
    INT: "INTEGER",
    BIGINT: "BIGINT",
    FLOAT: "FLOAT",
    DOUBLE: "DOUBLE",
    STRING: "VARCHAR",
    BINARY: "BLOB",
    DATE: "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP",
    VOID: "INTEGER",
    DURATION: "BIGINT",
}


class NotConformant(Exception):
    """DuckDB is not proven to do this as Spark does; `reason` is for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(NotConformant):
    """Spark refuses these types together, so there is no engine that runs it."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.hint = hint


@dataclass(frozen=True)
class Typed:
    """A rendered expression: DuckDB text, Spark type, and what the rules about constants need to know."""

    sql: str
    type: pa.DataType
    may_raise: bool = False
    constant: int | Decimal | str | bool | None = None
    """The value of a literal; None for everything else, the NULL literal included."""
    days_only: bool = False
    """A day-time interval written in days alone: added to a DATE it gives a DATE."""
    summed: bool = False
    """A sum of decimals, or computed from one: it has far fewer digits than its type allows."""


def duckdb_type(type_: pa.DataType) -> str:
    """What DuckDB calls a type. Types that it does not compute with are refused."""
    if type_ in _DUCKDB:
        return _DUCKDB[type_]
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    raise NotConformant(f"DuckDB does not compute with {type_name(type_)}")


def is_integral(type_: pa.DataType) -> bool:
    """Whether a type is one of whole numbers."""
    return type_ in INTEGRALS


def is_fraction(type_: pa.DataType) -> bool:
    """Whether a type is FLOAT or DOUBLE."""
    return type_ in FRACTIONS


def is_decimal(type_: pa.DataType) -> bool:
    """Whether a type is DECIMAL."""
    return bool(pa.types.is_decimal(type_))


def is_numeric(type_: pa.DataType) -> bool:
    """Whether a type is one of numbers."""
    return is_integral(type_) or is_fraction(type_) or is_decimal(type_)


def is_moment(type_: pa.DataType) -> bool:
    """Whether a type is TIMESTAMP or TIMESTAMP_NTZ."""
    return type_ in (TIMESTAMP, TIMESTAMP_NTZ)


def adjusted(precision: int, scale: int) -> pa.DataType:
    """`DecimalType.adjustPrecisionScale`: beyond 38 digits the scale gives way, down to 6."""
    if precision <= PRECISION_MAX:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(PRECISION_MAX, max(PRECISION_MAX - whole, min(scale, SCALE_MIN_ADJUSTED)))


def decimal_of(value: Typed | pa.DataType) -> pa.DataType:
    """The decimal type that an integer has in decimal arithmetic; a literal only needs its own digits."""
    type_ = value.type if isinstance(value, Typed) else value
    if is_decimal(type_):
        return type_
    if isinstance(value, Typed) and isinstance(value.constant, int) and is_integral(type_):
        return pa.decimal128(max(1, len(str(abs(value.constant)))), 0)
    if is_integral(type_):
        return pa.decimal128(_DIGITS[type_], 0)
    raise NotConformant(f"{type_name(type_)} is not a decimal")


def wider_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type that holds every value of both; NotConformant where Spark itself would lose digits."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if whole + scale > PRECISION_MAX:
        raise NotConformant(f"{type_name(a)} and {type_name(b)} have no common decimal type of 38 digits")
    return pa.decimal128(whole + scale, scale)


def _tightest(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """`AnsiTypeCoercion.findTightestCommonType` for the types Ladle has, decimals apart."""
    if a == b:
        return a
    if a == VOID:
        return b
    if b == VOID:
        return a
    order = (*INTEGRALS, *FRACTIONS)
    if a in order and b in order:
        wider = order[max(order.index(a), order.index(b))]
        return DOUBLE if wider == FLOAT else wider
    if {a, b} <= {DATE, TIMESTAMP, TIMESTAMP_NTZ}:
        return TIMESTAMP if TIMESTAMP in (a, b) else TIMESTAMP_NTZ
    return None


def common_type(values: Iterable[Typed], *, strings: bool = True) -> pa.DataType:
    """The type of CASE, COALESCE, IN, UNION and comparisons over these; Refused when Spark has none.

    A string becomes what it stands beside, unless `strings` says that it does not here.
    """
    found: Typed | None = None
    for value in values:
        found = value if found is None else replace(found, type=_pair(found, value, strings=strings), constant=None)
    if found is None:
        raise NotConformant("there is nothing to find a type for")
    return found.type


def _pair(a: Typed, b: Typed, *, strings: bool) -> pa.DataType:
    tightest = _tightest(a.type, b.type)
    if tightest is not None:
        return tightest
    if is_numeric(a.type) and is_numeric(b.type):
        if is_fraction(a.type) or is_fraction(b.type):
            return DOUBLE
        return wider_decimal(decimal_of(a.type), decimal_of(b.type))
    if pa.types.is_nested(a.type) and a.type.id == b.type.id:
        raise NotConformant(f"{type_name(a.type)} beside {type_name(b.type)}")
    if MONTHS in (a.type, b.type) or DURATION in (a.type, b.type):
        raise NotConformant("intervals beside other types")
    if strings and STRING in (a.type, b.type):
        other = b.type if a.type == STRING else a.type
        if not pa.types.is_nested(other):
            return promoted(other)
    raise Refused(
        f"{type_name(a.type)} and {type_name(b.type)} have no type in common.",
        hint=f"cast one of them: CAST(... AS {type_name(b.type)})",
    )


def promoted(type_: pa.DataType) -> pa.DataType:
    """What Spark casts a string to, and this type too, when the two stand beside each other."""
    if is_integral(type_):
        return BIGINT
    return DOUBLE if is_numeric(type_) else type_


def arithmetic_type(operator: str, a: Typed, b: Typed) -> pa.DataType:
    """The result of `+ - * / % pmod div` over decimals (`DecimalPrecision`); the operands are decimal already."""
    left, right = decimal_of(a), decimal_of(b)
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    match operator:
        case "+" | "-":
            scale = max(s1, s2)
            return adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "*":
            return adjusted(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(SCALE_MIN_ADJUSTED, s1 + p2 + 1)
            return adjusted(p1 - s1 + s2 + scale, scale)
        case "%" | "pmod":
            scale = max(s1, s2)
            return adjusted(min(p1 - s1, p2 - s2) + scale, scale)
    raise NotConformant(f"{operator} over decimals is not proven equal in DuckDB")
