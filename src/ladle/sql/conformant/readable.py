"""What Spark reads a text as when it casts it to another type (4.3, ANSI mode).

`read` gives the value of a literal. A text that can't be cast raises in Spark on the first row; text alone decides
that, so it is said when the query is bound. Names of time zones and words such as 'yesterday' are left to Spark.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from re import ASCII, DOTALL, IGNORECASE, Match, compile
from struct import pack, unpack

import pyarrow as pa
from sqlglot import exp

from ladle.errors import TypeMismatch
from ladle.schema import TIMESTAMP, type_name
from ladle.sql.conformant.datatypes import position_of
from ladle.sql.conformant.spark_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    VOID,
    NotConformant,
    Typed,
    is_decimal,
    is_fraction,
    is_integral,
    is_moment,
    is_numeric,
    promoted,
)

DAY_US = 86_400_000_000

Value = bool | int | float | Decimal | bytes

_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})
_NOT_FINITE = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), float("inf")),
    **dict.fromkeys(("-inf", "-infinity"), float("-inf")),
    "nan": float("nan"),
}
_INTEGER = compile(r"[+-]?\d+", ASCII)
_NUMBER = compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", ASCII)
_HEXADECIMAL = compile(r"[+-]?0[xX]([\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)[pP][+-]?\d+", ASCII)
_SIGNED_NAN = frozenset({"+NaN", "-NaN"})
_OFFSET = r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{1,2}))?(?::?(?P<seconds>\d{1,2}))?"
_ZONE = rf"(?P<zone>Z|UTC|GMT|UT|{_OFFSET}|[A-Z][A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*)"
_TIME = (
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})"
    rf"(?:\.(?P<fraction>\d*))?(?: *{_ZONE})?)?)?"
)
_DAY = r"(?P<year>[+-]?\d{4,7})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_DATE = compile(rf"{_DAY}(?:[ T].*)?)?)?", ASCII | DOTALL)
_MOMENT = compile(rf"{_DAY}(?:[ T]{_TIME})?)?)?", ASCII)
_TIME_TODAY = compile(rf"T?(?=\d+:){_TIME}", ASCII)
_SPECIAL = compile(rf"(now|(epoch|today|tomorrow|yesterday)( +{_ZONE})?)", ASCII | IGNORECASE)

_WIDE = Context(prec=100, rounding=ROUND_HALF_UP)


class Unreadable(ValueError):
    """The text is no value of the type."""


def refuse_unreadable(nodes: Sequence[exp.Expr], values: Sequence[Typed], doing: str = "compared") -> None:
    """Raises if a string literal among values that stand beside each other can't be read as the others' type."""
    types = {value.type for value in values if value.type not in (STRING, VOID)}
    if len(types) > 1 and all(is_numeric(each) for each in types):
        types = {BIGINT if all(is_integral(each) for each in types) else DOUBLE}
    if len(types) != 1:
        return
    (type_,) = types
    for node, value in zip(nodes, values, strict=True):
        if isinstance(value.constant, str) and not reads_as(value.constant, type_):
            raise unreadable(node, value.constant, type_, doing)


def unreadable(node: exp.Expr, text: str, type_: pa.DataType, doing: str | None = None) -> TypeMismatch:
    """The error of a literal that is none of the type's values, nor of those that it is compared or calculated with."""
    shown = text if len(text) <= 80 else text[:77] + "..."
    why = f", which it is {doing} with" if doing is not None else ""
    verb = "compare with" if doing == "compared" and type_ != DATE and not is_moment(type_) else "write"
    hint = f"{verb} {_example(type_)}"
    return TypeMismatch(f"'{shown}' can't be read as {type_name(type_)}{why}.", hint=hint, position=position_of(node))


def reads_as(text: str, type_: pa.DataType) -> bool:
    """Whether Spark can compare the text with a value of this type."""
    return is_readable(text, promoted(type_))


def is_readable(text: str, type_: pa.DataType) -> bool:
    """Whether Spark can cast the text to this type, as far as can be told here."""
    try:
        read(text, type_)
    except Unreadable:
        return False
    except NotConformant:
        pass
    return True


def read(text: str, type_: pa.DataType) -> Value:
    """`CAST('text' AS type)`: a date in days, a timestamp in microseconds since 1970.

    Raises Unreadable where Spark raises, and NotConformant where the value depends on more than the text.
    """
    if is_integral(type_):
        return _integer(text, type_)
    if is_fraction(type_):
        return _fraction(text, type_)
    if is_decimal(type_):
        return _decimal(text, type_)
    trimmed = text.strip(_BLANK)
    if type_ == BOOLEAN:
        return _boolean(trimmed)
    if type_ == DATE:
        return _date(trimmed)
    if is_moment(type_):
        return _moment(trimmed, type_)
    if type_ == BINARY:
        return _bytes(text)
    raise NotConformant(f"CAST from STRING to {type_name(type_)} is not proven equal in DuckDB")


