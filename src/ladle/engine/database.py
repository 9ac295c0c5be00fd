"""The database: one warehouse, opened by one process for writing or by any for reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ladle import sql
from ladle.access import User
from ladle.answer import Answer
from ladle.archive.folder import local_folder
from ladle.archive.warehouse import Warehouse
from ladle.catalog import Catalog, Seen
from ladle.clock import Clock, WallClock, moment_of
from ladle.config import Settings
from ladle.engine.analysis import analysed
from ladle.engine.analyze import analysis
from ladle.engine.auto import Auto
from ladle.engine.backfill import Backfill
from ladle.engine.background import Background
from ladle.engine.backup import BackingUp
from ladle.engine.changes import Changes
from ladle.engine.clocks import TimeKeeping, stream_handle
from ladle.engine.defining import Source, SourceMaker
from ladle.engine.definitions import Definitions, base_stream, mode_of, standing_query, still_holds
from ladle.engine.explain import explain_plan, explain_query, tree_of_text
from ladle.engine.figures import Asked, Figures
from ladle.engine.functions import FunctionMaker, Functions
from ladle.engine.handles import Body, HandedOver, Query, Stream, Table
from ladle.engine.ingest import Ingest
from ladle.engine.invoke import Invoker
from ladle.engine.maintenance import Maintenance
from ladle.engine.report import Report
from ladle.engine.rights import Rights, TokenMaker
from ladle.engine.rows import as_table
from ladle.engine.source import Definition
from ladle.engine.sources import Sources
from ladle.engine.store import Store
from ladle.engine.tables import Change, TableMaker, Tables, handle_of
from ladle.engine.unnamed import QueryMaker, register_unnamed
from ladle.engine.verify import Verifying
from ladle.errors import Closed, ReadOnly, SqlError, unknown
from ladle.pipeline import Attached, Batches, Pipeline
from ladle.plan import Function, Plan
from ladle.schema import Column, StreamSchema, TableSchema
from ladle.sql.statements import CreateSource, Materialize
from ladle.status import BackfillStatus, Pulse, Status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ladle.engine.session import Session


class Database(BackingUp, FunctionMaker, QueryMaker, SourceMaker, TableMaker, TimeKeeping, TokenMaker, Verifying):
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
        self.path = local_folder(path)
        self._pipeline = pipeline
        self.settings = Settings.load(settings)
        warehouse = Warehouse.open(path, writable=not read_only)
        try:
            self._store = Store(warehouse, clock or WallClock(), self.settings)
        except BaseException:
            warehouse.close()
            raise
        self._auto = Auto(self._store)
        self._ingest = Ingest(self._store, self._get_pipeline, self._auto)
        self._sources = Sources(self._store, self._ingest, self._get_pipeline)
        self._invoker = Invoker(self._store, self._get_pipeline)
        self._changes = Changes(self._store, self._invoker)
        self._backfill = Backfill(self._store, self._ingest, self._get_pipeline)
        self._tables = Tables(self._store, self._invoker)
        self._maintenance = Maintenance(self._store, self._ingest, self._auto, self._tables)
        self._background = Background(
            self._store, pipeline, self._invoker, self._backfill, self._maintenance, self._auto
        )
        self._definitions = Definitions(self._store)
        self._functions = Functions(self._store)
        self.rights = Rights(self._store)
        self._report = Report(self._store, self._ingest, self._background, self._auto)
        self._asked = Asked()
        self._lock = threading.Lock()
        self._closed = False
        self._on_close: list[Callable[[], None]] = []
        if not read_only:
            self._background.start()
            self._ingest.resume()

    # -- SQL --

    def sql(self, text: str) -> Answer:
        """Run one statement. A SELECT is answered once, without standing."""
        answers = self.execute(text)
        if len(answers) != 1:
            raise SqlError(f"Expected one statement, found {len(answers)}.", hint="use execute(...) for scripts")
        return answers[0]

    def execute(self, text: str) -> list[Answer]:
        """Run the statements of a script, one after the other; the first that fails ends it."""
        from ladle.engine.statements import run_script

        return run_script(self, text)

    def select(self, plan: Plan, bound_to: Catalog) -> Answer:
        """Answer a plan that was bound to a catalog; what it reads may have been dropped or changed since."""
        with self._store.pin() as catalog:
            current = plan if still_holds(plan, bound_to, catalog) else sql.rebind(plan.sql, bound_to.renewed(catalog))
            return self._invoker.answer(current, catalog)

    # -- streams --

    def create_stream(
        self,
        name: str,
        schema: StreamSchema,
        *,
        retain_us: int | None = None,
        max_ahead_us: int | None = None,
        lateness_us: int | None = None,
        idle_after_us: int | None = None,
        if_not_exists: bool = False,
    ) -> bool:
        """Whether the stream is new: with `if_not_exists` it may have been there."""
        return self._definitions.create_stream(
            name,
            schema,
            retain_us=retain_us,
            max_ahead_us=max_ahead_us,
            lateness_us=lateness_us,
            idle_after_us=idle_after_us,
            if_not_exists=if_not_exists,
        )

    def drop_stream(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a stream that nothing stands on; with `cascade` whatever does goes too."""
        if if_exists and self._store.catalog.stream(name) is None:
            return
        before = self._store.catalog
        stream = base_stream(before, name)
        if cascade:
            self._sources.release(stream.name)
        self._definitions.drop_stream(stream, cascade=cascade, attached=self._sources.at_work(stream.name))
        self._sources.forget_dropped(before)

    def add_column(self, stream: str, column: Column) -> None:
        """Give a stream one more column; it is NULL in the tuples that came before."""
        self._definitions.add_column(stream, column)

    def streams(self) -> list[Stream]:
        return [stream_handle(stream) for stream in self._snapshot().streams.values()]

    def push(self, stream: str, rows: Any, *, wait: bool = False, key: str | None = None) -> int | None:
        """Hand rows over. They are durable when this returns; with `wait`, visible too, and the epoch is returned.

        Rows are a dictionary or a list of them, an Arrow table, or a DataFrame of pandas or Spark. Those that don't fit
        go to the stream's quarantine with the reason; the others go on. A push with the `key` of one before it is that
        one, sent again: it counts once, whatever happened to the first.
        """
        return self.hand_over(stream, rows, wait=wait, key=key).epoch

    def hand_over(
        self, stream: str, rows: Any, *, wait: bool = False, key: str | None = None, body: Body | None = None
    ) -> HandedOver:
        """`push` that says what became of it. A `key` that came before with another `body` is refused."""
        self._require_writable()
        state = base_stream(self._store.catalog, stream)
        return self._ingest.hand_over(state, as_table(rows, state), wait=wait, key=key, body=body)

    def receive(self, stream: str, rows: Any) -> None:
        """Take rows durably and nothing more: whichever process next takes in this stream's pushes makes them visible.

        For a process that is about to end, and would otherwise start Spark for them.
        """
        self._require_writable()
        state = base_stream(self._store.catalog, stream)
        if len(table := as_table(rows, state)):
            self._ingest.push(state, table)

    def attach(
        self,
        stream: str,
        batches: DataFrame | Batches,
        *,
        source: str = "source",
        available_now: bool = False,
    ) -> Attached:
        """Let a Spark streaming DataFrame flow into a stream.

        `source` names it for good: attached again under that name, also after a restart, it goes on where it was.
        With `available_now` what there is is taken in, and then the call returns.
        """
        self._require_writable()
        return self._sources.attach(stream, batches, source, available_now=available_now)

    def define_source(self, wanted: CreateSource) -> bool:
        self._require_writable()
        return self._sources.create(wanted)

    def undefine_source(self, name: str, *, if_exists: bool) -> None:
        self._require_writable()
        self._sources.drop(name, if_exists=if_exists)

    def sources(self) -> list[Source]:
        return self._sources.sources(self._snapshot())

    def start_sources(self) -> None:
        """Run the sources that are defined, in the background. Opening a warehouse does not: most do it briefly."""
        self._require_writable()
        self._sources.start()

    # -- tables --

    def define_table(self, name: str, schema: TableSchema, *, if_not_exists: bool) -> bool:
        self._require_writable()
        return self._definitions.create_table(name, schema, if_not_exists=if_not_exists)

    def drop_table(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a table that no query reads; with `cascade` those that do go too."""
        self._require_writable()
        self._tables.forget(self._definitions.drop_table(name, cascade=cascade, if_exists=if_exists))

    def insert(self, table: str, rows: Any) -> int:
        """Add rows to a table, all or none, as `push` takes them. How many they were."""
        self._require_writable()
        return self._tables.insert(table, rows)

    def change_table(self, change: Change, text: str, bound_to: Catalog) -> int:
        """Carry out INSERT, UPDATE or DELETE that was bound to a catalog; how many rows that was about."""
        self._require_writable()
        return self._tables.run(change, text, bound_to)

    def tables(self) -> list[Table]:
        return [handle_of(table) for table in self._snapshot().tables.values()]

    # -- queries --

    def register_unnamed(self, text: str, *, materialize: str | Materialize = Materialize.AUTO) -> str:
        catalog = self._store.catalog
        return register_unnamed(self, sql.bind(text, catalog, self.settings), mode_of(materialize), catalog)

    def register_many(
        self,
        queries: Mapping[str, str],
        *,
        materialize: str | Materialize = Materialize.AUTO,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> list[Query]:
        """Let several queries stand: all of them, or none."""
        mode = mode_of(materialize)
        catalog = self._store.catalog
        plans = {name: (plan, mode) for name, plan in sql.bind_each(queries, catalog, self.settings).items()}
        self.register_plans(plans, catalog, if_not_exists=if_not_exists, replace=replace)
        return [self.query(name) for name in queries]

    def register_plans(
        self,
        plans: Mapping[str, tuple[Plan, Materialize]],
        bound_to: Catalog,
        *,
        if_not_exists: bool = False,
        replace: bool = False,
        by: User | None = None,
    ) -> bool:
        """Let plans stand that were bound to a catalog; whether that changed anything."""
        self._require_writable()
        seconds = self._store.settings.invoke_seconds_max
        # A name that is taken is refused or kept, whatever Spark would say.
        shown = {name for name in plans if replace or not bound_to.query(name)}
        known = {
            name: (analysed(plan, bound_to, self._get_pipeline, seconds) if name in shown else plan, mode)
            for name, (plan, mode) in plans.items()
        }
        return self._definitions.register(known, bound_to, if_not_exists=if_not_exists, replace=replace, by=by)

    def unregister(self, name: str, *, cascade: bool = False, if_exists: bool = False, by: User | None = None) -> None:
        """Let a query go; with `cascade` those that read it too."""
        if if_exists and self._store.catalog.query(name) is None:
            return
        self._definitions.unregister([standing_query(self._store.catalog, name).name], cascade=cascade, by=by)

    def query(self, name: str) -> Query:
        state = standing_query(self._snapshot(), name)
        return Query(self, state.name, state.sql, state.materialize)

    def queries(self) -> list[Query]:
        return [Query(self, q.name, q.sql, q.materialize) for q in self._snapshot().queries.values()]

    def invoke(self, name: str, *, now: datetime | str | None = None) -> Answer:
        """A standing query's answer; at another NOW, if one is given as a datetime or ISO text."""
        with self._store.pin() as catalog:
            state = standing_query(catalog, name)
            began = time.perf_counter()
            try:
                kept = self._background.asked(state) if now is None else None
                moment = None if now is None else moment_of(now)
                keep_nothing = self._auto.mode(state) is Materialize.NONE
                answer = self._invoker.answer(state.plan, catalog, now=moment, kept=kept, keep_nothing=keep_nothing)
            finally:
                self._asked.note(state.name, time.perf_counter() - began)
        self._background.answered(state, answer.table)
        return answer

    def changes(
        self, name: str, *, since: int | None = None, seconds: float = 0.0, **limits: Any
    ) -> tuple[list[Answer], int]:
        """What the next epochs add to a query's answer, if one does in time, and where to go on: `Query.subscribe`."""
        return self._changes.after(name, since, seconds, **limits)

    def explain(self, text: str, *, analyze: bool = False, to: User | None = None) -> str:
        """How a query is answered: by the name of a standing one, or the text of a SELECT. Queries that share its work
        are counted as far as they are seen by the user it is told `to`.

        With `analyze` it is invoked too, to say what that took, and what the eddy knows.
        """
        with self._store.pin() as whole:
            catalog = whole if to is None else Seen.by(to, whole)
            state = catalog.query(text)
            if state is None:
                return self.explain_plan(sql.bind(text, catalog, self.settings), catalog, analyze=analyze, to=to)
            wall_us, problem = self._store.clock.now_us(), self._report.problem(state)
            said = explain_query(self._store, catalog, state, wall_us, problem, self._invoker, self._auto)
            return f"{said}\n{analysis(state.plan, catalog, self._invoker, self._ingest)}" if analyze else said

    def explain_tree(self, text: str, *, to: User | None = None) -> dict[str, Any]:
        """The plan's tree that `explain` shows, as plain values."""
        with self._store.pin() as whole:
            catalog = whole if to is None else Seen.by(to, whole)
            return tree_of_text(self._store, catalog, text, self._invoker, self._auto).to_json()

    def explain_plan(self, plan: Plan, bound_to: Catalog, *, analyze: bool = False, to: User | None = None) -> str:
        with self._store.pin() as whole:
            catalog = whole if to is None else Seen.by(to, whole)
            current = plan if still_holds(plan, bound_to, catalog) else sql.rebind(plan.sql, bound_to.renewed(catalog))
            said = explain_plan(self._store, catalog, current, self._store.clock.now_us(), self._invoker)
            return f"{said}\n{analysis(current, catalog, self._invoker, self._ingest)}" if analyze else said

    def session(self, user: User, address: str = "") -> Session:
        """This database as a user may use it, who comes from an address: changes and refusals are in the audit log."""
        from ladle.engine.session import Session

        return Session(self, user, address)

    # -- functions --

    def define_function(self, definition: Definition, *, replace: bool, if_not_exists: bool) -> Function:
        self._require_writable()
        self._functions.create(definition, if_not_exists=if_not_exists, replace=replace)
        return self._function(definition.name)

    def drop_function(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Let a function go that no query calls; with `cascade` those that do go too."""
        if if_exists and self._store.catalog.function(name) is None:
            return
        self._functions.drop(self._function(name).name, cascade=cascade)

    def functions(self) -> list[Function]:
        return list(self._snapshot().functions.values())

    def _function(self, name: str) -> Function:
        catalog = self._snapshot()
        found = catalog.function(name)
        if found is None:
            raise unknown("function", name, catalog.function_names())
        return found

    # -- the rest --

    @property
    def catalog(self) -> Catalog:
        """The newest snapshot of what is defined and what was taken in."""
        return self._snapshot()

    def now_us(self) -> int:
        """The wall clock, as this database sees it."""
        return self._store.clock.now_us()

    @property
    def spark(self) -> SparkSession:
        """The Spark session; started now if it was not."""
        session: SparkSession = self._get_pipeline().session  # type: ignore[attr-defined]
        return session

    def status(self, queries: Iterable[str] | None = None) -> Status:
        """Of all queries, or of those with these names."""
        with self._store.pin() as catalog:
            return self._status(catalog, queries)

    def _status(self, catalog: Catalog, queries: Iterable[str] | None) -> Status:
        return Status(
            path=str(self.path),
            epoch=catalog.epoch,
            read_only=not self._store.warehouse.writable,
            spark="running" if self._pipeline.started else "not started",
            streams=self._report.streams(catalog),
            sources=self._sources.statuses(catalog),
            queries=self._report.queries(catalog, self._asked.count, queries),
            backfills=tuple(
                BackfillStatus(name, progress.done, progress.total)
                for name, progress in self._backfill.progress.items()
            ),
            cache_hits=self._store.cache.hits,
            cache_misses=self._store.cache.misses,
            problems=self._background.problems,
        )

    def pulse(self) -> Pulse:
        """What changes all the time, told without a look at each query."""
        with self._store.pin() as catalog:
            return self._report.pulse(catalog, self._asked.total, self._sources.statuses(catalog))

    def figures(self) -> Figures:
        """What those who watch this process are told beside the pulse."""
        return self._report.figures(self._asked, self._pipeline, self._invoker, self._maintenance)

    def on_commit(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call it after each entry in this process's log, in the thread that made it; returns what ends that."""
        return self._store.on_commit(lambda _: listener())

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

    def close(self, *, promptly: bool = False) -> None:
        """Stop the sources and let go of the warehouse. What was received stays received.

        With `promptly` nobody waits for a Spark that is just starting: what needs it is done by the next process.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._store.closing.set()
        with ExitStack() as last:
            # Whatever fails on the way, another process can have the warehouse afterwards.
            last.callback(self._store.close)
            last.callback(self._pipeline.close)
            if promptly:
                self._pipeline.give_up_start()
            for call in self._on_close:
                call()
            self._sources.stop()
            self._ingest.stop()
            self._background.stop()
            if self._store.warehouse.writable:
                self._maintenance.run()

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
            raise Closed
        return self._pipeline

    def _snapshot(self) -> Catalog:
        self._store.refresh()
        return self._store.catalog

    def _require_writable(self) -> None:
        if self._closed:
            raise Closed
        if not self._store.warehouse.writable:
            raise ReadOnly("The warehouse was opened for reading.", hint="open it without read_only=True")
