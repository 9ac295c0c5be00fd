"""TABLESAMPLE: which tuples are in a sample follows from their ids alone, whoever reads them, when and how.

The random tests of `tests/oracle` have samples in their queries; `test_between.py` and `test_as_of.py` follow some.
Here is what a sample promises, with the ids computed in plain Python.
"""

from __future__ import annotations

import shutil
from fractions import Fraction
from math import sqrt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values
from tests.support.sampling import sampled

from ladle.engine import Database
from ladle.errors import LadleError

TENTH, HALF = Fraction(1, 10), Fraction(1, 2)
MODES = ("none", "partial", "complete", "auto")


def push(db: Database, numbers: range) -> None:
    db.push("ticks", ticks(numbers), wait=True)


def of(db: Database, share: Fraction, numbers: range, seed: int = 0) -> list[int]:
    """The sampled ones of tuples whose number is their id."""
    stream = db.catalog.streams["ticks"].id
    return [number for number in numbers if sampled(stream, seed, share, number)]


def test_the_same_tuples_whatever_happens_to_the_files(open_db: Open, tmp_path: Path) -> None:
    db = open_db(compact_files_min=2, segment_rows_max=64, grace_seconds=0.0)
    db.sql(TICKS)
    queries = {
        "SELECT n FROM ticks TABLESAMPLE (50 PERCENT)": (HALF, 0, 0),
        "SELECT n FROM ticks TABLESAMPLE (10 PERCENT) WHERE n > 20": (TENTH, 0, 21),
        "SELECT n FROM ticks TABLESAMPLE (BUCKET 1 OUT OF 2) REPEATABLE (9) WHERE n % 7 <> 9": (HALF, 9, 0),
        "SELECT max(n) AS n FROM ticks TABLESAMPLE (50 PERCENT) GROUP BY n": (HALF, 0, 0),
    }
    for number, text in enumerate(queries):
        for mode in MODES:
            db.register(text, name=f"q{number}_{mode}", materialize=mode)
    upto = 0

    def check() -> None:
        for number, (text, (share, seed, first)) in enumerate(queries.items()):
            expected = [each for each in of(db, share, range(upto), seed) if each >= first]
            assert sorted(values(db.sql(text))) == expected, text
            for mode in MODES:
                assert sorted(values(db.invoke(f"q{number}_{mode}"))) == expected, (text, mode)

    check()
    for count in (1, 40, 3, 9, 25, 70):
        push(db, range(upto, upto + count))
        upto += count
        check()
    before = {file.name for file in db.catalog.streams["ticks"].files}
    db.maintain()
    assert {file.name for file in db.catalog.streams["ticks"].files} != before
    check()
    shutil.rmtree(tmp_path / "warehouse" / "derived")
    check()
    db.close()
    db = open_db(compact_files_min=2, segment_rows_max=7)
    push(db, range(upto, upto + 50))
    upto += 50
    check()


