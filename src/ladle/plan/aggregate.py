"""A GroupBy over columns of one scan: what partial aggregates in a tree can answer (PSoup section 6).

The *partials* are what is kept per segment and combined over a window: counts, sums, least and greatest values. The
outputs are made of them and of the groups at the end: an average is a sum and a count.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import gcd
from typing import NamedTuple

from ladle.json_values import JsonFields, JsonObject


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
    WINDOW = "window"
    START = "start"
    END = "end"
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


class Panes(NamedTuple):
    """Time cut into equal pieces, of which windows are made: pane n begins at `offset_us + n * length_us`."""

    column: str
    length_us: int
    offset_us: int


@dataclass(frozen=True)
class Windows:
    """`window(column, size, slide, offset)`: the windows that begin at `offset_us + n * slide_us`."""

    column: str
    size_us: int
    slide_us: int
    offset_us: int = 0

    @cached_property
    def panes(self) -> Panes:
        """The longest panes that every window consists of; queries that have the same share what is folded."""
        length_us = gcd(self.size_us, self.slide_us)
        return Panes(self.column, length_us, self.offset_us % length_us)


@dataclass(frozen=True)
class Aggregate:
    """Without `groups` and `windows` there is one row, else one for each that occurs, in no order."""

    groups: tuple[str, ...]
    partials: tuple[Partial, ...]
    outputs: tuple[Output, ...]
    windows: Windows | None = None

    @property
    def is_grouped(self) -> bool:
        """Whether there are groups, by columns or by time."""
        return bool(self.groups) or self.windows is not None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The partials as short texts, by which those of other queries are known."""
        return tuple(f"{partial.fold.value} {partial.column or '*'}" for partial in self.partials)

    def to_json(self) -> JsonObject:
        """Encode the aggregate."""
        windows = self.windows
        value: JsonObject = {
            "groups": list(self.groups),
            "partials": [[partial.fold.value, partial.column] for partial in self.partials],
            "outputs": [[output.make.value, output.at, output.count] for output in self.outputs],
        }
        if windows is not None:
            value["windows"] = [windows.column, windows.size_us, windows.slide_us, windows.offset_us]
        return value

    @staticmethod
    def from_json(value: JsonFields) -> Aggregate:
        """Decode the aggregate."""
        return Aggregate(
            tuple(value["groups"]),
            tuple(Partial(Fold(fold), column) for fold, column in value["partials"]),
            tuple(Output(Make(make), at, count) for make, at, count in value["outputs"]),
            Windows(*value["windows"]) if "windows" in value else None,
        )
