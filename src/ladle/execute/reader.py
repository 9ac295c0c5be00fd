"""Reading a scan: the rows of a block in a window, from what is covered, and computed where nothing is.

PSoup section 3.3. Segments wholly inside the window need no look at their timestamps; only those at its edges do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.cache import CachedColumn
from ladle.archive.gather import NO_ROWS, Pick, collect
from ladle.archive.layout import EVERYTHING, NOTHING, Cut, Extent, Layout, Piece
from ladle.archive.levels import HashLevel
from ladle.archive.scan import Counts, Request, Scanner
from ladle.catalog import Catalog, StreamState, TableState
from ladle.catalog.store import Store
from ladle.execute.deadline import seconds_left
from ladle.execute.said import said_of
from ladle.execute.side_by_side import side_by_side
from ladle.execute.table_rows import newest_rows
from ladle.plan import Block, Factor, KeyedRowsWindow, RowsWindow, Scan, TableRead, TimeWindow, Window
from ladle.plan.ranges import Ranges
from ladle.plan.window import MAX_US, MIN_US, WindowKind
from ladle.stem.blocks import BlockSet, candidates
from ladle.stem.match import inside, satisfying, split
from ladle.stem.matches import Matches

_ROWS_PER_EVALUATION = 1 << 20
"""So many rows are put together for DuckDB to evaluate factors over."""
_ROWS_COMPARED = 1 << 22
"""So many rows are read at once where NumPy compares: cores wait for each other at the end of them."""
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
        self._scanners: dict[int, Scanner] = {}
        self.counts = Counts()
        """What was read so far."""

    def extent(self, scan: Scan, now_us: int | None, streams: Sequence[str]) -> Extent:
        """The scan's window at NOW, cut to what the stream retains; `streams` are all that are read with it."""
        stream = self._stream(scan.block)
        return _sampled(self.extent_of(scan.window, stream, now_us, streams), scan, stream)

    def extent_of(self, window: Window, stream: StreamState, now_us: int | None, streams: Sequence[str]) -> Extent:
        """Which tuples of a stream a window has, at a NOW."""
        floor_us = self.floor_us(stream, streams)
        extent = self._extent(window, now_us, stream.clock_us, floor_us)
        if now_us is None or not isinstance(window, RowsWindow):
            return extent
        return extent._replace(first_id=self._first_id(stream, window.rows, now_us, floor_us))

    def floor_us(self, stream: StreamState, streams: Sequence[str]) -> int | None:
        """Tuples up to this time are beyond retention, for a query over these streams: by its NOW where tuples are
        stamped on arrival, or by the log where NOW follows from that.
        """
        if stream.retain_us is None:
            return None
        read = [each for name in streams if (each := self._catalog.stream(name)) is not None]
        if any(each.event_time for each in read):
            return stream.logged_floor_us
        now_us = self._catalog.now_us(streams, self.wall_us)
        return None if now_us is None else now_us - stream.retain_us

    def extent_as_of(
        self, scan: Scan, now_us: int | None, next_id: int, clock_us: int | None, floor_us: int | None
    ) -> Extent:
        """The scan's window at NOW when its stream had accepted so many tuples, and had that clock and that floor of
        retention.
        """
        stream, window = self._stream(scan.block), scan.window
        extent = _sampled(self._extent(window, now_us, clock_us, floor_us).arrived(next_id), scan, stream)
        if now_us is None or not isinstance(window, RowsWindow):
            return extent
        return extent._replace(first_id=self._first_id_as_of(stream, window.rows, now_us, floor_us, next_id))

    def _extent(self, window: Window, now_us: int | None, clock_us: int | None, floor_us: int | None) -> Extent:
        """A window at NOW, without looking at rows. While NOW is undefined windows that move with it are empty."""
        if now_us is None and window.kind.moves:
            return NOTHING
        if window.kind is WindowKind.EVERYTHING:
            # Nothing later than NOW is seen. Where no tuple is later that is all, and one extent for every NOW.
            ahead = now_us is not None and clock_us is not None and clock_us > now_us
            begin_us, end_us = MIN_US, now_us if ahead and now_us is not None else MAX_US
        elif isinstance(window, TimeWindow):
            begin_us, end_us = window.resolve(self.wall_us if now_us is None else now_us)
        else:
            begin_us, end_us = MIN_US, self.wall_us if now_us is None else now_us
        keyed = window if isinstance(window, KeyedRowsWindow) else None
        return Extent(begin_us if floor_us is None else max(begin_us, floor_us), end_us, keyed=keyed)

    def pieces(self, scan: Scan, extent: Extent) -> list[Piece]:
        """The segments that may hold tuples of the window, in arrival order."""
        return self._cut_of(scan.block, extent).pieces

    def request(self, scan: Scan, extent: Extent) -> Request:
        """What others have to read for a scan."""
        stream = self._stream(scan.block)
        files = {piece.file.name: piece.file for piece in self.pieces(scan, extent)}
        compared, _ = split(scan.block)
        return Request(self._store.source(stream), tuple(files.values()), scan.columns, extent, compared)

    def input_rows(self, scan: Scan, extent: Extent) -> int:
        """An upper bound of the scan's rows, without looking at any; of a sample, how many there would be about."""
        rows = self._cut_of(scan.block, extent).rows
        return rows if extent.level is None else ceil(rows * extent.level.share)

    def files(self, scan: Scan, extent: Extent) -> Indices:
        """The numbers of the stream's files that may hold tuples of the window, once per segment."""
        return self.files_in(self._stream(scan.block), extent)

    def files_in(self, stream: StreamState, extent: Extent) -> Indices:
        """The numbers of the data files that an extent touches."""
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
                yield piece, self._scanner(stream).with_columns(piece, pick, columns), waiting

    def has_rows(self, scan: Scan, extent: Extent) -> bool:
        """Whether the scan has rows in an extent that came or went; of a window of keys, whether any tuple is in it,
        because one that its block does not want takes the place of another all the same.
        """
        block = Block(scan.block.stream) if isinstance(scan.window, KeyedRowsWindow) else scan.block
        return any(pick.rows for _, pick in self._picks(block, extent, self.pieces(scan, extent), ()))

    def times_in(self, stream: StreamState, extent: Extent) -> Indices:
        """The timestamps of the tuples of an extent."""
        found, scanner = [], self._scanner(stream)
        for piece in scanner.layout.cut(extent).pieces:
            start, stop, inside = scanner.within(piece, extent)
            times = scanner.times(piece)
            found.append(times[start:stop] if inside is None else times[inside])
        return np.concatenate([*found, np.zeros(0, dtype=np.int64)])

    def table(self, scan: TableRead) -> pa.Table:
        """The rows of a table, as it stands in this snapshot; from the cache."""
        return newest_rows(self._store, self._table(scan), scan.columns)

    def table_rows(self, scan: TableRead) -> int:
        """How many rows a table has."""
        return self._table(scan).rows

    def _table(self, scan: TableRead) -> TableState:
        table = self._catalog.table(scan.table)
        assert table is not None, f"table {scan.table} of a bound plan"
        return table

    def empty(self, scan: Scan) -> pa.Table:
        """A table without rows that has the columns of a scan."""
        return self._stream(scan.block).schema.select(scan.columns).empty_table()

    def time_column(self, scan: Scan) -> str:
        """The column with the times of a scan's tuples."""
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
        """Columns of a whole segment; `once` when they are looked at for a few rows."""
        return self._scanner(stream).columns(piece, names, once=once)

    def segment(self, stream: StreamState, piece: Piece, names: tuple[str, ...]) -> pa.Table:
        """Columns of a whole segment, as a table."""
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
        scanner = self._scanner(stream)
        block_id = known_as
        if known_as is None and block.factors:
            block_id = self._catalog.block_id(block)
        coverage = None if block_id is None else self._store.coverage(stream, at=self._catalog.seq)
        waiting: list[Piece] = []
        waiting_rows = rows_max = 0
        for piece in pieces:
            found = None
            if coverage is not None and block_id is not None:
                found = coverage.find(piece.file.name, block_id)
            if found is None and block.factors:
                rows_max = rows_max or (_ROWS_PER_EVALUATION if split(block)[1] else _ROWS_COMPARED)
                waiting.append(piece)
                waiting_rows += piece.rows
            if waiting and (found is not None or waiting_rows >= rows_max):
                yield from self._evaluate(stream, block, extent, waiting, columns)
                waiting, waiting_rows = [], 0
            if found is not None and block_id is not None:
                ids = found.rows(block_id, piece.row_group)
                yield piece, scanner.pick(piece, ids, extent, columns)
            elif not block.factors:
                pick = scanner.pick(piece, None, extent, columns)
                few = extent.level is not None and pick.rows * _FEW <= piece.rows
                yield piece, pick.gathered() if columns and few else pick
        if waiting:
            yield from self._evaluate(stream, block, extent, waiting, columns)

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
            picks = side_by_side(
                lambda piece, pick: self._scanner(stream).with_columns(piece, pick, columns), pieces, picks
            )
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
        scanner = self._scanner(stream)
        if compared and scanner.excludes(piece, compared):
            return NO_ROWS
        pick = scanner.pick(piece, None, extent, ())
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
        read = side_by_side(lambda piece, pick: self._scanner(stream).with_columns(piece, pick, names), pieces, picks)
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

    def covering(
        self, window: Window, name: str, now_us: int | None, streams: Sequence[str]
    ) -> tuple[int, list[tuple[BlockSet, int]]]:
        """How many segments of a stream a window has, and how many of them each set of blocks covers."""
        stream = self._catalog.stream(name)
        assert stream is not None, f"stream {name} of a bound plan"
        numbers = self.files_in(stream, self.extent_of(window, stream, now_us, streams))
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

    def _first_id(self, stream: StreamState, rows: int, now_us: int, floor_us: int | None) -> int:
        """With which id the last `rows` tuples with `ts <= now_us` begin, in arrival order; later tuples don't count.

        Counted from the newest segment backwards, so only the segments of the window are looked at.
        """
        segments, layout = stream.segments, self._layout(stream)
        first = layout.order.last_rows(rows, now_us, floor_us)
        if first is not None:
            return layout.id_at(first)
        left = rows
        for i in range(len(segments.rows) - 1, -1, -1):
            if segments.ts_min_us[i] > now_us:
                continue
            inside = segments.ts_max_us[i] <= now_us and (floor_us is None or segments.ts_min_us[i] > floor_us)
            if inside and segments.rows[i] < left:
                left -= int(segments.rows[i])
                continue
            if inside:
                return layout.piece(i).first_id + int(segments.rows[i]) - left
            numbers = self._numbers_between(stream, layout.piece(i), floor_us, now_us)
            if len(numbers) >= left:
                return layout.piece(i).first_id + int(numbers[len(numbers) - left])
            left -= len(numbers)
        return 0

    def _first_id_as_of(self, stream: StreamState, rows: int, now_us: int, floor_us: int | None, next_id: int) -> int:
        """The same among the tuples with ids below one alone."""
        left = rows
        for piece in reversed(self._layout(stream).cut(EVERYTHING.arrived(next_id)).pieces):
            numbers = self._numbers_between(stream, piece, floor_us, now_us)
            if len(numbers) >= left:
                return piece.first_id + int(numbers[len(numbers) - left])
            left -= len(numbers)
        return 0

    def _numbers_between(self, stream: StreamState, piece: Piece, floor_us: int | None, now_us: int) -> Indices:
        """Which rows of a segment are after the floor and not after NOW."""
        times = self._scanner(stream).times(piece)[: piece.stop]
        return np.flatnonzero((times <= now_us) & (times > (MIN_US if floor_us is None else floor_us)))

    def _layout(self, stream: StreamState) -> Layout:
        return self._scanner(stream).layout

    def _scanner(self, stream: StreamState) -> Scanner:
        """Made once per reader: an older snapshot's layout is not kept by the store."""
        found = self._scanners.get(stream.id)
        if found is None:
            found = self._scanners[stream.id] = self._store.scanner(stream, self.counts)
        return found

    def _stream(self, block: Block) -> StreamState:
        stream = self._catalog.stream(block.stream)
        assert stream is not None, f"stream {block.stream} of a bound plan"
        return stream


def _sampled(extent: Extent, scan: Scan, stream: StreamState) -> Extent:
    """What a scan has of an extent, if TABLESAMPLE says less than all."""
    if scan.sample is None:
        return extent
    return extent._replace(level=HashLevel.of(stream.id, scan.sample.share, scan.sample.seed))
