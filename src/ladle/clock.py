"""Time as the engine sees it: microseconds since 1970 in UTC. Tests replace the wall clock, nothing else."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""The years 1 to 9999, as in Spark and in Python."""


class Clock(Protocol):
    def now_us(self) -> int: ...


class WallClock:
    def now_us(self) -> int:
        return time.time_ns() // 1_000


class ManualClock:
    """A clock that moves only when told."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def advance(self, delta_us: int) -> None:
        self._now_us += delta_us


def to_us(moment: datetime) -> int:
    """A datetime as microseconds; naive datetimes mean UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def to_datetime(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