def _integer(text: str, type_: pa.DataType) -> int:
    trimmed = text.strip(_BLANK)
    if _INTEGER.fullmatch(trimmed) is None:
        raise Unreadable
    digits = trimmed.lstrip("+-").lstrip("0")
    limit = 1 << (type_.bit_width - 1)
    # Python refuses to read thousands of digits
    value = int(digits or "0") if len(digits) < 20 else limit << 1
    value = -value if trimmed.startswith("-") else value
    if not -limit <= value < limit:
        raise Unreadable
    return value


def _fraction(text: str, type_: pa.DataType) -> float:
    trimmed = text.strip(_BLANK[:-1])
    bare = trimmed[:-1] if trimmed[-1:] in tuple("fFdD") else trimmed
    if _NUMBER.fullmatch(bare) is not None:
        value = float(bare)
        if type_ == FLOAT and not _is_float(value):
            raise NotConformant("a text that is rounded to FLOAT")
        return value
    if _HEXADECIMAL.fullmatch(bare) is not None:
        raise NotConformant("a hexadecimal number in a text")
    if trimmed.lower() in _NOT_FINITE:
        return _NOT_FINITE[trimmed.lower()]
    if trimmed in _SIGNED_NAN:
        return float("nan")
    raise Unreadable


def _is_float(value: float) -> bool:
    try:
        return bool(value == unpack("<f", pack("<f", value))[0])
    except OverflowError:
        return False


def _decimal(text: str, type_: pa.DataType) -> Decimal:
    trimmed = text.strip(_BLANK[:-1])
    if _NUMBER.fullmatch(trimmed) is None:
        if not trimmed.isascii():
            raise NotConformant("digits of other alphabets")
        raise Unreadable
    try:
        value = Decimal(trimmed).quantize(Decimal(1).scaleb(-type_.scale), context=_WIDE)
    except InvalidOperation:
        raise NotConformant("a text with very many digits") from None
    if abs(value) >= Decimal(10) ** (type_.precision - type_.scale):
        raise Unreadable
    return value


def _boolean(trimmed: str) -> bool:
    lowered = trimmed.lower()
    if lowered not in _TRUE | _FALSE:
        raise Unreadable
    return lowered in _TRUE


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotConformant("a text that is not of Unicode") from None


def _date(trimmed: str) -> int:
    if _SPECIAL.fullmatch(trimmed) is not None:
        raise NotConformant(f"the date '{trimmed}'")
    return _days(_DATE.fullmatch(trimmed))


def _moment(trimmed: str, type_: pa.DataType) -> int:
    found = _MOMENT.fullmatch(trimmed)
    if found is None:
        today = _TIME_TODAY.fullmatch(trimmed) if type_ == TIMESTAMP else None
        if _SPECIAL.fullmatch(trimmed) is not None or (today is not None and _time_us(today) is not None):
            raise NotConformant(f"the time '{trimmed}'")
        raise Unreadable
    time_us = _time_us(found)
    if time_us is None:
        raise Unreadable
    offset_us = _offset_us(found)
    # TIMESTAMP_NTZ ignores a zone, TIMESTAMP converts it.
    return _days(found) * DAY_US + time_us - (offset_us if type_ == TIMESTAMP else 0)


def _days(match: Match[str] | None) -> int:
    """Days since 1970 in the calendar that goes on as it is today, both ways."""
    if match is None:
        raise Unreadable
    year, month, day = (int(match[part] or 1) for part in ("year", "month", "day"))
    # The calendar repeats after 400 years.
    cycle, of_cycle = divmod(year, 400)
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(2000 + of_cycle, month)[1]:
        raise Unreadable
    if not -9999 <= year <= 9999:
        raise NotConformant(f"the year {year}")
    before = of_cycle * 365 + (of_cycle + 3) // 4 - max(0, of_cycle - 1) // 100
    in_year = sum(monthrange(2000 + of_cycle, each)[1] for each in range(1, month))
    return cycle * 146_097 + before + in_year + day - 1 - 719_528


def _time_us(match: Match[str]) -> int | None:
    """The time of day in microseconds; None when there is no such time."""
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = (match["fraction"] or "")[:6].ljust(6, "0")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction)


def _offset_us(match: Match[str]) -> int:
    if match["zone"] in (None, "Z", "UTC", "GMT", "UT"):
        return 0
    if match["sign"] is None:
        raise NotConformant(f"the time zone {match['zone']}")
    hours, minutes, seconds = (int(match[part] or 0) for part in ("hours", "minutes", "seconds"))
    if hours > 18 or minutes > 59 or seconds > 59 or (hours == 18 and minutes + seconds):
        raise Unreadable
    offset_us = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return -offset_us if match["sign"] == "-" else offset_us


def _example(type_: pa.DataType) -> str:
    if type_ == BOOLEAN:
        return "TRUE or FALSE"
    if type_ == DATE:
        return "a day like '2026-01-31'"
    if is_moment(type_):
        return "a time like '2026-01-31 09:30:00', or NOW - INTERVAL 1 HOUR"
    return "a number, like 5"
