"""The part of the list that folds many rows into one value; also over window frames."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from ladle.sql.conformant.casts import raising, rounded_quotient, scaled, unscaled
from ladle.sql.conformant.signatures import (
    NUMBERS,
    AnyType,
    Arguments,
    AsDouble,
    Boolean,
    DecimalParam,
    Fraction,
    Integral,
    Param,
    Signature,
    String,
    first_type,
    literal_of,
)
from ladle.sql.conformant.spark_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FRACTIONS,
    INT,
    INTEGRALS,
    PRECISION_MAX,
    STRING,
    NotConformant,
    Typed,
    duckdb_type,
)


def _sum_type(arguments: Arguments) -> pa.DataType:
    source = arguments[0].type
    return pa.decimal128(min(source.precision + 10, PRECISION_MAX), source.scale)


def _sum(arguments: Arguments, type_: pa.DataType) -> str:
    """DuckDB adds in 127 bits; what has more than 38 digits is an error, as in Spark."""
    total = "sum({distinct}{0}){tail}"
    if arguments[0].type.precision + 10 <= PRECISION_MAX:
        return f"CAST({total} AS {duckdb_type(type_)})"
    whole = "9" * (PRECISION_MAX - type_.scale) or "0"
    most = f"CAST('{whole}.{'9' * type_.scale}' AS {duckdb_type(type_)})"
    return f"(CASE WHEN abs({total}) > {most} THEN {raising(_OVERFLOW, type_)} ELSE {total} END)"


def _avg_type(arguments: Arguments) -> pa.DataType:
    source = arguments[0].type
    if source.precision + 14 > PRECISION_MAX:
        raise NotConformant("an average of decimals that may pass 38 digits")
    return pa.decimal128(source.precision + 4, source.scale + 4)


def _avg(arguments: Arguments, type_: pa.DataType) -> str:
    """Spark divides the exact sum by the count and rounds half up; DuckDB's avg is a double."""
    source = arguments[0].type
    total = Typed("(sum({distinct}{0}){tail})", pa.decimal128(PRECISION_MAX, source.scale))
    numerator = f"({unscaled(total)} * 10000)"
    return scaled(rounded_quotient(numerator, "CAST(count({distinct}{0}){tail} AS HUGEINT)"), type_)


_Number = Param(NUMBERS, to=DOUBLE)
_Percentage = literal_of("0", "1", "0.5", "0.95", types=(INT, pa.decimal128(1, 1)))
_FINITE = "(CASE WHEN isfinite({0}) THEN {0} END)"
_OVERFLOW = "[NUMERIC_VALUE_OUT_OF_RANGE] A sum of decimals has more than 38 digits."
_NAN = "CAST('nan' AS DOUBLE)"


def _spread(name: str, duckdb: str, *, sample: bool) -> Signature:
    """Of one value Spark's samples have no spread; and where a value is not finite, DuckDB's functions raise."""
    few = "WHEN count({0}){tail} < 2 THEN NULL " if sample else ""
    sql = f"(CASE {few}WHEN bool_or(NOT isfinite({{0}})){{tail}} THEN {_NAN} ELSE {duckdb}({_FINITE}){{tail}} END)"
    return Signature(name, (_Number,), DOUBLE, sql, f"{name}({{0}})", aggregate=True, approximate=True)


def _correlation() -> Signature:
    """NaN where a value is not finite, as in Spark."""
    both = "{0} IS NOT NULL AND {1} IS NOT NULL"
    odd = f"bool_or({both} AND NOT (isfinite({{0}}) AND isfinite({{1}}))){{tail}}"
    finite = "(CASE WHEN isfinite({0}) AND isfinite({1}) THEN {0} END), (CASE WHEN isfinite({0}) THEN {1} END)"
    few = f"count(CASE WHEN {both} THEN 1 END){{tail}} < 2"
    first, second = (f"CASE WHEN {both} THEN {{{at}}} END" for at in (0, 1))
    same = " OR ".join(f"min({each}){{tail}} = max({each}){{tail}}" for each in (first, second))
    cases = f"WHEN {few} THEN NULL WHEN {odd} THEN {_NAN} WHEN {same} THEN NULL"
    sql = f"(CASE {cases} ELSE corr({finite}){{tail}} END)"
    return Signature(
        "corr", (AsDouble, AsDouble), DOUBLE, sql, "corr({all})", aggregate=True, approximate=True, over=False
    )


def _fraction(value: Typed) -> Decimal:
    share = value.constant
    if isinstance(share, bool) or not isinstance(share, int | Decimal) or not 0 <= share <= 1:
        raise NotConformant("a percentage that is not a constant from 0 to 1")
    return Decimal(share)


def _percentile(arguments: Arguments, type_: pa.DataType) -> str:
    return f"quantile_cont({{0}} + 0, {_fraction(arguments[1]):f}){{tail}}"


