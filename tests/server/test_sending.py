"""How a response goes onto the wire, and a body comes from it."""

from __future__ import annotations

import http.client
import socket
import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from tests.server.conftest import Serve

from ladle.engine import Database
from ladle.protocols.http.guarded import HeadWithBody
from ladle.protocols.wire import ARROW, encode_table


class Wire:
    """A transport and a loop that only note what they are told."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False
        self.soon: list[Any] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.sent.append(b"".join(parts))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def call_soon(self, call: Any) -> None:
        self.soon.append(call)

    def next_round(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def connected() -> tuple[Wire, HeadWithBody]:
    wire = Wire()
    return wire, HeadWithBody(cast(Any, wire), cast(Any, wire), cast(Any, SimpleNamespace(written=0)))


def test_a_head_goes_with_its_body() -> None:
    wire, connection = connected()
    for _ in range(2):
        connection.write(HEAD)
        assert wire.sent == []
        connection.write(b"body")
        wire.next_round()
        assert wire.sent == [HEAD + b"body"]
        wire.sent.clear()


def test_a_head_whose_body_takes_its_time_goes_alone() -> None:
    wire, connection = connected()
    connection.write(HEAD)
    wire.next_round()
    connection.write(b"event")
    connection.write(b"event")
    assert wire.sent == [HEAD, b"event", b"event"]


def test_a_head_without_a_body_goes_before_the_end() -> None:
    wire, connection = connected()
    connection.write(HEAD)
    connection.close()
    wire.next_round()
    assert (wire.sent, wire.closed, connection.is_closing()) == ([HEAD], True, True)


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 16) + 1, (1 << 20) - 1, 1 << 20, 5 << 20])
def test_bodies_of_any_size_come_whole(served: tuple[Database, str], size: int) -> None:
    """In pieces that take their time, and all at once."""
    db, url = served
    db.sql("CREATE STREAM texts (t STRING)")
    text = "x" * size
    body = encode_table(pa.table({"t": [text]})).to_pybytes()
    parts = urlsplit(url)
    head = f"POST /v1/streams/texts/rows?wait=true HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: {ARROW}\r\n"
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as connection:
        for cuts in ([0, len(body)], [0, len(body) // 3, len(body) // 2, len(body)]):
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
            for start, stop in pairwise(cuts):
                connection.sendall(body[start:stop])
            assert b" 200 OK" in connection.recv(1 << 16)
    assert [row["t"] for row in db.sql("SELECT t FROM texts").to_pylist()] == [text] * 2


def test_what_a_stranger_sends_is_not_read(serve: Serve) -> None:
    """The connection ends with the refusal, whatever else he would send."""
    _, url = serve(anonymous="nobody")
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as connection:
        head = f"POST /v1/streams/texts/rows HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {1 << 40}\r\n\r\n"
        connection.sendall(head.encode())
        assert b" 401 " in connection.recv(1 << 16)
        with pytest.raises(ConnectionError):
            connection.sendall(bytes(1 << 26))  # more than the system keeps for him


def test_who_says_no_more_is_answered(served: tuple[Database, str]) -> None:
    """A head without a body, to one who has closed his side."""
    parts = urlsplit(served[1])
    for _ in range(5):
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as connection:
            connection.sendall(f"HEAD /healthz HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 ")


def test_quick_answers_come_while_many_push(served: tuple[Database, str]) -> None:
    """Who pushes goes first, and not for ever: also when it is nothing but refusals."""
    db, url = served
    db.register("SELECT n FROM ticks", name="q")
    parts = urlsplit(url)
    stopped = threading.Event()

    def push_nothing() -> None:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        while not stopped.is_set():
            connection.request("POST", "/v1/streams/none/rows", b"x", {"Content-Type": ARROW})
            connection.getresponse().read()
        connection.close()

    pushers = [threading.Thread(target=push_nothing) for _ in range(16)]
    for pusher in pushers:
        pusher.start()
    try:
        asking = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
        for _ in range(20):
            asking.request("GET", "/v1/queries/q/answer")
            assert asking.getresponse().read()
        asking.close()
    finally:
        stopped.set()
        for pusher in pushers:
            pusher.join()
