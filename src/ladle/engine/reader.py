"""Reading a scan: the rows of a block in a window, from what is covered, and computed where nothing is.

PSoup section 3.3. Segments wholly inside the window need no look at their timestamps; only those at its edges do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.cache import CachedColumn, LastFile
from ladle.catalog import Catalog, StreamState, TableState
from ladle.columns import from_numpy, to_numpy
from ladle.engine.deadline import seconds_left
from ladle.engine.gather import Numbers, Pick, collect
from ladle.engine.layout import EVERYTHING, NOTHING, Cut, Extent, Layout, Piece
from ladle.engine.said import said_of
from ladle.engine.side_by_side import side_by_side
from ladle.engine.store import Store
from ladle.engine.versions import newest_rows
from ladle.errors import DamagedFile
from ladle.plan import Block, Factor, RowsWindow, Scan, TableScan, TimeWindow, Window
from ladle.plan.ranges import Ranges
from ladle.plan.window import MIN_US, WindowKind
from ladle.stem.blocks import BlockSet, candidates
from ladle.stem.match import inside, satisfying, split
from ladle.stem.matches import Matches

_ROWS_PER_EVALUATION = 1 << 20
_FEW = 4
"""When one row of so many is wanted, they are taken out at once."""

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Reader:
    """Reads scans of one catalog."""

    def __init__(self, store: Store, catalog: Catalog, wall_us: int) -> None:
        self._store = store
        self._catalog = catalog
        self.wall_us = wall_us
        self._kinds: dict[int, tuple[Indices, list[BlockSet]]] = {}
        self._layouts: dict[int, Layout] = {}
        self._directories: dict[int, Path] = {}
        self._last = LastFile()

    def extent(self, scan: Scan, now_us: int | None) -> Extent:
        """The scan's window at NOW, cut to what the stream retains."""
        return self.extent_of(scan.window, self._stream(scan.block), now_us)

    def extent_at(self, scan: Scan, now_us: int) -> Extent:
        """The same at a NOW that was named: without a window too nothing later is seen."""
        extent = self.extent(scan, now_us)
        return extent._replace(end_us=now_us) if scan.window.kind is WindowKind.EVERYTHING else extent

    def extent_of(self, window: Window, stream: StreamState, now_us: int | None) -> Extent:
        floor_us = stream.floor_us(self.wall_us)
        extent = self._extent(window, now_us, floor_us)
        if now_us is None or not isinstance(window, RowsWindow):
            return extent
        return extent._replace(first_row=self._first_row(stream, window.rows, now_us))

    def extent_as_of(self, scan: Scan, now_us: int | None, rows: int, clock_us: int | None) -> Extent:
        """The scan's window at NOW when its stream had so many tuples, and that clock."""
        stream, window = self._stream(scan.block), scan.window
        floor_us = None if stream.retain_us is None or clock_us is None else clock_us - stream.retain_us
        extent = self._extent(window, now_us, floor_us)
        if now_us is None or not isinstance(window, RowsWindow):
            return extent
        return extent._replace(first_row=self._first_row_as_of(stream, window.rows, now_us, floor_us, rows))

    def _extent(self, window: Window, now_us: int | None, floor_us: int | None) -> Extent:
        """A window at NOW, without looking at rows. While NOW is undefined windows that move with it are empty."""
        if now_us is None and window.kind.moves:
            return NOTHING
        now_us = self.wall_us if now_us is None else now_us
        begin_us, end_us = window.resolve(now_us) if isinstance(window, TimeWindow) else (MIN_US, now_us)
        return Extent(begin_us if floor_us is None else max(begin_us, floor_us), end_us)

    def pieces(self, scan: Scan, extent: Extent) -> list[Piece]:
        """The segments that may hold tuples of the window, in arrival order."""
        return self._cut_of(scan.block, extent).pieces

    def input_rows(self, scan: Scan, extent: Extent) -> int:
        """An upper bound of the scan's rows, without looking at any."""
        return self._cut_of(scan.block, extent).rows

    def files(self, scan: Scan, extent: Extent) -> Indices:
        """The numbers of the stream's files that may hold tuples of the window, once per segment."""
        return self.files_in(self._stream(scan.block), extent)

    def files_in(self, stream: StreamState, extent: Extent) -> Indices:
        return stream.segments.file[self._layout(stream).cut(extent).numbers]

    def _cut_of(self, block: Block, extent: Extent) -> Cut:
        return self._layout(self._stream(block)).cut(extent)

    def read(self, scan: Scan, extent: Extent) -> pa.Table:
        """The scan's rows in arrival order."""
        picks = [pick for _, pick in self._picks(scan.block, extent, self.pieces(scan, extent), scan.columns)]
        return collect(picks, self._stream(scan.block).schema.select(scan.columns))

    def picked(self, scan: Scan, extent: Extent, columns: tuple[str, ...]) -> Iterator[tuple[Piece, Pick, bool]]:
        """The scan's rows, segment by segment in arrival order, with their numbers.

        Where the block is not covered its functions are not called, and its candidates are given; that is said of each.
        """
        stream, block, pieces = self._stream(scan.block), scan.block, self.pieces(scan, extent)
        few, block_id = block.without_calls, self._catalog.block_id(block)
        coverage = self._store.coverage(stream)

        def waits(piece: Piece) -> bool:
            covered = block_id is not None and coverage.find(piece.file.name, block_id) is not None
            return few != block and not covered

        for waiting, group in groupby(pieces, waits):
            known_as = candidates(block_id) if waiting and block_id is not None else block_id
            # Without columns first: with them, few rows of many are taken out at once, and lose their numbers.
            for piece, pick in self._picks(few if waiting else block, extent, list(group), (), known_as):
                yield piece, self._with_columns(stream, piece, pick, columns), waiting

    def read_arrivals(self, scan: Scan, extent: Extent, last_row: int) -> pa.Table:
        """The scan's rows that arrived before row `last_row` of the stream, in arrival order."""
        stream = self._stream(scan.block)
        layout = self._layout(stream)
        cut = layout.cut(extent)
        starts = [layout.order.ends[at] - int(layout.segments.rows[at]) for at in cut.numbers]
        count = bisect_left(starts, last_row)
        picks = []
        # Without columns first: rows are known by their numbers until the last ones are cut off.
        for start, (piece, pick) in zip(starts, self._picks(scan.block, extent, cut.pieces[:count], ()), strict=False):
            picks.append(self._with_columns(stream, piece, pick.until(last_row - start), scan.columns))
        return collect(picks, stream.schema.select(scan.columns))

    def place(self, stream: StreamState, id_: int) -> int:
        """How many of the retained tuples have ids below one."""
        number = bisect_right(stream.files, id_, key=lambda file: file.first_id) - 1
        if number < 0:
            return 0
        file, layout = stream.files[number], self._layout(stream)
        at = int(layout.segments.file.searchsorted(number))
        return (layout.order.ends[at - 1] if at else 0) + min(id_ - file.first_id, file.rows)

    def times_in(self, stream: StreamState, extent: Extent) -> Indices:
        """The timestamps of the tuples of an extent."""
        found = []
        for piece in self._layout(stream).cut(extent).pieces:
            (column,) = self.columns(stream, piece, (stream.schema.timestamp_column,))
            assert column.values is not None, "every tuple has a timestamp"
            start, stop, inside = self._within(stream, piece, extent)
            found.append(column.values[start:stop] if inside is None else column.values[inside])
        return np.concatenate([*found, np.zeros(0, dtype=np.int64)])

    def table(self, scan: TableScan) -> pa.Table:
        """The rows of a table, as it stands in this snapshot; from the cache."""
        return newest_rows(self._store, self._table(scan), scan.columns)

    def table_rows(self, scan: TableScan) -> int:
        return self._table(scan).rows

    def _table(self, scan: TableScan) -> TableState:
        table = self._catalog.table(scan.table)
        assert table is not None, f"table {scan.table} of a bound plan"
        return table

    def empty(self, scan: Scan) -> pa.Table:
        return self._stream(scan.block).schema.select(scan.columns).empty_table()

    def time_column(self, scan: Scan) -> str:
        return self._stream(scan.block).schema.timestamp_column

    def gather(
        self, scan: Scan, extent: Extent, pieces: list[Piece], columns: tuple[str, ...]
    ) -> Iterator[tuple[Piece, pa.Table]]:
        """The matching rows of each piece, in order."""
        fields = self._stream(scan.block).schema.select(columns)
        for piece, pick in self._picks(scan.block, extent, pieces, columns):
            yield piece, collect([pick], fields)

    def matches(self, block: Block, pieces: list[Piece]) -> Iterator[tuple[Piece, Matches]]:
        """The rows that match in whole segments, in order."""
        stream = self._stream(block)
        block_id = self._catalog.block_id(block) if block.factors else None
        coverage = self._store.coverage(stream)
        found = [None if block_id is None else coverage.find(piece.file.name, block_id) for piece in pieces]
        others = [piece.unbounded() for piece, results in zip(pieces, found, strict=True) if results is None]
        picked = self._picks(block, EVERYTHING, others, ())
        for piece, results in zip(pieces, found, strict=True):
            if results is not None and block_id is not None:
                yield piece, results.matches(block_id, piece.row_group)
            else:
                _, pick = next(picked)
                yield piece, Matches.of(pick.numbers, piece.rows)

    def covered(self, block: Block, pieces: Sequence[Piece]) -> Iterator[bool]:
        """Whether the matches of each segment are known."""
        block_id = self._catalog.block_id(block)
        coverage = self._store.coverage(self._stream(block))
        for piece in pieces:
            known = block_id is not None and coverage.find(piece.file.name, block_id) is not None
            yield known or not block.factors

    def columns(
        self, stream: StreamState, piece: Piece, names: tuple[str, ...], *, once: bool = False
    ) -> list[CachedColumn]:
        """Columns of a whole segment, from the cache; `once` when they are looked at for a few rows."""
        directory = self._directories.get(stream.id)
        if directory is None:
            directory = self._directories[stream.id] = self._store.directory(stream)
        name, group, last = piece.file.name, piece.row_group, self._last
        try:
            return self._store.cache.columns(
                directory, name, group, names, stream.schema.arrow, checks=piece.file.checks, once=once, last=last
            )
        except DamagedFile as error:
            raise self._store.damage.note(stream.name, name, error) from error

    def segment(self, stream: StreamState, piece: Piece, names: tuple[str, ...]) -> pa.Table:
        """The same as a table."""
        fields = stream.schema.select(names)
        return pa.Table.from_arrays([column.array for column in self.columns(stream, piece, names)], schema=fields)

    def _picks(
        self,
        block: Block,
        extent: Extent,
        pieces: list[Piece],
        columns: tuple[str, ...],
        known_as: int | None = None,
    ) -> Iterator[tuple[Piece, Pick]]:
        """The matching rows of each piece, in order: from what is covered, and evaluated where nothing is. What is
        covered is found by the block's id, or by the one that it is known as.
        """
        stream = self._stream(block)
        block_id = known_as
        if known_as is None and block.factors:
            block_id = self._catalog.block_id(block)
        coverage = None if block_id is None else self._store.coverage(stream, at=self._catalog.seq)
        waiting: list[Piece] = []
        waiting_rows = 0
        for piece in pieces:
            found = None
            if coverage is not None and block_id is not None:
                found = coverage.find(piece.file.name, block_id)
            if found is None and block.factors:
                waiting.append(piece)
                waiting_rows += piece.rows
            if waiting and (found is not None or waiting_rows >= _ROWS_PER_EVALUATION):
                yield from self._evaluate(stream, block, extent, waiting, columns)
                waiting, waiting_rows = [], 0
            if found is not None and block_id is not None:
                ids = found.rows(block_id, piece.row_group)
                yield piece, self._cut(stream, piece, ids, extent, columns)
            elif not block.factors:
                yield piece, self._cut(stream, piece, None, extent, columns)
        if waiting:
            yield from self._evaluate(stream, block, extent, waiting, columns)

    def _cut(
        self, stream: StreamState, piece: Piece, numbers: Numbers | None, extent: Extent, columns: tuple[str, ...]
    ) -> Pick:
        """Rows of a segment by number (None: all), cut to the window. Columns are only read when there are rows."""
        if numbers is not None and len(numbers) == 0:
            return Pick([], numbers, 0, 0)
        start, stop, inside = self._within(stream, piece, extent)
        if numbers is None:
            numbers = None if inside is None else np.flatnonzero(inside)
        else:
            if start > 0:
                numbers = numbers[numbers.searchsorted(start) :]
            if stop < piece.rows:
                numbers = numbers[: numbers.searchsorted(stop)]
            if inside is not None:
                numbers = numbers[inside[numbers]]
        return self._with_columns(stream, piece, Pick([], numbers, start, stop), columns)

    def _with_columns(self, stream: StreamState, piece: Piece, pick: Pick, columns: tuple[str, ...]) -> Pick:
        return pick._replace(columns=self.columns(stream, piece, columns)) if pick.rows and columns else pick

    def _within(self, stream: StreamState, piece: Piece, extent: Extent) -> tuple[int, int, Mask | None]:
        """The rows of a segment that are in the window: a range, and what of the segment is in when times are mixed."""
        if not piece.edge:
            return piece.skip, piece.rows, None
        ranges, key = self._layout(stream).cut(extent).ranges, (piece.file.name, piece.row_group)
        known = ranges.get(key)
        if known is not None:
            return *known, None
        (column,) = self.columns(stream, piece, (stream.schema.timestamp_column,))
        times = column.values
        assert times is not None, "every tuple has a timestamp"
        if column.ascending:
            start, stop = np.searchsorted(times, (extent.begin_us, extent.end_us), side="right").tolist()
            start = max(start, piece.skip)
            ranges[key] = start, max(stop, start)
            return *ranges[key], None
        inside: Mask = (times > extent.begin_us) & (times <= extent.end_us)
        inside[: piece.skip] = False
        return 0, piece.rows, inside

    def _evaluate(
        self, stream: StreamState, block: Block, extent: Extent, pieces: list[Piece], columns: tuple[str, ...]
    ) -> Iterator[tuple[Piece, Pick]]:
        """Rows of uncovered segments: compared segment by segment, and what only DuckDB can tell in one go for all."""
        compared, others = split(block)
        wanted = () if others else columns
        found: list[bool] = []

        def compare(piece: Piece) -> Pick:
            # Where every segment had rows so far, the next will: its columns are read in one go.
            together = len(found) > 1 and all(found)
            pick = self._compare(stream, piece, extent, compared, wanted, together)
            found.append(pick.rows > 0)
            return pick

        picks = side_by_side(compare, pieces)
        if others:
            picks = self._satisfying(stream, block, others, pieces, picks)
            picks = side_by_side(lambda piece, pick: self._with_columns(stream, piece, pick, columns), pieces, picks)
        yield from zip(pieces, picks, strict=True)

    def _compare(
        self,
        stream: StreamState,
        piece: Piece,
        extent: Extent,
        compared: dict[str, Ranges],
        columns: tuple[str, ...],
        together: bool,
    ) -> Pick:
        """The rows of a segment that are in the window and in all ranges."""
        pick = self._cut(stream, piece, None, extent, ())
        if not pick.rows:
            return pick
        names = tuple(dict.fromkeys((*compared, *columns))) if together else tuple(compared)
        read = dict(zip(names, self.columns(stream, piece, names, once=True), strict=True))
        matched: Mask | None = None
        for name, ranges in compared.items():
            part = inside(pick.values(read[name]), ranges)
            matched = part if matched is None else np.logical_and(matched, part, out=matched)
            if not matched.any():
                break
        if matched is not None:
            pick = pick.narrowed(matched)
        if not pick.rows or not columns:
            return pick
        missing = tuple(name for name in columns if name not in read)
        read.update(zip(missing, self.columns(stream, piece, missing, once=True), strict=True))
        pick = pick._replace(columns=[read[name] for name in columns])
        return pick.gathered() if pick.rows * _FEW <= piece.rows else pick

    def _satisfying(
        self, stream: StreamState, block: Block, factors: list[Factor], pieces: list[Piece], picks: list[Pick]
    ) -> list[Pick]:
        """Of rows of some segments those that satisfy factors which are evaluated: once for all of them. What dear ones
        have said before is not asked again.
        """
        names = tuple(sorted({column for factor in factors for column in factor.columns}))
        names = names or (stream.schema.timestamp_column,)
        read = side_by_side(lambda piece, pick: self._with_columns(stream, piece, pick, names), pieces, picks)
        whole = collect(read, stream.schema.select(names))
        if not len(whole):
            return picks
        coverage = self._store.coverage(stream, at=self._catalog.seq)
        known = said_of(coverage, self._catalog.block_id(block), factors, pieces, picks)
        mask = satisfying(whole, factors, seconds_max=seconds_left(self._store.settings), known=known)
        ends = np.cumsum([pick.rows for pick in picks])
        return [pick.narrowed(part) for pick, part in zip(picks, np.split(mask, ends[:-1]), strict=True)]

    def count_covered(self, scan: Scan, extent: Extent) -> tuple[int, int]:
        """How many segments of the window are covered for this scan, and how many there are."""
        numbers = self.files(scan, extent)
        total = len(numbers)
        block_id = self._catalog.block_id(scan.block)
        if not scan.block.factors:
            return total, total
        if block_id is None:
            return 0, total
        kinds, sets = self._coverage_kinds(self._stream(scan.block))
        counts = np.bincount(kinds[numbers], minlength=len(sets))
        either = block_id, candidates(block_id)
        return sum(int(counts[kind]) for kind, blocks in enumerate(sets) if any(b in blocks for b in either)), total

    def covering(self, window: Window, name: str, now_us: int | None) -> tuple[int, list[tuple[BlockSet, int]]]:
        """How many segments of a stream a window has, and how many of them each set of blocks covers."""
        stream = self._catalog.stream(name)
        assert stream is not None, f"stream {name} of a bound plan"
        numbers = self.files_in(stream, self.extent_of(window, stream, now_us))
        kinds, sets = self._coverage_kinds(stream)
        counts = np.bincount(kinds[numbers], minlength=len(sets)).tolist()
        return len(numbers), [(blocks, count) for blocks, count in zip(sets, counts, strict=True) if count]

    def _coverage_kinds(self, stream: StreamState) -> tuple[Indices, list[BlockSet]]:
        """Which sets of blocks are covered somewhere, and for each file which of them; looked up once per reader.

        There are few: most files are covered alike. So a thousand queries over ten thousand files stay cheap.
        """
        if stream.id not in self._kinds:
            coverage = self._store.coverage(stream)
            numbers: dict[BlockSet, int] = {}
            kinds = [numbers.setdefault(coverage.covered(file.name), len(numbers)) for file in stream.files]
            self._kinds[stream.id] = (np.array(kinds, dtype=np.int64), list(numbers))
        return self._kinds[stream.id]

    def _first_row(self, stream: StreamState, rows: int, now_us: int) -> int:
        """Where the last `rows` tuples with `ts <= now_us` begin, in arrival order; later tuples don't count.

        Counted from the newest segment backwards, so only the segments of the window are looked at.
        """
        segments = stream.segments
        floor_us = stream.floor_us(self.wall_us)
        first = self._layout(stream).order.last_rows(rows, now_us, floor_us)
        if first is not None:
            return first
        left = rows
        starts = np.cumsum(segments.rows) - segments.rows
        for i in range(len(segments.rows) - 1, -1, -1):
            if segments.ts_min_us[i] > now_us:
                continue
            inside = segments.ts_max_us[i] <= now_us and (floor_us is None or segments.ts_min_us[i] > floor_us)
            if inside and segments.rows[i] <= left:
                left -= int(segments.rows[i])
                if left == 0:
                    return int(starts[i])
                continue
            if inside:
                return int(starts[i] + segments.rows[i] - left)
            piece = Piece(stream.files[segments.file[i]], int(segments.row_group[i]), int(segments.rows[i]), 0, True)
            time = stream.schema.timestamp_column
            times = self.columns(stream, piece, (time,))[0].values
            assert times is not None
            numbers = np.flatnonzero((times <= now_us) & (times > (MIN_US if floor_us is None else floor_us)))
            if len(numbers) >= left:
                return int(starts[i] + numbers[len(numbers) - left])
            left -= len(numbers)
        return 0

    def _first_row_as_of(
        self, stream: StreamState, count: int, now_us: int, floor_us: int | None, last_row: int
    ) -> int:
        """The same among the first `last_row` tuples alone."""
        layout = self._layout(stream)
        left = count
        for at in range(bisect_left(layout.order.ends, last_row), -1, -1):
            if at >= len(layout.keys):
                continue
            start = layout.order.ends[at] - int(layout.segments.rows[at])
            times = self.columns(stream, layout.piece(at), (stream.schema.timestamp_column,))[0].values
            assert times is not None
            times = times[: last_row - start]
            numbers = np.flatnonzero((times <= now_us) & (times > (MIN_US if floor_us is None else floor_us)))
            if len(numbers) >= left:
                return start + int(numbers[len(numbers) - left])
            left -= len(numbers)
        return 0

    def _layout(self, stream: StreamState) -> Layout:
        """Looked up once per reader: an older snapshot's is not kept by the store."""
        found = self._layouts.get(stream.id)
        if found is None:
            found = self._layouts[stream.id] = self._store.layout(stream)
        return found

    def _stream(self, block: Block) -> StreamState:
        stream = self._catalog.stream(block.stream)
        assert stream is not None, f"stream {block.stream} of a bound plan"
        return stream


def cut_to(table: pa.Table, time: str, extent: Extent) -> pa.Table:
    """Rows with `begin < ts <= end`."""
    times = _times(table, time)
    return table.filter(from_numpy((times > extent.begin_us) & (times <= extent.end_us)))


def _times(table: pa.Table, time: str) -> npt.NDArray[np.int64]:
    return to_numpy(table.column(time).cast(pa.int64()))
