"""The interface of a database, which is the same in its own process, through its socket, and through a server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from tests.remote.test_socket import START, TICKS, Holder, another_process, at, ticks, values

import ladle
from ladle.client import RemoteDatabase, open_warehouse
from ladle.config import Settings
from ladle.delta import ChangeOptions
from ladle.errors import (
    AlreadyExists,
    EvaluationError,
    Gone,
    InUse,
    LadleError,
    Position,
    TypeMismatch,
    UnknownName,
    Unsupported,
)
from ladle.protocols.http.process import Server
from ladle.schema import TIMESTAMP, Column, StreamSchema
from ladle.testing import connect_inline

LIMITS = {"invoke_seconds_max": 5.0}


@pytest.fixture(scope="module")
def holder() -> Iterator[Holder]:
    with another_process() as holder:
        yield holder


@pytest.fixture(params=["embedded", "socket", "http"])
def db(request: pytest.FixtureRequest, tmp_path: Path, holder: Holder) -> Iterator[Any]:
    path = tmp_path / "warehouse"
    if request.param == "socket":
        with holder.hold(path):
            remote = open_warehouse(path)
            assert isinstance(remote, RemoteDatabase)
            with remote:
                remote.sql(TICKS)
                yield remote
        return
    with connect_inline(path, settings=LIMITS) as own:
        own.sql(TICKS)
        if request.param == "embedded":
            yield own
            return
        server = Server(own, Settings.load({**LIMITS, "port": 0}))
        server.start()
        try:
            with ladle.connect(server.url) as remote:
                yield remote
        finally:
            server.stop()


def test_what_is_gone_is_told_on_every_way(db: Any) -> None:
    db.sql("ALTER STREAM ticks SET RETAIN INTERVAL 5 SECONDS")
    for second in range(10):
        db.push("ticks", ticks(second), wait=True)
    whole = db.register("SELECT n FROM ticks", name="whole")
    assert values(whole.invoke(now=at(6))) == [5, 6]
    with pytest.raises(Gone, match="beyond its retention") as caught:
        whole.invoke(now=at(3))
    assert caught.value.hint == f"there are answers from {at(4) + timedelta(microseconds=1)} on"


def test_heartbeats_on_every_way(db: Any) -> None:
    db.sql("ALTER STREAM ticks SET LATENESS INTERVAL 5 SECONDS")
    db.sql("ALTER STREAM ticks SET IDLE AFTER INTERVAL 1 HOUR")
    db.push("ticks", ticks(1), wait=True)
    assert db.heartbeat("TICKS", at(10)) == 2
    assert db.heartbeat("ticks", at(10).isoformat()) is None
    db.push("ticks", ticks(5, 6), wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [1, 6]
    (stream,) = db.streams()
    told = (stream.clock, stream.lateness_us, stream.idle_after_us, stream.idle)
    assert told == (at(10), 5_000_000, 3_600_000_000, False)
    (status,) = db.status().streams
    assert (status.clock, status.lateness_seconds, status.idle) == (at(10), 5.0, False)
    with pytest.raises(LadleError, match="the wall clock plus MAX AHEAD"):
        db.heartbeat("ticks", "9999-01-01")
    with pytest.raises(UnknownName):
        db.heartbeat("tocks", at(11))


def test_all_of_a_database(db: Any) -> None:
    assert db.push("ticks", ticks(1, 2), wait=True) == 1
    assert db.push("TICKS", pd.DataFrame(ticks(3))) is None
    assert db.push("ticks", pa.Table.from_pylist(ticks(4)), wait=True) in (2, 3)
    assert db.push("ticks", []) is None
    assert db.push("ticks", ticks(5)[0], wait=True, key="five") is not None  # one dictionary is one row
    again = db.push("ticks", ticks(5), wait=True, key="five")
    assert db.push("ticks", ticks(5), wait=True, key="five") == again
    db.push("ticks", ticks(5), key="five")
    q = db.register("SELECT n FROM ticks WHERE n > 1 BEGIN NOW - INTERVAL 10 SECONDS END NOW", name="q")
    many = db.register_many({"a": "SELECT n FROM ticks", "b": "SELECT max(n) AS m FROM ticks"}, materialize="none")
    assert [query.name for query in many] == ["a", "b"]
    assert db.register("SELECT 1 AS one", name="A", if_not_exists=True).sql == "SELECT n FROM ticks"
    assert [query.name for query in db.register_many({"B": "SELECT 1 AS m"}, replace=True)] == ["B"]
    db.register("SELECT max(n) AS m FROM ticks", name="b", materialize="none", replace=True)
    unnamed = db.register("SELECT min(n) AS m FROM ticks", materialize="none")
    assert (values(unnamed.invoke()), unnamed.materialize) == ([1], "none")
    unnamed.unregister()
    with pytest.raises(LadleError, match="without a name"):
        db.register("SELECT 1 AS one", replace=True)
    with pytest.raises(AlreadyExists, match="There is a query 'a' already"):
        db.register("SELECT 1 AS one", name="a")
    assert values(q.invoke()) == [2, 3, 4, 5]
    assert values(q.invoke(now=at(2))) == [2]
    assert values(q.invoke(now=at(2).replace(tzinfo=None))) == [2]
    answer = db.invoke("q")
    assert answer.now == at(5)
    assert answer.window is not None
    assert (answer.window.begin, answer.window.end) == (at(-5), at(5))
    assert "4 rows, epoch" in repr(answer)
    assert [query.name for query in db.queries()] == ["q", "a", "b"]
    assert db.query("B").sql == "SELECT max(n) AS m FROM ticks"
    assert db.query("a").materialize == "none"
    assert "standing query q" in q.explain()
    assert "one-off" in db.explain("SELECT n FROM ticks")
    assert q.explain_tree() == db.explain_tree("q")
    assert q.explain_tree()["children"][0]["node"] == "StreamScan"
    (stream,) = db.streams()
    assert (stream.name, stream.rows, stream.schema.timestamp) == ("ticks", 5, "at")
    answers = db.execute("SHOW QUERIES; SELECT count(*) FROM q; DROP QUERY b; SELECT 1 AS one")
    assert [len(a) for a in answers] == [3, 1, 0, 1]
    assert answers[2].message == "query b dropped"
    q.unregister()
    assert [query.name for query in db.queries()] == ["a"]


def test_a_subscription(db: Any) -> None:
    q = db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    first = db.push("ticks", ticks(1, 2), wait=True)
    with q.subscribe(since=0) as changes, q.subscribe() as later:
        change = changes.next(0.0)
        assert change is not None
        assert (change.epoch, values(change), change.now) == (first, [2], at(2))
        assert changes.next(0.0) is None
        db.push("ticks", ticks(3), wait=True)
        for each in (changes, later):
            change = each.next(5.0)
            assert change is not None
            assert values(change) == [3]
    with pytest.raises(UnknownName):
        db.changes("nope")


def test_deltas(db: Any) -> None:
    """What comes and what goes, from any position, in all the ways to be told."""
    q = db.register("SELECT n FROM ticks [RANGE 2 SECONDS]", name="q")
    first = db.push("ticks", ticks(1, 2), wait=True)
    follower = q.subscribe(snapshot=True, progress=True)
    snapshot = follower.next(5.0)
    assert (snapshot.epoch, values(snapshot), snapshot.now, len(snapshot.retracted)) == (first, [1, 2], at(2), 0)
    second = db.push("ticks", ticks(4), wait=True)
    change = follower.next(5.0)
    assert (change.epoch, values(change), change.retracted.to_pylist()) == (second, [4], [{"n": 1}, {"n": 2}])
    assert (change.net, change.progress, change.inserted_out, change.now) == (False, False, None, at(4))
    assert change.retracted.schema == change.inserted.schema == pa.schema([pa.field("n", pa.int32())])
    assert follower.position == change.position
    db.sql("CREATE TABLE other (n INT)")
    carried = follower.next(5.0)
    assert carried.progress
    assert (carried.entry > change.entry, carried.now, len(carried)) == (True, at(4), 0)

    (again,) = db.changes("q", since=snapshot.position, upto=change.position)
    assert (again.position, values(again)) == (change.position, [4])
    assert [each.progress for each in db.changes("q", since=change.position)] == [True]
    (out,) = db.changes("q", since=first, options=ChangeOptions.of("out"), upto=change.position)
    assert (values(out), out.inserted_out.to_pylist(), len(out.retracted)) == ([4], [at(6)], 0)
    for relation, came, went in (("istream", [4], []), ("dstream", [], [1, 2]), ("rstream", [4], [])):
        (told, *_) = db.changes("q", since=snapshot.position, options=ChangeOptions.of(relation=relation))
        assert (values(told), told.retracted.column("n").to_pylist()) == (came, went)
    with pytest.raises(LadleError, match="is no position"):
        db.changes("q", since="yesterday")
    with pytest.raises(LadleError, match="has not been yet"):
        db.changes("q", since="e999999n0")
    with pytest.raises(LadleError, match="A snapshot is the answer as it is now"):
        db.changes("q", since=1, snapshot=True)
    q.unregister()
    with pytest.raises(UnknownName):
        follower.next(5.0)


def test_functions(db: Any) -> None:
    @db.create_function(arguments=["INT"], returns="BOOLEAN")
    def odd(n: pa.Array) -> pa.Array:
        import pyarrow.compute as c

        return c.equal(c.bit_wise_and(n, 1), 1)

    db.register("SELECT n FROM ticks WHERE odd(n)", name="q")
    db.push("ticks", ticks(1, 2, 3), wait=True)
    assert values(db.invoke("q")) == [1, 3]
    (function,) = db.functions()
    assert (function.signature, function.returns) == ("odd(n INT) RETURNS BOOLEAN", pa.bool_())
    assert function.source.startswith("def odd(")
    flipped = function.source.replace(", 1), 1)", ", 1), 0)")
    made = db.create_function(flipped, arguments=["INT"], returns="BOOLEAN", replace=True)
    assert made.id > function.id
    assert values(db.invoke("q")) == [2]
    with pytest.raises(AlreadyExists, match="There is a function 'odd' already"):
        db.create_function(flipped, arguments=["INT"], returns="BOOLEAN")
    with pytest.raises(InUse, match="queries call it: q"):
        db.drop_function("odd")
    db.drop_function("odd", cascade=True)
    db.drop_function("odd", if_exists=True)
    assert db.functions() == []
    assert db.queries() == []


def test_tables(db: Any) -> None:
    assert db.create_table("names", {"n": "INT", "name": "STRING"})
    assert not db.create_table("names", {"n": "INT"}, if_not_exists=True)
    assert db.insert("NAMES", [{"n": 1, "name": "one"}, {"n": 2}]) == 2
    with pytest.raises(TypeMismatch, match="Row 0 does not fit table 'names'"):
        db.insert("names", [{"n": "x"}])
    with pytest.raises(UnknownName, match="Tables: names"):
        db.insert("nomes", [])
    assert db.sql("UPDATE names SET name = 'two' WHERE n = 2").message == "1 row updated in names"
    (table,) = db.tables()
    assert (table.name, table.rows, table.version, table.schema.names) == ("names", 2, 2, ("n", "name"))
    db.push("ticks", ticks(1, 2, 3), wait=True)
    db.register("SELECT t.n, s.name FROM ticks t JOIN names s ON t.n = s.n", name="q")
    assert sorted(db.invoke("q").table.column("name").to_pylist()) == ["one", "two"]
    with pytest.raises(InUse, match="queries read it: q"):
        db.drop_table("names")
    db.drop_table("names", cascade=True)
    db.drop_table("names", if_exists=True)
    assert db.tables() == []
    assert db.queries() == []


def test_status_comes_whole(db: Any) -> None:
    db.register("SELECT n FROM ticks WHERE n > 1", name="q", materialize="complete")
    db.push("ticks", [*ticks(1, 2), {"n": "bad"}], wait=True)
    db.invoke("q")
    status = db.status()
    assert status.epoch == 1
    assert not status.read_only
    (stream,) = status.streams
    assert (stream.name, stream.rows, stream.quarantined, stream.clock) == ("ticks", 2, 1, at(2))
    (query,) = status.queries
    assert (query.name, query.materialize, query.invocations, query.error) == ("q", "complete", 1, None)
    assert query.coverage == 1.0


def test_bad_rows_go_to_the_quarantine(db: Any) -> None:
    db.push("ticks", [*ticks(1), {"n": "x", "at": at(2)}, {"n": 3, "extra": 1}, {"at": at(4)}], wait=True)
    db.push("ticks", pd.DataFrame({"n": [5, "y"], "at": [at(5), at(6)]}), wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [1, None, 5]
    reasons = values(db.sql("SELECT reason FROM ticks.quarantine"))
    assert len(reasons) == 3
    assert "'x' is not a INT" in reasons[0]
    assert "unknown column 'extra'" in reasons[1]


def test_errors_keep_what_they_are(db: Any) -> None:
    with pytest.raises(UnknownName) as unknown:
        db.sql("SELECT n,\n  m FROM ticks")
    assert unknown.value.position == Position(2, 3)
    assert unknown.value.code == "unknown_name"
    with pytest.raises(UnknownName) as close:
        db.push("tick", ticks(1))
    assert close.value.hint is not None
    assert "ticks" in close.value.hint
    with pytest.raises(UnknownName):
        db.query("nothing")
    with pytest.raises(TypeMismatch, match="wrong"):
        db.push("ticks", pa.table({"wrong": [1]}))
    db.register("SELECT 1 / n AS x FROM ticks", name="q")
    with pytest.raises(AlreadyExists):
        db.register("SELECT 1 AS one", name="q")
    db.push("ticks", ticks(0), wait=True)
    with pytest.raises(EvaluationError):
        db.invoke("q")
    with pytest.raises(LadleError, match="Modes"):
        db.register("SELECT 1", name="r", materialize="nothing")
    with pytest.raises(LadleError, match="found 2"):
        db.sql("SELECT 1; SELECT 2")
    assert values(db.sql("SELECT n FROM ticks")) == [0], "the connection is still good"


def test_types_survive_the_way(db: Any) -> None:
    db.sql("CREATE STREAM s (d DECIMAL(9,3), b BINARY, l ARRAY<STRUCT<x: DATE>>, m MAP<STRING, TIMESTAMP_NTZ>)")
    row = {"d": "1.500", "b": b"\x00", "l": [{"x": START.date()}, None], "m": [("k", START.replace(tzinfo=None))]}
    db.push("s", [row, {}], wait=True)
    first, second = db.sql("SELECT * FROM s").to_pylist()
    assert str(first.pop("d")) == "1.500"
    assert first == {k: v for k, v in row.items() if k != "d"}
    assert set(second.values()) == {None}


def test_sources_are_defined_and_dropped(db: Any) -> None:
    options = {"path": "/data/it's", "fs.password": "pss", "header": True}
    db.create_source("files", stream="TICKS", format="csv", options=options)
    db.create_source("Files", stream="ticks", format="rate", if_not_exists=True)
    with pytest.raises(AlreadyExists, match="of stream 'ticks'"):
        db.create_source("FILES", stream="ticks", format="rate")
    with pytest.raises(UnknownName, match="Format 'tape' not found"):
        db.create_source("other", stream="ticks", format="tape")
    (shown,) = db.sql("SHOW SOURCES").to_pylist()
    assert (shown["name"], shown["stream"], shown["format"]) == ("files", "ticks", "csv")
    assert shown["options"] == "path '/data/it's', fs.password '***', header 'true'"
    with pytest.raises(InUse, match="sources are defined for it: files"):
        db.sql("DROP STREAM ticks")
    db.drop_source("FILES")
    db.drop_source("files", if_exists=True)
    with pytest.raises(UnknownName, match="Source 'files' not found"):
        db.drop_source("files")
    assert db.status().sources == ()


def test_a_remote_database_says_why_it_has_no_spark(db: Any) -> None:
    if not isinstance(db, RemoteDatabase):
        return
    with pytest.raises(Unsupported, match="sources are run by") as told:
        db.attach("ticks", None, source="files")  # type: ignore[arg-type]
    assert "CREATE SOURCE files FOR ticks" in str(told.value)
    assert "spark_format" in str(told.value)
    with pytest.raises(Unsupported, match="no Spark session here"):
        _ = db.spark


def test_streams_come_and_go(db: Any) -> None:
    schema = StreamSchema((Column("n", pa.int32()), Column("at", TIMESTAMP)), "at")
    second = 1_000_000
    limits = {"retain_us": 3_600 * second, "max_ahead_us": 1, "lateness_us": second, "idle_after_us": 60 * second}
    assert db.create_stream("A-b", schema, **limits)
    assert not db.create_stream("a-B", schema, if_not_exists=True)
    with pytest.raises(AlreadyExists):
        db.create_stream("a-b", schema)

    def told() -> tuple[int | None, ...]:
        stream = next(each for each in db.streams() if each.name == "A-b")
        assert stream.schema == schema
        return stream.retain_us, stream.lateness_us, stream.idle_after_us

    assert told() == (3_600 * second, second, 60 * second)
    db.set_retain("A-b", 7_200 * second)
    db.set_lateness("A-b", 5)
    db.set_idle_after("A-b", None)
    assert told() == (7_200 * second, 5, None)
    for change in (db.set_retain, db.set_lateness):
        change("A-b", None)
    assert told() == (None, None, None)
    db.register("SELECT n FROM `A-b`", name="q")
    db.register("SELECT n FROM q", name="over")
    with pytest.raises(InUse):
        db.unregister("q")
    db.unregister("q", cascade=True)
    assert db.queries() == []
    db.unregister("q", if_exists=True)
    db.register("SELECT n FROM `A-b`", name="q")
    with pytest.raises(InUse):
        db.drop_stream("A-b")
    db.drop_stream("A-b", cascade=True)
    db.drop_stream("A-b", if_exists=True)
    with pytest.raises(UnknownName):
        db.drop_stream("A-b")
