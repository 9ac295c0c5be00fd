"""`GROUP BY window(...)` without Spark, against DuckDB's time_bucket over all that was pushed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from ladle.engine import Database
from ladle.execute.reader import Reader
from ladle.testing import connect_inline
from ladle.testing.one_row import AT_ONE_ROW

EPOCH = "TIMESTAMP '1970-01-01 00:00:00'"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with connect_inline(tmp_path / "warehouse") as database:
        database.sql("CREATE STREAM s (k INT, v INT, other TIMESTAMP, at TIMESTAMP) TIMESTAMP BY at")
        yield database


def _tuples(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    start = datetime(1969, 12, 31, 12, tzinfo=UTC)
    moments = [start + timedelta(microseconds=int(n)) for n in np.sort(rng.integers(0, 86_400_000_000, 500))]
    others = [None if n < 0.1 else start + timedelta(seconds=int(n * 100_000)) for n in rng.random(500)]
    moment = pa.timestamp("us", "UTC")
    columns = {"k": rng.integers(0, 3, 500), "v": rng.integers(-9, 9, 500)}
    numbers = {name: pa.array(values.astype(np.int32)) for name, values in columns.items()}
    return pa.table({**numbers, "other": pa.array(others, moment), "at": pa.array(moments, moment)})


def _expected(tuples: pa.Table, sql: str) -> list[tuple[Any, ...]]:
    s = tuples.cast(pa.schema([*list(tuples.schema)[:2], ("other", pa.timestamp("us")), ("at", pa.timestamp("us"))]))
    with duckdb.connect() as connection:
        connection.register("s", s)
        return _sorted(connection.sql(sql).fetchall())


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    plain = [tuple(v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in row) for row in rows]
    return sorted(plain, key=repr)


def _answer(db: Database, sql: str) -> list[tuple[Any, ...]]:
    columns = db.sql(sql).table.to_pydict().values()
    return _sorted(list(zip(*columns, strict=True)))


@pytest.mark.parametrize("length", ["10 minutes", "7 seconds", "1 day 3 hours", "1 hour"])
def test_windows_that_do_not_overlap(db: Database, length: str) -> None:
    tuples = _tuples(1)
    db.push("s", tuples, wait=True)
    bucket = f"time_bucket(INTERVAL '{length}', \"at\", {EPOCH})"
    answer = _answer(
        db, f"SELECT window.start, window.end, k, count(*), sum(v) FROM s GROUP BY window(at, '{length}'), k"
    )
    expected = f"SELECT {bucket} AS w, w + INTERVAL '{length}', k, count(*), sum(v)::BIGINT FROM s GROUP BY w, k"
    assert answer == _expected(tuples, expected)


def test_an_offset_a_where_a_having_and_an_order(db: Database) -> None:
    tuples = _tuples(2)
    db.push("s", tuples, wait=True)
    asked = """SELECT window.end AS e, count(*) AS n FROM s WHERE v > 0
               GROUP BY window(at, '30 minutes', '30 minutes', '7 minutes')
               HAVING window.start > TIMESTAMP '1970-01-01 00:00:00' AND n > 1 ORDER BY window.start DESC LIMIT 5"""
    bucket = "time_bucket(INTERVAL '30 minutes', \"at\", TIMESTAMP '1970-01-01 00:07:00')"
    expected = f"""SELECT {bucket} + INTERVAL '30 minutes' AS e, count(*) AS n FROM s WHERE v > 0
                   GROUP BY e HAVING e > TIMESTAMP '1970-01-01 00:30:00' AND n > 1 ORDER BY e DESC LIMIT 5"""
    assert _answer(db, asked) == _expected(tuples, expected)


def test_rows_without_a_time_are_in_no_window(db: Database) -> None:
    tuples = _tuples(3)
    db.push("s", tuples, wait=True)
    answer = _answer(db, "SELECT window.start AS w, count(*) FROM s GROUP BY window(other, '1 hour')")
    bucket = f"time_bucket(INTERVAL '1 hour', other, {EPOCH})"
    assert answer == _expected(tuples, f"SELECT {bucket} AS w, count(*) FROM s WHERE other IS NOT NULL GROUP BY w")


def test_a_standing_query_whose_window_is_read_by_another(db: Database) -> None:
    """Ladle's own windows bound what comes in, Spark's groups it; the struct is a column like any other."""
    db.register("SELECT window, count(*) AS n FROM s [RANGE 2 HOURS] GROUP BY window(at, '10 minutes')", name="each")
    tuples = _tuples(4)
    for begin in range(0, 500, 100):
        db.push("s", tuples.slice(begin, 100), wait=True)
    now = tuples["at"][-1].as_py()
    recent = f"(SELECT * FROM s WHERE \"at\" > TIMESTAMP '{(now - timedelta(hours=2)).replace(tzinfo=None)}')"
    groups = f"SELECT time_bucket(INTERVAL '10 minutes', \"at\", {EPOCH}) AS w, count(*) AS n FROM {recent} GROUP BY w"
    first = db.invoke("each").table.to_pylist()[0]["window"]
    assert first["end"] - first["start"] == timedelta(minutes=10)
    assert _answer(db, "SELECT window.start, n FROM each") == _expected(tuples, groups)
    assert _answer(db, "SELECT max(n) FROM each") == _expected(tuples, f"SELECT max(n) FROM ({groups})")


HOPS = (
    ("10 minutes", "1 minute", "0 minutes"),
    ("1 hour", "25 minutes", "7 minutes"),
    ("7 seconds", "3 seconds", "1 second"),
)


def _hopping(source: str, time: str, size: str, slide: str, offset: str, keys: str, folds: str) -> str:
    """Each tuple with every window that it is in, found by comparing it with both ends."""
    origin = f"TIMESTAMP '1970-01-01 00:00:00' + INTERVAL '{offset}'"
    start = f"time_bucket(INTERVAL '{slide}', {time}, {origin}) - i * INTERVAL '{slide}'"
    rows = f"SELECT *, {start} AS w FROM {source}, range(100) r(i) WHERE {time} IS NOT NULL"
    return f"SELECT w, w + INTERVAL '{size}' AS e, {keys}{folds} FROM ({rows}) WHERE {time} < e GROUP BY w, e, ALL"


@pytest.mark.parametrize(("size", "slide", "offset"), HOPS)
@pytest.mark.parametrize("time", ["at", "other"])
def test_windows_that_overlap(db: Database, size: str, slide: str, offset: str, time: str) -> None:
    """By symbol, from panes, also where these are cut by the edges of Ladle's own window."""
    folds = "count(*), sum(v)::BIGINT, min(v), max(v), avg(v)"
    text = f"""SELECT window.start AS w, window.end AS e, k, {folds.replace("::BIGINT", "")} FROM s [RANGE 5 HOURS]
               WHERE v > -5 GROUP BY window({time}, '{size}', '{slide}', '{offset}'), k"""
    query = db.register(text, name="hopping", materialize="partial")
    tuples = _tuples(5)
    for begin in range(0, 500, 125):
        db.push("s", tuples.slice(begin, 125), wait=True)
        pushed = tuples.slice(0, begin + 125)
        now = pushed["at"][-1].as_py().replace(tzinfo=None)
        inside = f"(SELECT * FROM s WHERE \"at\" > TIMESTAMP '{now}' - INTERVAL 5 HOURS AND v > -5)"
        before = db._invoker.nodes.answered
        answer = _sorted(list(zip(*query.invoke().table.to_pydict().values(), strict=True)))
        assert db._invoker.nodes.answered == before + 1
        expected = _hopping(inside, f'"{time}"', size, slide, offset, "k, ", folds).replace(", ALL", ", k")
        assert answer == _expected(pushed, expected)
        with db._store.pin() as catalog:
            whole = db._invoker.answer(catalog.queries["hopping"].plan, catalog, keep_nothing=True).table
        assert _sorted(list(zip(*whole.to_pydict().values(), strict=True))) == answer


