"""Deltas larger than a piece, in every form and on every way: bounded, joined, the same, and once.

The other implementation is the database in the own process, which tells them whole.
"""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from tests.server.conftest import Serve, as_user, code_of
from tests.server.hearing import events, json_delta, polled
from tests.waiting import wait_until

import ladle
from ladle.client import open_warehouse
from ladle.client.over_http import HttpTransport
from ladle.connection import serve as serve_socket
from ladle.delta import ChangeOptions, Delta, change_rows
from ladle.engine import Database
from ladle.errors import Unreachable
from ladle.formats import deltas
from ladle.formats.deltas import PIECE_BYTES, Deltas
from ladle.pipeline.datasource import _Between, _Options, _StreamReader
from ladle.protocols import wire
from ladle.protocols.http.pages import AnswerPages

START = datetime(2026, 1, 1, tzinfo=UTC)
STREAM = "CREATE STREAM s (n INT, text STRING, at TIMESTAMP) TIMESTAMP BY at"
QUERY = "SELECT n, text FROM s [RANGE 10 SECONDS]"
CHANGES = "/v1/queries/q/changes?since=0"
ENVELOPE_BYTES = 4_000
"""What a body has beside rows: heads, schemas, names."""
GIANT = 3 * PIECE_BYTES


@pytest.fixture
def large(serve: Serve) -> tuple[Database, str]:
    """A database whose query has small deltas, large ones that come and go, and one with a row larger than a piece."""
    db, url = serve()
    db.sql(STREAM)
    db.register(QUERY, name="q")
    for second, sizes in enumerate(([5] * 3, [40] * 6_000, [1], [30] * 3 + [GIANT] + [30] * 3, [7] * 4_000)):
        at = START + timedelta(seconds=second * 6)
        db.push("s", [{"n": n, "text": f"{n}é" * (size // 2), "at": at} for n, size in enumerate(sizes)], wait=True)
    return db, url


@pytest.fixture
def http(large: tuple[Database, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=large[1], trust_env=False, timeout=30) as client:
        yield client


def pages(http: httpx.Client, path: str, accept: str) -> list[httpx.Response]:
    """A response and its further pages. None but the last has the position; none is larger than it may be."""
    replies = list[httpx.Response]()
    following: str | None = path
    while following is not None:
        reply = http.get(following, headers={"Accept": accept})
        assert reply.status_code == 200, reply.text
        replies.append(reply)
        following = reply.links["next"]["url"] if "next" in reply.links else None
        assert ("Ladle-Position" in reply.headers) == (following is None)
    return replies


def check_sizes(bodies: list[bytes]) -> None:
    """Each is bounded, but for the one that has the giant row."""
    sizes = sorted(map(len, bodies))
    assert len(sizes) > 10
    assert sizes[-2] <= PIECE_BYTES + ENVELOPE_BYTES
    assert sizes[-1] > GIANT


@pytest.mark.parametrize("how", ["", "&expirations=out", "&progress=true", "&snapshot=true"])
def test_responses_are_bounded_and_tell_the_same(large: tuple[Database, str], http: httpx.Client, how: str) -> None:
    db, _ = large
    path, is_snapshot = f"{CHANGES}{how}", "snapshot" in how
    if is_snapshot:
        path, expected = path.replace("since=0&", ""), db.changes("q", snapshot=True)
    else:
        expected = db.changes("q", since=0, options=ChangeOptions.of("out" if "out" in how else "retract"))
    told, position = polled(http, path)
    own = [
        json.loads(deltas.encoded(json_delta(delta))) for delta in expected if "progress" in how or not delta.progress
    ]
    assert [{**delta, "pieces": 0} for delta in told] == [{**delta, "pieces": 0} for delta in own]
    assert position == expected[-1].position
    if is_snapshot:
        return
    with events(http, path) as heard:
        for delta in told:
            assert {**next(heard)[2], "pieces": 0} == {**delta, "pieces": 0}, "as Server-Sent Events"
    bodies, following = list[bytes](), path
    while following:
        body = http.get(following).content
        bodies.append(body)
        following = json.loads(body).get("next")
        assert all("position" not in delta for delta in json.loads(body)["deltas"] if delta.get("more"))
    check_sizes(bodies)


def test_tables_are_bounded_and_tell_the_same(large: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = large
    expected = pa.concat_tables([change_rows(delta) for delta in db.changes("q", since=0)])
    replies = pages(http, CHANGES, wire.ARROW)
    assert pa.concat_tables([pa.ipc.open_stream(reply.content).read_all() for reply in replies]).equals(expected)
    check_sizes([reply.content for reply in replies])
    replies = pages(http, CHANGES, "text/csv")
    limit = csv.field_size_limit(2 * GIANT)
    rows = [row for reply in replies for row in csv.DictReader(io.StringIO(reply.content.decode()))]
    csv.field_size_limit(limit)
    assert [(int(row["_change"]), row["text"]) for row in rows] == [
        (row["_change"], row["text"]) for row in expected.select(["_change", "text"]).to_pylist()
    ]
    check_sizes([reply.content for reply in replies])


def test_clients_have_them_whole(large: tuple[Database, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP and through the socket, as the database in the own process tells them."""
    db, url = large
    serve_socket(db)
    sizes = list[int]()
    unpack, receive = wire.unpack, wire.receive

    def seen_unpack(message: bytes) -> Any:
        sizes.append(len(message))
        return unpack(message)

    def seen_receive(connection: Any) -> Any:
        header, tables = receive(connection)
        sizes.append(sum(table.nbytes for table in tables))
        return header, tables

    monkeypatch.setattr(wire, "unpack", seen_unpack)
    monkeypatch.setattr(wire, "receive", seen_receive)
    for remote in (ladle.connect(url), open_warehouse(db.parts.store.warehouse.path)):
        with remote:
            for options in (ChangeOptions(), ChangeOptions.of("out"), ChangeOptions.of(relation="rstream")):
                sizes.clear()
                same(remote.changes("q", since=0, options=options), db.changes("q", since=0, options=options))
                large_ones = [size for size in sizes if size > PIECE_BYTES + ENVELOPE_BYTES]
                assert len(sizes) > 5
                assert all(size > GIANT for size in large_ones), sizes
                assert len(large_ones) <= 2, "the giant row comes, and is part of the answer that RSTREAM repeats"
            same(remote.changes("q", snapshot=True), db.changes("q", snapshot=True))
            subscription, own = remote.query("q").subscribe(since=0), db.query("q").subscribe(since=0)
            for _ in range(5):
                told, expected = subscription.next(10.0), own.next(10.0)
                assert told is not None
                assert expected is not None
                same([told], [expected])
            assert subscription.position == own.position
            heard, before = list[Delta](), db.changes("q")[-1].position
            listener = remote.query("q").subscribe(snapshot=True).call(heard.append)
            db.push(
                "s", [{"n": n, "text": "x" * 30, "at": START + timedelta(seconds=99)} for n in range(5_000)], wait=True
            )
            wait_until(lambda heard=heard: len(heard) > 1, "nothing is called back")
            listener.stop()
            same(heard[1:], db.changes("q", since=before)[:1])


def same(told: list[Delta], expected: list[Delta]) -> None:
    assert [delta.position for delta in told] == [delta.position for delta in expected]
    for one, other in zip(told, expected, strict=True):
        assert one.inserted.equals(other.inserted)
        assert one.retracted.equals(other.retracted)
        assert (one.inserted_out is None) == (other.inserted_out is None)
        assert one.inserted_out is None or one.inserted_out.equals(other.inserted_out)
        for name in ("entry", "epoch", "now_us", "net", "progress", "query_id"):
            assert getattr(one, name) == getattr(other, name)


def test_the_spark_format_has_them_whole(large: tuple[Database, str]) -> None:
    db, url = large
    schema = StructType([StructField("n", IntegerType()), StructField("text", StringType())])
    options = _Options.of({"url": url, "query": "q"}, lambda url, token: ladle.connect(url, token=token))
    expected = db.changes("q", since=0)
    read = _StreamReader(options, schema).read(_Between(0, expected[-1].position))
    assert pa.Table.from_batches(list(read)).to_pylist() == [
        row for delta in expected for row in delta.inserted.to_pylist()
    ]


JOURNAL = """
import json, os, signal, sys
import ladle
from ladle.client.over_http import HttpTransport
url, path, die = sys.argv[1:]
known = [json.loads(line) for line in open(path)] if os.path.exists(path) else []
fetch, left = HttpTransport._page, int(die)

def page(self, *asked):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return fetch(self, *asked)

HttpTransport._page = page
with ladle.connect(url) as db, open(path, "a") as journal:
    deltas = db.query("q").subscribe(since=known[-1]["position"] if known else 0)
    while (delta := deltas.next(0.5)) is not None:
        rows = [delta.inserted.column("n").to_pylist(), delta.retracted.column("n").to_pylist()]
        journal.write(json.dumps({"position": delta.position, "rows": rows}) + "\\n")
        journal.flush()
"""


def test_a_client_that_is_killed_between_pieces(large: tuple[Database, str], tmp_path: Path) -> None:
    """Misses nothing, and is told nothing twice, when it goes on from the last position it was told."""
    db, url = large
    journal = tmp_path / "journal"
    for die in (1, 2, 7, 0):
        run = subprocess.run([sys.executable, "-c", JOURNAL, url, str(journal), str(die)], check=False, timeout=60)
        assert run.returncode == (-signal.SIGKILL if die else 0)
        if die != 0:
            db.push("s", [{"n": die, "text": "x" * GIANT, "at": START + timedelta(seconds=100 + die)}], wait=True)
    told = [json.loads(line) for line in journal.read_text().splitlines()]
    expected = [delta for delta in db.changes("q", since=0) if not delta.progress]
    assert [each["position"] for each in told] == [delta.position for delta in expected]
    assert [each["rows"] for each in told] == [
        [delta.inserted.column("n").to_pylist(), delta.retracted.column("n").to_pylist()] for delta in expected
    ]


def test_pages_that_are_gone_are_asked_for_anew(large: tuple[Database, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told that a position is gone, when only the pieces after it are."""
    db, url = large
    fetch = HttpTransport._page
    losing = [3]

    def page(self: HttpTransport, path: str, request: dict[str, Any]) -> Any:
        losing[0] -= 1
        return fetch(self, "/v1/pages/nothing" if losing[0] == 0 else path, request)

    monkeypatch.setattr(HttpTransport, "_page", page)
    with ladle.connect(url) as remote:
        same(remote.changes("q", since=0), db.changes("q", since=0))
        assert losing[0] < 0
        monkeypatch.setattr(
            HttpTransport, "_page", lambda self, path, request: fetch(self, "/v1/pages/nothing", request)
        )
        with pytest.raises(Unreachable, match="lets go of large changes"):
            remote.changes("q", since=0)


def test_pages_of_changes_are_their_users_and_go(large: tuple[Database, str]) -> None:
    db, url = large
    with as_user(url, db.create_token("alice", "admin")) as alice, as_user(url, db.create_token("bob", "admin")) as bob:
        following = alice.get(CHANGES).json()["next"]
        assert code_of(bob.get(following)) == (410, "gone")
        assert alice.get(following).json() == alice.get(following).json(), "a response that was lost is asked for again"
        beyond = following.partition("?")[0] + "?start=999999"
        assert code_of(alice.get(beyond)) == (400, "bad_request")
        polled(alice, following)
        assert code_of(alice.get(following)) == (410, "gone"), "when the last page was fetched, all are"


def test_changes_count_among_what_is_kept() -> None:
    table = pa.table({"n": pa.array(range(1_000), pa.int64())})
    kept = Deltas.of([Delta(table, table.slice(0, 0), 1, 1, 0)])
    assert (len(kept), kept.nbytes) == (1_000, 8_000)
    pages = AnswerPages(20_000)
    keys = [pages.keep(kept, "me") for _ in range(3)]
    assert list(pages._kept) == keys[1:]


@pytest.mark.parametrize("sizes", [[1] * 50, [100] * 50, [1] * 20 + [1_000] + [1] * 20, [1_000, 1, 1_000], [0, 0, 7]])
@pytest.mark.parametrize("gone", [0, 1, 10])
def test_cuts_are_bounded_and_leave_nothing_out(monkeypatch: pytest.MonkeyPatch, sizes: list[int], gone: int) -> None:
    """Wherever rows differ in size, and whatever is guessed of how many fit."""
    monkeypatch.setattr(deltas, "PIECE_BYTES", 200)
    table = pa.table({"n": range(len(sizes)), "text": ["x" * size for size in sizes]})
    nothing = Delta(table.slice(0, 0), table.slice(0, 0), 1, 1, 0, progress=True)
    several = Deltas.of([nothing, Delta(table, table.slice(0, gone), 2, 1, 0), nothing, Delta(table, table, 3, 1, 0)])
    for guess in (0, 1, 3, 10_000):
        begin, pieces = 0, list[deltas.DeltaPiece]()
        while begin < len(several):
            made, end = deltas.cut(several, begin, list, deltas.tables_nbytes, guess)
            assert end == begin + 1 or deltas.tables_nbytes(made) <= 200
            assert end > begin
            pieces, begin = [*pieces, *made], end
        whole = list[tuple[list[Any], list[Any]]]([([], [])])
        for piece in pieces:
            inserted, retracted = whole[-1]
            inserted += piece.delta.inserted.to_pylist()
            retracted += piece.delta.retracted.to_pylist()
            if not piece.more:
                whole.append(([], []))
        expected = [(delta.inserted.to_pylist(), delta.retracted.to_pylist()) for delta in several.shown]
        assert whole == [*expected, ([], [])]
