"""Windows (PSoup section 1.1): which tuples of a stream an invocation looks at.

A tuple is in a time window when `begin < ts <= end`. Bounds are constants or relative to NOW, so the same window object
serves every invocation; it is resolved when the answer is read.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from ladle.clock import FIRST_US, LAST_US, interval_text, to_datetime, to_us
from ladle.json_values import Json, JsonFields, JsonObject

Times = npt.NDArray[np.int64]
"""Microseconds since 1970."""

MIN_US = -(1 << 62)
MAX_US = 1 << 62


class WindowKind(Enum):
    """The kinds of windows, by which of their bounds move."""

    EVERYTHING = "everything retained"
    SNAPSHOT = "snapshot"
    LANDMARK = "landmark"
    SLIDING = "sliding"
    ROWS = "rows"
    KEYED_ROWS = "rows of each key"

    @property
    def moves(self) -> bool:
        """Whether what such a window holds depends on NOW."""
        return self not in (WindowKind.EVERYTHING, WindowKind.SNAPSHOT)


@dataclass(frozen=True)
class Bound:
    """A constant (`relative=False`, `us` since 1970) or NOW plus `months` and `us`."""

    us: int
    relative: bool = False
    months: int = 0

    def resolve(self, now_us: int) -> int:
        """The time that the bound is, at a NOW."""
        if not self.relative:
            return self.us
        return add_months(now_us, self.months, last_moment=True) + self.us

    def reached(self, times_us: Times) -> Times:
        """The first NOW at which this bound, which moves, is at each of some times or after."""
        wanted = times_us - self.us
        if self.months == 0:
            return wanted
        moments = wanted.astype("datetime64[us]")
        months = moments.astype("datetime64[M]")
        target = months - self.months
        found = target.astype("datetime64[us]") + (moments - months.astype("datetime64[us]"))
        # A month without that day never gets there: the next one does as it begins.
        following = (target + 1).astype("datetime64[us]")
        reached: Times = np.minimum(found, following).astype(np.int64)
        return reached

    def __str__(self) -> str:
        if not self.relative:
            if not FIRST_US <= self.us <= LAST_US:
                return f"{'before the first' if self.us < FIRST_US else 'after the last'} moment there is"
            return f"TIMESTAMP '{to_datetime(self.us).isoformat(' ', 'microseconds').removesuffix('+00:00')}'"
        text = "NOW"
        for amount, length in ((self.months, _months_text(abs(self.months))), (self.us, interval_text(abs(self.us)))):
            if amount:
                text += f" {'-' if amount < 0 else '+'} INTERVAL {length.upper()}"
        return text


@dataclass(frozen=True)
class TimeWindow:
    """`BEGIN b END e`; None is unbounded, so the default is everything the stream retains."""

    begin: Bound | None = None
    end: Bound | None = None

    @property
    def kind(self) -> WindowKind:
        """The kind of window, by which of its bounds move."""
        if self.begin is None and self.end is None:
            return WindowKind.EVERYTHING
        moving_begin = self.begin is not None and self.begin.relative
        moving_end = self.end is not None and self.end.relative
        if moving_begin:
            return WindowKind.SLIDING
        return WindowKind.LANDMARK if moving_end else WindowKind.SNAPSHOT

    def resolve(self, now_us: int) -> tuple[int, int]:
        """The window at NOW as (begin exclusive, end inclusive)."""
        begin = MIN_US if self.begin is None else self.begin.resolve(now_us)
        end = MAX_US if self.end is None else self.end.resolve(now_us)
        return begin, end

    def leaving(self, times_us: Times) -> Times | None:
        """The NOW at which tuples of some times leave; None when they stay."""
        return self.begin.reached(times_us) if self.begin is not None and self.begin.relative else None

    def __str__(self) -> str:
        if self.kind is WindowKind.EVERYTHING:
            return "everything retained"
        if self == AT_NOW:
            return "[NOW]"
        begin = self.begin if self.begin is not None else "the first tuple"
        end = self.end if self.end is not None else "the last tuple"
        return f"BEGIN {begin} END {end}"


AT_NOW = TimeWindow(Bound(-1, relative=True), Bound(0, relative=True))
"""`[NOW]`: the tuples of this very microsecond."""


@dataclass(frozen=True)
class RowsWindow:
    """`[ROWS n]`: the n highest tuple ids with `ts <= NOW`, counted before WHERE."""

    rows: int

    @property
    def kind(self) -> WindowKind:
        """The kind of window."""
        return WindowKind.ROWS

    def leaving(self, times_us: Times) -> Times | None:
        """No time ends a tuple's life: the n-th arrival after it does."""
        return None

    def __str__(self) -> str:
        return f"[ROWS {self.rows}]"


@dataclass(frozen=True)
class KeyedRowsWindow:
    """`[PARTITION BY columns ROWS n]`: of the tuples with `ts <= NOW` that are equal in these columns, the n highest
    tuple ids, counted before WHERE.
    """

    columns: tuple[str, ...]
    rows: int

    @property
    def kind(self) -> WindowKind:
        """The kind of window."""
        return WindowKind.KEYED_ROWS

    def leaving(self, times_us: Times) -> Times | None:
        """No time ends a tuple's life: the n-th arrival of its key after it does."""
        return None

    def __str__(self) -> str:
        return f"[PARTITION BY {', '.join(self.columns)} ROWS {self.rows}]"


Window = TimeWindow | RowsWindow | KeyedRowsWindow


def window_to_json(window: Window) -> JsonObject:
    """Encode a window."""
    match window:
        case RowsWindow(rows):
            return {"rows": rows}
        case KeyedRowsWindow(columns, rows):
            return {"rows": rows, "of": list(columns)}
        case TimeWindow(begin, end):
            return {"begin": _bound_to_json(begin), "end": _bound_to_json(end)}


def window_from_json(value: JsonFields) -> Window:
    """Decode a window."""
    if "of" in value:
        return KeyedRowsWindow(tuple(value["of"]), value["rows"])
    if "rows" in value:
        return RowsWindow(value["rows"])
    return TimeWindow(*(Bound(*b) if (b := value[edge]) is not None else None for edge in ("begin", "end")))


def _bound_to_json(bound: Bound | None) -> list[Json] | None:
    return None if bound is None else [bound.us, bound.relative, bound.months]


def _months_text(months: int) -> str:
    amount, unit = (months // 12, "year") if months % 12 == 0 else (months, "month")
    return f"{amount} {unit}{'' if amount == 1 else 's'}"


def add_months(us: int, months: int, *, last_moment: bool = False) -> int:
    """Calendar arithmetic as Spark does it: the day is clipped to the month's last, and a year that there isn't to the
    end of time on its side. With `last_moment` a day that is clipped becomes the end of the month's last.

    That is the running maximum of Spark's, which a bound that moves with NOW has: a month before 29 March 00:00 is 28
    February 00:00 in Spark, and so before what a month before 28 March 23:00 is.
    """
    if months == 0:
        return us
    moment = to_datetime(us)
    index = moment.year * 12 + moment.month - 1 + months
    year, month = index // 12, index % 12 + 1
    if not 1 <= year <= 9999:
        return FIRST_US - 1 if year < 1 else LAST_US
    last = monthrange(year, month)[1]
    if moment.day > last and last_moment:
        moment = moment.replace(hour=23, minute=59, second=59, microsecond=999_999)
    return to_us(moment.replace(year=year, month=month, day=min(moment.day, last)))
