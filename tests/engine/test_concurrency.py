"""Threads and processes at once: every answer is a prefix of the epochs, and nothing is lost or doubled."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, values
from tests.waiting import wait_until

from ladle.engine import Database
from ladle.errors import AlreadyExists, Closed, LadleError, UnknownName
from ladle.testing import connect_inline


class Together:
    """Threads that all begin at once and whose errors reach the test."""

    def __init__(self) -> None:
        self._acts: list[Callable[[], None]] = []
        self.errors: list[BaseException] = []

    def add(self, act: Callable[[], None]) -> None:
        self._acts.append(act)

    def run(self) -> None:
        barrier = threading.Barrier(len(self._acts))

        def begin(act: Callable[[], None]) -> None:
            barrier.wait()
            try:
                act()
            except BaseException as error:
                self.errors.append(error)

        threads = [threading.Thread(target=begin, args=(act,)) for act in self._acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive(), "a deadlock"
        if self.errors:
            raise self.errors[0]


def test_everything_at_once(open_db: Open) -> None:
    """Pushers, askers, registrars and housekeeping; an epoch is wholly in an answer or wholly out."""
    db = open_db(maintenance_seconds=0.01, compact_files_min=3, grace_seconds=0.0, checkpoint_entries=7)
    db.sql(TICKS)
    db.sql("CREATE STREAM other (n INT)")
    modes = ("none", "partial", "complete")
    for mode in modes:
        db.register("SELECT n FROM ticks WHERE n % 10 < 5", name=mode, materialize=mode)
    pushes, rows = 10, 10
    together = Together()
    done = threading.Event()
    left = threading.Semaphore(0)

    def push(first: int, wait: bool) -> Callable[[], None]:
        def act() -> None:
            try:
                for number in range(pushes):
                    start = first + number * rows
                    db.push("ticks", [{"n": start + i, "at": at(number)} for i in range(rows)], wait=wait)
                    db.push("other", [{"n": number}])
            finally:
                left.release()

        return act

    def ask(mode: str) -> Callable[[], None]:
        def act() -> None:
            epoch = 0
            while not done.is_set():
                answer = db.invoke(mode)
                numbers = values(answer)
                assert len(numbers) == len(set(numbers)), "doubled"
                assert len(numbers) % 5 == 0, "half an epoch"
                for begin in range(0, len(numbers), 5):
                    first = numbers[begin]
                    assert numbers[begin : begin + 5] == list(range(first, first + 5)), "a push was torn"
                assert answer.epoch >= epoch, "time went back"
                epoch = answer.epoch

        return act

    def register() -> None:
        rng = random.Random(1)
        while not done.is_set():
            name = f"r{rng.randrange(5)}"
            try:
                db.register(f"SELECT n FROM ticks WHERE n < {rng.randrange(500)}", name=name, materialize="complete")
                db.invoke(name)
                db.unregister(name)
            except (AlreadyExists, UnknownName):
                pass

    def finish() -> None:
        for _ in range(3):
            left.acquire()
        done.set()

    together.add(push(0, wait=True))
    together.add(push(100_000, wait=True))
    together.add(push(200_000, wait=False))
    for mode in modes:
        together.add(ask(mode))
    together.add(register)
    together.add(finish)
    together.run()
    wait_until(lambda: all(s.pending == 0 for s in db.status().streams), "pushes are left")
    expected = [first + n for first in (0, 100_000, 200_000) for n in range(pushes * rows) if n % 10 < 5]
    for mode in modes:
        assert sorted(values(db.invoke(mode))) == expected
    for first in (0, 100_000, 200_000):
        mine = [n for n in values(db.sql("SELECT n FROM ticks")) if first <= n < first + 100_000]
        assert mine == sorted(mine), "pushes of one thread keep their order"
    assert len(db.sql("SELECT n FROM other")) == 3 * pushes
    assert db.status().problems == {}


def test_readers_see_prefixes_of_both_streams(open_db: Open) -> None:
    """A writer pushes to one stream, then to the other; no answer may show the second without the first."""
    db = open_db(maintenance_seconds=0.01, compact_files_min=2, grace_seconds=0.0, checkpoint_entries=3)
    for name in ("a", "b"):
        db.sql(f"CREATE STREAM {name} (n INT)")
    text = "SELECT 'a' AS s, count(*) AS c FROM a UNION ALL SELECT 'b' AS s, count(*) AS c FROM b"
    db.register(text, name="both", materialize="complete")
    reader = open_db(read_only=True)
    together = Together()
    done = threading.Event()

    def push() -> None:
        try:
            for number in range(20):
                db.push("a", [{"n": number}], wait=True)
                db.push("b", [{"n": number}], wait=True)
        finally:
            done.set()

    def look(where: Database) -> Callable[[], None]:
        def act() -> None:
            while not done.is_set():
                counts = {str(row["s"]): int(str(row["c"])) for row in where.invoke("both").to_pylist()}
                assert counts["b"] <= counts["a"] <= counts["b"] + 1

        return act

    together.add(push)
    together.add(look(db))
    together.add(look(reader))
    together.add(look(reader))
    together.run()
    assert values(reader.invoke("both"), "c") == [20, 20]


def test_an_acknowledged_push_survives_a_close_at_that_moment(tmp_path: Path) -> None:
    """Whatever the moment: a push that returned is there, one that raised is not, and the next owner numbers anew."""
    path = tmp_path / "warehouse"
    acknowledged: list[int] = []
    with connect_inline(path) as db:
        db.sql(TICKS)
    for round_ in range(12):
        db = connect_inline(path, settings={"maintenance_seconds": 0.01})
        together = Together()

        def push(db: Database = db, round_: int = round_) -> None:
            for number in range(1_000):
                n = round_ * 1_000 + number
                try:
                    db.push("ticks", [{"n": n, "at": at(n)}])
                except Closed:
                    return
                acknowledged.append(n)

        def close(db: Database = db, round_: int = round_) -> None:
            time.sleep(round_ / 200)
            db.close()

        together.add(push)
        together.add(close)
        together.run()
    with connect_inline(path) as db:
        wait_until(lambda: db.status().streams[0].pending == 0, "pushes are left")
        assert sorted(values(db.sql("SELECT n FROM ticks"))) == sorted(acknowledged)


def test_closing_waits_for_a_push_in_the_middle(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the bytes of a push are on their way no other process may own the inbox and number its pushes alike."""
    db = open_db()
    db.sql(TICKS)
    lane = db._ingest.lane(db.catalog.streams["ticks"])
    put, closing = lane.inbox.put_once, threading.Event()
    owned: list[bool] = []

    def slow(*given: Any) -> tuple[int, bool]:
        closer = threading.Thread(target=db.close)
        closer.start()
        closing.wait(0.2)
        owned.append(db._store.warehouse.writable)
        return put(*given)

    monkeypatch.setattr(lane.inbox, "put_once", slow)
    db.push("ticks", [{"n": 1, "at": at(1)}])
    assert owned == [True]
    wait_until(lambda: not db._store.warehouse.writable, "it does not close")
    again = open_db()
    again.push("ticks", [{"n": 2, "at": at(2)}], wait=True)
    wait_until(lambda: again.status().streams[0].pending == 0, "a push is left")
    assert values(again.sql("SELECT n FROM ticks")) == [1, 2]


