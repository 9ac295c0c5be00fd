"""Where a window is among the segments of a stream in arrival order.

Times mostly ascend with arrival. Where they do a window is one run of segments between two edges, found by bisection.
Late tuples make more runs and more edges, and never another answer.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Part = tuple[int, int, Mask | None]
"""Rows of a segment: those from the first number to before the last, for which the mask holds if there is one."""


class Order:
    """The times of a stream's segments, in arrival order."""

    def __init__(
        self, rows: npt.NDArray[np.int64], ts_min_us: npt.NDArray[np.int64], ts_max_us: npt.NDArray[np.int64]
    ) -> None:
        self._ts_min = np.ascontiguousarray(ts_min_us)
        self._ts_max = np.ascontiguousarray(ts_max_us)
        self.ends = integers(np.cumsum(rows))
        self._latest = integers(np.maximum.accumulate(self._ts_max))
        self._earliest = integers(np.minimum.accumulate(self._ts_min[::-1])[::-1].copy())
        self._low = integers(self._ts_min)
        self._high = integers(self._ts_max)

    def cut(
        self, begin_us: int, end_us: int, first_row: int = 0, last_row: int | None = None
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Runs (first, last) of segments wholly in a window, and (segment, rows to skip) at its edges.

        Only rows from number `first_row` to before `last_row` count, in arrival order. A segment that the last of them
        cuts is at an edge.
        """
        runs: list[tuple[int, int]] = []
        edges: list[tuple[int, int]] = []
        # Before `low` everything is too early, from `high` on too late.
        low, high = bisect_right(self._latest, begin_us), bisect_right(self._earliest, end_us)
        if first_row > 0 or last_row is not None:
            first, last, cut = self._counted(first_row, last_row)
            low, high = max(low, first), min(high, last)
            edges += [(at, skip) for at, skip in cut if self._high[at] > begin_us and self._low[at] <= end_us]
        # From `first` on nothing is too early, before `last` nothing too late.
        first, last = max(bisect_right(self._earliest, begin_us), low), min(bisect_right(self._latest, end_us), high)
        if first >= last:
            self._mixed(low, high, begin_us, end_us, runs, edges)
        else:
            self._mixed(low, first, begin_us, end_us, runs, edges)
            runs.append((first, last))
            self._mixed(last, high, begin_us, end_us, runs, edges)
        return runs, edges

    def start(self, at: int) -> int:
        """The number of a segment's first row."""
        return self.ends[at - 1] if at else 0

    def _counted(self, first_row: int, last_row: int | None) -> tuple[int, int, list[tuple[int, int]]]:
        """From which to before which segment all rows count, and (segment, rows to skip) of those of which some do."""
        if last_row is not None and first_row >= last_row:
            return 0, 0, []
        count = len(self.ends)
        first, last = bisect_right(self.ends, first_row), count
        cut: dict[int, int] = {}
        if first < count and first_row > self.start(first):
            cut[first] = first_row - self.start(first)
            first += 1
        if last_row is not None:
            last = bisect_right(self.ends, last_row)
            if last < count and last_row > self.start(last):
                cut.setdefault(last, 0)
        return first, last, list(cut.items())

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


def integers(values: npt.NDArray[np.int64]) -> memoryview[int]:
    """The numbers as Python's integers, over the same memory: bisect makes no NumPy scalar of each that it reads."""
    octets = memoryview(values.data)
    return octets.cast("B").cast("q") if len(values) else octets
