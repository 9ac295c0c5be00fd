"""A database reached through the process that holds its warehouse. The same interface, less what needs Spark here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from ladle.answer import Answer
from ladle.catalog import StreamState
from ladle.clock import moment_of
from ladle.engine.functions import FunctionMaker
from ladle.engine.handles import Query, Stream, Table
from ladle.engine.rows import as_table, fitting_rows
from ladle.engine.source import Definition
from ladle.engine.tables import TableMaker
from ladle.errors import SqlError, WarehouseError, unknown
from ladle.plan import Function
from ladle.remote import wire
from ladle.schema import Column, StreamSchema, TableSchema, decode_schema
from ladle.sql.statements import Materialize
from ladle.status import BackfillStatus, QueryStatus, SourceStatus, Status, StreamStatus


class RemoteDatabase(FunctionMaker, TableMaker):
    """Made by `ladle.remote.open_warehouse`."""

    def __init__(self, path: Path, socket_path: Path) -> None:
        self.path = path
        self._socket_path = socket_path
        self._connection = wire.dial(socket_path)
        self._lock = threading.Lock()

    def sql(self, text: str) -> Answer:
        answers = self.execute(text)
        if len(answers) != 1:
            raise SqlError(f"Expected one statement, found {len(answers)}.", hint="use execute(...) for scripts")
        return answers[0]

    def execute(self, text: str) -> list[Answer]:
        header, tables = self._ask({"do": "execute", "text": text})
        return [wire.answer_from_json(value, table) for value, table in zip(header["answers"], tables, strict=True)]

    def register(
        self,
        text: str,
        *,
        name: str,
        materialize: str = Materialize.AUTO.value,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> Query:
        self.register_many({name: text}, materialize=materialize, if_not_exists=if_not_exists, replace=replace)
        return self.query(name)

    def register_many(
        self,
        queries: Mapping[str, str],
        *,
        materialize: str = Materialize.AUTO.value,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> list[Query]:
        how = {"materialize": materialize, "if_not_exists": if_not_exists, "replace": replace}
        self._ask({"do": "register", "queries": dict(queries), **how})
        names = {name.lower() for name in queries}
        return [query for query in self.queries() if query.name.lower() in names]

    def unregister(self, name: str) -> None:
        self._ask({"do": "unregister", "name": name})

    def invoke(self, name: str, *, now: datetime | str | None = None) -> Answer:
        moment = None if now is None else moment_of(now).isoformat()
        header, tables = self._ask({"do": "invoke", "name": name, "now": moment})
        return wire.answer_from_json(header["answers"][0], tables[0])

    def changes(self, name: str, *, since: int | None = None, seconds: float = 0.0) -> tuple[list[Answer], int]:
        header, tables = self._ask({"do": "changes", "name": name, "since": since, "seconds": seconds})
        answers = [wire.answer_from_json(value, table) for value, table in zip(header["answers"], tables, strict=True)]
        return answers, int(header["epoch"])

    def push(self, stream: str, rows: Any, *, wait: bool = False) -> int | None:
        streams = self.streams()
        known = next((s for s in streams if s.name.lower() == stream.lower()), None)
        if known is None:
            raise unknown("stream", stream, [s.name for s in streams])
        table: pa.Table = as_table(rows, StreamState(0, known.name, known.schema))
        header, _ = self._ask({"do": "push", "stream": known.name, "wait": wait}, [table])
        epoch: int | None = header["epoch"]
        return epoch

    def receive(self, stream: str, rows: Any) -> None:
        """Hand rows over and go: the process that holds the warehouse takes them in."""
        self.push(stream, rows)

    def query(self, name: str) -> Query:
        queries = self.queries()
        found = next((q for q in queries if q.name.lower() == name.lower()), None)
        if found is None:
            raise unknown("query", name, [q.name for q in queries])
        return found

    def queries(self) -> list[Query]:
        header, _ = self._ask({"do": "queries"})
        return [Query(self, name, sql, Materialize(mode)) for name, sql, mode in header["queries"]]

    def streams(self) -> list[Stream]:
        header, _ = self._ask({"do": "streams"})
        streams = []
        for name, columns, timestamp, retain_us, rows, epochs in header["streams"]:
            declared = tuple(Column(field.name, field.type) for field in decode_schema(columns))
            streams.append(Stream(name, StreamSchema(declared, timestamp), retain_us, rows, epochs))
        return streams

    def define_table(self, name: str, schema: TableSchema, *, if_not_exists: bool) -> bool:
        request = {"do": "create_table", "name": name, "schema": schema.to_json(), "if_not_exists": if_not_exists}
        return bool(self._ask(request)[0]["new"])

    def drop_table(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        self._ask({"do": "drop_table", "name": name, "cascade": cascade, "if_exists": if_exists})

    def insert(self, table: str, rows: Any) -> int:
        tables = self.tables()
        known = next((t for t in tables if t.name.lower() == table.lower()), None)
        if known is None:
            raise unknown("table", table, [t.name for t in tables])
        fitting = fitting_rows(rows, known.name, known.schema)
        header, _ = self._ask({"do": "insert", "table": known.name}, [fitting])
        return int(header["rows"])

    def tables(self) -> list[Table]:
        header, _ = self._ask({"do": "tables"})
        return [Table(name, TableSchema.from_json(schema), *rest) for name, schema, *rest in header["tables"]]

    def define_function(self, definition: Definition, *, replace: bool, if_not_exists: bool) -> Function:
        how = {"replace": replace, "if_not_exists": if_not_exists}
        header, _ = self._ask({"do": "create_function", "function": definition.numbered(0).to_json(), **how})
        return Function.from_json(header["function"])

    def drop_function(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        self._ask({"do": "drop_function", "name": name, "cascade": cascade, "if_exists": if_exists})

    def functions(self) -> list[Function]:
        header, _ = self._ask({"do": "functions"})
        return [Function.from_json(each) for each in header["functions"]]

    def explain(self, text: str, *, analyze: bool = False) -> str:
        header, _ = self._ask({"do": "explain", "text": text, "analyze": analyze})
        return str(header["text"])

    def status(self) -> Status:
        header, _ = self._ask({"do": "status"})
        value = header["status"]
        streams = [
            {**s, "clock": None if s["clock"] is None else datetime.fromisoformat(s["clock"])} for s in value["streams"]
        ]
        parts = {
            "streams": tuple(StreamStatus(**stream) for stream in streams),
            "sources": tuple(SourceStatus(**source) for source in value["sources"]),
            "queries": tuple(QueryStatus(**query) for query in value["queries"]),
            "backfills": tuple(BackfillStatus(**backfill) for backfill in value["backfills"]),
        }
        return Status(**{**value, **parts})

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(
        self, request: dict[str, Any], tables: list[pa.Table] | None = None
    ) -> tuple[dict[str, Any], list[pa.Table]]:
        with self._lock:
            try:
                wire.send(self._connection, request, tables)
                header, replies = wire.receive(self._connection)
            except KeyboardInterrupt:
                # This answer is still to come, and must not be taken for the next one.
                self._connection.close()
                with contextlib.suppress(OSError):
                    self._connection = wire.dial(self._socket_path)
                raise
            except (wire.Disconnected, OSError) as error:
                raise WarehouseError(
                    f"The process that holds the warehouse {self.path} went away: {error}",
                    hint="what it had acknowledged is safe; try again",
                ) from None
        if "error" in header:
            raise wire.error_from_json(header["error"])
        return header, replies
