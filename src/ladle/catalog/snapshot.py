"""The state that the log's entries add up to: what each kind of entry does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ladle.archive.log import Body
from ladle.archive.segments import DataFile
from ladle.catalog import entry_types
from ladle.catalog.before import Before, register_before, restore_before
from ladle.catalog.bindings import Bindings
from ladle.catalog.defined_sources import SourceState
from ladle.catalog.grants import Access, token_from_json
from ladle.catalog.meaning import meaning_of
from ladle.catalog.now import activated, now_of_clocks, with_activations
from ladle.catalog.queries import (
    NewQuery,
    QueryState,
    block_key,
    queries_from_json,
    queries_to_json,
    told_by_spark,
)
from ladle.catalog.standing import Arriving, Changing, Queries, stand
from ladle.catalog.streams import QUARANTINE, StreamState
from ladle.catalog.tables import Created, TableState
from ladle.json_values import JsonFields, JsonObject, JsonRow
from ladle.plan import Block, Function, Plan
from ladle.schema import StreamSchema, TableSchema, decode_columns
from ladle.sql.names import Names
from ladle.sql.statement_types import Materialize


@dataclass(frozen=True)
class Catalog:
    """A snapshot: the prefix of the log up to `seq`."""

    seq: int = 0
    epoch: int = 0
    next_id: int = 1
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    queries: Queries = field(default_factory=Queries)
    next_query: int = 1
    """Queries have ids of their own, so that blocks fill their pages."""
    functions: Mapping[str, Function] = field(default_factory=dict)
    """The users' functions by lower-case name, each as it is now."""
    tables: Mapping[str, TableState] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    """What was defined to flow into streams, by lower-case name."""
    bindings: Bindings = field(default_factory=Bindings)
    """What knows what texts are bound to. Derived, and the same for all snapshots of a process."""
    before: Before = field(default_factory=Before)
    """What entries of versions before need to be read."""

    def renewed(self, newest: Catalog) -> Catalog:
        """A newer catalog, as whoever looked at this one sees it."""
        return newest

    @property
    def block_ids(self) -> Mapping[int, int]:
        """How many standing queries have each block, by its number."""
        return self.queries.users

    # -- what the binder asks (ladle.sql.names.Names) --

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        """What a stream is called, and its columns; None if there is none."""
        stream = self.stream(name)
        return None if stream is None else (stream.name, stream.schema)

    def table_schema(self, name: str) -> tuple[str, TableSchema] | None:
        """What a table is called, and its columns; None if there is none."""
        table = self.table(name)
        return None if table is None else (table.name, table.schema)

    def query_sql(self, name: str) -> tuple[str, str] | None:
        """What a standing query is called, and its text; None if there is none. A broken one is refused."""
        query = self.query(name)
        if query is None:
            return None
        if (why := self.why_broken(query)) is not None:
            raise query.refused(why)
        return query.name, query.sql

    def inside(self, query: str) -> Names:
        """What the names in the text of a query mean."""
        return self.queries[query.lower()].meaning

    def function(self, name: str) -> Function | None:
        """The function of that name, or None."""
        return self.functions.get(name.lower())

    def function_names(self) -> Iterable[str]:
        """The names of the functions."""
        return [function.name for function in self.functions.values()]

    def stream_names(self) -> Iterable[str]:
        """The names of the streams."""
        return [stream.name for stream in self.streams.values()]

    def table_names(self) -> Iterable[str]:
        """The names of the tables."""
        return [table.name for table in self.tables.values()]

    def query_names(self) -> Iterable[str]:
        """The names of the standing queries."""
        return [query.name for query in self.standing()]

    # -- lookups --

    def standing(self) -> list[QueryState]:
        """The standing queries in the order in which they came."""
        return self.queries.in_order()

    def stream(self, name: str) -> StreamState | None:
        """A stream by name; `trades.quarantine` is the quarantine of `trades`."""
        lowered = name.lower()
        stream = self.streams.get(lowered)
        if stream is None and "." in lowered:
            base, _, part = lowered.partition(".")
            whole = self.streams.get(base)
            return whole.quarantine if whole is not None and part == "quarantine" else None
        return stream

    def all_streams(self) -> Iterator[StreamState]:
        """The streams and their quarantines."""
        for stream in self.streams.values():
            yield stream
            if stream.quarantine is not None:
                yield stream.quarantine

    def now_us(self, streams: Sequence[str], wall_us: int) -> int | None:
        """NOW of a query over these streams; None while it is undefined: none of those with a time of their own
        was ever active.

        Where all are stamped on arrival it is the wall clock, or the last stamp if the wall clock was set back.
        """
        if len(streams) == 1 and (only := self.stream(streams[0])) is not None and only.event_time:
            return None if only.clock_at is None else only.clock_at.clock_us
        found = [stream for name in streams if (stream := self.stream(name)) is not None]
        if not any(stream.event_time for stream in found):
            return max([wall_us, *(stream.clock_us for stream in found if stream.clock_us is not None)])
        return now_of_clocks([(stream, stream.clock_at) for stream in found], self.epoch)

    def table(self, name: str) -> TableState | None:
        """The table of that name, or None."""
        return self.tables.get(name.lower())

    def query(self, name: str) -> QueryState | None:
        """The standing query of that name, or None."""
        return self.queries.get(name.lower())

    def shared_with(self, query: str) -> list[str] | None:
        """Who may read a query beside its owner; None if that is not for whoever looks to know."""
        return sorted(self.access.grants.get(query.lower(), ()))

    def why_broken(self, query: QueryState) -> str | None:
        """Why a query does not bind, if it does not, as far as that is for whoever looks to know."""
        return query.broken

    def source(self, name: str) -> SourceState | None:
        """The source of that name, or None."""
        return self.sources.get(name.lower())

    def sources_of(self, stream: str) -> list[SourceState]:
        """What was defined to flow into a stream."""
        return [source for source in self.sources.values() if source.stream.lower() == stream.lower()]

    def block_id(self, block: Block) -> int | None:
        """The number of a block that stands, also for a query that does not: it may use what is covered."""
        stream = self.stream(block.stream)
        number = None if stream is None else self.bindings.numbering.find(block_key(stream.id, block))
        return number if number is not None and self.queries.stands(number) else None

    def wanted(self, name: str, plan: Plan, materialize: Materialize) -> NewQuery:
        """A query that is to stand, as it was bound to this catalog."""
        return NewQuery(name, plan.sql, meaning_of(plan, self), materialize, told_by_spark(plan), plan)

    # -- the log --

    def apply(self, seq: int, entry: entry_types.Entry) -> Catalog:
        """The catalog after one more log entry."""
        return _APPLY[entry["kind"]](replace(self, seq=seq), entry)

    def to_json(self) -> JsonObject:
        """Encode the whole state for a checkpoint."""
        return {
            "seq": self.seq,
            "epoch": self.epoch,
            "next_id": self.next_id,
            "next_query": self.next_query,
            "streams": [stream.to_json() for stream in self.streams.values()],
            "functions": [function.to_json() for function in self.functions.values()],
            "tables": [table.to_json() for table in self.tables.values()],
            "access": self.access.to_json(),
            "sources": [source.to_json() for source in self.sources.values()],
            **queries_to_json(self.queries.by_name.values()),
        }

    @staticmethod
    def from_json(value: JsonFields, bindings: Bindings | None = None) -> Catalog:
        """Decode the state of a checkpoint."""
        parts = with_activations(value["streams"])
        streams = [StreamState.from_json(stream, value["seq"], value["epoch"]) for stream in parts]
        tables = [TableState.from_json(table, value["seq"], value["epoch"]) for table in value.get("tables", ())]
        catalog = Catalog(
            value["seq"],
            value["epoch"],
            value["next_id"],
            {stream.name.lower(): stream for stream in streams},
            # Formats before 2 had one sequence of ids for everything.
            next_query=value["next_query"] if "next_query" in value else value["next_id"],
            functions={each["name"].lower(): Function.from_json(each) for each in value.get("functions", ())},
            tables={table.name.lower(): table for table in tables},
            access=Access.from_json(value["access"]) if "access" in value else Access(),
            sources={each["name"].lower(): SourceState.from_json(each) for each in value.get("sources", ())},
            bindings=Bindings() if bindings is None else bindings,
        )
        changing = Changing(catalog.queries)
        known = Arriving(catalog, changing)
        restored: Iterable[QueryState]
        if "references" in value:
            restored, before = queries_from_json(value, known, catalog.bindings), Before()
        else:
            restored, before = restore_before(value, known, catalog.bindings)
        for query in restored:
            changing.add(query)
        return replace(catalog, queries=changing.finish(), before=before)

    def _with_stream(self, stream: StreamState) -> Catalog:
        """With another state of a stream, or of a quarantine."""
        base, dot, _ = stream.name.lower().partition(".")
        if dot:
            stream = replace(self.streams[base], quarantine=stream)
        return replace(self, streams={**self.streams, stream.name.lower(): stream})

    def _with_table(self, table: TableState) -> Catalog:
        return replace(self, tables={**self.tables, table.name.lower(): table})


