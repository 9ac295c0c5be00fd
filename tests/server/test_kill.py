"""A server that is killed under load: nothing acknowledged is lost, nothing counts twice, subscribers go on."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.waiting import wait_until

import ladle
from ladle.delta import Delta
from ladle.errors import LadleError, WarehouseError

SERVE = """
import sys
from ladle.config import Settings
from ladle.protocols.http.process import Server
from ladle.testing import connect_inline
db = connect_inline(sys.argv[1], settings={"compact_files_min": 4})
server = Server(db, Settings.load({"port": int(sys.argv[2])}))
server.start()
print("up", flush=True)
sys.stdin.read()
"""
START = datetime(2026, 1, 1, tzinfo=UTC)
KILLS = 4
PUSHERS = 3

pytestmark = pytest.mark.kill


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """The server's; it is killed and started again on its port."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(self._path), str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    def kill_and_start(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = self._start()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def until_it_answers(call: Callable[[], object]) -> object:
    """Try again, with the same words, while the server is away."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except WarehouseError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_killed_under_load(tmp_path: Path) -> None:
    server = Process(tmp_path / "warehouse")
    failures: list[BaseException] = []
    done = threading.Event()
    acknowledged: Counter[int] = Counter()
    heard: list[int] = []
    lock = threading.Lock()

    def pusher(number: int) -> None:
        try:
            with ladle.connect(server.url) as db:
                sent = 0
                while not done.is_set():
                    n = number * 100_000 + sent
                    rows = [{"n": n, "at": START + timedelta(seconds=sent)}]
                    wait = random.random() < 0.3
                    until_it_answers(lambda: db.push("ticks", rows, wait=wait, key=f"push {n}"))  # noqa: B023
                    with lock:
                        acknowledged[n] += 1
                    sent += 1
        except BaseException as error:
            failures.append(error)

    def listener() -> None:
        try:
            with ladle.connect(server.url) as db:
                position: int | str = 0
                while True:
                    found: list[Delta] = []
                    until_it_answers(lambda: found.extend(db.changes("q", since=position, seconds=0.2)))  # noqa: B023
                    position = found[-1].position
                    heard.extend(n for delta in found for n in delta.inserted.column("n").to_pylist())
                    assert not any(len(delta.retracted) for delta in found)
                    if done.is_set() and found[0].progress and set(heard) >= set(acknowledged):
                        return
        except BaseException as error:
            failures.append(error)

    try:
        with ladle.connect(server.url) as db:
            db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
            db.register("SELECT n FROM ticks", name="q")
            threads = [threading.Thread(target=pusher, args=(number,)) for number in range(PUSHERS)]
            threads.append(threading.Thread(target=listener))
            for thread in threads:
                thread.start()
            for number in range(KILLS + 1):
                wait_until(lambda: len(acknowledged) > 5 * number)  # noqa: B023
                time.sleep(random.uniform(0.0, 0.8))
                if number < KILLS:
                    server.kill_and_start()
            done.set()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
            assert not failures, failures[0]
            # What was received and not taken in when the process died is taken in by the next.
            until_it_answers(lambda: db.push("ticks", [{"n": -1, "at": START}], wait=True, key="last"))
            there = Counter(db.invoke("q").table.column("n").to_pylist())
            del there[-1]
            assert there == acknowledged
            assert max(there.values()) == 1
            heard_counts = Counter(heard)
            heard_counts.pop(-1, None)
            assert heard_counts == acknowledged, "a subscriber missed rows, or heard some twice"
    finally:
        done.set()
        server.end()


class Follower(threading.Thread):
    """Keeps a copy of an answer, also while its server is killed, by a subscription that goes on from its position."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self._url, self._name = url, name
        self.copy: Counter[int] = Counter()
        self.epoch = 0
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            with ladle.connect(self._url) as db, db.query(self._name).subscribe(since=0) as deltas:
                while not self.done.is_set():
                    delta = deltas.next(0.2)
                    if delta is not None:
                        self.copy.update(delta.inserted.column("n").to_pylist())
                        self.copy.subtract(delta.retracted.column("n").to_pylist())
                        assert min(self.copy.values(), default=0) >= 0, "a row went that was not there"
                    self.epoch = deltas.epoch
        except BaseException as error:
            self.error = error


def test_copies_go_on_from_their_positions(tmp_path: Path) -> None:
    """Rows come and go, by event times and by arrival times, whenever the server is killed."""
    server = Process(tmp_path / "warehouse")
    try:
        with ladle.connect(server.url) as db:
            db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
            db.sql("CREATE STREAM arriving (n INT)")
            db.register("SELECT n FROM ticks [RANGE 5 SECONDS]", name="recent")
            db.register("SELECT n FROM arriving [RANGE 2 SECONDS]", name="lately")
            followers = {name: Follower(server.url, name) for name in ("recent", "lately")}
            for number in range(24):
                ticks, arriving = [{"n": number, "at": START + timedelta(seconds=number)}], [{"n": number}]
                until_it_answers(partial(db.push, "ticks", ticks, wait=True, key=f"t{number}"))
                until_it_answers(partial(db.push, "arriving", arriving, wait=True, key=f"a{number}"))
                if number % 8 == 7:
                    time.sleep(random.uniform(0.0, 0.3))
                    server.kill_and_start()
            last = db.invoke("recent").epoch
            expected = {"recent": Counter(range(19, 24)), "lately": Counter[int]()}
            for name, follower in followers.items():
                wait_until(lambda: follower.error is not None or follower.epoch >= last)  # noqa: B023
                wait_until(lambda: follower.error is not None or +follower.copy == expected[name])  # noqa: B023
                follower.done.set()
                follower.join(60)
                assert follower.error is None, follower.error
                assert +follower.copy == expected[name]
                assert set(follower.copy) == set(range(24)), "each was told, and went"
    finally:
        server.end()


def test_a_server_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(LadleError, match="does not answer"):
        ladle.connect(f"http://127.0.0.1:{free_port()}").sql("SHOW STREAMS")
