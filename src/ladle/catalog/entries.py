"""Log entries: one function makes each kind. What they do to a catalog is in `ladle.catalog.snapshot`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ladle.access import Token
from ladle.archive.segments import DataFile
from ladle.catalog.entry_types import (
    AddColumnEntry,
    AddTableColumnEntry,
    CreateSourceEntry,
    CreateStreamEntry,
    CreateTableAsEntry,
    CreateTableEntry,
    CreateTokenEntry,
    DropFunctionEntry,
    DropStreamEntry,
    DropTableEntry,
    EpochEntry,
    ForgetPositionsEntry,
    GrantEntry,
    HeartbeatEntry,
    IdleEntry,
    NameOnly,
    ReplaceFilesEntry,
    SetIdleAfterEntry,
    SetLatenessEntry,
    SetRetainEntry,
    SetTableEntry,
    UnregisterEntry,
)
from ladle.catalog.grants import token_to_json
from ladle.catalog.queries import NewQuery, Writing
from ladle.catalog.tables import Replaced, TableFile
from ladle.json_values import JsonFields
from ladle.plan import Function, Plan
from ladle.schema import Column, StreamSchema, TableSchema, encode_columns


def create_stream(
    name: str,
    schema: StreamSchema,
    retain_us: int | None,
    max_ahead_us: int | None,
    lateness_us: int | None = None,
    idle_after_us: int | None = None,
) -> CreateStreamEntry:
    """The entry that makes a stream. Durations are in microseconds; None means no limit."""
    return {
        "kind": "create_stream",
        "name": name,
        "schema": schema.to_json(),
        "retain_us": retain_us,
        "max_ahead_us": max_ahead_us,
        "lateness_us": lateness_us,
        "idle_after_us": idle_after_us,
    }


def add_column(stream: str, column: Column) -> AddColumnEntry:
    """The entry that adds a column to a stream."""
    return {
        "kind": "add_column",
        "stream": stream,
        "column": encode_columns((column,)),
    }


def set_retain(stream: str, retain_us: int | None, at_us: int) -> SetRetainEntry:
    """The entry that changes how long a stream keeps its tuples; None keeps them for ever."""
    return {"kind": "set_retain", "stream": stream, "retain_us": retain_us, "at_us": at_us}


def set_lateness(stream: str, lateness_us: int | None) -> SetLatenessEntry:
    """The entry that changes how late a tuple of a stream may be; None admits every tuple."""
    return {"kind": "set_lateness", "stream": stream, "lateness_us": lateness_us}


def set_idle_after(stream: str, idle_after_us: int | None) -> SetIdleAfterEntry:
    """The entry that changes after which silence a stream becomes idle; None: never."""
    return {"kind": "set_idle_after", "stream": stream, "idle_after_us": idle_after_us}


def heartbeat(stream: str, clock_us: int, at_us: int) -> HeartbeatEntry:
    """A stream's clock advances to a time; `at_us` is the wall clock's."""
    return {"kind": "heartbeat", "stream": stream, "clock_us": clock_us, "at_us": at_us}


def idle(stream: str, at_us: int) -> IdleEntry:
    """A stream becomes idle, until its next tuple or heartbeat; `at_us` is the wall clock's."""
    return {"kind": "idle", "stream": stream, "at_us": at_us}


def drop_stream(stream: str, queries: Iterable[str] = ()) -> DropStreamEntry:
    """A stream goes, and with it its sources and the queries named: all in one."""
    return {"kind": "drop_stream", "stream": stream, "queries": list(queries)}


def create_table(name: str, schema: TableSchema, at_us: int) -> CreateTableEntry:
    """The entry that makes a table without rows."""
    return {"kind": "create_table", "name": name, "schema": schema.to_json(), "at_us": at_us}


def create_table_as(name: str, schema: TableSchema, at_us: int, newest: TableFile) -> CreateTableAsEntry:
    """A table comes with rows: its first version, and none of it without them."""
    version = set_table(name, at_us, newest, Replaced(0, None), 0)
    return {**version, "kind": "create_table_as", "name": name, "schema": schema.to_json()}


def set_table(table: str, at_us: int, newest: TableFile | None, replaced: Replaced, keeps_from: int) -> SetTableEntry:
    """A table's next version, with all its rows; and the one it replaces. Those from a version on stay."""
    checks = None if newest is None or newest.checks is None else newest.checks.to_json()
    return {
        "kind": "set_table",
        "table": table,
        "at_us": at_us,
        "file": None if newest is None else newest.name,
        "rows": 0 if newest is None else newest.rows,
        "bytes": 0 if newest is None else newest.bytes,
        "checks": checks,
        "replaced": replaced.to_json(),
        "keeps_from": keeps_from,
    }


