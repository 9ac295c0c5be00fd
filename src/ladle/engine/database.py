"""The database: one warehouse, opened by one process for writing or by any for reading."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ladle import sql
from ladle.access import User
from ladle.answer import Answer
from ladle.catalog import Catalog
from ladle.clock import Clock
from ladle.command import Command, Result
from ladle.define.definitions import base_stream, mode_of, standing_query
from ladle.define.given import as_table
from ladle.define.source_definitions import ListedSource
from ladle.define.table_changes import handle_of
from ladle.engine import explaining, watched
from ladle.engine.commands import Register, carry_out, register_unnamed
from ladle.engine.parts import Parts
from ladle.engine.python_calls import PythonCalls
from ladle.errors import SqlError
from ladle.handles import PlanTree, Query, Stream, Table
from ladle.ingest.clocks import stream_handle
from ladle.pipeline import Attached, Batches, Pipeline
from ladle.plan import Function, Plan
from ladle.sql.statement_types import Materialize
from ladle.status import DerivedStatus, Pulse, Status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ladle.engine.session import Session


class Database(PythonCalls):
    """A warehouse that is open in this process, from `ladle.connect`. Any thread may call its methods."""

    def __init__(
        self,
        path: str | Path,
        *,
        pipeline: Pipeline,
        read_only: bool,
        clock: Clock | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.parts = parts = Parts(path, pipeline, clock, settings, read_only=read_only)
        """What it is made of, for servers and sessions."""
        self.path = parts.path
        self.settings = parts.settings
        self._store, self._pipeline, self._ingest, self._invoker = parts.store, pipeline, parts.ingest, parts.invoker
        self._demands, self._following, self._backfill = parts.demands, parts.following, parts.backfill
        self._maintenance, self._background = parts.maintenance, parts.background
        self._lock = threading.Lock()
        if not read_only:
            parts.start()

    def run(self, command: Command[Result]) -> Result:
        """Carry out a command for the program that opened the warehouse, which may do everything."""
        return carry_out(self.parts, command)

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

    # -- streams --

    def streams(self) -> list[Stream]:
        """The streams."""
        return [stream_handle(stream) for stream in self.catalog.streams.values()]

    def receive(self, stream: str, rows: object) -> None:
        """Take rows durably, for a process that is about to end; the next one makes them visible."""
        self.parts.require_writable()
        state = base_stream(self._store.catalog, stream)
        if len(table := as_table(rows, state)):
            self._ingest.push(state, table)

    def attach(
        self, stream: str, batches: DataFrame | Batches, *, source: str = "source", available_now: bool = False
    ) -> Attached:
        """Let a Spark streaming DataFrame flow into a stream.

        `source` names it for good: attached again under that name, also after a restart, it goes on where it was.
        With `available_now` what there is is taken in, and then the call returns.
        """
        self.parts.require_writable()
        return self.parts.sources.attach(stream, batches, source, available_now=available_now)

    def sources(self) -> list[ListedSource]:
        """The sources that are defined."""
        return self.parts.sources.sources(self.catalog)

    def start_sources(self) -> None:
        """Run the sources that are defined, in the background. Opening a warehouse does not: most do it briefly."""
        self.parts.require_writable()
        self.parts.sources.start()

    # -- tables, functions, queries --

    def tables(self) -> list[Table]:
        """The tables."""
        return [handle_of(table) for table in self.catalog.tables.values()]

    def functions(self) -> list[Function]:
        """The functions that queries may call."""
        return list(self.catalog.functions.values())

    def register_unnamed(self, text: str, *, materialize: str | Materialize = Materialize.AUTO) -> str:
        """Register a query under a name that is made for it; that name."""
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
        mode, catalog = mode_of(materialize), self._store.catalog
        plans = {name: (plan, mode) for name, plan in sql.bind_each(queries, catalog, self.settings).items()}
        self.run(Register(plans, catalog, if_not_exists, replace))
        return [self.query(name) for name in queries]

    def query(self, name: str) -> Query:
        """The handle of a standing query."""
        state = standing_query(self.catalog, name)
        return Query(self, state.name, state.sql, state.materialize)

    def queries(self) -> list[Query]:
        """The handles of all standing queries."""
        return [Query(self, q.name, q.sql, q.materialize) for q in self.catalog.queries.values()]

    def explain(self, text: str, *, analyze: bool = False) -> str:
        """How a query is answered: by the name of a standing one, or the text of a SELECT.

        With `analyze` it is invoked too, to say what that took, and what the eddy knows.
        """
        return explaining.of_text(self.parts, text, analyze=analyze)

    def explain_tree(self, text: str, *, analyze: bool = False) -> PlanTree | None:
        """The plan's tree that `explain` shows, if it is not broken; with `analyze` each node is run and measured."""
        return explaining.tree(self.parts, text, analyze=analyze)

    # -- what is going on --

    @property
    def catalog(self) -> Catalog:
        """The newest snapshot of what is defined and what was taken in."""
        return self.parts.snapshot()

    @property
    def spark(self) -> SparkSession:
        """The Spark session; started now if it was not."""
        return self.parts.pipeline().session  # type: ignore[attr-defined]

    def now_us(self) -> int:
        """The wall clock, as this database sees it."""
        return self._store.clock.now_us()

    def status(self, queries: Iterable[str] | None = None) -> Status:
        """Everything that is going on; of all queries, or of those with these names."""
        return watched.status(self.parts, queries)

    def pulse(self) -> Pulse:
        """What changes all the time, told without a look at each query."""
        return watched.pulse(self.parts)

    def derived(self) -> list[DerivedStatus]:
        """What there is of each kind of derived state: what it takes, covers and would cost to make anew."""
        return list(self.parts.report.derived())

    def explain_plan(self, plan: Plan, bound_to: Catalog, *, analyze: bool = False) -> str:
        """How a SELECT that is bound already is answered."""
        return explaining.of_plan(self.parts, plan, bound_to, analyze=analyze)

    def session(self, user: User, address: str = "") -> Session:
        """This database as a user may use it, who comes from an address: changes and refusals are in the audit log."""
        from ladle.engine.session import Session

        return Session(self.parts, user, address)

    # -- its life --

    def maintain(self) -> None:
        """One round of housekeeping, now."""
        self.parts.require_writable()
        self._maintenance.run(thorough=True)

    def backfill(self) -> int:
        """Cover what is uncovered, to the end; the number of jobs it took."""
        self.parts.require_writable()
        return self._backfill.run()

    def close(self, *, promptly: bool = False) -> None:
        """Stop the sources and let go of the warehouse. What was received stays received.

        With `promptly` nobody waits for a Spark that is just starting: what needs it is done by the next process.
        """
        with self._lock:
            if self.parts.closed:
                return
            self.parts.closed = True
        self.parts.close(promptly=promptly)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ladle database at {self.path}>"
