"""The socket: a second process uses the warehouse that a first one holds, and is told clearly when that one is gone."""

from __future__ import annotations

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

import pandas as pd
import pyarrow as pa
import pytest

import ladle.connection
from ladle.answer import Answer
from ladle.connection import serve
from ladle.engine import Database
from ladle.errors import (
    AlreadyExists,
    Closed,
    EvaluationError,
    InUse,
    LadleError,
    Position,
    TypeMismatch,
    UnknownName,
    WarehouseError,
)
from ladle.remote import RemoteDatabase, open_warehouse, wire
from ladle.testing import connect_inline

TICKS = "CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at"
START = datetime(2023, 11, 14, 12, tzinfo=UTC)

HOLD = """
import sys
from ladle.connection import serve
from ladle.testing import connect_inline
db = connect_inline(sys.argv[1], settings={"invoke_seconds_max": 5.0})
serve(db)
print("open", flush=True)
sys.stdin.read()
db.close()
"""


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def ticks(*seconds: int) -> list[dict[str, Any]]:
    return [{"n": second, "at": at(second)} for second in seconds]


def values(answer: Answer) -> list[Any]:
    return answer.table.column(0).to_pylist()


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the warehouse."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        if process.poll() is None:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[RemoteDatabase]:
    with holder(tmp_path / "warehouse"):
        db = open_warehouse(tmp_path / "warehouse")
        assert isinstance(db, RemoteDatabase)
        with db:
            db.sql(TICKS)
            yield db


def test_all_of_a_database_through_another_process(remote: RemoteDatabase) -> None:
    assert remote.push("ticks", ticks(1, 2), wait=True) == 1
    assert remote.push("TICKS", pd.DataFrame(ticks(3))) is None
    assert remote.push("ticks", pa.Table.from_pylist(ticks(4)), wait=True) in (2, 3)
    assert remote.push("ticks", []) is None
    q = remote.register("SELECT n FROM ticks WHERE n > 1 BEGIN NOW - INTERVAL 10 SECONDS END NOW", name="q")
    many = remote.register_many({"a": "SELECT n FROM ticks", "b": "SELECT max(n) AS m FROM ticks"}, materialize="none")
    assert [query.name for query in many] == ["a", "b"]
    assert remote.register("SELECT 1 AS one", name="A", if_not_exists=True).sql == "SELECT n FROM ticks"
    assert [query.name for query in remote.register_many({"B": "SELECT 1 AS m"}, replace=True)] == ["B"]
    remote.register("SELECT max(n) AS m FROM ticks", name="b", materialize="none", replace=True)
    with pytest.raises(AlreadyExists, match="There is a query 'a' already"):
        remote.register("SELECT 1 AS one", name="a")
    assert values(q.invoke()) == [2, 3, 4]
    assert values(q.invoke(now=at(2))) == [2]
    assert values(q.invoke(now=at(2).replace(tzinfo=None))) == [2]
    answer = remote.invoke("q")
    assert answer.now == at(4)
    assert answer.window is not None
    assert (answer.window.begin, answer.window.end) == (at(-6), at(4))
    assert "3 rows, epoch" in repr(answer)
    assert [query.name for query in remote.queries()] == ["q", "a", "b"]
    assert remote.query("B").sql == "SELECT max(n) AS m FROM ticks"
    assert remote.query("a").materialize == "none"
    assert "standing query q" in q.explain()
    assert "one-off" in remote.explain("SELECT n FROM ticks")
    (stream,) = remote.streams()
    assert (stream.name, stream.rows, stream.schema.timestamp) == ("ticks", 4, "at")
    answers = remote.execute("SHOW QUERIES; SELECT count(*) FROM q; DROP QUERY b; SELECT 1 AS one")
    assert [len(a) for a in answers] == [3, 1, 0, 1]
    assert answers[2].message == "query b dropped"
    q.unregister()
    assert [query.name for query in remote.queries()] == ["a"]


def test_a_subscription_through_another_process(remote: RemoteDatabase) -> None:
    q = remote.register("SELECT n FROM ticks WHERE n > 1", name="q")
    first = remote.push("ticks", ticks(1, 2), wait=True)
    with q.subscribe(since=0) as changes, q.subscribe() as later:
        change = changes.next(0.0)
        assert change is not None
        assert (change.epoch, values(change), change.now) == (first, [2], at(2))
        assert changes.next(0.0) is None
        remote.push("ticks", ticks(3), wait=True)
        for each in (changes, later):
            change = each.next(5.0)
            assert change is not None
            assert values(change) == [3]
    with pytest.raises(UnknownName):
        remote.changes("nope")


