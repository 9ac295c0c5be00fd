"""Invocation (PSoup section 3.3): pin a snapshot, make the windows concrete, read the scans, run the residual.

No Spark job is on this path while the input is small enough and DuckDB is known to agree with Spark on every function.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from ladle.answer import Answer, ResolvedWindow
from ladle.catalog import Catalog
from ladle.clock import FIRST_US, LAST_US, to_datetime, to_us
from ladle.engine.aggregates import Aggregates
from ladle.engine.browsing import refuse_gone
from ladle.engine.complete import Kept
from ladle.engine.deadline import seconds_left
from ladle.engine.joins import Joins
from ladle.engine.layout import Extent
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.errors import EvaluationError, LadleError
from ladle.evaluate import run_residual
from ladle.pipeline import FileRelation, Pipeline, Relation
from ladle.plan import Engine, Plan, RowsWindow, Scan

_READING = re.compile("parquet|checksum|failed_read_file|end of", re.IGNORECASE)
"""In what Spark says when it can't read a file: a damaged one is looked for then, and named."""


class Invoker:
    """Answers plans over snapshots that the caller has pinned: those that the plans are bound to."""

    def __init__(self, store: Store, pipeline: Callable[[], Pipeline]) -> None:
        self._store = store
        self._pipeline = pipeline
        self.aggregates = Aggregates(store)
        self.joins = Joins(store)

    def answer(
        self,
        plan: Plan,
        catalog: Catalog,
        *,
        now: datetime | None = None,
        kept: Kept | None = None,
        keep_nothing: bool = False,
    ) -> Answer:
        """With `keep_nothing` everything is computed anew, and nothing of it kept (PSoup's NoMat)."""
        started = time.perf_counter()
        wall_us = self._store.clock.now_us()
        reader = Reader(self._store, catalog, wall_us)
        folded = plan.residual.aggregate is not None and not keep_nothing
        if now is None:
            found_us = catalog.now_us(plan.streams, wall_us)
            extents = [reader.extent(scan, found_us) for scan in plan.scans]
            # While NOW is undefined windows are empty, and expressions get the wall clock.
            now_us = wall_us if found_us is None else found_us
        else:
            now_us = to_us(now)
            refuse_gone(plan, catalog, reader, wall_us, now_us)
            extents = [reader.extent_at(scan, now_us) for scan in plan.scans]
        table = None if kept is None else kept.answer(catalog, extents, now_us)
        if table is None:
            table = self.aggregates.answer(plan, catalog, reader, extents[0]) if folded else None
            if table is None:
                table = self._run(plan, catalog, reader, extents, now_us, kept, keep_nothing=keep_nothing)
            if kept is not None:
                kept.keep_answer(catalog, extents, now_us, table)
        return Answer(
            table,
            catalog.epoch,
            to_datetime(now_us),
            tuple(resolved(scan, extent) for scan, extent in zip(plan.scans, extents, strict=True)),
            time.perf_counter() - started,
        )

    def engine(self, plan: Plan, input_rows: int) -> Engine:
        """What runs a residual over so many rows."""
        large = input_rows > self._store.settings.residual_rows_max
        return Engine.SPARK if plan.residual.engine is Engine.DUCKDB and large else plan.residual.engine

    def _run(
        self,
        plan: Plan,
        catalog: Catalog,
        reader: Reader,
        extents: list[Extent],
        now_us: int,
        kept: Kept | None,
        *,
        keep_nothing: bool,
    ) -> pa.Table:
        engine = self.engine(plan, self._input_rows(plan, reader, extents))
        if engine is Engine.DUCKDB and plan.joined is not None:
            try:
                relations = self.joins.relations(plan, catalog, reader, extents, keep_nothing=keep_nothing)
                relations |= self._read(plan, reader, extents, kept, but_for=plan.joined.scans)
                return self.compute(plan, relations, now_us, engine, joined=True)
            except EvaluationError:
                # What raised may be a tuple that has no partner, or the pairs were too many: the statement itself says.
                pass
        if engine is Engine.SPARK:
            return self._by_spark(plan, catalog, reader, extents, kept, now_us)
        return self.compute(plan, self._read(plan, reader, extents, kept, but_for=()), now_us, engine)

    def _by_spark(
        self, plan: Plan, catalog: Catalog, reader: Reader, extents: list[Extent], kept: Kept | None, now_us: int
    ) -> pa.Table:
        """Spark reads the files itself."""
        files = {
            number: _Files(catalog, reader, scan, extents[number])
            for number, scan in enumerate(plan.scans)
            if not isinstance(scan.window, RowsWindow)
        }
        relations = self._read(plan, reader, extents, kept, but_for=files)
        for number, own in files.items():
            self._store.damage.check_footers(own.stream.name, self._store.directory(own.stream), own.files)
            relations[plan.scans[number].relation] = own.relation(self._store.directory(own.stream))
        try:
            return self.compute(plan, relations, now_us, Engine.SPARK)
        except LadleError as error:
            if _READING.search(error.message):
                for own in files.values():
                    self._store.damage.name(own.stream.name, self._store.directory(own.stream), own.files)
            raise

    def _read(
        self, plan: Plan, reader: Reader, extents: list[Extent], kept: Kept | None, *, but_for: Container[int]
    ) -> dict[str, Relation]:
        """What a plan reads, but for some of its scans, by number."""
        found: dict[str, Relation] = {each.relation: reader.table(each) for each in plan.tables}
        for number, (scan, extent) in enumerate(zip(plan.scans, extents, strict=True)):
            if number not in but_for:
                read = reader.read(scan, extent) if kept is None else kept.read(number, reader, scan, extent)
                found[scan.relation] = read
        return found

    def compute(
        self, plan: Plan, relations: Mapping[str, Relation], now_us: int, engine: Engine, *, joined: bool = False
    ) -> pa.Table:
        """Run a residual over what was read for it; `joined` is the statement over joins."""
        settings = self._store.settings
        if engine is Engine.SPARK:
            return self._pipeline().run_residual(plan, relations, now_us, seconds_left(settings))
        return run_residual(
            plan,
            relations,
            now_us,
            seconds_max=seconds_left(settings),
            memory_bytes_max=settings.residual_memory_bytes_max,
            joined=joined,
        )

    def _input_rows(self, plan: Plan, reader: Reader, extents: list[Extent]) -> int:
        """An upper bound of the residual's input, without reading any of it."""
        of_streams = sum(reader.input_rows(scan, extent) for scan, extent in zip(plan.scans, extents, strict=True))
        return of_streams + sum(reader.table_rows(each) for each in plan.tables)


