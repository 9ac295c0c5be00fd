"""The part of the list about numbers. Transcendental functions are not on it: their last bit depends on the library."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from ladle.sql.conformant.casts import cast, raising
from ladle.sql.conformant.signatures import (
    Arguments,
    AsDouble,
    DecimalParam,
    Double,
    Fraction,
    Integral,
    Signature,
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


def _whole(function: str) -> tuple[Signature, ...]:
    return (
        Signature(function, (Integral,), BIGINT, "CAST({0} AS BIGINT)", f"{function}({{0}})"),
        Signature(
            function,
            (AsDouble,),
            BIGINT,
            f"(CASE WHEN isnan({{0}}) THEN 0 ELSE CAST({function}({{0}}) AS BIGINT) END)",
            f"{function}({{0}})",
            may_raise=True,
        ),
        Signature(
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


_Exponent = literal_of("0", "1", "2", "0.5", types=(INT, pa.decimal128(1, 1)))
_Edge = literal_of("0", "10", "-2.5", types=(INT, pa.decimal128(2, 1)))
_Buckets = literal_of("1", "7", types=(INT,))


def _power(arguments: Arguments, type_: pa.DataType) -> str:
    """Exponents for which both libraries multiply or take a root, exactly."""
    value = arguments[0].sql
    match arguments[1].constant:
        case 0:
            return f"(CASE WHEN {value} IS NOT NULL THEN CAST('1' AS DOUBLE) END)"
        case 1:
            return value
        case 2:
            return f"({value} * {value})"
    raise NotConformant("power with this exponent")


def _bucket(arguments: Arguments, type_: pa.DataType) -> str:
    value, low, high, count = arguments
    match low.constant, high.constant, count.constant:
        case int() | Decimal() as least, int() | Decimal() as most, int() as buckets:
            if least >= most or not 0 < buckets < 1_000_000:
                raise NotConformant("width_bucket with these bounds")
        case _:
            raise NotConformant("width_bucket whose bounds are not constant")
    v, a, b = value.sql, cast(low, DOUBLE).sql, cast(high, DOUBLE).sql
    inside = f"CAST(trunc(({buckets} * ({v} - {a})) / ({b} - {a})) AS BIGINT) + 1"
    return (
        f"(CASE WHEN {v} IS NULL OR isnan({v}) THEN NULL WHEN {v} < {a} THEN CAST(0 AS BIGINT) "
        f"WHEN {v} >= {b} THEN CAST({buckets + 1} AS BIGINT) ELSE {inside} END)"
    )


MATH: tuple[Signature, ...] = (
    Signature("negative", (Integral,), first_type, "(- {0})", "(- {0})", may_raise=True),
    Signature("negative", (Fraction,), first_type, "(- {0})", "(- {0})"),
    Signature("negative", (DecimalParam,), _exact_type, "(- {0})", "(- {0})"),
    Signature("abs", (Integral,), first_type, "abs({0})", "abs({0})", may_raise=True),
    Signature("abs", (Fraction,), first_type, "abs({0})", "abs({0})"),
    Signature("abs", (DecimalParam,), _exact_type, "abs({0})", "abs({0})"),
    Signature(
        "%",
        (DecimalParam, DecimalParam),
        lambda arguments: arithmetic_type("%", *arguments),
        _remainder_decimals,
        "({0} % {1})",
        may_raise=True,
        coerce=lambda a: [cast(each, decimal_of(each)) for each in a],
    ),
    Signature("pmod", (Integral, _Divisor), first_type, _pmod, "pmod({0}, {1})", coerce=_widened),
    Signature("round", (Integral,), first_type, "{0}", "round({0})"),
    Signature("round", (Integral, _DigitsDown), first_type, lambda a, t: _whole_digits(a), "round({0}, {1})"),
    Signature("round", (Fraction,), first_type, _round_fraction, "round({0})"),
    Signature("round", (Double, _DigitsDown), first_type, _round_fraction, "round({0}, {1})"),
    Signature("round", (DecimalParam,), _round_decimal_type, lambda a, t: cast(a[0], t).sql, "round({0})"),
    Signature(
        "round", (DecimalParam, _DigitsDown), _round_decimal_type, lambda a, t: cast(a[0], t).sql, "round({0}, {1})"
    ),
    *_whole("ceil"),
    *_whole("floor"),
    Signature(
        "sqrt", (AsDouble,), DOUBLE, "(CASE WHEN {0} < 0 THEN CAST('nan' AS DOUBLE) ELSE sqrt({0}) END)", "sqrt({0})"
    ),
    Signature(
        "sign",
        (AsDouble,),
        DOUBLE,
        "(CASE WHEN isnan({0}) THEN {0} WHEN {0} > 0 THEN CAST('1' AS DOUBLE) "
        "WHEN {0} < 0 THEN CAST('-1' AS DOUBLE) ELSE {0} END)",
        "sign({0})",
    ),
    Signature("isnan", (Fraction,), BOOLEAN, "coalesce(isnan({0}), FALSE)", "isnan({0})"),
    Signature(
        "nanvl",
        (Fraction, Fraction),
        first_type,
        "(CASE WHEN isnan({0}) THEN {1} ELSE {0} END)",
        "nanvl({0}, {1})",
        coerce=_widened,
    ),
    Signature(
        "try_divide",
        (AsDouble, AsDouble),
        DOUBLE,
        "(CASE WHEN {1} = 0 THEN NULL ELSE {0} / {1} END)",
        "try_divide({0}, {1})",
    ),
    Signature("power", (AsDouble, _Exponent), DOUBLE, _power, "power({0}, {1})"),
    Signature("width_bucket", (AsDouble, _Edge, _Edge, _Buckets), BIGINT, _bucket, "width_bucket({all})"),
    Signature("radians", (AsDouble,), DOUBLE, "radians({0})", "radians({0})"),
    Signature("degrees", (AsDouble,), DOUBLE, "degrees({0})", "degrees({0})"),
)


def _whole_digits(arguments: Arguments) -> str:
    _constant(arguments[1], 0, 38)
    return arguments[0].sql
