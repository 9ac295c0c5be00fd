"""A database as one user may use it: what the server gives to whoever comes with a token.

It has the methods that statements and clients call, each of which looks at the user's role first and then does what
the database does. Names are looked up in the catalog *as the user sees it*, so a query that is not shared can't be told
from one that does not exist, whatever the statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace as replaced
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladle import sql
from ladle.access import Role, Token, User
from ladle.answer import Answer
from ladle.catalog import Catalog, QueryState, Seen
from ladle.config import Settings
from ladle.engine.defining import Source
from ladle.engine.definitions import mode_of, standing_query
from ladle.engine.handles import Body, HandedOver, Query, Stream, Table
from ladle.engine.places import Places
from ladle.engine.rights import Rights
from ladle.engine.source import Definition
from ladle.engine.tables import Change
from ladle.engine.unnamed import register_unnamed
from ladle.errors import Denied, LadleError
from ladle.plan import Function, Plan
from ladle.schema import Column, StreamSchema, TableSchema
from ladle.sql.statements import CreateSource, Materialize
from ladle.status import Pulse, SourceStatus, Status

if TYPE_CHECKING:
    from ladle.engine.database import Database


HIDDEN = "it reads queries that you may not see, so what it is made of is not shown"
"""What EXPLAIN says of a plan that has the text of hidden queries."""


class Session:
    """Made by `Database.session`."""

    def __init__(self, db: Database, user: User, address: str) -> None:
        self._db = db
        self.user = user
        self._address = address
        self.rights = _Rights(self, db.rights)
        self._places = Places(db.path)

    def note(self, action: str, target: str, outcome: str) -> None:
        """What the user changed, and what was refused, for the audit log."""
        self._db.rights.audit.note(self.user.name, self._address, action, target, outcome)

    def need(self, role: Role, what: str) -> None:
        try:
            self.user.need(role, what)
        except Denied:
            self.note(what, "", "denied")
            raise

    @contextmanager
    def noted(self, action: str, target: str) -> Iterator[None]:
        """What is changed inside is told, and so is that it was refused."""
        try:
            yield
        except Denied:
            self.note(action, target, "denied")
            raise
        self.note(action, target, "done")

    @property
    def settings(self) -> Settings:
        return self._db.settings

    @property
    def catalog(self) -> Catalog:
        return Seen.by(self.user, self._db.catalog)

    def now_us(self) -> int:
        return self._db.now_us()

    def execute(self, text: str) -> list[Answer]:
        """Run the statements of a script, one after the other; the first that fails ends it."""
        from ladle.engine.statements import run_script

        return run_script(self, text)

    # -- asking --

    def select(self, plan: Plan, bound_to: Catalog) -> Answer:
        return self._db.select(plan, bound_to)

    def query(self, name: str) -> QueryState:
        """A standing query that the user sees. What it reads of others must still be its owner's to read."""
        catalog = self._db.catalog
        state = catalog.query(name) if catalog.access.sees(self.user, name) else None
        if state is None:
            state = standing_query(self.catalog, name)  # it says which there are
        hidden = None if self.user.may(Role.ADMIN) else catalog.access.unreadable(state.name, state.shape.queries)
        if hidden is not None:
            raise Denied(
                f"Query '{state.name}' reads a query that its owner may read no longer.",
                hint="have it granted again, or register it without that",
            )
        return state

    def invoke(self, name: str, *, now: datetime | str | None = None) -> Answer:
        return self._db.invoke(self.query(name).name, now=now)

    def changes(self, name: str, *, since: int | None = None, seconds: float = 0.0) -> tuple[list[Answer], int]:
        return self._db.changes(self.query(name).name, since=since, seconds=seconds)

    def explain(self, text: str, *, analyze: bool = False) -> str:
        """A standing query by its name, or any SELECT."""
        catalog = self.catalog
        state = catalog.query(text)
        if state is None:
            return self.explain_plan(sql.bind(text, catalog, self.settings), catalog, analyze=analyze)
        if self.hides(state.plan):
            return f"standing query {state.name}\n  {HIDDEN}"
        return self._shown(self._db.explain(state.name, analyze=analyze, to=self.user))

    def explain_tree(self, text: str) -> dict[str, Any] | None:
        """The plan's tree; None of a query whose parts the user does not see."""
        catalog = self.catalog
        state = catalog.query(text)
        plan = state.plan if state is not None else sql.bind(text, catalog, self.settings)
        if self.hides(plan):
            return None
        tree: dict[str, Any] = json.loads(self._shown(json.dumps(self._db.explain_tree(text, to=self.user))))
        return tree

    def explain_plan(self, plan: Plan, bound_to: Catalog, *, analyze: bool = False) -> str:
        if self.hides(plan):
            return f"one-off query\n  {HIDDEN}"
        return self._shown(self._db.explain_plan(plan, bound_to, analyze=analyze, to=self.user))

    def _shown(self, text: str) -> str:
        return text if self.user.may(Role.ADMIN) else self._places.hidden(text)

    def hides(self, plan: Plan) -> bool:
        """Whether a plan is made of queries too that the user does not see: it has their factors, and their text."""
        catalog = self.catalog
        return any(catalog.query(name) is None for name in plan.queries)

    def queries(self) -> list[Query]:
        return [Query(self._db, q.name, q.sql, q.materialize) for q in self.catalog.standing()]

    def streams(self) -> list[Stream]:
        return self._db.streams()

    def tables(self) -> list[Table]:
        return self._db.tables()

    def functions(self) -> list[Function]:
        return self._db.functions()

    def sources(self) -> list[Source]:
        """Where data comes from is for admins to know."""
        known = self._db.sources()
        return known if self.user.may(Role.ADMIN) else [source.without_options() for source in known]

    def status(self, queries: Iterable[str] | None = None) -> Status:
        catalog, status = self.catalog, self._db.status(queries)
        seen = tuple(q for q in status.queries if catalog.query(q.name) is not None)
        told = replaced(status, queries=seen, sources=self._told(status.sources))
        return told if self.user.may(Role.ADMIN) else self._places.hidden_in(told)

    def pulse(self) -> Pulse:
        pulse = self._db.pulse()
        told = replaced(pulse, sources=self._told(pulse.sources))
        return told if self.user.may(Role.ADMIN) else self._places.hidden_in(told)

    def _told(self, sources: tuple[SourceStatus, ...]) -> tuple[SourceStatus, ...]:
        return sources if self.user.may(Role.ADMIN) else tuple(source.without_reason() for source in sources)

    # -- rows --

    def push(self, stream: str, rows: Any, *, wait: bool = False, key: str | None = None) -> int | None:
        return self.hand_over(stream, rows, wait=wait, key=key).epoch

    def hand_over(
        self, stream: str, rows: Any, *, wait: bool = False, key: str | None = None, body: Body | None = None
    ) -> HandedOver:
        self.need(Role.WRITER, "push rows")
        # Keys are a user's own: another's push with the same one is another push.
        own = key if key is None or self.user.local else f"{self.user.name.lower()}\0{key}"
        return self._db.hand_over(stream, rows, wait=wait, key=own, body=body)

    def heartbeat(self, stream: str, at: datetime | str) -> int | None:
        self.need(Role.WRITER, "send heartbeats")
        return self._db.heartbeat(stream, at)

    def insert(self, table: str, rows: Any) -> int:
        self.need(Role.WRITER, "insert rows")
        return self._db.insert(table, rows)

    def change_table(self, change: Change, text: str, bound_to: Catalog) -> int:
        self.need(Role.WRITER, "change tables")
        return self._db.change_table(change, text, bound_to)

    def back_up(self, directory: str) -> Answer:
        # It writes to the server's disk, and what it writes is everything.
        self.need(Role.ADMIN, "back the warehouse up")
        if not Path(directory).is_absolute():
            raise LadleError(
                f"'{directory}' is not a whole path, and the directory is the server's.",
                hint="name it from the root on: BACKUP TO '/...'",
            )
        with self.noted("backup", directory):
            return self._db.back_up(directory)

    def verify_all(self) -> Answer:
        # It reads everything, and says where damaged files are.
        self.need(Role.ADMIN, "verify the warehouse")
        return self._db.verify_all()

    # -- queries --

    def register_many(
        self,
        queries: Mapping[str, str],
        *,
        materialize: str | Materialize = Materialize.AUTO,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> None:
        """Let several queries stand: all of them, or none."""
        self.need(Role.WRITER, "register queries")
        mode, catalog = mode_of(materialize), self.catalog
        plans = {name: (plan, mode) for name, plan in sql.bind_each(queries, catalog, self.settings).items()}
        self.register_plans(plans, catalog, if_not_exists=if_not_exists, replace=replace)

    def register_unnamed(self, text: str, *, materialize: str | Materialize = Materialize.AUTO) -> str:
        """Let a query stand under a name that is made for it; that name."""
        self.need(Role.WRITER, "register queries")
        catalog = self.catalog
        return register_unnamed(self, sql.bind(text, catalog, self.settings), mode_of(materialize), catalog)

    def register_plans(
        self,
        plans: Mapping[str, tuple[Plan, Materialize]],
        bound_to: Catalog,
        *,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> bool:
        self.need(Role.WRITER, "register queries")
        with self.noted("register", ", ".join(plans)):
            return self._db.register_plans(plans, bound_to, if_not_exists=if_not_exists, replace=replace, by=self.user)

    def unregister(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        if if_exists and self.catalog.query(name) is None:
            return
        known = self.query(name).name
        with self.noted("unregister", known):
            self._db.unregister(known, cascade=cascade, by=self.user)

    # -- definitions --

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
        self.need(Role.ADMIN, "create streams")
        with self.noted("create stream", name):
            return self._db.create_stream(
                name,
                schema,
                retain_us=retain_us,
                max_ahead_us=max_ahead_us,
                lateness_us=lateness_us,
                idle_after_us=idle_after_us,
                if_not_exists=if_not_exists,
            )

    def drop_stream(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        self.need(Role.ADMIN, "drop streams")
        with self.noted("drop stream", name):
            self._db.drop_stream(name, cascade=cascade, if_exists=if_exists)

    def add_column(self, stream: str, column: Column) -> None:
        self.need(Role.ADMIN, "alter streams")
        with self.noted("alter stream", stream):
            self._db.add_column(stream, column)

    def set_retain(self, stream: str, retain_us: int | None) -> None:
        self.need(Role.ADMIN, "alter streams")
        with self.noted("alter stream", stream):
            self._db.set_retain(stream, retain_us)

    def set_lateness(self, stream: str, lateness_us: int | None) -> None:
        self.need(Role.ADMIN, "alter streams")
        with self.noted("alter stream", stream):
            self._db.set_lateness(stream, lateness_us)

    def set_idle_after(self, stream: str, idle_after_us: int | None) -> None:
        self.need(Role.ADMIN, "alter streams")
        with self.noted("alter stream", stream):
            self._db.set_idle_after(stream, idle_after_us)

    def define_source(self, wanted: CreateSource) -> bool:
        # A source reads files and calls addresses with the rights of the process.
        self.need(Role.ADMIN, "create sources")
        with self.noted("create source", wanted.name):
            return self._db.define_source(wanted)

    def undefine_source(self, name: str, *, if_exists: bool) -> None:
        self.need(Role.ADMIN, "drop sources")
        with self.noted("drop source", name):
            self._db.undefine_source(name, if_exists=if_exists)

    def define_table(self, name: str, schema: TableSchema, *, if_not_exists: bool) -> bool:
        self.need(Role.ADMIN, "create tables")
        with self.noted("create table", name):
            return self._db.define_table(name, schema, if_not_exists=if_not_exists)

    def drop_table(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        self.need(Role.ADMIN, "drop tables")
        with self.noted("drop table", name):
            self._db.drop_table(name, cascade=cascade, if_exists=if_exists)

    def define_function(self, definition: Definition, *, replace: bool, if_not_exists: bool) -> Function:
        # A function is code with the rights of the process.
        self.need(Role.ADMIN, "create functions")
        with self.noted("create function", definition.name):
            return self._db.define_function(definition, replace=replace, if_not_exists=if_not_exists)

    def drop_function(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        self.need(Role.ADMIN, "drop functions")
        with self.noted("drop function", name):
            self._db.drop_function(name, cascade=cascade, if_exists=if_exists)


class _Rights:
    """Tokens and grants as a user may change them."""

    def __init__(self, session: Session, rights: Rights) -> None:
        self._session = session
        self._rights = rights

    def create_token(self, name: str, role: Role, *, replace: bool) -> str:
        self._session.need(Role.ADMIN, "create tokens")
        made = self._rights.create_token(name, role, replace=replace)
        self._session.note("create token", name, role.value)
        return made

    def tokens(self) -> list[Token]:
        self._session.need(Role.ADMIN, "list tokens")
        return self._rights.tokens()

    def drop_token(self, name: str, *, if_exists: bool) -> None:
        self._session.need(Role.ADMIN, "drop tokens")
        self._rights.drop_token(name, if_exists=if_exists)
        self._session.note("drop token", name, "done")

    def grant(self, query: str, to: str) -> None:
        with self._session.noted("grant", f"{query} to {to}"):
            self._rights.grant(query, to, by=self._session.user)

    def revoke(self, query: str, to: str) -> None:
        with self._session.noted("revoke", f"{query} from {to}"):
            self._rights.revoke(query, to, by=self._session.user)
