"""The status of a database, gathered from those who know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from ladle.catalog import Catalog, QueryState, StreamState, View
from ladle.catalog.store import Store
from ladle.clock import to_datetime
from ladle.collector import uncollected
from ladle.derived import Place, Row
from ladle.execute.demands import Demands
from ladle.execute.explain_analyze import operators
from ladle.execute.reader import Reader
from ladle.housekeeping.background import Background
from ladle.ingest.epochs import Ingest
from ladle.ingest.figures import Figures, Invocations
from ladle.pipeline import Pipeline
from ladle.schema import TIMESTAMP
from ladle.status import Budgets, DerivedStatus, Pulse, QueryStatus, SourceStatus, StreamStatus
from ladle.stem.blocks import candidates


class Report:
    """Gathers what `db.status()` and the figures of a server tell."""

    def __init__(self, store: Store, ingest: Ingest, background: Background, demands: Demands) -> None:
        self._store = store
        self._ingest = ingest
        self._background = background
        self._demands = demands

    def streams(self, catalog: Catalog) -> tuple[StreamStatus, ...]:
        """How the streams are."""
        return tuple(self._stream(stream) for stream in catalog.streams.values())

    def pulse(self, catalog: Catalog, invocations: int, sources: tuple[SourceStatus, ...]) -> Pulse:
        """What changes all the time."""
        streams, cache = catalog.streams.values(), self._store.cache
        return Pulse(
            catalog.epoch,
            len(catalog.queries),
            invocations,
            self.streams(catalog),
            sources,
            {s.name: operators(self._ingest.tickets(s), s.schema.arrow.names) for s in streams},
            cache.hits,
            cache.misses,
            self.derived(),
            self.budgets,
        )

    def derived(self) -> tuple[DerivedStatus, ...]:
        """What there is of each kind of derived state."""
        began = self._store.derived.began
        return tuple(_derived(row, began) for row in self._store.derived.report())

    @property
    def budgets(self) -> Budgets:
        """What derived state may take."""
        allowed = self._store.derived.bytes_max
        return Budgets(allowed[Place.MEMORY], allowed[Place.DISK])

    def figures(self, asked: Invocations, pipeline: Pipeline) -> Figures:
        """The figures of the database, for Prometheus."""
        busiest, others = asked.busiest()
        wall_us, epochs = self._store.clock.now_us(), self._ingest.epochs
        streams, cache = self._store.catalog.streams.values(), self._store.cache
        return Figures(
            {s.name: (wall_us - s.clock_us) / 1e6 for s in streams if s.event_time and s.clock_us is not None},
            {s.name: epochs[s.id] for s in streams if s.id in epochs},
            busiest,
            others,
            {"files": cache.bytes_read, "memory": cache.bytes_served} | self._store.read_elsewhere.by_purpose,
            cache.segments_skipped,
            pipeline.started,
            pipeline.restarts,
        )

    def queries(
        self, catalog: Catalog, invocations: Callable[[str], int], names: Iterable[str] | None = None
    ) -> tuple[QueryStatus, ...]:
        """How the standing queries are; with `names`, those alone."""
        wall_us = self._store.clock.now_us()
        if names is None:
            catalog.queries.index  # noqa: B018 (binds them all at once)
        covering = _Covering(Reader(self._store, catalog, wall_us), catalog, wall_us)
        with uncollected():
            asked = catalog.queries.in_order() if names is None else map(catalog.query, names)
            known = (query for query in asked if query is not None)
            return tuple(self._query(covering, query, invocations(query.name)) for query in known)

    def problem(self, query: QueryState) -> str | None:
        """Why a query is broken, or why some segments stay uncovered for it, when they do."""
        if query.broken is not None:
            return f"broken: {query.broken}"
        reasons = (self._ingest.troubles.reason(block) for block in query.blocks)
        return next((reason for reason in reasons if reason is not None), None)

    def _stream(self, stream: StreamState) -> StreamStatus:
        return StreamStatus(
            stream.name,
            stream.rows,
            stream.retained_rows,
            stream.epochs,
            self._background.rows_per_second(stream),
            None if stream.clock_us is None else to_datetime(stream.clock_us),
            self._ingest.pending(stream),
            stream.quarantine.rows if stream.quarantine is not None else 0,
            len(stream.files),
            sum(file.bytes for file in stream.files),
            self._ingest.error(stream),
            None if stream.lateness_us is None else stream.lateness_us / 1e6,
            stream.idle_since > 0,
        )

    def _query(self, covering: _Covering, query: QueryState, invocations: int) -> QueryStatus:
        broken = query.broken is not None
        counts = [] if broken else covering.counts(query)
        return QueryStatus(
            query.name,
            query.sql,
            query.materialize.value,
            "broken" if broken else query.shape.window_kinds,
            sum(covered for covered, _ in counts),
            sum(total for _, total in counts),
            invocations,
            self.problem(query),
            self._background.answers.bytes_of(query),
            self._demands.level(query).mode,
        )


def derived_table(kinds: Sequence[DerivedStatus]) -> pa.Table:
    """What SHOW DERIVED shows."""
    return pa.table(
        {
            "kind": pa.array([each.kind for each in kinds], pa.string()),
            "place": pa.array([each.place for each in kinds], pa.string()),
            "things": pa.array([each.things for each in kinds], pa.int64()),
            "coverage": pa.array([each.coverage for each in kinds], pa.float64()),
            "memory_bytes": pa.array([each.memory_bytes for each in kinds], pa.int64()),
            "disk_bytes": pa.array([each.disk_bytes for each in kinds], pa.int64()),
            "rebuild_seconds": pa.array([each.rebuild_seconds for each in kinds], pa.float64()),
            "last_used": pa.array([each.last_used for each in kinds], TIMESTAMP),
            "evictions": pa.array([each.evictions for each in kinds], pa.int64()),
            "rebuilt": pa.array([each.rebuilt for each in kinds], pa.string()),
        }
    )


def _derived(row: Row, began: float) -> DerivedStatus:
    account, memory = row.account, row.place is Place.MEMORY
    used = None if account.used is None else datetime.fromtimestamp(began + account.used, UTC)
    return DerivedStatus(
        row.kind,
        row.place.value,
        account.things,
        account.covered / account.wanted if account.wanted else None,
        account.bytes if memory else 0,
        0 if memory else account.bytes,
        account.seconds,
        used,
        row.evictions,
        row.rebuilt,
    )


class _Covering:
    """How much of the windows of queries is covered. Those that look through the same window are looked at once."""

    def __init__(self, reader: Reader, catalog: Catalog, wall_us: int) -> None:
        self._reader = reader
        self._catalog = catalog
        self._wall_us = wall_us
        self._views: dict[View, tuple[int, list[tuple[frozenset[int], int]]]] = {}

    def counts(self, query: QueryState) -> list[tuple[int, int]]:
        """How many segments of each scan's window are covered, and how many there are."""
        counts = []
        for scan, factors, block in zip(query.shape.scans, query.factors, query.blocks, strict=True):
            view = View(scan.stream, scan.window, query.shape.streams)
            if view not in self._views:
                self._views[view] = self._look(view)
            total, kinds = self._views[view]
            covered = sum(count for blocks, count in kinds if block in blocks or candidates(block) in blocks)
            counts.append((covered if factors else total, total))
        return counts

    def _look(self, view: View) -> tuple[int, list[tuple[frozenset[int], int]]]:
        now_us = self._catalog.now_us(view.streams, self._wall_us)
        total, kinds = self._reader.covering(view.window, view.stream, now_us, view.streams)
        return total, [(frozenset(blocks), count) for blocks, count in kinds]
