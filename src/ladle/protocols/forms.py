"""What goes between processes, as JSON: answers and deltas (but for their tables), errors, streams, the status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime

import pyarrow as pa

from ladle.answer import Answer, ResolvedWindow
from ladle.delta import Delta
from ladle.errors import LadleError, Position
from ladle.formats.deltas import DeltaPiece, Deltas, cut_all, tables_nbytes
from ladle.handles import Stream, Table
from ladle.json_values import JsonFields, JsonObject
from ladle.schema import StreamSchema, TableSchema, decode_columns, encode_columns
from ladle.status import (
    BackfillStatus,
    Budgets,
    DerivedStatus,
    OperatorStatus,
    Pulse,
    QueryStatus,
    SourceStatus,
    Status,
    StreamStatus,
)


def answer_to_json(answer: Answer) -> JsonObject:
    """Encode an answer without its table, which travels as Arrow."""
    return {
        "epoch": answer.epoch,
        "entry": answer.entry,
        "now": answer.now.isoformat(),
        "seconds": answer.seconds,
        "message": answer.message,
        "windows": [
            {
                "stream": window.stream,
                "begin": _told_moment(window.begin),
                "end": _told_moment(window.end),
                "rows": window.rows,
            }
            for window in answer.windows
        ],
    }


def answer_from_json(value: JsonFields, table: pa.Table) -> Answer:
    """Decode an answer, with the table that came beside it."""
    windows = tuple(
        ResolvedWindow(each["stream"], _moment(each["begin"]), _moment(each["end"]), each["rows"])
        for each in value["windows"]
    )
    now = datetime.fromisoformat(value["now"])
    return Answer(table, value["epoch"], now, windows, value["seconds"], value["message"], value.get("entry", 0))


def pieces_to_message(pieces: Sequence[DeltaPiece]) -> tuple[list[JsonFields], list[pa.Table]]:
    """What pieces of deltas say beside their rows, and the rows: two tables each, and a third with when rows will
    leave. All but the last piece of a delta say `more`, and nothing else that the delta says.
    """
    heads, tables = list[JsonFields](), list[pa.Table]()
    for piece in pieces:
        delta = piece.delta
        said = {"more": True} if piece.more else {name: getattr(delta, name) for name in _DELTA}
        heads.append(said | {"outs": delta.inserted_out is not None})
        # A table of an answer has a chunk from each segment: many, of few rows.
        tables += [delta.inserted.combine_chunks(), delta.retracted.combine_chunks()]
        if delta.inserted_out is not None:
            tables.append(pa.table({"out": delta.inserted_out}))
    return heads, tables


def deltas_to_messages(deltas: Sequence[Delta]) -> Iterator[tuple[JsonFields, list[pa.Table]]]:
    """Deltas as messages of about a piece each. All but the last say `more`."""
    cuts = cut_all(Deltas.of(deltas), list, tables_nbytes)
    pieces = next(cuts)
    for following in cuts:
        heads, tables = pieces_to_message(pieces)
        yield {"deltas": heads, "more": True}, tables
        pieces = following
    heads, tables = pieces_to_message(pieces)
    yield {"deltas": heads}, tables


def joined_headers(first: JsonFields, following: JsonFields) -> JsonFields:
    """Headers of two messages that belong together as one: the deltas of both, and what else the second one says."""
    return {**following, "deltas": [*first["deltas"], *following.get("deltas", [])]}


def deltas_from_message(heads: Sequence[JsonFields], tables: Sequence[pa.Table]) -> list[Delta]:
    """Decode deltas from the heads of their pieces and the tables that came beside these."""
    following = iter(tables)
    deltas, parts = list[Delta](), list[list[pa.Table]]()
    for head in heads:
        parts.append([next(following) for _ in range(3 if head["outs"] else 2)])
        if head.get("more"):
            continue
        joined = [pa.concat_tables(each).combine_chunks() for each in zip(*parts, strict=True)]
        out = joined[2].column("out").combine_chunks() if head["outs"] else None
        told = {name: head[name] for name in _DELTA if name in head}  # an older server says less
        deltas.append(Delta(joined[0], joined[1], **told, inserted_out=out))
        parts = []
    return deltas


_DELTA = ("entry", "epoch", "now_us", "net", "progress", "query_id")


def error_to_json(error: LadleError) -> JsonObject:
    """Encode an error."""
    position = error.position
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "position": None if position is None else {"line": position.line, "column": position.column},
    }


def error_from_json(value: JsonFields) -> LadleError:
    """Decode an error, as the class that has its code."""
    position = None if value["position"] is None else Position(**value["position"])
    kind = next((k for k in _kinds(LadleError) if k.code == value["code"]), LadleError)
    return kind(value["message"], hint=value["hint"], position=position)


def _kinds(root: type[LadleError]) -> Iterator[type[LadleError]]:
    """All kinds of errors, wherever they are defined."""
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


def stream_to_json(stream: Stream) -> JsonObject:
    """The schema is Arrow's own form, for programs of ours."""
    return {
        "name": stream.name,
        "schema": encode_columns(stream.schema.columns),
        "timestamp": stream.schema.timestamp,
        "retain_us": stream.retain_us,
        "rows": stream.rows,
        "epochs": stream.epochs,
        "lateness_us": stream.lateness_us,
        "idle_after_us": stream.idle_after_us,
        "idle": stream.idle,
        "clock": _told_moment(stream.clock),
    }


