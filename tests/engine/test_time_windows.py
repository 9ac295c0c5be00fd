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
from ladle.testing import connect_inline

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
