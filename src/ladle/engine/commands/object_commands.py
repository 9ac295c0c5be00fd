"""Commands that make, change and drop streams, sources, tables and functions."""

from __future__ import annotations

from dataclasses import dataclass

from ladle.access import Role, User
from ladle.catalog import Catalog
from ladle.command import Command
from ladle.define.definitions import base_stream
from ladle.define.function_source import Definition
from ladle.define.functions import known_function
from ladle.engine.commands.declaration import declare
from ladle.engine.parts import Parts
from ladle.plan import Function, Plan
from ladle.sql.statement_types import (
    AddColumn,
    AddTableColumn,
    CreateSource,
    CreateStream,
    CreateTable,
    DropFunction,
    DropSource,
    DropStream,
    DropTable,
    SetIdleAfter,
    SetLateness,
    SetRetain,
)

# -- streams --


@declare(CreateStream, Role.ADMIN, "create streams", noted="create stream")
def create_stream(parts: Parts, command: CreateStream, _: User | None) -> bool:
    """Whether the stream is new."""
    return parts.definitions.create_stream(
        command.name,
        command.schema,
        retain_us=command.retain_us,
        max_ahead_us=command.max_ahead_us,
        lateness_us=command.lateness_us,
        idle_after_us=command.idle_after_us,
        if_not_exists=command.if_not_exists,
    )


@declare(DropStream, Role.ADMIN, "drop streams", noted="drop stream")
def drop_stream(parts: Parts, command: DropStream, _: User | None) -> None:
    """Drop a stream that nothing stands on; with `cascade` whatever does goes too."""
    before = parts.store.catalog
    if command.if_exists and before.stream(command.name) is None:
        return
    stream = base_stream(before, command.name)
    if command.cascade:
        parts.sources.release(stream.name)
    attached = parts.sources.at_work(stream.name)
    parts.definitions.drop_stream(stream, cascade=command.cascade, attached=attached)
    parts.sources.forget_dropped(before)


def _stream_of(command: AddColumn | SetRetain | SetLateness | SetIdleAfter) -> str:
    return command.stream


@declare(AddColumn, Role.ADMIN, "alter streams", noted="alter stream", target=_stream_of)
def add_column(parts: Parts, command: AddColumn, _: User | None) -> None:
    """It is NULL in the tuples that came before."""
    parts.definitions.add_column(command.stream, command.column)


@declare(SetRetain, Role.ADMIN, "alter streams", noted="alter stream", target=_stream_of)
def set_retain(parts: Parts, command: SetRetain, _: User | None) -> None:
    """For how long tuples are kept."""
    parts.definitions.set_retain(command.stream, command.retain_us)


@declare(SetLateness, Role.ADMIN, "alter streams", noted="alter stream", target=_stream_of)
def set_lateness(parts: Parts, command: SetLateness, _: User | None) -> None:
    """How far behind the clock a tuple may come."""
    parts.definitions.set_lateness(command.stream, command.lateness_us)


@declare(SetIdleAfter, Role.ADMIN, "alter streams", noted="alter stream", target=_stream_of)
def set_idle_after(parts: Parts, command: SetIdleAfter, _: User | None) -> None:
    """After which silence a stream becomes idle."""
    parts.definitions.set_idle_after(command.stream, command.idle_after_us)


# A source reads files and calls addresses with the rights of the process, so admins make them.
@declare(CreateSource, Role.ADMIN, "create sources", noted="create source")
def create_source(parts: Parts, command: CreateSource, _: User | None) -> bool:
    """Whether the source is new."""
    parts.require_writable()
    return parts.sources.create(command)


@declare(DropSource, Role.ADMIN, "drop sources", noted="drop source")
def drop_source(parts: Parts, command: DropSource, _: User | None) -> None:
    """Its tuples stay."""
    parts.require_writable()
    parts.sources.drop(command.name, if_exists=command.if_exists)


# -- tables --


@declare(CreateTable, Role.ADMIN, "create tables", noted="create table")
def create_table(parts: Parts, command: CreateTable, _: User | None) -> bool:
    """Whether the table is new."""
    parts.require_writable()
    return parts.definitions.create_table(command.name, command.schema, if_not_exists=command.if_not_exists)


@dataclass(frozen=True)
class TableOf(Command[int | None]):
    """Make a table of the answer of a plan that was bound to a catalog."""

    name: str
    plan: Plan
    bound_to: Catalog
    if_not_exists: bool = False


@declare(TableOf, Role.ADMIN, "create tables", noted="create table")
def create_table_as(parts: Parts, command: TableOf, _: User | None) -> int | None:
    """How many rows it has; None if it was there."""
    parts.require_writable()
    kept = command.if_not_exists
    return parts.tables.create_as(command.name, command.plan, command.bound_to, if_not_exists=kept)


@declare(AddTableColumn, Role.ADMIN, "alter tables", noted="alter table", target=lambda command: command.table)
def add_table_column(parts: Parts, command: AddTableColumn, _: User | None) -> None:
    """Rows that are there have its default, or NULL."""
    parts.require_writable()
    parts.tables.add_column(command.table, command.column)


@declare(DropTable, Role.ADMIN, "drop tables", noted="drop table")
def drop_table(parts: Parts, command: DropTable, _: User | None) -> None:
    """Drop a table that no query reads; with `cascade` those that do go too."""
    parts.require_writable()
    how = {"cascade": command.cascade, "if_exists": command.if_exists}
    parts.tables.forget(parts.definitions.drop_table(command.name, **how))


# -- functions --


@dataclass(frozen=True)
class DefineFunction(Command[Function]):
    """Let a function be there whose source was looked at."""

    definition: Definition
    replace: bool = False
    if_not_exists: bool = False


# A function is code with the rights of the process, so admins make them.
@declare(
    DefineFunction,
    Role.ADMIN,
    "create functions",
    noted="create function",
    target=lambda command: command.definition.name,
)
def create_function(parts: Parts, command: DefineFunction, _: User | None) -> Function:
    """The function that is there then."""
    parts.require_writable()
    how = {"if_not_exists": command.if_not_exists, "replace": command.replace}
    parts.functions.create(command.definition, **how)
    return known_function(parts.snapshot(), command.definition.name)


@declare(DropFunction, Role.ADMIN, "drop functions", noted="drop function")
def drop_function(parts: Parts, command: DropFunction, _: User | None) -> None:
    """Let a function go that no query calls; with `cascade` those that do go too."""
    if command.if_exists and parts.store.catalog.function(command.name) is None:
        return
    parts.functions.drop(known_function(parts.snapshot(), command.name).name, cascade=command.cascade)
