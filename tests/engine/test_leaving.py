"""Rows that leave by retention, positions that are gone on from, and queries that are another by then.

Each test is a defect that was found by hand: invocations and subscriptions did not agree, or a follower was told what
was not so.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.errors import Gone, TypeMismatch
from ladle.execute import held_positions
from ladle.handles import Query, Subscription
from ladle.testing import connect_inline

T0 = datetime(2026, 1, 30, 14, 30, tzinfo=UTC)
SETTINGS = {"maintenance_seconds": 3_600.0}


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


class Bench:
    """A database that can be opened again, and its clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(T0)
        self.db = self._open()

    def _open(self) -> Database:
        return connect_inline(self.path, clock=self.clock, settings=SETTINGS)

    def restart(self) -> None:
        self.db.close()
        self.db = self._open()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(s(seconds))

    def push(self, stream: str, *rows: dict[str, Any]) -> None:
        self.db.push(stream, list(rows), wait=True)


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path / "warehouse")
    yield made
    made.db.close()


def rows(query: Query) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in query.invoke().to_pylist())


def told(changes: Subscription) -> list[tuple[int, tuple[Any, ...]]]:
    """Everything that is to be told by now, with +1 and -1."""
    found = []
    while (delta := changes.next(0.0)) is not None:
        found += [(-1, tuple(row.values())) for row in delta.retracted.to_pylist()]
        found += [(1, tuple(row.values())) for row in delta.inserted.to_pylist()]
    return found


@pytest.mark.parametrize("longer", ["FOREVER", "INTERVAL 1 DAY"])
def test_a_longer_retention_after_tuples_were_removed(bench: Bench, longer: str) -> None:
    db = bench.db
    db.sql("CREATE STREAM s (ts TIMESTAMP, a INT) TIMESTAMP BY ts RETAIN INTERVAL 10 SECONDS")
    query = db.register("SELECT a FROM s", name="q")
    early = str(query.subscribe().position)
    bench.push("s", {"ts": T0, "a": 1})
    between = str(query.subscribe().position)
    bench.push("s", {"ts": T0 + s(60), "a": 2})
    bench.pass_time(3_600)
    db._following._held._entries.clear()  # as if nobody had asked for a minute
    db.maintain()
    assert sum(file.rows for file in db.catalog.streams["s"].files) == 1
    db.sql(f"ALTER STREAM s SET RETAIN {longer}")
    assert rows(query) == [(2,)]
    changes = query.subscribe(snapshot=True)
    assert told(changes) == [(1, (2,))]
    assert db.sql(f"SELECT a FROM s VERSION AS OF {db.catalog.seq}").to_pylist() == [{"a": 2}]
    for since in (early, between):
        with pytest.raises(Gone):
            query.subscribe(since=since).next(0.0)


