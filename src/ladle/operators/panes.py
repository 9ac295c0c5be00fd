"""Time windows from the panes that they are made of, for all windows at once.

What is folded by panes stands in an array with a row for each pane, without a gap, and a column for each key. A window
combines `size` rows one after another. Rows are combined by twos, fours, eights and so on, for all starts in one pass
each, and the window's size in binary says which of these make it up: a window of 86,400 panes takes 17 passes, and
sums of floating point numbers are added up in the same order wherever a window stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ladle.columns import AnyArray
from ladle.plan.aggregate import Windows

Combine = Callable[[AnyArray, AnyArray], AnyArray]
"""What makes one of two rows of panes."""


@dataclass(frozen=True, slots=True)
class Starts:
    """The windows that panes are in, by place among the panes, of which `size - 1` empty ones are put on each side."""

    first: int
    """The number of the first window: window 0 begins at the windows' offset."""
    count: int
    place: int
    """The pane that the first window begins with."""
    slide: int
    """Panes from one window to the next."""
    size: int
    panes: int

    @classmethod
    def of(cls, windows: Windows, first_pane: int, panes: int) -> Starts:
        """The windows over `panes` panes from one on."""
        length_us = windows.panes.length_us
        slide, size = windows.slide_us // length_us, windows.size_us // length_us
        # Pane 0 begins at the panes' offset, window 0 at the windows' own.
        first_pane -= (windows.offset_us - windows.panes.offset_us) // length_us
        first = -(-(first_pane - size + 1) // slide)
        last = (first_pane + panes - 1) // slide
        return cls(first, max(last - first + 1, 0), first * slide - (first_pane - size + 1), slide, size, panes)

    @property
    def padded(self) -> int:
        """Panes with the empty ones."""
        return self.panes + 2 * (self.size - 1)

    def combined(self, panes: AnyArray, combine: Combine, empty: int) -> AnyArray:
        """Each window's row; `empty` is what changes nothing when it is combined with another value."""
        power = np.full((self.padded, panes.shape[1]), empty, dtype=panes.dtype)
        power[self.size - 1 : self.size - 1 + self.panes] = panes
        found, taken, length = None, 0, 1
        while True:
            if self.size & length:
                rows = power[self.place + taken :: self.slide][: self.count]
                found = rows if found is None else combine(found, rows)
                taken += length
            if taken == self.size:
                return np.ascontiguousarray(found)
            power = combine(power[:-length], power[length:])
            length *= 2
