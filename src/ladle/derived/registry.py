"""The registry: all kinds of derived state of one warehouse, held to one budget of memory and one of disk.

A *round* looks at all things of a place and drops those that are worth least (`policy.py`) until the rest fits. In
memory a round is run by whoever kept the thing that was too much, so the budget holds at any moment but that one; on
disk by housekeeping. Rounds cost as much as there are things, so where there are many each frees some room in advance.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ladle.derived.contract import Kind, KindAccount, Place, Thing
from ladle.derived.policy import victims

_MANY = 1_000
_IN_ADVANCE = 8
"""With many things, a round frees this part of the budget in advance."""
_RELIEVED = 0.75
"""Demands that could not be met are tried again when what was left after a round has shrunk to this part of it."""
_ROUNDS_MAX = 8

_K = TypeVar("_K", bound=Kind)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report."""

    kind: str
    place: Place
    rebuilt: str
    account: KindAccount
    evictions: int
    """Things that were dropped for want of room, in this process."""


class Derived:
    """Every method may be called from any thread."""

    def __init__(
        self, memory_bytes_max: int, disk_bytes_max: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.bytes_max = {Place.MEMORY: memory_bytes_max, Place.DISK: disk_bytes_max}
        self.clock = clock
        self.began = time.time() - clock()
        """What the clock's zero was, in seconds since 1970."""
        self._memory: tuple[Kind, ...] = ()
        self._kinds: dict[str, Kind] = {}
        self._rounds = {place: threading.Lock() for place in Place}
        self._evictions: Counter[str] = Counter()
        self.unmet = False
        """Whether demands want more on disk than the budget allows, and none of them could be lowered."""
        self._unmet: tuple[object, int] = (None, 0)
        """Which demands those were, and the bytes that were left of them."""

    def add(self, kind: _K) -> _K:
        """Register a kind: from now on it is held to the budget of its place, and reported."""
        if kind.name in self._kinds:
            raise ValueError(f"there are two kinds of derived state called {kind.name}")
        self._kinds[kind.name] = kind
        self._memory = tuple(each for each in self._kinds.values() if each.place is Place.MEMORY)
        return kind

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """All kinds that were registered."""
        return tuple(self._kinds.values())

    def bytes(self, place: Place) -> int:
        """What all things in a place take; on disk as of the last look."""
        return sum(kind.bytes for kind in self._of(place))

    def excess(self, place: Place) -> int:
        """The bytes by which a place is over its budget, looked at anew; zero or less when it is not."""
        for kind in self._of(place):
            kind.things()
        return self.bytes(place) - self.bytes_max[place]

    def settle(self, place: Place = Place.MEMORY) -> int:
        """Drop what is worth least until a place is within its budget; the bytes that this freed."""
        if place is Place.MEMORY and self.bytes(place) <= self.bytes_max[place]:
            return 0
        freed = 0
        with self._rounds[place]:
            # Other threads keep things meanwhile; whoever does settles too, so there is an end.
            for _ in range(_ROUNDS_MAX):
                gained = self._round(place)
                freed += gained
                if not gained or self.bytes(place) <= self.bytes_max[place]:
                    break
        return freed

    def _round(self, place: Place) -> int:
        kinds, limit = self._of(place), self.bytes_max[place]
        listed: list[tuple[Kind, Thing]] = [(kind, thing) for kind in kinds for thing in kind.things()]
        excess = self.bytes(place) - limit
        if excess <= 0 or not listed:
            return 0
        if len(listed) > _MANY:
            excess += limit // _IN_ADVANCE
        doomed: dict[str, list[Thing]] = {}
        for number in victims([thing for _, thing in listed], excess, self.clock()):
            kind, thing = listed[number]
            doomed.setdefault(kind.name, []).append(thing)
        freed = 0
        for name, things in doomed.items():
            self._evictions[name] += len(things)
            freed += self._kinds[name].drop(things)
        return freed

    def note_demands(self, demands: object, *, over: bool, lowered: bool) -> None:
        """What became of demands on the disk: whether they were too much, and whether some could be lowered. Those that
        were not met are tried again when they are others, or when there is room by other means than a round.
        """
        left = self.bytes(Place.DISK)
        if over:
            self.unmet, self._unmet = not lowered, (demands, left)
        elif self.unmet and (demands is not self._unmet[0] or left < _RELIEVED * self._unmet[1]):
            self.unmet = False

    def report(self) -> list[Row]:
        """What there is of each kind: what is in memory first, each in the order in which it was registered."""
        return [
            Row(kind.name, kind.place, kind.rebuilt, kind.account(), self._evictions[kind.name])
            for place in Place
            for kind in self._of(place)
        ]

    def _of(self, place: Place) -> tuple[Kind, ...]:
        if place is Place.MEMORY:
            return self._memory
        return tuple(kind for kind in self._kinds.values() if kind.place is place)
