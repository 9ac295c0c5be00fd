"""PSoup-C: the current window's rows of a query, kept current (PSoup section 5).

What is kept is the matching rows of each data file that the window touches, and the last answer. After an epoch only
the new file is read; files that left the window are let go. Like everything derived it may be emptied at any moment:
what was is not kept current until somebody asks for it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Iterator, Sequence

import pyarrow as pa

from ladle.archive.gather import cut_to
from ladle.archive.layout import EVERYTHING, Extent
from ladle.catalog import Catalog, QueryState, StreamState, TableState
from ladle.derived import Derived, KindAccount, Place, Thing
from ladle.errors import EvaluationError
from ladle.execute.reader import Reader
from ladle.plan import Plan, RowsWindow, Scan

_Inputs = tuple[StreamState | TableState | None, ...]
"""What a query reads, as of one snapshot; whatever did not change is the same object in the next."""


class KeptAnswer:
    """The kept rows and answer of one query."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self.too_slow = False
        """It did not end in time when it was brought up to date."""
        self._rows: list[dict[tuple[str, int], pa.Table]] = [{} for _ in plan.scans]
        self._row_bytes = [0] * len(plan.scans)
        self._answer: tuple[_Inputs, list[Extent], int | None, pa.Table] | None = None
        self._answer_bytes = 0
        self._answer_seconds = 0.0
        self._gathered = (0, 0.0)
        """Bytes of all rows that were ever gathered for it, and what that took."""
        self.bytes = 0
        """What is kept, as memory."""

    def _measure(self) -> None:
        self.bytes = self._answer_bytes + sum(self._row_bytes)

    @property
    def seconds(self) -> float:
        """What it would take to make it anew, by what it took."""
        size, seconds = self._gathered
        return self._answer_seconds + (seconds / size * sum(self._row_bytes) if size else 0.0)

    def swap_out(self) -> None:
        """Let everything go; the next invocation gathers it again."""
        with self._lock:
            self._rows = [{} for _ in self._plan.scans]
            self._row_bytes = [0] * len(self._rows)
            self._answer, self._answer_bytes = None, 0
            self._measure()

    def answer(self, catalog: Catalog, extents: list[Extent], now_us: int | None) -> pa.Table | None:
        """The last answer, if neither data nor windows have moved since; a new version of a table is data too."""
        with self._lock:
            kept = self._answer
        if kept is None:
            return None
        inputs, kept_extents, kept_now_us, table = kept
        same_data = all(a is b for a, b in zip(inputs, self._inputs(catalog), strict=True))
        same_now = kept_now_us == now_us or not self._plan.residual.uses_now
        return table if same_data and same_now and kept_extents == extents else None

    def held_answer(self, catalog: Catalog, extents: list[Extent], now_us: int | None) -> tuple[pa.Table, bool] | None:
        """The last answer, for EXPLAIN, and whether it is that of this moment."""
        with self._lock:
            kept = self._answer
        return None if kept is None else (kept[3], self.answer(catalog, extents, now_us) is not None)

    def held_rows(self, number: int) -> dict[tuple[str, int], pa.Table]:
        """The rows that are kept of a scan, by file and segment, for EXPLAIN."""
        with self._lock:
            return dict(self._rows[number])

    def keep_answer(
        self, catalog: Catalog, extents: list[Extent], now_us: int | None, table: pa.Table, seconds: float = 0.0
    ) -> None:
        """Keep an answer that took so many seconds."""
        with self._lock:
            self._answer = (self._inputs(catalog), extents, now_us, table)
            self._answer_bytes, self._answer_seconds = table.nbytes, seconds
            self._measure()

    def read(self, number: int, reader: Reader, scan: Scan, extent: Extent) -> pa.Table:
        """The rows of a scan, gathered only where they are not kept yet."""
        if isinstance(scan.window, RowsWindow) or extent.bounds_ids:
            return reader.read(scan, extent)
        pieces = reader.pieces(scan, extent)
        stamps = reader.time_column(scan)
        columns = scan.columns if stamps in scan.columns else (*scan.columns, stamps)
        with self._lock:
            rows = self._rows[number]
        missing = [piece for piece in pieces if (piece.file.name, piece.row_group) not in rows]
        began = time.perf_counter()
        try:
            whole, wanted = EVERYTHING._replace(level=extent.level), [piece.unbounded() for piece in missing]
            gathered = {
                (piece.file.name, piece.row_group): table
                for piece, table in reader.gather(scan, whole, wanted, columns)
            }
        except EvaluationError:
            # A tuple outside the window may be what raised; only those inside count.
            return reader.read(scan, extent)
        current = {
            key: gathered[key] if key in gathered else rows[key]
            for key in ((piece.file.name, piece.row_group) for piece in pieces)
        }
        size, seconds = sum(table.nbytes for table in gathered.values()), time.perf_counter() - began
        gone = sum(table.nbytes for key, table in rows.items() if key not in current)
        with self._lock:
            if self._rows[number] is rows:
                self._row_bytes[number] += size - gone
            else:  # another thread was here, or it was swapped out meanwhile
                self._row_bytes[number] = sum(table.nbytes for table in current.values())
            self._rows[number] = current
            self._gathered = (self._gathered[0] + size, self._gathered[1] + seconds)
            self._measure()
        parts = [
            cut_to(table, stamps, extent) if piece.edge else table
            for piece, table in zip(pieces, current.values(), strict=True)
        ]
        return pa.concat_tables(parts).select(scan.columns) if parts else reader.empty(scan)

    def _inputs(self, catalog: Catalog) -> _Inputs:
        streams = tuple(catalog.stream(scan.block.stream) for scan in self._plan.scans)
        return streams + tuple(catalog.table(each.table) for each in self._plan.tables)