def _apply_create_stream(catalog: Catalog, entry: entry_types.CreateStreamEntry) -> Catalog:
    name = entry["name"]
    stream = StreamState(
        catalog.next_id,
        name,
        StreamSchema.from_json(entry["schema"]),
        entry["retain_us"],
        entry["max_ahead_us"],
        quarantine=StreamState(
            catalog.next_id + 1, f"{name}.quarantine", QUARANTINE, entry["retain_us"], created=catalog.seq
        ),
        lateness_us=entry.get("lateness_us"),
        idle_after_us=entry.get("idle_after_us"),
        created=catalog.seq,
    )
    return replace(catalog, next_id=catalog.next_id + 2)._with_stream(stream)


def _apply_add_column(catalog: Catalog, entry: entry_types.AddColumnEntry) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    (added,) = decode_columns(entry["column"])
    return catalog._with_stream(replace(stream, schema=stream.schema.with_column(added)))


def _apply_set_retain(catalog: Catalog, entry: entry_types.SetRetainEntry) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    if "at_us" not in entry:  # by a version that told nobody of it
        retain_us = entry["retain_us"]
        quarantine = stream.quarantine and replace(stream.quarantine, retain_us=retain_us)
        return catalog._with_stream(replace(stream, retain_us=retain_us, quarantine=quarantine))
    number = catalog.epoch + 1
    changed = stream.retaining(entry["retain_us"], catalog.seq, number, entry["at_us"])
    return replace(catalog, epoch=number)._with_stream(changed)


