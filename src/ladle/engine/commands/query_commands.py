"""Commands that register queries and share them, answer them, and follow their answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ladle import sql
from ladle.access import Role, User
from ladle.answer import Answer
from ladle.catalog import Catalog, QueryState, Seen
from ladle.clock import moment_of
from ladle.command import Command, Result
from ladle.define.definitions import standing_query, still_holds
from ladle.delta import ChangeOptions, Delta
from ladle.derived import Level
from ladle.engine.commands.declaration import declare
from ladle.engine.parts import Parts
from ladle.errors import AlreadyExists, Denied
from ladle.execute.following import DeltaLimits
from ladle.execute.spark_analysis import analysed
from ladle.plan import Plan
from ladle.sql.statement_types import (
    DropQuery,
    Grant,
    Materialize,
    Revoke,
)


def seen_query(catalog: Catalog, user: User, name: str) -> QueryState:
    """A standing query that a user sees. What it reads of others must still be its owner's to read."""
    state = catalog.query(name) if catalog.access.sees(user, name) else None
    seen = Seen.by(user, catalog)
    if state is None:
        state = standing_query(seen, name)  # it says which there are
    hidden = None if user.may(Role.ADMIN) else catalog.access.unreadable(state.name, state.meaning.queries)
    if hidden is not None:
        raise Denied(
            f"Query '{state.name}' reads a query that its owner may read no longer.",
            hint="have it granted again, or register it without that",
        )
    if state.broken is not None and (why := seen.why_broken(state)) != state.broken:
        raise state.refused(str(why))
    return state


# -- queries --


@dataclass(frozen=True)
class Register(Command[bool]):
    """Let plans stand that were bound to a catalog: all of them, or none."""

    plans: Mapping[str, tuple[Plan, Materialize]]
    bound_to: Catalog
    if_not_exists: bool = False
    replace: bool = False


@declare(Register, Role.WRITER, "register queries", noted="register", target=lambda command: ", ".join(command.plans))
def register(parts: Parts, command: Register, by: User | None) -> bool:
    """Whether that changed anything."""
    parts.require_writable()
    seconds, bound_to, replace = parts.settings.invoke_seconds_max, command.bound_to, command.replace
    # A name that is taken is refused or kept, whatever Spark would say.
    shown = {name for name in command.plans if replace or not bound_to.query(name)}
    known = {
        name: (analysed(plan, bound_to, parts.pipeline, seconds) if name in shown else plan, mode)
        for name, (plan, mode) in command.plans.items()
    }
    how = {"if_not_exists": command.if_not_exists, "replace": replace}
    return parts.definitions.register(known, bound_to, **how, by=by)


class Runs(Protocol):
    """What carries commands out: a database, or a user's session."""

    @property
    def catalog(self) -> Catalog:
        """The newest snapshot."""
        ...

    def run(self, command: Command[Result]) -> Result:
        """Have a command carried out."""
        ...


def register_unnamed(db: Runs, plan: Plan, mode: Materialize, bound_to: Catalog) -> str:
    """Let a plan stand under a name that was free; that name.

    It is numbered by the log, `query_17`, so that a name that was dropped does not come back for another query.
    """
    number = 0
    while True:
        number = max(number, db.catalog.seq) + 1
        name = f"query_{number}"
        try:
            db.run(Register({name: (plan, mode)}, bound_to))
        except AlreadyExists:
            continue  # somebody chose it, or was first
        return name


@declare(DropQuery, Role.READER, "unregister queries", noted="unregister")
def unregister(parts: Parts, command: DropQuery, by: User | None) -> None:
    """Let a query of the user's own go; admins may let any go."""
    catalog = parts.store.catalog
    if command.if_exists and (catalog if by is None else Seen.by(by, catalog)).query(command.name) is None:
        return
    state = standing_query(catalog, command.name) if by is None else seen_query(catalog, by, command.name)
    parts.definitions.unregister([state.name], cascade=command.cascade, by=by)


@dataclass(frozen=True)
class AnswerOnce(Command[Answer]):
    """Answer a plan that was bound to a catalog, once."""

    plan: Plan
    bound_to: Catalog


@declare(AnswerOnce, Role.READER, "ask")
def select(parts: Parts, command: AnswerOnce, _: User | None) -> Answer:
    """What the plan reads may have been dropped or changed since it was bound."""
    plan, bound_to = command.plan, command.bound_to
    with parts.store.pin() as catalog:
        current = plan if still_holds(plan, bound_to, catalog) else sql.rebind(plan.sql, bound_to.renewed(catalog))
        return parts.invoker.answer(current, catalog)


@dataclass(frozen=True)
class Invoke(Command[Answer]):
    """Answer a standing query; at another NOW, if one is given."""

    name: str
    now: datetime | str | None = None


@declare(Invoke, Role.READER, "ask")
def invoke(parts: Parts, command: Invoke, by: User | None) -> Answer:
    """The kept answer where there is one; computed otherwise."""
    if by is not None:
        seen_query(parts.snapshot(), by, command.name)
    with parts.store.pin() as catalog:
        state = standing_query(catalog, command.name)
        began = time.perf_counter()
        level = parts.demands.level(state)
        kept = parts.background.asked(state, level) if command.now is None else None
        try:
            moment = None if command.now is None else moment_of(command.now)
            keep_nothing = level is Level.NOTHING
            answer = parts.invoker.answer(state.plan, catalog, now=moment, kept=kept, keep_nothing=keep_nothing)
        finally:
            parts.asked.note(state.name, time.perf_counter() - began)
            if kept is not None:
                parts.background.answers.note(state)
    parts.background.answered(state, answer.table)
    return answer


@dataclass(frozen=True)
class Follow(Command[list[Delta]]):
    """Say what changes in a query's answer after a position, if something does in time."""

    name: str
    since: int | str | None = None
    seconds: float = 0.0
    snapshot: bool = False
    options: ChangeOptions | None = None
    upto: str | None = None
    """A position told before, beyond which nothing is told."""
    limits: DeltaLimits | None = None
    query_id: int | None = None
    """The query that is meant, should another have its name by now."""


@declare(Follow, Role.READER, "subscribe")
def changes(parts: Parts, command: Follow, by: User | None) -> list[Delta]:
    """The last delta says where to go on."""
    name = command.name if by is None else seen_query(parts.snapshot(), by, command.name).name
    return parts.following.after(
        name,
        command.since,
        command.seconds,
        snapshot=command.snapshot,
        options=command.options,
        limits=command.limits,
        query_id=command.query_id,
        upto=command.upto,
    )


@declare(Grant, Role.READER, "share", noted="grant", target=lambda command: f"{command.query} to {command.to}")
def grant(parts: Parts, command: Grant, by: User | None) -> None:
    """Let somebody read a query: whose it is says that."""
    parts.rights.grant(command.query, command.to, by=by)


@declare(Revoke, Role.READER, "share", noted="revoke", target=lambda command: f"{command.query} from {command.to}")
def revoke(parts: Parts, command: Revoke, by: User | None) -> None:
    """Take that back."""
    parts.rights.revoke(command.query, command.to, by=by)
