"""Demands: what is wanted of derived state, and how much of it.

The modes of a query are demands. `none`, `partial` and `complete` are fixed by whoever registered it; `auto` is a
demand that the engine raises and lowers. Nothing else follows from a mode: what is demanded is covered in the
background, what is not is computed when somebody asks, and the answer is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How much is wanted ready; each level includes those below it."""

    NOTHING = 0
    """It is computed when somebody asks."""
    RESULTS = 1
    """Which tuples match, for each data file, with the pairs of joins; partial aggregates are kept as they come."""
    ANSWER = 2
    """The current window's rows, and the answer, too."""

    @property
    def mode(self) -> str:
        """The name that users know it by."""
        return ("none", "partial", "complete")[self]


@dataclass(slots=True)
class Demand:
    """What is wanted for one identity."""

    identity: int
    """A standing query's number."""
    level: Level