def _extreme(name: str) -> Signature:
    """MAX_BY and MIN_BY: of the greatest (least) of structs of key and value. Which of several values of one key is
    taken is undetermined in Spark; here it is the greatest (least) of them.
    """
    extreme = {"max_by": "max", "min_by": "min"}[name]

    def sql(arguments: Arguments, type_: pa.DataType) -> str:
        ordered = [normalized_zero(each) for each in arguments]
        # Before each part whether there is one: NULLs are least in Spark.
        places = (f"{{{{'a': {sql} IS NOT NULL, 'b': {sql}}}}}" for sql in (*ordered[1:], ordered[0]))
        row = ", ".join(f"'p{at}': {place}" for at, place in enumerate(places))
        given = "TRUE" if len(arguments) > 2 else "{1} IS NOT NULL"
        row = f"{{{{{row}, 'v': {{0}}}}}}"
        return f"struct_extract({extreme}(CASE WHEN {given} THEN {row} END){{tail}}, 'v')"

    return Signature(name, (AnyType, AnyType), first_type, sql, aggregate=True, variadic=True)


def normalized_zero(value: Typed) -> str:
    """A value in which -0.0 is 0.0, as Spark's groups have it."""
    return f"({value.sql} + 0)" if value.type in FRACTIONS else value.sql


def _one_of(duckdb: str, arguments: Arguments) -> str:
    """Which of 0.0 and -0.0 is the least or greatest is undetermined in Spark. Here it is 0.0, as partial aggregates
    have it, so that an answer computed along another path is the same bit for bit.
    """
    value = "({0} + 0)" if arguments[0].type in FRACTIONS else "{0}"
    return f"{duckdb}({{distinct}}{value}){{tail}}"


def _least(arguments: Arguments, type_: pa.DataType) -> str:
    return _one_of("min", arguments)


def _greatest(arguments: Arguments, type_: pa.DataType) -> str:
    return _one_of("max", arguments)


def _joined(arguments: Arguments, type_: pa.DataType) -> str:
    """Texts in order; of the order's keys their texts follow the delimiter."""
    delimiter = arguments[1].constant if len(arguments) > 1 else ""
    if not isinstance(delimiter, str):
        raise NotConformant("a delimiter that is not a constant text")
    quoted = delimiter.replace("'", "''").replace("{", "{{").replace("}", "}}")
    keys = ", ".join((*(each.sql for each in arguments[2:]), "{0}"))
    return f"string_agg({{distinct}}{{0}}, '{quoted}' ORDER BY {keys}){{tail}}"


AGGREGATES: tuple[Signature, ...] = (
    Signature("count", (AnyType,), BIGINT, "count({distinct}{0}){tail}", "count({0})", aggregate=True, distinct=True),
    Signature("count_if", (Boolean,), BIGINT, "count(CASE WHEN {0} THEN 1 END){tail}", "count_if({0})", aggregate=True),
    Signature(
        "sum",
        (Integral,),
        BIGINT,
        "CAST(sum({distinct}{0}){tail} AS BIGINT)",
        "sum({0})",
        aggregate=True,
        distinct=True,
        may_raise=True,
    ),
    Signature(
        "sum",
        (DecimalParam,),
        _sum_type,
        _sum,
        "sum({0})",
        aggregate=True,
        distinct=True,
        may_raise=True,
    ),
    Signature(
        "sum",
        (Fraction,),
        DOUBLE,
        "sum({distinct}{0}){tail}",
        "sum({0})",
        aggregate=True,
        distinct=True,
        approximate=True,
    ),
    Signature(
        "avg",
        (Param((*INTEGRALS, *FRACTIONS), to=DOUBLE),),
        DOUBLE,
        "avg({distinct}{0}){tail}",
        "avg({0})",
        aggregate=True,
        distinct=True,
        approximate=True,
    ),
    Signature("avg", (DecimalParam,), _avg_type, _avg, "avg({0})", aggregate=True, distinct=True, may_raise=True),
    Signature("min", (AnyType,), first_type, _least, "min({0})", aggregate=True, distinct=True),
    Signature("max", (AnyType,), first_type, _greatest, "max({0})", aggregate=True, distinct=True),
    Signature("bool_and", (Boolean,), BOOLEAN, "bool_and({0}){tail}", "bool_and({0})", aggregate=True),
    Signature("bool_or", (Boolean,), BOOLEAN, "bool_or({0}){tail}", "bool_or({0})", aggregate=True),
    *(_spread(name, "stddev_samp", sample=True) for name in ("stddev", "stddev_samp", "std")),
    *(_spread(name, "var_samp", sample=True) for name in ("variance", "var_samp")),
    _spread("stddev_pop", "stddev_pop", sample=False),
    _spread("var_pop", "var_pop", sample=False),
    _correlation(),
    Signature(
        "percentile",
        (_Number, _Percentage),
        DOUBLE,
        _percentile,
        "percentile({0}, {1})",
        aggregate=True,
        approximate=True,
        over=False,
    ),
    Signature(
        "median",
        (_Number,),
        DOUBLE,
        "median({0} + 0){tail}",
        "median({0})",
        aggregate=True,
        approximate=True,
        over=False,
    ),
    *(
        Signature(name, (Integral,), first_type, f"{name}({{0}}){{tail}}", f"{name}({{0}})", aggregate=True)
        for name in ("bit_and", "bit_or", "bit_xor")
    ),
    _extreme("max_by"),
    _extreme("min_by"),
    Signature("any_value", (AnyType,), first_type, _least, aggregate=True),
    Signature("listagg", (String, String), STRING, _joined, aggregate=True, distinct=True, variadic=True, over=False),
)
