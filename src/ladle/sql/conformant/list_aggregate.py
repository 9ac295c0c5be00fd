"""The part of the list that folds many rows into one value; also over window frames."""

from __future__ import annotations

import pyarrow as pa

from ladle.sql.conformant.casts import rounded_quotient, scaled, unscaled
from ladle.sql.conformant.entries import (
    Any,
    Arguments,
    Boolean,
    DecimalParam,
    Entry,
    Fraction,
    Integral,
    Param,
    first_type,
)
from ladle.sql.conformant.spark_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FRACTIONS,
    INTEGRALS,
    PRECISION_MAX,
    NotConformant,
    Typed,
    duckdb_type,
)


def _sum_type(arguments: Arguments) -> pa.DataType:
    source = arguments[0].type
    if source.precision + 10 > PRECISION_MAX:
        raise NotConformant("a sum of decimals that may pass 38 digits")
    return pa.decimal128(source.precision + 10, source.scale)


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


AGGREGATES: tuple[Entry, ...] = (
    Entry("count", (Any,), BIGINT, "count({distinct}{0}){tail}", "count({0})", aggregate=True, distinct=True),
    Entry("count_if", (Boolean,), BIGINT, "count(CASE WHEN {0} THEN 1 END){tail}", "count_if({0})", aggregate=True),
    Entry(
        "sum",
        (Integral,),
        BIGINT,
        "CAST(sum({distinct}{0}){tail} AS BIGINT)",
        "sum({0})",
        aggregate=True,
        distinct=True,
        may_raise=True,
    ),
    Entry(
        "sum",
        (DecimalParam,),
        _sum_type,
        lambda a, t: f"CAST(sum({{distinct}}{{0}}){{tail}} AS {duckdb_type(t)})",
        "sum({0})",
        aggregate=True,
        distinct=True,
        may_raise=True,
    ),
    Entry(
        "sum",
        (Fraction,),
        DOUBLE,
        "sum({distinct}{0}){tail}",
        "sum({0})",
        aggregate=True,
        distinct=True,
        approximate=True,
    ),
    Entry(
        "avg",
        (Param((*INTEGRALS, *FRACTIONS), to=DOUBLE),),
        DOUBLE,
        "avg({distinct}{0}){tail}",
        "avg({0})",
        aggregate=True,
        distinct=True,
        approximate=True,
    ),
    Entry("avg", (DecimalParam,), _avg_type, _avg, "avg({0})", aggregate=True, distinct=True, may_raise=True),
    Entry("min", (Any,), first_type, "min({distinct}{0}){tail}", "min({0})", aggregate=True, distinct=True),
    Entry("max", (Any,), first_type, "max({distinct}{0}){tail}", "max({0})", aggregate=True, distinct=True),
    Entry("bool_and", (Boolean,), BOOLEAN, "bool_and({0}){tail}", "bool_and({0})", aggregate=True),
    Entry("bool_or", (Boolean,), BOOLEAN, "bool_or({0}){tail}", "bool_or({0})", aggregate=True),
)