class Answers:
    """What is kept of all queries whose answers are demanded: a kind of derived state, a query's answer a thing."""

    name = "answers"
    place = Place.MEMORY
    rebuilt = "when asked"

    def __init__(self, derived: Derived) -> None:
        self._derived = derived
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[KeptAnswer, Thing]] = {}
        self._dropped: set[int] = set()
        self.bytes = 0
        derived.add(self)

    def of(self, query: QueryState) -> KeptAnswer:
        """What is kept of a query, were it nothing yet."""
        return self._entry(query)[0]

    def asked(self, query: QueryState) -> KeptAnswer:
        """What is kept of a query that is asked: from now on it is kept current again, if it was dropped."""
        kept, thing = self._entry(query)
        thing.used = self._derived.clock()
        self._dropped.discard(query.id)
        return kept

    def current(self, queries: Sequence[QueryState]) -> Iterator[tuple[KeptAnswer, QueryState]]:
        """What is to be kept current of some queries, those that were asked last first."""
        found = [(*self._entry(query), query) for query in queries]
        for kept, _, query in sorted(found, key=lambda entry: entry[1].used, reverse=True):
            if query.id not in self._dropped:
                yield kept, query

    def note(self, query: QueryState) -> None:
        """What is kept of a query may have changed: hold the budget."""
        found = self._kept.get(query.id)
        if found is None or found[0].bytes == found[1].bytes:
            return
        with self._lock:
            kept, thing = found
            if self._kept.get(query.id) is not found:
                return  # nobody demands it any more
            size = kept.bytes
            self.bytes += size - thing.bytes
            thing.bytes, thing.seconds = size, kept.seconds
        self._derived.settle()

    def keep_only(self, queries: Container[int]) -> None:
        """Forget queries whose answers nobody demands any more."""
        with self._lock:
            for query in [query for query in self._kept if query not in queries]:
                self.bytes -= self._kept.pop(query)[1].bytes
                self._dropped.discard(query)

    def bytes_of(self, query: QueryState) -> int:
        """How many bytes the kept rows and answers of a query take."""
        found = self._kept.get(query.id)
        return 0 if found is None else found[0].bytes

    # -- the contract --

    def things(self) -> list[Thing]:
        """What is kept, a thing for each query."""
        with self._lock:
            return [thing for _, thing in self._kept.values()]

    def drop(self, things: Sequence[Thing]) -> int:
        """Drop what is kept of some queries; how many bytes that freed."""
        freed = 0
        with self._lock:
            for thing in things:
                query = thing.identity
                assert isinstance(query, int)
                found = self._kept.get(query)
                if found is not None and found[1] is thing:
                    found[0].swap_out()
                    self._dropped.add(query)
                    freed += thing.bytes
                    self.bytes -= thing.bytes
                    thing.bytes, thing.seconds = 0, 0.0
        return freed

    def account(self) -> KindAccount:
        """How many answers are kept, of how many that are demanded, and their bytes."""
        with self._lock:
            things = [thing for _, thing in self._kept.values()]
        kept = [thing for thing in things if thing.bytes]
        seconds = sum(thing.seconds for thing in kept)
        used = max((thing.used for thing in kept), default=None)
        return KindAccount(len(kept), self.bytes, seconds, used, covered=len(kept), wanted=len(things))

    def _entry(self, query: QueryState) -> tuple[KeptAnswer, Thing]:
        found = self._kept.get(query.id)
        if found is None:
            # The plan first: to bind it takes other locks.
            made = KeptAnswer(query.plan), Thing(query.id, 0, 0.0, self._derived.clock())
            with self._lock:
                found = self._kept.setdefault(query.id, made)
        return found
