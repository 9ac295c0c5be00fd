"""Where a window's edges are among the tuples of a segment.

Times mostly ascend with arrival. Where they do an edge is a position, found by bisection. Late tuples make masks, and
never another answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ladle.archive.order import Part, integers
from ladle.operators.aggregates import STRIP_ROWS


class Times:
    """The timestamps of one segment."""

    __slots__ = ("_ascending", "_high", "_low", "_values", "_view", "nbytes")

    def __init__(self, values: npt.NDArray[np.int64]) -> None:
        self._values = values
        self._view = integers(values)
        self._ascending = bool((values[1:] >= values[:-1]).all())
        starts = np.arange(0, len(values), STRIP_ROWS)
        self._low: list[int] = [] if self._ascending else np.minimum.reduceat(values, starts).tolist()
        self._high: list[int] = [] if self._ascending else np.maximum.reduceat(values, starts).tolist()
        self.nbytes = values.nbytes

    def cut(self, begin_us: int, end_us: int, skip: int, until: int) -> tuple[Sequence[int], list[Part]]:
        """The strips wholly in a window, and of those that its edges cut the rows: a range, or a range and a mask.

        Rows before the number `skip`, and from `until` on, are outside.
        """
        if self._ascending:
            first = max(bisect_right(self._view, begin_us), skip)
            return cut_range(first, min(bisect_right(self._view, end_us), until), len(self._values))
        whole: list[int] = []
        parts: list[Part] = []
        for strip, (low, high) in enumerate(zip(self._low, self._high, strict=True)):
            start = strip * STRIP_ROWS
            stop = min(start + STRIP_ROWS, len(self._values))
            if high <= begin_us or low > end_us or stop <= skip or start >= until:
                continue
            if low > begin_us and high <= end_us and start >= skip and stop <= until:
                whole.append(strip)
                continue
            start, stop = max(start, skip), min(stop, until)
            times = self._values[start:stop]
            parts.append((start, stop, (times > begin_us) & (times <= end_us)))
        return whole, parts

    def rows(self, begin_us: int, end_us: int, skip: int, until: int) -> Part:
        """The rows in a window: a range, or a range and a mask."""
        if self._ascending:
            first = max(bisect_right(self._view, begin_us), skip)
            return first, max(min(bisect_right(self._view, end_us), until), first), None
        times = self._values[skip:until]
        return skip, skip + len(times), (times > begin_us) & (times <= end_us)


def cut_range(first: int, last: int, rows: int) -> tuple[Sequence[int], list[Part]]:
    """A range of a segment's rows as whole strips and what is left at its ends."""
    if first >= last:
        return (), []
    whole_first = -(-first // STRIP_ROWS)
    whole_last = -(-last // STRIP_ROWS) if last == rows else last // STRIP_ROWS
    if whole_first >= whole_last:
        return (), [(first, last, None)]
    parts: list[Part] = []
    if first < whole_first * STRIP_ROWS:
        parts.append((first, whole_first * STRIP_ROWS, None))
    if whole_last * STRIP_ROWS < last:
        parts.append((whole_last * STRIP_ROWS, last, None))
    return range(whole_first, whole_last), parts
