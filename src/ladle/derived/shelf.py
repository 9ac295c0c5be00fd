"""A shelf: things in memory by key, the ready-made kind. Made with a name and the registry, it is registered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ladle.derived.contract import KindAccount, Place, Thing
from ladle.derived.registry import Derived

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class ShelfThing(Thing, Generic[V]):
    """A thing on a shelf."""

    value: V


class Shelf(Generic[K, V]):
    """Thread-safe; a hit takes no lock."""

    place = Place.MEMORY

    def __init__(
        self,
        name: str,
        derived: Derived,
        *,
        rebuilt: str = "when asked",
        dropped: Callable[[K], None] | None = None,
    ) -> None:
        """`dropped` is told the key of each thing that goes for want of room, and is called without a lock held."""
        self.name = name
        self.rebuilt = rebuilt
        self.bytes = 0
        self.used: float | None = None
        """When something was last found here."""
        self._derived = derived
        self._clock = derived.clock
        self._dropped = dropped
        self._lock = threading.Lock()
        self._held: dict[K, ShelfThing[V]] = {}
        self._seconds = 0.0
        derived.add(self)

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        """What is kept under a key; that counts as its use."""
        held = self._held.get(key)
        if held is None:
            return None
        held.used = self.used = self._clock()
        return held.value

    def find(self, key: K) -> ShelfThing[V] | None:
        """The thing itself, for those who note its use themselves."""
        return self._held.get(key)

    def put(self, key: K, value: V, size: int, seconds: float = 0.0, *, settle: bool = True) -> bool:
        """Keep a value that takes `size` bytes and took `seconds` to make; whether it is kept.

        Without `settle` the caller calls that itself, when it holds no lock any more.
        """
        with self._lock:
            self._pop(key)
            kept = size <= self._derived.bytes_max[Place.MEMORY]
            if kept:
                self._held[key] = ShelfThing(key, size, seconds, self._clock(), value)
                self.bytes += size
                self._seconds += seconds
        if settle:
            self._derived.settle()
        return kept

    def grow(self, key: K, value: V, size: int, seconds: float, *, settle: bool = True) -> bool:
        """Keep what a thing has grown to, which took `seconds` more."""
        before = self._held.get(key)
        took = before.seconds if before is not None else 0.0
        return self.put(key, value, size, took + seconds, settle=settle)

    def pop(self, key: K) -> V | None:
        """Forget a thing that is of no use any more; that is no eviction."""
        with self._lock:
            found = self._pop(key)
        return None if found is None else found.value

    def settle(self) -> None:
        """Hold the budget after `put(..., settle=False)`."""
        self._derived.settle()

    def items(self) -> list[tuple[K, V]]:
        """What is held, with its keys."""
        with self._lock:
            return [(key, held.value) for key, held in self._held.items()]

    # -- the contract --

    def things(self) -> list[ShelfThing[V]]:
        """What is held, each with its bytes, its cost and its last use."""
        with self._lock:
            return list(self._held.values())

    def drop(self, things: Sequence[Thing]) -> int:
        """Drop things; how many bytes that freed. One that was replaced meanwhile stays."""
        keys: list[K] = [thing.identity for thing in things]  # type: ignore[misc]
        with self._lock:
            gone = {key: thing for key, thing in zip(keys, things, strict=True) if self._held.get(key) is thing}
            for key in gone:
                self._pop(key)
        if self._dropped is not None:
            for key in gone:
                self._dropped(key)
        return sum(thing.bytes for thing in gone.values())

    def account(self) -> KindAccount:
        """How many things there are, their bytes, and when one was last used."""
        return KindAccount(len(self._held), self.bytes, self._seconds, self.used)

    def _pop(self, key: K) -> ShelfThing[V] | None:
        found = self._held.pop(key, None)
        if found is not None:
            self.bytes -= found.bytes
            # What is left of nothing is nothing, whatever was added in which order.
            self._seconds = self._seconds - found.seconds if self._held else 0.0
        return found