def _apply_set_lateness(catalog: Catalog, entry: entry_types.SetLatenessEntry) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    return catalog._with_stream(replace(stream, lateness_us=entry["lateness_us"]))


def _apply_set_idle_after(catalog: Catalog, entry: entry_types.SetIdleAfterEntry) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    return catalog._with_stream(replace(stream, idle_after_us=entry["idle_after_us"]))


def _apply_heartbeat(catalog: Catalog, entry: entry_types.HeartbeatEntry) -> Catalog:
    stream, number = catalog.stream(entry["stream"]), catalog.epoch + 1
    assert stream is not None
    advanced = stream.advanced(entry["clock_us"], entry["at_us"])
    advanced = activated(catalog.all_streams(), stream, advanced, number)
    return replace(catalog, epoch=number)._with_stream(advanced.recorded(catalog.seq, number, entry["at_us"]))


def _apply_idle(catalog: Catalog, entry: entry_types.IdleEntry) -> Catalog:
    stream, number = catalog.streams[entry["stream"].lower()], catalog.epoch + 1
    idled = stream.idled(number).recorded(catalog.seq, number, entry["at_us"])
    return replace(catalog, epoch=number)._with_stream(idled)


def _apply_drop_stream(catalog: Catalog, entry: entry_types.DropStreamEntry) -> Catalog:
    catalog = _without_queries(catalog, entry["queries"]) if entry["queries"] else catalog
    gone = entry["stream"].lower()
    ids = {each.id for each in (catalog.streams[gone], catalog.streams[gone].quarantine) if each is not None}
    return replace(
        catalog,
        streams={name: s.without_clocks(ids) for name, s in catalog.streams.items() if name != gone},
        sources={name: s for name, s in catalog.sources.items() if s.stream.lower() != gone},
    )


