"""The part of the list that folds many rows into one value; also over window frames."""

from __future__ import annotations

from ladle.sql.conformant.entries import Any, Boolean, DecimalParam, Entry, Fraction, Integral, Param, first_type
from ladle.sql.conformant.typing import BIGINT, BOOLEAN, DOUBLE, FRACTIONS, INTEGRALS, bounded, duckdb_type

AGGREGATES: tuple[Entry, ...] = (
    Entry("count", (Any,), BIGINT, "count({distinct}{0}){tail}", "count({0})", aggregate=True, distinct=True),
    Entry("count_if", (Boolean,), BIGINT, "count(CASE WHEN {0} THEN 1 END){tail}", "count_if({0})", aggregate=True),
    Entry(
        "sum", (Integral,), BIGINT, "CAST(sum({distinct}{0}){tail} AS BIGINT)", "sum({0})",
        aggregate=True, distinct=True, may_raise=True,
    ),
    Entry(
        "sum", (Fraction,), DOUBLE, "sum({distinct}{0}){tail}", "sum({0})",
        aggregate=True, distinct=True, approximate=True,
    ),
    Entry(
        "avg", (Param((*INTEGRALS, *FRACTIONS), to=DOUBLE),), DOUBLE, "avg({distinct}{0}){tail}", "avg({0})",
        aggregate=True, distinct=True, approximate=True,
    ),
    Entry("min", (Any,), first_type, "min({distinct}{0}){tail}", "min({0})", aggregate=True, distinct=True),
    Entry("max", (Any,), first_type, "max({distinct}{0}){tail}", "max({0})", aggregate=True, distinct=True),
    Entry("bool_and", (Boolean,), BOOLEAN, "bool_and({0}){tail}", "bool_and({0})", aggregate=True),
    Entry("bool_or", (Boolean,), BOOLEAN, "bool_or({0}){tail}", "bool_or({0})", aggregate=True),
)
