"""NOW in what is read AS OF an entry: answers that compute something of NOW are recorded with their entries.

Later, after other entries, late tuples, restarts and compaction, the same queries VERSION AS OF those entries answer
the same; so do standing queries over them, and who follows these is told nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.rows import START
from tests.engine.test_as_of import MODES, PastRun, text_of
from tests.engine.test_between import Follower, bag

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.errors import Gone, TypeMismatch
from ladle.testing.inline import connect_inline
from ladle.testing.one_row import at_one_row

TIMED = {
    "age": "SELECT id, unix_timestamp(NOW) - unix_timestamp(at) AS age FROM ticks [RANGE 9 SECONDS]",
    "young": "SELECT id FROM ticks WHERE at > NOW - INTERVAL 3 SECONDS",
    "when": "SELECT count(*) AS c, NOW() AS w FROM ticks [RANGE 5 SECONDS] WHERE n < 4",
    "groups": "SELECT n, count(*) AS c, NOW() AS w FROM ticks [RANGE 9 SECONDS] GROUP BY n",
    "recent": "SELECT n, max(at) AS m FROM ticks GROUP BY n HAVING max(at) > NOW - INTERVAL 9 SECONDS",
    "case": "SELECT id, CASE WHEN at < NOW - INTERVAL 4 SECONDS THEN 'old' END AS s FROM ticks [ROWS 5]",
    "pairs": "SELECT a.id, b.id AS o, NOW() AS w FROM ticks [ROWS 4] a JOIN tocks [RANGE 9 SECONDS] b ON a.n = b.n "
    "AND b.at < NOW - INTERVAL 1 SECOND",
    "both": "SELECT id, NOW() AS w FROM ticks [RANGE 4 SECONDS] UNION ALL SELECT id, NOW() FROM lazy [RANGE 9 SECONDS]",
    "named_now": "SELECT t.id, c.name, NOW() AS w FROM ticks [RANGE 5 SECONDS] t LEFT JOIN names c ON t.n = c.n",
    "beside": "SELECT n, name, (SELECT max(NOW()) FROM tocks) AS w FROM names",
    "above": "SELECT w, count(*) AS c, max(NOW()) AS v FROM groups GROUP BY w",
    "twice": "SELECT x.c, y.c AS d, NOW() AS w FROM `when` x, `when` y",
    "fixed": "SELECT t.id, NOW() AS w FROM ticks [RANGE 8 SECONDS] t LEFT JOIN tocks VERSION AS OF {entry} [ROWS 2] o "
    "ON t.n = o.n",
    "still": "SELECT id, NOW() AS w FROM ticks VERSION AS OF {entry} [RANGE 8 SECONDS]",
    "mixed_now": "SELECT m.id, NOW() AS w FROM marks m, ticks [RANGE 5 SECONDS] t WHERE m.n = t.n",
}
STAMPED_NOW = {
    "stamps": "SELECT id, NOW() AS w FROM marks [RANGE 3 SECONDS]",
    "stamps_count": "SELECT count(*) AS c, NOW() AS w FROM marks [RANGE 30 SECONDS]",
    "stamps_named": "SELECT m.id, c.name, NOW() AS w FROM marks [RANGE 9 SECONDS] m JOIN names c ON m.n = c.n",
    "marked": "SELECT count(*) AS c, max(NOW()) AS w FROM marks WHERE ts > NOW - INTERVAL 5 SECONDS",
}
"""Their NOW is the wall clock's: they are noted when an entry was just made."""


