"""A database reached through another process: over the socket in its warehouse, or over HTTP.

The interface of `Database`, less what needs Spark here. What is asked is a request with a name (`do`); how it gets
there and back is the transport's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from ladle.answer import Answer
from ladle.catalog import StreamState
from ladle.clock import moment_of, to_datetime
from ladle.command import Command, Result
from ladle.define.definitions import mode_of
from ladle.define.given import as_table, fitting_rows
from ladle.define.show_create import change_text, stream_text
from ladle.delta import ChangeOptions, Delta
from ladle.engine.commands import DefineFunction, Follow, Invoke, Push
from ladle.engine.python_calls import PythonCalls
from ladle.errors import SqlError, Unsupported, unknown
from ladle.handles import HandedOver, PlanTree, Query, Stream, Table
from ladle.json_values import JsonFields
from ladle.pipeline import Attached
from ladle.plan import Function
from ladle.protocols import forms, wire
from ladle.sql.statement_types import (
    Advance,
    CreateStream,
    CreateTable,
    DropFunction,
    DropQuery,
    DropStream,
    DropTable,
    InsertTableValues,
    Materialize,
    SetIdleAfter,
    SetLateness,
    SetRetain,
)
from ladle.status import DerivedStatus, Pulse, Status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Known = TypeVar("_Known", bound=_Named)


class Transport(Protocol):
    """How requests get there. Raises what the other side raised, and WarehouseError when it went away."""

    def ask(self, request: JsonFields, tables: list[pa.Table]) -> wire.Message:
        """Send a request with its tables, and wait for the reply with its tables."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class RemoteDatabase(PythonCalls):
    """A database that another process holds, from `ladle.connect` with an address, or through its socket."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def run(self, command: Command[Result]) -> Result:
        """Send a command to the process that has the database."""
        told: Result = self._carried_out(command)  # type: ignore[assignment]  # each command says what it gives
        return told

    def _carried_out(self, command: Command[object]) -> object:
        """What has a request of its own is sent as that; the others are statements."""
        match command:
            case Invoke(name, now):
                moment = None if now is None else moment_of(now).isoformat()
                header, tables = self._ask({"do": "invoke", "name": name, "now": moment})
                return forms.answer_from_json(header["answers"][0], tables[0])
            case Follow(name):
                return self._followed(command)
            case Push(stream, rows, wait, key):
                known = _named("stream", stream, self.streams())
                table: pa.Table = as_table(rows, StreamState(0, known.name, known.schema))
                header, _ = self._ask({"do": "push", "stream": known.name, "wait": wait, "key": key}, [table])
                return HandedOver(header["epoch"], header["repeated"])
            case InsertTableValues(name, rows):
                into = _named("table", name, self.tables())
                fitting = fitting_rows(rows, into.name, into.schema)
                return int(self._ask({"do": "insert", "table": into.name}, [fitting])[0]["rows"])
            case Advance(stream, to_us):
                at = to_datetime(to_us).isoformat()
                return self._ask({"do": "heartbeat", "stream": stream, "at": at})[0]["epoch"]
            case CreateTable(name, schema, if_not_exists):
                request = {"do": "create_table", "name": name, "if_not_exists": if_not_exists}
                return bool(self._ask({**request, "schema": schema.to_json()})[0]["new"])
            case DefineFunction(definition, replace, if_not_exists):
                how = {"replace": replace, "if_not_exists": if_not_exists}
                function = definition.numbered(0).to_json()
                header, _ = self._ask({"do": "create_function", "function": function, **how})
                return Function.from_json(header["function"])
            case DropQuery(name, cascade, if_exists):
                self._drop("unregister", name, cascade=cascade, if_exists=if_exists)
                return None
            case DropTable(name, cascade, if_exists):
                self._drop("drop_table", name, cascade=cascade, if_exists=if_exists)
                return None
            case DropFunction(name, cascade, if_exists):
                self._drop("drop_function", name, cascade=cascade, if_exists=if_exists)
                return None
            case CreateStream(name) as create:
                return self.sql(stream_text(create)).message == f"stream {name} created"
            case DropStream() | SetRetain() | SetLateness() | SetIdleAfter():
                self.sql(change_text(command))
                return None
        raise Unsupported(f"{type(command).__name__} can't be sent from here: it is bound to a catalog of its process.")

    def _drop(self, do: str, name: str, *, cascade: bool, if_exists: bool) -> None:
        self._ask({"do": do, "name": name, "cascade": cascade, "if_exists": if_exists})

    def _followed(self, command: Follow) -> list[Delta]:
        options = command.options or ChangeOptions()
        how = {"expirations": options.expirations.value, "relation": options.relation.value}
        told = {"since": command.since, "seconds": command.seconds, "snapshot": command.snapshot, "upto": command.upto}
        header, tables = self._ask({"do": "changes", "name": command.name, **told, **how})
        return forms.deltas_from_message(header["deltas"], tables)

    def sql(self, text: str) -> Answer:
        """Run one statement; its answer."""
        answers = self.execute(text)
        if len(answers) != 1:
            raise SqlError(f"Expected one statement, found {len(answers)}.", hint="use execute(...) for scripts")
        return answers[0]

    def execute(self, text: str) -> list[Answer]:
        """Run a script; an answer for each statement."""
        header, tables = self._ask({"do": "execute", "text": text})
        return [forms.answer_from_json(value, table) for value, table in zip(header["answers"], tables, strict=True)]

    def register_unnamed(self, text: str, *, materialize: str | Materialize = Materialize.AUTO) -> str:
        """Register a query under a name that is made for it; that name."""
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
        """Register queries by name, all of them or none; their handles."""
        how = {"materialize": mode_of(materialize).value, "if_not_exists": if_not_exists, "replace": replace}
        self._ask({"do": "register", "queries": dict(queries), **how})
        return [self.query(name) for name in queries]

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
        """Refused: Spark runs in the process that has the warehouse."""
        raise Unsupported(
            "There is no Spark session here: Spark runs in the process that has the warehouse.",
            hint="use a session of your own: ladle.spark_format(spark) lets it read from the server and write to it",
        )

    def receive(self, stream: str, rows: object) -> None:
        """Hand rows over and go: the process that holds the warehouse takes them in."""
        self.push(stream, rows)

    def query(self, name: str) -> Query:
        """The handle of a standing query."""
        header, _ = self._ask({"do": "query", "name": name})
        return self._query(header)

    def columns(self, query: str) -> list[tuple[str, str]] | None:
        """Names and types of a standing query's columns, as a server tells them; None if they are not known."""
        header, _ = self._ask({"do": "query", "name": query})
        columns = header.get("columns")
        return None if columns is None else [(column["name"], column["type"]) for column in columns]

    def queries(self) -> list[Query]:
        """The handles of all standing queries."""
        header, _ = self._ask({"do": "queries"})
        return [self._query(value) for value in header["queries"]]

    def _query(self, value: JsonFields) -> Query:
        return Query(self, value["name"], value["sql"], Materialize(value["materialize"]))

    def streams(self) -> list[Stream]:
        """The streams."""
        header, _ = self._ask({"do": "streams"})
        return [forms.stream_from_json(value) for value in header["streams"]]

    def tables(self) -> list[Table]:
        """The tables."""
        header, _ = self._ask({"do": "tables"})
        return [forms.table_from_json(value) for value in header["tables"]]

    def functions(self) -> list[Function]:
        """The functions that queries may call."""
        header, _ = self._ask({"do": "functions"})
        return [Function.from_json(each) for each in header["functions"]]

    def explain(self, text: str, *, analyze: bool = False) -> str:
        """How a standing query or a SELECT is answered, as text."""
        header, _ = self._ask({"do": "explain", "text": text, "analyze": analyze})
        return str(header["text"])

    def explain_tree(self, text: str, *, analyze: bool = False) -> PlanTree | None:
        """How a standing query or a SELECT is answered, as nested dictionaries."""
        header, _ = self._ask({"do": "explain", "text": text, "analyze": analyze})
        tree: PlanTree | None = header["tree"]
        return tree

    def status(self) -> Status:
        """Everything that is going on."""
        header, _ = self._ask({"do": "status"})
        return forms.status_from_json(header["status"])

    def pulse(self) -> Pulse:
        """What changes all the time."""
        header, _ = self._ask({"do": "pulse"})
        return forms.pulse_from_json(header["pulse"])

    def derived(self) -> list[DerivedStatus]:
        """What there is of each kind of derived state."""
        return list(self.pulse().derived)

    def close(self) -> None:
        """Close the connection. The database goes on."""
        self._transport.close()

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: JsonFields, tables: list[pa.Table] | None = None) -> wire.Message:
        return self._transport.ask(request, tables or [])


def _named(kind: str, name: str, known: list[_Known]) -> _Known:
    found = next((each for each in known if each.name.lower() == name.lower()), None)
    if found is None:
        raise unknown(kind, name, [each.name for each in known])
    return found
