"""Clients that connect and then say nothing, or not enough, or don't listen: over real sockets, with short limits."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
from tests.server.conftest import TICKS, Serve
from tests.waiting import wait_until

from ladle.config import Settings
from ladle.engine import Database
from ladle.protocols.http.connections import Connection

SHORT = {"head_seconds_max": 0.5, "idle_seconds_max": 0.5, "progress_seconds_max": 0.5}
DEADLINE_SECONDS = 30.0
"""More than any limit and any load; without limits nothing ends."""
EVENTS = "GET /v1/queries/q/changes?since=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
ASK = "GET /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

Connect = Callable[..., socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections, sends some bytes, and closes what is open at the end."""
    with ExitStack() as closing:

        def opened(url: str, sent: str = "") -> socket.socket:
            parts = urlsplit(url)
            made = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=DEADLINE_SECONDS)
            closing.enter_context(made)
            made.sendall(sent.encode())
            return made

        yield opened


def read_to_end(connection: socket.socket) -> bytes:
    """What comes until the server ends it. Raises TimeoutError if it does not."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


def read_until(connection: socket.socket, text: bytes) -> bytes:
    received = b""
    while text not in received:
        piece = connection.recv(1 << 16)
        assert piece, f"the server ended it after {received!r}"
        received += piece
    return received


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        connection.settimeout(DEADLINE_SECONDS)


def figure(url: str, name: str) -> float:
    """One of the figures in /metrics."""
    lines = httpx.get(f"{url}/metrics", trust_env=False).text.splitlines()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


HALF_OPEN = {
    "nothing": "",
    "half a request line": "GET /v1/str",
    "line breaks": "\r\n\r\n",
    "half a head": "GET /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A",
    "half a body": "POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
    "half a chunk": "POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{",
    "a body that nobody reads": "POST /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
    "half a WebSocket handshake": "GET /v1/queries/q/changes HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSoc",
    "an idle connection": "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "an idle connection and half a line": "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /hea",
}


def test_twelve_hundred_half_open_connections_are_closed_and_health_is_told_meanwhile(
    serve: Serve, connect: Connect
) -> None:
    _, url = serve(**{**SHORT, "head_seconds_max": 2.0, "requests_max": 1000, "connections_per_address_max": 2000})
    waits: list[float] = []
    # A connection that is kept may reach its own limit just when the next request is sent on it.
    once = {"Connection": "close"}
    with selectors.DefaultSelector() as waiting, httpx.Client(base_url=url, trust_env=False, headers=once) as client:

        def ask_for_health() -> None:
            began = time.monotonic()
            assert client.get("/healthz").json() == {"status": "alive"}
            waits.append(time.monotonic() - began)

        for number in range(1200):
            waiting.register(connect(url, list(HALF_OPEN.values())[number % len(HALF_OPEN)]), selectors.EVENT_READ)
            if number % 100 == 99:
                ask_for_health()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while waiting.get_map():
            assert time.monotonic() < deadline, f"{len(waiting.get_map())} of 1,200 stay open"
            ask_for_health()
            for key, _ in waiting.select(timeout=0.05):
                ended = cast(socket.socket, key.fileobj)
                try:
                    gone = ended.recv(1 << 16) == b""
                except ConnectionResetError:
                    gone = True
                if gone:
                    waiting.unregister(ended)
    assert median(waits) < 1  # any single one may meet a machine that is busy


def test_who_has_begun_a_request_is_told(serve: Serve, connect: Connect) -> None:
    _, url = serve(**SHORT)
    opened = {form: connect(url, text) for form, text in HALF_OPEN.items()}
    replies = {form: read_to_end(connection) for form, connection in opened.items()}
    begun = {form for form in HALF_OPEN if form.startswith("half") or form.endswith("half a line")}
    assert {form for form, reply in replies.items() if b"HTTP/1.1 408 Request Timeout" in reply} == begun
    assert {form for form, reply in replies.items() if b'"code":"request_timeout"' in reply} == begun


def test_a_byte_now_and_then_is_not_enough(serve: Serve, connect: Connect) -> None:
    """Each byte alone would be in time."""
    _, url = serve(**SHORT)
    deadline = time.monotonic() + DEADLINE_SECONDS
    with selectors.DefaultSelector() as waiting:
        for form in ("nothing", "half a head", "half a body", "an idle connection"):
            byte = b"x" if form.startswith("half") else b"\r"
            waiting.register(connect(url, HALF_OPEN[form]), selectors.EVENT_READ, byte)
        while waiting.get_map():
            assert time.monotonic() < deadline
            readable = [key.fileobj for key, _ in waiting.select(timeout=0.05)]
            for key in list(waiting.get_map().values()):
                connection = cast(socket.socket, key.fileobj)
                try:
                    if connection in readable and not connection.recv(1 << 16):
                        raise ConnectionResetError
                    connection.sendall(key.data)
                except ConnectionError:
                    waiting.unregister(connection)


def test_a_body_that_gets_on_may_take_longer(serve: Serve, connect: Connect) -> None:
    _, url = serve(progress_seconds_max=2.0, progress_bytes_min=4)
    body = '{"sql": "SHOW STREAMS"}'.ljust(400)
    head = "POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    connection = connect(url, f"{head}Content-Length: {len(body)}\r\n\r\n")
    began = time.monotonic()
    with selectors.DefaultSelector() as waiting:
        waiting.register(connection, selectors.EVENT_READ)
        for start in range(0, len(body), 8):
            connection.sendall(body[start : start + 8].encode())
            assert not waiting.select(timeout=0.05) or start + 8 == len(body)
    assert time.monotonic() - began > 2
    assert b" 200 OK" in connection.recv(1 << 16)


def test_a_tls_handshake_that_never_ends_is_closed(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    made = trustme.CA()
    certificate = tmp_path / "server.pem"
    made.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    _, url = serve(tls_certificate=str(certificate), **SHORT)
    outgoing = ssl.MemoryBIO()
    handshake = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        handshake.do_handshake()
    hello = outgoing.read()
    silent, begun, deaf = connect(url), connect(url), connect(url)
    begun.sendall(hello[:40])
    deaf.sendall(hello)
    for each in (silent, begun, deaf):
        read_to_end(each)
    # One that ends the handshake and nothing else.
    trusting = ssl.create_default_context()
    made.configure_trust(trusting)
    with trusting.wrap_socket(connect(url), server_hostname="127.0.0.1") as connection:
        assert read_to_end(connection) == b""


def test_whoever_does_not_read_is_let_go(serve: Serve, connect: Connect) -> None:
    db, url = serve(**SHORT)
    db.sql("CREATE STREAM texts (t STRING)")
    db.push("texts", [{"t": "x" * 1_000_000}] * 24, wait=True)
    db.register("SELECT t FROM texts", name="q")
    ask = "GET /v1/queries/q/answer HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    deaf = [connect(url, each) for each in (ask, EVENTS, ask.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"))]
    wait_until(lambda: figure(url, 'ladle_connections_ended_total{reason="stalled"}') == 3)
    for each in deaf:
        assert len(read_to_end(each)) < 24_000_000
    reply = httpx.get(f"{url}/v1/queries/q/answer", trust_env=False)
    assert len(reply.content) > 24_000_000


def test_a_slow_reader_gets_it_all(serve: Serve, connect: Connect) -> None:
    """A connection is not idle while its client reads, although the server has nothing to do."""
    db, url = serve(head_seconds_max=0.5, idle_seconds_max=0.5)
    db.sql("CREATE STREAM texts (t STRING)")
    db.push("texts", [{"t": "x" * 1_000_000}] * 24, wait=True)
    db.register("SELECT t FROM texts", name="q")
    slow = connect(url, "GET /v1/queries/q/answer HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    begin = slow.recv(1 << 16)
    read_to_end(connect(url))  # as much time as ends an idle one
    assert len(begin) + len(read_to_end(slow)) > 24_000_000


def test_subscribers_stay(serve: Serve, connect: Connect) -> None:
    db, url = serve(**SHORT)
    db.sql(TICKS)
    db.register("SELECT n FROM ticks", name="q")
    events = connect(url, EVENTS)
    socketed = connect(
        url,
        "GET /v1/queries/q/changes HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    )
    read_until(events, b"event: progress")
    read_until(socketed, b'"epoch"')
    for _ in range(3):  # as much time as would end any other
        read_to_end(connect(url))
    db.push("ticks", [{"n": 42, "at": "2026-01-30T14:30:00Z"}], wait=True)
    read_until(events, b'"n":42')
    read_until(socketed, b'"n":42')


def test_strangers_of_one_address_have_so_many_places(serve: Serve, connect: Connect) -> None:
    _, url = serve(connections_per_address_max=5)
    silent = [connect(url) for _ in range(5)]
    known = []
    for _ in range(20):
        known.append(connect(url, ASK))
        assert b" 200 OK" in read_until(known[-1], b"}")
    assert read_to_end(silent[0]) == b""
    assert [is_open(each) for each in silent[1:]] == [True] * 4
    assert all(is_open(each) for each in known)
    for each in [connect(url) for _ in range(100)][:-5]:  # many in one round of the event loop
        assert read_to_end(each) == b""
    assert [read_to_end(each) for each in silent[1:]] == [b""] * 4
    assert all(is_open(each) for each in known)


def test_health_is_told_when_all_places_are_taken(serve: Serve, connect: Connect) -> None:
    db, url = serve(connections_max=4)
    db.sql(TICKS)
    db.register("SELECT n FROM ticks", name="q")
    taken = [connect(url, EVENTS) for _ in range(4)]
    for each in taken:
        read_until(each, b"event: progress")
    with httpx.Client(base_url=url, trust_env=False, headers={"Connection": "close"}) as client:
        assert client.get("/healthz").status_code == 200
        refused = client.get("/v1/streams")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
        assert client.get("/metrics").status_code == 200
        handshake = EVENTS.replace("Accept: text/event-stream", "Connection: Upgrade\r\nUpgrade: websocket")
        key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        assert b" 403 " in read_to_end(connect(url, handshake.removesuffix("\r\n") + key))
        silent = [connect(url) for _ in range(40)]  # more than the spare places
        assert client.get("/healthz").status_code == 200
        for each in (taken[0], *silent):
            each.close()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while client.get("/v1/streams").status_code != 200:
            assert time.monotonic() < deadline
    assert all(is_open(each) for each in taken[1:])


def test_the_longest_idle_gives_its_place(serve: Serve, connect: Connect) -> None:
    _, url = serve(connections_max=2)
    idle = []
    for _ in range(3):
        idle.append(connect(url, ASK))
        assert b" 200 OK" in read_until(idle[-1], b"}")
    assert read_to_end(idle[0]) == b""
    assert [is_open(each) for each in idle[1:]] == [True, True]


@pytest.mark.parametrize(
    "endless",
    [
        "GET /",
        "GET / HTTP/1.1\r\nX: ",
        "POST /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
    ids=["address", "header", "trailer"],
)
def test_a_head_has_an_end(serve: Serve, connect: Connect, endless: str) -> None:
    _, url = serve()
    connection = connect(url, endless)
    with contextlib.suppress(ConnectionError):
        for _ in range(1000):
            connection.sendall(b"x" * 65_536)
    with contextlib.suppress(ConnectionError):
        assert b" 431 " in read_to_end(connection) or "0\r\n" in endless
    assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_many_requests_at_once_are_no_long_head(serve: Serve, connect: Connect) -> None:
    _, url = serve()
    ask = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    connection = connect(url, ask * 3000)
    received = b""
    while received.count(b" 200 OK") < 3000:
        piece = connection.recv(1 << 20)
        assert piece
        received += piece


class Buffer:
    """A transport that has so many bytes left to send."""

    unsent = 0

    def get_write_buffer_size(self) -> int:
        return self.unsent


def test_progress_is_what_was_sent() -> None:
    buffer, limits = Buffer(), Settings(progress_seconds_max=10, progress_bytes_min=100)
    connection = Connection(cast(Any, SimpleNamespace()), "", spare=False, transport=cast(Any, buffer))
    connection.written = buffer.unsent = 1000
    assert not connection.stalls(0, limits)
    buffer.unsent = 900
    assert not connection.stalls(9, limits)
    buffer.unsent = 850
    assert not connection.stalls(18, limits)
    connection.written, buffer.unsent = 2000, 1801  # more to send, and 49 bytes are gone
    assert connection.stalls(19, limits)
    buffer.unsent = 0
    assert not connection.stalls(20, limits)
    connection.written, buffer.unsent = 3000, 1000
    assert not connection.stalls(29, limits)


def test_who_leaves_is_forgotten(served: tuple[Database, str], connect: Connect) -> None:
    _, url = served
    for _ in range(3):
        connect(url, HALF_OPEN["half a head"]).close()
    wait_until(lambda: figure(url, 'ladle_connections{of="strangers"}') == 0)
    assert figure(url, 'ladle_connections{of="users"}') == 1  # who asks for it
