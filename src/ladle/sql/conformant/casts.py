"""Casts that DuckDB makes as Spark does, as one table: from which types, to which, and how they are written.

DuckDB rounds where Spark truncates and reads strings differently, so a cast that is not here runs in Spark. The
conformance test tries every entry on each pair of its types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name
from ladle.sql.conformant.readable import Unreadable, read
from ladle.sql.conformant.spark_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    FRACTIONS,
    INT,
    INTEGRALS,
    PRECISION_MAX,
    STRING,
    VOID,
    NotConformant,
    Typed,
    decimal_of,
    duckdb_type,
    is_decimal,
    is_fraction,
    is_integral,
    is_moment,
)
from ladle.sql.conformant.text_casts import FROM_TEXT, raised, tried

DECIMALS = tuple(pa.decimal128(p, s) for p, s in ((5, 2), (10, 0), (12, 4), (15, 2), (20, 6), (38, 18)))
"""Decimal types that the conformance test samples; entries accept every decimal."""
MOMENTS = (TIMESTAMP, TIMESTAMP_NTZ)


def raising(message: str, type_: pa.DataType) -> str:
    """DuckDB text that raises; typed, so that it can stand in any branch of a CASE."""
    quoted = message.replace("'", "''")
    return f"CAST(error('{quoted}') AS {duckdb_type(type_)})"


@dataclass(frozen=True)
class Cast:
    """From any type of `sources` to any of `targets` (decimals: to any decimal when one is listed)."""

    sources: tuple[pa.DataType, ...]
    targets: tuple[pa.DataType, ...]
    duckdb: str | Callable[[str, pa.DataType, pa.DataType], str]
    may_raise: Callable[[pa.DataType, pa.DataType], bool] | bool = False

    def accepts(self, source: pa.DataType, target: pa.DataType) -> bool:
        """Whether this is the cast from one type to another."""
        return _listed(source, self.sources) and _listed(target, self.targets)

    def render(self, value: Typed, target: pa.DataType) -> Typed:
        """The cast of a value, as DuckDB's text."""
        if callable(self.duckdb):
            sql = self.duckdb(value.sql, value.type, target)
        else:
            sql = self.duckdb.format(value.sql, to=duckdb_type(target))
        raises = self.may_raise(value.type, target) if callable(self.may_raise) else self.may_raise
        return Typed(sql, target, value.may_raise or raises)


def _listed(type_: pa.DataType, types: tuple[pa.DataType, ...]) -> bool:
    return type_ in types or (is_decimal(type_) and any(is_decimal(each) for each in types))


def _narrows(source: pa.DataType, target: pa.DataType) -> bool:
    if is_decimal(target):
        digits = decimal_of(source)
        return bool(digits.precision - digits.scale > target.precision - target.scale)
    return bool(source.bit_width > target.bit_width)


def _narrows_decimal(source: pa.DataType, target: pa.DataType) -> bool:
    # Rounding may carry into one more whole digit, so a smaller scale needs room for it.
    carry = 1 if target.scale < source.scale else 0
    return bool(source.precision - source.scale + carry > target.precision - target.scale)


def truncated(sql: str, source: pa.DataType, target: pa.DataType, word: str = "CAST") -> str:
    """A float as an integer: DuckDB rounds, Spark truncates."""
    cast = f"{word}(trunc({sql}) AS {duckdb_type(target)})"
    if target != BIGINT:
        return cast
    # Spark's range check is made in doubles, where 2^63 passes and becomes the largest BIGINT.
    limit = f"CAST(9223372036854775808 AS {duckdb_type(source)})"
    return f"(CASE WHEN {sql} = {limit} THEN 9223372036854775807 ELSE {cast} END)"


