"""The contract of derived state: what a kind says of its things, and what may be asked of it.

Nobody waits for a thing: whoever uses one holds on to it, and dropping it only makes it be forgotten. So a thing that
is dropped while it is read stays right for that reader, and the next one finds it uncovered and computes it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Place(Enum):
    """Where things are; each place has one budget."""

    MEMORY = "memory"
    DISK = "disk"


@dataclass(slots=True, eq=False)
class Thing:
    """What is kept, or dropped, as a whole. A hit only sets `used`: no lock, no order to keep."""

    identity: Hashable
    """Names it within its kind."""
    bytes: int
    seconds: float
    """What it takes to make it anew, measured when it was made where that is possible."""
    used: float
    """When it was last used, on the clock of the registry."""


@dataclass(frozen=True, slots=True)
class KindAccount:
    """What a kind has now, all things together."""

    things: int
    bytes: int
    seconds: float
    """What it would take to make all of it anew."""
    used: float | None = None
    """When something of it was last used, on the clock of the registry."""
    covered: int = 0
    wanted: int = 0
    """Of so many parts that demands ask for, how many are covered. None are asked for of what is kept as it comes."""


class Kind(Protocol):
    """What is kept for one purpose. `things` and `drop` are called by any thread, never by one that holds a lock which
    they take.
    """

    @property
    def name(self) -> str:
        """What it is called in SHOW DERIVED and in figures."""
        ...

    @property
    def place(self) -> Place:
        """Whether it takes memory or disk."""
        ...

    @property
    def rebuilt(self) -> str:
        """Who makes anew what was dropped, in a few words."""

    @property
    def bytes(self) -> int:
        """What all things take. It is read after each thing that is kept: no sum over things."""

    def things(self) -> Collection[Thing]:
        """All that may be dropped."""

    def drop(self, things: Sequence[Thing]) -> int:
        """Forget some things, as far as they are still there; the bytes that this freed."""

    def account(self) -> KindAccount:
        """How much there is of it, what it covers, and when it was last used."""
        ...
