"""A database as one user may use it: what the server gives to whoever comes with a token.

`run` carries a command out: it looks at the user's role first, and has the audit log note what is changed and refused.
The rest tells what there is. Names are looked up in the catalog *as the user sees it*, so a query that is not shared
can't be told from one that does not exist, whatever the statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace as replaced
from datetime import datetime

from ladle import sql
from ladle.access import Role, User
from ladle.answer import Answer
from ladle.catalog import Catalog, QueryState, Seen
from ladle.command import Command, Result
from ladle.config import Settings
from ladle.define.definitions import mode_of
from ladle.define.source_definitions import ListedSource
from ladle.define.table_changes import handle_of
from ladle.delta import ChangeOptions, Delta
from ladle.engine import explaining, watched
from ladle.engine.commands import COMMANDS, Follow, Invoke, Register, carry_out, register_unnamed, seen_query
from ladle.engine.parts import Parts
from ladle.engine.places import Places
from ladle.errors import Denied
from ladle.handles import PlanTree, Stream, Table
from ladle.ingest.clocks import stream_handle
from ladle.plan import Function, Plan
from ladle.sql.statement_types import Materialize
from ladle.status import DerivedStatus, Pulse, QueryStatus, SourceStatus, Status

HIDDEN = "it reads queries that you may not see, so what it is made of is not shown"
"""What EXPLAIN says of a plan that has the text of hidden queries."""


class Session:
    """A database as one user may use it. Made by `Database.session`."""

    def __init__(self, parts: Parts, user: User, address: str) -> None:
        self._parts = parts
        self.user = user
        self._address = address
        self._places = Places(parts.path)

    def note(self, action: str, target: str, outcome: str) -> None:
        """What the user changed, and what was refused, for the audit log."""
        self._parts.rights.audit.note(self.user.name, self._address, action, target, outcome)

    def need(self, role: Role, what: str) -> None:
        """Refuse a user whose role may not do this, and note the refusal."""
        try:
            self.user.need(role, what)
        except Denied:
            self.note(what, "", "denied")
            raise

    def run(self, command: Command[Result]) -> Result:
        """Carry out a command, if the user may."""
        declared = COMMANDS[type(command)]
        self.need(declared.role, declared.doing)
        if declared.noted is None:
            return carry_out(self._parts, command, self.user)
        with self._noted(declared.noted, declared.target(command), declared.outcome(command)):
            return carry_out(self._parts, command, self.user)

    @contextmanager
    def _noted(self, action: str, target: str, outcome: str) -> Iterator[None]:
        """What is changed inside is told, and so is that it was refused."""
        try:
            yield
        except Denied:
            self.note(action, target, "denied")
            raise
        self.note(action, target, outcome)

    @property
    def settings(self) -> Settings:
        """The settings of the database."""
        return self._parts.settings

    @property
    def catalog(self) -> Catalog:
        """The newest snapshot, as the user sees it."""
        return Seen.by(self.user, self._parts.snapshot())

    def now_us(self) -> int:
        """The time by the database's clock."""
        return self._parts.store.clock.now_us()

    def execute(self, text: str) -> list[Answer]:
        """Run the statements of a script, one after the other; the first that fails ends it."""
        from ladle.engine.statements import run_script

        return run_script(self, text)

    # -- queries --

    def query(self, name: str) -> QueryState:
        """A standing query that the user sees. What it reads of others must still be its owner's to read."""
        return seen_query(self._parts.snapshot(), self.user, name)

    def queries(self) -> list[QueryState]:
        """The standing queries that the user may see."""
        return self.catalog.standing()

    def invoke(self, name: str, *, now: datetime | str | None = None) -> Answer:
        """The answer of a standing query that the user may see."""
        return self.run(Invoke(name, now))

    def changes(
        self,
        name: str,
        *,
        since: int | str | None = None,
        seconds: float = 0.0,
        snapshot: bool = False,
        options: ChangeOptions | None = None,
        upto: str | None = None,
    ) -> list[Delta]:
        """What changed in an answer since a position."""
        return self.run(Follow(name, since, seconds, snapshot, options, upto))

    def register_many(
        self,
        queries: Mapping[str, str],
        *,
        materialize: str | Materialize = Materialize.AUTO,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> None:
        """Let several queries stand: all of them, or none."""
        self.need(Role.WRITER, COMMANDS[Register].doing)
        mode, catalog = mode_of(materialize), self.catalog
        plans = {name: (plan, mode) for name, plan in sql.bind_each(queries, catalog, self.settings).items()}
        self.run(Register(plans, catalog, if_not_exists, replace))

    def register_unnamed(self, text: str, *, materialize: str | Materialize = Materialize.AUTO) -> str:
        """Let a query stand under a name that is made for it; that name."""
        self.need(Role.WRITER, COMMANDS[Register].doing)
        catalog = self.catalog
        return register_unnamed(self, sql.bind(text, catalog, self.settings), mode_of(materialize), catalog)

    def explain(self, text: str, *, analyze: bool = False) -> str:
        """A standing query by its name, or any SELECT."""
        catalog = self.catalog
        state = catalog.query(text)
        if state is None:
            return self.explain_plan(sql.bind(text, catalog, self.settings), catalog, analyze=analyze)
        if self._hides(state.meaning.queries):
            return f"standing query {state.name}\n  {HIDDEN}"
        return self._shown(explaining.of_text(self._parts, state.name, analyze=analyze, to=self.user))

    def explain_tree(self, text: str, *, analyze: bool = False) -> PlanTree | None:
        """The plan's tree; None of a query that is broken, or whose parts the user does not see."""
        catalog = self.catalog
        state = catalog.query(text)
        if self._hides(sql.bind(text, catalog, self.settings).queries if state is None else state.meaning.queries):
            return None
        told = json.dumps(explaining.tree(self._parts, text, analyze=analyze, to=self.user))
        tree: PlanTree | None = json.loads(self._shown(told))
        return tree

    def explain_plan(self, plan: Plan, bound_to: Catalog, *, analyze: bool = False) -> str:
        """How a SELECT is answered, without what it is made of if the user may not see that."""
        if self._hides(plan.queries):
            return f"one-off query\n  {HIDDEN}"
        return self._shown(explaining.of_plan(self._parts, plan, bound_to, analyze=analyze, to=self.user))

    def _shown(self, text: str) -> str:
        return text if self.user.may(Role.ADMIN) else self._places.hidden(text)

    def _hides(self, queries: Iterable[str]) -> bool:
        """Whether the user does not see some of the queries that are read: a plan has their factors, and their text."""
        catalog = self.catalog
        return any(catalog.query(name) is None for name in queries)

    # -- what there is --

    def streams(self) -> list[Stream]:
        """The streams."""
        return [stream_handle(stream) for stream in self.catalog.streams.values()]

    def tables(self) -> list[Table]:
        """The tables."""
        return [handle_of(table) for table in self.catalog.tables.values()]

    def functions(self) -> list[Function]:
        """The functions."""
        return list(self.catalog.functions.values())

    def sources(self) -> list[ListedSource]:
        """Where data comes from is for admins to know."""
        known = self._parts.sources.sources(self._parts.snapshot())
        return known if self.user.may(Role.ADMIN) else [source.without_options() for source in known]

    def status(self, queries: Iterable[str] | None = None) -> Status:
        """Everything that is going on, as far as the user may see it."""
        catalog, status = self.catalog, watched.status(self._parts, queries)
        seen = tuple(self._told_query(q, state) for q in status.queries if (state := catalog.query(q.name)) is not None)
        told = replaced(status, queries=seen, sources=self._told(status.sources))
        return told if self.user.may(Role.ADMIN) else self._places.hidden_in(told)

    def _told_query(self, status: QueryStatus, query: QueryState) -> QueryStatus:
        """Nothing is said of queries that the user does not see, also when they break one that is seen."""
        if query.broken is None:
            return status
        return replaced(status, error=f"broken: {self.catalog.why_broken(query)}")

    def pulse(self) -> Pulse:
        """What changes all the time, as far as the user may see it."""
        pulse = watched.pulse(self._parts)
        told = replaced(pulse, sources=self._told(pulse.sources))
        return told if self.user.may(Role.ADMIN) else self._places.hidden_in(told)

    def derived(self) -> list[DerivedStatus]:
        """What there is of each kind of derived state."""
        return list(self._parts.report.derived())

    def _told(self, sources: tuple[SourceStatus, ...]) -> tuple[SourceStatus, ...]:
        return sources if self.user.may(Role.ADMIN) else tuple(source.without_reason() for source in sources)
