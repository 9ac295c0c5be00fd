"""The part of the list about dates and timestamps. Everything is UTC, so days have 24 hours."""

from __future__ import annotations

import pyarrow as pa

from ladle.schema import TIMESTAMP
from ladle.sql.conformant.patterns import formatted
from ladle.sql.conformant.signatures import (
    Arguments,
    AsDate,
    DateOrMoment,
    Int,
    Integral,
    Moment,
    Param,
    Signature,
    first_type,
    literal_of,
)
from ladle.sql.conformant.spark_types import (
    BIGINT,
    DATE,
    DURATION,
    INT,
    INTEGRALS,
    MONTHS,
    SMALLINT,
    STRING,
    TINYINT,
    NotConformant,
    Typed,
)

DAYS_MAX = 3_660_000
"""Ten thousand years: beyond it the engines overflow differently."""

_Date = Param((DATE,))
_Timestamp = Param((TIMESTAMP,))
_SmallInt = Param((TINYINT, SMALLINT), to=INT)
_Days = literal_of("0", "1", "-1", "28", "365", "-40000", types=(INT,))
_Months = literal_of("0", "1", "-1", "11", "12", "-13", "2400", types=(INT,))
_Duration = literal_of(
    "INTERVAL 5 MINUTES", "INTERVAL '1' DAY", "INTERVAL 36 HOURS", "INTERVAL 1.5 SECONDS", "INTERVAL -3 DAYS",
    "INTERVAL '2 days 3 hours'", "INTERVAL 1 MICROSECOND", "INTERVAL 2 WEEKS",
    types=(DURATION,),
)  # fmt: skip
_MonthInterval = literal_of("INTERVAL 1 MONTH", "INTERVAL '-1' MONTH", "INTERVAL 3 YEARS", types=(MONTHS,))

_UNITS = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mm": "month", "mon": "month",
    "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second",
    "millisecond": "millisecond", "microsecond": "microsecond",
}  # fmt: skip
_DATE_UNITS = frozenset(("year", "yyyy", "yy", "quarter", "month", "mm", "mon", "week"))
_Unit = literal_of(*(f"'{unit}'" for unit in _UNITS), "'HOUR'", "'Day'", types=(STRING,))
_DateUnit = literal_of(*(f"'{unit}'" for unit in sorted(_DATE_UNITS)), types=(STRING,))


_Format = literal_of(
    "'yyyy-MM-dd'", "'HH:mm'", "'yyyy-MM-dd HH:mm:ss.SSSSSS'", "'EEEE d MMMM'", "'EEE, dd MMM yyyy h:m:s a'",
    "'M/d/yyyy hh'", "'yyyy-MM-dd HH:00'", "'yyyyMMdd''T''HHmmss.SSS%'",
    types=(STRING,),
)  # fmt: skip
_UNIT_US = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
_Seconds = Param(INTEGRALS, to=BIGINT)
_Exact = literal_of(*(f"'{unit}'" for unit in _UNIT_US), types=(STRING,))
_Amount = literal_of("0", "1", "-1", "90", "-40000", types=(INT,))


def _written(arguments: Arguments) -> str:
    return str(arguments[1].constant) if len(arguments) > 1 else "yyyy-MM-dd HH:mm:ss"


def _made(factor: int) -> str:
    return f"make_timestamp(CAST({{0}} AS BIGINT) * {factor})"


def _wrapped(seconds: str) -> str:
    """The time of so many seconds; Spark lets what is too large for its microseconds wrap around."""
    us = f"CAST({seconds} AS HUGEINT) * 1000000"
    return f"make_timestamp(CAST((({us} + {1 << 63}) & {(1 << 64) - 1}) - {1 << 63} AS BIGINT))"


def _unit_us(value: Typed) -> int:
    name = str(value.constant).lower()
    if name not in _UNIT_US:
        raise NotConformant(f"the unit '{name}' is not proven equal in DuckDB")
    return _UNIT_US[name]