def test_functions_through_another_process(remote: RemoteDatabase) -> None:
    @remote.create_function(arguments=["INT"], returns="BOOLEAN")
    def odd(n: pa.Array) -> pa.Array:
        import pyarrow.compute as c

        return c.equal(c.bit_wise_and(n, 1), 1)

    remote.register("SELECT n FROM ticks WHERE odd(n)", name="q")
    remote.push("ticks", ticks(1, 2, 3), wait=True)
    assert values(remote.invoke("q")) == [1, 3]
    (function,) = remote.functions()
    assert (function.signature, function.returns) == ("odd(n INT) RETURNS BOOLEAN", pa.bool_())
    assert function.source.startswith("def odd(")
    flipped = function.source.replace(", 1), 1)", ", 1), 0)")
    made = remote.create_function(flipped, arguments=["INT"], returns="BOOLEAN", replace=True)
    assert made.id > function.id
    assert values(remote.invoke("q")) == [2]
    with pytest.raises(AlreadyExists, match="There is a function 'odd' already"):
        remote.create_function(flipped, arguments=["INT"], returns="BOOLEAN")
    with pytest.raises(InUse, match="queries call it: q"):
        remote.drop_function("odd")
    remote.drop_function("odd", cascade=True)
    remote.drop_function("odd", if_exists=True)
    assert remote.functions() == []
    assert remote.queries() == []


def test_tables_through_another_process(remote: RemoteDatabase) -> None:
    assert remote.create_table("names", {"n": "INT", "name": "STRING"})
    assert not remote.create_table("names", {"n": "INT"}, if_not_exists=True)
    assert remote.insert("NAMES", [{"n": 1, "name": "one"}, {"n": 2}]) == 2
    with pytest.raises(TypeMismatch, match="Row 0 does not fit table 'names'"):
        remote.insert("names", [{"n": "x"}])
    with pytest.raises(UnknownName, match="Tables: names"):
        remote.insert("nomes", [])
    assert remote.sql("UPDATE names SET name = 'two' WHERE n = 2").message == "1 row updated in names"
    (table,) = remote.tables()
    assert (table.name, table.rows, table.version, table.schema.names) == ("names", 2, 2, ("n", "name"))
    remote.push("ticks", ticks(1, 2, 3), wait=True)
    remote.register("SELECT t.n, s.name FROM ticks t JOIN names s ON t.n = s.n", name="q")
    assert sorted(remote.invoke("q").table.column("name").to_pylist()) == ["one", "two"]
    with pytest.raises(InUse, match="queries read it: q"):
        remote.drop_table("names")
    remote.drop_table("names", cascade=True)
    remote.drop_table("names", if_exists=True)
    assert remote.tables() == []
    assert remote.queries() == []


def test_status_comes_whole(remote: RemoteDatabase) -> None:
    remote.register("SELECT n FROM ticks WHERE n > 1", name="q", materialize="complete")
    remote.push("ticks", [*ticks(1, 2), {"n": "bad"}], wait=True)
    remote.invoke("q")
    status = remote.status()
    assert status.epoch == 1
    assert not status.read_only
    (stream,) = status.streams
    assert (stream.name, stream.rows, stream.quarantined, stream.clock) == ("ticks", 2, 1, at(2))
    (query,) = status.queries
    assert (query.name, query.materialize, query.invocations, query.error) == ("q", "complete", 1, None)
    assert query.coverage == 1.0


def test_bad_rows_go_to_the_quarantine_there_too(remote: RemoteDatabase) -> None:
    remote.push("ticks", [*ticks(1), {"n": "x", "at": at(2)}, {"n": 3, "extra": 1}, {"at": at(4)}], wait=True)
    remote.push("ticks", pd.DataFrame({"n": [5, "y"], "at": [at(5), at(6)]}), wait=True)
    assert values(remote.sql("SELECT n FROM ticks")) == [1, None, 5]
    reasons = values(remote.sql("SELECT reason FROM ticks.quarantine"))
    assert len(reasons) == 3
    assert "'x' is not a INT" in reasons[0]
    assert "unknown column 'extra'" in reasons[1]


