"""Subscriptions over HTTP: waiting requests, Server-Sent Events and WebSockets, resumed and shared."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.server.conftest import Serve, as_user, code_of
from tests.server.hearing import events, messages, polled
from websockets.sync.client import connect as connect_websocket

import ladle
from ladle.config import Settings
from ladle.engine import Database
from ladle.formats.deltas import PIECE_BYTES
from ladle.protocols.http.process import Server
from ladle.protocols.http.serving import _token
from ladle.testing import connect_inline

START = datetime(2026, 1, 1, tzinfo=UTC)


def push(db: Database, *numbers: int) -> int:
    rows = [{"n": n, "at": START + timedelta(seconds=n)} for n in numbers]
    return db.push("ticks", rows, wait=True) or 0


def test_a_change_of_a_table_is_an_event(served: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = served
    db.sql("CREATE TABLE t (n INT)")
    db.register("SELECT ticks.n FROM ticks JOIN t ON ticks.n = t.n", name="q")
    push(db, 1, 2)
    with events(http, "/v1/queries/q/changes") as heard:
        assert next(heard)[1] == "progress"
        db.sql("INSERT INTO t VALUES (2)")
        first = db.catalog.epoch
        assert next(heard)[:2] == (first, "change")
        db.sql("UPDATE t SET n = n - 1")
        last, _, value = next(heard)
        assert (last, value["inserted"]) == (db.catalog.epoch, [{"n": 1}])
    with events(http, "/v1/queries/q/changes", **{"Last-Event-ID": str(first)}) as heard:
        assert next(heard)[0] == last


def test_events_come_in_order_and_go_on_from_an_epoch(served: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = served
    db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    first, second = push(db, 1, 2), push(db, 3)
    with events(http, "/v1/queries/q/changes?since=0") as heard:
        assert next(heard)[:2] == (first, "change")
        third = push(db, 4)
        assert [(epoch, value["inserted"]) for epoch, _, value in (next(heard), next(heard))] == [
            (second, [{"n": 3}]),
            (third, [{"n": 4}]),
        ]
    with events(http, "/v1/queries/q/changes", **{"Last-Event-ID": str(second)}) as heard:
        assert next(heard)[0] == third
    with events(http, "/v1/queries/q/changes") as heard:
        assert next(heard)[:2] == (third, "progress"), "from where on it listens"
        fourth = push(db, 5)
        assert next(heard)[:2] == (fourth, "change")


def test_a_large_change_comes_in_pieces(served: tuple[Database, str], http: httpx.Client) -> None:
    """Which the client joins; no message is much larger than a piece."""
    db, url = served
    db.register("SELECT n FROM ticks", name="q")
    address = f"{url.replace('http', 'ws')}/v1/queries/q/changes"
    with events(http, "/v1/queries/q/changes") as heard, connect_websocket(address, max_size=2 * PIECE_BYTES) as socket:
        hearing = messages(socket)
        next(heard), next(hearing)
        first, second = push(db, *range(30_000)), push(db, 30_000)
        for epoch, numbers in (first, range(30_000)), (second, [30_000]):
            told, kind, value = next(heard)
            expected = [{"n": n} for n in numbers]
            assert (told, kind, value["inserted"], value["retracted"]) == (epoch, "change", expected, [])
            assert (value["pieces"] > 3) == (len(numbers) > 1)
            assert next(hearing) == value
    deltas, _ = polled(http, "/v1/queries/q/changes?since=0")
    assert [len(delta["inserted"]) for delta in deltas] == [30_000, 1], "a response and its pages have them too"


def test_a_connection_that_breaks_between_pieces(served: tuple[Database, str], http: httpx.Client) -> None:
    """Pieces that were heard are no position: the delta comes again, whole."""
    db, url = served
    db.register("SELECT n FROM ticks", name="q")
    address = f"{url.replace('http', 'ws')}/v1/queries/q/changes"
    with connect_websocket(address) as socket:
        begin = next(messages(socket))["position"]
        push(db, *range(30_000))
        assert json.loads(socket.recv(20))["more"]
    last = None
    with http.stream("GET", "/v1/queries/q/changes?since=0", headers={"Accept": "text/event-stream"}) as reply:
        for seen, line in enumerate(reply.iter_lines()):
            assert not line.startswith("id:"), "it was not told whole"
            if seen > 5:
                break
    assert last is None
    for path, headers in ((f"?since={begin}", {}), ("", {"Last-Event-ID": begin})):
        with events(http, f"/v1/queries/q/changes{path}", **headers) as heard:
            _, _, value = next(heard)
            assert [row["n"] for row in value["inserted"]] == list(range(30_000))
            assert value["pieces"] > 3


def test_a_dropped_query_ends_its_events(served: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = served
    db.register("SELECT n FROM ticks", name="q")
    push(db, 1)
    with events(http, "/v1/queries/q/changes?since=0") as heard:
        next(heard)
        db.unregister("q")
        _, kind, value = next(heard)
        assert (kind, value["error"]["code"]) == ("error", "unknown_name")
        assert next(heard, None) is None


def test_websockets(served: tuple[Database, str]) -> None:
    db, url = served
    db.register("SELECT n FROM ticks", name="q")
    first = push(db, 1)
    address = url.replace("http", "ws")
    with connect_websocket(f"{address}/v1/queries/q/changes?since=0") as socket:
        told = json.loads(socket.recv(5))
        assert (told["inserted"], told["retracted"], told["net"]) == ([{"n": 1}], [], False)
        assert told["now"] == "2026-01-01T00:00:01+00:00"
        second = push(db, 2)
        assert json.loads(socket.recv(5))["epoch"] == second > first
    with connect_websocket(f"{address}/v1/queries/nope/changes") as socket:
        assert json.loads(socket.recv(5))["error"]["code"] == "unknown_name"
    with connect_websocket(f"{address}/v1/queries/q/changes?relation=both") as socket:
        assert json.loads(socket.recv(5))["error"]["code"] == "type_mismatch"


def test_a_websocket_with_a_token(serve: Serve) -> None:
    db, url = serve(anonymous="nobody")
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT n FROM ticks", name="q")
    push(db, 1)
    address = f"{url.replace('http', 'ws')}/v1/queries/q/changes?since=0"
    with connect_websocket(address) as socket:
        assert json.loads(socket.recv(5))["error"]["code"] == "unauthenticated"
    token = db.create_token("me", "reader")
    with connect_websocket(address, subprotocols=[f"ladle.{token}"]) as socket:  # type: ignore[list-item]
        assert json.loads(socket.recv(5))["inserted"] == [{"n": 1}]


def test_a_token_is_found_on_any_line_of_protocols() -> None:
    name = b"sec-websocket-protocol"
    for lines in ([b"ladle.T, other"], [b"ladle.T", b"other"], [b"other", b"more,ladle.T"]):
        headers = [(name, line) for line in lines]
        assert _token({"headers": headers}, dict(headers)) == "T"
    assert _token({"headers": [(name, b"other")]}, {name: b"other"}) is None


def test_a_waiting_request_returns_when_something_changed(served: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = served
    db.register("SELECT n FROM ticks", name="q")
    begun = time.monotonic()
    threading.Timer(0.3, lambda: push(db, 1)).start()
    reply = http.get("/v1/queries/q/changes?since=0&seconds=20").json()
    assert time.monotonic() - begun < 18
    (delta,) = reply["deltas"]
    assert (delta["inserted"], delta["epoch"]) == ([{"n": 1}], 1)
    assert delta["position"] == reply["position"]
    again = http.get("/v1/queries/q/changes?since=1").json()
    assert again == {"deltas": [], "position": reply["position"]}


def test_many_listeners_hear_the_same_and_a_slow_one_catches_up(served: tuple[Database, str]) -> None:
    db, url = served
    db.register("SELECT n FROM ticks", name="q")
    heard: list[list[int]] = [[] for _ in range(20)]
    ready = threading.Barrier(21)

    def listen(number: int) -> None:
        with (
            httpx.Client(base_url=url, trust_env=False, timeout=30) as http,
            events(http, "/v1/queries/q/changes?since=0") as changes,
        ):
            ready.wait()
            for _, kind, value in changes:
                if kind == "change":
                    heard[number] += [row["n"] for row in value["inserted"]]
                if heard[number] and heard[number][-1] == 199:
                    return
                if number == 0:
                    time.sleep(0.005)

    threads = [threading.Thread(target=listen, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    ready.wait()
    for n in range(200):
        push(db, n)
    for thread in threads:
        thread.join(60)
    assert all(each == list(range(200)) for each in heard)


def test_a_grant_that_is_taken_back_ends_the_subscription(served: tuple[Database, str]) -> None:
    db, url = served
    token = db.create_token("bob", "writer")
    alice = ladle.connect(url, token=db.create_token("alice", "writer"))
    alice.register("SELECT n FROM ticks", name="q")
    alice.grant("q", "bob")
    push(db, 1)
    with as_user(url, token) as http, events(http, "/v1/queries/q/changes?since=0") as heard:
        assert next(heard)[1] == "change"
        alice.revoke("q", "bob")
        push(db, 2)
        assert next(heard)[2]["error"]["code"] == "unknown_name"


def test_a_token_that_is_dropped_ends_the_subscription(served: tuple[Database, str]) -> None:
    db, url = served
    db.register("SELECT n FROM ticks", name="q")
    push(db, 1)
    with (
        as_user(url, db.create_token("bob", "reader")) as http,
        events(http, "/v1/queries/q/changes?since=0") as heard,
    ):
        assert next(heard)[1] == "change"
        db.drop_token("bob")
        push(db, 2)
        assert next(heard)[2]["error"]["code"] == "unauthenticated"


def test_waiting_ends_in_time_though_the_stream_flows(served: tuple[Database, str], http: httpx.Client) -> None:
    """Epochs that change nothing of the query don't begin the wait anew."""
    db, _ = served
    db.register("SELECT n FROM ticks WHERE n < 0", name="q")
    known = push(db, 0)
    done = threading.Event()

    def flow() -> None:
        n = 0
        while not done.is_set():
            n = push(db, n + 1)

    flowing = threading.Thread(target=flow)
    flowing.start()
    try:
        begun = time.monotonic()
        reply = http.get(f"/v1/queries/q/changes?since={known}&seconds=2&progress=true").json()
        assert time.monotonic() - begun < 15, "it would wait for ever"
        (delta,) = reply["deltas"]
        assert delta["progress"]
        assert delta["epoch"] > known
    finally:
        done.set()
        flowing.join()


