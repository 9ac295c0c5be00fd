"""The equation of the executor: at(m1) + between(m1, m2) = at(m2), as bags, for every kind of query.

Subscribers apply deltas to a snapshot, at every step of random interleavings: pushes with late tuples, heartbeats,
changes of tables and of retention, time that passes, idleness, compaction, lost derived files, restarts. What they have
is compared with the answer that is invoked. Others who were away, for long too, resume from positions they kept.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.rows import START

from ladle.catalog import now as catalog_now
from ladle.clock import FIRST_US, LAST_US, ManualClock
from ladle.delta import Delta, Moment
from ladle.engine import Database
from ladle.errors import Gone, TypeMismatch
from ladle.execute import held_positions
from ladle.testing.inline import connect_inline
from ladle.testing.one_row import at_one_row

QUERIES = {
    "all": "SELECT id, n FROM ticks",
    "range": "SELECT id, n FROM ticks [RANGE 5 SECONDS] WHERE n < 7",
    "past": "SELECT id FROM ticks BEGIN NOW - INTERVAL 20 SECONDS END NOW - INTERVAL 4 SECONDS",
    "rows": "SELECT id FROM ticks [ROWS 3]",
    "month": "SELECT id FROM ticks BEGIN NOW - INTERVAL 1 MONTH END NOW",
    "computed": "SELECT id, n + 1 AS m FROM ticks [RANGE 5 SECONDS] WHERE n < 7",
    "counted": "SELECT n, count(*) AS c, sum(id) AS s FROM ticks [RANGE 9 SECONDS] GROUP BY n",
    "having": "SELECT n, max(id) AS m FROM ticks GROUP BY n HAVING count(*) > 1",
    "scalar": "SELECT count(*) AS c FROM tocks [RANGE 6 SECONDS]",
    "distinct": "SELECT DISTINCT n FROM ticks [RANGE 4 SECONDS]",
    "best": "SELECT id, n FROM ticks [RANGE 9 SECONDS] ORDER BY n DESC, id LIMIT 3",
    "joined": "SELECT a.id, b.id AS o FROM ticks [RANGE 5 SECONDS] a, tocks [RANGE 8 SECONDS] b WHERE a.n = b.n",
    "unwindowed": "SELECT a.id, b.id AS o FROM ticks [RANGE 5 SECONDS] a, tocks b WHERE a.n = b.n",
    "outer": "SELECT a.id, b.id AS o FROM ticks [RANGE 5 SECONDS] a LEFT JOIN tocks [RANGE 8 SECONDS] b ON a.n = b.n",
    "except": "SELECT n FROM ticks [RANGE 5 SECONDS] EXCEPT ALL SELECT n FROM tocks [RANGE 9 SECONDS]",
    "united": "SELECT n FROM ticks [RANGE 5 SECONDS] UNION ALL SELECT n FROM tocks [ROWS 2]",
    "named": "SELECT t.id, c.name FROM ticks [RANGE 5 SECONDS] t JOIN names c ON t.n = c.n",
    "table": "SELECT n, name FROM names",
    "stamped": "SELECT id FROM marks [RANGE 3 SECONDS]",
    "stamped_all": "SELECT id FROM marks",
    "stamped_count": "SELECT count(*) AS c FROM marks [RANGE 3 SECONDS]",
    "hops": "SELECT window.start AS w, count(*) AS c FROM ticks GROUP BY window(at, '10 seconds', '4 seconds')",
    "old": "SELECT id, at < NOW - INTERVAL 5 SECONDS AS old FROM ticks",
    "there": "SELECT id FROM ticks [RANGE 9 SECONDS] t WHERE EXISTS (SELECT 1 FROM tocks [ROWS 4] o WHERE o.n = t.n)",
    "not_in": "SELECT id FROM ticks [RANGE 9 SECONDS] WHERE n NOT IN (SELECT n FROM names)",
    "over": "SELECT n, count(*) AS c FROM (SELECT DISTINCT n FROM ticks [RANGE 4 SECONDS]) x GROUP BY n",
    "late": "SELECT source, row FROM ticks.quarantine",
    "idle": "SELECT id FROM ticks [RANGE 5 SECONDS] UNION ALL SELECT id FROM lazy [RANGE 5 SECONDS]",
    "three": "SELECT a.id, b.id AS o, c.id AS p FROM ticks [RANGE 9 SECONDS] a, tocks [RANGE 9 SECONDS] b, "
    "lazy [RANGE 20 SECONDS] c WHERE a.n = b.n AND b.n = c.n",
    "since": "SELECT id FROM ticks BEGIN TIMESTAMP '2024-01-01 00:00:10' END NOW",
    "sampled": "SELECT id, n FROM ticks TABLESAMPLE (50 PERCENT) [RANGE 5 SECONDS] WHERE n < 7",
    "sampled_past": "SELECT id FROM ticks TABLESAMPLE (70 PERCENT) "
    "BEGIN NOW - INTERVAL 9 SECONDS END NOW - INTERVAL 4 SECONDS",
    "sampled_rows": "SELECT id FROM ticks TABLESAMPLE (60 PERCENT) REPEATABLE (7) [ROWS 5]",
    "sampled_count": "SELECT n, count(*) AS c FROM ticks TABLESAMPLE (BUCKET 1 OUT OF 2) [RANGE 9 SECONDS] GROUP BY n",
    "sampled_join": "SELECT a.id, b.id AS o FROM ticks TABLESAMPLE (60 PERCENT) [RANGE 5 SECONDS] a, "
    "tocks [RANGE 8 SECONDS] b WHERE a.n = b.n",
    "mixed": "SELECT m.id, t.id AS o FROM marks m, ticks [RANGE 5 SECONDS] t WHERE m.n = t.n",
}


def bag(table: pa.Table) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


class Follower:
    """Has what it was told: a snapshot, and deltas since."""

    def __init__(self, db: Database, name: str, *, expirations: str = "retract") -> None:
        self.name = name
        self.expirations = expirations
        self.rows: Counter[str] = Counter()
        self.leaving: list[tuple[int, str]] = []
        changes = db.query(name).subscribe(snapshot=True, expirations=expirations, progress=True)
        first = changes.next(0.0)
        assert first is not None
        self.position = ""
        self.apply(first)

    def apply(self, delta: Delta) -> None:
        self.position = delta.position
        rows = [repr(tuple(row.values())) for row in delta.inserted.to_pylist()]
        if self.expirations == "out" and not delta.progress:
            assert delta.inserted_out is not None
            outs = delta.inserted_out.cast(pa.int64()).to_pylist()
            self.leaving += [(out, row) for out, row in zip(outs, rows, strict=True) if out is not None]
        self.rows.update(rows)
        gone = bag(delta.retracted)
        assert gone <= self.rows, f"{self.name}: retracted what was not there"
        self.rows -= gone
        for row in gone.elements():
            # One that was told to leave later went before.
            held = [each for each in self.leaving if each[1] == row]
            if held:
                self.leaving.remove(held[0])
        if delta.now_us is not None:
            left = [each for each in self.leaving if each[0] <= delta.now_us]
            self.leaving = [each for each in self.leaving if each[0] > delta.now_us]
            self.rows -= Counter(row for _, row in left)

    def kept(self) -> Follower:
        """Another one with the same copy and position, who comes back later."""
        other = copy(self)
        other.rows, other.leaving = Counter(self.rows), list(self.leaving)
        return other

    def catch_up(self, db: Database) -> None:
        with db.query(self.name).subscribe(since=self.position, expirations=self.expirations, progress=True) as changes:
            while (delta := changes.next(0.0)) is not None:
                self.apply(delta)
            self.position = str(changes.position)


class Run:
    """Random steps against one warehouse."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.clock = ManualClock(START + timedelta(seconds=100))
        self.settings = {"compact_files_min": self.rng.choice((2, 3, 100)), "grace_seconds": 0.0}
        self.retain = self.rng.choice(("", "", " RETAIN INTERVAL 12 SECONDS"))
        self.db = self.open()
        for stream in ("ticks", "tocks"):
            lateness = self.rng.choice(("", "", " LATENESS INTERVAL 6 SECONDS"))
            self.db.sql(f"CREATE STREAM {stream} (id INT, n INT, at TIMESTAMP) TIMESTAMP BY at{self.retain}{lateness}")
        idle = " IDLE AFTER INTERVAL 7 SECONDS"
        self.db.sql(f"CREATE STREAM lazy (id INT, n INT, at TIMESTAMP) TIMESTAMP BY at{self.retain}{idle}")
        self.db.sql(f"CREATE STREAM marks (id INT, n INT){self.retain}")
        self.db.sql("CREATE TABLE names (n INT, name STRING)")
        self.names = self.rng.sample(sorted(QUERIES), at_one_row(3, 9))
        for name in self.names:
            mode = "none" if name in ("unwindowed", "mixed", "three") else "auto"  # they would keep pairs without bound
            self.db.register(QUERIES[name], name=name, materialize=mode)
        self.number = 0
        self.second = 0
        self.followers = [
            Follower(self.db, name, expirations=self.rng.choice(("retract", "out"))) for name in self.names
        ]
        self.away: list[Follower] = []

    def open(self) -> Database:
        return connect_inline(self.path, clock=self.clock, settings=self.settings)

    def rows(self) -> list[dict[str, Any]]:
        found = []
        for _ in range(self.rng.randint(1, 5)):
            self.number += 1
            found.append({"id": self.number, "n": self.rng.randint(0, 5)})
        return found

    def step(self) -> None:
        match self.rng.choice(
            ("push", "push", "push", "mark", "time", "table", "heartbeat", "maintain", "retain", "lose", "restart")
        ):
            case "push":
                self.second += self.rng.choice((0, 1, 2, 2, 3, 9, 40))
                late = [0, 0, 0, 1, 5, 12]
                rows = [
                    {**row, "at": START + timedelta(seconds=self.second - self.rng.choice(late))} for row in self.rows()
                ]
                self.db.push(self.rng.choice(("ticks", "ticks", "tocks", "lazy")), rows, wait=True)
            case "mark":
                self.db.push("marks", self.rows(), wait=True)
            case "time":
                self.clock.advance(timedelta(seconds=self.rng.choice((0.5, 1, 2, 5, 20))))
            case "table":
                n = self.rng.randint(0, 5)
                self.db.sql(
                    self.rng.choice(
                        (
                            f"INSERT INTO names VALUES ({n}, 'x{self.number}')",
                            f"INSERT INTO names VALUES ({n}, 'x{self.number}'), ({n + 1}, NULL)",
                            f"UPDATE names SET name = 'y' WHERE n = {n}",
                            f"DELETE FROM names WHERE n = {n}",
                        )
                    )
                )
            case "heartbeat":
                self.second += self.rng.choice((1, 3))
                self.db.heartbeat(self.rng.choice(("ticks", "tocks", "lazy")), START + timedelta(seconds=self.second))
            case "maintain":
                self.db.maintain()
            case "retain" if self.retain:
                seconds = self.rng.choice((6, 12, 30))
                self.db.sql(f"ALTER STREAM {self.rng.choice(('ticks', 'marks'))} SET RETAIN INTERVAL {seconds} SECONDS")
            case "lose":
                for file in sorted((self.path / "derived").rglob("*")):
                    if file.is_file() and self.rng.random() < 0.5:
                        file.unlink(missing_ok=True)
            case "restart" if self.rng.random() < 0.3:
                self.db.close()
                self.db = self.open()

    def check(self) -> None:
        for follower in self.followers:
            if self.rng.random() < 0.3:
                continue  # it is away
            self.compare(follower)
            if self.rng.random() < 0.2:
                self.away.append(follower.kept())
        if self.away and self.rng.random() < 0.3:
            self.compare(self.away.pop(self.rng.randrange(len(self.away))))

    def compare(self, follower: Follower) -> None:
        follower.catch_up(self.db)
        answer = bag(self.db.invoke(follower.name).table)
        assert follower.rows == answer, (follower.name, follower.expirations, follower.rows, answer)


