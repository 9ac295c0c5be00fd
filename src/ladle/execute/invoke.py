"""Invocation (PSoup section 3.3): pin a snapshot, make the windows concrete, read the scans, run the residual.

No Spark job is on this path while the input is small enough and DuckDB is known to agree with Spark on every function.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

import pyarrow as pa

from ladle.answer import Answer, ResolvedWindow
from ladle.archive.layout import Extent
from ladle.archive.scan import Request, stored_bytes
from ladle.catalog import Catalog
from ladle.catalog.store import Store
from ladle.clock import FIRST_US, LAST_US, to_datetime, to_us
from ladle.errors import EvaluationError, LadleError
from ladle.evaluate import run_residual
from ladle.execute.browsing import refuse_gone
from ladle.execute.complete_answers import KeptAnswer
from ladle.execute.deadline import seconds_left
from ladle.execute.join_answers import Joins
from ladle.execute.measuring import Measuring
from ladle.execute.node_rows import Nodes, Read
from ladle.execute.node_state import Measured
from ladle.execute.past import extents_of, nows_of, table_at, table_rows_at
from ladle.execute.reader import Reader
from ladle.pipeline import FileRelation, Pipeline, Relation
from ladle.plan import Engine, KeyedRowsWindow, Plan, RowsWindow, Scan
from ladle.plan.as_of import Nows
from ladle.plan.nodes import Node

_READING = re.compile("parquet|checksum|failed_read_file|end of", re.IGNORECASE)
"""In what Spark says when it can't read a file: a damaged one is looked for then, and named."""


