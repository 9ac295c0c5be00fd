"""The part of the list about numbers. Transcendental functions are not on it: their last bit depends on the library."""

from __future__ import annotations

import pyarrow as pa

from ladle.sql.conformant.casts import cast, raising
from ladle.sql.conformant.entries import (
    Arguments,
    AsDouble,
    DecimalParam,
    Double,
    Entry,
    Fraction,
    Integral,
    first_type,
    literal_of,
)
from ladle.sql.conformant.spark_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    PRECISION_MAX,
    NotConformant,
    Typed,
    arithmetic_type,
    common_type,
    decimal_of,
    duckdb_type,
    wider_decimal,
)

_REMAINDER = "[REMAINDER_BY_ZERO] Remainder by zero. Use try_mod to tolerate a divisor of 0 and return NULL."


_DigitsDown = literal_of("0", "1", "2", "3", "7", types=(INT,))
_Divisor = literal_of("1", "2", "7", "60", types=(INT,))


def _constant(value: Typed, low: int, high: int) -> int:
    if not isinstance(value.constant, int) or not low <= value.constant <= high:
        raise NotConformant(f"a number of digits beyond {low} to {high}")
    return value.constant


def _exact_type(arguments: Arguments) -> pa.DataType:
    """Spark negates decimals in 34 digits."""
    if arguments[0].type.precision > 34:
        raise NotConformant("the negation of a decimal of more than 34 digits")
    return arguments[0].type


def _round_decimal_type(arguments: Arguments) -> pa.DataType:
    source = arguments[0].type
    digits = _constant(arguments[1], 0, 38) if len(arguments) > 1 else 0
    scale = min(source.scale, digits)
    precision = source.precision - source.scale + 1 + scale
    if precision > PRECISION_MAX:
        raise NotConformant("round of a decimal of 38 digits")
    return pa.decimal128(precision, scale)


def _round_fraction(arguments: Arguments, type_: pa.DataType) -> str:
    """Spark rounds the shortest decimal text of a double half up; only text gives the same digits to round."""
    digits = _constant(arguments[1], 0, 15) if len(arguments) > 1 else 0
    value, to = arguments[0].sql, duckdb_type(type_)
    rounded = f"CAST(CAST(CAST(CAST({value} AS VARCHAR) AS DECIMAL(38,{digits})) AS VARCHAR) AS {to})"
    # From 2^53 on every double is whole.
    return f"(CASE WHEN abs({value}) < 9007199254740992 THEN {rounded} ELSE {value} END)"


def _whole_decimal(arguments: Arguments) -> pa.DataType:
    source = arguments[0].type
    return source if source.scale == 0 else pa.decimal128(source.precision - source.scale + 1, 0)


def _whole(function: str) -> tuple[Entry, ...]:
    return (
        Entry(function, (Integral,), BIGINT, "CAST({0} AS BIGINT)", f"{function}({{0}})"),
        Entry(
            function,
            (AsDouble,),
            BIGINT,
            f"(CASE WHEN isnan({{0}}) THEN 0 ELSE CAST({function}({{0}}) AS BIGINT) END)",
            f"{function}({{0}})",
            may_raise=True,
        ),
        Entry(
            function,
            (DecimalParam,),
            _whole_decimal,
            lambda a, t: f"CAST({function}({a[0].sql}) AS {duckdb_type(t)})",
            f"{function}({{0}})",
        ),
    )


def _widened(arguments: Arguments) -> Arguments:
    type_ = common_type(arguments)
    return [cast(a, type_) for a in arguments]


def _pmod(arguments: Arguments, type_: pa.DataType) -> str:
    a, b = arguments
    # Only a positive divisor: below zero Spark's sum of remainder and divisor wraps around.
    _constant(b, 1, 1 << 30)
    return f"((({a.sql} % {b.sql}) + {b.sql}) % {b.sql})"


def _remainder_decimals(arguments: Arguments, type_: pa.DataType) -> str:
    a, b = arguments
    wide = wider_decimal(a.type, b.type)
    left, right = cast(a, wide).sql, cast(b, wide).sql
    zero = raising(_REMAINDER, type_)
    remainder = f"CAST({left} % {right} AS {duckdb_type(type_)})"
    return f"(CASE WHEN {b.sql} = 0 AND {a.sql} IS NOT NULL THEN {zero} ELSE {remainder} END)"


MATH: tuple[Entry, ...] = (
    Entry("negative", (Integral,), first_type, "(- {0})", "(- {0})", may_raise=True),
    Entry("negative", (Fraction,), first_type, "(- {0})", "(- {0})"),
    Entry("negative", (DecimalParam,), _exact_type, "(- {0})", "(- {0})"),
    Entry("abs", (Integral,), first_type, "abs({0})", "abs({0})", may_raise=True),
    Entry("abs", (Fraction,), first_type, "abs({0})", "abs({0})"),
    Entry("abs", (DecimalParam,), _exact_type, "abs({0})", "abs({0})"),
    Entry(
        "%",
        (DecimalParam, DecimalParam),
        lambda arguments: arithmetic_type("%", *arguments),
        _remainder_decimals,
        "({0} % {1})",
        may_raise=True,
        coerce=lambda a: [cast(each, decimal_of(each)) for each in a],
    ),
    Entry("pmod", (Integral, _Divisor), first_type, _pmod, "pmod({0}, {1})", coerce=_widened),
    Entry("round", (Integral,), first_type, "{0}", "round({0})"),
    Entry("round", (Integral, _DigitsDown), first_type, lambda a, t: _whole_digits(a), "round({0}, {1})"),
    Entry("round", (Fraction,), first_type, _round_fraction, "round({0})"),
    Entry("round", (Double, _DigitsDown), first_type, _round_fraction, "round({0}, {1})"),
    Entry("round", (DecimalParam,), _round_decimal_type, lambda a, t: cast(a[0], t).sql, "round({0})"),
    Entry("round", (DecimalParam, _DigitsDown), _round_decimal_type, lambda a, t: cast(a[0], t).sql, "round({0}, {1})"),
    *_whole("ceil"),
    *_whole("floor"),
    Entry(
        "sqrt", (AsDouble,), DOUBLE, "(CASE WHEN {0} < 0 THEN CAST('nan' AS DOUBLE) ELSE sqrt({0}) END)", "sqrt({0})"
    ),
    Entry(
        "sign",
        (AsDouble,),
        DOUBLE,
        "(CASE WHEN isnan({0}) THEN {0} WHEN {0} > 0 THEN CAST('1' AS DOUBLE) "
        "WHEN {0} < 0 THEN CAST('-1' AS DOUBLE) ELSE {0} END)",
        "sign({0})",
    ),
    Entry("isnan", (Fraction,), BOOLEAN, "coalesce(isnan({0}), FALSE)", "isnan({0})"),
    Entry(
        "nanvl",
        (Fraction, Fraction),
        first_type,
        "(CASE WHEN isnan({0}) THEN {1} ELSE {0} END)",
        "nanvl({0}, {1})",
        coerce=_widened,
    ),
    Entry(
        "try_divide",
        (AsDouble, AsDouble),
        DOUBLE,
        "(CASE WHEN {1} = 0 THEN NULL ELSE {0} / {1} END)",
        "try_divide({0}, {1})",
    ),
)


def _whole_digits(arguments: Arguments) -> str:
    _constant(arguments[1], 0, 38)
    return arguments[0].sql
