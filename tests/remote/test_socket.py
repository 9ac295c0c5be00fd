"""The socket: a second process uses the warehouse that a first one holds, and is told clearly when that one is gone."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ladle.connection
from ladle.access import Role, User
from ladle.answer import Answer
from ladle.client import RemoteDatabase, SocketTransport, open_warehouse
from ladle.config import Settings
from ladle.connection import serve
from ladle.delta import Delta
from ladle.engine import Database
from ladle.engine.session import Session
from ladle.errors import (
    Closed,
    Denied,
    LadleError,
    Position,
    WarehouseError,
)
from ladle.protocols import forms, wire
from ladle.protocols.http.process import Server
from ladle.sql.statement_types import DropQuery
from ladle.testing import connect_inline

TICKS = "CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at"
START = datetime(2023, 11, 14, 12, tzinfo=UTC)

HOLD = """
import sys
from ladle.connection import serve
from ladle.testing import connect_inline
for line in sys.stdin:
    db = connect_inline(line.rstrip("\\n"), settings={"invoke_seconds_max": 5.0})
    serve(db)
    print("open", flush=True)
    sys.stdin.readline()
    db.close()
    print("closed", flush=True)
"""


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def ticks(*seconds: int) -> list[dict[str, Any]]:
    return [{"n": second, "at": at(second)} for second in seconds]


def values(told: Answer | Delta) -> list[Any]:
    """The first column of an answer, or of the rows that a delta inserts."""
    table = told.inserted if isinstance(told, Delta) else told.table
    return table.column(0).to_pylist()


class Holder:
    """Another process that holds warehouses, one after the other."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=pipe, stdout=pipe, text=True)

    @contextmanager
    def hold(self, path: Path) -> Iterator[None]:
        self._tell(str(path), "open")
        yield
        if self.process.poll() is None:
            self._tell("close", "closed")

    def _tell(self, line: str, answer: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"{answer}\n"

    def end(self) -> None:
        self.process.communicate(timeout=30)


@contextmanager
def another_process() -> Iterator[Holder]:
    holder = Holder()
    with holder.process:
        try:
            yield holder
        finally:
            holder.end()


@pytest.fixture(scope="module")
def holder() -> Iterator[Holder]:
    with another_process() as holder:
        yield holder


@pytest.fixture
def remote(tmp_path: Path, holder: Holder) -> Iterator[RemoteDatabase]:
    with holder.hold(tmp_path / "warehouse"):
        db = open_warehouse(tmp_path / "warehouse")
        assert isinstance(db, RemoteDatabase)
        with db:
            db.sql(TICKS)
            yield db


def test_several_clients_and_the_owner_at_once(tmp_path: Path) -> None:
    path = tmp_path / "warehouse"
    owner = connect_inline(path)
    serve(owner)
    owner.sql(TICKS)
    errors: list[BaseException] = []

    def client(first: int) -> None:
        try:
            with RemoteDatabase(SocketTransport(path)) as db:
                for n in range(first, first + 10):
                    db.push("ticks", ticks(n), wait=True)
                    assert n in values(db.sql("SELECT n FROM ticks"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert errors == []
    assert len(owner.sql("SELECT n FROM ticks")) == 30
    owner.close()


def test_the_audit_log_has_what_comes_through_the_socket(tmp_path: Path) -> None:
    """In one file with what comes over HTTP."""
    path = tmp_path / "warehouse"
    with connect_inline(path) as owner:
        serve(owner)
        server = Server(owner, Settings.load({"port": 0}))
        server.start()
        try:
            with RemoteDatabase(SocketTransport(path)) as db:
                db.sql(TICKS)
                db.create_token("alice", "writer")
                db.register("SELECT n FROM ticks", name="q")
                db.unregister("q")
            with ladle.connect(server.url) as db:
                db.register("SELECT n FROM ticks", name="r")
            with RemoteDatabase(SocketTransport(path)) as db:
                db.grant("r", "alice")
        finally:
            server.stop()
        with pytest.raises(Denied):
            owner.session(User("eve", Role.READER), "socket").run(DropQuery("r"))
        assert (path / "audit.log").stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in (path / "audit.log").read_text().splitlines()]
    assert [(line["user"], line["from"], line["action"], line["target"], line["outcome"]) for line in lines] == [
        ("local", "socket", "create stream", "ticks", "done"),
        ("local", "socket", "create token", "alice", "writer"),
        ("local", "socket", "register", "q", "done"),
        ("local", "socket", "unregister", "q", "done"),
        ("local", "127.0.0.1", "register", "r", "done"),
        ("local", "socket", "grant", "r to alice", "done"),
        ("eve", "socket", "unregister", "r", "denied"),
    ]


def test_the_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "warehouse"
    with another_process() as other, other.hold(path):
        process = other.process
        db = open_warehouse(path)
        db.sql(TICKS)
        db.push("ticks", ticks(1), wait=True)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        for _ in range(2):
            with pytest.raises(WarehouseError, match="went away") as raised:
                db.sql("SELECT n FROM ticks")
            assert raised.value.hint is not None
            assert "acknowledged is safe" in raised.value.hint
        db.close()
    assert (path / "ladle.sock").exists(), "a socket file without anybody behind it"
    with connect_inline(path) as again:
        serve(again)
        with RemoteDatabase(SocketTransport(path)) as db:
            assert values(db.sql("SELECT n FROM ticks")) == [1]


def test_the_holder_closes_in_good_order(tmp_path: Path) -> None:
    path = tmp_path / "warehouse"
    owner = connect_inline(path)
    serve(owner)
    db = RemoteDatabase(SocketTransport(path))
    db.sql(TICKS)
    before = {thread.name for thread in threading.enumerate()}
    assert "ladle-client" in before
    owner.close()
    assert not (path / "ladle.sock").exists()
    with pytest.raises((WarehouseError, Closed)):
        db.sql("SELECT n FROM ticks")
    for thread in threading.enumerate():
        if thread.name in ("ladle-client", "ladle-socket"):
            thread.join(timeout=10)
            assert not thread.is_alive(), "a client's thread outlives the database"
    db.close()


def test_a_path_longer_than_an_address(tmp_path: Path, holder: Holder) -> None:
    path = tmp_path / ("d" * 100) / ("e" * 100) / "warehouse"
    assert len(str(path)) > 200
    with holder.hold(path):
        db = open_warehouse(path)
        assert isinstance(db, RemoteDatabase)
        with db:
            db.sql(TICKS)
            assert db.push("ticks", ticks(1), wait=True) == 1


def test_only_its_owner_may_talk_to_it(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        serve(db)
        assert (tmp_path / "warehouse" / "ladle.sock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n" + b"x" * 20,
        struct.pack("<Q", 1 << 60),
        struct.pack("<Q", 5) + b"{bad}",
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 15) + b'{"payloads":[]}',
        struct.pack("<Q", 31) + b'{"do":"nonsense","payloads":[]}',
        struct.pack("<Q", 29) + b'{"do":"push", "payloads":[3]}' + b"abc",
        b"\x01",
    ],
)
def test_nonsense_harms_nobody(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "warehouse"
    with connect_inline(path) as owner:
        serve(owner)
        with socket.socket(socket.AF_UNIX) as stranger:
            with wire._Address(path / "ladle.sock") as address:
                stranger.connect(address)
            stranger.sendall(garbage)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(10)
            with suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
        with RemoteDatabase(SocketTransport(path)) as db:
            assert values(db.sql("SELECT 1 AS one")) == [1]


def test_a_bug_in_the_holder_is_told_and_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "warehouse"
    with connect_inline(path) as owner:
        serve(owner)
        with RemoteDatabase(SocketTransport(path)) as db:
            with monkeypatch.context() as patch:
                patch.setattr(Session, "status", lambda *_: 1 / 0)
                with pytest.raises(LadleError, match="ZeroDivisionError"):
                    db.status()
            assert db.status().epoch == 0


def test_every_kind_of_error_crosses() -> None:
    seen = set()
    for kind in forms._kinds(LadleError):
        error = kind("what", hint="do this", position=Position(3, 4))
        again = forms.error_from_json(forms.error_to_json(error))
        assert again.code == error.code
        assert (again.message, again.hint, again.position) == ("what", "do this", Position(3, 4))
        seen.add(kind.code)
    assert {"missing_file", "disk_full", "sql", "timeout"} <= seen
    unknown = forms.error_from_json({"code": "from the future", "message": "m", "hint": None, "position": None})
    assert type(unknown) is LadleError


def test_a_free_warehouse_is_opened_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def inline(path: Path, **options: Any) -> Database:
        return connect_inline(path, read_only=options.get("read_only", False))

    monkeypatch.setattr(ladle.connection, "open_database", inline)
    with open_warehouse(tmp_path / "warehouse") as db:
        assert isinstance(db, Database)
        with open_warehouse(tmp_path / "warehouse", read_only=True) as reader:
            assert isinstance(reader, Database)


def test_a_holder_without_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.client._PATIENCE_SECONDS", 0.1)
    with connect_inline(tmp_path / "warehouse"), pytest.raises(WarehouseError, match="does not answer") as raised:
        open_warehouse(tmp_path / "warehouse")
    assert raised.value.hint is not None
    assert "read_only" in raised.value.hint


def test_a_holder_that_is_just_opening(tmp_path: Path) -> None:
    """It has the lock and not yet the socket."""
    path = tmp_path / "warehouse"
    with connect_inline(path) as owner:
        timer = threading.Timer(0.3, serve, [owner])
        timer.start()
        with open_warehouse(path) as db:
            assert isinstance(db, RemoteDatabase)
            assert db.queries() == []
        timer.join()
