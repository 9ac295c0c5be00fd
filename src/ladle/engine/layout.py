"""A stream's segments in arrival order, and what a window takes of them.

Every invocation asks where its window begins and ends, and most ask for the same windows: thousands of queries look at
the last minute of one stream. So a cut is found once per layout, by bisection, and kept while the layout is the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar
from weakref import ref

from ladle.archive.segments import DataFile
from ladle.catalog import Segments, StreamState
from ladle.plan.window import MAX_US, MIN_US
from ladle.stem.order import Order, Part

_K = TypeVar("_K")
SegmentKey = tuple[str, int]
"""A file's name and a row group."""

_ENTRIES_MAX = 131_072
"""Segments that the cuts of one layout may list together."""
_CUTS_MAX = 1_024


class Extent(NamedTuple):
    """A window made concrete: `begin_us < ts <= end_us`, and for [ROWS n] tuples from a position on."""

    begin_us: int
    end_us: int
    first_row: int = 0
    """The number, in arrival order over the retained segments, of the first tuple that counts."""


EVERYTHING = Extent(MIN_US, MAX_US)
NOTHING = Extent(MIN_US, MIN_US)


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment that the window touches, and whether its rows need the timestamps checked."""

    file: DataFile
    row_group: int
    rows: int
    skip: int
    """Rows before this one are before the window's first tuple."""
    edge: bool

    def unbounded(self) -> Piece:
        """The whole segment."""
        return replace(self, skip=0, edge=False)


class Cut:
    """What an extent takes of a layout. It keeps no hold of the layout, which keeps it."""

    def __init__(self, layout: Layout, extent: Extent) -> None:
        self._order, self._segments, self._files = layout.order, layout.segments, layout.files
        self._layout = ref(layout)
        self._extent = extent
        self.runs, self.edges = layout.order.cut(*extent)
        """(first, last) of the segments wholly inside; (segment, rows to skip) of those that are not."""
        self.ranges: dict[SegmentKey, tuple[int, int]] = {}
        """The rows of segments at the edges that are inside, where those are a range; filled by who looks at them."""
        self.tiles: dict[int, tuple[Sequence[int], list[Part]]] = {}
        """The same as whole tiles and parts of tiles, by segment."""

    @cached_property
    def numbers(self) -> list[int]:
        """All segments that may hold tuples of the window, in arrival order."""
        inside = [at for first, last in self.runs for at in range(first, last)]
        return self._counted(sorted([*inside, *(at for at, _ in self.edges)]))

    @cached_property
    def rows(self) -> int:
        """An upper bound of the tuples inside, without looking at any."""
        ends, rows = self._order.ends, self._segments.rows
        inside = sum(ends[last - 1] - (ends[first - 1] if first else 0) for first, last in self.runs)
        return inside + sum(int(rows[at]) - skip for at, skip in self.edges)

    @cached_property
    def pieces(self) -> list[Piece]:
        """In arrival order."""
        skips = dict(self.edges)
        pieces = []
        for at in self.numbers:
            skip = skips.get(at)
            piece = _piece(self._files, self._segments, at)
            if skip is not None:
                edge = not self._order.is_inside(at, self._extent.begin_us, self._extent.end_us)
                piece = replace(piece, skip=skip, edge=edge)
            pieces.append(piece)
        return self._counted(pieces)

    def _counted(self, kept: list[_K]) -> list[_K]:
        layout = self._layout()
        if layout is not None:
            layout.keeps(len(kept))
        return kept


class Layout:
    """A stream's segments in arrival order. Those that only differ by segments at the end share their `lineage`."""

    def __init__(self, stream: StreamState, before: Layout | None) -> None:
        self.files: tuple[DataFile, ...] = stream.files
        self.segments: Segments = stream.segments
        self.order = Order(stream.segments.rows, stream.segments.ts_min_us, stream.segments.ts_max_us)
        grown = before is not None and stream.files[: len(before.files)] == before.files
        older = before is not None and before.files[: len(stream.files)] == stream.files
        self.lineage: object = before.lineage if before is not None and (grown or older) else object()
        first = len(before.files) if before is not None and grown else 0
        self.keys: list[SegmentKey] = before.keys.copy() if before is not None and grown else []
        self.keys += [(file.name, group) for file in stream.files[first:] for group in range(len(file.segments))]
        self._cuts: dict[Extent, Cut] = {}
        self._entries = 0

    def cut(self, extent: Extent) -> Cut:
        found = self._cuts.get(extent)
        if found is None:
            found = Cut(self, extent)
            if len(self._cuts) >= _CUTS_MAX:
                self._cuts, self._entries = {}, 0
            self.keeps(len(found.edges))
            self._cuts[extent] = found
        return found

    def piece(self, at: int) -> Piece:
        """A whole segment."""
        return _piece(self.files, self.segments, at)

    def keeps(self, entries: int) -> None:
        """Cuts hold so many entries more."""
        self._entries += entries
        if self._entries > _ENTRIES_MAX:
            self._cuts, self._entries = {}, 0


def _piece(files: tuple[DataFile, ...], segments: Segments, at: int) -> Piece:
    return Piece(files[segments.file[at]], int(segments.row_group[at]), int(segments.rows[at]), skip=0, edge=False)


def newer(made: Layout, known: Layout | None) -> bool:
    """Whether a layout should take the place of the one that is known: not when it only has fewer segments."""
    return known is None or made.lineage is not known.lineage or len(made.files) > len(known.files)
