"""The status of a database, gathered from those who know."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ladle.catalog import Catalog, QueryState, StreamState, View
from ladle.clock import to_datetime
from ladle.collector import uncollected
from ladle.engine.analyze import operators
from ladle.engine.auto import Auto
from ladle.engine.background import Background
from ladle.engine.figures import Asked, Figures
from ladle.engine.ingest import Ingest
from ladle.engine.invoke import Invoker
from ladle.engine.maintenance import Maintenance
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.pipeline import Pipeline
from ladle.status import Pulse, QueryStatus, SourceStatus, StreamStatus
from ladle.stem.blocks import candidates


class Report:
    def __init__(self, store: Store, ingest: Ingest, background: Background, auto: Auto) -> None:
        self._store = store
        self._ingest = ingest
        self._background = background
        self._auto = auto

    def streams(self, catalog: Catalog) -> tuple[StreamStatus, ...]:
        return tuple(self._stream(stream) for stream in catalog.streams.values())

    def pulse(self, catalog: Catalog, invocations: int, sources: tuple[SourceStatus, ...]) -> Pulse:
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
        )

    def figures(self, asked: Asked, pipeline: Pipeline, invoker: Invoker, maintenance: Maintenance) -> Figures:
        busiest, others = asked.busiest()
        wall_us, epochs = self._store.clock.now_us(), self._ingest.epochs
        streams = self._store.catalog.streams.values()
        return Figures(
            {s.name: (wall_us - s.clock_us) / 1e6 for s in streams if s.event_time and s.clock_us is not None},
            {s.name: epochs[s.id] for s in streams if s.id in epochs},
            busiest,
            others,
            maintenance.derived_bytes,
            {
                "cache": self._store.cache.bytes,
                "aggregates": invoker.aggregates.bytes,
                "answers": self._background.all_kept_bytes,
            },
            pipeline.started,
            pipeline.restarts,
        )

    def queries(
        self, catalog: Catalog, invocations: Callable[[str], int], names: Iterable[str] | None = None
    ) -> tuple[QueryStatus, ...]:
        wall_us = self._store.clock.now_us()
        covering = _Covering(Reader(self._store, catalog, wall_us), catalog, wall_us)
        with uncollected():
            asked = catalog.queries.in_order() if names is None else map(catalog.query, names)
            known = (query for query in asked if query is not None)
            return tuple(self._query(covering, query, invocations(query.name)) for query in known)

    def problem(self, query: QueryState) -> str | None:
        """Why some segments stay uncovered for a query, when they do."""
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
        counts = covering.counts(query)
        return QueryStatus(
            query.name,
            query.sql,
            query.materialize.value,
            query.shape.window_kinds,
            sum(covered for covered, _ in counts),
            sum(total for _, total in counts),
            invocations,
            self.problem(query),
            self._background.kept_bytes(query),
            self._auto.mode(query).value,
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
        total, kinds = self._reader.covering(view.window, view.stream, now_us)
        return total, [(frozenset(blocks), count) for blocks, count in kinds]
