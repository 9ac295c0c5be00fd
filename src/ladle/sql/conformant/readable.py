"""Which string literals Spark reads as a value of another type when the two are compared (ANSI mode).

Spark casts the literal, a number's to BIGINT or DOUBLE, and one that can't be cast raises on the first row. Text alone
decides that, so it is said when the query is bound. Names of time zones are not looked up: Spark may refuse one later.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from re import ASCII, DOTALL, IGNORECASE, Match, compile

import pyarrow as pa
from sqlglot import exp

from ladle.errors import TypeMismatch
from ladle.schema import TIMESTAMP, type_name
from ladle.sql.conformant.datatypes import position_of
from ladle.sql.conformant.spark_types import BIGINT, BOOLEAN, DATE, DOUBLE, Typed, is_integral, is_moment, is_numeric

_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_BOOLEANS = frozenset({"t", "true", "y", "yes", "1", "f", "false", "n", "no", "0"})
_NOT_FINITE = frozenset({"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity", "nan"})
_INTEGER = compile(r"[+-]?\d+", ASCII)
_DOUBLE = compile(
    r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?"
    r"|0[xX]([\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)[pP][+-]?\d+[fFdD]?)",
    ASCII,
)
_ZONE = r"(Z|(UTC|GMT|UT)?[+-]\d{1,2}(:?\d{1,2}){0,2}|[A-Z][A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*)"
_TIME = rf"(?P<hour>\d{{1,2}})(:(?P<minute>\d{{1,2}})(:(?P<second>\d{{1,2}})(\.\d*)?( *{_ZONE})?)?)?"
_DAY = r"(?P<year>[+-]?\d{4,7})(-(?P<month>\d{1,2})(-(?P<day>\d{1,2})"
_DATE = compile(rf"{_DAY}([ T].*)?)?)?", ASCII | DOTALL)
_MOMENT = compile(rf"{_DAY}([ T]{_TIME})?)?)?", ASCII)
_TIME_TODAY = compile(rf"T?(?=\d+:){_TIME}", ASCII)
_SPECIAL = compile(rf"(now|(epoch|today|tomorrow|yesterday)( +{_ZONE})?)", ASCII | IGNORECASE)


def refuse_unreadable(nodes: Sequence[exp.Expr], values: Sequence[Typed]) -> None:
    """Raises if one of the values that are compared is a string literal that can't be read as the others' type."""
    types = {value.type for value in values if not isinstance(value.constant, str)}
    if len(types) > 1 and all(is_numeric(each) for each in types):
        types = {BIGINT if all(is_integral(each) for each in types) else DOUBLE}
    if len(types) != 1:
        return
    (type_,) = types
    for node, value in zip(nodes, values, strict=True):
        if isinstance(value.constant, str) and not reads_as(value.constant, type_):
            raise TypeMismatch(
                f"'{value.constant}' can't be read as {type_name(type_)}, which it is compared with.",
                hint=_hint(type_),
                position=position_of(node),
            )


def reads_as(text: str, type_: pa.DataType) -> bool:
    """Whether Spark can compare the text with a value of this type."""
    trimmed = text.strip(_BLANK)
    if is_integral(type_):
        return _INTEGER.fullmatch(trimmed) is not None and -(1 << 63) <= int(trimmed) < 1 << 63
    if is_numeric(type_):
        return _DOUBLE.fullmatch(text.strip(_BLANK[:-1])) is not None or trimmed.lower() in _NOT_FINITE
    if type_ == BOOLEAN:
        return trimmed.lower() in _BOOLEANS
    if type_ == DATE:
        return _is_moment(_DATE.fullmatch(trimmed)) or _SPECIAL.fullmatch(trimmed) is not None
    if is_moment(type_):
        today = _TIME_TODAY.fullmatch(trimmed) if type_ == TIMESTAMP else None
        found = _MOMENT.fullmatch(trimmed) or today
        return _is_moment(found) or _SPECIAL.fullmatch(trimmed) is not None
    return True


def _is_moment(match: Match[str] | None) -> bool:
    """Whether there is such a day and such a time of day."""
    if match is None:
        return False
    found = {name: int(digits) for name, digits in match.groupdict().items() if digits is not None}
    month, day = found.get("month", 1), found.get("day", 1)
    # The calendar repeats after 400 years.
    days = monthrange(2000 + found.get("year", 0) % 400, month)[1] if 1 <= month <= 12 else 0
    return 1 <= day <= days and found.get("hour", 0) < 24 and max(found.get("minute", 0), found.get("second", 0)) < 60


def _hint(type_: pa.DataType) -> str:
    if type_ == BOOLEAN:
        return "compare with TRUE or FALSE"
    if type_ == DATE:
        return "write a day like '2026-01-31'"
    if is_moment(type_):
        return "write a time like '2026-01-31 09:30:00', or NOW - INTERVAL 1 HOUR"
    return "compare with a number, like 5"
