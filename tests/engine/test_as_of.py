"""AS OF: streams, tables and queries at moments of the past.

Random interleavings note what standing queries, streams and a table answered after each step, and ask for it again
later: by entry, and by time. What is Gone must have a reason. Subscribers to queries that read the past are told what
invoking them gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.rows import START
from tests.engine.test_between import QUERIES, Follower, Run, bag

from ladle.answer import Answer
from ladle.clock import ManualClock, to_datetime
from ladle.engine import Database
from ladle.errors import Gone, LadleError, TypeMismatch
from ladle.testing.inline import connect_inline
from ladle.testing.one_row import at_one_row

STAMPED = ("stamped", "stamped_all", "stamped_count", "mixed")
"""Their NOW is the wall clock's, or their retention goes by it: they are noted when an entry was just made."""


def text_of(moment: datetime) -> str:
    return moment.isoformat(" ").removesuffix("+00:00")


class PastRun(Run):
    """Notes answers, and asks for them again."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(path, seed)
        self.notes: list[tuple[str, int, Counter[str]]] = []
        self.versions: dict[datetime, Counter[str]] = {}
        self.asked = 0

    def note(self) -> None:
        for name in (*self.names, "ticks", "names"):
            if name in STAMPED:
                continue
            answer = self.db.sql(f"SELECT * FROM `{name}`")
            self.notes.append((name, answer.entry, bag(answer.table)))
        self.versions[to_datetime(self.clock.now_us())] = bag(self.db.sql("SELECT * FROM names").table)

    def note_stamped(self) -> None:
        """Right after an entry of a stream that is stamped on arrival."""
        self.db.push("marks", self.rows(), wait=True)
        for name in self.names:
            if name in STAMPED and not (name == "mixed" and self.retain):
                answer = self.db.sql(f"SELECT * FROM `{name}`")
                self.notes.append((name, answer.entry, bag(answer.table)))

    def may_be_gone(self, name: str, entry: int) -> bool:
        """Whether something that was read may be gone."""
        catalog = self.db.catalog
        if name == "names":
            return entry < catalog.tables["names"].timeline.base.entry
        plan = None if name == "ticks" else self.db.catalog.query(name)
        streams = ("ticks",) if plan is None else plan.plan.streams
        tables = () if plan is None else plan.plan.tables
        states = [state for each in streams if (state := catalog.stream(each)) is not None]
        return any(each.lost_us is not None or entry < each.timeline.base.entry for each in states) or any(
            entry < catalog.tables[each.table.lower()].timeline.base.entry for each in tables
        )

    def ask(self) -> None:
        if not self.notes:
            return
        name, entry, expected = self.rng.choice(self.notes)
        try:
            found = bag(self.db.sql(f"SELECT * FROM `{name}` VERSION AS OF {entry}").table)
        except Gone:
            assert self.may_be_gone(name, entry), (name, entry)
        else:
            self.asked += 1
            assert found == expected, (name, entry, found, expected)
        at, rows = self.rng.choice(sorted(self.versions.items()))
        assert bag(self.db.sql(f"SELECT * FROM names TIMESTAMP AS OF '{text_of(at)}'").table) == rows
        self.ask_at(START + timedelta(seconds=self.rng.randint(-3, self.second + 2)))

    def ask_at(self, moment: datetime) -> None:
        """A query at a time is the query invoked at that NOW."""
        names = [name for name in self.names if not self.db.catalog.query(name).plan.tables]  # type: ignore[union-attr]
        if not names:
            return
        name = self.rng.choice(names)
        text = f"SELECT * FROM `{name}` TIMESTAMP AS OF '{text_of(moment)}'"
        expected, found = self.said(lambda: self.db.invoke(name, now=moment)), self.said(lambda: self.db.sql(text))
        assert found == expected, (name, moment)

    def said(self, ask: Callable[[], Answer]) -> object:
        """The rows of an answer, or what is said of why there are none."""
        try:
            return bag(ask().table)
        except Gone as gone:
            return gone.message, gone.hint


@settings(max_examples=at_one_row(2, 12), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_what_was_answered_is_answered_again(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    run = PastRun(tmp_path_factory.mktemp("w") / "warehouse", seed)
    try:
        for _ in range(run.rng.randint(4, 14)):
            run.step()
            run.note()
            if run.rng.random() < 0.3:
                run.note_stamped()
            for _ in range(3):
                run.ask()
    finally:
        run.db.close()


PAST = {
    "picked": "SELECT id, n FROM ticks {at} [RANGE 5 SECONDS] WHERE n < 4",
    "last": "SELECT id FROM ticks {at} [ROWS 3]",
    "all": "SELECT id FROM tocks {at}",
    "counted": "SELECT n, count(*) AS c FROM ticks {at} [RANGE 9 SECONDS] GROUP BY n",
    "total": "SELECT count(*) AS c, sum(id) AS s FROM ticks {at}",
    "compared": "SELECT a.id, b.id AS o FROM ticks [ROWS 4] a JOIN ticks {at} [RANGE 8 SECONDS] b ON a.n = b.n",
    "below": "SELECT n, c FROM inner_one {at}",
    "table": "SELECT n, name FROM names {at}",
    "both": "SELECT x.n, x.name, y.name AS was FROM names x LEFT JOIN names {at} y ON x.n = y.n",
}


@settings(max_examples=at_one_row(2, 12), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_subscribers_to_the_past(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    run = Run(tmp_path_factory.mktemp("w") / "warehouse", seed)
    run.followers = []
    db = run.db
    try:
        db.register("SELECT n, count(*) AS c FROM ticks [RANGE 9 SECONDS] GROUP BY n", name="inner_one")
        for _ in range(run.rng.randint(2, 6)):
            run.step()
        db = run.db
        followers = []
        for name in run.rng.sample(sorted(PAST), at_one_row(2, 5)):
            streams = START + timedelta(seconds=run.second + run.rng.randint(-6, 6))
            tables = to_datetime(run.clock.now_us()) + timedelta(seconds=run.rng.choice((0, 3, 30)))
            at = f"VERSION AS OF {db.catalog.seq - run.rng.choice((0, 0, 1))}"
            if run.rng.random() < 0.6:
                at = f"TIMESTAMP AS OF '{text_of(tables if name in ('table', 'both') else streams)}'"
            try:
                db.register(PAST[name].format(at=at), name=f"past_{name}", materialize=run.rng.choice(MODES))
                followers.append(Follower(db, f"past_{name}", expirations=run.rng.choice(("retract", "out"))))
            except Gone:
                assert run.retain
        for _ in range(run.rng.randint(3, 9)):
            run.step()
            for follower in list(followers):
                try:
                    answer = bag(run.db.invoke(follower.name).table)
                except Gone:
                    followers.remove(follower)
                    had = Counter(follower.rows)
                    try:
                        follower.catch_up(run.db)
                    except Gone:
                        continue
                    # Compaction makes it harder to say what is gone, and moves nothing that is read: nothing is told.
                    assert follower.rows == had, (follower.name, follower.expirations)
                    continue
                follower.catch_up(run.db)
                assert follower.rows == answer, (follower.name, follower.expirations, follower.rows, answer)
    finally:
        run.db.close()


MODES = ("none", "partial", "complete", "auto")


# -- case by case --


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START + timedelta(seconds=100))


@pytest.fixture
def db(tmp_path: Path, clock: ManualClock) -> Iterator[Database]:
    with connect_inline(tmp_path / "warehouse", clock=clock, settings={"grace_seconds": 0.0}) as database:
        database.sql("CREATE STREAM ticks (id INT, n INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 30 SECONDS")
        database.sql("CREATE TABLE names (n INT, name STRING)")
        yield database


def push(db: Database, *seconds: int) -> int:
    """The entry after it."""
    rows = [{"id": each, "n": each % 3, "at": START + timedelta(seconds=each)} for each in seconds]
    db.push("ticks", rows, wait=True)
    return db.catalog.seq


def values(table: pa.Table) -> list[object]:
    return sorted(table.column(0).to_pylist())


def test_an_answer_says_its_entry_and_is_read_again_by_it(db: Database) -> None:
    push(db, 1, 2, 3)
    answer = db.sql("SELECT id FROM ticks [RANGE 2 SECONDS]")
    assert answer.entry == db.catalog.seq
    push(db, 2, 9)
    again = db.sql(f"SELECT id FROM ticks VERSION AS OF {answer.entry} [RANGE 2 SECONDS]")
    assert again.table == answer.table
    assert again.entry == answer.entry + 1
    assert db.sql("SHOW STREAMS").entry == db.catalog.seq
    assert db.sql("INSERT INTO names VALUES (1, 'one')").entry == db.catalog.seq


def test_a_late_tuple_is_in_the_past_of_a_time_and_not_in_that_of_an_entry(db: Database) -> None:
    entry = push(db, 1, 4)
    push(db, 3, 9)
    assert values(db.sql(f"SELECT id FROM ticks VERSION AS OF {entry}").table) == [1, 4]
    assert values(db.sql(f"SELECT id FROM ticks TIMESTAMP AS OF '{text_of(START + timedelta(seconds=4))}'").table) == [
        1,
        3,
        4,
    ]


def test_now_as_of_an_entry_is_that_of_all_streams_of_the_query(db: Database) -> None:
    db.sql("CREATE STREAM tocks (id INT, n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register(
        "SELECT a.id, b.id AS o FROM ticks [RANGE 5 SECONDS] a, tocks [RANGE 50 SECONDS] b WHERE a.n = b.n", name="q"
    )
    db.push("tocks", [{"id": 1, "n": 1, "at": START + timedelta(seconds=4)}], wait=True)
    push(db, 1, 4, 10)
    answer = db.invoke("q")
    assert len(answer) == 2
    db.push("tocks", [{"id": 2, "n": 1, "at": START + timedelta(seconds=10)}], wait=True)
    assert bag(db.sql(f"SELECT * FROM q VERSION AS OF {answer.entry}").table) == bag(answer.table)
    # For itself the stream was at 10 then.
    assert values(db.sql(f"SELECT id FROM ticks VERSION AS OF {answer.entry} [RANGE 5 SECONDS]").table) == [10]
    both = db.sql(f"SELECT (SELECT count(*) FROM q) AS now, count(*) AS was FROM q VERSION AS OF {answer.entry}")
    assert both.to_pylist() == [{"now": len(db.invoke("q")), "was": 2}]


def test_an_as_of_inside_of_a_query_wins(db: Database) -> None:
    first, second = push(db, 1), push(db, 2)
    db.register(f"SELECT id FROM ticks VERSION AS OF {first}", name="inner_one")
    push(db, 3)
    assert values(db.sql(f"SELECT id FROM inner_one VERSION AS OF {second}").table) == [1]
    assert values(db.sql(f"SELECT id FROM inner_one UNION ALL SELECT id FROM ticks VERSION AS OF {second}").table) == [
        1,
        1,
        2,
    ]


def test_a_table_is_read_at_each_moment_it_is_mentioned_with(db: Database, clock: ManualClock) -> None:
    entries, times = [], []
    for text in ("INSERT INTO names VALUES (1, 'a')", "UPDATE names SET name = 'b'", "DELETE FROM names"):
        entries.append(db.sql(text).entry)
        times.append(text_of(to_datetime(clock.now_us())))
        clock.advance(timedelta(seconds=5))
    for by in (lambda n: f"VERSION AS OF {entries[n]}", lambda n: f"TIMESTAMP AS OF '{times[n]}'"):
        found = db.sql(f"SELECT x.name AS x, y.name AS y FROM names {by(0)} x LEFT JOIN names {by(1)} y ON x.n = y.n")
        assert found.to_pylist() == [{"x": "a", "y": "b"}]
        assert len(db.sql(f"SELECT * FROM names {by(2)}")) == 0


def test_what_is_gone_and_what_is_not_there(db: Database) -> None:
    created = db.catalog.seq
    entry = push(db, 1, 2)
    for second in range(10, 100, 10):
        push(db, second)
    db.maintain()
    with pytest.raises(Gone, match="beyond what is kept of the past of stream 'ticks'"):
        db.sql(f"SELECT * FROM ticks VERSION AS OF {entry}")
    with pytest.raises(Gone, match="there are answers from"):
        db.sql(f"SELECT * FROM ticks TIMESTAMP AS OF '{text_of(START)}' [RANGE 5 SECONDS]")
    with pytest.raises(TypeMismatch, match="has not been yet"):
        db.sql(f"SELECT * FROM ticks VERSION AS OF {db.catalog.seq + 1}")
    with pytest.raises(TypeMismatch, match="has not been yet"):
        db.sql(f"SELECT * FROM names VERSION AS OF {db.catalog.seq + 1}")
    with pytest.raises(TypeMismatch, match="Table 'names' was not there yet as of entry 1"):
        db.sql(f"SELECT * FROM names VERSION AS OF {created - 1}")
    with pytest.raises(TypeMismatch, match="Stream 'ticks' was not there yet as of entry 0"):
        db.sql("SELECT * FROM ticks VERSION AS OF 0")
    with pytest.raises(TypeMismatch, match="Table 'names' was not there yet"):
        db.sql(f"SELECT * FROM names TIMESTAMP AS OF '{text_of(START)}'")
    assert len(db.sql(f"SELECT * FROM names VERSION AS OF {created}")) == 0


def test_the_first_entry_that_is_kept_is_said_of_all_streams(tmp_path: Path, clock: ManualClock) -> None:
    with connect_inline(tmp_path / "w", clock=clock, settings={"positions_seconds_max": 60.0}) as db:
        for name in "ab":
            db.sql(f"CREATE STREAM {name} (n INT, at TIMESTAMP) TIMESTAMP BY at")
        db.register("SELECT n FROM a UNION ALL SELECT n FROM b", name="q")
        for name in "abab":
            db.push(name, [{"n": 1, "at": START}], wait=True)
        clock.advance(timedelta(seconds=100))
        db.maintain()
        first = max(db.catalog.streams[name].timeline.base.entry for name in "ab")
        assert first > db.catalog.streams["a"].timeline.base.entry
        with pytest.raises(Gone, match=f"from entry {first} on"):
            db.sql("SELECT * FROM q VERSION AS OF 4")
        assert len(db.sql(f"SELECT * FROM q VERSION AS OF {first}")) == 4


def test_when_a_table_was_made_is_known_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    for _ in range(2):
        with connect_inline(tmp_path / "w", clock=clock, settings={"checkpoint_entries": 1}) as database:
            database.sql("CREATE TABLE IF NOT EXISTS names (n INT)")
            database.sql("INSERT INTO names VALUES (1)")
            with pytest.raises(TypeMismatch, match="not there yet"):
                database.sql("SELECT * FROM names VERSION AS OF 0")
            with pytest.raises(TypeMismatch, match="not there yet"):
                database.sql(f"SELECT * FROM names TIMESTAMP AS OF '{text_of(START)}'")


def test_now_inside_of_a_query_is_the_moment_it_is_read_at(db: Database) -> None:
    entry = push(db, 1, 5)
    db.register("SELECT id, current_timestamp() AS w FROM ticks WHERE at > NOW - INTERVAL 2 SECONDS", name="q")
    push(db, 9)
    moment = START + timedelta(seconds=6)
    assert db.sql(f"SELECT * FROM q TIMESTAMP AS OF '{text_of(moment)}'").to_pylist() == [{"id": 5, "w": moment}]
    assert db.invoke("q", now=moment).to_pylist() == [{"id": 5, "w": moment}]
    then = [{"id": 5, "w": START + timedelta(seconds=5)}]
    assert db.sql(f"SELECT * FROM q VERSION AS OF {entry}").to_pylist() == then


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_reads_the_past(db: Database, mode: str) -> None:
    entry = push(db, 1, 2, 3)
    for name, text in {
        "picked": f"SELECT id FROM ticks VERSION AS OF {entry} WHERE n > 0",
        "counted": f"SELECT count(*) AS c FROM ticks VERSION AS OF {entry}",
        "timed": f"SELECT sum(id) AS s FROM ticks TIMESTAMP AS OF '{text_of(START + timedelta(seconds=3))}'",
    }.items():
        db.register(text, name=name, materialize=mode)
    for _ in range(2):
        push(db, 2, 9)
        db.backfill()
        assert values(db.invoke("picked").table) == [1, 2]
        assert values(db.invoke("counted").table) == [3]
    assert values(db.invoke("timed").table) == [1 + 2 + 3 + 2 + 2]


def test_a_deep_pile_of_queries_is_read_as_of_one_moment(db: Database) -> None:
    """Each reads the one below twice: what is read as of one moment is written once."""
    entry = push(db, 1, 2)
    db.register("SELECT id FROM ticks", name="level0")
    for level in range(1, 13):
        below = f"level{level - 1}"
        db.register(f"SELECT id FROM {below} UNION SELECT id FROM {below}", name=f"level{level}", materialize="none")
    push(db, 3)
    assert values(db.sql(f"SELECT id FROM level12 VERSION AS OF {entry}").table) == [1, 2]
    assert values(db.sql("SELECT id FROM level12").table) == [1, 2, 3]


def test_explain_says_the_moment(db: Database) -> None:
    entry = push(db, 1)
    text = "\n".join(values_of(db, f"EXPLAIN SELECT id FROM ticks VERSION AS OF {entry}"))
    assert f"StreamScan ticks VERSION AS OF {entry} | everything retained" in text
    assert f"moment    VERSION AS OF {entry}" in text
    at = "2023-11-14 12:01:40"
    assert f"_t0 = names, TIMESTAMP AS OF '{at}'" in "\n".join(
        values_of(db, f"EXPLAIN SELECT * FROM names TIMESTAMP AS OF '{at}'")
    )


def values_of(db: Database, text: str) -> list[str]:
    return [str(value) for value in db.sql(text).table.column(0).to_pylist()]


def test_a_template_does_not_fill_in_another_moment(db: Database) -> None:
    entries = [push(db, second) for second in range(1, 8)]
    for number, entry in enumerate(entries, start=1):
        found = db.sql(f"SELECT id FROM ticks VERSION AS OF {entry} WHERE n < 5")
        assert values(found.table) == list(range(1, number + 1))


def test_the_queries_here_are_those_of_between() -> None:
    assert set(STAMPED) < set(QUERIES)


def test_nothing_of_the_past_can_be_changed(db: Database) -> None:
    for text in ("UPDATE names VERSION AS OF 1 SET n = 1", "DELETE FROM names VERSION AS OF 1"):
        with pytest.raises(LadleError):
            db.sql(text)
