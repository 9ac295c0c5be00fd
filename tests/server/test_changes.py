"""Subscriptions over HTTP: waiting requests, Server-Sent Events and WebSockets, resumed and shared."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import Serve, as_user, code_of
from websockets.sync.client import connect as connect_websocket

import ladle
from ladle.config import Settings
from ladle.engine import Database
from ladle.server.following import _PIECE_BYTES, _event
from ladle.server.hub import Told
from ladle.server.run import Server
from ladle.server.serving import _token
from ladle.testing import connect_inline

START = datetime(2026, 1, 1, tzinfo=UTC)


def push(db: Database, *numbers: int) -> int:
    rows = [{"n": n, "at": START + timedelta(seconds=n)} for n in numbers]
    return db.push("ticks", rows, wait=True) or 0


@contextmanager
def events(http: httpx.Client, path: str, **headers: str) -> Iterator[Iterator[tuple[int, str, Any]]]:
    with http.stream("GET", path, headers={"Accept": "text/event-stream", **headers}) as reply:
        assert reply.status_code == 200

        def parsed() -> Iterator[tuple[int, str, Any]]:
            event: dict[str, str] = {}
            for line in reply.iter_lines():
                if line.startswith(":"):
                    continue
                if not line:
                    if "data" in event:
                        yield int(event.get("id", 0)), event["event"], json.loads(event["data"])
                    event = {}
                    continue
                name, _, value = line.partition(": ")
                event[name] = value

        yield parsed()


def test_a_change_of_a_table_is_an_event(served: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = served
    db.sql("CREATE TABLE t (n INT)")
    db.register("SELECT ticks.n FROM ticks JOIN t ON ticks.n = t.n", name="q")
    push(db, 1, 2)
    with events(http, "/v1/queries/q/changes") as heard:
        assert next(heard)[1] == "epoch"
        db.sql("INSERT INTO t VALUES (2)")
        first = db.catalog.epoch
        assert next(heard)[:2] == (first, "change")
        db.sql("UPDATE t SET n = n - 1")
        last, _, value = next(heard)
        assert (last, value["rows"]) == (db.catalog.epoch, [{"n": 1}])
    with events(http, "/v1/queries/q/changes", **{"Last-Event-ID": str(first)}) as heard:
        assert next(heard)[0] == last


def test_events_come_in_order_and_go_on_from_an_epoch(served: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = served
    db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    first, second = push(db, 1, 2), push(db, 3)
    with events(http, "/v1/queries/q/changes?since=0") as heard:
        assert next(heard)[:2] == (first, "change")
        third = push(db, 4)
        assert [(epoch, value["rows"]) for epoch, _, value in (next(heard), next(heard))] == [
            (second, [{"n": 3}]),
            (third, [{"n": 4}]),
        ]
    with events(http, "/v1/queries/q/changes", **{"Last-Event-ID": str(second)}) as heard:
        assert next(heard)[0] == third
    with events(http, "/v1/queries/q/changes") as heard:
        assert next(heard)[:2] == (third, "epoch"), "from where on it listens"
        fourth = push(db, 5)
        assert next(heard)[:2] == (fourth, "change")


def test_a_large_change_comes_whole_and_is_sent_in_pieces(served: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = served
    db.register("SELECT n FROM ticks", name="q")
    with events(http, "/v1/queries/q/changes") as heard:
        next(heard)
        first, second = push(db, *range(30_000)), push(db, 30_000)
        for epoch, numbers in (first, range(30_000)), (second, [30_000]):
            told, kind, value = next(heard)
            assert (told, kind, value["rows"]) == (epoch, "change", [{"n": n} for n in numbers])
    for size in (1, 2, _PIECE_BYTES - 1, _PIECE_BYTES, _PIECE_BYTES + 1, 3 * _PIECE_BYTES, 3 * _PIECE_BYTES + 5):
        pieces = list(_event(Told(7, True, b"x" * size)))
        assert b"".join(pieces) == b"id: 7\nevent: change\ndata: " + b"x" * size + b"\n\n"
        assert max(map(len, pieces)) < _PIECE_BYTES + 100


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
        assert json.loads(socket.recv(5))["rows"] == [{"n": 1}]
        second = push(db, 2)
        assert json.loads(socket.recv(5))["epoch"] == second > first
    with connect_websocket(f"{address}/v1/queries/nope/changes") as socket:
        assert json.loads(socket.recv(5))["error"]["code"] == "unknown_name"


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
        assert json.loads(socket.recv(5))["rows"] == [{"n": 1}]


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
    assert reply["answers"][0]["rows"] == [{"n": 1}]
    assert reply["epoch"] == 1
    assert http.get("/v1/queries/q/changes?since=1").json() == {"answers": [], "epoch": 1}


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
                    heard[number] += [row["n"] for row in value["rows"]]
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
        reply = http.get(f"/v1/queries/q/changes?since={known}&seconds=2").json()
        assert time.monotonic() - begun < 15, "it would wait for ever"
        assert reply["answers"] == []
        assert reply["epoch"] > known
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
        assert next(old)[2]["rows"] == [{"n": 1}]
        db.register("SELECT n FROM ticks WHERE n > 10", name="q", replace=True)
        with events(http, f"/v1/queries/q/changes?since={start}") as new:
            push(db, 12)
            changes = (value["rows"] for _, kind, value in new if kind == "change")
            assert next(changes) == [{"n": 12}]
        assert next(value["error"]["code"] for _, kind, value in old if kind == "error") == "gone"


def test_what_fails_is_told_and_harms_no_other(
    served: tuple[Database, str], http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, _ = served
    db.register("SELECT n FROM ticks", name="q")
    real = db.changes

    def failing(name: str, **how: Any) -> Any:
        raise OSError("the disk")

    with events(http, "/v1/queries/q/changes") as heard:
        next(heard)
        monkeypatch.setattr(db, "changes", failing)
        push(db, 1)
        _, kind, value = next(heard)
        assert kind == "error"
        assert "the disk" in value["error"]["message"]
    monkeypatch.setattr(db, "changes", real)
    with events(http, "/v1/queries/q/changes?since=0") as heard:
        assert next(heard)[2]["rows"] == [{"n": 1}]


def test_an_epoch_that_has_not_been_is_refused(served: tuple[Database, str], http: httpx.Client) -> None:
    served[0].register("SELECT n FROM ticks", name="q")
    assert code_of(http.get("/v1/queries/q/changes?since=99")) == (400, "bad_request")


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
    monkeypatch.setattr("ladle.server.run._GRACE_SECONDS", 60)
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