def add_table_column(column: Column, version: SetTableEntry) -> AddTableColumnEntry:
    """A table gets a column, and with it its next version (of `set_table`): all rows, with values there."""
    return {**version, "kind": "add_table_column", "column": encode_columns((column,))}


def drop_table(table: str, queries: Iterable[str] = ()) -> DropTableEntry:
    """A table goes, and with it the queries named: all in one."""
    return {"kind": "drop_table", "table": table, "queries": list(queries)}


class Registering(JsonFields):
    """An entry with which queries come. What their texts are bound to is not written; who applies it may know it."""

    plans: Sequence[Plan | None] = ()


def register(
    queries: Iterable[NewQuery], created_us: int, *, replacing: bool = False, owner: str | None = None
) -> Registering:
    """Queries come, each after those that it reads, and those that are new belong to the owner; with `replacing` they
    take the place of those that have their names.
    """
    writing = Writing()
    wanted = list(queries)
    entry = Registering(
        kind="replace" if replacing else "register",
        created_us=created_us,
        queries=[[each.name, each.materialize.value, *writing.query(each)] for each in wanted],
        **({} if owner is None else {"owner": owner}),
        references=writing.references,
    )
    entry.plans = [each.plan for each in wanted]
    return entry


def unregister(names: Iterable[str]) -> UnregisterEntry:
    """The entry that drops standing queries."""
    return {"kind": "unregister", "names": list(names)}


def create_function(function: Function, queries: Iterable[NewQuery] = (), created_us: int = 0) -> Registering:
    """A version of a function comes, and with it the queries that called the one before, bound to this one."""
    entry = register(queries, created_us)
    entry |= {"kind": "create_function", "function": function.to_json()}
    return entry


def drop_function(name: str, queries: Iterable[str] = ()) -> DropFunctionEntry:
    """A function goes, and with it the queries named: all in one."""
    return {"kind": "drop_function", "name": name, "queries": list(queries)}


def create_source(
    name: str, stream: str, form: str, options: Iterable[tuple[str, str]], created_us: int
) -> CreateSourceEntry:
    """A source of a stream comes; it gets an id of its own when the entry is applied."""
    source = {"name": name, "stream": stream, "format": form, "options": [list(option) for option in options]}
    return {"kind": "create_source", "source": {**source, "created_us": created_us}}


def drop_source(name: str) -> NameOnly:
    """The entry that drops a source."""
    return {"kind": "drop_source", "name": name}


def create_token(token: Token) -> CreateTokenEntry:
    """A token comes, or takes the place of the one that has its name."""
    return {"kind": "create_token", "token": token_to_json(token)}


def drop_token(name: str) -> NameOnly:
    """The entry that drops a token, and what was granted to its name."""
    return {"kind": "drop_token", "name": name}


def grant(query: str, to: str) -> GrantEntry:
    """The entry that lets somebody read a query."""
    return {"kind": "grant", "query": query, "to": to}


def revoke(query: str, to: str) -> GrantEntry:
    """The entry that takes a grant back."""
    return {"kind": "revoke", "query": query, "to": to}


def epoch(
    stream: str,
    source: str,
    batch: int,
    at_us: int,
    files: Iterable[DataFile],
    quarantine: Iterable[DataFile],
    keys: Iterable[str] = (),
) -> EpochEntry:
    """A batch of a source was taken in; of pushes, with those keys."""
    return {
        "kind": "epoch",
        "stream": stream,
        "source": source,
        "batch": batch,
        "at_us": at_us,
        "files": [file.to_json() for file in files],
        "quarantine": [file.to_json() for file in quarantine],
        "keys": list(keys),
    }


def replace_files(stream: str, removed: Iterable[str], added: Iterable[DataFile], why: str) -> ReplaceFilesEntry:
    """The entry that puts data files in the place of others with the same tuples, and says why."""
    return {
        "kind": "replace_files",
        "stream": stream,
        "removed": list(removed),
        "added": [file.to_json() for file in added],
        "why": why,
    }


def forget_positions(before: int) -> ForgetPositionsEntry:
    """Positions before an entry are no longer promised."""
    return {"kind": "forget_positions", "before": before}
