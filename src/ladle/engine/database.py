"""The database: one warehouse, opened by one process for writing or by any for reading."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from ladle import catalog as entries
from ladle import sql
from ladle.answer import Answer
from ladle.archive.warehouse import Warehouse
from ladle.catalog import Catalog, QueryState, StreamState
from ladle.clock import Clock, WallClock, to_datetime
from ladle.config import Settings
from ladle.engine.backfill import Backfill
from ladle.engine.complete import Kept
from ladle.engine.explain import explain_plan, explain_query
from ladle.engine.ingest import Ingest, require_stream
from ladle.engine.invoke import Invoker, now_of
from ladle.engine.maintenance import Maintenance
from ladle.engine.reader import Reader
from ladle.engine.rows import as_table
from ladle.engine.store import Store
from ladle.errors import AlreadyExists, Closed, InUse, LadleError, ReadOnly, SqlError, WarehouseError, unknown
from ladle.pipeline import Attached, Pipeline
from ladle.plan import Plan
from ladle.schema import Column, StreamSchema
from ladle.sql.statements import Materialize
from ladle.status import BackfillStatus, QueryStatus, SourceStatus, Status, StreamStatus
from ladle.stem.intake import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stream:
    """A stream, as it was when asked for."""

    name: str
    schema: StreamSchema
    retain_us: int | None
    rows: int
    epochs: int


class Asked(Protocol):
    """What answers for a query: a database here, or one reached through another process."""

    def invoke(self, name: str, *, now: datetime | None = None) -> Answer: ...

    def explain(self, text: str) -> str: ...

    def unregister(self, name: str) -> None: ...


class Query:
    """The handle of a standing query. It stays good while the client is away, also in another process."""

    def __init__(self, database: Asked, name: str, sql_text: str, materialize: Materialize) -> None:
        self._database = database
        self.name = name
        self.sql = sql_text
        self.materialize = materialize.value

    def invoke(self, *, now: datetime | None = None) -> Answer:
        """The answer over the current window, or over the window as it would be at another NOW."""
        return self._database.invoke(self.name, now=now)

    def explain(self) -> str:
        return self._database.explain(self.name)

    def unregister(self) -> None:
        self._database.unregister(self.name)

    def __repr__(self) -> str:
        return f"Query({self.name!r}, {self.sql!r})"


class Database:
    """Made by `ladle.connect`. A context manager; every method may be called from any thread."""

    def __init__(
        self,
        path: str | Path,
        *,
        pipeline: Pipeline,
        read_only: bool,
        clock: Clock | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self._pipeline = pipeline
        self._settings = Settings.load(settings)
        warehouse = Warehouse.open(path, writable=not read_only)
        try:
            self._store = Store(warehouse, clock or WallClock(), self._settings)
        except BaseException:
            warehouse.close()
            raise
        self._ingest = Ingest(self._store, self._get_pipeline)
        self._invoker = Invoker(self._store, self._get_pipeline)
        self._backfill = Backfill(self._store, self._ingest, self._get_pipeline)
        self._maintenance = Maintenance(self._store, self._ingest)
        self._attached: dict[tuple[str, str], Attached] = {}
        self._kept: dict[int, Kept] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._work = threading.Event()
        self._invocations: Counter[str] = Counter()
        self._rates: dict[str, deque[tuple[int, int]]] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._on_close: list[Callable[[], None]] = []
        if not read_only:
            self._start_threads()

    # -- SQL --

    def sql(self, text: str) -> Answer:
        """Run one statement. A SELECT is answered once, without standing."""
        answers = self.execute(text)
        if len(answers) != 1:
            raise SqlError(f"Expected one statement, found {len(answers)}.", hint="use execute(...) for scripts")
        return answers[0]

    def execute(self, text: str) -> list[Answer]:
        """Run the statements of a script, one after the other; the first that fails ends it."""
        from ladle.engine.statements import run_statement

        return [run_statement(self, statement) for statement in sql.statements(text)]

    def select(self, plan: Plan) -> Answer:
        return self._invoker.answer(plan)

    # -- streams --

    def create_stream(
        self,
        name: str,
        schema: StreamSchema,
        *,
        retain_us: int | None = None,
        max_ahead_us: int | None = None,
        if_not_exists: bool = False,
    ) -> None:
        def make_entry(catalog: Catalog) -> dict[str, object] | None:
            if catalog.stream(name) is not None and if_not_exists:
                return None
            _refuse_taken(catalog, name)
            return entries.create_stream(name, schema, retain_us, max_ahead_us)

        self._store.commit(make_entry)

    def drop_stream(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        def dependents(catalog: Catalog) -> list[str]:
            return catalog.queries_on(name)

        catalog = self._store.catalog
        stream = catalog.streams.get(name.lower())
        if stream is None:
            if if_exists:
                return
            raise unknown("stream", name, catalog.stream_names())
        for attached in self._attached_to(stream.name):
            if not cascade:
                raise InUse(
                    f"Source '{attached.source}' is attached to stream '{stream.name}'.",
                    hint="stop it first, or drop with CASCADE",
                )
            attached.stop()
        if cascade:
            self._unregister([*dependents(catalog)], cascade=True)

        def make_entry(newest: Catalog) -> dict[str, object] | None:
            standing = dependents(newest)
            if standing:
                raise InUse(
                    f"Stream '{stream.name}' can't be dropped: queries stand on it: {', '.join(sorted(standing))}.",
                    hint="drop them first, or use CASCADE",
                )
            return entries.drop_stream(stream.name)

        self._store.commit(make_entry)

    def add_column(self, stream: str, column: Column) -> None:
        """Give a stream one more column; it is NULL in the tuples that came before."""

        def make_entry(catalog: Catalog) -> dict[str, object]:
            state = _base_stream(catalog, stream)
            state.schema.with_column(column)
            return entries.add_column(state.name, column)

        self._store.commit(make_entry)

    def set_retain(self, stream: str, retain_us: int | None) -> None:
        """Change how long a stream's tuples are kept; None is for ever."""
        self._store.commit(lambda catalog: entries.set_retain(_base_stream(catalog, stream).name, retain_us))

    @property
    def catalog(self) -> Catalog:
        """The newest snapshot."""
        return self._snapshot()

    def streams(self) -> list[Stream]:
        return [Stream(s.name, s.schema, s.retain_us, s.rows, s.epochs) for s in self._snapshot().streams.values()]

    def push(self, stream: str, rows: Any, *, wait: bool = False) -> int | None:
        """Hand rows over. They are durable when this returns; with `wait`, visible too, and the epoch is returned.

        Rows are dictionaries, an Arrow table or a pandas DataFrame. Those that don't fit go to the stream's quarantine
        with the reason; the others go on.
        """
        self._require_writable()
        state = _base_stream(self._store.catalog, stream)
        table = as_table(rows, state)
        if len(table) == 0:
            return self._store.catalog.epoch if wait else None
        number = self._ingest.push(state, table)
        if not wait:
            self._ingest.drain_later(state)
            return None
        try:
            return self._ingest.drain(state, number)
        except LadleError as error:
            self._ingest.drain_later(state)
            error.hint = f"the rows are safe in the inbox and are taken in when the cause is gone; {error.hint or ''}"
            raise

    def attach(
        self,
        stream: str,
        batches: DataFrame,
        *,
        source: str = "source",
        available_now: bool = False,
    ) -> Attached:
        """Let a Spark streaming DataFrame flow into a stream.

        `source` names it for good: attached again under that name, also after a restart, it goes on where it was.
        With `available_now` what there is is taken in, and then the call returns.
        """
        self._require_writable()
        state = _base_stream(self._store.catalog, stream)
        if not source or source.lower() == entries.INBOX or not source.replace("-", "").replace("_", "").isalnum():
            raise LadleError(f"'{source}' can't name a source.", hint="use letters, digits, - and _; not 'inbox'")
        check_columns(self._get_pipeline().batch_schema(batches), state.schema, state.name)
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
                state.name, state.id, source, number, lambda task: self._get_pipeline().run_batch(task, batch)
            )

        with self._lock:
            running = self._attached.get(key)
            if running is not None and running.state in ("running", "restarting"):
                raise AlreadyExists(f"Source '{source}' of stream '{state.name}' is running.", hint="stop it first")
            checkpoint.mkdir(parents=True, exist_ok=True)
            attached = self._get_pipeline().attach(
                state.name,
                source,
                batches,
                checkpoint,
                run,
                available_now=available_now,
                retry_seconds_max=self._settings.retry_seconds_max,
            )
            self._attached[key] = attached
        if available_now:
            attached.await_drained()
        return attached

    # -- queries --

    def register(self, text: str, *, name: str, materialize: str | Materialize = Materialize.PARTIAL) -> Query:
        """Let a query stand. Its first answer already covers all retained data."""
        self.register_many({name: text}, materialize=materialize)
        return self.query(name)

    def register_many(
        self, queries: Mapping[str, str], *, materialize: str | Materialize = Materialize.PARTIAL
    ) -> list[Query]:
        """Let several queries stand: all of them, or none."""
        mode = _mode(materialize)
        catalog = self._store.catalog
        plans = {name: (sql.bind(text, catalog), mode) for name, text in queries.items()}
        self.register_plans(plans, catalog)
        return [self.query(name) for name in queries]

    def register_plans(self, plans: Mapping[str, tuple[Plan, Materialize]], bound_to: Catalog) -> None:
        """Let plans stand that were bound to a catalog. Binding is slow beside a commit, so it comes before it."""
        self._require_writable()
        names = Counter(name.lower() for name in plans)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise AlreadyExists(f"'{twice[0]}' is given twice.", hint="names are compared without case")
        for name in plans:
            _check_name(name)

        def make_entry(catalog: Catalog) -> dict[str, object] | None:
            for name in plans:
                _refuse_taken(catalog, name)
            current = [
                (name, plan if _still_holds(plan, bound_to, catalog) else sql.bind(plan.sql, catalog), mode)
                for name, (plan, mode) in plans.items()
            ]
            return entries.register(current, self._store.clock.now_us()) if current else None

        self._store.commit(make_entry)

    def unregister(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        catalog = self._store.catalog
        if catalog.query(name) is None:
            if if_exists:
                return
            raise unknown("query", name, catalog.query_names())
        self._unregister([name], cascade=cascade)

    def query(self, name: str) -> Query:
        state = self._query_state(name)
        return Query(self, state.name, state.sql, state.materialize)

    def queries(self) -> list[Query]:
        return [Query(self, q.name, q.sql, q.materialize) for q in self._snapshot().queries.values()]

    def invoke(self, name: str, *, now: datetime | None = None) -> Answer:
        state = self._query_state(name)
        self._invocations[state.name] += 1
        return self._invoker.answer(state.plan, now=now, kept=self._kept_of(state) if now is None else None)

    def explain(self, text: str) -> str:
        """How a query is answered: by the name of a standing one, or the text of a SELECT."""
        with self._store.pin() as catalog:
            state = catalog.query(text)
            wall_us = self._store.clock.now_us()
            if state is not None:
                problem = self._problem(state)
                return explain_query(self._store, catalog, state, wall_us, problem)
            plan = sql.bind(text, catalog)
            return explain_plan(self._store, catalog, plan, wall_us)

    def explain_plan(self, plan: Plan) -> str:
        with self._store.pin() as catalog:
            return explain_plan(self._store, catalog, plan, self._store.clock.now_us())

    # -- the rest --

    def now_us(self) -> int:
        """The wall clock, as this database sees it."""
        return self._store.clock.now_us()

    @property
    def spark(self) -> SparkSession:
        """The Spark session; started now if it was not."""
        session: SparkSession = self._get_pipeline().session  # type: ignore[attr-defined]
        return session

    def status(self) -> Status:
        catalog = self._snapshot()
        spark = "running" if self._pipeline.started else "not started"
        return Status(
            path=str(self.path),
            epoch=catalog.epoch,
            read_only=not self._store.warehouse.writable,
            spark=spark,
            streams=tuple(self._stream_status(stream) for stream in catalog.streams.values()),
            sources=tuple(_source_status(catalog, attached) for attached in self._attached.values()),
            queries=tuple(self._query_status(catalog, query) for query in catalog.queries.values()),
            backfills=tuple(
                BackfillStatus(name, progress.done, progress.total)
                for name, progress in self._backfill.progress.items()
            ),
            cache_hits=self._store.cache.hits,
            cache_misses=self._store.cache.misses,
            problems=dict(self._maintenance.errors),
        )

    def maintain(self) -> None:
        """One round of housekeeping, now."""
        self._require_writable()
        self._maintenance.run(thorough=True)

    def backfill(self) -> int:
        """Cover what is uncovered, to the end; the number of jobs it took."""
        self._require_writable()
        return self._backfill.run()

    def on_close(self, call: Callable[[], None]) -> None:
        """Have something done first when the database is closed."""
        self._on_close.append(call)

    def close(self) -> None:
        """Stop the sources and let go of the warehouse. What was received stays received."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stopping.set()
        self._work.set()
        for call in self._on_close:
            call()
        for attached in self._attached.values():
            attached.stop()
        self._ingest.stop()
        for thread in self._threads:
            thread.join()
        if self._store.warehouse.writable:
            self._maintenance.run()
        self._pipeline.close()
        self._store.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ladle database at {self.path}>"

    # -- inside --

    def _get_pipeline(self) -> Pipeline:
        if self._closed:
            raise Closed("The database is closed.", hint="open it again with ladle.connect(...)")
        return self._pipeline

    def _snapshot(self) -> Catalog:
        self._store.refresh()
        return self._store.catalog

    def _query_state(self, name: str) -> QueryState:
        catalog = self._snapshot()
        state = catalog.query(name)
        if state is None:
            raise unknown("query", name, catalog.query_names())
        return state

    def _kept_of(self, state: QueryState) -> Kept | None:
        if state.materialize is not Materialize.COMPLETE:
            return None
        with self._lock:
            if state.id not in self._kept:
                self._kept[state.id] = Kept(state.plan)
            return self._kept[state.id]

    def _unregister(self, names: Sequence[str], *, cascade: bool) -> None:
        def make_entry(catalog: Catalog) -> dict[str, object] | None:
            gone = {name.lower() for name in names if catalog.query(name) is not None}
            waiting = list(gone)
            while waiting:
                readers = [reader for reader in catalog.queries_reading(waiting.pop()) if reader.lower() not in gone]
                if readers and not cascade:
                    raise InUse(
                        f"Query '{names[0]}' can't be dropped: others read it: {', '.join(sorted(readers))}.",
                        hint="drop them first, or use CASCADE",
                    )
                gone |= {reader.lower() for reader in readers}
                waiting += [reader.lower() for reader in readers]
            return entries.unregister(sorted(gone)) if gone else None

        before = self._store.catalog
        if self._store.commit(make_entry) is not None:
            with self._lock:
                standing = {query.id for query in self._store.catalog.queries.values()}
                for query in before.queries.values():
                    if query.id not in standing:
                        self._kept.pop(query.id, None)

    def _attached_to(self, stream: str) -> list[Attached]:
        return [a for (name, _), a in self._attached.items() if name == stream and a.state in ("running", "restarting")]

    def _problem(self, state: QueryState) -> str | None:
        for block in state.blocks:
            reason = self._ingest.suspended.get(block) or self._ingest.failing.get(block)
            if reason is not None:
                return reason
        return None

    def _stream_status(self, stream: StreamState) -> StreamStatus:
        samples = self._rates.get(stream.name)
        rate = 0.0
        if samples and len(samples) > 1 and samples[-1][0] > samples[0][0]:
            rate = (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0]) * 1e6
        return StreamStatus(
            stream.name,
            stream.rows,
            stream.retained_rows,
            stream.epochs,
            rate,
            None if stream.clock_us is None else to_datetime(stream.clock_us),
            self._ingest.pending(stream),
            stream.quarantine.rows if stream.quarantine is not None else 0,
            len(stream.files),
            sum(file.bytes for file in stream.files),
            self._ingest.lane(stream).error,
        )

    def _query_status(self, catalog: Catalog, state: QueryState) -> QueryStatus:
        wall_us = self._store.clock.now_us()
        reader = Reader(self._store, catalog, wall_us)
        now_us = now_of(state.plan, catalog, wall_us)
        counts = [
            reader.count_covered(scan, reader.pieces(scan, reader.extent(scan, now_us))) for scan in state.plan.scans
        ]
        return QueryStatus(
            state.name,
            state.sql,
            state.materialize.value,
            ", ".join(dict.fromkeys(scan.window.kind.value for scan in state.plan.scans)),
            sum(covered for covered, _ in counts),
            sum(total for _, total in counts),
            self._invocations[state.name],
            self._problem(state),
        )

    def _require_writable(self) -> None:
        if self._closed:
            raise Closed("The database is closed.", hint="open it again with ladle.connect(...)")
        if not self._store.warehouse.writable:
            raise ReadOnly("The warehouse was opened for reading.", hint="open it without read_only=True")

    def _start_threads(self) -> None:
        for name, target in (("maintenance", self._maintain_loop), ("work", self._work_loop)):
            thread = threading.Thread(target=target, name=f"ladle-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._store.on_commit(lambda _: self._work.set())
        for stream in self._store.catalog.streams.values():
            if self._ingest.pending(stream):
                self._ingest.drain_later(stream)

    def _maintain_loop(self) -> None:
        while not self._stopping.wait(self._settings.maintenance_seconds):
            self._note_rates()
            self._maintenance.run()

    def _work_loop(self) -> None:
        """After each commit: bring complete answers up to date, then cover what is uncovered."""
        while not self._stopping.is_set():
            self._work.wait(timeout=5.0)
            self._work.clear()
            if self._stopping.is_set():
                return
            try:
                self._refresh_complete()
                if self._pipeline.started:
                    self._backfill.run(self._stopping)
            except LadleError as error:
                _log.warning("background work: %s", error)

    def _refresh_complete(self) -> None:
        for state in self._store.catalog.queries.values():
            kept = self._kept_of(state)
            if kept is None or self._stopping.is_set():
                continue
            try:
                self._invoker.answer(state.plan, kept=kept)
            except LadleError as error:
                _log.debug("complete query %s: %s", state.name, error)

    def _note_rates(self) -> None:
        now_us = self._store.clock.now_us()
        for stream in self._store.catalog.streams.values():
            samples = self._rates.setdefault(stream.name, deque(maxlen=10))
            samples.append((now_us, stream.rows))


def _source_status(catalog: Catalog, attached: Attached) -> SourceStatus:
    stream = catalog.stream(attached.stream)
    batch = stream.batches.get(attached.source) if stream is not None else None
    return SourceStatus(attached.stream, attached.source, attached.state, attached.error, attached.restarts, batch)


def _base_stream(catalog: Catalog, name: str) -> StreamState:
    stream = require_stream(catalog, name)
    if "." in stream.name:
        raise LadleError(f"'{stream.name}' is filled by Ladle alone.")
    return stream


def _still_holds(plan: Plan, bound_to: Catalog, catalog: Catalog) -> bool:
    """Whether what a plan was bound to is what there is now."""
    if bound_to is catalog:
        return True
    streams = ((bound_to.stream(name), catalog.stream(name)) for name in plan.streams)
    queries = ((bound_to.query(name), catalog.query(name)) for name in plan.queries)
    return all(a is not None and b is not None and a.id == b.id and a.schema == b.schema for a, b in streams) and all(
        a is not None and b is not None and a.id == b.id for a, b in queries
    )


def _refuse_taken(catalog: Catalog, name: str) -> None:
    for kind, found in (("stream", catalog.stream(name)), ("query", catalog.query(name))):
        if found is not None:
            raise AlreadyExists(f"There is a {kind} '{found.name}' already.", hint="choose another name, or drop it")


def _check_name(name: str) -> None:
    if not name or not name.replace("_", "a").replace("-", "a").isalnum():
        raise LadleError(f"'{name}' can't name a query.", hint="use letters, digits, _ and -")


def _mode(materialize: str | Materialize) -> Materialize:
    if isinstance(materialize, Materialize):
        return materialize
    try:
        return Materialize(materialize)
    except ValueError:
        modes = ", ".join(mode.value for mode in Materialize)
        raise LadleError(f"There is no mode '{materialize}'. Modes: {modes}.") from None
