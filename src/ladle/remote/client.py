"""A database reached through another process: over the socket in its warehouse, or over HTTP.

The interface of `Database`, less what needs Spark here. What is asked is a request with a name (`do`); how it gets
there and back is the transport's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ladle.answer import Answer
from ladle.catalog import StreamState
from ladle.clock import moment_of
from ladle.engine.backup import BackupMaker
from ladle.engine.defining import SourceMaker
from ladle.engine.definitions import mode_of
from ladle.engine.functions import FunctionMaker
from ladle.engine.handles import Query, Stream, Table
from ladle.engine.rights import TokenMaker
from ladle.engine.rows import as_table, fitting_rows
from ladle.engine.source import Definition
from ladle.engine.tables import TableMaker
from ladle.engine.unnamed import QueryMaker
from ladle.engine.verify import VerifyMaker
from ladle.errors import SqlError, Unsupported, unknown
from ladle.pipeline import Attached
from ladle.plan import Function
from ladle.remote import forms
from ladle.schema import TableSchema
from ladle.sql.statements import Materialize
from ladle.status import Pulse, Status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Transport(Protocol):
    """How requests get there. Raises what the other side raised, and WarehouseError when it went away."""

    def ask(self, request: dict[str, Any], tables: list[pa.Table]) -> tuple[dict[str, Any], list[pa.Table]]: ...

    def close(self) -> None: ...


class RemoteDatabase(BackupMaker, FunctionMaker, QueryMaker, SourceMaker, TableMaker, TokenMaker, VerifyMaker):
    """Made by `ladle.remote.open_warehouse`, or by `ladle.connect` with an address."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def sql(self, text: str) -> Answer:
        answers = self.execute(text)
        if len(answers) != 1:
            raise SqlError(f"Expected one statement, found {len(answers)}.", hint="use execute(...) for scripts")
        return answers[0]

    def execute(self, text: str) -> list[Answer]:
        header, tables = self._ask({"do": "execute", "text": text})
        return [forms.answer_from_json(value, table) for value, table in zip(header["answers"], tables, strict=True)]

    def register_unnamed(self, text: str, *, materialize: str | Materialize = Materialize.AUTO) -> str:
        header, _ = self._ask({"do": "register", "sql": text, "materialize": mode_of(materialize).value})
        return str(header["queries"][0]["name"])

    def register_many(
        self,
        queries: Mapping[str, str],
        *,
        materialize: str | Materialize = Materialize.AUTO,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> list[Query]:
        how = {"materialize": mode_of(materialize).value, "if_not_exists": if_not_exists, "replace": replace}
        self._ask({"do": "register", "queries": dict(queries), **how})
        return [self.query(name) for name in queries]

    def unregister(self, name: str) -> None:
        self._ask({"do": "unregister", "name": name})

    def invoke(self, name: str, *, now: datetime | str | None = None) -> Answer:
        moment = None if now is None else moment_of(now).isoformat()
        header, tables = self._ask({"do": "invoke", "name": name, "now": moment})
        return forms.answer_from_json(header["answers"][0], tables[0])

    def changes(self, name: str, *, since: int | None = None, seconds: float = 0.0) -> tuple[list[Answer], int]:
        header, tables = self._ask({"do": "changes", "name": name, "since": since, "seconds": seconds})
        answers = [forms.answer_from_json(value, table) for value, table in zip(header["answers"], tables, strict=True)]
        return answers, int(header["epoch"])

    def push(self, stream: str, rows: Any, *, wait: bool = False, key: str | None = None) -> int | None:
        streams = self.streams()
        known = next((s for s in streams if s.name.lower() == stream.lower()), None)
        if known is None:
            raise unknown("stream", stream, [s.name for s in streams])
        table: pa.Table = as_table(rows, StreamState(0, known.name, known.schema))
        header, _ = self._ask({"do": "push", "stream": known.name, "wait": wait, "key": key}, [table])
        epoch: int | None = header["epoch"]
        return epoch

    def heartbeat(self, stream: str, at: datetime | str) -> int | None:
        """Say that a stream has reached a time. The epoch of that; None when its clock was there already."""
        header, _ = self._ask({"do": "heartbeat", "stream": stream, "at": moment_of(at).isoformat()})
        epoch: int | None = header["epoch"]
        return epoch

    def attach(
        self, stream: str, batches: DataFrame, *, source: str = "source", available_now: bool = False
    ) -> Attached:
        """Not from here: a source is run by the process that has the warehouse, with its Spark."""
        raise Unsupported(
            "A DataFrame can't be attached from here: sources are run by the process that has the warehouse.",
            hint=f"have that process read: CREATE SOURCE {source} FOR {stream} FORMAT ...; or write to it from here: "
            "ladle.spark_format(spark), and df.writeStream.format('ladle').option('url', ...)"
            f".option('stream', '{stream}')",
        )

    @property
    def spark(self) -> SparkSession:
        raise Unsupported(
            "There is no Spark session here: Spark runs in the process that has the warehouse.",
            hint="use a session of your own: ladle.spark_format(spark) lets it read from the server and write to it",
        )

    def receive(self, stream: str, rows: Any) -> None:
        """Hand rows over and go: the process that holds the warehouse takes them in."""
        self.push(stream, rows)

    def query(self, name: str) -> Query:
        header, _ = self._ask({"do": "query", "name": name})
        return self._query(header)

    def columns(self, query: str) -> list[tuple[str, str]] | None:
        """Names and types of a standing query's columns, as a server tells them; None if they are not known."""
        header, _ = self._ask({"do": "query", "name": query})
        columns = header.get("columns")
        return None if columns is None else [(column["name"], column["type"]) for column in columns]

    def queries(self) -> list[Query]:
        header, _ = self._ask({"do": "queries"})
        return [self._query(value) for value in header["queries"]]

    def _query(self, value: Mapping[str, Any]) -> Query:
        return Query(self, value["name"], value["sql"], Materialize(value["materialize"]))

    def streams(self) -> list[Stream]:
        header, _ = self._ask({"do": "streams"})
        return [forms.stream_from_json(value) for value in header["streams"]]

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
        return [forms.table_from_json(value) for value in header["tables"]]

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

    def explain_tree(self, text: str) -> dict[str, Any] | None:
        header, _ = self._ask({"do": "explain", "text": text})
        tree: dict[str, Any] | None = header["tree"]
        return tree

    def status(self) -> Status:
        header, _ = self._ask({"do": "status"})
        return forms.status_from_json(header["status"])

    def pulse(self) -> Pulse:
        header, _ = self._ask({"do": "pulse"})
        return forms.pulse_from_json(header["pulse"])

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(
        self, request: dict[str, Any], tables: list[pa.Table] | None = None
    ) -> tuple[dict[str, Any], list[pa.Table]]:
        return self._transport.ask(request, tables or [])