def test_a_query_that_is_replaced_is_another(served: tuple[Database, str], http: httpx.Client) -> None:
    """What was kept for the one is not told of the other."""
    db, _ = served
    db.register("SELECT n FROM ticks WHERE n < 10", name="q")
    start = push(db, 0)
    with events(http, f"/v1/queries/q/changes?since={start}") as old:
        next(old)
        push(db, 1)
        assert next(old)[2]["inserted"] == [{"n": 1}]
        db.register("SELECT n FROM ticks WHERE n > 10", name="q", replace=True)
        with events(http, f"/v1/queries/q/changes?since={start}") as new:
            push(db, 12)
            changes = (value["inserted"] for _, kind, value in new if kind == "change")
            assert next(changes) == [{"n": 12}]
        assert next(value["error"]["code"] for _, kind, value in old if kind == "error") == "gone"


def test_what_fails_is_told_and_harms_no_other(
    served: tuple[Database, str], http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, _ = served
    db.register("SELECT n FROM ticks", name="q")
    real = db.parts.following.after

    def failing(*_: Any, **how: Any) -> Any:
        raise OSError("the disk")

    with events(http, "/v1/queries/q/changes") as heard:
        next(heard)
        monkeypatch.setattr(db.parts.following, "after", failing)
        push(db, 1)
        _, kind, value = next(heard)
        assert kind == "error"
        assert "the disk" in value["error"]["message"]
    monkeypatch.setattr(db.parts.following, "after", real)
    with events(http, "/v1/queries/q/changes?since=0") as heard:
        assert next(heard)[2]["inserted"] == [{"n": 1}]


def test_an_epoch_that_has_not_been_is_refused(served: tuple[Database, str], http: httpx.Client) -> None:
    served[0].register("SELECT n FROM ticks", name="q")
    for since in ("99", "e99n5", "9" * 30):
        for path in (f"since={since}", f"since=0&upto={since}"):
            assert code_of(http.get(f"/v1/queries/q/changes?{path}")) == (400, "bad_request")
    for wrong in ("since=yesterday", "since=", "relation=both", "expirations=never", "since=0&snapshot=true"):
        assert http.get(f"/v1/queries/q/changes?{wrong}").status_code == 400


def test_a_position_that_is_gone(serve: Serve) -> None:
    """410, with what to do about it: over all protocols."""
    db, url = serve()
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 10 SECONDS")
    db.register("SELECT n FROM ticks", name="q")
    first = push(db, 1)
    push(db, 1_000)
    push(db, 2_000)
    db.maintain()
    address = f"{url.replace('http', 'ws')}/v1/queries/q/changes?since={first}"
    with httpx.Client(base_url=url, trust_env=False) as http:
        for headers in (
            {},
            {"Accept": "text/event-stream"},
            {"Accept": "text/event-stream", "Last-Event-ID": str(first)},
        ):
            reply = http.get(f"/v1/queries/q/changes?since={first}", headers=headers)
            assert code_of(reply) == (410, "gone")
            assert "snapshot" in reply.json()["error"]["hint"]
        with events(http, "/v1/queries/q/changes?snapshot=true") as heard:
            assert next(heard)[2]["inserted"] == [{"n": 2_000}]
    with connect_websocket(address) as socket:
        assert json.loads(socket.recv(5))["error"]["code"] == "gone"


def test_changes_as_tables(served: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = served
    db.register("SELECT n FROM ticks [RANGE 2 SECONDS]", name="q")
    push(db, 1)
    push(db, 5)
    path = "/v1/queries/q/changes?since=0"
    reply = http.get(path, headers={"Accept": "application/vnd.apache.arrow.stream"})
    table = pa.ipc.open_stream(reply.content).read_all()
    assert [(row["_change"], row["n"]) for row in table.to_pylist()] == [(1, 1), (-1, 1), (1, 5)]
    assert reply.headers["Ladle-Position"] == http.get(path).json()["position"]
    text = http.get(f"{path}&expirations=out&relation=istream", headers={"Accept": "text/csv"}).text
    assert text.splitlines()[-1] == "1,2026-01-01 00:00:05.000000Z,2026-01-01 00:00:07.000000Z,5"
    position = reply.headers["Ladle-Position"]
    nothing = http.get(f"/v1/queries/q/changes?since={position}", headers={"Accept": "text/csv"})
    assert nothing.text.splitlines() == ['"_change","_now","_out","n"']
    assert nothing.headers["Ladle-Position"] == position
    quiet = http.get(f"/v1/queries/q/changes?since={position}&progress=true", headers={"Accept": "text/csv"})
    assert quiet.text.splitlines()[1:] == ["0,2026-01-01 00:00:05.000000Z,,"]


def test_columns_that_are_named_as_those_of_changes(served: tuple[Database, str], http: httpx.Client) -> None:
    """They are told under another name, as a second column of a name is: as JSON lines one would be lost."""
    db, _ = served
    db.register("SELECT n AS _now, n AS _Change, n AS _now_1 FROM ticks", name="q")
    push(db, 1)
    text = http.get("/v1/queries/q/changes?since=0", headers={"Accept": "text/csv"}).text
    assert text.splitlines()[0] == '"_change","_now","_out","_now_2","_Change_1","_now_1"'


def test_events_have_no_end(served: tuple[Database, str], http: httpx.Client) -> None:
    db, url = served
    db.register("SELECT n FROM ticks", name="q")
    path = "/v1/queries/q/changes?upto=e1"
    reply = http.get(path, headers={"Accept": "text/event-stream"})
    assert code_of(reply) == (400, "bad_request")
    assert "upto" in reply.json()["error"]["hint"]
    with connect_websocket(url.replace("http", "ws") + path) as socket:
        assert json.loads(socket.recv(5)) == reply.json()


def test_more_than_may_be_are_refused(serve: Serve) -> None:
    db, url = serve(subscribers_max=1)
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT n FROM ticks", name="q")
    push(db, 1)
    with httpx.Client(base_url=url, trust_env=False) as http, events(http, "/v1/queries/q/changes?since=0") as heard:
        next(heard)
        refused = http.get("/v1/queries/q/changes?since=0", headers={"Accept": "text/event-stream"})
        assert code_of(refused) == (429, "limit")


@pytest.mark.parametrize("last", ["x", "-1", "9" * 30])
def test_a_strange_last_event_id_is_refused(served: tuple[Database, str], http: httpx.Client, last: str) -> None:
    served[0].register("SELECT n FROM ticks", name="q")
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
    assert http.get("/v1/queries/q/changes", headers=headers).status_code == 400


def test_a_server_that_stops_lets_its_subscribers_go(
    served: tuple[Database, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladle.protocols.http.process._GRACE_SECONDS", 60)
    db, _ = served
    db.register("SELECT n FROM ticks", name="q")
    own = Server(db, Settings.load({"port": 0}))
    own.start()
    push(db, 1)
    with (
        httpx.Client(base_url=own.url, trust_env=False, timeout=30) as http,
        events(http, "/v1/queries/q/changes?since=0") as heard,
    ):
        next(heard)
        begun = time.monotonic()
        own.stop()
        assert next(heard, None) is None
    assert time.monotonic() - begun < 30, "it waits for them as long as it may"


def test_a_server_that_stopped_no_longer_hears_of_commits(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        before = len(db._store._listeners)
        server = Server(db, Settings.load({"port": 0}))
        server.start()
        assert len(db._store._listeners) == before + 1
        server.stop()
        assert len(db._store._listeners) == before
