"""Time as the engine sees it: microseconds since 1970 in UTC. Tests replace the wall clock, nothing else."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Protocol

from ladle.errors import TypeMismatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""The years 1 to 9999, as in Spark and in Python."""


class Clock(Protocol):
    """What tells the time of arrival: the wall clock, or a clock of tests."""

    def now_us(self) -> int:
        """Microseconds since 1970."""
        ...


class WallClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1_000


class ManualClock:
    """A clock that moves only when told. Times are datetimes, or microseconds since 1970; steps are timedeltas, or
    microseconds.
    """

    def __init__(self, start: datetime | int = 1_700_000_000_000_000) -> None:
        self._now_us = start if isinstance(start, int) else to_us(start)

    def now_us(self) -> int:
        """Microseconds since 1970, as they were set."""
        return self._now_us

    def advance(self, step: timedelta | int) -> None:
        """Let time pass: a timedelta, or microseconds."""
        self._now_us += step if isinstance(step, int) else step // timedelta(microseconds=1)


def to_us(moment: datetime) -> int:
    """A datetime as microseconds; naive datetimes mean UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def moment_of(value: object) -> datetime:
    """A moment as people give it: a datetime, a date, or ISO text."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            raise TypeMismatch(f"{value!r} is not a time.", hint="write it like 2024-01-31 12:00:00") from None
    raise TypeMismatch(f"A {type(value).__name__} is not a time.", hint="give a datetime, a date, or ISO text")


def interval_text(us: int) -> str:
    """A length of time as people write it: in the largest unit that it is a whole number of, like `90 minutes`."""
    for unit, size in (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000)):
        if us and us % size == 0:
            return f"{us // size} {unit}{'' if us == size else 's'}"
    return f"{us / 1e6:.6f}".rstrip("0").rstrip(".") + " seconds"


@lru_cache(maxsize=1_024)
def to_datetime(us: int) -> datetime:
    """Microseconds since 1970 as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=us)