def _decimal_to_fraction(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    # Up to 15 digits both parts are exact doubles; beyond that only the parser of numbers rounds once.
    if target == DOUBLE and source.precision <= 15:
        return f"CAST({sql} AS DOUBLE)"
    return f"CAST(CAST({sql} AS VARCHAR) AS {duckdb_type(target)})"


CASTS: tuple[Cast, ...] = (
    Cast(INTEGRALS, INTEGRALS, "CAST({0} AS {to})", _narrows),
    Cast(INTEGRALS, FRACTIONS, "CAST({0} AS {to})"),
    Cast(INTEGRALS, DECIMALS, "CAST({0} AS {to})", _narrows),
    Cast(INTEGRALS, (STRING,), "CAST({0} AS VARCHAR)"),
    Cast(INTEGRALS, (BOOLEAN,), "({0} <> 0)"),
    Cast((BOOLEAN,), (*INTEGRALS, *FRACTIONS), "CAST({0} AS {to})"),
    Cast((BOOLEAN,), (STRING,), "CAST({0} AS VARCHAR)"),
    Cast((FLOAT,), (DOUBLE,), "CAST({0} AS DOUBLE)"),
    Cast(FRACTIONS, INTEGRALS, truncated, True),
    Cast(FRACTIONS, (BOOLEAN,), "({0} <> 0)"),
    Cast(DECIMALS, DECIMALS, "CAST({0} AS {to})", _narrows_decimal),
    Cast(DECIMALS, INTEGRALS, "CAST(trunc({0}) AS {to})", True),
    Cast(DECIMALS, FRACTIONS, _decimal_to_fraction),
    Cast(DECIMALS, (STRING,), "CAST({0} AS VARCHAR)"),
    Cast(DECIMALS, (BOOLEAN,), "({0} <> 0)"),
    Cast((STRING,), (BINARY,), "encode({0})"),
    Cast((STRING,), FROM_TEXT, lambda sql, source, target: raised(sql, target), True),
    Cast((DATE,), MOMENTS, "CAST({0} AS TIMESTAMP)"),
    Cast((DATE,), (STRING,), "CAST({0} AS VARCHAR)"),
    Cast(MOMENTS, (DATE,), "CAST({0} AS DATE)"),
    Cast(MOMENTS, (STRING,), "CAST({0} AS VARCHAR)"),
    Cast((TIMESTAMP,), (TIMESTAMP_NTZ,), "{0}"),
    Cast((TIMESTAMP_NTZ,), (TIMESTAMP,), "{0}"),
)


def cast(value: Typed, target: pa.DataType) -> Typed:
    """`CAST(value AS target)` as Spark makes it in ANSI mode."""
    if value.type == target:
        return value
    if value.type == VOID:
        return Typed(f"CAST({value.sql} AS {duckdb_type(target)})", target, value.may_raise)
    if value.constant is not None:
        folded = _fold(value, target)
        if folded is not None:
            return folded
    for entry in CASTS:
        if entry.accepts(value.type, target):
            return entry.render(value, target)
    raise NotConformant(f"CAST from {type_name(value.type)} to {type_name(target)} is not proven equal in DuckDB")


def literal(value: int | Decimal | str | bool, type_: pa.DataType) -> Typed:
    """A literal of this type; numbers are written as casts of strings, so that DuckDB guesses nothing."""
    if isinstance(value, bool):
        return Typed("TRUE" if value else "FALSE", type_, constant=value)
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        if "\0" in value:
            raise NotConformant("a string literal with a NUL character")
        return Typed(f"'{quoted}'", type_, constant=value)
    text = format(value, "f") if isinstance(value, Decimal) else str(value)
    return Typed(f"CAST('{text}' AS {duckdb_type(type_)})", type_, constant=value)


def number(text: str) -> Typed:
    """A numeric literal as Spark's parser types it: INT, BIGINT or DECIMAL without an exponent, else DOUBLE."""
    lowered = text.lower()
    if "e" in lowered:
        return Typed(f"CAST('{lowered}' AS DOUBLE)", DOUBLE)
    if "." in lowered:
        return exact(Decimal(lowered))
    value = int(lowered)
    if -(1 << 31) <= value < 1 << 31:
        return literal(value, INT)
    if -(1 << 63) <= value < 1 << 63:
        return literal(value, BIGINT)
    return exact(Decimal(value))


def exact(value: Decimal) -> Typed:
    """A literal of a decimal, with the smallest precision and scale that hold it."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    whole = len(digits) + exponent if any(digits) or exponent >= 0 else 0
    precision = max(whole, 0) + scale
    if precision > PRECISION_MAX:
        raise NotConformant(f"the literal {value} has more than 38 digits")
    return literal(value, pa.decimal128(max(precision, 1), scale))


def _fold(value: Typed, target: pa.DataType) -> Typed | None:
    """Casts of literals that need no function: strings, and integers to other numbers."""
    constant = value.constant
    if isinstance(constant, str) and target != STRING:
        return _read(constant, target)
    if isinstance(constant, int) and not isinstance(constant, bool) and is_integral(target):
        bits = target.bit_width - 1
        if -(1 << bits) <= constant < 1 << bits:
            return literal(constant, target)
    if isinstance(constant, int) and not isinstance(constant, bool) and target == DOUBLE and abs(constant) < 1 << 53:
        return Typed(f"CAST('{constant}' AS DOUBLE)", DOUBLE, constant=constant)
    return None


def _read(text: str, target: pa.DataType) -> Typed | None:
    """A text as the literal that it spells. One that spells none raises when it is evaluated."""
    if target == BINARY:
        return None
    try:
        found = read(text, target)
    except Unreadable:
        return Typed(raised(literal(text, STRING).sql, target), target, may_raise=True) if target in FROM_TEXT else None
    if isinstance(found, bool):
        return literal(found, target)
    if isinstance(found, float):
        return Typed(f"CAST('{found!r}' AS {duckdb_type(target)})", target)
    if isinstance(found, int) and (target == DATE or is_moment(target)):
        return _moment(found, target)
    assert isinstance(found, int | Decimal)
    return literal(found, target)


def _moment(found: int, target: pa.DataType) -> Typed:
    try:
        if target == DATE:
            return Typed(f"DATE '{date(1970, 1, 1) + timedelta(days=found)}'", target)
        return Typed(f"TIMESTAMP '{datetime(1970, 1, 1) + timedelta(microseconds=found)}'", target)
    except OverflowError:
        raise NotConformant("a time outside the years 1 to 9999") from None


def try_cast(value: Typed, target: pa.DataType) -> Typed:
    """`try_cast(value AS target)`: NULL where the cast raises; what the value itself raises stays."""
    found = cast(value, target)
    if not found.may_raise:
        return found
    if value.may_raise:
        raise NotConformant("try_cast of something that may raise")
    if value.type == STRING:
        return Typed(tried(value.sql, target), target)
    if is_fraction(value.type):
        return Typed(truncated(value.sql, value.type, target, "TRY_CAST"), target)
    inner = f"trunc({value.sql})" if is_decimal(value.type) and is_integral(target) else value.sql
    return Typed(f"TRY_CAST({inner} AS {duckdb_type(target)})", target)


def unscaled(value: Typed) -> str:
    """A decimal as a HUGEINT of its digits: the only exact way through division in DuckDB."""
    if value.type.precision + value.type.scale <= PRECISION_MAX:
        # As DECIMAL(38) because DuckDB gives products of narrow decimals only 18 digits.
        power = f"CAST('{10**value.type.scale}' AS DECIMAL({value.type.scale + 1},0))"
        return f"CAST(CAST({value.sql} AS DECIMAL(38,{value.type.scale})) * {power} AS HUGEINT)"
    return f"CAST(replace(CAST({value.sql} AS VARCHAR), '.', '') AS HUGEINT)"


def scaled(sql: str, type_: pa.DataType) -> str:
    """The inverse of `unscaled`: a multiplication by 10^-scale only moves the point."""
    if type_.scale == 0:
        return f"CAST({sql} AS {duckdb_type(type_)})"
    step = f"CAST('{Decimal(1).scaleb(-type_.scale):f}' AS DECIMAL({type_.scale},{type_.scale}))"
    return f"CAST(CAST({sql} AS DECIMAL(38,0)) * {step} AS {duckdb_type(type_)})"


def rounded_quotient(numerator: str, divisor: str) -> str:
    """HUGEINT division that rounds half away from zero."""
    rest = f"abs({numerator} % {divisor})"
    half = f"{rest} >= abs({divisor}) - {rest}"
    away = f"sign({numerator}) * sign({divisor})"
    return f"(({numerator} // {divisor}) + (CASE WHEN {half} THEN CAST({away} AS HUGEINT) ELSE 0 END))"


def is_ordered(type_: pa.DataType) -> bool:
    """Types that can be compared, sorted and grouped."""
    return type_ != VOID and (
        type_ in (BOOLEAN, STRING, BINARY, DATE, DURATION, TIMESTAMP, TIMESTAMP_NTZ)
        or is_integral(type_)
        or is_fraction(type_)
        or is_decimal(type_)
    )
