"""What flows into streams by itself: attached DataFrames, and sources defined in SQL; watched while the database is
open, let go of with the stream or the database.

A defined source is an entry of the log and outlives the process. It runs in the process that defined it, and in one
that says that it is there to run them (`start_sources`, which `ladle serve` does): one that opens the warehouse for a
statement starts nothing.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from ladle import catalog as entries
from ladle.archive.files import make_private
from ladle.catalog import INBOX, Catalog, SourceState, StreamState, source_of_key
from ladle.catalog.entry_types import Entry
from ladle.catalog.store import Store
from ladle.define.definitions import base_stream, check_name
from ladle.define.source_definitions import MQTT, ListedSource, checked_options, shown_options
from ladle.errors import AlreadyExists, LadleError, WarehouseError, unknown
from ladle.ingest.epochs import Ingest
from ladle.ingest.running_source import AT_WORK, Defined
from ladle.pipeline import Attached, Batches, Pipeline
from ladle.pipeline.interface import OwnBatch
from ladle.schema import StreamSchema
from ladle.sql.statement_types import CreateSource
from ladle.status import SourceStatus
from ladle.stem.intake import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SETTLE_SECONDS = 1.0
_NOT_HERE = "defined"
"""The state of a source that does not run in this process."""


class Sources:
    """Runs the sources of a database, and starts those again that fail."""

    def __init__(self, store: Store, ingest: Ingest, pipeline: Callable[[], Pipeline]) -> None:
        self._store = store
        self._ingest = ingest
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._attached: dict[tuple[str, str], Attached] = {}
        self._defined: dict[int, Defined] = {}
        self._stopped = False

    # -- attached --

    @property
    def attached(self) -> list[Attached]:
        """All that were attached since the database was opened."""
        with self._lock:
            return list(self._attached.values())

    def attach(self, stream: str, batches: DataFrame | Batches, source: str, *, available_now: bool) -> Attached:
        """Let a streaming DataFrame flow into a stream, under a durable name."""
        state = base_stream(self._store.catalog, stream)
        if not source or source.lower() == INBOX or not source.replace("-", "").replace("_", "").isalnum():
            raise LadleError(f"'{source}' can't name a source.", hint="use letters, digits, - and _; not 'inbox'")
        check_columns(self._pipeline().batch_schema(batches), state.schema, state.name)
        key = (state.name, source)
        with self._lock:
            running = self._attached.get(key)
            if running is not None and running.state in AT_WORK:
                raise AlreadyExists(f"Source '{source}' of stream '{state.name}' is running.", hint="stop it first")
            attached = self._begin(state, batches, source, available_now=available_now)
            self._attached[key] = attached
        if available_now:
            attached.await_drained()
        return attached

    def _begin(self, state: StreamState, batches: OwnBatch, key: str, *, available_now: bool) -> Attached:
        """Have a DataFrame's batches taken in, from where the source with that key was."""
        checkpoint = self._store.warehouse.stream(state.id).sources / key
        if key in state.batches and not checkpoint.exists():
            raise WarehouseError(
                f"Source '{source_of_key(key)}' of stream '{state.name}' has delivered {state.batches[key] + 1} "
                f"batches, but its checkpoint is gone; going on would lose or repeat rows.",
                hint="restore it, or begin anew under a new source name",
            )

        def run(batch: OwnBatch, number: int) -> None:
            self._ingest.take_in(
                state.name, state.id, key, number, lambda task: self._pipeline().run_batch(task, batch)
            )

        make_private(checkpoint.parent)
        checkpoint.mkdir(exist_ok=True)
        return self._pipeline().attach(
            state.name,
            key,
            batches,
            checkpoint,
            run,
            available_now=available_now,
            retry_seconds_max=self._store.settings.retry_seconds_max,
        )

    # -- defined --

    def create(self, wanted: CreateSource) -> bool:
        """Whether the source is new: with `if_not_exists` it may have been there."""
        check_name("source", wanted.name)
        if wanted.name.lower() == INBOX:
            raise LadleError(f"'{wanted.name}' can't name a source: pushes have it.")
        options = checked_options(wanted.name, wanted.format, wanted.options)

        def make_entry(catalog: Catalog) -> Entry | None:
            known = catalog.source(wanted.name)
            if known is not None:
                if wanted.if_not_exists:
                    return None
                raise AlreadyExists(
                    f"There is a source '{known.name}' already, of stream '{known.stream}'.",
                    hint="choose another name, drop it first, or keep it with IF NOT EXISTS",
                )
            stream = base_stream(catalog, wanted.stream).name
            now_us = self._store.clock.now_us()
            return entries.create_source(wanted.name, stream, wanted.format, options, now_us)

        committed = self._store.commit(make_entry)
        if committed is None:
            return False
        self._run([committed.sources[wanted.name.lower()]])
        return True

    def drop(self, name: str, *, if_exists: bool) -> None:
        """Drop a source that is defined: stop it, and forget how far it was."""
        dropped: list[SourceState] = []

        def make_entry(catalog: Catalog) -> Entry | None:
            found = catalog.source(name)
            if found is None:
                if if_exists:
                    return None
                raise unknown("source", name, [source.name for source in catalog.sources.values()])
            dropped.append(found)
            return entries.drop_source(found.name)

        before = self._store.catalog
        if self._store.commit(make_entry) is not None:
            self._forget(dropped, before)

    def start(self) -> None:
        """Run what is defined, in threads of its own."""
        self._run(list(self._store.catalog.sources.values()))

    def sources(self, catalog: Catalog) -> list[ListedSource]:
        """What is defined, and how it fares here."""
        states = {status.name: status for status in self.statuses(catalog) if status.name.lower() in catalog.sources}
        return [
            ListedSource(
                each.name,
                each.stream,
                each.format,
                shown_options(each),
                states[each.name].state,
                states[each.name].error,
                states[each.name].restarts,
            )
            for each in catalog.sources.values()
        ]

    def statuses(self, catalog: Catalog) -> tuple[SourceStatus, ...]:
        """First what was attached, then what is defined."""
        attached = [_status(catalog, each.stream, each.source, each.source, each) for each in self.attached]
        with self._lock:
            running = dict(self._defined)
        defined = [
            _status(catalog, each.stream, each.name, each.key, running.get(each.id))
            for each in catalog.sources.values()
        ]
        return (*attached, *defined)

    def _run(self, sources: list[SourceState]) -> None:
        settle_seconds = 0.0 if self._pipeline().started else _SETTLE_SECONDS
        with self._lock:
            for source in sources:
                # Another thread may have dropped it since.
                if source.id not in self._defined and not self._stopped and self._is_defined(source):
                    self._defined[source.id] = self._define(source, settle_seconds)

    def _is_defined(self, source: SourceState) -> bool:
        known = self._store.catalog.source(source.name)
        return known is not None and known.id == source.id

    def _define(self, source: SourceState, settle_seconds: float) -> Defined:
        return Defined(
            source,
            lambda: self._start(source),
            lambda: self._schema(source),
            settle_seconds=settle_seconds,
            retry_seconds_max=self._store.settings.retry_seconds_max,
        )

    def _schema(self, source: SourceState) -> StreamSchema | None:
        stream = self._store.catalog.stream(source.stream)
        return None if stream is None else stream.schema

    def _start(self, source: SourceState) -> tuple[Attached, StreamSchema]:
        state = base_stream(self._store.catalog, source.stream)
        if source.format == MQTT:
            from ladle.ingest.mqtt import MqttSource

            listener = MqttSource(
                state.name, source.name, dict(source.options), state.schema, lambda rows: self._push(source, rows)
            )
            listener.start()
            return listener, state.schema
        batches = self._pipeline().read(source.format, dict(source.options), state.schema.declared)
        check_columns(self._pipeline().batch_schema(batches), state.schema, state.name)
        return self._begin(state, batches, source.key, available_now=False), state.schema

    def _push(self, source: SourceState, rows: pa.Table) -> None:
        if not self._is_defined(source):
            raise unknown("source", source.name, [each.name for each in self._store.catalog.sources.values()])
        state = base_stream(self._store.catalog, source.stream)
        self._ingest.push(state, rows)
        self._ingest.drain_later(state)

    def _forget(self, sources: list[SourceState], before: Catalog) -> None:
        """Let go of what was defined, and of what was kept for it here and elsewhere."""
        with self._lock:
            running = [self._defined.pop(source.id) for source in sources if source.id in self._defined]
        for each in running:
            each.stop()
        for source in sources:
            stream = before.stream(source.stream)
            if stream is not None:
                shutil.rmtree(self._store.warehouse.stream(stream.id).sources / source.key, ignore_errors=True)
            if source.format == MQTT:
                from ladle.ingest.mqtt import forget_session

                forget_session(dict(source.options))

    # -- the end --

    def at_work(self, stream: str) -> list[str]:
        """The names of sources that are attached to a stream and run."""
        return [each.source for each in self.attached if each.stream == stream and each.state in AT_WORK]

    def release(self, stream: str) -> None:
        """Before a stream goes: stop what is attached to it."""
        for attached in self.attached:
            if attached.stream == stream and attached.state in AT_WORK:
                attached.stop()

    def forget_dropped(self, before: Catalog) -> None:
        """After a stream went: let go of what was defined for it."""
        self._forget([source for source in before.sources.values() if not self._is_defined(source)], before)

    def stop(self) -> None:
        """Stop all sources. They go on where they were when they are started again."""
        with self._lock:
            self._stopped = True
            running = list(self._defined.values())
        for attached in self.attached:
            attached.stop()
        for defined in running:
            defined.stop()


def _status(catalog: Catalog, stream: str, name: str, key: str, running: Attached | Defined | None) -> SourceStatus:
    found = catalog.stream(stream)
    batch = found.batches.get(key) if found is not None else None
    if running is None:
        return SourceStatus(stream, name, _NOT_HERE, None, 0, batch)
    return SourceStatus(stream, name, running.state, running.error, running.restarts, batch)
