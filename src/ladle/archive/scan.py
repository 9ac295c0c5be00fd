"""The one access method for history: every read of a stream's tuples goes through here.

A request says what is looked at: files, an extent of times and tuple ids, columns, and ranges that all wanted tuples
are in. Batches come back segment by segment, in arrival order, with tuple ids, and what that took is counted. Segments
outside the extent, and those whose least and greatest values are in none of the ranges, are not read. Decoded columns
are kept in memory where there is a cache; whoever reads does not see the difference.

An extent may have a level: a sample of the tuples, by the hashes of their ids (`archive/levels.py`). It is cut out of
what was read; a reduction that reads less will be one more part of a request, and the fraction one more figure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ladle.archive.cache import CachedColumn, Counts, LastFile, SegmentCache
from ladle.archive.gather import Numbers, Pick, collect
from ladle.archive.latest import latest
from ladle.archive.layout import EVERYTHING, Extent, Int64s, Layout, Mask, Piece
from ladle.archive.order import Part
from ladle.archive.segments import DataFile
from ladle.derived import Derived
from ladle.errors import DamagedFile
from ladle.plan.ranges import Ranges
from ladle.plan.window import MAX_US, MIN_US

__all__ = ["ArchiveSource", "Batch", "Counts", "ReadElsewhere", "Request", "Scanner", "scan", "stored_bytes"]

Telling = Callable[[DataFile, DamagedFile], DamagedFile]
"""What is raised of a file that is damaged."""


@dataclass(frozen=True)
class ArchiveSource:
    """Where a stream's data files are, and what their columns are today."""

    directory: Path
    schema: pa.Schema
    time: str
    """The column with the tuples' timestamps."""

    def path(self, file: DataFile) -> Path:
        """Where a data file is."""
        return self.directory / file.name


@dataclass(frozen=True)
class Request:
    """What is read of a stream's history."""

    source: ArchiveSource
    files: tuple[DataFile, ...]
    """In arrival order."""
    columns: tuple[str, ...]
    extent: Extent = EVERYTHING
    ranges: Mapping[str, Ranges] = field(default_factory=dict)
    """By column, what all wanted tuples are in. They only say which segments need not be read."""

    @property
    def cut_files(self) -> dict[str, tuple[int, int]]:
        """By name, the files of which not all tuples have the extent's ids: the first row that counts, and the one
        after the last.
        """
        first_id, next_id = self.extent.first_id, self.extent.next_id
        found = {}
        for file in self.files:
            first = max(first_id - file.first_id, 0)
            last = file.rows if next_id is None else min(next_id - file.first_id, file.rows)
            if first or last < file.rows:
                found[file.name] = first, last
        return found


class Batch(NamedTuple):
    """The tuples of one segment that are in the extent."""

    piece: Piece
    pick: Pick
    schema: pa.Schema

    @property
    def rows(self) -> int:
        """How many tuples it has."""
        return self.pick.rows

    @property
    def ids(self) -> Int64s:
        """The ids of its tuples."""
        return self.piece.first_id + self.pick.places

    @property
    def table(self) -> pa.Table:
        """Their columns; without any, it does not know how many rows there are."""
        return pa.Table.from_arrays([self.pick.values(column) for column in self.pick.columns], schema=self.schema)


def scan(request: Request, *, cache: SegmentCache | None = None, counts: Counts | None = None) -> Iterator[Batch]:
    """The batches of a request. One that can't be read raises and names its file."""
    layout = Layout.of(request.files)
    scanner = Scanner(request.source, layout, cache=cache, counts=counts)
    fields = pa.schema([request.source.schema.field(name) for name in request.columns])
    try:
        for piece in layout.cut(request.extent).pieces:
            if not request.ranges or not scanner.excludes(piece, request.ranges):
                pick = scanner.pick(piece, None, request.extent, request.columns)
                if pick.rows:
                    yield Batch(piece, pick, fields)
    finally:
        scanner.close()


PURPOSES = ("compaction", "backfill", "joins", "spark")
"""What history is read for without the cache of this process."""


