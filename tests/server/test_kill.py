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
from pathlib import Path

import pytest
from tests.waiting import wait_until

import ladle
from ladle.errors import LadleError, WarehouseError

SERVE = """
import sys
from ladle.config import Settings
from ladle.server.run import Server
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
                epoch = 0
                while True:
                    changes, epoch = until_it_answers(lambda: db.changes("q", since=epoch, seconds=0.2))  # type: ignore[misc]  # noqa: B023
                    heard.extend(n for change in changes for n in change.table.column("n").to_pylist())
                    if done.is_set() and not changes and set(heard) >= set(acknowledged):
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


def test_a_server_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(LadleError, match="does not answer"):
        ladle.connect(f"http://127.0.0.1:{free_port()}").sql("SHOW STREAMS")
