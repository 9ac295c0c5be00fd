"""Windows: edges, kinds, NOW in the past and the future, late tuples, ROWS over segments, retention, MAX AHEAD.

Most tests run in every mode, on small segments, before and after compaction: the modes must not differ.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.conftest import QUIET, Open
from tests.engine.rows import START, TICKS, at, ticks, values

from ladle.clock import ManualClock, to_us
from ladle.engine import Database
from ladle.errors import Gone, TypeMismatch
from ladle.testing import connect_inline
from ladle.testing.one_row import at_one_row

MODES = ("none", "partial", "complete")
ROWS = "SELECT n FROM ticks [ROWS {rows}]"

Ask = Callable[..., list[int]]


@pytest.fixture(params=MODES)
def ask(request: pytest.FixtureRequest, open_db: Open) -> Ask:
    """Answers of a query text over `ticks`, standing in one of the modes; the same again after a backfill."""
    db = open_db(segment_rows_max=3, compact_files_min=2, grace_seconds=0.0)
    db.sql(TICKS)
    names: dict[str, str] = {}

    def invoke(text: str, now: datetime | None = None) -> list[int]:
        if text not in names:
            names[text] = f"q{len(names)}"
            db.register(text, name=names[text], materialize=request.param)
        first = values(db.invoke(names[text], now=now))
        db.backfill()
        again = values(db.invoke(names[text], now=now))
        assert again == first
        if now is None:
            assert values(db.sql(text)) == first
        return first

    invoke.db = db  # type: ignore[attr-defined]
    return invoke


def db_of(ask: Ask) -> Database:
    db: Database = ask.db  # type: ignore[attr-defined]
    return db


def test_the_begin_is_out_and_the_end_is_in(ask: Ask) -> None:
    db_of(ask).push("ticks", ticks([0, 1, 2, 3, 4, 5, 6, 7]), wait=True)
    text = "SELECT n FROM ticks BEGIN TIMESTAMP '2023-11-14 12:00:02' END TIMESTAMP '2023-11-14 12:00:05'"
    assert ask(text) == [3, 4, 5]
    micro = (
        "SELECT n FROM ticks BEGIN TIMESTAMP '2023-11-14 12:00:01.999999' END TIMESTAMP '2023-11-14 12:00:05.000001'"
    )
    assert ask(micro) == [2, 3, 4, 5]
    point = "SELECT n FROM ticks BEGIN TIMESTAMP '2023-11-14 12:00:05' END TIMESTAMP '2023-11-14 12:00:05'"
    assert ask(point) == []


def test_sliding_and_landmark_move_with_the_stream(ask: Ask) -> None:
    sliding = "SELECT n FROM ticks WHERE n <> 4 BEGIN NOW - INTERVAL 3 SECONDS END NOW"
    ranged = "SELECT n FROM ticks [RANGE 3 SECONDS] WHERE n <> 4"
    landmark = "SELECT n FROM ticks WHERE n <> 4 BEGIN TIMESTAMP '2023-11-14 12:00:03' END NOW"
    behind = "SELECT n FROM ticks WHERE n <> 4 BEGIN NOW - INTERVAL 4 SECONDS END NOW - INTERVAL 2 SECONDS"
    db = db_of(ask)
    for last in range(12):
        db.push("ticks", ticks([last]), wait=True)
        seen = [n for n in range(last + 1) if n != 4]
        assert ask(sliding) == ask(ranged) == [n for n in seen if last - 3 < n]
        assert ask(landmark) == [n for n in seen if n > 3]
        assert ask(behind) == [n for n in seen if last - 4 < n <= last - 2]
        if last % 5 == 4:
            db.maintain()


def test_another_now(ask: Ask) -> None:
    db = db_of(ask)
    db.push("ticks", ticks(range(10)), wait=True)
    sliding = "SELECT n FROM ticks WHERE n >= 0 BEGIN NOW - INTERVAL 3 SECONDS END NOW"
    assert ask(sliding) == [7, 8, 9]
    assert ask(sliding, at(4)) == [2, 3, 4]
    assert ask(sliding, at(4).replace(tzinfo=None)) == [2, 3, 4]
    assert ask(sliding, at(4).astimezone(tz=None)) == [2, 3, 4]
    assert ask(sliding, at(4.5)) == [2, 3, 4]
    assert ask(sliding, at(11)) == [9]
    assert ask(sliding, at(12)) == []
    assert ask(sliding, at(-1)) == []
    assert ask(sliding) == [7, 8, 9]
    landmark = "SELECT n FROM ticks WHERE n >= 0 BEGIN TIMESTAMP '2023-11-14 12:00:07' END NOW"
    assert ask(landmark, at(5)) == []
    assert ask(landmark, at(500)) == [8, 9]
    rows = ROWS.format(rows=3)
    assert ask(rows) == [7, 8, 9]
    assert ask(rows, at(4)) == [2, 3, 4]
    assert ask(rows, at(0)) == [0]
    assert ask(rows, at(-1)) == []


@pytest.mark.parametrize("now", [datetime.min, datetime.max, datetime(1, 1, 1, tzinfo=UTC)])
def test_the_ends_of_time(db: Database, now: datetime) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks([1]), wait=True)
    for number, bounds in enumerate(
        [
            "BEGIN NOW - INTERVAL 1 MONTH END NOW + INTERVAL 1 MONTH",
            "BEGIN NOW - INTERVAL 20000 YEARS END NOW + INTERVAL 20000 YEARS",
            "BEGIN NOW - INTERVAL 4000000 DAYS END NOW + INTERVAL 4000000 DAYS",
        ]
    ):
        db.register(f"SELECT n FROM ticks {bounds}", name=f"q{number}")
        assert len(db.invoke(f"q{number}", now=now)) <= 1
        assert values(db.invoke(f"q{number}")) == [1]
        assert "SLIDING" in db.explain(f"q{number}").upper()


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        ("BEGIN '0001-01-01' END NOW", 1),
        ("BEGIN '0001-01-01 00:00:00+05:00' END NOW", 1),
        ("BEGIN '0001-01-01' - INTERVAL 1 DAY END '2024-01-01' + INTERVAL 20000 YEARS", 1),
        ("BEGIN '9999-12-31' + INTERVAL 5 DAYS", 0),
        ("BEGIN '0001-01-01' - INTERVAL 9 DAYS END '0001-01-01' - INTERVAL 5 DAYS", 0),
    ],
)
def test_constant_bounds_at_the_ends_of_time(db: Database, bounds: str, count: int) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks([1]), wait=True)
    db.register(f"SELECT n FROM ticks {bounds}", name="q")
    answer = db.invoke("q")
    assert len(answer) == count
    assert str(answer.windows[0])
    assert "moment there is" in db.explain("q") or "0001-01-01 00:00:00" in db.explain("q")


def test_late_tuples_count_where_they_belong(ask: Ask) -> None:
    db = db_of(ask)
    sliding = "SELECT n FROM ticks WHERE n > 0 BEGIN NOW - INTERVAL 4 SECONDS END NOW"
    rows = ROWS.format(rows=3)
    db.push("ticks", ticks([1, 10, 8]), wait=True)
    assert ask(sliding) == [10, 8]
    db.push("ticks", ticks([2, 9]), wait=True)
    assert ask(sliding) == [10, 8, 9]
    assert ask(rows) == [8, 2, 9]
    assert ask(rows, at(8)) == [1, 8, 2]
    db.push("ticks", ticks([12]), wait=True)
    assert ask(sliding) == [10, 9, 12]
    assert ask("SELECT n FROM ticks") == [1, 10, 8, 2, 9, 12]


def test_rows_count_tuples_in_arrival_order_over_segments(ask: Ask) -> None:
    db = db_of(ask)
    for start in range(0, 20, 4):
        db.push("ticks", ticks(range(start, start + 4)), wait=True)
    for _ in range(2):
        for rows in (1, 2, 3, 4, 7, 19, 20, 21, 1_000):
            assert ask(ROWS.format(rows=rows)) == list(range(20))[-rows:]
        assert ask("SELECT n FROM ticks [ROWS 5] WHERE n < 17") == [15, 16]
        assert ask("SELECT count(*) FROM ticks [ROWS 7]") == [7]
        db.maintain()


@settings(max_examples=at_one_row(10, 25))
@given(
    batches=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), min_size=1, max_size=6),
    rows=st.integers(1, 12),
    now=st.one_of(st.none(), st.integers(-1, 32)),
    retain=st.one_of(st.none(), st.integers(1, 20)),
)
def test_rows_are_the_last_arrivals_up_to_now(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], rows: int, now: int | None, retain: int | None
) -> None:
    """Against a list of what arrived."""
    small = {**QUIET, "segment_rows_max": 3}
    with connect_inline(tmp_path_factory.mktemp("w") / "w", clock=ManualClock(), settings=small) as db:
        db.sql(TICKS)
        for batch in batches:
            db.push("ticks", ticks(batch), wait=True)
        if retain is not None:
            db.sql(f"ALTER STREAM ticks SET RETAIN INTERVAL {retain} SECONDS")
        arrived = [n for batch in batches for n in batch]
        floor = -1_000 if retain is None else max(arrived) - retain
        limit = max(arrived) if now is None else now
        seen = [n for n in arrived if floor < n <= limit]
        query = db.register(ROWS.format(rows=rows), name="q")
        if limit < max(arrived) and min(arrived) <= floor and len(seen) < rows:
            with pytest.raises(Gone):
                query.invoke(now=at(limit))
        else:
            assert values(query.invoke(now=None if now is None else at(now))) == seen[-rows:]


def test_windows_on_arrival_time(open_db: Open, clock: ManualClock) -> None:
    db = open_db(segment_rows_max=2)
    db.sql("CREATE STREAM s (n INT)")
    for mode in MODES:
        db.register("SELECT n FROM s WHERE n >= 0 BEGIN NOW - INTERVAL 10 SECONDS END NOW", name=mode, materialize=mode)
    begun = clock.now_us()
    for n in range(6):
        db.push("s", [{"n": n}, {"n": n + 100}], wait=True)
        clock.advance(4_000_000)
    # now is 24 s after the first; arrivals at 0, 4, 8, 12, 16, 20
    for mode in MODES:
        assert values(db.invoke(mode)) == [4, 104, 5, 105], mode
    clock.advance(2_000_000)
    for mode in MODES:
        assert values(db.invoke(mode)) == [5, 105], mode
    clock.advance(4_000_000)
    for mode in MODES:
        assert values(db.invoke(mode)) == [], mode
        past = datetime.fromtimestamp(begun / 1e6, UTC) + timedelta(seconds=5)
        assert values(db.invoke(mode, now=past)) == [0, 100, 1, 101], mode
    assert db.sql("SELECT n, ts FROM s [ROWS 1]").to_pylist()[0]["n"] == 105
    assert len(db.sql("SELECT DISTINCT ts FROM s")) == 6
    assert "ts" not in db.sql("SELECT * FROM s").columns


def test_a_moment_is_stamped_when_it_was_pushed(open_db: Open, clock: ManualClock) -> None:
    """A push that waited arrived when it was received, not when it was taken in."""
    db = open_db()
    db.sql("CREATE STREAM s (n INT)")
    received = clock.now_us()
    db._ingest.push(db.catalog.streams["s"], pa.table({"n": [1]}))
    clock.advance(3_600_000_000)
    db.push("s", [{"n": 2}], wait=True)
    stamps = [to_us(moment) for moment in values(db.sql("SELECT ts FROM s"))]
    assert stamps == [received, clock.now_us()]


def test_retention_floors_every_window(ask: Ask) -> None:
    db = db_of(ask)
    db.sql("ALTER STREAM ticks SET RETAIN INTERVAL 5 SECONDS")
    everything = "SELECT n FROM ticks WHERE n >= 0"
    for last in range(14):
        db.push("ticks", ticks([last]), wait=True)
        expected = [n for n in range(last + 1) if n > last - 5]
        assert ask(everything) == expected
        assert ask("SELECT n FROM ticks BEGIN NOW - INTERVAL 1 HOUR END NOW") == expected
        assert ask(ROWS.format(rows=100)) == expected
        assert ask(ROWS.format(rows=2)) == expected[-2:]
        if last >= 5:
            with pytest.raises(Gone, match="beyond its retention"):
                ask(everything, at(last - 5))
            assert ask(everything, at(last - 4)) == expected[:1]
        else:
            assert ask(everything, at(last - 100)) == []
        if last % 4 == 3:
            db.maintain()
    assert sum(file.rows for file in db.catalog.streams["ticks"].files) < 14
    db.push("ticks", ticks([13, 8, 2]), wait=True)
    assert ask(everything) == [9, 10, 11, 12, 13, 13]
    assert (
        values(db.sql("SELECT reason FROM ticks.quarantine")) == [f"at: older than the stream's retention, {at(8)}"] * 2
    )


def test_old_data_into_a_new_stream(db: Database) -> None:
    """The clock of a stream with its own time stands still until there is one; the wall says nothing about it."""
    db.sql(f"{TICKS} RETAIN INTERVAL 1 MINUTE")
    db.push("ticks", [{"n": 1, "at": datetime(1999, 1, 1)}], wait=True)
    db.push("ticks", [{"n": 2, "at": datetime(1999, 1, 1, 0, 0, 30)}], wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [1, 2]
    assert len(db.sql("SELECT * FROM ticks.quarantine")) == 0


def test_retention_on_arrival_time_goes_by_the_wall(open_db: Open, clock: ManualClock) -> None:
    db = open_db(grace_seconds=0.0)
    db.sql("CREATE STREAM s (n INT) RETAIN INTERVAL 10 SECONDS")
    db.register("SELECT n FROM s WHERE n > 0", name="q", materialize="complete")
    db.push("s", [{"n": 1}], wait=True)
    clock.advance(9_999_999)
    assert values(db.invoke("q")) == [1]
    clock.advance(1)
    assert values(db.invoke("q")) == []
    db.maintain()
    assert db.catalog.streams["s"].files == ()
    assert db.status().streams[0].rows == 1
    assert db.status().streams[0].retained_rows == 0


def test_tuples_too_far_ahead_move_no_clock(open_db: Open, clock: ManualClock) -> None:
    db = open_db()
    db.sql("CREATE STREAM s (n INT, at TIMESTAMP) TIMESTAMP BY at MAX AHEAD INTERVAL 10 SECONDS")
    wall = datetime.fromtimestamp(clock.now_us() / 1e6, UTC)
    rows = [{"n": s, "at": wall + timedelta(seconds=s)} for s in (-100, 10, 11, 1_000_000_000)]
    db.push("s", rows, wait=True)
    assert values(db.sql("SELECT n FROM s")) == [-100, 10]
    assert db.sql("SELECT n FROM s").now == wall + timedelta(seconds=10)
    reasons = values(db.sql("SELECT reason FROM s.quarantine"))
    assert len(reasons) == 2
    assert all("MAX AHEAD" in reason for reason in reasons)


def test_the_default_lets_an_hour_ahead_through(db: Database, clock: ManualClock) -> None:
    db.sql(TICKS)
    wall = datetime.fromtimestamp(clock.now_us() / 1e6, UTC)
    db.push("ticks", [{"n": s, "at": wall + timedelta(seconds=s)} for s in (3_600, 3_601)], wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [3_600]


def test_now_of_an_empty_stream_is_the_wall(db: Database, clock: ManualClock) -> None:
    db.sql(TICKS)
    answer = db.sql("SELECT n FROM ticks BEGIN NOW - INTERVAL 1 HOUR END NOW")
    assert to_us(answer.now) == clock.now_us()
    assert len(answer) == 0


def test_windows_in_one_statement_are_each_their_own(ask: Ask) -> None:
    db_of(ask).push("ticks", ticks(range(10)), wait=True)
    text = (
        "SELECT n FROM ticks [ROWS 4] WHERE n > 2 EXCEPT SELECT n FROM ticks [RANGE 2 SECONDS] WHERE n > 2 ORDER BY n"
    )
    assert ask(text) == [6, 7]
    nested = "SELECT count(*) FROM (SELECT n FROM ticks [RANGE 5 SECONDS] WHERE n % 2 = 0) AS even"
    assert ask(nested) == [2]


def test_an_ntz_column_can_be_the_time(open_db: Open) -> None:
    db = open_db(compact_files_min=2, grace_seconds=0.0)
    db.sql("CREATE STREAM s (n INT, wall TIMESTAMP_NTZ) TIMESTAMP BY wall RETAIN INTERVAL 5 SECONDS")
    db.register("SELECT n FROM s BEGIN NOW - INTERVAL 3 SECONDS END NOW", name="q", materialize="complete")
    for n in range(9):
        db.push("s", [{"n": n, "wall": (START + timedelta(seconds=n)).replace(tzinfo=None)}], wait=True)
    db.maintain()
    assert values(db.invoke("q")) == [6, 7, 8]
    assert values(db.sql("SELECT n FROM s")) == [4, 5, 6, 7, 8]


def test_now_may_be_text_or_a_date(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM s (n INT, at TIMESTAMP) TIMESTAMP BY at")
        db.push("s", [{"n": n, "at": f"2024-01-0{n} 00:00:00"} for n in (1, 2, 3)], wait=True)
        query = db.register("SELECT n FROM s BEGIN NOW - INTERVAL 1 DAY END NOW", name="q")
        assert query.invoke(now="2024-01-02").to_pylist() == [{"n": 2}]
        assert query.invoke(now=date(2024, 1, 1)).to_pylist() == [{"n": 1}]  # type: ignore[arg-type]
        with pytest.raises(TypeMismatch, match="'yesterday' is not a time"):
            query.invoke(now="yesterday")