def test_a_hundred_thousand_tuples(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    rows = 100_000
    table = pa.table(
        {"n": pa.array(range(rows), pa.int32()), "at": pa.array([at(0)] * rows, pa.timestamp("us", "UTC"))}
    )
    db.push("ticks", table, wait=True)

    def numbers(sample: str) -> set[int]:
        return set(values(db.sql(f"SELECT n FROM ticks TABLESAMPLE {sample}")))

    before = numbers("(10 PERCENT)")
    assert abs(len(before) - rows / 10) < 5 * sqrt(rows * 0.09)
    assert before == set(of(db, TENTH, range(rows)))
    assert before < numbers("(20 PERCENT)") < numbers("(99.5 PERCENT) REPEATABLE (0)")
    other = numbers("(10 PERCENT) REPEATABLE (1)")
    assert abs(len(before & other) - rows / 100) < 5 * sqrt(rows * 0.0099)
    assert numbers("(0 PERCENT)") == set()
    assert numbers("(100 PERCENT)") == set(range(rows))
    answer = db.sql("SELECT count(*) AS c, sum(n) AS s FROM ticks TABLESAMPLE (10 PERCENT)")[0]
    assert (answer["c"], answer["s"]) == (len(before), sum(before))
    db.close()
    db = open_db()
    assert numbers("(10 PERCENT)") == before


def test_rows_are_counted_before_the_sample(db: Database) -> None:
    db.sql(TICKS)
    push(db, range(60))
    expected = of(db, HALF, range(40, 60))
    for text in ("[ROWS 20] TABLESAMPLE (50 PERCENT)", "TABLESAMPLE (50 PERCENT) [ROWS 20]"):
        assert values(db.sql(f"SELECT n FROM ticks {text}")) == expected
    window = values(db.sql("SELECT n FROM ticks TABLESAMPLE (50 PERCENT) t BEGIN NOW - INTERVAL 9 SECONDS END NOW"))
    assert window == of(db, HALF, range(51, 60))


def test_an_entry_of_the_past_has_the_same_sample(db: Database) -> None:
    db.sql(TICKS)
    push(db, range(30))
    entry = db.sql("SELECT n FROM ticks").entry
    push(db, range(30, 60))
    found = db.sql(f"SELECT n FROM ticks VERSION AS OF {entry} TABLESAMPLE (50 PERCENT)")
    assert values(found) == of(db, HALF, range(30))


def test_two_samples_of_one_stream_meet_in_joins(open_db: Open) -> None:
    db = open_db(segment_rows_max=8)
    db.sql(TICKS)
    text = (
        "SELECT a.n FROM ticks TABLESAMPLE (50 PERCENT) [RANGE 1 HOUR] a "
        "JOIN ticks TABLESAMPLE (50 PERCENT) REPEATABLE (3) [RANGE 1 HOUR] b ON a.n = b.n"
    )
    whole = "SELECT a.n FROM ticks [RANGE 1 HOUR] a JOIN ticks [RANGE 1 HOUR] b ON a.n = b.n"
    db.register(text, name="joined", materialize="partial")
    db.register(whole, name="whole", materialize="partial")
    for first in (0, 20, 40):
        push(db, range(first, first + 20))
        db.backfill()
        both = set(of(db, HALF, range(first + 20))) & set(of(db, HALF, range(first + 20), 3))
        assert sorted(values(db.invoke("joined"))) == sorted(both)
        assert sorted(values(db.invoke("whole"))) == list(range(first + 20))


def test_subscribers_hear_of_sampled_tuples_alone(db: Database) -> None:
    db.sql(TICKS)
    db.register("SELECT n FROM ticks TABLESAMPLE (50 PERCENT) [RANGE 10 SECONDS]", name="q")
    with db.query("q").subscribe() as changes:
        told: list[int] = []
        gone: list[int] = []
        for first in range(0, 60, 6):
            push(db, range(first, first + 6))
            while (delta := changes.next(0.0)) is not None:
                told += delta.inserted.column("n").to_pylist()
                gone += delta.retracted.column("n").to_pylist()
    assert told == of(db, HALF, range(60))
    assert gone == of(db, HALF, range(50))


def test_tuples_that_come_into_a_window_as_time_passes_are_sampled_too(db: Database) -> None:
    db.sql(TICKS)
    window = "BEGIN NOW - INTERVAL 30 SECONDS END NOW - INTERVAL 10 SECONDS"
    db.register(f"SELECT n FROM ticks TABLESAMPLE (50 PERCENT) {window}", name="q")
    with db.query("q").subscribe() as changes:
        told: list[int] = []
        gone: list[int] = []
        for second in range(0, 60, 3):
            push(db, range(second, second + 3))
            while (delta := changes.next(0.0)) is not None:
                told += delta.inserted.column("n").to_pylist()
                gone += delta.retracted.column("n").to_pylist()
    assert (told, gone) == (of(db, HALF, range(50)), of(db, HALF, range(30)))


def test_what_retention_left_has_the_same_sample(open_db: Open) -> None:
    db = open_db(segment_rows_max=4, grace_seconds=0.0)
    db.sql(f"{TICKS} RETAIN INTERVAL 20 SECONDS")
    for first in range(0, 80, 10):
        push(db, range(first, first + 10))
        db.maintain()
    assert db.catalog.streams["ticks"].files[0].first_id > 40
    assert values(db.sql("SELECT n FROM ticks TABLESAMPLE (50 PERCENT)")) == of(db, HALF, range(60, 80))


def test_explain_says_which_share(db: Database) -> None:
    db.sql(TICKS)
    push(db, range(40))
    db.register("SELECT n, count(*) AS c FROM ticks TABLESAMPLE (BUCKET 1 OUT OF 3) GROUP BY n", name="q")
    text = "\n".join(values(db.sql("EXPLAIN QUERY q")))
    assert "StreamScan ticks TABLESAMPLE (BUCKET 1 OUT OF 3) | everything retained" in text
    assert "sample    about 33.33 % of the tuples: TABLESAMPLE (BUCKET 1 OUT OF 3)" in text
    assert "(about 14 tuples)" in text
    assert "tree of aggregates" not in text
    once = values(db.sql("EXPLAIN SELECT n FROM ticks TABLESAMPLE (10 PERCENT) REPEATABLE (7)"))
    assert "      sample    10 % of the tuples: TABLESAMPLE (10 PERCENT) REPEATABLE (7)" in once


def test_aggregates_of_all_and_of_a_sample(db: Database) -> None:
    """A tree of aggregates over all tuples never serves a sample of them."""
    db.sql(TICKS)
    push(db, range(50))
    for _ in range(2):
        assert db.sql("SELECT count(*) AS c FROM ticks")[0]["c"] == 50
        assert db.sql("SELECT count(*) AS c FROM ticks TABLESAMPLE (50 PERCENT)")[0]["c"] == len(
            of(db, HALF, range(50))
        )
    both = "SELECT count(*) AS c FROM ticks UNION ALL SELECT count(*) FROM ticks TABLESAMPLE (50 PERCENT)"
    assert sorted(values(db.sql(both))) == sorted([50, len(of(db, HALF, range(50)))])


def test_equal_blocks_are_shared_by_samples(db: Database) -> None:
    """What is kept of a block is of all its tuples, so samples of it need nothing of their own."""
    db.sql(TICKS)
    push(db, range(50))
    for number, sample in enumerate(("", "TABLESAMPLE (10 PERCENT)", "TABLESAMPLE (50 PERCENT) REPEATABLE (4)")):
        db.register(f"SELECT n FROM ticks {sample} WHERE n > 5", name=f"q{number}", materialize="partial")
    blocks = {db.catalog.queries[f"q{number}"].blocks for number in range(3)}
    assert len(blocks) == 1


def test_texts_that_differ_in_the_share_alone(db: Database) -> None:
    db.sql(TICKS)
    push(db, range(80))
    for percent in (10, 20, 30, 40, 50):
        for above in (3, 4, 5):
            text = f"SELECT n FROM ticks TABLESAMPLE ({percent} PERCENT) REPEATABLE ({above}) WHERE n > {above}"
            name = db.register(text).name
            expected = [n for n in of(db, Fraction(percent, 100), range(80), above) if n > above]
            assert values(db.invoke(name)) == expected
            (shown,) = values(db.sql(f"SHOW CREATE QUERY {name}"), "statement")
            assert f"TABLESAMPLE ({percent} PERCENT) REPEATABLE ({above})" in shown


@pytest.mark.parametrize("mode", MODES)
def test_a_view_of_a_sample_is_read_like_any_other(db: Database, mode: str) -> None:
    db.sql(TICKS)
    db.register("SELECT n FROM ticks TABLESAMPLE (50 PERCENT)", name="half", materialize=mode)
    db.register("SELECT count(*) AS c FROM half", name="counted", materialize=mode)
    push(db, range(40))
    assert values(db.sql("SELECT c FROM counted")) == [len(of(db, HALF, range(40)))]
    db.sql("CREATE TABLE copies (n INT)")
    db.sql("INSERT INTO copies SELECT n FROM ticks TABLESAMPLE (50 PERCENT)")
    assert sorted(values(db.sql("SELECT n FROM copies"))) == of(db, HALF, range(40))


def test_a_dear_function_is_not_called_for_what_is_left_out(db: Database) -> None:
    """A factor may raise on tuples that are not in the sample."""
    db.sql(TICKS)
    push(db, range(40))
    inside = of(db, HALF, range(40))
    outside = next(n for n in range(40) if n not in inside)
    text = f"WHERE 10 / (n - {outside}) < 100"
    with pytest.raises(LadleError):
        db.sql(f"SELECT n FROM ticks {text}")
    assert values(db.sql(f"SELECT n FROM ticks TABLESAMPLE (50 PERCENT) {text}")) == inside


def test_quarantines_have_ids_too(db: Database) -> None:
    db.sql(TICKS)
    rows: list[dict[str, Any]] = [{"n": number, "at": None} for number in range(30)]
    db.push("ticks", rows, wait=True)
    quarantine = db.catalog.streams["ticks"].quarantine
    assert quarantine is not None
    found = db.sql("SELECT row FROM ticks.quarantine TABLESAMPLE (50 PERCENT)")
    assert len(found) == sum(sampled(quarantine.id, 0, HALF, number) for number in range(30))
