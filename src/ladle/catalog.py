"""The catalog: the state that the log's entries add up to, and a snapshot of it after each one (DESIGN sections 1, 2).

A `Catalog` is immutable. Applying an entry gives the next one; readers keep the one they have for as long as they like.
Names are compared without case. Streams, queries and blocks have ids that are never used again, so that whatever was
derived for one can't be taken for another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.segments import DataFile
from ladle.plan import Block, Plan
from ladle.plan.query import plan_from_json, plan_to_json
from ladle.schema import Column, StreamSchema, decode_schema, encode_schema
from ladle.sql.statements import Materialize

INBOX = "inbox"
"""The source whose batches are pushes; its batch number is the highest push taken in."""

QUARANTINE = StreamSchema(
    (
        Column("arrived", pa.timestamp("us", tz="UTC")),
        Column("source", pa.string()),
        Column("reason", pa.string()),
        Column("row", pa.string()),
    ),
    timestamp="arrived",
)

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segments:
    """The segments of a stream in arrival order, column by column, so that windows are cut without a loop."""

    file: Int64s
    row_group: Int64s
    rows: Int64s
    ts_min_us: Int64s
    ts_max_us: Int64s

    @staticmethod
    def of(files: Iterable[DataFile], first_file: int = 0) -> Segments:
        rows = [
            (first_file + number, group, segment.rows, segment.ts_min_us, segment.ts_max_us)
            for number, file in enumerate(files)
            for group, segment in enumerate(file.segments)
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        return Segments(*columns)

    def followed_by(self, other: Segments) -> Segments:
        return Segments(
            np.concatenate([self.file, other.file]),
            np.concatenate([self.row_group, other.row_group]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.ts_min_us, other.ts_min_us]),
            np.concatenate([self.ts_max_us, other.ts_max_us]),
        )


@dataclass(frozen=True)
class StreamState:
    """A stream as of one log entry. The quarantine of a stream has the same form."""

    id: int
    name: str
    schema: StreamSchema
    retain_us: int | None = None
    max_ahead_us: int | None = None
    files: tuple[DataFile, ...] = ()
    segments: Segments = field(default_factory=lambda: Segments.of(()))
    clock_us: int | None = None
    """The highest `ts` committed."""
    rows: int = 0
    """Tuples ever accepted."""
    epochs: int = 0
    batches: Mapping[str, int] = field(default_factory=dict)
    """The last batch of each source that was committed."""
    quarantine: StreamState | None = None

    @property
    def event_time(self) -> bool:
        return self.schema.timestamp is not None

    @property
    def retained_rows(self) -> int:
        return int(self.segments.rows.sum())

    def clock(self, wall_us: int) -> int:
        """The stream's clock: the wall clock when tuples are stamped on arrival."""
        if not self.event_time:
            return wall_us
        return wall_us if self.clock_us is None else self.clock_us

    def floor_us(self, wall_us: int) -> int | None:
        """Tuples with `ts` at or before this are beyond retention, and seen by nobody.

        A stream with a clock of its own forgets nothing before that clock stands: its data may be years old.
        """
        if self.retain_us is None or (self.event_time and self.clock_us is None):
            return None
        return self.clock(wall_us) - self.retain_us

    def appended(self, files: tuple[DataFile, ...]) -> StreamState:
        if not files:
            return self
        latest_us = max(file.ts_max_us for file in files)
        return replace(
            self,
            files=self.files + files,
            segments=self.segments.followed_by(Segments.of(files, len(self.files))),
            clock_us=latest_us if self.clock_us is None else max(self.clock_us, latest_us),
            rows=self.rows + sum(file.rows for file in files),
        )

    def replaced(self, removed: set[str], added: tuple[DataFile, ...]) -> StreamState:
        """Put `added` in the place of the first of `removed` (compaction), or just drop those (retention)."""
        first = next((number for number, file in enumerate(self.files) if file.name in removed), len(self.files))
        kept = [file for file in self.files[first:] if file.name not in removed]
        files = [*self.files[:first], *(added if first < len(self.files) else ()), *kept]
        return replace(self, files=tuple(files), segments=Segments.of(files))

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "schema": self.schema.to_json(),
            "retain_us": self.retain_us,
            "max_ahead_us": self.max_ahead_us,
            "files": [file.to_json() for file in self.files],
            "clock_us": self.clock_us,
            "rows": self.rows,
            "epochs": self.epochs,
            "batches": dict(self.batches),
            "quarantine": None if self.quarantine is None else self.quarantine.to_json(),
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> StreamState:
        files = tuple(DataFile.from_json(file) for file in value["files"])
        quarantine = value["quarantine"]
        return StreamState(
            **{**value, "files": files, "schema": StreamSchema.from_json(value["schema"])}
            | {
                "segments": Segments.of(files),
                "quarantine": None if quarantine is None else StreamState.from_json(quarantine),
            }
        )