def _between(arguments: Arguments, type_: pa.DataType) -> str:
    unit, first, last = arguments
    return f"((epoch_us({last.sql}) - epoch_us({first.sql})) // {_unit_us(unit)})"


def _moved(arguments: Arguments, type_: pa.DataType) -> str:
    unit, amount, moment = arguments
    return f"({moment.sql} + to_microseconds({_few(amount)} * CAST({_unit_us(unit)} AS BIGINT)))"


def _unit(value: Typed, known: frozenset[str] | dict[str, str]) -> str:
    name = str(value.constant).lower()
    if name not in known:
        raise NotConformant(f"the unit '{name}' is not proven equal in DuckDB")
    return _UNITS[name]


def _truncated(arguments: Arguments, type_: pa.DataType) -> str:
    return f"date_trunc('{_unit(arguments[0], _UNITS)}', CAST({arguments[1].sql} AS TIMESTAMP))"


def _truncated_date(arguments: Arguments, type_: pa.DataType) -> str:
    return f"CAST(date_trunc('{_unit(arguments[1], _DATE_UNITS)}', {arguments[0].sql}) AS DATE)"


def _few(value: Typed) -> str:
    if isinstance(value.constant, int) and abs(value.constant) > DAYS_MAX:
        raise NotConformant("a shift of more than ten thousand years")
    return value.sql


def _days(sign: str) -> object:
    return lambda arguments, type_: f"({arguments[0].sql} {sign} {_few(arguments[1])})"


def _shift_date(sign: str) -> object:
    def sql(arguments: Arguments, type_: pa.DataType) -> str:
        moved = f"(CAST({arguments[0].sql} AS TIMESTAMP) {sign} to_microseconds({arguments[1].sql}))"
        return f"CAST({moved} AS DATE)" if type_ == DATE else moved

    return sql


def _shifted_date_type(arguments: Arguments) -> pa.DataType:
    return DATE if arguments[1].days_only else TIMESTAMP


def _floored(unit_us: int) -> str:
    """Floor division of microseconds; DuckDB's // truncates."""
    us = "epoch_us({0})"
    return f"(({us} - ((({us} % {unit_us}) + {unit_us}) % {unit_us})) // {unit_us})"


def _arithmetic(sign: str) -> tuple[Signature, ...]:
    shape = f"({{0}} {sign} {{1}})"
    months = f"({{0}} {sign} to_months(CAST({{1}} AS INTEGER)))"
    return (
        Signature(sign, (Moment, _Duration), first_type, f"({{0}} {sign} to_microseconds({{1}}))", shape),
        Signature(sign, (Moment, _MonthInterval), first_type, months, shape),
        Signature(sign, (_Date, _Duration), _shifted_date_type, _shift_date(sign), shape),  # type: ignore[arg-type]
        Signature(sign, (_Date, _MonthInterval), DATE, f"CAST({months} AS DATE)", shape),
        Signature(sign, (_Date, _Days), DATE, _days(sign), shape),  # type: ignore[arg-type]
        Signature(sign, (_Date, _SmallInt), DATE, f"({{0}} {sign} {{1}})", shape),
    )


