"""The normal form of a factor over one column: the values for which it is true, as intervals of keys.

Two factors that mean the same have the same ranges, however they were written, and the Query SteM answers thousands of
them by looking for their ends in one sorted column (`ladle.plan.keys` says what keys are).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from ladle.json_values import Json, JsonRow
from ladle.plan.keys import INT64_MAX, INT64_MIN, Key, successor

Interval = tuple[Key | None, Key | None]
"""Keys from the first up to but without the second; None is unbounded."""

Intervals = tuple[Interval, ...]

NOTHING: Intervals = ()
EVERYTHING: Intervals = ((None, None),)


@dataclass(frozen=True)
class Ranges:
    """The values of one column for which a factor is true: sorted, disjoint, non-touching half-open intervals of keys
    (None: unbounded), and whether NULL is among them.
    """

    column: str
    intervals: Intervals
    null: bool = False

    @staticmethod
    def of(column: str, intervals: Iterable[Interval], *, null: bool = False) -> Ranges:
        """From intervals in any order; they may overlap, be empty, or end outside int64."""
        return Ranges(column, normal(intervals), null)

    def intersect(self, other: Ranges) -> Ranges:
        """The values that satisfy both."""
        self._check(other)
        return Ranges(self.column, intersect(self.intervals, other.intervals), self.null and other.null)

    def union(self, other: Ranges) -> Ranges:
        """The values that satisfy one of the two."""
        self._check(other)
        return Ranges(self.column, union(self.intervals, other.intervals), self.null or other.null)

    def complement(self, *, null: bool) -> Ranges:
        """All other values; whether NULL is among them is for the caller to say."""
        return Ranges(self.column, complement(self.intervals), null)

    def holds(self, key: Key | None) -> bool:
        """Whether the value with this key (None: NULL) is among these."""
        return self.null if key is None else holds(self.intervals, key)

    def _check(self, other: Ranges) -> None:
        if self.column != other.column:
            raise ValueError(f"ranges of {self.column} and of {other.column} have nothing in common")

    def to_json(self) -> list[Json]:
        """Encode the ranges."""
        return [self.column, self.null, [[_key_to_json(lo), _key_to_json(hi)] for lo, hi in self.intervals]]

    @staticmethod
    def from_json(value: JsonRow) -> Ranges:
        """Decode the ranges."""
        column, null, intervals = value
        return Ranges(column, tuple((_key_from_json(lo), _key_from_json(hi)) for lo, hi in intervals), null)


def normal(intervals: Iterable[Interval]) -> Intervals:
    """Intervals sorted, without empty ones, with those that overlap or touch as one, and ends that no key reaches as
    unbounded.
    """
    clipped = [interval for lo, hi in intervals if (interval := _clip(lo, hi)) is not None]
    if len(clipped) < 2:
        return tuple(clipped)
    clipped.sort(key=_sort_key)
    merged: list[Interval] = []
    for lo, hi in clipped:
        if merged and _reaches(merged[-1][1], lo):
            first, last = merged[-1]
            merged[-1] = (first, _later(last, hi))
        else:
            merged.append((lo, hi))
    return tuple(merged)


def point(key: Key) -> Interval:
    """The interval that holds one key."""
    return (key, successor(key))


def holds(intervals: Intervals, key: Key) -> bool:
    """Whether a key is in intervals of the normal form."""
    place = bisect_right(intervals, (1, key), key=_sort_key) - 1
    if place < 0:
        return False
    hi = intervals[place][1]
    return hi is None or key < hi  # type: ignore[operator]


def union(one: Intervals, other: Intervals) -> Intervals:
    """The keys that are in one of the two."""
    return normal((*one, *other))


def intersect(one: Intervals, other: Intervals) -> Intervals:
    """The keys that are in both."""
    if len(one) == 1 and len(other) == 1:
        return _intersect_two(one[0], other[0])
    found: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        (lo, hi), (other_lo, other_hi) = one[i], other[j]
        found.append((max(lo, other_lo, key=_low), min(hi, other_hi, key=_high)))
        if _high(hi) <= _high(other_hi):
            i += 1
        else:
            j += 1
    return normal(found)


def _intersect_two(one: Interval, other: Interval) -> Intervals:
    """By far the most are of one interval, and an index is made of hundreds of thousands of them."""
    (lo, hi), (other_lo, other_hi) = one, other
    if lo is None or (other_lo is not None and other_lo > lo):  # type: ignore[operator]
        lo = other_lo
    if hi is None or (other_hi is not None and other_hi < hi):  # type: ignore[operator]
        hi = other_hi
    return ((lo, hi),) if lo is None or hi is None or lo < hi else NOTHING  # type: ignore[operator]


def complement(intervals: Intervals) -> Intervals:
    """All keys that are not in intervals of the normal form."""
    found: list[Interval] = []
    start: Key | None = None
    for lo, hi in intervals:
        if lo is not None:
            found.append((start, lo))
        start = hi
    if not intervals or start is not None:
        found.append((start, None))
    return tuple(found)


def _clip(lo: Key | None, hi: Key | None) -> Interval | None:
    if lo is not None:
        if isinstance(lo, int):
            if lo > INT64_MAX:
                return None
            lo = None if lo <= INT64_MIN else lo
        elif lo == b"":
            lo = None
    if hi is not None:
        if isinstance(hi, int):
            if hi <= INT64_MIN:
                return None
            hi = None if hi > INT64_MAX else hi
        elif hi == b"":
            return None
    if lo is not None and hi is not None and lo >= hi:  # type: ignore[operator]
        return None
    return (lo, hi)


def _low(key: Key | None) -> tuple[int, Key]:
    return (0, 0) if key is None else (1, key)


def _high(key: Key | None) -> tuple[int, Key]:
    return (2, 0) if key is None else (1, key)


def _sort_key(interval: Interval) -> tuple[int, Key]:
    return _low(interval[0])


def _reaches(hi: Key | None, lo: Key | None) -> bool:
    return hi is None or lo is None or lo <= hi  # type: ignore[operator]


def _later(one: Key | None, other: Key | None) -> Key | None:
    return max(one, other, key=_high)


def _key_to_json(key: Key | None) -> int | str | None:
    return key.hex() if isinstance(key, bytes) else key


def _key_from_json(value: int | str | None) -> Key | None:
    return bytes.fromhex(value) if isinstance(value, str) else value
