"""Spark streaming DataFrames that flow into streams: attached, watched, let go of with the stream or the database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ladle.catalog import INBOX
from ladle.engine.definitions import base_stream
from ladle.engine.ingest import Ingest
from ladle.engine.store import Store
from ladle.errors import AlreadyExists, InUse, LadleError, WarehouseError
from ladle.pipeline import Attached, Pipeline
from ladle.stem.intake import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AT_WORK = ("running", "restarting")


class Sources:
    def __init__(self, store: Store, ingest: Ingest, pipeline: Callable[[], Pipeline]) -> None:
        self._store = store
        self._ingest = ingest
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._attached: dict[tuple[str, str], Attached] = {}

    @property
    def attached(self) -> list[Attached]:
        """All that were attached since the database was opened."""
        with self._lock:
            return list(self._attached.values())

    def attach(self, stream: str, batches: DataFrame, source: str, *, available_now: bool) -> Attached:
        state = base_stream(self._store.catalog, stream)
        if not source or source.lower() == INBOX or not source.replace("-", "").replace("_", "").isalnum():
            raise LadleError(f"'{source}' can't name a source.", hint="use letters, digits, - and _; not 'inbox'")
        check_columns(self._pipeline().batch_schema(batches), state.schema, state.name)
        key = (state.name, source)
        checkpoint = self._store.warehouse.stream(state.id).sources / source
        if source in state.batches and not checkpoint.exists():
            raise WarehouseError(
                f"Source '{source}' of stream '{state.name}' has delivered {state.batches[source] + 1} batches, but "
                f"its checkpoint is gone; going on would lose or repeat rows.",
                hint="restore it, or attach under a new source name",
            )

        def run(batch: Any, number: int) -> None:
            self._ingest.take_in(
                state.name, state.id, source, number, lambda task: self._pipeline().run_batch(task, batch)
            )

        with self._lock:
            running = self._attached.get(key)
            if running is not None and running.state in _AT_WORK:
                raise AlreadyExists(f"Source '{source}' of stream '{state.name}' is running.", hint="stop it first")
            checkpoint.mkdir(parents=True, exist_ok=True)
            attached = self._pipeline().attach(
                state.name,
                source,
                batches,
                checkpoint,
                run,
                available_now=available_now,
                retry_seconds_max=self._store.settings.retry_seconds_max,
            )
            self._attached[key] = attached
        if available_now:
            attached.await_drained()
        return attached

    def release(self, stream: str, *, cascade: bool) -> None:
        """Before a stream goes: stop what flows into it, or refuse."""
        for attached in self.attached:
            if attached.stream == stream and attached.state in _AT_WORK:
                if not cascade:
                    raise InUse(
                        f"Source '{attached.source}' is attached to stream '{stream}'.",
                        hint="stop it first, or drop with CASCADE",
                    )
                attached.stop()

    def stop(self) -> None:
        for attached in self.attached:
            attached.stop()