def _apply_create_table(catalog: Catalog, entry: entry_types.CreateTableEntry) -> Catalog:
    created = Created(catalog.seq, entry.get("at_us", 0))
    table = TableState(catalog.next_id, entry["name"], TableSchema.from_json(entry["schema"]), created=created)
    return replace(catalog, next_id=catalog.next_id + 1)._with_table(table)


def _apply_create_table_as(catalog: Catalog, entry: entry_types.CreateTableAsEntry) -> Catalog:
    return _apply_set_table(_apply_create_table(catalog, entry), entry)


def _apply_set_table(catalog: Catalog, entry: entry_types.SetTableEntry) -> Catalog:
    table = catalog.tables[entry["table"].lower()]
    # Entries of versions that told no subscriber of tables were no epochs, and have no time.
    number = catalog.epoch + ("at_us" in entry)
    return replace(catalog, epoch=number)._with_table(table.following(catalog.seq, number, entry))


def _apply_add_table_column(catalog: Catalog, entry: entry_types.AddTableColumnEntry) -> Catalog:
    table = catalog.tables[entry["table"].lower()]
    (added,) = decode_columns(entry["column"])
    widened = replace(table, schema=table.schema.with_column(added))
    return _apply_set_table(catalog._with_table(widened), entry)


def _apply_drop_table(catalog: Catalog, entry: entry_types.DropTableEntry) -> Catalog:
    catalog = _without_queries(catalog, entry["queries"]) if entry["queries"] else catalog
    gone = entry["table"].lower()
    return replace(catalog, tables={name: t for name, t in catalog.tables.items() if name != gone})


def _apply_register(catalog: Catalog, entry: JsonFields) -> Catalog:
    changing = Changing(catalog.queries)
    known = Arriving(catalog, changing)
    new = [name for name in _names(entry) if name.lower() not in catalog.queries]
    if "references" in entry:
        catalog = replace(catalog, next_query=stand(entry, known, catalog.bindings, catalog.next_query))
    else:
        next_ids = catalog.next_id, catalog.next_query
        before, next_id, next_query = register_before(catalog.before, entry, known, catalog.bindings, next_ids)
        catalog = replace(catalog, before=before, next_id=next_id, next_query=next_query)
    # One that replaces a query without an owner has none either.
    access = catalog.access.with_owner(new, entry["owner"]) if "owner" in entry else catalog.access
    return replace(catalog, queries=changing.finish(), access=access)


def _names(entry: JsonFields) -> list[str]:
    return [each["name"] if isinstance(each, dict) else each[0] for each in entry["queries"]]


def _apply_unregister(catalog: Catalog, entry: entry_types.UnregisterEntry) -> Catalog:
    return _without_queries(catalog, entry["names"])


def _without_queries(catalog: Catalog, names: Sequence[str]) -> Catalog:
    changing = Changing(catalog.queries)
    for name in names:
        query = changing.get(name)
        if query is not None:
            changing.remove(query)
    return replace(
        catalog,
        queries=changing.finish(),
        access=catalog.access.without_queries(names),
        before=catalog.before.without(names),
    )


def _apply_create_function(catalog: Catalog, entry: JsonFields) -> Catalog:
    function = Function.from_json(entry["function"])
    functions = {**catalog.functions, function.name.lower(): function}
    return _apply_register(replace(catalog, next_id=function.id + 1, functions=functions), entry)


def _apply_drop_function(catalog: Catalog, entry: entry_types.DropFunctionEntry) -> Catalog:
    catalog = _without_queries(catalog, entry["queries"]) if entry["queries"] else catalog
    gone = entry["name"].lower()
    return replace(catalog, functions={name: f for name, f in catalog.functions.items() if name != gone})