@settings(max_examples=at_one_row(2, 40), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_snapshot_and_its_deltas_are_the_answer(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    run = Run(tmp_path_factory.mktemp("w") / "warehouse", seed)
    try:
        for _ in range(run.rng.randint(3, 14)):
            run.step()
            run.check()
        for follower in run.away:
            run.compare(follower)
    finally:
        run.db.close()


# -- what subscribers are told, case by case --


def ticks_at(*seconds: int) -> list[dict[str, Any]]:
    return [{"id": second, "n": second % 3, "at": START + timedelta(seconds=second)} for second in seconds]


def ids(table: pa.Table) -> list[int]:
    return table.column("id").to_pylist()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def db(tmp_path: Path, clock: ManualClock) -> Iterator[Database]:
    with connect_inline(tmp_path / "w", clock=clock, settings={"grace_seconds": 0.0}) as db:
        db.sql("CREATE STREAM ticks (id INT, n INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 10 SECONDS")
        db.sql("CREATE STREAM marks (id INT)")
        yield db


def test_rows_leave_by_their_window_and_are_told(db: Database) -> None:
    query = db.register("SELECT id FROM ticks [RANGE 3 SECONDS]", name="q")
    heard = query.subscribe()
    for second in (0, 2, 4):
        db.push("ticks", ticks_at(second), wait=True)
    assert [(ids(d.inserted), ids(d.retracted)) for d in iter(lambda: heard.next(0.0), None)] == [
        ([0], []),
        ([2], []),
        ([4], [0]),
    ]


def test_with_out_rows_say_when_they_leave_and_are_not_told_again(db: Database) -> None:
    query = db.register("SELECT id FROM ticks [RANGE 3 SECONDS]", name="q")
    heard = query.subscribe(expirations="out")
    for second in (0, 2, 4):
        db.push("ticks", ticks_at(second), wait=True)
    told = list(iter(lambda: heard.next(0.0), None))
    assert [(ids(d.inserted), ids(d.retracted)) for d in told] == [([0], []), ([2], []), ([4], [])]
    assert [d.inserted_out.to_pylist() for d in told if d.inserted_out is not None] == [
        [START + timedelta(seconds=second + 3)] for second in (0, 2, 4)
    ]
    assert [d.now for d in told] == [START + timedelta(seconds=second) for second in (0, 2, 4)]


def test_out_of_rows_without_a_window_is_their_retention(db: Database) -> None:
    heard = db.register("SELECT id FROM ticks", name="q").subscribe(expirations="out")
    db.push("ticks", ticks_at(1), wait=True)
    delta = heard.next(0.0)
    assert delta is not None
    assert delta.inserted_out is not None
    assert delta.inserted_out.to_pylist() == [START + timedelta(seconds=11)]


def test_a_follower_outlives_a_jump_of_the_clock_beyond_retention(db: Database) -> None:
    """What a position that was just told needs is not cleaned away."""
    heard = db.register("SELECT id FROM ticks", name="q").subscribe()
    db.push("ticks", ticks_at(0, 1), wait=True)
    assert heard.next(0.0) is not None
    db.push("ticks", ticks_at(1_000), wait=True)
    db.maintain()
    delta = heard.next(0.0)
    assert delta is not None
    assert (ids(delta.inserted), ids(delta.retracted)) == ([1_000], [0, 1])


def test_a_position_is_promised_for_as_long_as_the_stream_retains(db: Database) -> None:
    heard = db.register("SELECT id FROM ticks", name="q").subscribe()
    db.push("ticks", ticks_at(0), wait=True)
    assert heard.next(0.0) is not None
    kept = str(heard.position)
    with patch.object(held_positions, "HOLD_SECONDS", 0.0):
        for second in range(1, 10):
            db.push("ticks", ticks_at(second), wait=True)
            heard.next(0.0)
            db.maintain()
        assert ids(next(iter(db.query("q").subscribe(since=kept))).inserted) == [1]
    db._following._held._entries.clear()
    db.push("ticks", ticks_at(40), wait=True)
    db.maintain()
    with pytest.raises(Gone, match="Positions before entry") as gone:
        db.query("q").subscribe(since=kept).next(0.0)
    assert "snapshot=True" in str(gone.value)


def test_time_alone_makes_rows_leave(db: Database, clock: ManualClock) -> None:
    query = db.register("SELECT id FROM marks [RANGE 3 SECONDS]", name="q")
    counted = db.register("SELECT count(*) AS id FROM marks [RANGE 3 SECONDS]", name="c")
    heard, counts = query.subscribe(), counted.subscribe()
    db.push("marks", [{"id": 1}], wait=True)
    assert heard.next(0.0) is not None
    assert counts.next(0.0) is not None
    clock.advance(timedelta(seconds=2))
    assert heard.next(0.0) is None
    clock.advance(timedelta(seconds=1))
    delta, count = heard.next(0.0), counts.next(0.0)
    assert delta is not None
    assert (ids(delta.inserted), ids(delta.retracted)) == ([], [1])
    assert delta.now == START + timedelta(seconds=3)
    assert count is not None
    assert (ids(count.inserted), ids(count.retracted)) == ([0], [1])
    clock.advance(-timedelta(hours=1))  # a clock that is set back brings nothing back
    assert heard.next(0.0) is None
    assert heard.position == delta.position


def test_the_three_streams_of_a_relation(db: Database) -> None:
    query = db.register("SELECT id FROM ticks [RANGE 3 SECONDS]", name="q")
    heard = {relation: query.subscribe(relation=relation) for relation in ("istream", "dstream", "rstream")}
    for second in (0, 2, 4):
        db.push("ticks", ticks_at(second), wait=True)
    db.push("marks", [{"id": 1}], wait=True)
    told = {relation: list(iter(lambda each=each: each.next(0.0), None)) for relation, each in heard.items()}
    assert [ids(d.inserted) for d in told["istream"]] == [[0], [2], [4]]
    assert not any(len(d.retracted) for d in told["istream"])
    assert [(ids(d.inserted), ids(d.retracted)) for d in told["dstream"]] == [([], [0])]
    assert [ids(d.inserted) for d in told["rstream"]] == [[0], [0, 2], [2, 4]]


def test_progress_carries_now_on(db: Database) -> None:
    query = db.register("SELECT id FROM ticks [RANGE 3 SECONDS] WHERE n = 5", name="q")
    heard, quiet = query.subscribe(progress=True), query.subscribe()
    db.push("ticks", ticks_at(7), wait=True)
    assert quiet.next(0.0) is None
    delta = heard.next(0.0)
    assert delta is not None
    assert (delta.progress, len(delta), delta.now) == (True, 0, START + timedelta(seconds=7))
    assert delta.inserted.schema == query.invoke().table.schema
    assert heard.next(0.0) is None
    assert heard.position == quiet.position == delta.position


def test_a_delta_over_a_query_whose_scans_did_not_move_computes_nothing(db: Database) -> None:
    query = db.register("SELECT n, count(*) AS c FROM ticks [RANGE 3 SECONDS] WHERE n = 1 GROUP BY n", name="q")
    heard = query.subscribe()
    with patch.object(db._invoker, "compute", side_effect=AssertionError):
        db.push("ticks", ticks_at(0, 2), wait=True)
        assert heard.next(0.0) is None
    db.push("ticks", ticks_at(1), wait=True)
    assert heard.next(0.0) is not None


@pytest.mark.parametrize("text", ["", "5x", "e", "en5", "e5n", "e-5", "e5n5n5", "e5 n5", "e99999999999999999999"])
def test_what_is_no_position(db: Database, text: str) -> None:
    query = db.register("SELECT id FROM ticks", name="q")
    with pytest.raises(TypeMismatch, match="is no position"):
        query.subscribe(since=text).next(0.0)


def test_positions_that_have_not_been_yet(db: Database) -> None:
    query = db.register("SELECT id FROM ticks", name="q")
    with pytest.raises(TypeMismatch, match="Entry 999 has not been yet"):
        query.subscribe(since="e999").next(0.0)
    with pytest.raises(TypeMismatch, match="Epoch 999 has not been yet"):
        query.subscribe(since=999).next(0.0)
    with pytest.raises(TypeMismatch, match="snapshot"):
        query.subscribe(since=0, snapshot=True)
    with pytest.raises(TypeMismatch, match="'retract', 'out'"):
        query.subscribe(expirations="never")
    with pytest.raises(TypeMismatch, match="DSTREAM"):
        query.subscribe(relation="dstream", expirations="out")


@given(entry=st.integers(0, (1 << 59)), now_us=st.one_of(st.none(), st.integers(FIRST_US, LAST_US)))
def test_positions_are_texts(entry: int, now_us: int | None) -> None:
    moment = Moment(entry, now_us)
    assert Moment.parse(moment.position) == moment


def test_steps_whose_now_is_not_known_are_told_in_all(db: Database) -> None:
    """A stream remembers so many activations: what is before them is the net difference, and says so."""
    for name in "ab":
        db.sql(f"CREATE STREAM {name} (n INT, at TIMESTAMP) TIMESTAMP BY at IDLE AFTER INTERVAL 10 SECONDS")
    both = " UNION ALL ".join(f"SELECT n AS id FROM {name} [RANGE 30 SECONDS]" for name in "ab")
    query = db.register(both, name="q")
    follower = Follower(db, "q")
    with patch.object(catalog_now, "ACTIVATIONS_MAX", 1):
        for second in (10, 20, 30):
            db.push("a", [{"n": second, "at": START + timedelta(seconds=second)}], wait=True)
            db.push("b", [{"n": second - 5, "at": START + timedelta(seconds=second - 5)}], wait=True)
            db._store.clock.advance(timedelta(seconds=20))  # type: ignore[attr-defined]
            db.maintain()
    heard = query.subscribe(since=follower.position)
    told = list(iter(lambda: heard.next(0.0), None))
    assert any(delta.net for delta in told)
    for delta in told:
        follower.apply(delta)
    assert follower.rows == bag(query.invoke().table)
