"""Reading a scan: the rows of a block in a window, from what is covered, and computed where nothing is.

PSoup section 3.3. Segments wholly inside the window need no look at their timestamps; only those at its edges do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.segments import DataFile
from ladle.catalog import Catalog, Segments, StreamState
from ladle.columns import from_numpy, to_numpy
from ladle.engine.store import Store
from ladle.errors import EvaluationError
from ladle.evaluate import evaluate_factors
from ladle.plan import Block, RowsWindow, Scan, TimeWindow
from ladle.plan.window import MIN_US
from ladle.stem.results import RowIds

_ROWS_PER_EVALUATION = 1 << 20

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Extent:
    """A window made concrete: `begin_us < ts <= end_us`, and for [ROWS n] tuples from a position on."""

    begin_us: int
    end_us: int
    first_row: int = 0
    """The number, in arrival order over the retained segments, of the first tuple that counts."""

    @property
    def bounded_by_rows(self) -> bool:
        return self.first_row > 0


@dataclass(frozen=True)
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


class Reader:
    """Reads scans of one catalog."""

    def __init__(self, store: Store, catalog: Catalog, wall_us: int) -> None:
        self._store = store
        self._catalog = catalog
        self._wall_us = wall_us
        self._kinds: dict[int, tuple[Indices, list[frozenset[int]]]] = {}

    def extent(self, scan: Scan, now_us: int) -> Extent:
        """The scan's window at NOW, cut to what the stream retains."""
        stream = self._stream(scan.block)
        match scan.window:
            case TimeWindow() as window:
                begin_us, end_us = window.resolve(now_us)
                first_row = 0
            case RowsWindow(rows):
                begin_us, end_us = MIN_US, now_us
                first_row = self._first_row(stream, rows, now_us)
        floor_us = stream.floor_us(self._wall_us)
        if floor_us is not None:
            begin_us = max(begin_us, floor_us)
        return Extent(begin_us, end_us, first_row)

    def pieces(self, scan: Scan, extent: Extent) -> list[Piece]:
        """The segments that may hold tuples of the window, in arrival order."""
        stream = self._stream(scan.block)
        segments = stream.segments
        touched = _touched(segments, extent)
        skip = np.zeros(len(segments.rows), dtype=np.int64)
        if extent.bounded_by_rows:
            skip = np.maximum(extent.first_row - (np.cumsum(segments.rows) - segments.rows), 0)
        edge = (segments.ts_min_us <= extent.begin_us) | (segments.ts_max_us > extent.end_us)
        return [
            Piece(
                stream.files[segments.file[i]],
                int(segments.row_group[i]),
                int(segments.rows[i]),
                int(skip[i]),
                bool(edge[i]),
            )
            for i in np.flatnonzero(touched).tolist()
        ]

    def input_rows(self, scan: Scan, extent: Extent) -> int:
        """An upper bound of the scan's rows, without looking at any."""
        segments = self._stream(scan.block).segments
        touched = np.flatnonzero(_touched(segments, extent))
        rows = int(segments.rows[touched].sum())
        if not extent.bounded_by_rows or len(touched) == 0:
            return rows
        first = int(touched[0])
        return rows - max(extent.first_row - int(segments.rows[:first].sum()), 0)

    def files(self, scan: Scan, extent: Extent) -> Indices:
        """The numbers of the stream's files that may hold tuples of the window, once per segment."""
        segments = self._stream(scan.block).segments
        return segments.file[_touched(segments, extent)]

    def read(self, scan: Scan, extent: Extent) -> pa.Table:
        """The scan's rows in arrival order."""
        stream = self._stream(scan.block)
        tables = [table for _, table in self.gather(scan, extent, self.pieces(scan, extent), scan.columns)]
        return pa.concat_tables(tables) if tables else empty(stream, scan.columns)

    def empty(self, scan: Scan) -> pa.Table:
        return empty(self._stream(scan.block), scan.columns)

    def time_column(self, scan: Scan) -> str:
        return self._stream(scan.block).schema.timestamp_column

    def gather(
        self, scan: Scan, extent: Extent, pieces: list[Piece], columns: tuple[str, ...]
    ) -> Iterator[tuple[Piece, pa.Table]]:
        """The matching rows of each piece, in order."""
        stream = self._stream(scan.block)
        block_id = self._catalog.block_id(scan.block)
        coverage = self._store.coverage(stream) if block_id is not None and scan.block.factors else None
        waiting: list[Piece] = []
        waiting_rows = 0
        for piece in pieces:
            found = coverage.find(piece.file.name, block_id) if coverage is not None and block_id is not None else None
            if found is None and scan.block.factors:
                waiting.append(piece)
                waiting_rows += piece.rows
                if waiting_rows >= _ROWS_PER_EVALUATION:
                    yield from self._evaluate(stream, scan.block, extent, waiting, columns)
                    waiting, waiting_rows = [], 0
                continue
            if waiting:
                yield from self._evaluate(stream, scan.block, extent, waiting, columns)
                waiting, waiting_rows = [], 0
            ids = None if found is None or block_id is None else found.rows(block_id, piece.row_group)
            yield piece, self._pick(stream, extent, piece, ids, columns)
        if waiting:
            yield from self._evaluate(stream, scan.block, extent, waiting, columns)

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
        return sum(int(counts[kind]) for kind, blocks in enumerate(sets) if block_id in blocks), total

    def _coverage_kinds(self, stream: StreamState) -> tuple[Indices, list[frozenset[int]]]:
        """Which sets of blocks are covered somewhere, and for each file which of them; looked up once per reader.

        There are few: most files are covered alike. So a thousand queries over ten thousand files stay cheap.
        """
        if stream.id not in self._kinds:
            coverage = self._store.coverage(stream)
            numbers: dict[frozenset[int], int] = {}
            kinds = [numbers.setdefault(coverage.covered(file.name), len(numbers)) for file in stream.files]
            self._kinds[stream.id] = (np.array(kinds, dtype=np.int64), list(numbers))
        return self._kinds[stream.id]

    def _pick(
        self,
        stream: StreamState,
        extent: Extent,
        piece: Piece,
        ids: RowIds | None,
        columns: tuple[str, ...],
    ) -> pa.Table:
        """Rows of one segment by id (None: all), cut to the window."""
        if ids is not None and piece.skip:
            ids = ids[np.searchsorted(ids, piece.skip) :]
        if ids is not None and len(ids) == 0:
            return empty(stream, columns)
        time = stream.schema.timestamp_column
        needed = columns if not piece.edge or time in columns else (*columns, time)
        table = self._segment(stream, piece, needed)
        if ids is not None:
            table = table.take(from_numpy(ids))
        elif piece.skip:
            table = table.slice(piece.skip)
        if piece.edge:
            table = cut_to(table, time, extent).select(columns)
        return table

    def _evaluate(
        self, stream: StreamState, block: Block, extent: Extent, pieces: list[Piece], columns: tuple[str, ...]
    ) -> Iterator[tuple[Piece, pa.Table]]:
        """Rows of uncovered segments: one evaluation for all, after the window was cut."""
        time = stream.schema.timestamp_column
        names = tuple(dict.fromkeys((*columns, *sorted(block.columns), time)))
        parts = []
        for piece in pieces:
            table = self._segment(stream, piece, names).slice(piece.skip)
            parts.append(cut_to(table, time, extent) if piece.edge else table)
        whole = pa.concat_tables(parts)
        if len(whole):
            result = evaluate_factors(whole, block.factors, seconds_max=self._store.settings.invoke_seconds_max)
            for failure in result.failures.values():
                raise EvaluationError(failure.reason, hint="no other query is harmed; change this one's WHERE")
            mask = np.logical_and.reduce([result.masks[factor.sql] for factor in block.factors])
        else:
            mask = np.empty(0, dtype=np.bool_)
        start = 0
        for piece, part in zip(pieces, parts, strict=True):
            yield piece, part.filter(from_numpy(mask[start : start + len(part)])).select(columns)
            start += len(part)

    def _segment(self, stream: StreamState, piece: Piece, columns: tuple[str, ...]) -> pa.Table:
        path = self._store.directory(stream) / piece.file.name
        return self._store.cache.get(path, piece.file.name, piece.row_group, columns, stream.schema.arrow)

    def _first_row(self, stream: StreamState, rows: int, now_us: int) -> int:
        """Where the last `rows` tuples with `ts <= now_us` begin, in arrival order; later tuples don't count.

        Counted from the newest segment backwards, so only the segments of the window are looked at.
        """
        segments = stream.segments
        floor_us = stream.floor_us(self._wall_us)
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
            times = _times(self._segment(stream, piece, (time,)), time)
            numbers = np.flatnonzero((times <= now_us) & (times > (MIN_US if floor_us is None else floor_us)))
            if len(numbers) >= left:
                return int(starts[i] + numbers[len(numbers) - left])
            left -= len(numbers)
        return 0

    def _stream(self, block: Block) -> StreamState:
        stream = self._catalog.stream(block.stream)
        assert stream is not None, f"stream {block.stream} of a bound plan"
        return stream


def _touched(segments: Segments, extent: Extent) -> npt.NDArray[np.bool_]:
    """The segments that may hold tuples of an extent."""
    touched: npt.NDArray[np.bool_] = (segments.ts_max_us > extent.begin_us) & (segments.ts_min_us <= extent.end_us)
    if extent.bounded_by_rows:
        touched &= np.cumsum(segments.rows) > extent.first_row
    return touched


def empty(stream: StreamState, columns: tuple[str, ...]) -> pa.Table:
    schema = pa.schema([stream.schema.arrow.field(name) for name in columns])
    return pa.Table.from_batches([], schema)


def cut_to(table: pa.Table, time: str, extent: Extent) -> pa.Table:
    """Rows with `begin < ts <= end`."""
    times = _times(table, time)
    return table.filter(from_numpy((times > extent.begin_us) & (times <= extent.end_us)))


def _times(table: pa.Table, time: str) -> npt.NDArray[np.int64]:
    return to_numpy(table.column(time).cast(pa.int64()))
