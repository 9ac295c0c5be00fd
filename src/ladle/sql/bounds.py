"""Windows from their syntax: intervals, bounds relative to NOW, constants.

Naive timestamps mean UTC; an offset or a zone in the text is honoured.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

from ladle.clock import to_us
from ladle.errors import Position, SqlError, unknown
from ladle.plan.window import AT_NOW, Bound, KeyedRowsWindow, RowsWindow, TimeWindow, Window, add_months
from ladle.schema import StreamSchema, is_nested
from ladle.sql.dialect import BRACKET, Bounds, NowBracket, RangeBracket, RowsBracket
from ladle.sql.position import SourceText

_UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
_UNITS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_INTERVALS = "write INTERVAL 10 MINUTES, INTERVAL '1 hour 30 minutes' or INTERVAL 1 DAY 2 HOURS"
_TIMES = "write a TIMESTAMP '2024-01-01 10:00:00', NOW, or NOW - INTERVAL 10 MINUTES"


@dataclass(frozen=True)
class Span:
    """An interval: calendar months and microseconds are kept apart."""

    months: int = 0
    us: int = 0

    def __add__(self, other: Span) -> Span:
        return Span(self.months + other.months, self.us + other.us)

    def __neg__(self) -> Span:
        return Span(-self.months, -self.us)


def interval_us(node: exp.Expression, what: str, source: SourceText) -> int:
    """A positive interval of fixed length, for RETAIN and other clauses of a stream."""
    span = interval(node, source)
    if span.months:
        raise SqlError(
            f"{what} needs a fixed length; months and years vary.",
            hint="give it in DAYS",
            position=source.of(node),
        )
    if span.us <= 0:
        raise SqlError(f"{what} needs an interval longer than nothing.", position=source.of(node))
    return span.us


def interval(node: exp.Expression | None, source: SourceText) -> Span:
    """The length that an INTERVAL expression denotes."""
    match node:
        case exp.Paren():
            return interval(node.this, source)
        case exp.Add():
            return interval(node.this, source) + interval(node.expression, source)
        case exp.Sub():
            return interval(node.this, source) + -interval(node.expression, source)
        case exp.Neg():
            return -interval(node.this, source)
        case exp.Interval():
            return _literal_interval(node, source)
    raise SqlError("An interval was expected here.", hint=_INTERVALS, position=source.of(node))


def _literal_interval(node: exp.Interval, source: SourceText) -> Span:
    amount, unit = node.this, node.args.get("unit")
    sign = 1
    while isinstance(amount, exp.Neg | exp.Paren):
        sign *= -1 if isinstance(amount, exp.Neg) else 1
        amount = amount.this
    if not isinstance(amount, exp.Literal) or isinstance(unit, exp.IntervalSpan):
        raise SqlError("This form of INTERVAL is not one that windows take.", hint=_INTERVALS, position=source.of(node))
    words = amount.name.split() if unit is None else [amount.name, unit.name]
    # '- 5 minutes' is two words for one number
    if words and words[0].upper() == "INTERVAL":
        words = words[1:]
    if not words or len(words) % 2:
        raise SqlError(f"'{amount.name}' is not an interval.", hint=_INTERVALS, position=source.of(node))
    total = Span()
    for number, name in zip(words[::2], words[1::2], strict=True):
        total = total + _span(number, name, source.of(node))
    return total if sign > 0 else -total


def _span(number: str, name: str, position: Position | None) -> Span:
    unit = name.upper()
    unit = unit[:-1] if unit.endswith("S") else unit
    try:
        amount = Decimal(number)
    except InvalidOperation:
        raise SqlError(f"'{number}' is not a number of {name}.", hint=_INTERVALS, position=position) from None
    if unit in _UNITS_MONTHS and amount == int(amount):
        return Span(months=int(amount) * _UNITS_MONTHS[unit])
    if unit in _UNITS_US:
        us = amount * _UNITS_US[unit]
        if us == int(us):
            return Span(us=int(us))
    units = ", ".join([*_UNITS_US, *_UNITS_MONTHS])
    raise SqlError(f"'{number} {name}' is not an interval.", hint=f"units: {units}", position=position)


def constant_us(node: exp.Expression, what: str, source: SourceText) -> int:
    """A time that is written down."""
    if not is_constant_time(node):
        hint = f"write {what} TIMESTAMP '2024-01-01 10:00:00'"
        raise SqlError(f"{what} needs a constant time.", hint=hint, position=source.of(node))
    return _bound(node, source).us


def is_constant_time(node: exp.Expression) -> bool:
    """Whether an expression is a literal of a time, cast or not."""
    text = node.this if isinstance(node, exp.Cast) and node.to.this in _TIME_TYPES else node
    return isinstance(text, exp.Literal) and text.is_string


def window_of_bounds(node: Bounds, source: SourceText) -> TimeWindow:
    """`BEGIN b END e`. BEGIN alone ends at NOW, END alone begins with the first tuple."""
    begin_node, end_node = node.args.get("begin"), node.args.get("end")
    begin = None if begin_node is None else _bound(begin_node, source)
    end = Bound(0, relative=True) if end_node is None else _bound(end_node, source)
    if begin is not None and begin.relative and not end.relative:
        raise SqlError(
            "BEGIN moves with NOW while END is constant: the window would shrink to nothing.",
            hint="make BEGIN a constant too, or END NOW",
            position=source.of(begin_node),
        )
    if begin is not None and begin.relative == end.relative and _is_after(begin, end):
        raise SqlError("BEGIN is after END.", position=source.of(begin_node))
    return TimeWindow(begin, end)


def _is_after(one: Bound, other: Bound) -> bool:
    """At every NOW; months and microseconds that pull in different directions are left to the calendar."""
    return one != other and one.months >= other.months and one.us >= other.us


def brackets_of(table: exp.Table) -> list[exp.Expression]:
    """The windows of a mention in FROM, which may stand after its name, AS OF, TABLESAMPLE or its alias."""
    places = (table, *(table.args.get(name) for name in ("version", "sample", "alias")))
    return [place.meta[BRACKET] for place in places if place is not None and BRACKET in place.meta]


def window_of_bracket(node: exp.Expression, source: SourceText) -> Window:
    """The window in brackets, but for columns that it names."""
    match node:
        case Bounds():
            return window_of_bounds(node, source)
        case NowBracket():
            return AT_NOW
        case RangeBracket(this=None):
            return TimeWindow()
        case RangeBracket():
            span = interval(node.this, source)
            if span.us < 0 or span.months < 0 or not (span.us or span.months):
                raise SqlError("[RANGE] needs an interval longer than nothing.", position=source.of(node))
            return TimeWindow(Bound(-span.us, relative=True, months=-span.months), Bound(0, relative=True))
        case RowsBracket():
            text = node.this.name
            if not text.isdecimal() or int(text) == 0:
                raise SqlError("[ROWS n] needs a whole number of rows, at least 1.", position=source.of(node))
            return RowsWindow(int(text))
    raise SqlError("A window was expected here.", position=source.of(node))


def window_of_stream(node: exp.Expression, schema: StreamSchema, source: SourceText) -> Window:
    """The window in brackets after a stream, whose columns `[PARTITION BY k ROWS n]` names."""
    window = window_of_bracket(node, source)
    if not isinstance(window, RowsWindow) or not node.expressions:
        return window
    columns: dict[str, None] = {}
    for named in node.expressions:
        column = schema.column(named.name)
        if column is None:
            raise unknown("column", named.name, [each.name for each in schema.columns], position=source.of(named))
        if is_nested(column.type):
            raise SqlError(
                f"[PARTITION BY ...] needs plain columns, and '{column.name}' has parts.", position=source.of(named)
            )
        columns[column.name] = None
    return KeyedRowsWindow(tuple(sorted(columns)), window.rows)


def _bound(node: exp.Expression, source: SourceText) -> Bound:
    match node:
        case exp.Paren():
            return _bound(node.this, source)
        case exp.Add():
            return _moved(_bound(node.this, source), interval(node.expression, source))
        case exp.Sub():
            return _moved(_bound(node.this, source), -interval(node.expression, source))
        case exp.Literal(is_string=True):
            return Bound(_constant_us(node, source))
        case exp.Cast() if node.to.this in _TIME_TYPES:
            text = node.this
            while isinstance(text, exp.Paren):
                text = text.this
            if isinstance(text, exp.Literal) and text.is_string:
                us = _constant_us(text, source)
                return Bound(us - us % _UNITS_US["DAY"] if node.to.this == exp.DType.DATE else us)
        case exp.CurrentTimestamp() | exp.Placeholder(this="now"):
            return Bound(0, relative=True)
        case exp.Column() if not node.table and node.name.upper() == "NOW":
            return Bound(0, relative=True)
        case exp.Anonymous() if node.name.upper() in ("NOW", "CURRENT_TIMESTAMP") and not node.expressions:
            return Bound(0, relative=True)
        case exp.Anonymous() if node.name.upper() in _TIME_CALLS and len(node.expressions) == 1:
            cast = exp.cast(node.expressions[0], _TIME_CALLS[node.name.upper()])
            return _bound(cast, source)
    raise SqlError("A bound of a window must be a constant or relative to NOW.", hint=_TIMES, position=source.of(node))


_TIME_TYPES = {
    exp.DType.TIMESTAMP,
    exp.DType.TIMESTAMPTZ,
    exp.DType.TIMESTAMPLTZ,
    exp.DType.TIMESTAMPNTZ,
    exp.DType.DATE,
}
_TIME_CALLS = {"TIMESTAMP": "timestamp", "TO_TIMESTAMP": "timestamp", "DATE": "date", "TO_DATE": "date"}


def _moved(bound: Bound, by: Span) -> Bound:
    if bound.relative:
        return Bound(bound.us + by.us, relative=True, months=bound.months + by.months)
    # a constant stays one: the calendar arithmetic is done now
    return Bound(add_months(bound.us, by.months) + by.us)


def _constant_us(node: exp.Literal, source: SourceText) -> int:
    text = node.name.strip()
    moment = _parse_moment(text)
    if moment is None:
        raise SqlError(
            f"'{text}' is not a timestamp.",
            hint="write it like '2024-01-01 10:00:00'",
            position=source.of(node),
        )
    return to_us(moment)


def _parse_moment(text: str) -> datetime | None:
    """ISO 8601 as Spark writes it: four digits for the year, one or two for other fields, an offset or the name of a
    zone at the end.
    """
    zone = None
    head, _, last = text.rpartition(" ")
    if head and last[:1].isalpha():
        try:
            zone, text = ZoneInfo("UTC" if last.upper() == "Z" else last), head
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return None
    date, separator, time = text.partition("T" if "T" in text else " ")
    try:
        year, *fields = date.split("-")
        if len(fields) > 2 or len(year) != 4:
            return None
        day = "-".join([year, *(f"{int(field):02}" for field in [*fields, "1", "1"][:2])])
        parts = time.strip().split(":")
        if separator and len(parts[0]) == 1:
            time = "0" + time.strip()
        moment = datetime.fromisoformat(f"{day}T{time.strip()}" if separator else day)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone or UTC)
    return moment