TIMES: tuple[Signature, ...] = (
    *(
        Signature(name, (DateOrMoment,), INT, f"CAST({name}({{0}}) AS INTEGER)", f"{name}({{0}})")
        for name in ("year", "quarter", "month", "day", "dayofyear", "weekofyear")
    ),
    *(
        Signature(name, (Moment,), INT, f"CAST({name}({{0}}) AS INTEGER)", f"{name}({{0}})")
        for name in ("hour", "minute", "second")
    ),
    Signature("dayofweek", (DateOrMoment,), INT, "CAST(dayofweek({0}) + 1 AS INTEGER)", "dayofweek({0})"),
    Signature("weekday", (DateOrMoment,), INT, "CAST(isodow({0}) - 1 AS INTEGER)", "weekday({0})"),
    Signature(
        "extract_second",
        (Moment,),
        pa.decimal128(8, 6),
        "CAST(CAST(microsecond({0}) AS DECIMAL(8,0)) * CAST('0.000001' AS DECIMAL(6,6)) AS DECIMAL(8,6))",
        "extract(SECOND FROM {0})",
    ),
    Signature("date_trunc", (_Unit, DateOrMoment), TIMESTAMP, _truncated, "date_trunc({0}, {1})"),
    Signature("trunc", (AsDate, _DateUnit), DATE, _truncated_date, "trunc({0}, {1})"),
    Signature("to_date", (AsDate,), DATE, "{0}", "to_date({0})"),
    Signature("last_day", (AsDate,), DATE, "last_day({0})", "last_day({0})"),
    Signature("datediff", (AsDate, AsDate), INT, "CAST({0} - {1} AS INTEGER)", "datediff({0}, {1})"),
    *(
        entry
        for name, sign in (("date_add", "+"), ("date_sub", "-"))
        for entry in (
            Signature(name, (AsDate, _Days), DATE, _days(sign), f"{name}({{0}}, {{1}})"),  # type: ignore[arg-type]
            Signature(name, (AsDate, _SmallInt), DATE, f"({{0}} {sign} {{1}})", f"{name}({{0}}, {{1}})"),
        )
    ),
    Signature(
        "add_months",
        (AsDate, _Months),
        DATE,
        lambda a, t: f"CAST({a[0].sql} + to_months({_few(a[1])}) AS DATE)",
        "add_months({0}, {1})",
    ),
    Signature("unix_date", (_Date,), INT, "CAST({0} - DATE '1970-01-01' AS INTEGER)", "unix_date({0})"),
    Signature("unix_micros", (_Timestamp,), BIGINT, "epoch_us({0})", "unix_micros({0})"),
    Signature("unix_millis", (_Timestamp,), BIGINT, _floored(1_000), "unix_millis({0})"),
    Signature("unix_seconds", (_Timestamp,), BIGINT, _floored(1_000_000), "unix_seconds({0})"),
    Signature("unix_timestamp", (DateOrMoment,), BIGINT, "(epoch_us({0}) // 1000000)", "unix_timestamp({0})"),
    Signature("to_unix_timestamp", (DateOrMoment,), BIGINT, "(epoch_us({0}) // 1000000)", "to_unix_timestamp({0})"),
    Signature("dayname", (AsDate,), STRING, "strftime({0}, '%a')", "dayname({0})"),
    Signature("monthname", (AsDate,), STRING, "strftime({0}, '%b')", "monthname({0})"),
    *_arithmetic("+"),
    *_arithmetic("-"),
    Signature("-", (Moment, Moment), DURATION, "(epoch_us({0}) - epoch_us({1}))"),
    Signature(
        "date_format",
        (DateOrMoment, _Format),
        STRING,
        lambda a, t: formatted(a[0].sql, _written(a)),
        "date_format({0}, {1})",
    ),
    *(
        Signature(name, (Integral,), TIMESTAMP, _made(factor), f"{name}({{0}})", may_raise=True)
        for name, factor in (("timestamp_seconds", 1_000_000), ("timestamp_millis", 1_000))
    ),
    *(
        Signature(
            "from_unixtime",
            (_Seconds, *form),
            STRING,
            lambda a, t: formatted(_wrapped(a[0].sql), _written(a)),
            f"from_unixtime({{0}}{', {1}' if form else ''})",
        )
        for form in ((), (_Format,))
    ),
    Signature("make_date", (Int, Int, Int), DATE, "make_date({all})", "make_date({all})", may_raise=True),
    Signature("timestampdiff", (_Exact, Moment, Moment), BIGINT, _between),
    Signature("timestampadd", (_Exact, _Amount, Moment), lambda a: a[2].type, _moved),
)
