"""THE LIST: the operators and functions that DuckDB runs as Spark 4.3 does in ANSI mode.

An entry is here because the conformance test, which is generated from this table, found value, type, NULLs and raising
equal on random values and edge cases. What is not here runs in Spark. Adding an entry adds its tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

import pyarrow as pa

from ladle.sql.conformant.casts import cast, raising, rounded_quotient, scaled, unscaled
from ladle.sql.conformant.list_aggregate import AGGREGATES
from ladle.sql.conformant.list_math import MATH
from ladle.sql.conformant.list_string import STRINGS
from ladle.sql.conformant.list_time import TIMES
from ladle.sql.conformant.signatures import (
    AnyType,
    Arguments,
    Boolean,
    DecimalParam,
    Exact,
    Fraction,
    Integral,
    Number,
    Param,
    Signature,
    call,
    first_type,
)
from ladle.sql.conformant.spark_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    DURATION,
    FRACTIONS,
    INTEGRALS,
    PRECISION_MAX,
    NotConformant,
    Refused,
    Typed,
    arithmetic_type,
    common_type,
    decimal_of,
    duckdb_type,
    is_decimal,
    is_integral,
    wider_decimal,
)

_ZERO = "[DIVIDE_BY_ZERO] Division by zero. Use try_divide to tolerate a divisor of 0 and return NULL."
_REMAINDER = "[REMAINDER_BY_ZERO] Remainder by zero. Use try_mod to tolerate a divisor of 0 and return NULL."


def widened(arguments: Arguments) -> Arguments:
    """Both sides as Spark's common type of CASE, COALESCE and the like."""
    type_ = common_type(arguments)
    return [cast(a, type_) for a in arguments]


def _alike(arguments: Arguments) -> Arguments:
    """As `widened`, of GREATEST and LEAST: no string becomes something else for them."""
    type_ = common_type(arguments, strings=False)
    return [cast(a, type_) for a in arguments]


def compared(arguments: Arguments) -> Arguments:
    """Both sides as the type in which Spark compares them."""
    if any(pa.types.is_map(a.type) for a in arguments):
        raise Refused("MAPs can't be compared.", hint="compare their entries: map_entries(...)")
    if any(is_decimal(a.type) for a in arguments) and all(is_decimal(a.type) or is_integral(a.type) for a in arguments):
        type_ = decimal_of(arguments[0])
        for argument in arguments[1:]:
            type_ = wider_decimal(type_, decimal_of(argument))
        return [cast(a, type_) for a in arguments]
    return widened(arguments)


def _ordered(arguments: Arguments) -> Arguments:
    """As `compared`; but Spark makes an integer beside a decimal literal that no BIGINT reaches TRUE or FALSE when it
    analyses, for NULL too.
    """
    for one, other in (arguments, arguments[::-1]):
        if is_integral(one.type) and beyond_bigint(other.constant):
            raise NotConformant(f"an integer compared with {other.constant}")
    return compared(arguments)


def beyond_bigint(value: object) -> bool:
    """Whether a whole number is out of the range of BIGINT."""
    return isinstance(value, Decimal) and not -(1 << 63) <= value <= (1 << 63) - 1


def _as_decimals(arguments: Arguments) -> Arguments:
    return [cast(a, decimal_of(a)) for a in arguments]


def _wide(value: Typed) -> str:
    """DuckDB gives a product of decimals of up to 18 digits 18 digits, and raises beyond; a wider one has up to 38."""
    if value.type.precision > 18:
        return value.sql
    return f"CAST({value.sql} AS DECIMAL(19,{value.type.scale}))"


def _operator(
    symbol: str,
    params: tuple[Param, ...],
    result: pa.DataType | Callable[[Arguments], pa.DataType],
    duckdb: str | Callable[[Arguments, pa.DataType], str],
    *,
    may_raise: bool | Callable[[Arguments], bool] = False,
    coerce: Callable[[Arguments], Arguments],
) -> Signature:
    """An operator that gives NULL for NULL. It looks at its left side first; what divides, at the divisor."""
    first = 1 if symbol in ("/", "%", "div") else 0
    template = f"({{0}} {symbol} {{1}})"
    return Signature(symbol, params, result, duckdb, template, may_raise=may_raise, coerce=coerce, first=first)