class NowRun(PastRun):
    """Notes answers that compute something of NOW, and asks for them again in several ways."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(path, seed)
        self.standing: list[tuple[Follower, Counter[str]]] = []
        self.names = [name for name in self.names if name != "mixed"]
        for _ in range(self.rng.randint(0, 3)):
            self.step()
        below = ["when", "groups"]
        sampled = self.rng.sample(sorted((TIMED.keys() | STAMPED_NOW.keys()) - set(below)), at_one_row(4, 9))
        self.timed = [name for name in (*below, *sampled) if name in TIMED and name != "mixed_now"]
        self.stamped = [name for name in sampled if name in STAMPED_NOW]
        if "mixed_now" in sampled and not self.retain:
            self.timed.append("mixed_now")
        for name in (*self.timed, *self.stamped):
            mode = "none" if name == "mixed_now" else self.rng.choice(MODES)
            text = {**TIMED, **STAMPED_NOW}[name].format(entry=self.db.catalog.seq)
            self.db.register(text, name=name, materialize=mode)
        self.names = []

    def note_now(self) -> None:
        """Record the answers of the present."""
        for name in self.timed:
            try:
                answer = self.db.invoke(name)
            except Gone:
                assert name in ("fixed", "still")
                continue
            self.notes.append((name, answer.entry, bag(answer.table)))

    def note_stamps(self) -> None:
        """Those whose NOW is the wall clock's, right after what they read has changed."""
        self.db.push("marks", self.rows(), wait=True)
        for name in self.stamped:
            answer = self.db.invoke(name)
            self.notes.append((name, answer.entry, bag(answer.table)))

    def ask_now(self) -> None:
        name, entry, expected = self.rng.choice(self.notes)
        texts = {
            "alone": f"SELECT * FROM `{name}` VERSION AS OF {entry}",
            "below": f"WITH c AS (SELECT * FROM `{name}` VERSION AS OF {entry}) SELECT * FROM c",
            "shared": " UNION ".join([f"SELECT * FROM `{name}` VERSION AS OF {entry}"] * 6),
        }
        way = self.rng.choice(sorted(texts))
        try:
            found = bag(self.db.sql(texts[way]).table)
        except Gone:
            assert self.may_be_gone(name, entry), (name, entry)
            return
        self.asked += 1
        if way == "shared":
            expected = Counter(dict.fromkeys(expected, 1))
        assert found == expected, (name, entry, way, found, expected)

    def stand(self) -> None:
        """A standing query over one, and somebody who follows it."""
        name, entry, expected = self.rng.choice(self.notes)
        own = f"standing{len(self.standing)}"
        try:
            text = f"SELECT * FROM `{name}` VERSION AS OF {entry}"
            self.db.register(text, name=own, materialize=self.rng.choice(MODES))
            follower = Follower(self.db, own, expirations=self.rng.choice(("retract", "out")))
        except Gone:
            assert self.may_be_gone(name, entry), (name, entry)
            self.db.sql(f"DROP QUERY IF EXISTS {own}")
            return
        assert follower.rows == expected, (name, entry)
        self.standing.append((follower, expected))

    def check_standing(self) -> None:
        for follower, expected in self.standing:
            try:
                assert bag(self.db.invoke(follower.name).table) == expected, follower.name
                follower.catch_up(self.db)
            except Gone:
                assert self.may_be_gone(follower.name, 1 << 40) or self.pruned
                continue
            assert follower.rows == expected, follower.name

    @property
    def pruned(self) -> bool:
        catalog = self.db.catalog
        return any(each.timeline.base.entry for each in (*catalog.all_streams(), *catalog.tables.values()))


