"""What goes on while nobody asks: housekeeping on a beat, and after each commit complete answers and the backfill."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from ladle.catalog import QueryState, StreamState
from ladle.catalog.store import Store
from ladle.derived import Level
from ladle.errors import InvocationTimeout, LadleError
from ladle.execute.complete_answers import Answers, KeptAnswer
from ladle.execute.demands import Demands
from ladle.execute.invoke import Invoker
from ladle.housekeeping.maintenance import Maintenance
from ladle.housekeeping.room import Room
from ladle.ingest.backfill import Backfill
from ladle.pipeline import Pipeline

_log = logging.getLogger(__name__)

_RATE_SAMPLES = 10
_IDLE_LOOK_SECONDS = 5.0


class Background:
    """The threads that do housekeeping, backfills and complete answers while the database is open."""

    def __init__(
        self,
        store: Store,
        pipeline: Pipeline,
        invoker: Invoker,
        backfill: Backfill,
        maintenance: Maintenance,
        demands: Demands,
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._invoker = invoker
        self._backfill = backfill
        self._maintenance = maintenance
        self._demands = demands
        self.answers = Answers(store.derived)
        self._room = Room(store.warehouse.derived, store.settings.retry_seconds_max)
        self._rates: dict[int, deque[tuple[int, int]]] = {}
        self._stopping = threading.Event()
        self._work = threading.Event()
        self._threads: list[threading.Thread] = []
        self._stop_hearing: Callable[[], None] | None = None

    def start(self) -> None:
        """Start the threads."""
        for name, target in (("maintenance", self._maintain_loop), ("work", self._work_loop)):
            thread = threading.Thread(target=target, name=f"ladle-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._stop_hearing = self._store.on_commit(lambda _: self._work.set())

    def stop(self) -> None:
        """Stop the threads. A backfill that is under way is cancelled."""
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

    def kept(self, query: QueryState) -> KeptAnswer | None:
        """The kept rows and answer of a query whose answer is demanded; none in a process that only reads, where
        nobody keeps them current.
        """
        return self.answers.of(query) if self._keeps(self._demands.level(query)) else None

    def asked(self, query: QueryState, level: Level) -> KeptAnswer | None:
        """What is kept of a query that is asked at this level. What is asked for is the last to be dropped."""
        return self.answers.asked(query) if self._keeps(level) else None

    def answered(self, query: QueryState, table: pa.Table) -> None:
        """An invocation is done: what is demanded for a query follows how it is asked."""
        if self._threads and self._demands.asked(query, table):
            self._work.set()

    def _keeps(self, level: Level) -> bool:
        return bool(self._threads) and level is Level.ANSWER

    def rows_per_second(self, stream: StreamState) -> float:
        """Over the last few beats of housekeeping."""
        samples = list(self._rates.get(stream.id, ()))
        if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
            return 0.0
        return (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0]) * 1e6

    def _maintain_loop(self) -> None:
        while not self._stopping.wait(self._store.settings.maintenance_seconds):
            self.beat()

    def beat(self) -> None:
        """Look at rates and demands, and do one round of housekeeping."""
        self._sample_rates()
        if self._demands.look():
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
        demanded = self._demands.with_answers(self._store.catalog)
        queries = [query for query in demanded if self._keeps(self._demands.level(query))]
        queries = [query for query in queries if query.broken is None]
        self.answers.keep_only({query.id for query in queries})
        for kept, query in self.answers.current(queries):
            if kept.too_slow or self._stopping.is_set():
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
            finally:
                self.answers.note(query)
