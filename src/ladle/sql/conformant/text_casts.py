"""Texts in columns, cast to other types in DuckDB as Spark casts them (4.3, ANSI mode).

DuckDB alone would read more than Spark does ('1.5' and '1_000' as integers). So a regular expression first picks out
what Spark reads, and DuckDB converts that; NULL is what is none. `readable.read` does the same to literals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from ladle.schema import type_name
from ladle.sql.conformant.spark_types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FRACTIONS,
    INTEGRALS,
    duckdb_type,
)

_BLANK = r"[\x00-\x20\x7f]*"
_JAVA_BLANK = r"[\x00-\x20]*"
_INTEGER = f"^{_BLANK}([+-]?[0-9]+){_BLANK}$"
_NUMBER = rf"^{_JAVA_BLANK}([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?{_JAVA_BLANK}$"
_INFINITE = "[iI][nN][fF]([iI][nN][iI][tT][yY])?"
_NAN = rf"{_JAVA_BLANK}([nN][aA][nN]|[+-]NaN){_JAVA_BLANK}"
_TRUE = f"{_BLANK}([tT]|[tT][rR][uU][eE]|[yY]|[yY][eE][sS]|1){_BLANK}"
_FALSE = f"{_BLANK}([fF]|[fF][aA][lL][sS][eE]|[nN]|[nN][oO]|0){_BLANK}"
_DATE = (
    rf"(?s)^{_BLANK}([+-]?[0-9][0-9][0-9][0-9][0-9]?[0-9]?[0-9]?)(-([0-9][0-9]?)(-([0-9][0-9]?)([ T].*)?)?)?{_BLANK}$"
)
"""Its groups 1, 3 and 5 are year, month and day. No braces in these: texts are formatted later."""


def tried(sql: str, target: pa.DataType) -> str:
    """`try_cast(text AS target)`: NULL where Spark would raise."""
    return _TRIED[target](sql, target)


def raised(sql: str, target: pa.DataType) -> str:
    """`CAST(text AS target)`: raises where Spark would, NULL for NULL, because error(NULL) is NULL."""
    value = f"''' || left({sql}, 100) || '''"
    message = (
        f'[CAST_INVALID_INPUT] The value {value} of the type "STRING" cannot be cast to "{type_name(target)}" '
        "because it is malformed. Use try_cast to tolerate malformed input and return NULL."
    )
    return f"coalesce({tried(sql, target)}, CAST(error('{message}') AS {duckdb_type(target)}))"


def _integer(sql: str, target: pa.DataType) -> str:
    return f"TRY_CAST(regexp_extract({sql}, '{_INTEGER}', 1) AS {duckdb_type(target)})"


def _fraction(sql: str, target: pa.DataType) -> str:
    name = duckdb_type(target)
    words = " ".join(
        f"WHEN regexp_full_match({sql}, '{pattern}') THEN CAST('{value}' AS {name})"
        for pattern, value in (
            (rf"{_JAVA_BLANK}\+?{_INFINITE}{_JAVA_BLANK}", "Infinity"),
            (f"{_JAVA_BLANK}-{_INFINITE}{_JAVA_BLANK}", "-Infinity"),
            (_NAN, "NaN"),
        )
    )
    return f"coalesce(TRY_CAST(regexp_extract({sql}, '{_NUMBER}', 1) AS {name}), CASE {words} END)"


def _boolean(sql: str, target: pa.DataType) -> str:
    words = ((_TRUE, "TRUE"), (_FALSE, "FALSE"))
    cases = " ".join(f"WHEN regexp_full_match({sql}, '{pattern}') THEN {value}" for pattern, value in words)
    return f"(CASE {cases} END)"


def _date(sql: str, target: pa.DataType) -> str:
    year, month, day = (f"regexp_extract({sql}, '{_DATE}', {group})" for group in (1, 3, 5))
    first = "coalesce(nullif({0}, ''), '1')"
    return f"TRY_CAST(replace({year}, '+', '') || '-' || {first.format(month)} || '-' || {first.format(day)} AS DATE)"


_TRIED: Mapping[pa.DataType, Callable[[str, pa.DataType], str]] = {
    **dict.fromkeys(INTEGRALS, _integer),
    **dict.fromkeys(FRACTIONS, _fraction),
    BOOLEAN: _boolean,
    DATE: _date,
}

FROM_TEXT = (*INTEGRALS, FLOAT, DOUBLE, BOOLEAN, DATE)
"""What texts can be cast to here; the rest is left to Spark."""
