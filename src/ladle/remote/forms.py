"""What goes between processes, as JSON: answers (but for their tables), errors, streams, tables, the status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import pyarrow as pa

from ladle.answer import Answer, ResolvedWindow
from ladle.engine.handles import Stream, Table
from ladle.errors import LadleError, Position
from ladle.schema import Column, StreamSchema, TableSchema, decode_schema, encode_schema
from ladle.status import BackfillStatus, OperatorStatus, Pulse, QueryStatus, SourceStatus, Status, StreamStatus


def answer_to_json(answer: Answer) -> dict[str, Any]:
    return {
        "epoch": answer.epoch,
        "now": answer.now.isoformat(),
        "seconds": answer.seconds,
        "message": answer.message,
        "windows": [
            {
                "stream": window.stream,
                "begin": window.begin and window.begin.isoformat(),
                "end": window.end and window.end.isoformat(),
                "rows": window.rows,
            }
            for window in answer.windows
        ],
    }


def answer_from_json(value: dict[str, Any], table: pa.Table) -> Answer:
    windows = tuple(
        ResolvedWindow(each["stream"], _moment(each["begin"]), _moment(each["end"]), each["rows"])
        for each in value["windows"]
    )
    now = datetime.fromisoformat(value["now"])
    return Answer(table, value["epoch"], now, windows, value["seconds"], value["message"])


def error_to_json(error: LadleError) -> dict[str, Any]:
    position = error.position
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "position": None if position is None else {"line": position.line, "column": position.column},
    }


def error_from_json(value: dict[str, Any]) -> LadleError:
    position = None if value["position"] is None else Position(**value["position"])
    kind = next((k for k in _kinds(LadleError) if k.code == value["code"]), LadleError)
    return kind(value["message"], hint=value["hint"], position=position)


def _kinds(root: type[LadleError]) -> Iterator[type[LadleError]]:
    """All kinds of errors, wherever they are defined."""
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


def stream_to_json(stream: Stream) -> dict[str, Any]:
    """The schema is Arrow's own form, for programs of ours."""
    return {
        "name": stream.name,
        "schema": encode_schema(stream.schema.declared),
        "timestamp": stream.schema.timestamp,
        "retain_us": stream.retain_us,
        "rows": stream.rows,
        "epochs": stream.epochs,
        "lateness_us": stream.lateness_us,
        "idle_after_us": stream.idle_after_us,
        "idle": stream.idle,
        "clock": stream.clock and stream.clock.isoformat(),
    }


def stream_from_json(value: dict[str, Any]) -> Stream:
    declared = tuple(Column(field.name, field.type) for field in decode_schema(value["schema"]))
    schema = StreamSchema(declared, value["timestamp"])
    names = ("retain_us", "rows", "epochs", "lateness_us", "idle_after_us", "idle")
    told = {name: value[name] for name in names}
    return Stream(value["name"], schema, **told, clock=_moment(value["clock"]))


def table_to_json(table: Table) -> dict[str, Any]:
    return {"name": table.name, "schema": table.schema.to_json(), "rows": table.rows, "version": table.version}


def table_from_json(value: dict[str, Any]) -> Table:
    return Table(value["name"], TableSchema.from_json(value["schema"]), value["rows"], value["version"])


def status_to_json(status: Status | Pulse) -> dict[str, Any]:
    value = asdict(status)
    for stream in value["streams"]:
        stream["clock"] = stream["clock"] and stream["clock"].isoformat()
    return value


def pulse_from_json(value: dict[str, Any]) -> Pulse:
    operators = {
        stream: tuple(OperatorStatus(**operator) for operator in visited)
        for stream, visited in value["operators"].items()
    }
    return Pulse(**{**value, **_flowing(value), "operators": operators})


def _flowing(value: dict[str, Any]) -> dict[str, Any]:
    streams = [StreamStatus(**{**stream, "clock": _moment(stream["clock"])}) for stream in value["streams"]]
    return {"streams": tuple(streams), "sources": tuple(SourceStatus(**source) for source in value["sources"])}


def status_from_json(value: dict[str, Any]) -> Status:
    parts = {
        **_flowing(value),
        "queries": tuple(QueryStatus(**query) for query in value["queries"]),
        "backfills": tuple(BackfillStatus(**backfill) for backfill in value["backfills"]),
    }
    return Status(**{**value, **parts})


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
