"""Where a window is among the segments of a stream in arrival order, and among the tuples of the segments at its edges.

Times mostly ascend with arrival. Where they do a window is one run of segments between two edges, and an edge is a
position; both are found by bisection. Late tuples make more runs and more edges, and never another answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ladle.stem.aggregates import TILE_ROWS
from ladle.stem.matches import Mask

Part = tuple[int, int, Mask | None]
"""Rows of a segment: those from the first number to before the last, for which the mask holds if there is one."""


class Times:
    """The timestamps of one segment."""

    __slots__ = ("_ascending", "_high", "_low", "_values", "_view", "nbytes")

    def __init__(self, values: npt.NDArray[np.int64]) -> None:
        self._values = values
        self._view = _integers(values)
        self._ascending = bool((values[1:] >= values[:-1]).all())
        starts = np.arange(0, len(values), TILE_ROWS)
        self._low: list[int] = [] if self._ascending else np.minimum.reduceat(values, starts).tolist()
        self._high: list[int] = [] if self._ascending else np.maximum.reduceat(values, starts).tolist()
        self.nbytes = values.nbytes

    def cut(self, begin_us: int, end_us: int, skip: int) -> tuple[Sequence[int], list[Part]]:
        """The tiles wholly in a window, and of those that its edges cut the rows: a range, or a range and a mask.

        Rows before the number `skip` are outside.
        """
        if self._ascending:
            first = max(bisect_right(self._view, begin_us), skip)
            return cut_range(first, bisect_right(self._view, end_us), len(self._values))
        whole: list[int] = []
        parts: list[Part] = []
        for tile, (low, high) in enumerate(zip(self._low, self._high, strict=True)):
            start = tile * TILE_ROWS
            stop = min(start + TILE_ROWS, len(self._values))
            if high <= begin_us or low > end_us or stop <= skip:
                continue
            if low > begin_us and high <= end_us and start >= skip:
                whole.append(tile)
                continue
            start = max(start, skip)
            times = self._values[start:stop]
            parts.append((start, stop, (times > begin_us) & (times <= end_us)))
        return whole, parts

    def rows(self, begin_us: int, end_us: int, skip: int) -> Part:
        """The rows in a window: a range, or a range and a mask."""
        if self._ascending:
            first = max(bisect_right(self._view, begin_us), skip)
            return first, max(bisect_right(self._view, end_us), first), None
        times = self._values[skip:]
        return skip, len(self._values), (times > begin_us) & (times <= end_us)


def cut_range(first: int, last: int, rows: int) -> tuple[Sequence[int], list[Part]]:
    """A range of a segment's rows as whole tiles and what is left at its ends."""
    if first >= last:
        return (), []
    whole_first = -(-first // TILE_ROWS)
    whole_last = -(-last // TILE_ROWS) if last == rows else last // TILE_ROWS
    if whole_first >= whole_last:
        return (), [(first, last, None)]
    parts: list[Part] = []
    if first < whole_first * TILE_ROWS:
        parts.append((first, whole_first * TILE_ROWS, None))
    if whole_last * TILE_ROWS < last:
        parts.append((whole_last * TILE_ROWS, last, None))
    return range(whole_first, whole_last), parts


class Order:
    """The times of a stream's segments, in arrival order."""

    def __init__(
        self, rows: npt.NDArray[np.int64], ts_min_us: npt.NDArray[np.int64], ts_max_us: npt.NDArray[np.int64]
    ) -> None:
        self._ts_min = np.ascontiguousarray(ts_min_us)
        self._ts_max = np.ascontiguousarray(ts_max_us)
        self.ends = _integers(np.cumsum(rows))
        self._latest = _integers(np.maximum.accumulate(self._ts_max))
        self._earliest = _integers(np.minimum.accumulate(self._ts_min[::-1])[::-1].copy())
        self._low = _integers(self._ts_min)
        self._high = _integers(self._ts_max)

    def cut(self, begin_us: int, end_us: int, first_row: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Runs (first, last) of segments wholly in a window, and (segment, rows to skip) at its edges."""
        runs: list[tuple[int, int]] = []
        edges: list[tuple[int, int]] = []
        # Before `low` everything is too early, from `high` on too late.
        low, high = bisect_right(self._latest, begin_us), bisect_right(self._earliest, end_us)
        if first_row > 0:
            at = bisect_right(self.ends, first_row)
            skip = first_row - (self.ends[at - 1] if at else 0)
            if skip and low <= at < high:
                if self._high[at] > begin_us and self._low[at] <= end_us:
                    edges.append((at, skip))
                at += 1
            low = max(low, at)
        # From `first` on nothing is too early, before `last` nothing too late.
        first, last = max(bisect_right(self._earliest, begin_us), low), min(bisect_right(self._latest, end_us), high)
        if first >= last:
            self._mixed(low, high, begin_us, end_us, runs, edges)
        else:
            self._mixed(low, first, begin_us, end_us, runs, edges)
            runs.append((first, last))
            self._mixed(last, high, begin_us, end_us, runs, edges)
        return runs, edges

    def _mixed(
        self,
        first: int,
        last: int,
        begin_us: int,
        end_us: int,
        runs: list[tuple[int, int]],
        edges: list[tuple[int, int]],
    ) -> None:
        if first >= last:
            return
        if last - first == 1:
            if self._low[first] > begin_us and self._high[first] <= end_us:
                runs.append((first, last))
            elif self._high[first] > begin_us and self._low[first] <= end_us:
                edges.append((first, 0))
            return
        ts_min, ts_max = self._ts_min[first:last], self._ts_max[first:last]
        inside = (ts_min > begin_us) & (ts_max <= end_us)
        edge = (ts_max > begin_us) & (ts_min <= end_us) & ~inside
        edges.extend((at, 0) for at in (np.flatnonzero(edge) + first).tolist())
        changes = np.flatnonzero(np.diff(inside, prepend=False, append=False)) + first
        runs.extend(zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True))

    def is_inside(self, at: int, begin_us: int, end_us: int) -> bool:
        """Whether all tuples of a segment are between."""
        return bool(self._low[at] > begin_us and self._high[at] <= end_us)

    def last_rows(self, rows: int, now_us: int, floor_us: int | None) -> int | None:
        """Where the last `rows` tuples begin, when none of them is after NOW or before the floor; None: look closer."""
        if len(self.ends) == 0:
            return 0
        first = self.ends[-1] - rows
        if first <= 0:
            return 0
        at = bisect_right(self.ends, first)
        if self._latest[-1] > now_us or (floor_us is not None and self._earliest[at] <= floor_us):
            return None
        return int(first)


def _integers(values: npt.NDArray[np.int64]) -> memoryview[int]:
    """The same memory as Python's integers: bisect need not make a NumPy scalar of each that it looks at."""
    octets = memoryview(values.data)
    return octets.cast("B").cast("q") if len(values) else octets
