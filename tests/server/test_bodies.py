"""Bodies that are cut off, or larger than anybody wants, sent by clients that do nothing else."""

from __future__ import annotations

import http.client
import socket
import time
from urllib.parse import urlsplit

import httpx
from tests.server.conftest import TICKS, Serve
from tests.waiting import wait_until

from ladle.engine import Database

HEAD = "POST /v1/streams/ticks/rows HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-ndjson\r\n{more}\r\n"
LINE = b'{"n": 1, "at": "2026-01-01T00:00:01Z"}\n'


def connect(url: str) -> tuple[socket.socket, str]:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60), parts.netloc


def test_rows_of_a_client_that_left_in_between_are_not_taken(served: tuple[Database, str]) -> None:
    db, url = served
    for more in ("Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n"):
        connection, host = connect(url)
        connection.sendall(HEAD.format(host=host, more=more).encode())
        connection.sendall(LINE if "Length" in more else b"%x\r\n%s\r\n" % (len(LINE), LINE))
        time.sleep(0.1)
        connection.close()
    ended = 'path="other",status="400"} 2.0'
    wait_until(lambda: ended in httpx.get(f"{url}/metrics", trust_env=False).text)
    headers = {"Content-Type": "application/x-ndjson"}
    httpx.post(f"{url}/v1/streams/ticks/rows?wait=true", content=LINE, headers=headers, trust_env=False)
    assert db.sql("SELECT count(*) AS n FROM ticks").to_pylist() == [{"n": 1}]


def test_a_body_that_is_too_large_is_refused_so_that_its_sender_reads_it(serve: Serve) -> None:
    """Also by a client that sends all of it before it reads anything."""
    db, url = serve(request_bytes_max=1_000)
    db.sql(TICKS)
    chunk = b"x" * (1 << 20)
    for more in ("Content-Length: 67108864\r\n", "Transfer-Encoding: chunked\r\n"):
        connection, host = connect(url)
        connection.sendall(HEAD.format(host=host, more=more).encode())
        for _ in range(64):
            connection.sendall(chunk if "Length" in more else b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if "Length" not in more:
            connection.sendall(b"0\r\n\r\n")
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        assert reply.status == 413
        assert b"too_large" in reply.read()
        connection.close()


def test_a_client_that_asks_first_is_refused_before_it_sends(serve: Serve) -> None:
    db, url = serve(request_bytes_max=1_000)
    db.sql(TICKS)
    connection, host = connect(url)
    connection.sendall(HEAD.format(host=host, more="Content-Length: 5000\r\nExpect: 100-continue\r\n").encode())
    reply = http.client.HTTPResponse(connection)
    reply.begin()
    assert reply.status == 413
    connection.close()
