"""Commands that bring rows into streams and tables, and time."""

from __future__ import annotations

from dataclasses import dataclass

from ladle.access import Role, User
from ladle.catalog import Catalog
from ladle.command import Command
from ladle.define.definitions import base_stream
from ladle.define.given import as_table
from ladle.define.table_changes import Change
from ladle.engine.commands.declaration import declare
from ladle.engine.parts import Parts
from ladle.handles import HandedOver, PushBody
from ladle.ingest.clocks import heartbeat
from ladle.sql.statement_types import (
    Advance,
    InsertTableValues,
)

# -- rows --


@dataclass(frozen=True)
class Push(Command[HandedOver]):
    """Hand rows over to a stream. With `wait` they are visible when it is done."""

    stream: str
    rows: object
    wait: bool = False
    key: str | None = None
    """A push with the key of one before it is that one, sent again."""
    body: PushBody | None = None
    """What came over the network: a key that came before with another is refused."""


@declare(Push, Role.WRITER, "push rows")
def push(parts: Parts, command: Push, by: User | None) -> HandedOver:
    """Durable when this returns."""
    parts.require_writable()
    key = command.key
    if key is not None and by is not None and not by.local:
        key = f"{by.name.lower()}\0{key}"  # another user's push with the same key is another push
    stream = base_stream(parts.store.catalog, command.stream)
    table = as_table(command.rows, stream)
    return parts.ingest.hand_over(stream, table, wait=command.wait, key=key, body=command.body)


@declare(Advance, Role.WRITER, "send heartbeats")
def advance(parts: Parts, command: Advance, _: User | None) -> int | None:
    """The epoch of it; None when the clock was there already."""
    return heartbeat(parts.store, command.stream, command.to_us)


@declare(InsertTableValues, Role.WRITER, "insert rows")
def insert(parts: Parts, command: InsertTableValues, _: User | None) -> int:
    """How many rows that were."""
    parts.require_writable()
    return parts.tables.insert(command.table, command.rows)


@dataclass(frozen=True)
class ChangeTable(Command[int]):
    """INSERT, UPDATE, DELETE or MERGE that was bound to a catalog."""

    change: Change
    text: str
    bound_to: Catalog


@declare(ChangeTable, Role.WRITER, "change tables")
def change_table(parts: Parts, command: ChangeTable, _: User | None) -> int:
    """How many rows that was about."""
    parts.require_writable()
    return parts.tables.run(command.change, command.text, command.bound_to)