def _arithmetic(symbol: str) -> tuple[Signature, ...]:
    def decimal_sql(arguments: Arguments, type_: pa.DataType) -> str:
        a, b = arguments
        if symbol == "*":
            if a.type.precision + b.type.precision > PRECISION_MAX:
                if type_.scale != a.type.scale + b.type.scale:
                    raise NotConformant("a product of decimals of more than 38 digits")
                # No digit is rounded away: what has more than 38 digits is an error in both.
                return scaled(f"({unscaled(a)} * {unscaled(b)})", type_)
            return f"CAST({_wide(a)} * {b.sql} AS {duckdb_type(type_)})"
        wide = wider_decimal(a.type, b.type)
        if wide.precision >= PRECISION_MAX:
            raise NotConformant("a sum of decimals of more than 38 digits")
        left, right = cast(a, type_), cast(b, type_)
        return f"CAST({left.sql} {symbol} {right.sql} AS {duckdb_type(type_)})"

    numbers = Param((*INTEGRALS, *FRACTIONS))
    template = f"({{0}} {symbol} {{1}})"
    return (
        _operator(symbol, (Integral, Integral), first_type, template, may_raise=True, coerce=widened),
        _operator(symbol, (numbers, numbers), first_type, template, coerce=widened),
        _operator(symbol, (Fraction, DecimalParam), first_type, template, coerce=widened),
        _operator(symbol, (DecimalParam, Fraction), first_type, template, coerce=widened),
        _operator(
            symbol,
            (Exact, Exact),
            lambda arguments: arithmetic_type(symbol, *arguments),
            decimal_sql,
            may_raise=True,
            coerce=_as_decimals,
        ),
    )


def _may_be_zero(arguments: Arguments) -> bool:
    return not arguments[1].constant


def _checked(arguments: Arguments, sql: str, message: str, type_: pa.DataType) -> str:
    """NULL beats a zero divisor, as in Spark."""
    a, b = arguments
    if not _may_be_zero(arguments):
        return sql
    return f"(CASE WHEN {b.sql} = 0 AND {a.sql} IS NOT NULL THEN {raising(message, type_)} ELSE {sql} END)"


def null_test(arguments: Arguments, _: pa.DataType) -> str:
    """DuckDB infers `(a + b) IS NULL` from a and b, and so does not raise where Spark, computing the sum, does."""
    if arguments[0].may_raise:
        raise NotConformant("IS NULL over an expression that may raise")
    return f"({arguments[0].sql} IS NULL)"


def _divide(arguments: Arguments, type_: pa.DataType) -> str:
    return _checked(arguments, f"{arguments[0].sql} / {arguments[1].sql}", _ZERO, type_)


def _divide_decimals(arguments: Arguments, type_: pa.DataType) -> str:
    a, b = arguments
    shift = type_.scale + b.type.scale - a.type.scale
    if shift < 0 or (a.type.precision + shift > PRECISION_MAX and not (a.summed and b.summed)):
        raise NotConformant("a quotient of decimals of more than 38 digits")
    numerator = f"({unscaled(a)} * CAST('{10**shift}' AS HUGEINT))"
    quotient = scaled(rounded_quotient(numerator, unscaled(b)), type_)
    return _checked(arguments, quotient, _ZERO, type_)


def _doubles(arguments: Arguments) -> Arguments:
    return [cast(a, DOUBLE) for a in arguments]


def _remainder(arguments: Arguments, type_: pa.DataType) -> str:
    a, b = arguments
    return _checked(arguments, _bare_remainder(a, b), _REMAINDER, type_)


def _bare_remainder(a: Typed, b: Typed) -> str:
    # DuckDB overflows on the smallest integer % -1, which is 0.
    if is_integral(a.type):
        return f"(CASE WHEN {b.sql} = -1 THEN {a.sql} - {a.sql} ELSE {a.sql} % {b.sql} END)"
    return f"({a.sql} % {b.sql})"