def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    db = connect_inline(tmp_path / "warehouse")
    for name in ("a", "b"):
        db.sql(f"CREATE STREAM {name} (n INT)")
        db.push(name, [{"n": 1}])
    db.register("SELECT n FROM a WHERE n > 0", name="q", materialize="complete")
    db.close()
    wait_until(lambda: not [t for t in set(threading.enumerate()) - before if t.is_alive()], "a thread lives on")


def test_registering_while_the_ground_moves(open_db: Open) -> None:
    """A query bound to a stream that was dropped and made again meanwhile is bound anew, or refused."""
    db = open_db()
    db.sql("CREATE STREAM s (a INT, b INT)")
    together = Together()
    done = threading.Event()

    def move() -> None:
        try:
            for number in range(30):
                db.sql("DROP STREAM s CASCADE")
                db.sql("CREATE STREAM s (a INT, b INT)" if number % 2 else "CREATE STREAM s (b STRING, a INT)")
                db.push("s", [{"a": 1}], wait=True)
        finally:
            done.set()

    def register() -> None:
        number = 0
        while not done.is_set():
            number += 1
            try:
                db.register("SELECT a FROM s WHERE a > 0", name=f"q{number}")
                assert set(values(db.invoke(f"q{number}"))) <= {1}
            except LadleError:
                pass

    def look() -> None:
        for _ in range(30):
            db.status()
            db.maintain()

    together.add(move)
    together.add(register)
    together.add(look)
    together.run()
    for query in db.queries():
        assert set(values(db.invoke(query.name))) <= {1}