def _apply_create_source(catalog: Catalog, entry: entry_types.CreateSourceEntry) -> Catalog:
    source = SourceState.from_json({"id": catalog.next_id, **entry["source"]})
    sources = {**catalog.sources, source.name.lower(): source}
    return replace(catalog, next_id=catalog.next_id + 1, sources=sources)


def _apply_drop_source(catalog: Catalog, entry: entry_types.NameOnly) -> Catalog:
    gone = catalog.sources[entry["name"].lower()]
    stream = catalog.streams[gone.stream.lower()]
    left = {name: source for name, source in catalog.sources.items() if source is not gone}
    batches = {key: batch for key, batch in stream.batches.items() if key != gone.key}
    return replace(catalog, sources=left)._with_stream(replace(stream, batches=batches))


def _apply_create_token(catalog: Catalog, entry: entry_types.CreateTokenEntry) -> Catalog:
    return replace(catalog, access=catalog.access.with_token(token_from_json(entry["token"])))


def _apply_drop_token(catalog: Catalog, entry: entry_types.NameOnly) -> Catalog:
    return replace(catalog, access=catalog.access.without_token(entry["name"]))


def _apply_grant(catalog: Catalog, entry: entry_types.GrantEntry) -> Catalog:
    return replace(catalog, access=catalog.access.granted(entry["query"], entry["to"]))


def _apply_revoke(catalog: Catalog, entry: entry_types.GrantEntry) -> Catalog:
    return replace(catalog, access=catalog.access.revoked(entry["query"], entry["to"]))


def _apply_epoch(catalog: Catalog, entry: entry_types.EpochEntry) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    number = catalog.epoch + 1
    assert stream.quarantine is not None

    def following(state: StreamState, rows: Sequence[JsonRow]) -> StreamState:
        files = [DataFile.from_json(row) for row in rows]
        if not files:
            return state
        grown = state.appended(files, catalog.seq, number, entry["at_us"])
        return activated(catalog.all_streams(), state, grown, number)

    stream = replace(
        following(stream, entry["files"]),
        epochs=stream.epochs + 1,
        batches={**stream.batches, entry["source"]: entry["batch"]},
        quarantine=following(stream.quarantine, entry["quarantine"]),
    ).with_keys(entry.get("keys", ()), number)
    return replace(catalog, epoch=number)._with_stream(stream)


def _apply_replace_files(catalog: Catalog, entry: entry_types.ReplaceFilesEntry) -> Catalog:
    stream = catalog.stream(entry["stream"])
    assert stream is not None
    added = tuple(DataFile.from_json(file) for file in entry["added"])
    return catalog._with_stream(stream.replaced(set(entry["removed"]), added, catalog.seq))


def _apply_forget_positions(catalog: Catalog, entry: entry_types.ForgetPositionsEntry) -> Catalog:
    streams = {name: stream.promising_from(entry["before"]) for name, stream in catalog.streams.items()}
    tables = {name: table.promising_from(entry["before"]) for name, table in catalog.tables.items()}
    return replace(catalog, streams=streams, tables=tables)


_APPLY: Mapping[str, Callable[[Catalog, Body], Catalog]] = {
    "create_stream": _apply_create_stream,
    "add_column": _apply_add_column,
    "set_retain": _apply_set_retain,
    "set_lateness": _apply_set_lateness,
    "set_idle_after": _apply_set_idle_after,
    "heartbeat": _apply_heartbeat,
    "idle": _apply_idle,
    "drop_stream": _apply_drop_stream,
    "create_table": _apply_create_table,
    "create_table_as": _apply_create_table_as,
    "set_table": _apply_set_table,
    "add_table_column": _apply_add_table_column,
    "drop_table": _apply_drop_table,
    "register": _apply_register,
    "replace": _apply_register,
    "unregister": _apply_unregister,
    "create_function": _apply_create_function,
    "drop_function": _apply_drop_function,
    "create_source": _apply_create_source,
    "drop_source": _apply_drop_source,
    "create_token": _apply_create_token,
    "drop_token": _apply_drop_token,
    "grant": _apply_grant,
    "revoke": _apply_revoke,
    "epoch": _apply_epoch,
    "replace_files": _apply_replace_files,
    "forget_positions": _apply_forget_positions,
}