def test_who_follows_in_a_process_that_only_reads_has_a_minute(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that writes is not told of its positions, and knows that there is somebody who reads."""
    db = bench.db
    db.sql("CREATE STREAM s (ts TIMESTAMP, a INT) TIMESTAMP BY ts RETAIN INTERVAL 10 SECONDS")
    db.register("SELECT a FROM s", name="q")
    bench.push("s", {"ts": T0, "a": 1})
    with connect_inline(bench.path, read_only=True, clock=bench.clock) as reader:
        changes = reader.query("q").subscribe(snapshot=True)
        assert told(changes) == [(1, (1,))]
        db.maintain()
        bench.push("s", {"ts": T0 + s(60), "a": 2})
        db.maintain()
        assert told(changes) == [(-1, (1,)), (1, (2,))]
        assert len(db.catalog.streams["s"].files) == 2
        monkeypatch.setattr(held_positions, "HOLD_SECONDS", -1.0)
        db._following._held._entries.clear()
        db.maintain()
        assert len(db.catalog.streams["s"].files) == 1, "it is not promised for longer than that"


def test_retention_is_not_longer_only_when_it_is_committed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a longer retention brings back is not removed by housekeeping that had looked before."""
    db = bench.db
    db.sql("CREATE STREAM s (ts TIMESTAMP, a INT) TIMESTAMP BY ts RETAIN INTERVAL 10 SECONDS")
    bench.push("s", {"ts": T0, "a": 1})
    bench.push("s", {"ts": T0 + s(60), "a": 2})
    replace = db._maintenance._replace

    def late(*arguments: Any) -> None:
        db.sql("ALTER STREAM s SET RETAIN FOREVER")
        replace(*arguments)

    monkeypatch.setattr(db._maintenance, "_replace", late)
    db.maintain()
    assert [row["a"] for row in db.sql("SELECT a FROM s")] == [1, 2]


def test_arrival_times_beside_a_time_of_the_log(bench: Bench) -> None:
    """Where NOW follows from the log, retention of a stream that is stamped on arrival does too."""
    db = bench.db
    db.sql("CREATE STREAM e (ts TIMESTAMP, a INT) TIMESTAMP BY ts")
    db.sql("CREATE STREAM r (b INT) RETAIN INTERVAL 10 SECONDS")
    query = db.register("SELECT a, b FROM e, r", name="q", materialize="none")
    changes = query.subscribe()
    bench.push("e", {"ts": T0, "a": 1})
    bench.push("r", {"b": 7})
    assert told(changes) == [(1, (1, 7))]
    bench.pass_time(100)
    assert rows(query) == [(1, 7)]
    assert told(changes) == []
    db.maintain()
    assert rows(query) == []
    assert told(changes) == [(-1, (1, 7))]
    bench.restart()
    bench.pass_time(1_000)
    bench.db.maintain()
    query = bench.db.query("q")
    changes = query.subscribe(snapshot=True)
    assert told(changes) == []
    bench.push("e", {"ts": T0 + s(2_000), "a": 2})
    bench.push("r", {"b": 8})
    assert told(changes) == [(1, (1, 8)), (1, (2, 8))]


def test_entries_that_say_how_late_it_is_are_few(bench: Bench) -> None:
    db = bench.db
    db.sql("CREATE STREAM r (b INT) RETAIN INTERVAL 1000 SECONDS")
    for number in range(20):
        bench.push("r", {"b": number})
        bench.pass_time(1)
    bench.pass_time(990)
    before = db.catalog.seq
    for _ in range(100):
        bench.pass_time(0.1)
        db.maintain()
    assert db.catalog.seq - before <= 4  # a note every 10 seconds, and what it removes


def test_a_quarantine_is_retained_as_its_stream_is(bench: Bench) -> None:
    db = bench.db
    db.sql("CREATE STREAM s (ts TIMESTAMP, a INT) TIMESTAMP BY ts RETAIN INTERVAL 10 SECONDS")
    query = db.register("SELECT source FROM s.quarantine", name="q")
    changes = query.subscribe()
    bench.push("s", {"ts": T0, "a": "x"})
    ((sign, row),) = told(changes)
    assert sign == 1
    bench.pass_time(3_600)
    db.maintain()
    assert rows(query) == []
    assert told(changes) == [(-1, row)]
    db._following._held._entries.clear()
    db.maintain()
    changes = query.subscribe(snapshot=True)
    assert told(changes) == []
    db.sql("ALTER STREAM s SET RETAIN FOREVER")
    bench.push("s", {"ts": T0, "a": "y"})
    bench.pass_time(1e6)
    db.maintain()
    bench.restart()
    assert len(rows(bench.db.query("q"))) == 1


def test_a_position_from_before_there_was_a_retention(bench: Bench) -> None:
    db = bench.db
    db.sql("CREATE STREAM s (ts TIMESTAMP, a INT) TIMESTAMP BY ts")
    query = db.register("SELECT a FROM s", name="q")
    changes = query.subscribe()
    bench.push("s", {"ts": T0, "a": 1})
    bench.push("s", {"ts": T0 + s(60), "a": 2})
    assert told(changes) == [(1, (1,)), (1, (2,))]
    db.sql("ALTER STREAM s SET RETAIN INTERVAL 10 SECONDS")
    db.maintain()
    assert told(changes) == [(-1, (1,))]


def test_a_clock_set_back_brings_nothing_back(bench: Bench) -> None:
    db = bench.db
    db.sql("CREATE STREAM s (a INT) RETAIN INTERVAL 10 SECONDS")
    query = db.register("SELECT a FROM s", name="q")
    bench.push("s", {"a": 1})
    bench.pass_time(100)
    bench.push("s", {"a": 2})
    assert rows(query) == [(2,)]
    bench.pass_time(-95)
    assert rows(query) == [(2,)]
    assert told(query.subscribe(snapshot=True)) == [(1, (2,))]


@pytest.mark.parametrize("how", ["replaced", "made anew"])
def test_a_query_that_is_another_by_now(bench: Bench, how: str) -> None:
    """Neither a subscription nor a position that was kept goes on over another query's answer."""
    db = bench.db
    db.sql("CREATE STREAM s (a INT, b STRING)")
    query = db.register("SELECT a FROM s", name="q")
    changes = query.subscribe(snapshot=True)
    bench.push("s", {"a": 1, "b": "x"})
    assert told(changes) == [(1, (1,))]
    if how == "replaced":
        db.register("SELECT b FROM s", name="q", replace=True)
    else:
        db.unregister("q")
        db.register("SELECT b FROM s", name="q")
    bench.push("s", {"a": 2, "b": "y"})
    with pytest.raises(Gone, match="is of another query"):
        changes.next(0.0)
    kept = str(changes.position)
    bench.restart()
    query = bench.db.query("q")
    with pytest.raises(Gone, match="snapshot=True"):
        query.subscribe(since=kept).next(0.0)
    assert told(query.subscribe(since=0)) == [(1, ("x",)), (1, ("y",))]


def test_now_is_null_while_it_is_undefined(bench: Bench) -> None:
    db = bench.db
    db.sql("CREATE STREAM s (ts TIMESTAMP, a INT) TIMESTAMP BY ts")
    query = db.register("SELECT count(*) AS n, NOW AS t, NOW - INTERVAL 1 HOUR AS u FROM s", name="q")
    assert rows(query) == [(0, None, None)]
    changes = query.subscribe(snapshot=True)
    assert told(changes) == [(1, (0, None, None))]
    position = str(changes.position)
    bench.restart()
    bench.pass_time(50)
    bench.push("s", {"ts": T0, "a": 1})
    changes = bench.db.query("q").subscribe(since=position)
    assert told(changes) == [(-1, (0, None, None)), (1, (1, T0, T0 - s(3_600)))]


@pytest.mark.parametrize(
    "since",
    ["e3n9000000000000000000", "e3n-9000000000000000000", b"e1", "9" * 5_000, -1, True, 1.5, "e1q", "e1n2q3q4", "n5"],
)
def test_what_is_no_position_is_refused(bench: Bench, since: Any) -> None:
    db = bench.db
    db.sql("CREATE STREAM s (a INT)")
    query = db.register("SELECT a FROM s [RANGE 1 MONTH]", name="q")
    bench.push("s", {"a": 1})
    with pytest.raises(TypeMismatch, match="is no position"):
        query.subscribe(since=since).next(0.0)


def test_the_least_and_greatest_now_of_a_position(bench: Bench) -> None:
    db = bench.db
    db.sql("CREATE STREAM s (a INT)")
    query = db.register("SELECT a FROM s [RANGE 1 MONTH]", name="q")
    bench.push("s", {"a": 1})
    for now_us in (253402300799999999, -62135596800000000):
        query.subscribe(since=f"e3n{now_us}").next(0.0)


def test_what_came_and_went_since_the_beginning(bench: Bench) -> None:
    db = bench.db
    db.sql("CREATE STREAM s (a INT)")
    query = db.register("SELECT a FROM s [RANGE 10 SECONDS]", name="q")
    bench.push("s", {"a": 1})
    bench.pass_time(100)
    bench.push("s", {"a": 2})
    bench.pass_time(100)
    for since in (0, "e0"):
        assert told(query.subscribe(since=since)) == [(1, (1,)), (-1, (1,)), (1, (2,)), (-1, (2,))]


def test_a_position_is_held_as_its_retention_was(bench: Bench) -> None:
    """One from before a longer retention needs less than a later one."""
    db = bench.db
    db.sql("CREATE STREAM s (a INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 10 SECONDS")
    query = db.register("SELECT a FROM s", name="q")
    for second in (45, 60, 75, 95, 100):
        bench.push("s", {"a": second, "at": T0 - s(200) + s(second)})
    changes = query.subscribe()
    db.sql("ALTER STREAM s SET RETAIN INTERVAL 60 SECONDS")
    assert told(changes) == [(1, (45,)), (1, (60,)), (1, (75,))]
    bench.push("s", {"a": 130, "at": T0 - s(70)})
    db.maintain()
    assert told(query.subscribe(since=changes.position)) == [(-1, (45,)), (-1, (60,)), (1, (130,))]


def test_who_follows_before_the_first_tuple_is_told_of_all(bench: Bench) -> None:
    """Also when the clock jumps over the retention at once."""
    db = bench.db
    db.sql("CREATE STREAM s (a INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 10 SECONDS")
    changes = db.register("SELECT a FROM s", name="q").subscribe()
    for second in (0, 100):
        bench.push("s", {"a": second, "at": T0 - s(200) + s(second)})
    db.maintain()
    assert told(changes) == [(1, (0,)), (-1, (0,)), (1, (100,))]


def test_a_position_is_promised_from_its_now_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from the last tuple on, where the wall clock is NOW."""
    monkeypatch.setattr(held_positions, "HOLD_SECONDS", 0.0)
    db = bench.db
    db.sql("CREATE STREAM s (a INT) RETAIN INTERVAL 1 HOUR")
    query = db.register("SELECT a FROM s", name="q")
    bench.push("s", {"a": 1})
    changes = query.subscribe()
    bench.pass_time(59 * 60)
    assert told(changes) == []
    bench.pass_time(3 * 60)
    db.maintain()
    assert told(changes) == [(-1, (1,))]
    position = changes.position
    # One that says a NOW that is ahead holds nothing for longer.
    query.subscribe(since="e3n253402300799999999").next(0.0)
    bench.push("s", {"a": 2})
    bench.pass_time(2 * 3_600 + 60)
    db.maintain()
    with pytest.raises(Gone):
        query.subscribe(since=position).next(0.0)