def test_what_is_computed_of_windows_that_overlap(db: Database) -> None:
    tuples = _tuples(6)
    db.push("s", tuples, wait=True)
    asked = """SELECT window.end AS e, count(*) AS n FROM s GROUP BY window(at, '30 minutes', '10 minutes')
               HAVING n > 4 AND window.start > TIMESTAMP '1970-01-01 00:00:00' ORDER BY n DESC, e LIMIT 7"""
    below = _hopping("s", '"at"', "30 minutes", "10 minutes", "0 minutes", "", "count(*) AS n").replace(", ALL", "")
    expected = f"""SELECT e, n FROM ({below}) WHERE n > 4 AND w > TIMESTAMP '1970-01-01 00:00:00'
                   ORDER BY n DESC, e LIMIT 7"""
    before = db._invoker.nodes.answered
    assert _answer(db, asked) == _expected(tuples, expected)
    assert AT_ONE_ROW or db._invoker.nodes.answered == before + 1
    distinct = "SELECT window.start AS w, count(DISTINCT v) FROM s GROUP BY window(at, '30 minutes', '10 minutes')"
    below = _hopping("s", '"at"', "30 minutes", "10 minutes", "0 minutes", "", "count(DISTINCT v) AS n")
    assert _answer(db, distinct) == _expected(tuples, f"SELECT w, n FROM ({below.replace(', ALL', '')})")


def test_windows_of_one_pane_share_what_is_folded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.push("s", _tuples(7), wait=True)
    db.sql("SELECT window, k, sum(v) FROM s GROUP BY window(at, '10 minutes', '2 minutes'), k")
    folded = []
    monkeypatch.setattr(Reader, "matches", lambda *_: folded.append(1))
    db.sql("SELECT window, k, sum(v) FROM s GROUP BY window(at, '6 minutes', '4 minutes'), k")
    assert not folded


@pytest.mark.parametrize("gap", ["1 minute", "5 minutes", "1 hour"])
def test_sessions(db: Database, gap: str) -> None:
    """By key, with a gap that some neighbours have exactly."""
    tuples = _tuples(8)
    exact = tuples["at"].cast(pa.int64()).to_numpy() // 30_000_000 * 30_000_000
    moments = pa.array(exact).cast(pa.timestamp("us", "UTC"))
    tuples = tuples.set_column(3, "at", moments)
    db.push("s", tuples, wait=True)
    answer = _answer(
        db,
        f"""SELECT session_window.start, session_window.end, k, count(*), sum(v) FROM s WHERE v <> 0
            GROUP BY session_window(at, '{gap}'), k HAVING count(*) > 1""",
    )
    rows: dict[int, list[tuple[datetime, int]]] = {}
    for row in tuples.to_pylist():
        if row["v"]:
            rows.setdefault(row["k"], []).append((row["at"].replace(tzinfo=None), row["v"]))
    length = timedelta(minutes=60 if "hour" in gap else int(gap.split(maxsplit=1)[0]))
    expected: list[tuple[Any, ...]] = []
    for key, own in rows.items():
        begun = own[0][0]
        values: list[int] = []
        for at, (moment, value) in enumerate(own):
            values.append(value)
            if at + 1 == len(own) or own[at + 1][0] > moment + length:
                if len(values) > 1:
                    expected.append((begun, moment + length, key, len(values), sum(values)))
                values = []
                begun = own[at + 1][0] if at + 1 < len(own) else moment
    assert answer == _sorted(expected)
