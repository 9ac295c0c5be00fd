"""Answers at another NOW: nothing later is in them, and what retention let go of is Gone, not silently missing.

Random queries and times are compared with DuckDB in `tests/oracle`; here is what a reader of the docs expects.
"""

from __future__ import annotations

import json
import random
from datetime import datetime

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values

from ladle.catalog import Catalog
from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.errors import Gone
from ladle.testing.one_row import at_one_row

MODES = ("none", "partial", "complete", "auto")

WITHOUT_WINDOW = {
    "SELECT n FROM ticks WHERE n > 0": [1, 2, 3],
    "SELECT n FROM ticks": [0, 1, 2, 3],
    "SELECT count(*) FROM ticks": [4],
    "SELECT max(n) FROM ticks WHERE n <> 2": [3],
    "SELECT count(*) FROM ticks GROUP BY n % 2": [2, 2],
    "SELECT one.n FROM ticks one, ticks [RANGE 2 SECONDS] two WHERE one.n = two.n": [2, 3],
    "SELECT n FROM ticks WHERE n = (SELECT max(n) FROM ticks)": [3],
    "SELECT n FROM ticks WHERE n IN (SELECT n + 1 FROM ticks) ORDER BY n": [1, 2, 3],
    "SELECT n FROM ticks [RANGE 2 SECONDS] UNION ALL SELECT n + 100 FROM ticks WHERE n < 1": [2, 3, 100],
    "SELECT n FROM inner_query WHERE n > 1": [2, 3],
    "WITH t AS (SELECT n FROM ticks) SELECT sum(n) FROM t": [6],
}


@pytest.mark.parametrize("mode", at_one_row(MODES[-1:], MODES))
def test_without_a_window_nothing_later_is_seen(open_db: Open, mode: str) -> None:
    db = open_db(segment_rows_max=3)
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n >= 0", name="inner_query")
    joins = {text for text in WITHOUT_WINDOW if "two" in text}
    for number, text in enumerate(WITHOUT_WINDOW):
        db.register(text, name=f"q{number}", materialize="none" if text in joins else mode)
    db.push("ticks", ticks([0, 2, 1]), wait=True)
    db.push("ticks", ticks([5, 3, 4, 9]), wait=True)
    for _ in range(2):
        for number, (text, expected) in enumerate(WITHOUT_WINDOW.items()):
            assert sorted(values(db.invoke(f"q{number}", now=at(3)))) == expected, text
        assert values(db.invoke("q2")) == [7]
        db.backfill()
    answer = db.invoke("q1", now=at(3))
    assert answer.now == at(3)
    assert answer.windows[0].end == at(3)
    assert sorted(values(db.invoke("q1", now=at(100)))) == [0, 1, 2, 3, 4, 5, 9]


def retained(open_db: Open, *, cleaned: bool) -> Database:
    """The seconds 0 to 20, of which those after 10 are retained."""
    db = open_db(segment_rows_max=3, grace_seconds=0.0)
    db.sql(f"{TICKS} RETAIN INTERVAL 10 SECONDS")
    for second in range(21):
        db.push("ticks", ticks([second]), wait=True)
    if cleaned:
        db.maintain()
    return db


@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize(
    ("text", "first", "expected"),
    [
        ("SELECT n FROM ticks", 10.000001, []),
        ("SELECT count(*) FROM ticks", 10.000001, [0]),
        ("SELECT n FROM ticks BEGIN TIMESTAMP '2023-11-14 12:00:02' END NOW", 10.000001, []),
        ("SELECT n FROM ticks [RANGE 1 MINUTE]", 10.000001, []),
        ("SELECT n FROM ticks [RANGE 3 SECONDS]", 13, [11, 12, 13]),
        ("SELECT sum(n) FROM ticks [RANGE 3 SECONDS]", 13, [36]),
        ("SELECT n FROM ticks BEGIN NOW - INTERVAL 4 SECONDS END NOW - INTERVAL 2 SECONDS", 14, [11, 12]),
        ("SELECT n FROM ticks [ROWS 2]", 12, [11, 12]),
        (
            "SELECT a.n FROM ticks [RANGE 2 SECONDS] a, ticks [RANGE 4 SECONDS] b WHERE a.n = b.n",
            14,
            [13, 14],
        ),
        ("SELECT n FROM ticks WHERE n = (SELECT max(n) FROM ticks [ROWS 3])", 13, [13]),
    ],
)
def test_what_retention_let_go_of_is_gone(
    open_db: Open, text: str, first: float, expected: list[int], cleaned: bool
) -> None:
    db = retained(open_db, cleaned=cleaned)
    query = db.register(text, name="q", materialize="none")
    for seconds in (-100, 5, 10, first - 0.000001):
        with pytest.raises(Gone) as caught:
            query.invoke(now=at(seconds))
        assert f"stream 'ticks' up to {at(10)} are beyond its retention" in caught.value.message
        assert caught.value.hint == f"there are answers from {at(first)} on"
    assert sorted(values(query.invoke(now=at(first)))) == expected
    assert sorted(values(query.invoke(now=at(20)))) == sorted(values(query.invoke()))


