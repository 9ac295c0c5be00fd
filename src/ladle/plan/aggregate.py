"""A residual that only folds its one scan: what partial aggregates in a tree can answer (PSoup section 6).

The *partials* are what is kept per segment and combined over a window: counts, sums, least and greatest values. The
outputs are made of them and of the groups at the end: an average is a sum and a count.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any


class Fold(Enum):
    """How values are folded into one. All of them can be combined from parts, in any order."""

    ROWS = "rows"
    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


class Make(Enum):
    """What an output column is made of."""

    GROUP = "group"
    FOLDED = "folded"
    AVERAGE = "average"


@dataclass(frozen=True)
class Partial:
    """A fold over a column of the scan; over its rows when `column` is None."""

    fold: Fold
    column: str | None = None


@dataclass(frozen=True)
class Output:
    """`at` is the number of the group or partial. A sum is NULL, and an average undivided, by the partial `count`."""

    make: Make
    at: int
    count: int | None = None


@dataclass(frozen=True)
class Aggregate:
    """Without `groups` there is one row, else one for each that occurs, in no order."""

    groups: tuple[str, ...]
    partials: tuple[Partial, ...]
    outputs: tuple[Output, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The partials as short texts, by which those of other queries are known."""
        return tuple(f"{partial.fold.value} {partial.column or '*'}" for partial in self.partials)

    def to_json(self) -> dict[str, Any]:
        return {
            "groups": list(self.groups),
            "partials": [[partial.fold.value, partial.column] for partial in self.partials],
            "outputs": [[output.make.value, output.at, output.count] for output in self.outputs],
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> Aggregate:
        return Aggregate(
            tuple(value["groups"]),
            tuple(Partial(Fold(fold), column) for fold, column in value["partials"]),
            tuple(Output(Make(make), at, count) for make, at, count in value["outputs"]),
        )