OPERATORS: tuple[Signature, ...] = (
    *_arithmetic("+"),
    *_arithmetic("-"),
    *_arithmetic("*"),
    _operator("/", (Integral, Integral), DOUBLE, _divide, may_raise=_may_be_zero, coerce=_doubles),
    _operator("/", (Fraction, Number), DOUBLE, _divide, may_raise=_may_be_zero, coerce=_doubles),
    _operator("/", (Number, Fraction), DOUBLE, _divide, may_raise=_may_be_zero, coerce=_doubles),
    _operator(
        "/",
        (Exact, Exact),
        lambda arguments: arithmetic_type("/", *arguments),
        _divide_decimals,
        may_raise=True,
        coerce=_as_decimals,
    ),
    _operator("%", (Integral, Integral), first_type, _remainder, may_raise=_may_be_zero, coerce=widened),
    _operator("%", (Fraction, Number), first_type, _remainder, may_raise=_may_be_zero, coerce=widened),
    _operator("%", (Number, Fraction), first_type, _remainder, may_raise=_may_be_zero, coerce=widened),
    _operator(
        "div",
        (Integral, Integral),
        BIGINT,
        lambda a, t: _checked(a, f"({a[0].sql} // {a[1].sql})", _ZERO, t),
        may_raise=True,
        coerce=lambda a: [cast(each, BIGINT) for each in a],
    ),
    *(_operator(s, (AnyType, AnyType), BOOLEAN, f"({{0}} {s} {{1}})", coerce=compared) for s in ("=", "<>")),
    *(
        _operator(each, (AnyType, AnyType), BOOLEAN, f"({{0}} {each} {{1}})", coerce=_ordered)
        for each in ("<", "<=", ">", ">=")
    ),
    Signature("<=>", (AnyType, AnyType), BOOLEAN, "({0} IS NOT DISTINCT FROM {1})", "({0} <=> {1})", coerce=compared),
    *(
        Signature(symbol, (Param((DURATION,)), Param((DURATION,))), BOOLEAN, f"({{0}} {symbol} {{1}})")
        for symbol in ("=", "<>", "<", "<=", ">", ">=")
    ),
    Signature("isnull", (AnyType,), BOOLEAN, null_test, "({0} IS NULL)"),
    Signature("isnotnull", (AnyType,), BOOLEAN, lambda a, t: f"(NOT {null_test(a, t)})", "({0} IS NOT NULL)"),
    Signature("not", (Boolean,), BOOLEAN, "(NOT {0})", "(NOT {0})"),
    Signature(
        "in", (AnyType, AnyType), BOOLEAN, lambda a, t: _in(a), "({0} IN ({1}, {1}))", coerce=compared, variadic=True
    ),
    Signature("coalesce", (AnyType,), first_type, "coalesce({all})", "coalesce({all})", coerce=widened, variadic=True),
    Signature(
        "nullif",
        (AnyType, AnyType),
        first_type,
        lambda a, t: _nullif(a),
        "nullif({0}, {1})",
        may_raise=lambda a: any(each.may_raise for each in compared(a)),
    ),
    Signature(
        "if",
        (Boolean, AnyType, AnyType),
        lambda a: a[1].type,
        "(CASE WHEN {0} THEN {1} ELSE {2} END)",
        "if({0}, {1}, {2})",
        coerce=lambda a: [a[0], *widened(a[1:])],
    ),
    Signature(
        "nvl2",
        (AnyType, AnyType, AnyType),
        lambda a: a[1].type,
        "(CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END)",
        "nvl2({0}, {1}, {2})",
        coerce=lambda a: [a[0], *widened(a[1:])],
    ),
    Signature(
        "greatest", (AnyType, AnyType), first_type, "greatest({all})", "greatest({all})", coerce=_alike, variadic=True
    ),
    Signature("least", (AnyType, AnyType), first_type, "least({all})", "least({all})", coerce=_alike, variadic=True),
    _operator("&", (Integral, Integral), first_type, "({0} & {1})", coerce=widened),
    _operator("|", (Integral, Integral), first_type, "({0} | {1})", coerce=widened),
    _operator("^", (Integral, Integral), first_type, "xor({0}, {1})", coerce=widened),
    Signature("~", (Integral,), first_type, "(~{0})", "(~{0})"),
)


def _in(arguments: Arguments) -> str:
    value, *others = (a.sql for a in arguments)
    if not any(a.may_raise for a in arguments):
        return f"({value} IN ({', '.join(others)}))"
    # Spark looks at one after the other, and at none when the value is NULL.
    found = " ".join(f"WHEN {value} = {other} THEN TRUE" for other in others)
    unknown = " OR ".join(f"{other} IS NULL" for other in others)
    return f"(CASE WHEN {value} IS NULL THEN NULL {found} WHEN {unknown} THEN NULL ELSE FALSE END)"


def _nullif(arguments: Arguments) -> str:
    equal = call(BY_NAME["="], "=", arguments)
    return f"(CASE WHEN {equal.sql} THEN NULL ELSE {arguments[0].sql} END)"


LIST: tuple[Signature, ...] = (*OPERATORS, *MATH, *STRINGS, *TIMES, *AGGREGATES)


def _by_name() -> Mapping[str, tuple[Signature, ...]]:
    names = dict.fromkeys(entry.name for entry in LIST)
    return {name: tuple(entry for entry in LIST if entry.name == name) for name in names}


BY_NAME: Mapping[str, tuple[Signature, ...]] = _by_name()
