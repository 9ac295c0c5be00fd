"""What goes on while nobody asks: housekeeping on a beat, and after each commit complete answers and the backfill."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from ladle.catalog import QueryState, StreamState
from ladle.engine.auto import Auto
from ladle.engine.backfill import Backfill
from ladle.engine.complete import Kept
from ladle.engine.invoke import Invoker
from ladle.engine.maintenance import Maintenance
from ladle.engine.room import Room
from ladle.engine.store import Store
from ladle.errors import InvocationTimeout, LadleError
from ladle.pipeline import Pipeline
from ladle.sql.statements import Materialize

_log = logging.getLogger(__name__)

_RATE_SAMPLES = 10
_IDLE_LOOK_SECONDS = 5.0


class Background:
    def __init__(
        self,
        store: Store,
        pipeline: Pipeline,
        invoker: Invoker,
        backfill: Backfill,
        maintenance: Maintenance,
        auto: Auto,
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._invoker = invoker
        self._backfill = backfill
        self._maintenance = maintenance
        self._auto = auto
        self._room = Room(store.warehouse.derived, store.settings.retry_seconds_max)
        self._lock = threading.Lock()
        self._kept: dict[int, Kept] = {}
        self._rates: dict[int, deque[tuple[int, int]]] = {}
        self._stopping = threading.Event()
        self._work = threading.Event()
        self._threads: list[threading.Thread] = []
        self._stop_hearing: Callable[[], None] | None = None

    def start(self) -> None:
        for name, target in (("maintenance", self._maintain_loop), ("work", self._work_loop)):
            thread = threading.Thread(target=target, name=f"ladle-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._stop_hearing = self._store.on_commit(lambda _: self._work.set())

    def stop(self) -> None:
        if self._stop_hearing is not None:
            self._stop_hearing()
        self._stopping.set()
        self._work.set()
        if self._threads:
            self._pipeline.cancel_backfills()
        for thread in self._threads:
            thread.join()

    @property
    def problems(self) -> dict[str, str]:
        """What could not be done in the last round of housekeeping, and why the backfill pauses, by task; and damaged
        files, by name.
        """
        trouble = self._room.trouble
        paused = {} if trouble is None else {"backfill": trouble}
        return {**self._maintenance.errors, **paused, **self._store.damage.known}

    def kept(self, query: QueryState) -> Kept | None:
        """The kept rows of a complete query; none in a process that only reads, where nobody bounds them."""
        if self._auto.mode(query) is not Materialize.COMPLETE or not self._threads:
            return None
        with self._lock:
            if query.id not in self._kept:
                self._kept[query.id] = Kept(query.plan)
            return self._kept[query.id]

    def asked(self, query: QueryState) -> Kept | None:
        """The same, for an invocation: a query that is asked for is the last to be swapped out."""
        kept = self.kept(query)
        if kept is not None:
            kept.asked_at = time.monotonic()
        return kept

    def answered(self, query: QueryState, table: pa.Table) -> None:
        """An invocation is done: what is kept of a query follows how it is asked."""
        if self._threads and self._auto.asked(query, table):
            self._work.set()

    def kept_bytes(self, query: QueryState) -> int:
        with self._lock:
            kept = self._kept.get(query.id)
        return 0 if kept is None else kept.bytes

    @property
    def all_kept_bytes(self) -> int:
        """Memory that the rows of complete queries take."""
        with self._lock:
            return sum(kept.bytes for kept in self._kept.values())

    def rows_per_second(self, stream: StreamState) -> float:
        """Over the last few beats of housekeeping."""
        samples = list(self._rates.get(stream.id, ()))
        if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
            return 0.0
        return (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0]) * 1e6

    def _maintain_loop(self) -> None:
        while not self._stopping.wait(self._store.settings.maintenance_seconds):
            self._sample_rates()
            if self._auto.look():
                self._work.set()
            self._maintenance.run()

    def _sample_rates(self) -> None:
        now_us = self._store.clock.now_us()
        rates = {}
        for stream in self._store.catalog.streams.values():
            rates[stream.id] = self._rates.get(stream.id) or deque(maxlen=_RATE_SAMPLES)
            rates[stream.id].append((now_us, stream.rows))
        self._rates = rates

    def _work_loop(self) -> None:
        more, refreshed = False, 0.0
        while not self._stopping.is_set():
            pause_seconds = self._room.pause_seconds_left
            woken = self._work.wait(0.0 if more else min(pause_seconds or _IDLE_LOOK_SECONDS, _IDLE_LOOK_SECONDS))
            self._work.clear()
            if self._stopping.is_set():
                return
            try:
                # Between the jobs of a backfill complete answers follow what was committed, and the clock.
                if woken or time.monotonic() - refreshed >= _IDLE_LOOK_SECONDS:
                    self._refresh_complete()
                    refreshed = time.monotonic()
                more = self._pipeline.started and not self._room.pause_seconds_left and self._backfills()
            except Exception as error:  # this thread serves every stream and query: it goes on, whatever happened
                more = False
                if not self._store.closing.is_set():
                    _log.warning("background work: %s", error, exc_info=not isinstance(error, LadleError))

    def _backfills(self) -> bool:
        """One round of the backfill; whether to go on."""
        try:
            jobs = self._backfill.round(self._stopping)
        except Exception as error:
            if self._store.closing.is_set():
                return False  # whoever opens the warehouse next goes on
            self._room.failed(error.message if isinstance(error, LadleError) else f"{type(error).__name__}: {error}")
            raise
        if self._backfill.stuck:
            self._room.failed()
        else:
            self._room.succeeded()
        return jobs > 0

    def _refresh_complete(self) -> None:
        queries = [*self._store.catalog.queries.complete.values(), *self._auto.complete()]
        with self._lock:
            standing = {query.id for query in queries}
            self._kept = {query: kept for query, kept in self._kept.items() if query in standing}
        complete = [(kept, query) for query in queries if (kept := self.kept(query)) is not None]
        left = self._store.settings.kept_bytes_max
        for kept, query in sorted(complete, key=lambda pair: pair[0].asked_at, reverse=True):
            if kept.too_slow or self._stopping.is_set():
                continue
            if left <= 0:
                kept.swap_out()
                continue
            try:
                with self._store.pin() as catalog:
                    current = catalog.query(query.name)
                    if current is None or current.id != query.id:
                        continue
                    self._invoker.answer(query.plan, catalog, kept=kept)
            except InvocationTimeout as error:
                # The others would wait for it after every commit; it is computed when somebody asks.
                kept.too_slow = True
                _log.warning("complete query %s is no longer kept current: %s", query.name, error)
            except LadleError as error:
                # The one who invokes it is told.
                _log.debug("complete query %s: %s", query.name, error)
            left -= kept.bytes
