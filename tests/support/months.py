"""The judge's own calendar: moments as microseconds, and bounds that are months before NOW."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1)


def to_us(moment: datetime) -> int:
    naive = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return (naive - EPOCH) // timedelta(microseconds=1)


def months_before(now_us: int, months: int) -> int:
    """The highest, over all moments up to NOW, of what is so many months before: a bound that never goes back.

    Found by trying NOW itself and the last moment of each day of its month that some months lack.
    """
    now = EPOCH + timedelta(microseconds=now_us)
    ends = [
        now.replace(day=day, hour=23, minute=59, second=59, microsecond=999_999)
        for day in range(28, monthrange(now.year, now.month)[1] + 1)
    ]
    return max(_clipped(moment, months) for moment in (now, *(end for end in ends if end <= now)))


def _clipped(moment: datetime, months: int) -> int:
    index = moment.year * 12 + moment.month - 1 - months
    year, month = index // 12, index % 12 + 1
    return to_us(moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1])))