class _Files:
    """The files that a scan reads, for Spark to read them."""

    def __init__(self, catalog: Catalog, reader: Reader, scan: Scan, extent: Extent) -> None:
        stream = catalog.stream(scan.block.stream)
        assert stream is not None, f"stream {scan.block.stream} of a bound plan"
        self.stream = stream
        self.files = list({piece.file.name: piece.file for piece in reader.pieces(scan, extent)}.values())
        self._scan = scan
        self._extent = extent

    def relation(self, directory: Path) -> FileRelation:
        schema = self.stream.schema
        return FileRelation(
            tuple(directory / file.name for file in self.files),
            schema.arrow,
            schema.timestamp_column,
            self._extent.begin_us,
            self._extent.end_us,
            tuple(factor.sql for factor in self._scan.block.factors),
            self._scan.columns,
        )


def resolved(scan: Scan, extent: Extent) -> ResolvedWindow:
    """A scan's window for people."""
    rows = scan.window.rows if isinstance(scan.window, RowsWindow) else None
    return _resolved_window(scan.block.stream, extent, rows)


@lru_cache(maxsize=1_024)
def _resolved_window(stream: str, extent: Extent, rows: int | None) -> ResolvedWindow:
    """Made once for all who ask for that window."""
    # A begin before the first moment there is bounds nothing, and so does an end after the last.
    return ResolvedWindow(
        stream,
        None if extent.begin_us < FIRST_US else to_datetime(min(extent.begin_us, LAST_US)),
        None if extent.end_us > LAST_US else to_datetime(max(extent.end_us, FIRST_US)),
        rows,
    )
