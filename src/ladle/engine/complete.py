"""PSoup-C: the current window's rows of a query, kept current (PSoup section 5).

What is kept is the matching rows of each data file that the window touches, and the last answer. After an epoch only
the new file is read; files that left the window are let go. Like everything derived it may be emptied at any moment.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from ladle.catalog import Catalog, StreamState, TableState
from ladle.engine.layout import EVERYTHING, Extent
from ladle.engine.reader import Reader, cut_to
from ladle.errors import EvaluationError
from ladle.plan import Plan, RowsWindow, Scan

_Inputs = tuple[StreamState | TableState | None, ...]
"""What a query reads, as of one snapshot; whatever did not change is the same object in the next."""


class Kept:
    """The kept rows of one query."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self.asked_at = 0.0
        """When somebody last invoked it, on the monotonic clock."""
        self.too_slow = False
        """It did not end in time when it was brought up to date."""
        self._rows: list[dict[tuple[str, int], pa.Table]] = [{} for _ in plan.scans]
        self._answer: tuple[_Inputs, list[Extent], int, pa.Table] | None = None

    @property
    def bytes(self) -> int:
        """What is kept, as memory."""
        with self._lock:
            answer = 0 if self._answer is None else self._answer[3].nbytes
            return answer + sum(table.nbytes for rows in self._rows for table in rows.values())

    def swap_out(self) -> None:
        """Let everything go; the next invocation gathers it again."""
        with self._lock:
            self._rows = [{} for _ in self._plan.scans]
            self._answer = None

    def answer(self, catalog: Catalog, extents: list[Extent], now_us: int) -> pa.Table | None:
        """The last answer, if neither data nor windows have moved since; a new version of a table is data too."""
        with self._lock:
            kept = self._answer
        if kept is None:
            return None
        inputs, kept_extents, kept_now_us, table = kept
        same_data = all(a is b for a, b in zip(inputs, self._inputs(catalog), strict=True))
        same_now = kept_now_us == now_us or not self._plan.residual.uses_now
        return table if same_data and same_now and kept_extents == extents else None

    def keep_answer(self, catalog: Catalog, extents: list[Extent], now_us: int, table: pa.Table) -> None:
        with self._lock:
            self._answer = (self._inputs(catalog), extents, now_us, table)

    def read(self, number: int, reader: Reader, scan: Scan, extent: Extent) -> pa.Table:
        """The rows of a scan, gathered only where they are not kept yet."""
        if isinstance(scan.window, RowsWindow):
            return reader.read(scan, extent)
        pieces = reader.pieces(scan, extent)
        time = reader.time_column(scan)
        columns = scan.columns if time in scan.columns else (*scan.columns, time)
        with self._lock:
            rows = self._rows[number]
        missing = [piece for piece in pieces if (piece.file.name, piece.row_group) not in rows]
        try:
            gathered = {
                (piece.file.name, piece.row_group): table
                for piece, table in reader.gather(scan, EVERYTHING, [piece.unbounded() for piece in missing], columns)
            }
        except EvaluationError:
            # A tuple outside the window may be what raised; only those inside count.
            return reader.read(scan, extent)
        current = {
            key: gathered[key] if key in gathered else rows[key]
            for key in ((piece.file.name, piece.row_group) for piece in pieces)
        }
        with self._lock:
            self._rows[number] = current
        parts = [
            cut_to(table, time, extent) if piece.edge else table
            for piece, table in zip(pieces, current.values(), strict=True)
        ]
        return pa.concat_tables(parts).select(scan.columns) if parts else reader.empty(scan)

    def _inputs(self, catalog: Catalog) -> _Inputs:
        streams = tuple(catalog.stream(scan.block.stream) for scan in self._plan.scans)
        return streams + tuple(catalog.table(each.table) for each in self._plan.tables)