def stream_from_json(value: JsonFields) -> Stream:
    """Decode a stream."""
    schema = StreamSchema(decode_columns(value["schema"]), value["timestamp"])
    names = ("retain_us", "rows", "epochs", "lateness_us", "idle_after_us", "idle")
    told = {name: value[name] for name in names}
    return Stream(value["name"], schema, **told, clock=_moment(value["clock"]))


def table_to_json(table: Table) -> JsonObject:
    """Encode a table, without its rows."""
    return {"name": table.name, "schema": table.schema.to_json(), "rows": table.rows, "version": table.version}


def table_from_json(value: JsonFields) -> Table:
    """Decode a table."""
    return Table(value["name"], TableSchema.from_json(value["schema"]), value["rows"], value["version"])


def status_to_json(status: Status | Pulse) -> JsonFields:
    """Encode a status or a pulse."""
    value = asdict(status)
    for stream in value["streams"]:
        stream["clock"] = stream["clock"] and stream["clock"].isoformat()
    value["derived"] = [derived_to_json(each) for each in status.derived]
    return value


def derived_to_json(derived: DerivedStatus) -> JsonFields:
    """Encode the status of a kind of derived state."""
    return {**asdict(derived), "last_used": derived.last_used and derived.last_used.isoformat()}


def derived_from_json(value: JsonFields) -> DerivedStatus:
    """Decode the status of a kind of derived state."""
    return DerivedStatus(**{**value, "last_used": _moment(value["last_used"])})


def pulse_from_json(value: JsonFields) -> Pulse:
    """Decode a pulse."""
    operators = {
        stream: tuple(OperatorStatus(**operator) for operator in visited)
        for stream, visited in value["operators"].items()
    }
    return Pulse(**{**value, **_flowing(value), "operators": operators})


def _flowing(value: JsonFields) -> JsonFields:
    streams = [StreamStatus(**{**stream, "clock": _moment(stream["clock"])}) for stream in value["streams"]]
    return {
        "streams": tuple(streams),
        "sources": tuple(SourceStatus(**source) for source in value["sources"]),
        "derived": tuple(map(derived_from_json, value["derived"])),
        "budgets": Budgets(**value["budgets"]),
    }


def status_from_json(value: JsonFields) -> Status:
    """Decode a status."""
    parts = {
        **_flowing(value),
        "queries": tuple(QueryStatus(**query) for query in value["queries"]),
        "backfills": tuple(BackfillStatus(**backfill) for backfill in value["backfills"]),
    }
    return Status(**{**value, **parts})


def _told_moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
