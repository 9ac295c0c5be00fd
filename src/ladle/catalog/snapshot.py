"""The state that the log's entries add up to: what each kind of entry does to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ladle.access import User
from ladle.archive.segments import DataFile
from ladle.catalog.access import Access, token_from_json
from ladle.catalog.now import activated, now_of_clocks, with_activations
from ladle.catalog.queries import QueryState, Reading, parts_of_bound, queries_from_json, queries_to_json
from ladle.catalog.sources import SourceState
from ladle.catalog.standing import Changing, Queries, block_key
from ladle.catalog.streams import QUARANTINE, StreamState
from ladle.catalog.tables import TableState
from ladle.plan import Block, Function
from ladle.schema import Column, StreamSchema, TableSchema, decode_schema
from ladle.sql.statements import Materialize


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

    def renewed(self, newest: Catalog) -> Catalog:
        """A newer catalog, as whoever looked at this one sees it."""
        return newest

    @property
    def block_ids(self) -> Mapping[str, int]:
        """Ids of the blocks that standing queries have, by stream id and text."""
        return self.queries.block_ids

    # -- what the binder asks (ladle.sql.names.Names) --

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        stream = self.stream(name)
        return None if stream is None else (stream.name, stream.schema)

    def table_schema(self, name: str) -> tuple[str, TableSchema] | None:
        table = self.table(name)
        return None if table is None else (table.name, table.schema)

    def query_sql(self, name: str) -> tuple[str, str] | None:
        query = self.query(name)
        return None if query is None else (query.name, query.sql)

    def inside(self, query: str) -> Catalog:
        """As the text of a query sees it."""
        return self

    def function(self, name: str) -> Function | None:
        return self.functions.get(name.lower())

    def function_names(self) -> Iterable[str]:
        return [function.name for function in self.functions.values()]

    def stream_names(self) -> Iterable[str]:
        return [stream.name for stream in self.streams.values()]

    def table_names(self) -> Iterable[str]:
        return [table.name for table in self.tables.values()]

    def query_names(self) -> Iterable[str]:
        return [query.name for query in self.standing()]

    # -- lookups --

    def standing(self) -> list[QueryState]:
        """The standing queries in the order in which they came."""
        return self.queries.in_order()

    def stream(self, name: str) -> StreamState | None:
        """A stream by name; `trades.quarantine` is the quarantine of `trades`."""
        base, dot, part = name.lower().partition(".")
        stream = self.streams.get(base)
        if stream is None or not dot:
            return stream
        return stream.quarantine if part == "quarantine" else None

    def all_streams(self) -> Iterator[StreamState]:
        """The streams and their quarantines."""
        for stream in self.streams.values():
            yield stream
            if stream.quarantine is not None:
                yield stream.quarantine

    def now_us(self, streams: Iterable[str], wall_us: int) -> int | None:
        """NOW of a query over these streams; None while it is undefined: none of those with a time of their own
        was ever active.

        Where all are stamped on arrival it is the wall clock, or the last stamp if the wall clock was set back.
        """
        found = [stream for name in streams if (stream := self.stream(name)) is not None]
        if not any(stream.event_time for stream in found):
            return max([wall_us, *(stream.clock_us for stream in found if stream.clock_us is not None)])
        return now_of_clocks([(stream, stream.clock_at) for stream in found], self.epoch)

    def table(self, name: str) -> TableState | None:
        return self.tables.get(name.lower())

    def query(self, name: str) -> QueryState | None:
        return self.queries.get(name.lower())

    def shared_with(self, query: str) -> list[str] | None:
        """Who may read a query beside its owner; None if that is not for whoever looks to know."""
        return sorted(self.access.grants.get(query.lower(), ()))

    def source(self, name: str) -> SourceState | None:
        return self.sources.get(name.lower())

    def sources_of(self, stream: str) -> list[SourceState]:
        """What was defined to flow into a stream."""
        return [source for source in self.sources.values() if source.stream.lower() == stream.lower()]

    def block_id(self, block: Block) -> int | None:
        """The id of a block that stands, also for a query that does not: it may use what is covered."""
        stream = self.stream(block.stream)
        return None if stream is None else self.block_ids.get(block_key(stream.id, block))

    def queries_on(self, stream: str) -> list[str]:
        """Names of the queries that stand on a stream, or on its quarantine."""
        wanted = stream.lower()
        return [
            query.name
            for query in self.standing()
            if any(name.lower().partition(".")[0] == wanted for name in query.shape.streams)
        ]

    def queries_reading(self, name: str) -> list[str]:
        """Names of the queries that read a standing query as a relation."""
        readers = [self.queries[reader] for reader in self.queries.readers.get(name.lower(), ())]
        return [query.name for query in sorted(readers, key=lambda query: query.place)]

    def queries_over(self, table: str) -> list[str]:
        """Names of the queries that read a table, also through queries that they read."""
        wanted = table.lower()
        return [
            query.name for query in self.standing() if any(each.table.lower() == wanted for each in query.shape.tables)
        ]

    def queries_calling(self, name: str) -> list[str]:
        """Names of the queries that call a function, also through queries that they read."""
        wanted = name.lower()
        return [
            query.name
            for query in self.standing()
            if any(function.name.lower() == wanted for function in query.shape.functions)
        ]

    def _stream_id(self, name: str) -> int:
        stream = self.stream(name)
        assert stream is not None, f"stream {name} of a bound plan"
        return stream.id

    # -- the log --

    def apply(self, seq: int, entry: Mapping[str, Any]) -> Catalog:
        """The catalog after one more log entry."""
        return _APPLY[entry["kind"]](replace(self, seq=seq), entry)

    def to_json(self) -> dict[str, Any]:
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
            **queries_to_json(self.queries.in_order()),
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> Catalog:
        parts = with_activations(value["streams"])
        streams = [StreamState.from_json(stream, value["seq"], value["epoch"]) for stream in parts]
        tables = [TableState.from_json(table, value["seq"], value["epoch"]) for table in value.get("tables", ())]
        catalog = Catalog(
            value["seq"],
            value["epoch"],
            value["next_id"],
            {stream.name.lower(): stream for stream in streams},
            # Formats before 2 had one sequence of ids for everything.
            next_query=value.get("next_query", value["next_id"]),
            functions={each["name"].lower(): Function.from_json(each) for each in value.get("functions", ())},
            tables={table.name.lower(): table for table in tables},
            access=Access.from_json(value["access"]) if "access" in value else Access(),
            sources={each["name"].lower(): SourceState.from_json(each) for each in value.get("sources", ())},
        )
        changing = catalog._changing()
        for query in queries_from_json(value):
            changing.restore(query)
        return replace(catalog, queries=changing.finish())

    def _changing(self) -> Changing:
        return Changing(self.queries, self._stream_id)

    def _with_stream(self, stream: StreamState) -> Catalog:
        return replace(self, streams={**self.streams, stream.name.lower(): stream})

    def _with_table(self, table: TableState) -> Catalog:
        return replace(self, tables={**self.tables, table.name.lower(): table})


@dataclass(frozen=True)
class Seen(Catalog):
    """A catalog as one user sees it: without the queries of others that are not shared."""

    user: User | None = None

    @staticmethod
    def by(user: User, catalog: Catalog) -> Seen:
        return Seen(**{each.name: getattr(catalog, each.name) for each in fields(Catalog)}, user=user)

    def renewed(self, newest: Catalog) -> Catalog:
        return newest if self.user is None else Seen.by(self.user, newest)

    def query(self, name: str) -> QueryState | None:
        return super().query(name) if self.access.sees(self.user, name) else None

    def shared_with(self, query: str) -> list[str] | None:
        return super().shared_with(query) if self.access.owns(self.user, query) else None

    def inside(self, query: str) -> Catalog:
        """With the eyes of the query's owner."""
        whole = Catalog(**{each.name: getattr(self, each.name) for each in fields(Catalog)})
        owner = self.access.as_owner(query)
        return whole if owner is None else Seen.by(owner, whole)

    def standing(self) -> list[QueryState]:
        return [query for query in super().standing() if self.access.sees(self.user, query.name)]


