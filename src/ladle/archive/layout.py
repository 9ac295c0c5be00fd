"""A stream's segments in arrival order, and what an extent takes of them.

Every invocation asks where its window begins and ends, and most ask for the same windows: thousands of queries look at
the last minute of one stream. So a cut is found once per layout, by bisection, and kept while the layout is the newest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt

from ladle.archive.levels import HashLevel
from ladle.archive.order import Order, Part
from ladle.archive.segments import DataFile
from ladle.plan.window import MAX_US, MIN_US, KeyedRowsWindow

_K = TypeVar("_K")
SegmentKey = tuple[str, int]
"""A file's name and a row group."""

_ENTRIES_MAX = 131_072
"""Segments that the cuts of one layout may list together."""
_CUTS_MAX = 1_024


Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Segments:
    """The segments of a stream in arrival order, column by column, so that windows are cut without a loop."""

    file: Int64s
    row_group: Int64s
    rows: Int64s
    ts_min_us: Int64s
    ts_max_us: Int64s

    @staticmethod
    def of(files: Iterable[DataFile], first_file: int = 0) -> Segments:
        """The segments of data files, numbered from `first_file` on."""
        rows = [
            (first_file + number, group, segment.rows, segment.ts_min_us, segment.ts_max_us)
            for number, file in enumerate(files)
            for group, segment in enumerate(file.segments)
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        return Segments(*columns)

    def followed_by(self, other: Segments) -> Segments:
        """These segments, then the others."""
        return Segments(
            np.concatenate([self.file, other.file]),
            np.concatenate([self.row_group, other.row_group]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.ts_min_us, other.ts_min_us]),
            np.concatenate([self.ts_max_us, other.ts_max_us]),
        )


class Extent(NamedTuple):
    """What is looked at of a stream: tuples with `begin_us < ts <= end_us` and `first_id <= tuple id < next_id`, and
    of those a level.

    It is a window made concrete. Ids bound what [ROWS n] has, and what had arrived as of an entry; `keyed` keeps of
    those tuples the last ones of each key.
    """

    begin_us: int
    end_us: int
    first_id: int = 0
    next_id: int | None = None
    keyed: KeyedRowsWindow | None = None
    level: HashLevel | None = None
    """None: all tuples; TABLESAMPLE reads less."""

    @property
    def bounds_ids(self) -> bool:
        """Whether it bounds tuple ids, not times alone."""
        return self.first_id > 0 or self.next_id is not None or self.keyed is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be in it."""
        return self.begin_us >= self.end_us or (self.next_id is not None and self.first_id >= self.next_id)

    def arrived(self, next_id: int) -> Extent:
        """What of it had arrived when the stream had accepted so many tuples."""
        return self._replace(next_id=next_id if self.next_id is None else min(self.next_id, next_id))


EVERYTHING = Extent(MIN_US, MAX_US)
NOTHING = Extent(MIN_US, MIN_US)


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment that the extent touches, and whether its rows need the timestamps checked."""

    file: DataFile
    row_group: int
    rows: int
    skip: int
    """Rows before this one are before the extent's first tuple."""
    edge: bool
    stop: int
    """Rows from this one on are after the extent's last tuple."""

    @property
    def first_id(self) -> int:
        """The id of the segment's first tuple."""
        return self.file.first_id + sum(segment.rows for segment in self.file.segments[: self.row_group])

    def unbounded(self) -> Piece:
        """The whole segment."""
        return replace(self, skip=0, edge=False, stop=self.rows)


class Cut:
    """What an extent takes of a layout. It keeps no hold of the layout, which keeps it."""

    def __init__(self, layout: Layout, extent: Extent) -> None:
        self._order, self._segments, self._files = layout.order, layout.segments, layout.files
        self._layout = ref(layout)
        self._extent = extent
        first_row = layout.place(extent.first_id) if extent.first_id else 0
        self._last_row = None if extent.next_id is None else layout.place(extent.next_id)
        self.runs, self.edges = layout.order.cut(extent.begin_us, extent.end_us, first_row, self._last_row)
        """(first, last) of the segments wholly inside; (segment, rows to skip) of those that are not."""
        self.ranges: dict[SegmentKey, tuple[int, int]] = {}
        """The rows of segments at the edges that are inside, where those are a range; filled by who looks at them."""
        self.strips: dict[int, tuple[Sequence[int], list[Part]]] = {}
        """The same as whole strips and parts of strips, by segment."""
        self.latest: dict[SegmentKey, Mask] = {}
        """Of a keyed extent the rows that are in it, by segment; filled by who looks at them."""

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
        return inside + sum(self._stop(at, int(rows[at])) - skip for at, skip in self.edges)

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
                piece = replace(piece, skip=skip, edge=edge, stop=self._stop(at, piece.rows))
            pieces.append(piece)
        return self._counted(pieces)

    def _stop(self, at: int, rows: int) -> int:
        """How many rows of a segment are before the extent's last tuple and with it."""
        return rows if self._last_row is None else min(rows, self._last_row - self._order.start(at))

    def _counted(self, kept: list[_K]) -> list[_K]:
        layout = self._layout()
        if layout is not None:
            layout.keeps(len(kept))
        return kept


class Layout:
    """A stream's segments in arrival order. Those that only differ by segments at the end share their `lineage`."""

    def __init__(self, files: tuple[DataFile, ...], segments: Segments, before: Layout | None = None) -> None:
        self.files = files
        self.segments = segments
        self.order = Order(segments.rows, segments.ts_min_us, segments.ts_max_us)
        grown = before is not None and files[: len(before.files)] == before.files
        older = before is not None and before.files[: len(files)] == files
        self.lineage: object = before.lineage if before is not None and (grown or older) else object()
        first = len(before.files) if before is not None and grown else 0
        self.keys: list[SegmentKey] = before.keys.copy() if before is not None and grown else []
        self.keys += [(file.name, group) for file in files[first:] for group in range(len(file.segments))]
        self._cuts: dict[Extent, Cut] = {}
        self._entries = 0

    @staticmethod
    def of(files: tuple[DataFile, ...]) -> Layout:
        """The layout of data files in their order."""
        return Layout(files, Segments.of(files))

    def place(self, id_: int) -> int:
        """How many of the tuples have ids below one. Where retention let go of files, ids have gaps."""
        number = bisect_right(self.files, id_, key=_first_id) - 1
        if number < 0:
            return 0
        file, at = self.files[number], int(self.segments.file.searchsorted(number))
        return self.order.start(at) + min(id_ - file.first_id, file.rows)

    def id_at(self, place: int) -> int:
        """The id of the tuple with so many before it; 0 of the first, with which all begins."""
        at = bisect_right(self.order.ends, place)
        if place <= 0 or at == len(self.order.ends):
            return 0 if place <= 0 else self.files[-1].next_id if self.files else 0
        # The segments of a file follow each other, and so do its ids.
        start = self.order.start(at - int(self.segments.row_group[at]))
        return self.files[self.segments.file[at]].first_id + place - start

    def cut(self, extent: Extent) -> Cut:
        """The segments that an extent touches, whatever its level. It is kept: all queries with one window ask for the
        same.
        """
        if extent.level is not None:
            extent = extent._replace(level=None)
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
    rows = int(segments.rows[at])
    return Piece(files[segments.file[at]], int(segments.row_group[at]), rows, skip=0, edge=False, stop=rows)


def _first_id(file: DataFile) -> int:
    return file.first_id


def newer(made: Layout, known: Layout | None) -> bool:
    """Whether a layout should take the place of the one that is known: not when it only has fewer segments."""
    return known is None or made.lineage is not known.lineage or len(made.files) > len(known.files)
