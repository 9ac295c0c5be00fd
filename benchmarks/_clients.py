"""Clients of a server, in a process of their own so that their work is not the server's.

`python -m benchmarks._clients ROLE URL JSON` does what the role says until standard input is closed, or its time is
over, and prints what it measured as one JSON object.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from benchmarks._workload import COLUMNS
from ladle.protocols.wire import ARROW, encode_table

Result = dict[str, Any]


class Client:
    """One connection that stays open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        self._connection.request(method, path, body, headers or {})
        reply = self._connection.getresponse()
        content = reply.read()
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {content[:200]!r}")
        return content


class Asker:
    """One connection that asks for answers, with as little work as it takes: the server's is what is measured."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.netloc
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(self, name: str) -> bytes:
        self._socket.sendall(f"GET /v1/queries/{name}/answer HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        head = received[:end].lower()
        status, _, length = head[9:12], *head.partition(b"content-length: ")[1:]
        whole = end + 4 + int(length.partition(b"\r")[0])
        while len(received) < whole:
            received += self._receive()
        if status != b"200":
            raise RuntimeError(f"{name}: {received[:400]!r}")
        return received[end + 4 :]

    def _receive(self) -> bytes:
        part = self._socket.recv(1 << 16)
        if not part:
            raise RuntimeError("the server has closed the connection")
        return part


def batch(rows: int, seed: int, rate: float | None = None) -> bytes:
    """An Arrow stream of tuples that end now; they are spread over the time that so many take at a rate."""
    rng = np.random.default_rng(seed)
    now_us = time.time_ns() // 1_000
    span = 0 if rate is None else rows / rate * 1e6
    times = now_us - (span * (1 - np.arange(1, rows + 1) / rows)).astype(np.int64)
    columns = {"ts": pa.array(times, pa.timestamp("us", "UTC"))}
    columns |= {name: pa.array(rng.integers(0, 256, rows, dtype=np.int32)) for name in COLUMNS}
    payload: bytes = encode_table(pa.table(columns)).to_pybytes()
    return payload


def flowing(url: str, how: dict[str, Any], stopped: threading.Event) -> Result:
    """Tuples at a steady rate, a batch each time the last is visible; how long each took to be."""
    client = Client(url)
    seconds: list[float] = []
    rows = 0
    due = time.perf_counter()
    while not (stopped.is_set() and seconds):  # once at least, however long it took to begin
        count = int(how["rate"] * how["every"])
        content = batch(count, len(seconds), how["rate"])
        began = time.perf_counter()
        client.request("POST", f"/v1/streams/{how['stream']}/rows?wait=true", content, {"Content-Type": ARROW})
        seconds.append(time.perf_counter() - began)
        rows += count
        due += how["every"]
        stopped.wait(max(0.0, due - time.perf_counter()))
    return {"seconds": seconds, "rows": rows}


def invoking(url: str, how: dict[str, Any], stopped: threading.Event) -> Result:
    """Several clients that ask for answers as fast as they come, or so many a second all together."""

    def ask(number: int) -> Result:
        client, rng = Asker(url), np.random.default_rng(number)
        seconds: list[float] = []
        rows: list[int] = []
        every = how["clients"] / how["rate"] if how.get("rate") else 0.0
        due = time.perf_counter() + every * rng.random()
        while not (stopped.is_set() and seconds):
            if every:
                stopped.wait(max(due - time.perf_counter(), 0.0))
                due = max(due + every, time.perf_counter() - every)
            name = how["names"][int(rng.integers(len(how["names"])))]
            began = time.perf_counter()
            answer = client.answer(name)
            seconds.append(time.perf_counter() - began)
            if len(seconds) % 50 == 1:
                rows.append(json.loads(answer)["rows_total"])
        return {"seconds": seconds, "rows": rows}

    found = _side_by_side(how["clients"], ask)
    return {name: [value for each in found for value in each[name]] for name in ("seconds", "rows")}


def pushing(url: str, how: dict[str, Any], stopped: threading.Event) -> Result:
    """Several clients that push batches as fast as they are acknowledged."""

    def push(number: int) -> Result:
        client = Client(url)
        content = batch(how["rows"], number)
        pushed = refused = 0
        while not stopped.is_set():
            try:
                client.request("POST", f"/v1/streams/{how['stream']}/rows", content, {"Content-Type": ARROW})
            except RuntimeError as error:
                if " 429 " not in str(error):
                    raise
                refused += 1
                stopped.wait(0.1)
                continue
            pushed += how["rows"]
        return {"rows": pushed, "refused": refused}

    began = time.perf_counter()
    found = _side_by_side(how["clients"], push)
    seconds = time.perf_counter() - began
    return {"rows": sum(e["rows"] for e in found), "refused": sum(e["refused"] for e in found), "seconds": seconds}


def subscribing(url: str, how: dict[str, Any], stopped: threading.Event) -> Result:
    """Connections with events: most read whatever comes, the slow ones nothing at all."""
    parts = urlsplit(url)
    sockets: list[socket.socket] = []
    for number in range(how["subscribers"]):
        connection = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60)
        name = how["slow_name"] if number < how["slow"] else how["names"][number % len(how["names"])]
        head = f"GET /v1/queries/{name}/changes HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/event-stream\r\n\r\n"
        connection.sendall(head.encode())
        sockets.append(connection)
    sys.stdout.write("connected\n")
    sys.stdout.flush()
    reading = sockets[how["slow"] :]
    received = 0
    watched = select.epoll()
    for connection in reading:
        watched.register(connection, select.EPOLLIN)
    by_number = {connection.fileno(): connection for connection in reading}
    while not stopped.is_set():
        for number, _ in watched.poll(0.2):
            received += len(by_number[number].recv(1 << 16))
    for connection in sockets:
        connection.close()
    return {"bytes": received}


def _side_by_side(count: int, work: Callable[[int], Result]) -> list[Result]:
    found: list[Result] = []
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            found.append(work(number))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found


ROLES = {"flowing": flowing, "invoking": invoking, "pushing": pushing, "subscribing": subscribing}


def main() -> None:
    role, url, how = sys.argv[1:]
    stopped = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=wait, daemon=True).start()
    result = ROLES[role](url, json.loads(how), stopped)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
