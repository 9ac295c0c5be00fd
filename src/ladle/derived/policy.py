"""What goes first: what is cheapest to make anew per byte, and longest unused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ladle.derived.contract import Thing

_SECONDS_MIN = 1e-6
"""Nothing is made in less: what is too quick to be measured is alike, and goes by its last use."""
_YOUNG_SECONDS = 1.0
"""Things used within the last second differ by what they cost more than by when they were used."""


def worth(seconds: float, size: int, unused: float) -> float:
    """What it is worth to keep a byte of a thing: the seconds that it saves, less the longer nobody asked for it."""
    return max(seconds, _SECONDS_MIN) / size / (max(unused, 0.0) + _YOUNG_SECONDS)


def victims(things: Sequence[Thing], excess: int, now: float) -> npt.NDArray[np.intp]:
    """The numbers of the things to drop so that `excess` bytes are freed: those worth least, as few as it takes."""
    count = len(things)
    sizes = np.fromiter((thing.bytes for thing in things), np.float64, count)
    seconds = np.fromiter((thing.seconds for thing in things), np.float64, count)
    used = np.fromiter((thing.used for thing in things), np.float64, count)
    unused = np.maximum(now - used, 0.0) + _YOUNG_SECONDS
    with np.errstate(divide="ignore"):
        values = np.maximum(seconds, _SECONDS_MIN) / sizes / unused
    # Of what is worth the same, the one that was there first goes first. What takes no room frees none.
    order = np.argsort(values, kind="stable")
    order = order[sizes[order] > 0]
    freed = np.cumsum(sizes[order])
    return order[: int(np.searchsorted(freed, excess, side="left")) + 1]