def test_errors_keep_what_they_are(remote: RemoteDatabase) -> None:
    with pytest.raises(UnknownName) as unknown:
        remote.sql("SELECT n,\n  m FROM ticks")
    assert unknown.value.position == Position(2, 3)
    assert unknown.value.code == "unknown_name"
    with pytest.raises(UnknownName) as close:
        remote.push("tick", ticks(1))
    assert close.value.hint is not None
    assert "ticks" in close.value.hint
    with pytest.raises(UnknownName):
        remote.query("nothing")
    with pytest.raises(TypeMismatch, match="wrong"):
        remote.push("ticks", pa.table({"wrong": [1]}))
    remote.register("SELECT 1 / n AS x FROM ticks", name="q")
    with pytest.raises(AlreadyExists):
        remote.register("SELECT 1 AS one", name="q")
    remote.push("ticks", ticks(0), wait=True)
    with pytest.raises(EvaluationError):
        remote.invoke("q")
    with pytest.raises(LadleError, match="Modes"):
        remote.register("SELECT 1", name="r", materialize="nothing")
    with pytest.raises(LadleError, match="found 2"):
        remote.sql("SELECT 1; SELECT 2")
    assert values(remote.sql("SELECT n FROM ticks")) == [0], "the connection is still good"


def test_types_survive_the_way(remote: RemoteDatabase) -> None:
    remote.sql("CREATE STREAM s (d DECIMAL(9,3), b BINARY, l ARRAY<STRUCT<x: DATE>>, m MAP<STRING, TIMESTAMP_NTZ>)")
    row = {"d": "1.500", "b": b"\x00", "l": [{"x": START.date()}, None], "m": [("k", START.replace(tzinfo=None))]}
    remote.push("s", [row, {}], wait=True)
    first, second = remote.sql("SELECT * FROM s").to_pylist()
    assert str(first.pop("d")) == "1.500"
    assert first == {k: v for k, v in row.items() if k != "d"}
    assert set(second.values()) == {None}


def test_several_clients_and_the_owner_at_once(tmp_path: Path) -> None:
    path = tmp_path / "warehouse"
    owner = connect_inline(path)
    serve(owner)
    owner.sql(TICKS)
    errors: list[BaseException] = []

    def client(first: int) -> None:
        try:
            with RemoteDatabase(path, path / "ladle.sock") as db:
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


def test_the_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "warehouse"
    with holder(path) as process:
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
        with RemoteDatabase(path, path / "ladle.sock") as db:
            assert values(db.sql("SELECT n FROM ticks")) == [1]


def test_the_holder_closes_in_good_order(tmp_path: Path) -> None:
    path = tmp_path / "warehouse"
    owner = connect_inline(path)
    serve(owner)
    db = RemoteDatabase(path, path / "ladle.sock")
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


def test_a_path_longer_than_an_address(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / ("e" * 100) / "warehouse"
    assert len(str(path)) > 200
    with holder(path):
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
        with RemoteDatabase(path, path / "ladle.sock") as db:
            assert values(db.sql("SELECT 1 AS one")) == [1]


def test_a_bug_in_the_holder_is_told_and_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "warehouse"
    with connect_inline(path) as owner:
        serve(owner)
        with RemoteDatabase(path, path / "ladle.sock") as db:
            with monkeypatch.context() as patch:
                patch.setattr(Database, "status", lambda _: 1 / 0)
                with pytest.raises(LadleError, match="ZeroDivisionError"):
                    db.status()
            assert db.status().epoch == 0


def test_every_kind_of_error_crosses() -> None:
    seen = set()
    for kind in wire._kinds(LadleError):
        error = kind("what", hint="do this", position=Position(3, 4))
        again = wire.error_from_json(wire.error_to_json(error))
        assert again.code == error.code
        assert (again.message, again.hint, again.position) == ("what", "do this", Position(3, 4))
        seen.add(kind.code)
    assert {"missing_file", "disk_full", "sql", "timeout"} <= seen
    unknown = wire.error_from_json({"code": "from the future", "message": "m", "hint": None, "position": None})
    assert type(unknown) is LadleError


def test_a_free_warehouse_is_opened_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def inline(path: Path, **options: Any) -> Database:
        return connect_inline(path, read_only=options.get("read_only", False))

    monkeypatch.setattr(ladle.connection, "connect", inline)
    with open_warehouse(tmp_path / "warehouse") as db:
        assert isinstance(db, Database)
        with open_warehouse(tmp_path / "warehouse", read_only=True) as reader:
            assert isinstance(reader, Database)


def test_a_holder_without_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.remote._PATIENCE_SECONDS", 0.1)
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