class Invoker:
    """Answers plans over snapshots that the caller has pinned: those that the plans are bound to."""

    def __init__(self, store: Store, pipeline: Callable[[], Pipeline]) -> None:
        self._store = store
        self._pipeline = pipeline
        self.nodes = Nodes(store)
        self.aggregates = self.nodes.aggregates
        self.joins = Joins(store)

    def answer(
        self,
        plan: Plan,
        catalog: Catalog,
        *,
        now: datetime | None = None,
        kept: KeptAnswer | None = None,
        keep_nothing: bool = False,
    ) -> Answer:
        """With `keep_nothing` everything is computed anew, and nothing of it kept (PSoup's NoMat)."""
        started = time.perf_counter()
        wall_us = self._store.clock.now_us()
        reader = Reader(self._store, catalog, wall_us)
        now_us: int | None
        if now is None:
            # While NOW is undefined windows are empty, and it is NULL in expressions.
            now_us = catalog.now_us(plan.streams, wall_us)
        else:
            now_us = to_us(now)
            moving = [scan for scan in plan.scans if scan.as_of is None]
            refuse_gone(moving, plan.streams, catalog, reader, now_us)
        extents = extents_of(plan, catalog, reader, now_us)
        table = None if kept is None else kept.answer(catalog, extents, now_us)
        if table is None:
            nows = nows_of(plan, catalog, reader, now_us)
            if not keep_nothing:
                table = self.nodes.answer(
                    plan, catalog, reader, extents, nows, self._beside(plan, catalog, reader, extents, kept)
                )
            if table is None:
                table = self._run(plan, catalog, reader, extents, nows, kept, keep_nothing=keep_nothing)
            if kept is not None:
                kept.keep_answer(catalog, extents, now_us, table, time.perf_counter() - started)
        return Answer(
            table,
            catalog.epoch,
            to_datetime(wall_us if now_us is None else now_us),
            tuple(map(resolved, plan.scans, extents)),
            time.perf_counter() - started,
            entry=catalog.seq,
        )

    def as_of(
        self,
        plan: Plan,
        catalog: Catalog,
        reader: Reader,
        extents: Sequence[Extent],
        tables: Mapping[str, pa.Table],
        now_us: int | None,
    ) -> pa.Table:
        """The answer at another moment: over the tuples of these extents, and the rows that tables had, by relation.

        Asked for again it is the same bit for bit, also sums of floating point numbers and what an order leaves open.
        """

        def read(relations: Container[str]) -> dict[str, pa.Table]:
            scans = zip(plan.scans, extents, strict=True)
            found = {scan.relation: reader.read(scan, extent) for scan, extent in scans if scan.relation in relations}
            return found | dict(tables)

        nows = nows_of(plan, catalog, reader, now_us)
        table = self.nodes.answer(plan, catalog, reader, extents, nows, read, in_order=True)
        if table is None:
            relations = read([scan.relation for scan in plan.scans])
            engine = self.engine(plan, sum(map(len, relations.values())))
            table = self.compute(plan, relations, nows, engine, in_order=True)
        return table

    def measured(self, plan: Plan, tree: Node, catalog: Catalog) -> Mapping[str, Measured]:
        """What each node of a plan's tree takes when it is run by itself."""
        wall_us = self._store.clock.now_us()
        reader = Reader(self._store, catalog, wall_us)
        now_us = catalog.now_us(plan.streams, wall_us)
        extents = extents_of(plan, catalog, reader, now_us)
        tables = self._tables(plan, catalog, reader)
        settings, nodes, joins = self._store.settings, self.nodes, self.joins
        nows = nows_of(plan, catalog, reader, now_us)
        return Measuring(settings, nodes, joins, plan, catalog, reader, extents, tables, nows).run(tree)

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
        nows: Nows,
        kept: KeptAnswer | None,
        *,
        keep_nothing: bool,
    ) -> pa.Table:
        engine = self.engine(plan, self._input_rows(plan, catalog, reader, extents))
        if engine is Engine.DUCKDB and plan.joined is not None:
            try:
                relations = self.joins.relations(plan, catalog, reader, extents, keep_nothing=keep_nothing)
                relations |= self._read(plan, catalog, reader, extents, kept, but_for=plan.joined.scans)
                return self.compute(plan, relations, nows, engine, joined=True)
            except EvaluationError:
                # What raised may be a tuple that has no partner, or the pairs were too many: the statement itself says.
                pass
        if engine is Engine.SPARK:
            return self._by_spark(plan, catalog, reader, extents, nows)
        return self.compute(plan, self._read(plan, catalog, reader, extents, kept, but_for=()), nows, engine)

    def _by_spark(self, plan: Plan, catalog: Catalog, reader: Reader, extents: list[Extent], nows: Nows) -> pa.Table:
        """Spark reads the files itself."""
        relations: dict[str, Relation] = dict(self._tables(plan, catalog, reader))
        requests: list[tuple[Scan, Request]] = []
        for scan, extent in zip(plan.scans, extents, strict=True):
            if extent.keyed is not None:
                # Which tuples those are is known here, and can't be told from files alone.
                relations[scan.relation] = reader.read(scan, extent)
                continue
            request = reader.request(scan, extent)
            requests.append((scan, request))
            self._store.damage.check_footers(scan.block.stream, request.source.directory, request.files)
            relations[scan.relation] = FileRelation(request, tuple(factor.sql for factor in scan.block.factors))
        try:
            table = self.compute(plan, relations, nows, Engine.SPARK)
            # Its own metrics know nothing of what is read of local files.
            for scan, request in requests:
                asked = {column for factor in scan.block.factors for column in factor.columns}
                size = stored_bytes(request, self._store.cache, also=asked)
                self._store.read_elsewhere.note("spark", size)
            return table
        except LadleError as error:
            if _READING.search(error.message):
                for scan, request in requests:
                    self._store.damage.name(scan.block.stream, request.source.directory, request.files)
            raise

    def _tables(self, plan: Plan, catalog: Catalog, reader: Reader) -> dict[str, pa.Table]:
        return {each.relation: table_at(each, catalog, reader, self._store) for each in plan.tables}

    def _read(
        self,
        plan: Plan,
        catalog: Catalog,
        reader: Reader,
        extents: list[Extent],
        kept: KeptAnswer | None,
        *,
        but_for: Container[int],
    ) -> dict[str, Relation]:
        """What a plan reads, but for some of its scans, by number."""
        found: dict[str, Relation] = dict(self._tables(plan, catalog, reader))
        for number, (scan, extent) in enumerate(zip(plan.scans, extents, strict=True)):
            if number not in but_for:
                read = reader.read(scan, extent) if kept is None else kept.read(number, reader, scan, extent)
                found[scan.relation] = read
        return found

    def _beside(
        self, plan: Plan, catalog: Catalog, reader: Reader, extents: list[Extent], kept: KeptAnswer | None
    ) -> Read:
        """Reads what a statement above nodes reads beside their rows."""

        def read(relations: frozenset[str]) -> Mapping[str, pa.Table]:
            others = [number for number, scan in enumerate(plan.scans) if scan.relation not in relations]
            return self._read(plan, catalog, reader, extents, kept, but_for=others)

        return read

    def compute(
        self,
        plan: Plan,
        relations: Mapping[str, Relation],
        nows: Nows,
        engine: Engine,
        *,
        joined: bool = False,
        in_order: bool = False,
    ) -> pa.Table:
        """Run a residual over what was read for it; `joined` is the statement over joins, `in_order` one thread."""
        settings = self._store.settings
        if engine is Engine.SPARK:
            return self._pipeline().run_residual(plan, relations, nows, seconds_left(settings))
        return run_residual(
            plan,
            relations,
            nows,
            seconds_max=seconds_left(settings),
            memory_bytes_max=settings.residual_memory_bytes_max,
            joined=joined,
            in_order=in_order,
        )

    def _input_rows(self, plan: Plan, catalog: Catalog, reader: Reader, extents: list[Extent]) -> int:
        """An upper bound of the residual's input, without reading any of it."""
        of_streams = sum(reader.input_rows(scan, extent) for scan, extent in zip(plan.scans, extents, strict=True))
        return of_streams + sum(table_rows_at(each, catalog) for each in plan.tables)


def resolved(scan: Scan, extent: Extent) -> ResolvedWindow:
    """A scan's window for people."""
    rows = scan.window.rows if isinstance(scan.window, RowsWindow | KeyedRowsWindow) else None
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
