"""The writing process's side of the socket in the warehouse: other terminals register, push and ask through it."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from ladle.access import LOCAL_USER
from ladle.catalog import QueryState
from ladle.define.function_source import Definition
from ladle.delta import ChangeOptions, Delta
from ladle.engine.commands import DefineFunction, Push
from ladle.errors import LadleError
from ladle.ingest.clocks import heartbeat_us
from ladle.json_values import JsonFields
from ladle.plan import Function
from ladle.protocols import forms, wire
from ladle.schema import TableSchema
from ladle.sql.statement_types import (
    Advance,
    CreateTable,
    DropFunction,
    DropQuery,
    DropTable,
    InsertTableValues,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ladle.engine import Database

_log = logging.getLogger(__name__)

_CLIENTS_MAX = 64
_ADDRESS = "socket"
"""Where they come from, in the audit log."""


class SocketServer:
    """Serves the socket in the warehouse, a thread to a connection."""

    def __init__(self, database: Database, path: Path) -> None:
        self._database = database
        # Only processes of the user who holds the warehouse can reach it.
        self._session = database.session(LOCAL_USER, _ADDRESS)
        self._path = path
        self._server = wire.listen(path)
        self._room = threading.BoundedSemaphore(_CLIENTS_MAX)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._stopped = False
        self._thread = threading.Thread(target=self._accept, name="ladle-socket", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take nobody in any more; those who are here get the answer they wait for, and no other."""
        self._path.unlink(missing_ok=True)
        with self._lock:
            self._stopped = True
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        try:
            self._server.shutdown(socket.SHUT_RDWR)
        except OSError:
            _log.debug("the socket was closed already")
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._room.acquire()
            with self._lock:
                if self._stopped:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="ladle-client", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                while True:
                    request, tables = wire.receive(connection)
                    for header, replies in self._replies(request, tables):
                        wire.send(connection, header, replies)
        except (wire.Disconnected, OSError, ValueError, KeyError, MemoryError) as error:
            _log.debug("client gone: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            self._room.release()

    def _replies(self, request: JsonFields, tables: list[pa.Table]) -> Iterator[wire.Message]:
        """The messages that answer a request: one, or several for large deltas. All but the last say `more`."""
        try:
            if request["do"] == "changes":
                yield from forms.deltas_to_messages(self._changes(request))
            else:
                yield self._run(request, tables)
        except LadleError as error:
            yield {"error": forms.error_to_json(error)}, []
        except Exception as error:
            _log.exception("a request of another process failed")
            told = LadleError(f"The running process failed: {type(error).__name__}: {error}")
            yield {"error": forms.error_to_json(told)}, []

    def _changes(self, request: JsonFields) -> list[Delta]:
        options = ChangeOptions.of(request["expirations"], request["relation"])
        how = {name: request[name] for name in ("since", "seconds", "snapshot", "upto")}
        return self._session.changes(request["name"], options=options, **how)

    def _run(self, request: JsonFields, tables: list[pa.Table]) -> wire.Message:
        db = self._session
        match request["do"]:
            case "execute":
                answers = db.execute(request["text"])
                return {"answers": [forms.answer_to_json(a) for a in answers]}, [a.table for a in answers]
            case "invoke":
                now = request["now"] and datetime.fromisoformat(request["now"])
                answer = db.invoke(request["name"], now=now)
                return {"answers": [forms.answer_to_json(answer)]}, [answer.table]
            case "register":
                how = {key: request[key] for key in ("materialize", "if_not_exists", "replace") if key in request}
                if "sql" in request:
                    name = db.register_unnamed(request["sql"], materialize=request["materialize"])
                    return {"queries": [{"name": name}]}, []
                db.register_many(request["queries"], **how)
                return {}, []
            case "unregister":
                db.run(DropQuery(request["name"], request.get("cascade", False), request.get("if_exists", False)))
                return {}, []
            case "push":
                handed = db.run(Push(request["stream"], tables[0], request["wait"], request.get("key")))
                return {"epoch": handed.epoch, "repeated": handed.repeated}, []
            case "heartbeat":
                return {"epoch": db.run(Advance(request["stream"], heartbeat_us(request["at"])))}, []
            case "explain":
                text, analyze = request["text"], request.get("analyze", False)
                said = db.explain(text, analyze=analyze)
                return {"text": said, "tree": db.explain_tree(text, analyze=analyze)}, []
            case "query":
                return _told(db.query(request["name"])), []
            case "queries":
                return {"queries": [_told(query) for query in db.queries()]}, []
            case "streams":
                return {"streams": [forms.stream_to_json(stream) for stream in db.streams()]}, []
            case "create_table":
                schema = TableSchema.from_json(request["schema"])
                return {"new": db.run(CreateTable(request["name"], schema, request["if_not_exists"]))}, []
            case "drop_table":
                db.run(DropTable(request["name"], request["cascade"], request["if_exists"]))
                return {}, []
            case "insert":
                return {"rows": db.run(InsertTableValues(request["table"], tables[0]))}, []
            case "tables":
                return {"tables": [forms.table_to_json(table) for table in db.tables()]}, []
            case "create_function":
                definition = Definition.of(Function.from_json(request["function"]))
                made = db.run(DefineFunction(definition, request["replace"], request["if_not_exists"]))
                return {"function": made.to_json()}, []
            case "drop_function":
                db.run(DropFunction(request["name"], request["cascade"], request["if_exists"]))
                return {}, []
            case "functions":
                return {"functions": [function.to_json() for function in db.functions()]}, []
            case "status":
                return {"status": forms.status_to_json(db.status())}, []
            case "pulse":
                return {"pulse": forms.status_to_json(self._session.pulse())}, []
            case other:
                raise LadleError(f"The running process does not know '{other}'.", hint="restart it with this version")


def _told(query: QueryState) -> dict[str, str]:
    return {"name": query.name, "sql": query.sql, "materialize": query.materialize.value}