def _apply_create_stream(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    name = entry["name"]
    stream = StreamState(
        catalog.next_id,
        name,
        StreamSchema.from_json(entry["schema"]),
        entry["retain_us"],
        entry["max_ahead_us"],
        quarantine=StreamState(catalog.next_id + 1, f"{name}.quarantine", QUARANTINE),
        lateness_us=entry.get("lateness_us"),
        idle_after_us=entry.get("idle_after_us"),
    )
    return replace(catalog, next_id=catalog.next_id + 2)._with_stream(stream)


def _apply_add_column(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    (added,) = decode_schema(entry["column"])
    return catalog._with_stream(replace(stream, schema=stream.schema.with_column(Column(added.name, added.type))))


def _apply_set_retain(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    return catalog._with_stream(replace(stream, retain_us=entry["retain_us"]))


def _apply_set_lateness(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    return catalog._with_stream(replace(stream, lateness_us=entry["lateness_us"]))


def _apply_set_idle_after(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    return catalog._with_stream(replace(stream, idle_after_us=entry["idle_after_us"]))


def _apply_heartbeat(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream, number = catalog.streams[entry["stream"].lower()], catalog.epoch + 1
    advanced = stream.advanced(entry["clock_us"], entry["at_us"])
    advanced = activated(catalog.all_streams(), stream, advanced, number)
    return replace(catalog, epoch=number)._with_stream(advanced.recorded(catalog.seq, number, entry["at_us"]))


def _apply_idle(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream, number = catalog.streams[entry["stream"].lower()], catalog.epoch + 1
    idled = stream.idled(number).recorded(catalog.seq, number, entry["at_us"])
    return replace(catalog, epoch=number)._with_stream(idled)


def _apply_drop_stream(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    catalog = _without_queries(catalog, entry["queries"]) if entry["queries"] else catalog
    gone = entry["stream"].lower()
    ids = {each.id for each in (catalog.streams[gone], catalog.streams[gone].quarantine) if each is not None}
    return replace(
        catalog,
        streams={name: s.without_clocks(ids) for name, s in catalog.streams.items() if name != gone},
        sources={name: s for name, s in catalog.sources.items() if s.stream.lower() != gone},
    )


def _apply_create_table(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    table = TableState(catalog.next_id, entry["name"], TableSchema.from_json(entry["schema"]))
    return replace(catalog, next_id=catalog.next_id + 1)._with_table(table)


def _apply_set_table(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    table = catalog.tables[entry["table"].lower()]
    # Entries of versions that told no subscriber of tables were no epochs, and have no time.
    number = catalog.epoch + ("at_us" in entry)
    return replace(catalog, epoch=number)._with_table(table.following(catalog.seq, number, entry))


def _apply_drop_table(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    catalog = _without_queries(catalog, entry["queries"]) if entry["queries"] else catalog
    gone = entry["table"].lower()
    return replace(catalog, tables={name: t for name, t in catalog.tables.items() if name != gone})


def _apply_register(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    if "shapes" not in entry:
        return _apply_register_bound(catalog, entry)
    reading = Reading(entry)
    changing = catalog._changing()
    next_id, next_query = catalog.next_id, catalog.next_query
    created_us = entry["created_us"]
    for name, mode, *parts in entry["queries"]:
        next_id = changing.stand(next_query, name, Materialize(mode), created_us, reading.parts(parts), next_id)
        next_query += 1
    access = catalog.access
    if "owner" in entry:
        # One that replaces a query without an owner has none either.
        new = [name for name, *_ in entry["queries"] if name.lower() not in catalog.queries]
        access = access.with_owner(new, entry["owner"])
    return replace(catalog, next_id=next_id, next_query=next_query, queries=changing.finish(), access=access)


def _apply_register_bound(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    """As formats before 2 wrote it. The ids must be those it gave then: results are known by them."""
    changing = catalog._changing()
    next_id = catalog.next_id
    for value in entry["queries"]:
        mode, parts = Materialize(value["materialize"]), parts_of_bound(value["bound"])
        next_id = changing.stand(next_id, value["name"], mode, entry["created_us"], parts, next_id + 1)
    return replace(catalog, next_id=next_id, next_query=next_id, queries=changing.finish())


def _apply_unregister(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    return _without_queries(catalog, entry["names"])


def _without_queries(catalog: Catalog, names: Sequence[str]) -> Catalog:
    changing = catalog._changing()
    for name in names:
        query = changing.get(name)
        if query is not None:
            changing.remove(query)
    return replace(catalog, queries=changing.finish(), access=catalog.access.without_queries(names))


def _apply_create_function(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    function = Function.from_json(entry["function"])
    functions = {**catalog.functions, function.name.lower(): function}
    return _apply_register(replace(catalog, next_id=function.id + 1, functions=functions), entry)


def _apply_drop_function(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    catalog = _without_queries(catalog, entry["queries"]) if entry["queries"] else catalog
    gone = entry["name"].lower()
    return replace(catalog, functions={name: f for name, f in catalog.functions.items() if name != gone})


def _apply_create_source(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    source = SourceState.from_json({"id": catalog.next_id, **entry["source"]})
    sources = {**catalog.sources, source.name.lower(): source}
    return replace(catalog, next_id=catalog.next_id + 1, sources=sources)


def _apply_drop_source(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    gone = catalog.sources[entry["name"].lower()]
    stream = catalog.streams[gone.stream.lower()]
    left = {name: source for name, source in catalog.sources.items() if source is not gone}
    batches = {key: batch for key, batch in stream.batches.items() if key != gone.key}
    return replace(catalog, sources=left)._with_stream(replace(stream, batches=batches))


def _apply_create_token(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    return replace(catalog, access=catalog.access.with_token(token_from_json(entry["token"])))


def _apply_drop_token(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    return replace(catalog, access=catalog.access.without_token(entry["name"]))


def _apply_grant(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    return replace(catalog, access=catalog.access.granted(entry["query"], entry["to"]))


def _apply_revoke(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    return replace(catalog, access=catalog.access.revoked(entry["query"], entry["to"]))


def _apply_epoch(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    number = catalog.epoch + 1
    assert stream.quarantine is not None

    def following(state: StreamState, part: str) -> StreamState:
        files = [DataFile.from_json(file) for file in entry[part]]
        if not files:
            return state
        grown = state.appended(files, catalog.seq, number, entry["at_us"])
        return activated(catalog.all_streams(), state, grown, number)

    stream = replace(
        following(stream, "files"),
        epochs=stream.epochs + 1,
        batches={**stream.batches, entry["source"]: entry["batch"]},
        quarantine=following(stream.quarantine, "quarantine"),
    ).with_keys(entry.get("keys", ()), number)
    return replace(catalog, epoch=number)._with_stream(stream)


def _apply_replace_files(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.stream(entry["stream"])
    assert stream is not None
    changed = stream.replaced(set(entry["removed"]), tuple(DataFile.from_json(file) for file in entry["added"]))
    base, dot, _ = entry["stream"].lower().partition(".")
    if dot:
        return catalog._with_stream(replace(catalog.streams[base], quarantine=changed))
    return catalog._with_stream(changed)


def _apply_forget_positions(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    streams = {name: stream.promising_from(entry["before"]) for name, stream in catalog.streams.items()}
    tables = {name: table.promising_from(entry["before"]) for name, table in catalog.tables.items()}
    return replace(catalog, streams=streams, tables=tables)


_APPLY = {
    "create_stream": _apply_create_stream,
    "add_column": _apply_add_column,
    "set_retain": _apply_set_retain,
    "set_lateness": _apply_set_lateness,
    "set_idle_after": _apply_set_idle_after,
    "heartbeat": _apply_heartbeat,
    "idle": _apply_idle,
    "drop_stream": _apply_drop_stream,
    "create_table": _apply_create_table,
    "set_table": _apply_set_table,
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
