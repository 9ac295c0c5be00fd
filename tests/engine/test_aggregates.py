"""Partial aggregates in the engine: the same answers as DuckDB gives, from trees that follow data, files and queries.

`both` asks twice, the second time such that nothing is kept or used, so that DuckDB runs the residual; in `make
onspark` Spark does.
"""

from __future__ import annotations

import random
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import START, at, ticks, values

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.errors import EvaluationError, Gone
from ladle.execute.reader import Reader
from ladle.testing.one_row import at_one_row

STREAM = "CREATE STREAM s (k STRING, n BIGINT, x DOUBLE, d DECIMAL(9, 2), at TIMESTAMP) TIMESTAMP BY at"
FOLDS = "count(*), count(n), sum(n), avg(n), min(n), max(n), sum(x), avg(x), min(x), max(x), sum(d), avg(d), max(at)"
WINDOWS = (
    "",
    "BEGIN NOW - INTERVAL 40 SECONDS END NOW",
    "BEGIN NOW - INTERVAL 400 SECONDS END NOW - INTERVAL 100 SECONDS",
    "BEGIN TIMESTAMP '2023-11-14 12:01:00' END TIMESTAMP '2023-11-14 12:06:40'",
)


def answered(db: Database) -> int:
    return db._invoker.nodes.answered


def in_duckdb(db: Database, name: str, now: datetime | None = None) -> pa.Table:
    with db._store.pin() as catalog:
        return db._invoker.answer(catalog.queries[name].plan, catalog, now=now, keep_nothing=True).table


def rounded(table: pa.Table) -> list[list[Any]]:
    """Rows in some order, floats to nine digits: sums of doubles depend on the order of addition."""
    rows = [[f"{v:.9g}" if isinstance(v, float) else v for v in row.values()] for row in table.to_pylist()]
    return sorted(rows, key=repr)


def both(db: Database, name: str, now: datetime | None = None) -> pa.Table:
    before = answered(db)
    got = db.invoke(name, now=now).table
    assert answered(db) == before + 1, "partial aggregates did not answer"
    expected = in_duckdb(db, name, now)
    assert got.schema == expected.schema
    assert rounded(got) == rounded(expected)
    return got


def rows(rng: random.Random, count: int, around: float, spread: float) -> list[dict[str, Any]]:
    """Tuples in no order of time."""
    made = []
    for _ in range(count):
        number = rng.choice([None, rng.randint(-50, 50), rng.randint(-(10**12), 10**12)])
        x = rng.choice([None, rng.uniform(-5, 5), rng.uniform(-5, 5), float("nan"), float("inf")])
        made.append(
            {
                "k": rng.choice(["a", "b", "c", None]),
                "n": number,
                "x": x if around > 300 else (None if number is None else number / 4),
                "d": None if number is None else round(number % 100 + 0.25, 2),
                "at": at(round(around + rng.uniform(-spread, spread), 3)),
            }
        )
    return made


@pytest.fixture
def late(open_db: Open) -> Database:
    """Many small segments whose times overlap, with standing aggregates over every kind of window."""
    db = open_db(segment_rows_max=24, compact_files_min=3)
    db.sql(STREAM)
    for number, window in enumerate(WINDOWS):
        db.register(f"SELECT {FOLDS} FROM s WHERE n > -40 {window}", name=f"one{number}")
        db.register(
            f"SELECT k, {FOLDS.replace(', avg(d)', '')} FROM s WHERE n > -40 GROUP BY k {window}", name=f"by{number}"
        )
    for number, count in enumerate((1, 7, 100, 10_000)):
        db.register(f"SELECT count(*), sum(n), max(x) FROM s [ROWS {count}] WHERE n > 0", name=f"rows{number}")
        db.register(f"SELECT k, count(*) FROM s [ROWS {count}] GROUP BY k", name=f"rowsby{number}")
    rng = random.Random(1)
    for number in range(40):
        count = rng.choice((1, 5, 10, 60))
        db.push("s", rows(rng, count, number * 12, rng.choice((0, 5, 5, 100))), wait=True)
    return db


def check_all(db: Database) -> None:
    for name in at_one_row(("one1", "by2", "rows1", "rowsby2"), tuple(db.catalog.queries)):
        both(db, name)
        for seconds in at_one_row((251.5,), (100, 251.5, 600)):
            try:
                both(db, name, at(seconds))
            except Gone:
                assert db.catalog.streams["s"].retain_us is not None
                with pytest.raises(Gone):
                    in_duckdb(db, name, at(seconds))


def test_late_tuples_windows_and_groups(late: Database) -> None:
    check_all(late)