class ReadElsewhere:
    """Bytes of data files that were read without the cache of this process, as they are stored: by compaction, by the
    tasks of backfills and joins, and by Spark's own reader. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = dict.fromkeys(PURPOSES, 0)

    def note(self, purpose: str, size: int) -> None:
        """Count what was read for a purpose."""
        with self._lock:
            self._bytes[purpose] += size

    @property
    def by_purpose(self) -> dict[str, int]:
        """What was read for each."""
        with self._lock:
            return dict(self._bytes)


def stored_bytes(request: Request, cache: SegmentCache, *, also: Collection[str] = ()) -> int:
    """The bytes that a request reads from files, by what their footers say: for a reader that does not tell, and reads
    some columns also to see which rows are wanted.
    """
    layout, source, extent = Layout.of(request.files), request.source, request.extent
    scanner = Scanner(source, layout, cache=cache)
    bounded = extent.begin_us > MIN_US or extent.end_us < MAX_US
    names = tuple({*request.columns, *request.ranges, *also, *([source.time] if bounded else [])})
    return sum(
        cache.stored_bytes(source.directory, piece.file.name, piece.row_group, names, piece.file.checks)
        for piece in layout.cut(extent).pieces
        if not request.ranges or not scanner.excludes(piece, request.ranges)
    )


class Scanner:
    """Reads segments of one source, as a request or whoever knows more of their rows asks. Threads may share it."""

    def __init__(
        self,
        source: ArchiveSource,
        layout: Layout,
        *,
        cache: SegmentCache | None = None,
        counts: Counts | None = None,
        telling: Telling | None = None,
    ) -> None:
        self.source = source
        self.layout = layout
        self.counts = Counts() if counts is None else counts
        self._cache = SegmentCache(Derived(0, 0)) if cache is None else cache
        self._telling = telling
        self._last = LastFile()

    def columns(self, piece: Piece, names: tuple[str, ...], *, once: bool = False) -> list[CachedColumn]:
        """Columns of a whole segment; `once` when they are looked at for a few rows."""
        source, file = self.source, piece.file
        try:
            return self._cache.columns(
                source.directory,
                file.name,
                piece.row_group,
                names,
                source.schema,
                checks=file.checks,
                once=once,
                last=self._last,
                counts=self.counts,
            )
        except DamagedFile as error:
            raise (error if self._telling is None else self._telling(file, error)) from error

    def excludes(self, piece: Piece, ranges: Mapping[str, Ranges]) -> bool:
        """Whether no tuple of a segment can be in all ranges, by its least and greatest values."""
        source, file, group = self.source, piece.file, piece.row_group
        try:
            footer = self._cache.footer(source.directory, file.name, group, tuple(ranges), file.checks)
        except DamagedFile as error:
            raise (error if self._telling is None else self._telling(file, error)) from error
        if footer is None or all(
            footer.may_hold(group, each, source.schema.field(name).type) for name, each in ranges.items()
        ):
            return False
        self._cache.count_skipped(self.counts)
        return True

    def pick(self, piece: Piece, numbers: Numbers | None, extent: Extent, columns: tuple[str, ...]) -> Pick:
        """Rows of a segment by number (None: all), cut to the extent. Columns are only read when there are rows."""
        if numbers is not None and len(numbers) == 0:
            return Pick([], numbers, 0, 0)
        start, stop, inside = self.within(piece, extent)
        if numbers is None:
            numbers = None if inside is None else np.flatnonzero(inside)
        else:
            if start > 0:
                numbers = numbers[numbers.searchsorted(start) :]
            if stop < piece.rows:
                numbers = numbers[: numbers.searchsorted(stop)]
            if inside is not None:
                numbers = numbers[inside[numbers]]
        if extent.level is not None:
            numbers = np.arange(start, stop) if numbers is None else numbers
            numbers = numbers[extent.level.has(piece.first_id + numbers)]
        return self.with_columns(piece, Pick([], numbers, start, stop), columns)

    def with_columns(self, piece: Piece, pick: Pick, columns: tuple[str, ...]) -> Pick:
        """The same rows, with columns of theirs."""
        return pick._replace(columns=self.columns(piece, columns)) if pick.rows and columns else pick

    def times(self, piece: Piece) -> Int64s:
        """The timestamps of a whole segment."""
        return self._times(piece)[1]

    def within(self, piece: Piece, extent: Extent) -> Part:
        """The rows of a segment that are in the extent, whatever its level: a range, and what of the segment is in when
        times are mixed, or when a key decides.
        """
        if extent.keyed is not None:
            return 0, piece.rows, self._latest(extent)[piece.file.name, piece.row_group]
        if not piece.edge:
            return piece.skip, piece.stop, None
        ranges, key = self.layout.cut(extent).ranges, (piece.file.name, piece.row_group)
        known = ranges.get(key)
        if known is not None:
            return *known, None
        column, times = self._times(piece)
        if column.ascending:
            start, stop = np.searchsorted(times, (extent.begin_us, extent.end_us), side="right").tolist()
            start = max(start, piece.skip)
            ranges[key] = start, max(min(stop, piece.stop), start)
            return *ranges[key], None
        inside = (times > extent.begin_us) & (times <= extent.end_us)
        inside[: piece.skip] = False
        inside[piece.stop :] = False
        return 0, piece.rows, inside

    def _latest(self, extent: Extent) -> Mapping[tuple[str, int], Mask]:
        """By segment, which rows are the last ones of their keys. Found once per layout and extent."""
        cut, keyed = self.layout.cut(extent), extent.keyed
        assert keyed is not None
        if not cut.latest and cut.pieces:
            # The tuples of each key are counted over all segments, also those that no sample has.
            whole = extent._replace(keyed=None, level=None)
            picks = [self.pick(piece, None, whole, keyed.columns) for piece in cut.pieces]
            fields = pa.schema([self.source.schema.field(name) for name in keyed.columns])
            last = latest(collect(picks, fields).columns, keyed.rows)
            found, at = {}, 0
            for piece, pick in zip(cut.pieces, picks, strict=True):
                mask = np.zeros(piece.rows, dtype=np.bool_)
                mask[pick.places] = last[at : at + pick.rows]
                found[piece.file.name, piece.row_group], at = mask, at + pick.rows
            cut.latest = found
            # A byte a row: cuts together may keep as many as their other entries take.
            self.layout.keeps(sum(piece.rows for piece in cut.pieces) >> 10)
        return cut.latest

    def close(self) -> None:
        """Let go of the file that the calling thread read last."""
        self._last.close()

    def _times(self, piece: Piece) -> tuple[CachedColumn, Int64s]:
        (column,) = self.columns(piece, (self.source.time,))
        assert column.values is not None, "every tuple has a timestamp"
        return column, column.values