def test_rows_that_are_fewer_than_asked_for(open_db: Open) -> None:
    """At present there are only those that are retained; of the past they are no answer."""
    query = retained(open_db, cleaned=True).register("SELECT n FROM ticks [ROWS 50]", name="q")
    assert len(query.invoke()) == 10
    with pytest.raises(Gone, match=r"there are answers from 2023-11-14 12:00:20\+00:00 on"):
        query.invoke(now=at(19))


def test_windows_that_need_nothing_of_it_are_answered(open_db: Open) -> None:
    db = retained(open_db, cleaned=True)
    snapshot = "SELECT n FROM ticks BEGIN TIMESTAMP '2023-11-14 12:00:09' END TIMESTAMP '2023-11-14 12:00:13'"
    landmark = "SELECT n FROM ticks BEGIN TIMESTAMP '2023-11-14 12:00:11' END NOW"
    assert values(db.register(snapshot, name="snapshot").invoke(now=at(1))) == [11, 12, 13]
    assert values(db.register(landmark, name="landmark").invoke(now=at(1))) == []


def test_before_the_first_tuple_nothing_is_gone(db: Database) -> None:
    """A stream that never had what is asked for answers so."""
    db.sql(f"{TICKS} RETAIN INTERVAL 10 SECONDS")
    db.push("ticks", ticks([15, 20]), wait=True)
    query = db.register("SELECT n FROM ticks [RANGE 3 SECONDS]", name="q")
    assert values(query.invoke(now=at(2))) == []
    assert values(query.invoke(now=at(16))) == [15]


def test_a_longer_retention_brings_nothing_back(open_db: Open) -> None:
    db = retained(open_db, cleaned=True)
    query = db.register("SELECT n FROM ticks [RANGE 3 SECONDS]", name="q")
    db.sql("ALTER STREAM ticks SET RETAIN INTERVAL 1 HOUR")
    for _ in range(2):
        with pytest.raises(Gone):
            query.invoke(now=at(12))
        assert values(query.invoke(now=at(13))) == [11, 12, 13]
        db.close()
        db = open_db()
        query = db.query("q")


def test_a_checkpoint_that_does_not_know_what_was_lost(open_db: Open) -> None:
    db = retained(open_db, cleaned=True)
    assert db.catalog.streams["ticks"].lost_us is not None
    old = json.loads(json.dumps(db.catalog.to_json()))
    for stream in old["streams"]:
        del stream["lost_us"], stream["quarantine"]["lost_us"]
        # By a version that knew the last epoch of which a file was removed, and not its latest tuple.
        stream["forgotten"], stream["quarantine"]["forgotten"] = 9, 0
    stream = Catalog.from_json(old).streams["ticks"]
    assert stream.lost_us is not None
    assert db.catalog.streams["ticks"].lost_us <= stream.lost_us < min(file.ts_min_us for file in stream.files)


def test_on_arrival_time(open_db: Open, clock: ManualClock) -> None:
    db = open_db(grace_seconds=0.0)
    db.sql("CREATE STREAM s (n INT) RETAIN INTERVAL 10 SECONDS")
    begun = clock.now_us()
    query = db.register("SELECT n FROM s [RANGE 3 SECONDS]", name="q")
    for n in range(15):
        db.push("s", [{"n": n}], wait=True)
        clock.advance(1_000_000)
    moment = [datetime.fromtimestamp(begun / 1e6 + second).astimezone() for second in range(16)]
    assert values(query.invoke(now=moment[10])) == [8, 9, 10]
    with pytest.raises(Gone):
        query.invoke(now=moment[6])
    clock.advance(3_600_000_000)
    db.maintain()
    with pytest.raises(Gone, match="there are answers from"):
        query.invoke(now=moment[12])
    # what was after the last tuple is known: nothing came
    assert values(query.invoke(now=datetime.fromtimestamp(begun / 1e6 + 100).astimezone())) == []


def test_random_times_against_a_list(open_db: Open) -> None:
    """Late tuples, small segments, every window: an answer has all that a list of everything has, or is Gone."""
    rng = random.Random(7)
    db = open_db(segment_rows_max=3, grace_seconds=0.0, compact_files_min=2)
    db.sql(f"{TICKS} RETAIN INTERVAL 12 SECONDS")
    arrived: list[int] = []
    db.register("SELECT n FROM ticks [RANGE 4 SECONDS]", name="q")
    gone = answered = 0
    for clock in range(0, 60, 2):
        batch = [clock, *(clock - rng.randint(0, 6) for _ in range(rng.randint(0, 2)))]
        arrived += [n for n in batch if n > (max(arrived, default=0) - 12)]
        db.push("ticks", ticks(batch), wait=True)
        if rng.random() < 0.3:
            db.maintain()
        for _ in range(6):
            now = rng.randint(-3, clock + 3)
            expected = [n for n in arrived if now - 4 < n <= now]
            whole = all(n > max(arrived) - 12 for n in expected)
            try:
                assert values(db.invoke("q", now=at(now))) == expected
                answered += 1
            except Gone:
                gone += 1
                assert now < clock
                assert not whole or now - 4 < max(arrived) - 12
    assert gone > 20
    assert answered > 50
