"""The status of a database, gathered from those who know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ladle.catalog import Catalog, QueryState, StreamState
from ladle.clock import to_datetime
from ladle.engine.background import Background
from ladle.engine.ingest import Ingest
from ladle.engine.invoke import now_of
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.pipeline import Attached
from ladle.status import QueryStatus, SourceStatus, StreamStatus


class Report:
    def __init__(self, store: Store, ingest: Ingest, background: Background) -> None:
        self._store = store
        self._ingest = ingest
        self._background = background

    def streams(self, catalog: Catalog) -> tuple[StreamStatus, ...]:
        return tuple(self._stream(stream) for stream in catalog.streams.values())

    def queries(self, catalog: Catalog, invocations: Mapping[str, int]) -> tuple[QueryStatus, ...]:
        wall_us = self._store.clock.now_us()
        reader = Reader(self._store, catalog, wall_us)
        return tuple(
            self._query(reader, query, now_of(query.plan, catalog, wall_us), invocations.get(query.name, 0))
            for query in catalog.queries.values()
        )

    def sources(self, catalog: Catalog, attached: Iterable[Attached]) -> tuple[SourceStatus, ...]:
        return tuple(_source(catalog, source) for source in attached)

    def problem(self, query: QueryState) -> str | None:
        """Why some segments stay uncovered for a query, when they do."""
        reasons = (self._ingest.suspended.get(block) or self._ingest.failing.get(block) for block in query.blocks)
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
        )

    def _query(self, reader: Reader, query: QueryState, now_us: int, invocations: int) -> QueryStatus:
        counts = [reader.count_covered(scan, reader.extent(scan, now_us)) for scan in query.plan.scans]
        return QueryStatus(
            query.name,
            query.sql,
            query.materialize.value,
            ", ".join(dict.fromkeys(scan.window.kind.value for scan in query.plan.scans)),
            sum(covered for covered, _ in counts),
            sum(total for _, total in counts),
            invocations,
            self.problem(query),
            self._background.kept_bytes(query),
        )


def _source(catalog: Catalog, attached: Attached) -> SourceStatus:
    stream = catalog.stream(attached.stream)
    batch = stream.batches.get(attached.source) if stream is not None else None
    return SourceStatus(attached.stream, attached.source, attached.state, attached.error, attached.restarts, batch)