@settings(max_examples=at_one_row(1, 6), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_what_was_computed_of_now_is_answered_again(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    run = NowRun(tmp_path_factory.mktemp("w") / "warehouse", seed)
    try:
        for _ in range(run.rng.randint(4, 14)):
            run.step()
            run.note_now()
            if run.rng.random() < 0.4:
                run.note_stamps()
            for _ in range(4):
                run.ask_now()
            if len(run.standing) < 4 and run.rng.random() < 0.4:
                run.stand()
            run.check_standing()
        run.db.close()
        run.db = run.open()
        run.db.maintain()
        for _ in range(20):
            run.ask_now()
        run.check_standing()
    finally:
        run.db.close()


# -- case by case --


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START + timedelta(seconds=100))


@pytest.fixture
def db(tmp_path: Path, clock: ManualClock) -> Iterator[Database]:
    with connect_inline(tmp_path / "warehouse", clock=clock, settings={"grace_seconds": 0.0}) as database:
        for stream in ("ticks", "tocks"):
            database.sql(f"CREATE STREAM {stream} (id INT, at TIMESTAMP) TIMESTAMP BY at")
        database.sql("CREATE STREAM marks (id INT)")
        database.sql("CREATE TABLE names (n INT)")
        yield database


def push(db: Database, *seconds: int, stream: str = "ticks") -> int:
    """The entry after it."""
    db.push(stream, [{"id": each, "at": second(each)} for each in seconds], wait=True)
    return db.catalog.seq


def second(number: int) -> datetime:
    return START + timedelta(seconds=number)


def moments(db: Database, text: str) -> list[datetime | None]:
    """The values of column `w`."""
    return [row["w"] for row in db.sql(text).to_pylist()]


def test_two_entries_in_one_statement_have_two_nows(db: Database) -> None:
    entries = [push(db, 1), push(db, 5)]
    db.register("SELECT max(id) AS id, NOW() AS w FROM ticks", name="q")
    push(db, 9)
    one, two = entries
    found = db.sql(
        f"SELECT a.w AS one, b.w AS two, c.w AS three, NOW() AS now "
        f"FROM q VERSION AS OF {one} a, q VERSION AS OF {two} b, q c"
    )
    assert found.to_pylist() == [{"one": second(1), "two": second(5), "three": second(9), "now": second(9)}]


def test_what_a_statement_computes_itself_is_of_its_own_now(db: Database) -> None:
    """AS OF says what is read; a bare stream read AS OF has no NOW of expressions, whichever AS OF it is."""
    entry = push(db, 1)
    push(db, 9)
    for at in (f"VERSION AS OF {entry}", f"TIMESTAMP AS OF '{text_of(second(1))}'"):
        assert moments(db, f"SELECT id, NOW() AS w FROM ticks {at}") == [second(9)]


def test_now_is_null_where_it_was_undefined(db: Database) -> None:
    db.register("SELECT count(*) AS c, NOW() AS w FROM ticks", name="q")
    answer = db.invoke("q")
    push(db, 1)
    assert answer.to_pylist() == [{"c": 0, "w": None}]
    assert db.sql(f"SELECT * FROM q VERSION AS OF {answer.entry}").table == answer.table
    assert db.sql(f"SELECT w IS NULL AS n FROM q VERSION AS OF {answer.entry}").to_pylist() == [{"n": True}]


def test_now_is_that_of_all_that_a_query_reads_at_any_moment(db: Database) -> None:
    """As when it is invoked: a stream that it reads as of an entry of its own counts too."""
    first = push(db, 3, stream="tocks")
    query = "SELECT t.id, NOW() AS w FROM ticks [RANGE 5 SECONDS] t LEFT JOIN tocks {} o ON t.id = o.id"
    db.register(query.format(f"VERSION AS OF {first}"), name="q")
    push(db, 1, 2, 9)
    answer = db.invoke("q")
    assert {row["w"] for row in answer.to_pylist()} == {second(3)}
    push(db, 20, stream="tocks")
    again = db.sql(f"SELECT * FROM q VERSION AS OF {answer.entry}")
    assert bag(again.table) == bag(answer.table)
    assert {row["w"] for row in db.invoke("q").to_pylist()} == {second(9)}


def test_what_was_not_there_yet_has_no_clock(db: Database) -> None:
    """A query that reads something younger as of an entry of its own can be read as of an earlier one."""
    entry = push(db, 3)
    db.sql("CREATE STREAM young (id INT, at TIMESTAMP) TIMESTAMP BY at")
    later = push(db, 1, stream="young")
    query = "SELECT t.id, NOW() AS w FROM {} t JOIN young VERSION AS OF {} y ON t.id > y.id"
    db.register(query.format("ticks", later), name="q")
    db.sql("DROP TABLE names")
    assert db.sql(f"SELECT * FROM q VERSION AS OF {entry}").to_pylist() == [{"id": 3, "w": second(3)}]
    assert db.sql(f"SELECT * FROM q VERSION AS OF {later}").to_pylist() == [{"id": 3, "w": second(3)}]
    push(db, 2, stream="young")
    assert moments(db, "SELECT * FROM q") == [second(3)]
    db.register("SELECT n.id, NOW() AS w FROM young n", name="r")
    with pytest.raises(TypeMismatch, match="Stream 'young' was not there yet"):
        db.sql(f"SELECT * FROM r VERSION AS OF {entry}")


def test_a_table_takes_what_was_computed_of_a_past_now(db: Database) -> None:
    entry = push(db, 1, 4)
    db.register("SELECT id, unix_timestamp(NOW) - unix_timestamp(at) AS age FROM ticks", name="q")
    push(db, 60)
    db.sql(f"INSERT INTO names SELECT age FROM q VERSION AS OF {entry}")
    assert sorted(row["n"] for row in db.sql("SELECT n FROM names").to_pylist()) == [0, 3]
    db.sql(f"DELETE FROM names WHERE n IN (SELECT age FROM q VERSION AS OF {entry} WHERE id = 1)")
    assert db.sql("SELECT n FROM names").to_pylist() == [{"n": 0}]
    db.sql(f"CREATE TABLE ages AS SELECT age FROM q VERSION AS OF {entry}")
    assert len(db.sql("SELECT * FROM ages")) == 2


def test_of_tables_alone_now_is_when_they_changed(db: Database, clock: ManualClock) -> None:
    db.register("SELECT count(*) AS c, NOW() AS w FROM names", name="q")
    first = db.invoke("q")
    clock.advance(timedelta(seconds=5))
    db.sql("INSERT INTO names VALUES (1)")
    then = db.invoke("q")
    clock.advance(timedelta(seconds=5))
    for answer in (first, then):
        assert db.sql(f"SELECT * FROM q VERSION AS OF {answer.entry}").table == answer.table
    assert first.table != then.table


def test_where_nothing_says_what_now_was_it_is_refused(db: Database) -> None:
    db.register("SELECT count(*) AS c, NOW() AS w FROM marks", name="stamped")
    db.register("SELECT NOW() AS w", name="nothing")
    db.register("SELECT count(*) AS c FROM marks", name="without")
    entry = db.catalog.seq
    for name in ("stamped", "nothing"):
        with pytest.raises(TypeMismatch, match=f"NOW as of entry {entry} is not known"):
            db.sql(f"SELECT * FROM {name} VERSION AS OF {entry}")
    assert db.sql(f"SELECT * FROM without VERSION AS OF {entry}").to_pylist() == [{"c": 0}]
    db.push("marks", [{"id": 1}], wait=True)
    answer = db.invoke("stamped")
    assert db.sql(f"SELECT * FROM stamped VERSION AS OF {answer.entry}").table == answer.table


def test_an_entry_that_has_not_been_yet(db: Database) -> None:
    push(db, 1)
    db.register("SELECT count(*) AS c, NOW() AS w FROM ticks", name="q")
    last = db.catalog.seq
    with pytest.raises(TypeMismatch, match=f"Entry {last + 3} has not been yet: the last one is {last}"):
        db.sql(f"SELECT * FROM q VERSION AS OF {last + 3}")
    db.register(f"SELECT w FROM q VERSION AS OF {last + 3}", name="later")
    with pytest.raises(TypeMismatch, match="has not been yet"):
        db.invoke("later")
    push(db, 2), push(db, 3), push(db, 4)
    assert db.invoke("later").to_pylist() == [{"w": second(3)}]


def test_what_is_gone_is_gone_for_what_computes_of_now(tmp_path: Path, clock: ManualClock) -> None:
    with connect_inline(tmp_path / "w", clock=clock, settings={"positions_seconds_max": 60.0}) as db:
        db.sql("CREATE STREAM ticks (id INT, at TIMESTAMP) TIMESTAMP BY at")
        db.sql("CREATE STREAM other (id INT, at TIMESTAMP) TIMESTAMP BY at")
        db.register("SELECT NOW() AS w, count(*) AS c FROM ticks VERSION AS OF 3", name="q")
        entry = push(db, 1)
        db.register(f"SELECT * FROM q VERSION AS OF {entry}", name="r")
        assert db.invoke("r").to_pylist() == [{"w": second(1), "c": 0}]
        push(db, 2), push(db, 3)
        clock.advance(timedelta(seconds=100))
        db.maintain()
        with pytest.raises(Gone, match="is beyond what is kept of the past of stream 'ticks'"):
            db.invoke("r")
        with pytest.raises(Gone, match="is beyond what is kept"):
            db.query("r").subscribe(snapshot=True).next(0.0)
    with connect_inline(tmp_path / "w", clock=clock) as db, pytest.raises(Gone):
        db.invoke("r")


def test_standing_queries_are_bound_again(tmp_path: Path, clock: ManualClock) -> None:
    """Without what was kept of their plans; and a query that is replaced is read with what it computes now."""
    path = tmp_path / "w"
    with connect_inline(path, clock=clock) as db:
        db.sql("CREATE STREAM ticks (id INT, at TIMESTAMP) TIMESTAMP BY at")
        entry = push(db, 1)
        db.register("SELECT count(*) AS c, NOW() AS w FROM ticks", name="q")
        db.register(f"SELECT w FROM q VERSION AS OF {entry}", name="r")
        db.register("SELECT count(*) AS c, max(w) AS w FROM r", name="s")
        push(db, 5)
    (path / "derived" / "plans").unlink()
    with connect_inline(path, clock=clock) as db:
        assert db.invoke("r").to_pylist() == [{"w": second(1)}]
        assert db.invoke("s").to_pylist() == [{"c": 1, "w": second(1)}]
        db.sql("CREATE OR REPLACE QUERY q AS SELECT count(*) AS c, NOW() - INTERVAL 1 SECOND AS w FROM ticks")
        assert db.invoke("s").to_pylist() == [{"c": 1, "w": second(0)}]
    with connect_inline(path, clock=clock) as db:
        assert db.invoke("s").to_pylist() == [{"c": 1, "w": second(0)}]


def test_texts_of_one_form_have_their_own_nows(db: Database) -> None:
    entries = [push(db, each) for each in range(1, 7)]
    db.register("SELECT id, NOW() AS w FROM ticks [ROWS 1]", name="q")
    for number, entry in enumerate(entries, start=1):
        assert moments(db, f"SELECT * FROM q VERSION AS OF {entry} WHERE id < {90 + number}") == [second(number)]


def test_explain_says_what_stands_for_now(db: Database) -> None:
    entry = push(db, 1)
    db.register("SELECT n, max(NOW()) AS w FROM names, ticks GROUP BY n", name="q")
    for how in ("EXPLAIN", "EXPLAIN ANALYZE"):
        text = "\n".join(map(str, db.sql(f"{how} SELECT * FROM q VERSION AS OF {entry}").table.column(0).to_pylist()))
        (plan,) = {line.split()[1] for line in text.splitlines() if line.startswith("  now  ")}
        assert f"{plan} is NOW as of entry {entry}, of ticks, names" in text
        assert f"MAX(CAST({plan} AS TIMESTAMP))" in text


def test_a_change_of_the_present_is_none_of_the_past(db: Database) -> None:
    """What is computed of NOW as of an entry can be kept, and nobody is told of it again."""
    entry = push(db, 1, 2)
    db.register("SELECT id, unix_timestamp(NOW) - unix_timestamp(at) AS age FROM ticks", name="q")
    db.register(
        f"SELECT age, count(*) AS c FROM q VERSION AS OF {entry} GROUP BY age", name="r", materialize="complete"
    )
    heard = db.query("r").subscribe(snapshot=True)
    first = heard.next(0.0)
    assert first is not None
    assert bag(first.inserted) == bag(db.invoke("r").table)
    for each in (3, 1, 9):
        push(db, each)
        assert heard.next(0.0) is None
        assert sorted(row["age"] for row in db.invoke("r").to_pylist()) == [0, 1]