def test_a_stream_exchanged_between_binding_and_answering(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a statement's binding and its snapshot the stream goes, and another of that name comes."""
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    db = open_db()
    pin = db._store.pin

    def exchanged(act: Callable[[], object]) -> object:
        db.sql("DROP STREAM IF EXISTS s CASCADE")
        db.sql("CREATE STREAM s (a INT, b INT)")
        db.register("SELECT a FROM s", name="q")

        def exchange() -> object:
            patch.undo()
            db.sql("DROP STREAM s CASCADE")
            db.sql("CREATE STREAM s (c STRING, a INT)")
            db.push("s", [{"a": 7}], wait=True)
            return pin()

        with monkeypatch.context() as patch:
            patch.setattr(db._store, "pin", exchange)
            return act()

    assert exchanged(lambda: db.sql("SELECT a FROM s").to_pylist()) == [{"a": 7}]
    assert "1 tuples" in str(exchanged(lambda: repr(db.sql("EXPLAIN SELECT a FROM s"))))
    with pytest.raises(UnknownName, match="'b'"):
        exchanged(lambda: db.sql("SELECT b FROM s"))
    with pytest.raises(UnknownName, match="'q'"):
        exchanged(lambda: db.invoke("q"))


WRITER = """
import sys
from tests.engine.rows import TICKS, at
from ladle.testing import connect_inline
settings = {"maintenance_seconds": 0.01, "compact_files_min": 2, "grace_seconds": 0.0, "checkpoint_entries": 4}
with connect_inline(sys.argv[1], settings=settings) as db:
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n % 2 = 0 BEGIN NOW - INTERVAL 20 SECONDS END NOW", name="q")
    print("ready", flush=True)
    for n in range(60):
        db.push("ticks", [{"n": n, "at": at(n)}], wait=True)
"""


@pytest.mark.not_at_one_row("which files are read is its subject, not who judges them")
def test_a_reader_beside_a_writer_that_compacts_all_the_time(tmp_path: Path) -> None:
    path, root = tmp_path / "warehouse", Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with connect_inline(path, read_only=True, settings={"derived_memory_bytes_max": 0}) as reader:
            last = -1
            while writer.poll() is None:
                numbers = values(reader.sql("SELECT n FROM ticks"))
                assert numbers == list(range(len(numbers)))
                assert len(numbers) >= last
                last = len(numbers)
                even = values(reader.invoke("q"))
                assert even == list(range(even[0], even[-1] + 1, 2)) if even else True
                assert len(even) <= 10
            assert values(reader.sql("SELECT count(*) FROM ticks")) == [60]
        assert writer.returncode == 0, writer.stderr.read() if writer.stderr else ""


def test_a_listener_of_commits_can_leave(db: Database) -> None:
    db.sql(TICKS)
    heard: list[str] = []
    first, second = (db.parts.store.on_commit(lambda _, name=name: heard.append(name)) for name in ("first", "second"))
    db.push("ticks", [{"n": 1, "at": at(1)}], wait=True)
    assert heard == ["first", "second"]
    first()
    first()
    db.push("ticks", [{"n": 2, "at": at(2)}], wait=True)
    assert heard == ["first", "second", "second"]
    second()
    db.push("ticks", [{"n": 3, "at": at(3)}], wait=True)
    assert heard == ["first", "second", "second"]