@dataclass(frozen=True)
class QueryState:
    """A standing query as of one log entry. Its plan is kept as it was bound and decoded when first used."""

    id: int
    name: str
    materialize: Materialize
    created_us: int
    bound: Mapping[str, Any]
    blocks: tuple[int, ...]
    """The id of each scan's block."""

    @property
    def sql(self) -> str:
        return str(self.bound["sql"])

    @cached_property
    def plan(self) -> Plan:
        return plan_from_json(dict(self.bound))

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "materialize": self.materialize.value,
            "created_us": self.created_us,
            "bound": self.bound,
            "blocks": list(self.blocks),
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> QueryState:
        return QueryState(
            value["id"],
            value["name"],
            Materialize(value["materialize"]),
            value["created_us"],
            value["bound"],
            tuple(value["blocks"]),
        )


@dataclass(frozen=True)
class Catalog:
    """A snapshot: the prefix of the log up to `seq`."""

    seq: int = 0
    epoch: int = 0
    next_id: int = 1
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    block_ids: Mapping[str, int] = field(default_factory=dict)
    """Ids of the blocks that standing queries have, by stream id and text."""

    # -- what the binder asks (ladle.sql.names.Names) --

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        stream = self.stream(name)
        return None if stream is None else (stream.name, stream.schema)

    def query_sql(self, name: str) -> tuple[str, str] | None:
        query = self.query(name)
        return None if query is None else (query.name, query.sql)

    def stream_names(self) -> Iterable[str]:
        return [stream.name for stream in self.streams.values()]

    def query_names(self) -> Iterable[str]:
        return [query.name for query in self.queries.values()]

    # -- lookups --

    def stream(self, name: str) -> StreamState | None:
        """A stream by name; `trades.quarantine` is the quarantine of `trades`."""
        base, dot, part = name.lower().partition(".")
        stream = self.streams.get(base)
        if stream is None or not dot:
            return stream
        return stream.quarantine if part == "quarantine" else None

    def query(self, name: str) -> QueryState | None:
        return self.queries.get(name.lower())

    def block_id(self, block: Block) -> int | None:
        """The id of a block that stands, also for a query that does not: it may use what is covered."""
        key = self._block_key(block)
        return None if key is None else self.block_ids.get(key)

    def blocks_of(self, stream: StreamState) -> dict[int, Block]:
        """Blocks over this stream whose results are kept."""
        return {
            block_id: scan.block
            for query in self.queries.values()
            if query.materialize is not Materialize.NONE
            for block_id, scan in zip(query.blocks, query.plan.scans, strict=True)
            if scan.block.stream.lower() == stream.name.lower()
        }

    def queries_on(self, stream: str) -> list[str]:
        """Names of the queries that stand on a stream, or on its quarantine."""
        wanted = stream.lower()
        return [
            query.name
            for query in self.queries.values()
            if any(name.lower().partition(".")[0] == wanted for name in query.plan.streams)
        ]

    def queries_reading(self, name: str) -> list[str]:
        """Names of the queries that read a standing query as a relation."""
        wanted = name.lower()
        return [q.name for q in self.queries.values() if any(r.lower() == wanted for r in q.plan.queries)]

    def _block_key(self, block: Block) -> str | None:
        stream = self.stream(block.stream)
        return None if stream is None else f"{stream.id}|{block.text}"

    # -- the log --

    def apply(self, seq: int, entry: Mapping[str, Any]) -> Catalog:
        """The catalog after one more log entry."""
        changed = _APPLY[entry["kind"]](self, entry)
        return replace(changed, seq=seq)

    def to_json(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "epoch": self.epoch,
            "next_id": self.next_id,
            "streams": [stream.to_json() for stream in self.streams.values()],
            "queries": [query.to_json() for query in self.queries.values()],
            "block_ids": dict(self.block_ids),
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> Catalog:
        streams = [StreamState.from_json(stream) for stream in value["streams"]]
        queries = [QueryState.from_json(query) for query in value["queries"]]
        return Catalog(
            value["seq"],
            value["epoch"],
            value["next_id"],
            {stream.name.lower(): stream for stream in streams},
            {query.name.lower(): query for query in queries},
            value["block_ids"],
        )

    def _with_stream(self, stream: StreamState) -> Catalog:
        return replace(self, streams={**self.streams, stream.name.lower(): stream})


# -- entries: a function makes each kind, a function applies it --


def create_stream(name: str, schema: StreamSchema, retain_us: int | None, max_ahead_us: int | None) -> dict[str, Any]:
    return {
        "kind": "create_stream",
        "name": name,
        "schema": schema.to_json(),
        "retain_us": retain_us,
        "max_ahead_us": max_ahead_us,
    }


def add_column(stream: str, column: Column) -> dict[str, Any]:
    return {
        "kind": "add_column",
        "stream": stream,
        "column": encode_schema(pa.schema([pa.field(column.name, column.type)])),
    }


def set_retain(stream: str, retain_us: int | None) -> dict[str, Any]:
    return {"kind": "set_retain", "stream": stream, "retain_us": retain_us}


def drop_stream(stream: str, queries: Iterable[str] = ()) -> dict[str, Any]:
    """A stream goes, and with it the queries named: all in one."""
    return {"kind": "drop_stream", "stream": stream, "queries": list(queries)}


def register(
    queries: Iterable[tuple[str, Plan, Materialize]], created_us: int, *, replacing: bool = False
) -> dict[str, Any]:
    """Queries come; with `replacing` they take the place of those that have their names."""
    return {
        "kind": "replace" if replacing else "register",
        "created_us": created_us,
        "queries": [
            {"name": name, "materialize": materialize.value, "bound": plan_to_json(plan)}
            for name, plan, materialize in queries
        ],
    }


def unregister(names: Iterable[str]) -> dict[str, Any]:
    return {"kind": "unregister", "names": list(names)}


def epoch(
    stream: str,
    source: str,
    batch: int,
    at_us: int,
    files: Iterable[DataFile],
    quarantine: Iterable[DataFile],
) -> dict[str, Any]:
    return {
        "kind": "epoch",
        "stream": stream,
        "source": source,
        "batch": batch,
        "at_us": at_us,
        "files": [file.to_json() for file in files],
        "quarantine": [file.to_json() for file in quarantine],
    }


def replace_files(stream: str, removed: Iterable[str], added: Iterable[DataFile], why: str) -> dict[str, Any]:
    return {
        "kind": "replace_files",
        "stream": stream,
        "removed": list(removed),
        "added": [file.to_json() for file in added],
        "why": why,
    }


def _apply_create_stream(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    name = entry["name"]
    stream = StreamState(
        catalog.next_id,
        name,
        StreamSchema.from_json(entry["schema"]),
        entry["retain_us"],
        entry["max_ahead_us"],
        quarantine=StreamState(catalog.next_id + 1, f"{name}.quarantine", QUARANTINE),
    )
    return replace(catalog, next_id=catalog.next_id + 2)._with_stream(stream)


def _apply_add_column(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    (added,) = decode_schema(entry["column"])
    return catalog._with_stream(replace(stream, schema=stream.schema.with_column(Column(added.name, added.type))))


def _apply_set_retain(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    return catalog._with_stream(replace(stream, retain_us=entry["retain_us"]))


def _apply_drop_stream(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    catalog = _without_queries(catalog, entry["queries"])
    gone = entry["stream"].lower()
    return replace(catalog, streams={name: s for name, s in catalog.streams.items() if name != gone})


def _apply_register(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    next_id = catalog.next_id
    queries = dict(catalog.queries)
    block_ids = dict(catalog.block_ids)
    for value in entry["queries"]:
        query = QueryState(
            next_id, value["name"], Materialize(value["materialize"]), entry["created_us"], value["bound"], ()
        )
        next_id += 1
        ids = []
        for scan in query.plan.scans:
            key = catalog._block_key(scan.block)
            assert key is not None
            if key not in block_ids:
                block_ids[key] = next_id
                next_id += 1
            ids.append(block_ids[key])
        queries[query.name.lower()] = replace(query, blocks=tuple(ids))
    return replace(catalog, next_id=next_id, queries=queries, block_ids=block_ids)


def _apply_replace(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    # A block that the new query has too keeps its id, and with it what is covered.
    return _without_idle_blocks(_apply_register(catalog, entry))


def _apply_unregister(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    return _without_queries(catalog, entry["names"])


def _without_queries(catalog: Catalog, names: Iterable[str]) -> Catalog:
    gone = {name.lower() for name in names}
    if not gone:
        return catalog
    queries = {name: query for name, query in catalog.queries.items() if name not in gone}
    return _without_idle_blocks(replace(catalog, queries=queries))


def _without_idle_blocks(catalog: Catalog) -> Catalog:
    used = {block_id for query in catalog.queries.values() for block_id in query.blocks}
    return replace(catalog, block_ids={text: i for text, i in catalog.block_ids.items() if i in used})


def _apply_epoch(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.streams[entry["stream"].lower()]
    number = catalog.epoch + 1
    assert stream.quarantine is not None
    files, quarantined = (
        tuple(replace(DataFile.from_json(file), epoch_first=number, epoch_last=number) for file in entry[part])
        for part in ("files", "quarantine")
    )
    stream = replace(
        stream.appended(files),
        epochs=stream.epochs + 1,
        batches={**stream.batches, entry["source"]: entry["batch"]},
        quarantine=stream.quarantine.appended(quarantined),
    )
    return replace(catalog, epoch=number)._with_stream(stream)


def _apply_replace_files(catalog: Catalog, entry: Mapping[str, Any]) -> Catalog:
    stream = catalog.stream(entry["stream"])
    assert stream is not None
    changed = stream.replaced(set(entry["removed"]), tuple(DataFile.from_json(file) for file in entry["added"]))
    base, dot, _ = entry["stream"].lower().partition(".")
    if dot:
        return catalog._with_stream(replace(catalog.streams[base], quarantine=changed))
    return catalog._with_stream(changed)


_APPLY = {
    "create_stream": _apply_create_stream,
    "add_column": _apply_add_column,
    "set_retain": _apply_set_retain,
    "drop_stream": _apply_drop_stream,
    "register": _apply_register,
    "replace": _apply_replace,
    "unregister": _apply_unregister,
    "epoch": _apply_epoch,
    "replace_files": _apply_replace_files,
}
