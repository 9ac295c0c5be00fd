"""Marks: the epochs without which a stream's clock, and whether it is idle, does not follow from its tuples.

They are a persistent sequence in chunks: a stream with a heartbeat every second has tens of thousands, and each entry
of the log makes a new one from the last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

MARKS_MAX = 65_536
"""Marks that are remembered for each stream, about: 18 hours of one heartbeat a second."""
_CHUNK = 256


class Mark(NamedTuple):
    """A heartbeat, an entry that made a stream idle, or the tuples that made it active again."""

    epoch: int
    clock_us: int
    idle: bool


@dataclass(frozen=True)
class Marks:
    """The last marks of a stream, oldest first."""

    chunks: tuple[tuple[Mark, ...], ...] = ()

    def __iter__(self) -> Iterator[Mark]:
        return (mark for chunk in self.chunks for mark in chunk)

    @property
    def newest(self) -> Mark | None:
        return self.chunks[-1][-1] if self.chunks else None

    def as_of(self, epoch: int) -> Mark | None:
        """The last one up to an epoch."""
        at = self._chunk(epoch)
        if not at:
            return None
        chunk = self.chunks[at - 1]
        return chunk[bisect_right(chunk, epoch, key=_epoch) - 1]

    def after(self, epoch: int) -> Iterator[Mark]:
        """Those after an epoch."""
        return (mark for chunk in self.chunks[max(self._chunk(epoch) - 1, 0) :] for mark in chunk if mark.epoch > epoch)

    def followed_by(self, mark: Mark) -> Marks:
        """With one more; the oldest chunk goes when there are too many."""
        if self.chunks and len(self.chunks[-1]) < _CHUNK:
            return Marks((*self.chunks[:-1], (*self.chunks[-1], mark)))
        return Marks((*self.chunks, (mark,))[-(MARKS_MAX // _CHUNK) :])

    def needed_from(self, epoch: int) -> Marks:
        """Without the chunks that nobody needs who asks from an epoch on."""
        return Marks(self.chunks[max(self._chunk(epoch) - 1, 0) :])

    def _chunk(self, epoch: int) -> int:
        """How many chunks begin up to an epoch."""
        return bisect_right(self.chunks, epoch, key=lambda chunk: chunk[0].epoch)

    def to_json(self) -> list[list[int]]:
        return [[mark.epoch, mark.clock_us, int(mark.idle)] for mark in self]

    @staticmethod
    def from_json(value: Iterable[Any]) -> Marks:
        marks = [Mark(epoch, us, bool(idle)) for epoch, us, idle in value]
        return Marks(tuple(tuple(marks[at : at + _CHUNK]) for at in range(0, len(marks), _CHUNK)))


def _epoch(mark: Mark) -> int:
    return mark.epoch
