"""Who applies what it is told to what it had has the answer: at every position, over every protocol."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from tests.server.conftest import Serve
from tests.server.hearing import Copy, Delta, bag, events, joined, json_delta, messages, polled
from tests.waiting import wait_until
from websockets.sync.client import connect as connect_websocket

import ladle
from ladle.client import RemoteDatabase, SocketTransport
from ladle.connection import serve as serve_socket
from ladle.delta import OUT, Moment, change_rows
from ladle.engine import Database
from ladle.formats.deltas import PIECE_BYTES, json_pieces
from ladle.protocols.http import hub

START = datetime(2026, 1, 1, tzinfo=UTC)

QUERIES = {
    "picked": "SELECT id, n FROM timed [RANGE 6 SECONDS] WHERE n < 7",
    "last": "SELECT id FROM timed [ROWS 5]",
    "counted": "SELECT n, count(*) AS times FROM timed [RANGE 9 SECONDS] GROUP BY n",
    "joined": "SELECT timed.id, names.name FROM timed [RANGE 6 SECONDS] JOIN names ON timed.n = names.n",
    "all_arrived": "SELECT n FROM arrived",
    "lately": "SELECT n, count(*) AS times FROM arrived [RANGE 1 SECOND] GROUP BY n",
}


def over_events(url: str, name: str) -> Iterator[Delta]:
    with (
        httpx.Client(base_url=url, trust_env=False, timeout=60) as http,
        events(http, f"/v1/queries/{name}/changes?snapshot=true&progress=true") as heard,
    ):
        for _, kind, delta in heard:
            assert kind == ("progress" if delta["progress"] else "change")
            yield delta


def over_a_websocket(url: str, name: str) -> Iterator[Delta]:
    address = f"{url.replace('http', 'ws')}/v1/queries/{name}/changes?snapshot=true&progress=true"
    with connect_websocket(address) as socket:
        yield from messages(socket, 60)


def by_waiting(url: str, name: str) -> Iterator[Delta]:
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        path = f"/v1/queries/{name}/changes?progress=true&seconds=0.3"
        deltas, position = polled(http, f"{path}&snapshot=true")
        while True:
            assert deltas[-1]["position"] == position
            yield from deltas
            deltas, position = polled(http, f"{path}&since={position}")


def through_a_client(database: RemoteDatabase, name: str) -> Iterator[Delta]:
    with database.query(name).subscribe(snapshot=True, progress=True) as deltas:
        for delta in deltas:
            yield json_delta(delta)


class Follower:
    """Keeps a copy of an answer, and what it was at each position; breaks off and comes back now and then."""

    def __init__(self, heard: Iterator[Delta]) -> None:
        self.positions: list[str] = []
        self.bags: dict[str, Counter[str]] = {}
        self.error: BaseException | None = None
        self._heard = heard
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        copy = Copy()
        try:
            for delta in self._heard:
                copy.apply(delta)
                self.bags[delta["position"]] = Counter(copy.rows)
                self.positions.append(delta["position"])
        except Exception as error:  # the server is gone
            self.error = error

    def reached(self, entry: int) -> bool:
        if isinstance(self.error, AssertionError):
            raise self.error
        return bool(self.positions) and Moment.parse(self.positions[-1]).entry >= entry


def change_something(db: Database, rng: random.Random, step: int) -> None:
    match rng.choice(("timed", "timed", "arrived", "names", "other", "wait")):
        case "timed":
            rows = []
            for number in range(rng.choice((1, 3, 9))):
                second = max(step * 2 - rng.choice((0, 0, 1, 4)), 0)
                rows.append(
                    {"id": step * 100 + number, "n": rng.randint(0, 9), "at": START + timedelta(seconds=second)}
                )
            db.push("timed", rows, wait=True)
        case "arrived":
            db.push("arrived", [{"n": rng.randint(0, 3)} for _ in range(rng.randint(1, 4))], wait=True)
        case "names":
            n = rng.randint(0, 9)
            change = rng.choice((f"INSERT INTO names VALUES ({n}, 'a{step}')", f"DELETE FROM names WHERE n = {n}"))
            db.sql(change)
        case "other":
            db.sql(f"CREATE TABLE other_{step} (n INT)")
        case "wait":
            time.sleep(0.3)


def test_copies_follow_over_every_protocol(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every position that any of them was told, the copy is what the database itself says the answer was then; also
    where a delta of some rows comes in pieces.
    """
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201
    rng = random.Random(seed)
    monkeypatch.setattr("ladle.formats.deltas.PIECE_BYTES", rng.choice((40, 200, PIECE_BYTES)))
    db, url = serve(tick_seconds=0.1)
    serve_socket(db)
    db.sql("CREATE STREAM timed (id INT, n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.sql("CREATE STREAM arrived (n INT)")
    db.sql("CREATE TABLE names (n INT, name STRING)")
    db.register_many(QUERIES)
    change_something(db, rng, 0)
    with ExitStack() as open_ones:
        near = open_ones.enter_context(ladle.connect(url))
        far = [RemoteDatabase(SocketTransport(Path(db.path))) for _ in QUERIES]
        for each in far:
            open_ones.callback(each.close)
        followers = {
            (name, how): Follower(heard)
            for name, own in zip(QUERIES, far, strict=True)
            for how, heard in (
                ("events", over_events(url, name)),
                ("websocket", over_a_websocket(url, name)),
                ("waiting", by_waiting(url, name)),
                ("client", through_a_client(near, name)),
                ("socket", through_a_client(own, name)),
            )
        }
        wait_until(lambda: all(each.reached(0) for each in followers.values()), "nobody is told anything")
        for step in range(1, 12):
            change_something(db, rng, step)
        entry = db.catalog.seq
        wait_until(lambda: all(each.reached(entry) for each in followers.values()), "somebody is not told everything")
        compared = 0
        for (name, how), follower in followers.items():
            known = {follower.positions[0], *rng.sample(follower.positions, min(12, len(follower.positions)))}
            for position in {*known, follower.positions[-1]}:
                (there,) = db.changes(name, snapshot=True, upto=position)
                assert follower.bags[position] == bag(json_delta(there)["inserted"]), (seed, name, how, position)
                compared += 1
        assert compared > 100


def test_time_alone_is_told(serve: Serve) -> None:
    """Over arrival times rows leave without a commit: to those who wait, over all protocols."""
    db, url = serve(tick_seconds=0.1)
    db.sql("CREATE STREAM s (n INT)")
    db.register("SELECT n FROM s [RANGE 1 SECOND]", name="q")
    address = f"{url.replace('http', 'ws')}/v1/queries/q/changes"
    with (
        httpx.Client(base_url=url, trust_env=False, timeout=30) as http,
        events(http, "/v1/queries/q/changes") as heard,
        connect_websocket(address) as socket,
        events(http, "/v1/queries/q/changes?expirations=out") as outs,
        ladle.connect(url).query("q").subscribe() as client,
    ):
        hearing = messages(socket)
        begun = [next(heard)[2], next(hearing), next(outs)[2]]
        assert all(delta["progress"] for delta in begun)
        db.push("s", [{"n": 1}], wait=True)
        entry = db.catalog.seq
        for told in (next(heard)[2], next(hearing)):
            assert (told["inserted"], told["retracted"], told["entry"]) == ([{"n": 1}], [], entry)
        (out,) = next(outs)[2]["inserted_out"]
        left = http.get(f"/v1/queries/q/changes?since=e{entry}n{_us(told['now'])}&seconds=20").json()["deltas"]
        for delta in (next(heard)[2], next(hearing), left[-1]):
            assert (delta["inserted"], delta["retracted"], delta["entry"]) == ([], [{"n": 1}], entry)
            assert delta["now"] >= out[:19], "not before its time"
        first, second = client.next(5.0), client.next(5.0)
        assert first is not None
        assert second is not None
        assert (first.inserted.to_pylist(), second.retracted.to_pylist()) == ([{"n": 1}], [{"n": 1}])
        db.push("s", [{"n": 2}], wait=True)
        told = next(outs)[2]
        assert (told["inserted"], told["retracted"]) == ([{"n": 2}], []), (
            "who was told when it leaves is not told again"
        )


def _us(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_now_is_carried_on(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing changes, at most every so often; a connection that has nothing to say is kept."""
    monkeypatch.setattr("ladle.protocols.http.streaming._IDLE_SECONDS", 0.3)
    db, url = serve()
    db.sql("CREATE STREAM s (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT n FROM s WHERE n > 5", name="q")
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        with http.stream("GET", "/v1/queries/q/changes", headers={"Accept": "text/event-stream"}) as reply:
            lines = reply.iter_lines()
            while next(lines) != ":":
                pass
        with events(http, "/v1/queries/q/changes") as heard:
            before = next(heard)[2]
            db.push("s", [{"n": 1, "at": START}], wait=True)
            _, kind, after = next(heard)
            assert (kind, after["inserted"], after["now"]) == ("progress", [], "2026-01-01T00:00:00+00:00")
            assert after["entry"] > before["entry"]
        with events(http, "/v1/queries/q/changes", **{"Last-Event-ID": after["position"]}) as heard:
            db.push("s", [{"n": 6, "at": START}], wait=True)
            assert next(delta["inserted"] for _, kind, delta in heard if kind == "change") == [{"n": 6}]


def test_a_position_of_its_own_between_ticks(serve: Serve) -> None:
    """One who comes with a position that its channel was never at meets it, and misses nothing."""
    db, url = serve(tick_seconds=0.2)
    db.sql("CREATE STREAM s (n INT)")
    db.register("SELECT n FROM s [RANGE 1 SECOND]", name="q")
    address = f"{url.replace('http', 'ws')}/v1/queries/q/changes"
    with connect_websocket(f"{address}?progress=true") as other:
        json.loads(other.recv(5))
        for number in range(6):
            (own,) = db.changes("q", snapshot=True)
            copy = Copy()
            copy.apply(json_delta(own))
            with connect_websocket(f"{address}?since={own.position}&progress=true") as socket:
                hearing = messages(socket)
                db.push("s", [{"n": number}], wait=True)
                entry = db.catalog.seq
                delta: Delta = {"entry": 0}
                while delta["entry"] < entry:
                    delta = next(hearing)
                    copy.apply(delta)
                (there,) = db.changes("q", snapshot=True, upto=delta["position"])
                assert copy.rows == bag(json_delta(there)["inserted"])


def test_a_slow_websocket_holds_nobody_and_little(serve: Serve) -> None:
    """It reads nothing while others hear everything; its part in the server's memory is a piece, and what is shared."""
    db, url = serve()
    db.sql("CREATE STREAM s (n INT, text STRING)")
    db.register("SELECT n, text FROM s", name="q")
    address = f"{url.replace('http', 'ws')}/v1/queries/q/changes"
    with connect_websocket(address, max_queue=1) as slow, connect_websocket(address) as quick:
        hearing = messages(quick)
        next(hearing)
        numbers = list[int]()
        for step in range(12):
            rows = [{"n": step * 1_000 + n, "text": "x" * 500} for n in range(1_000)]
            db.push("s", rows, wait=True)
            numbers += [row["n"] for row in next(hearing)["inserted"]]
        assert numbers == list(range(12_000)), "the quick one hears each at once"
        late = messages(slow)
        next(late)
        heard = list[int]()
        while len(heard) < 12_000:
            heard += [row["n"] for row in next(late)["inserted"]]
        assert heard == numbers, "the slow one hears the same when it reads"


def test_pieces_are_whole_rows(serve: Serve) -> None:
    db, _ = serve()
    db.sql("CREATE STREAM s (n INT, text STRING)")
    db.register("SELECT n, text FROM s", name="q")
    for sizes in ([1], [PIECE_BYTES * 3], [10] * 20_000, [PIECE_BYTES // 2 + 1] * 5, []):
        before = db.changes("q")[-1].position
        db.push("s", [{"n": n, "text": "é" * (size // 2)} for n, size in enumerate(sizes)], wait=True)
        delta = db.changes("q", since=before)[0]
        pieces = [json.loads(piece) for piece in json_pieces(delta)]
        assert [piece.get("more", False) for piece in pieces] == [True] * (len(pieces) - 1) + [False]
        assert [row["n"] for piece in pieces for row in piece["inserted"]] == list(range(len(sizes)))
        largest = max([PIECE_BYTES, *sizes]) + 1_000
        assert all(len(piece) <= largest for piece in json_pieces(delta))
        assert json_delta(delta)["position"] == pieces[-1]["position"] == delta.position
        times = [START + timedelta(seconds=n) if n % 3 else None for n in range(len(delta.inserted))]
        both = replace(delta, retracted=delta.inserted.slice(0, 3), inserted_out=pa.array(times, OUT))
        (again,) = joined(map(json.loads, json_pieces(both)))
        assert again == {**json_delta(both), "pieces": again["pieces"]}
        assert change_rows(delta).column("_change").to_pylist() == [1] * len(sizes) or delta.progress


def test_a_channel_is_where_it_was_looked_at() -> None:
    """With ticks a position in between is not the channel's; without them the entry alone counts."""
    options = hub.ChangeOptions()
    for ticks in (True, False):
        channel = hub._Channel(hub.ChannelKey("q", 1, options))
        for number in range(100):
            moment = Moment(number, number * 10)
            told = hub.Told(moment, moment.position, False, (b"x",))
            channel.tell([] if number % 2 else [told], hub.Told(moment, moment.position, True, (b"",)), ticks=ticks)
        assert channel.number == 50
        assert channel.number_at(Moment(99, 990)) == 50
        assert channel.number_at(Moment(98, 980)) == 50
        assert channel.number_at(Moment(96, 960)) == 49
        assert channel.number_at(Moment(96, 965)) == (None if ticks else 49)
        assert channel.number_at(Moment(97, 970)) == (None if ticks else 49)
        assert channel.number_at(Moment(100, 990)) is None
        assert channel.keeps(0)
        for number in range(100, 300):
            channel.tell(
                [hub.Told(Moment(number, 0), "", False, (b"x",))],
                hub.Told(Moment(number, 0), "", True, ()),
                ticks=ticks,
            )
        assert not channel.keeps(50)
        assert channel.number_at(Moment(96, 960)) is None
        assert len(channel.kept) == hub._KEPT_MAX
        assert channel.after(channel.number - 1) == channel.kept[-1]