@pytest.mark.not_at_one_row("what is kept is its subject, not who judges it")
def test_compaction_and_retention_replace_segments(late: Database) -> None:
    check_all(late)
    files = len(late.catalog.streams["s"].files)
    late.maintain()
    assert len(late.catalog.streams["s"].files) < files
    check_all(late)
    late.sql("ALTER STREAM s SET RETAIN 150 SECONDS")
    check_all(late)
    late.maintain()
    check_all(late)
    late.push("s", rows(random.Random(2), 40, 520, 60), wait=True)
    check_all(late)


@pytest.mark.not_at_one_row("what is kept is its subject, not who judges it")
def test_deleted_results_change_nothing(late: Database, tmp_path: Path) -> None:
    late.backfill()  # what is still written can't be deleted for good
    shutil.rmtree(tmp_path / "warehouse" / "derived" / "results")
    check_all(late)
    late.backfill()
    check_all(late)


@pytest.mark.not_at_one_row("what is kept is its subject, not who judges it")
def test_a_reopened_warehouse_folds_anew(late: Database, open_db: Open) -> None:
    expected = {name: rounded(late.invoke(name).table) for name in late.catalog.queries}
    late.close()
    db = open_db()
    assert {name: rounded(both(db, name)) for name in expected} == expected


@pytest.mark.not_at_one_row("what is kept is its subject, not who judges it")
@pytest.mark.parametrize("bytes_max", [0, 3_000])
def test_what_is_kept_is_bounded(open_db: Open, bytes_max: int) -> None:
    """Without room everything is folded for each invocation, and the answers are the same."""
    db = open_db(segment_rows_max=16, derived_memory_bytes_max=bytes_max)
    db.sql(STREAM)
    rng = random.Random(3)
    for number in range(4):
        db.register(f"SELECT {FOLDS} FROM s WHERE n > {number} {WINDOWS[number]}", name=f"q{number}")
        db.register(f"SELECT k, sum(n) FROM s WHERE n > {number} GROUP BY k {WINDOWS[number]}", name=f"g{number}")
    for number in range(6):
        db.push("s", rows(rng, 60, number * 80, 30), wait=True)
        for name in db.catalog.queries:
            both(db, name)
            assert db._invoker.aggregates.bytes <= bytes_max
            assert sum(row.memory_bytes for row in db.derived()) <= bytes_max


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many segments each look for matches was about."""
    looked: list[int] = []
    matches = Reader.matches

    def spy(reader: Reader, block: Any, pieces: Any) -> Any:
        looked.append(len(pieces))
        return matches(reader, block, pieces)

    monkeypatch.setattr(Reader, "matches", spy)
    return looked


def test_only_what_is_new_is_folded(db: Database, looked: list[int]) -> None:
    """The first invocation folds every segment, the next only the new one, and none twice for two queries."""
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT count(*) FROM ticks WHERE n > 3 BEGIN NOW - INTERVAL 50 SECONDS END NOW", name="a")
    db.register("SELECT count(*) AS c FROM ticks WHERE n > 3 BEGIN NOW - INTERVAL 70 SECONDS END NOW", name="b")
    for second in range(0, 100, 10):
        db.push("ticks", ticks(range(second, second + 10)), wait=True)
    assert values(db.invoke("a")) == [50]
    assert looked == [5]
    assert values(db.invoke("b")) == [70]
    assert values(db.sql("SELECT count(*) FROM ticks WHERE n > 3 BEGIN NOW - INTERVAL 70 SECONDS END NOW")) == [70]
    assert looked == [5, 2]
    db.push("ticks", ticks(range(100, 110)), wait=True)
    assert values(db.invoke("a")) == [50]
    assert looked == [5, 2, 1]
    assert values(db.invoke("b")) == [70]
    assert values(db.invoke("a", now=at(84))) == [50]
    assert sum(looked[3:]) == 2  # the segments at the two edges of the window that ends at another NOW
    looked.clear()
    assert values(db.invoke("a", now=at(83))) == [50]
    assert looked == []


def test_who_reads_the_past_will_read_on(db: Database, looked: list[int]) -> None:
    """A window that ended before the newest tuples is folded together with the covered segments right behind it."""
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT count(*) FROM ticks WHERE n > 3 BEGIN NOW - INTERVAL 10 SECONDS END NOW", name="a")
    for second in range(0, 100, 10):
        db.push("ticks", ticks(range(second, second + 10)), wait=True)
    for second in range(30, 100):
        assert values(db.invoke("a", now=at(second))) == [10], second
    assert len(looked) == 1
    assert sum(looked) <= 10


def test_a_long_window_takes_few_nodes(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    from ladle.operators.aggregates import RankedTree

    db = open_db(segment_rows_max=1, compact_files_min=100_000)
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT sum(n) FROM ticks BEGIN NOW - INTERVAL 1500 SECONDS END NOW", name="q")
    db.push("ticks", ticks(range(2_000)), wait=True)
    assert values(db.invoke("q")) == [sum(range(500, 2_000))]
    taken: list[int] = []
    parts = RankedTree.parts

    def spy(tree: Any, first: int, last: int) -> Any:
        nodes = parts(tree, first, last)
        taken.append(len(nodes or ()))
        return nodes

    monkeypatch.setattr(RankedTree, "parts", spy)
    assert values(db.invoke("q")) == [sum(range(500, 2_000))]
    assert taken
    assert max(taken) < 80


def test_registered_before_and_after_the_data(db: Database) -> None:
    db.sql(STREAM)
    db.register(f"SELECT {FOLDS} FROM s WHERE k = 'a'", name="before")
    assert both(db, "before").to_pylist()[0]["count(1)"] == 0
    db.push("s", rows(random.Random(4), 200, 100, 90), wait=True)
    db.register(f"SELECT {FOLDS} FROM s WHERE k = 'a' AND n IS NOT NULL", name="after")
    assert both(db, "before").to_pylist()[0]["count(1)"] > 0
    assert both(db, "after").to_pylist()[0]["count(1)"] > 0


def test_nothing_in_the_window(db: Database) -> None:
    db.sql(STREAM)
    db.register(
        "SELECT count(*) AS c, count(n) AS n, sum(n) AS s, avg(x) AS a, min(at) AS m, avg(d) AS d FROM s", name="q"
    )
    db.register("SELECT k, count(*) AS c FROM s GROUP BY k", name="g")
    nothing = {"c": 0, "n": 0, "s": None, "a": None, "m": None, "d": None}
    assert both(db, "q").to_pylist() == [nothing]
    assert both(db, "g").to_pylist() == []
    db.push("s", [{"k": None, "n": None, "x": None, "d": None, "at": START}], wait=True)
    assert both(db, "q").to_pylist() == [{**nothing, "c": 1, "m": START}]
    assert both(db, "g").to_pylist() == [{"k": None, "c": 1}]


def test_a_sum_that_passes_bigint_raises_as_in_spark(db: Database) -> None:
    db.sql(STREAM)
    db.register("SELECT sum(n) AS s FROM s", name="q")
    db.register("SELECT k, sum(n) AS s FROM s GROUP BY k", name="g")
    most = (1 << 63) - 1
    db.push("s", [{"k": "a", "n": most, "at": at(1)}], wait=True)
    db.push("s", [{"k": "a", "n": 5, "at": at(2)}], wait=True)
    for name in ("q", "g"):
        with pytest.raises(EvaluationError, match="9223372036854775812 is out of range"):
            db.invoke(name)
        with pytest.raises(EvaluationError):
            in_duckdb(db, name)


@pytest.mark.not_at_one_row("Spark raises if a sum passes BIGINT on the way, which depends on the order of its rows")
def test_a_sum_may_pass_bigint_on_the_way(db: Database) -> None:
    db.sql(STREAM)
    db.register("SELECT sum(n) AS s FROM s", name="q")
    db.register("SELECT k, sum(n) AS s FROM s GROUP BY k", name="g")
    most = (1 << 63) - 1
    for second, n in enumerate((most, 5, -6)):
        db.push("s", [{"k": "a", "n": n, "at": at(second)}], wait=True)
    assert both(db, "q").to_pylist() == [{"s": most - 1}]
    assert both(db, "g").to_pylist() == [{"k": "a", "s": most - 1}]


def test_what_raises_outside_the_window_does_not_count(db: Database) -> None:
    """In the same segment: only the tuples of the window are looked at, and that is left to DuckDB."""
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT count(*) FROM ticks WHERE 10 / n > 1 BEGIN NOW - INTERVAL 5 SECONDS END NOW", name="q")
    db.push("ticks", ticks(range(-4, 9)), wait=True)
    before = answered(db)
    assert values(db.invoke("q")) == [5]
    assert answered(db) == before
    with pytest.raises(EvaluationError, match=r"(?i)divi"):
        db.invoke("q", now=at(3))


def test_a_block_that_does_not_stand_is_left_to_duckdb(db: Database) -> None:
    """Unless it is every tuple: that needs no evaluation."""
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.push("ticks", ticks(range(20)), wait=True)
    assert values(db.sql("SELECT count(*) FROM ticks WHERE n > 5")) == [14]
    assert answered(db) == 0
    assert values(db.sql("SELECT count(*) FROM ticks")) == [20]
    assert answered(db) == 1
    db.register("SELECT n FROM ticks WHERE n > 5", name="rows")
    assert values(db.sql("SELECT max(n) FROM ticks WHERE n > 5")) == [19]
    assert values(db.sql("SELECT max(n) FROM rows")) == [19]
    assert answered(db) == 3


def test_mode_none_keeps_nothing(db: Database) -> None:
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.push("ticks", ticks(range(20)), wait=True)
    query = db.register("SELECT count(*) FROM ticks WHERE n > 5", name="q", materialize="none")
    assert values(query.invoke()) == [14]
    assert answered(db) == 0
    assert db._invoker.aggregates.bytes == 0
    assert "partial aggregates" not in query.explain()


def test_a_dropped_query_lets_go_of_its_tree(db: Database) -> None:
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.push("ticks", ticks(range(20)), wait=True)
    for name, bound in (("a", 5), ("b", 5), ("c", 7)):
        db.register(f"SELECT sum(n) FROM ticks WHERE n > {bound}", name=name)
        db.invoke(name)
    kept = db._invoker.aggregates.bytes
    db.unregister("a")
    assert db._invoker.aggregates.bytes == kept
    db.unregister("b")
    assert 0 < db._invoker.aggregates.bytes < kept
    db.unregister("c")
    assert db._invoker.aggregates.bytes == 0


def test_an_older_snapshot_and_a_newer_one_take_turns(late: Database) -> None:
    """Both are answered from one tree, also when compaction has replaced what the older one sees."""
    with late._store.pin() as old:
        plan = old.queries["one1"].plan
        expected = rounded(late._invoker.answer(plan, old).table)
        for step in range(4):
            late.push("s", rows(random.Random(step), 30, 460 + step * 10, 5), wait=True)
            late.maintain()
            both(late, "one1")
            assert rounded(late._invoker.answer(plan, old).table) == expected


def test_a_column_that_came_later(db: Database) -> None:
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.push("ticks", ticks(range(5)), wait=True)
    db.sql("ALTER STREAM ticks ADD COLUMN m DOUBLE")
    db.register("SELECT count(*) AS c, count(m) AS n, max(m) AS m FROM ticks", name="q")
    assert both(db, "q").to_pylist() == [{"c": 5, "n": 0, "m": None}]
    db.push("ticks", [{"n": 9, "m": 2.5, "at": at(9)}], wait=True)
    assert both(db, "q").to_pylist() == [{"c": 6, "n": 1, "m": 2.5}]


def test_arrival_time_and_complete(open_db: Open, clock: ManualClock) -> None:
    """A stream without a clock of its own: the window moves while nothing arrives."""
    db = open_db()
    db.sql("CREATE STREAM r (n INT)")
    db.register(
        "SELECT count(*) AS c, sum(n) AS s FROM r BEGIN NOW - INTERVAL 1 MINUTE END NOW",
        name="q",
        materialize="complete",
    )
    for number in range(5):
        db.push("r", [{"n": number}], wait=True)
        clock.advance(20_000_000)
    assert db.invoke("q").to_pylist() == [{"c": 2, "s": 7}]
    clock.advance(20_000_000)
    assert db.invoke("q").to_pylist() == [{"c": 1, "s": 4}]
    assert answered(db) > 0


def test_explain_says_so(db: Database) -> None:
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    for second in range(3):
        db.push("ticks", ticks([second]), wait=True)
    db.register("SELECT max(n) FROM ticks WHERE n > 0", name="q")
    assert "partial aggregates in a tree over 3 segments" in db.explain("q")
    assert "partial aggregates in a tree over 3 segments" in db.explain("SELECT count(*) FROM ticks")
    assert "partial aggregates" not in db.explain("SELECT count(*) FROM ticks WHERE n > 1")
    assert "partial aggregates" not in db.explain("SELECT count(DISTINCT n) FROM ticks")


def test_residual_rows_max_does_not_matter(open_db: Open) -> None:
    """Few rows are looked at, however many there are: no Spark is needed."""
    db = open_db(residual_rows_max=1)
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.push("ticks", ticks(range(20)), wait=True)
    db.register("SELECT max(n) FROM ticks BEGIN NOW - INTERVAL 5 SECONDS END NOW", name="q")
    assert values(db.invoke("q")) == [19]


def test_random_times_at_every_edge(db: Database) -> None:
    """One segment of strips out of order, asked at many NOWs."""
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    rng = random.Random(5)
    moments = [n + rng.uniform(-300, 300) for n in range(10_000)]
    table = pa.table(
        {
            "n": pa.array(range(10_000), pa.int32()),
            "at": pa.array([START + timedelta(seconds=moment) for moment in moments], pa.timestamp("us", tz="UTC")),
        }
    )
    db.push("ticks", table, wait=True)
    db.register(
        "SELECT count(*), sum(n), min(n), max(n) FROM ticks WHERE n % 3 = 1 BEGIN NOW - INTERVAL 1 HOUR END NOW",
        name="q",
    )
    db.register("SELECT count(*), sum(n) FROM ticks [ROWS 6000] WHERE n % 3 = 1", name="r")
    for seconds in (-400, 0, 100, 3_700, 4_096, 8_000, 9_990, 20_000):
        both(db, "q", at(seconds))
        both(db, "r", at(seconds))
