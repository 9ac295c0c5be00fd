"""The oracle and its generator are tested too: by hand, that they cover what they should, that they bite."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.driver import Driver, Mismatch, everything
from tests.support.generate import MINUTE_US, SCALARS, WALL_US, PushedRow, random_rows, random_stream
from tests.support.months import EPOCH
from tests.support.oracle import Oracle, difference
from tests.support.queries import QueryMaker
from tests.support.tree import (
    ZONED,
    ColumnSpec,
    Moment,
    Range,
    Rows,
    Select,
    Span,
    StreamSource,
    StreamSpec,
    TimeSpan,
    to_ladle,
)

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline

EVENTS = StreamSpec("s", (ColumnSpec("a", pa.int32()), ColumnSpec("at", ZONED)), "at", retain=Span(1, "HOUR"))


def at(minutes: float) -> datetime:
    return EPOCH + timedelta(microseconds=WALL_US + int(minutes * MINUTE_US))


def event(number: int, minutes: float) -> PushedRow:
    return PushedRow({"a": number, "at": at(minutes)})


def numbers(oracle: Oracle, query: Select, now: datetime | None = None) -> list[int]:
    return sorted(row[0] for row in oracle.answer(query, WALL_US, now).rows)


@pytest.fixture
def oracle() -> Oracle:
    oracle = Oracle()
    oracle.create(EVENTS)
    oracle.push("s", [event(1, -50), event(2, -10), event(3, -5), event(4, 0), event(5, -7)], WALL_US)
    return oracle


def test_windows_are_open_at_the_beginning_and_closed_at_the_end(oracle: Oracle) -> None:
    source = StreamSource(EVENTS, None)
    sliding = TimeSpan(Moment(less=Span(10, "MINUTE")), Moment())
    assert numbers(oracle, Select(source, (), window=sliding)) == [3, 4, 5]
    assert numbers(oracle, Select(source, (), window=sliding), now=at(-5)) == [2, 3, 5]
    assert numbers(oracle, Select(StreamSource(EVENTS, None, Range(Span(10, "MINUTE"))), ())) == [3, 4, 5]
    snapshot = TimeSpan(Moment(us=WALL_US - 50 * MINUTE_US), Moment(us=WALL_US - 7 * MINUTE_US))
    assert numbers(oracle, Select(source, (), window=snapshot)) == [2, 5]
    assert numbers(oracle, Select(source, (), window=TimeSpan(snapshot.begin, None)), now=at(-7)) == [2, 5]


def test_rows_are_the_last_to_arrive_not_the_newest(oracle: Oracle) -> None:
    assert numbers(oracle, Select(StreamSource(EVENTS, None, Rows(2)), ())) == [4, 5]
    assert numbers(oracle, Select(StreamSource(EVENTS, None, Rows(2)), ()), now=at(-1)) == [3, 5]


def test_retention_hides_and_the_door_is_shut_behind_it(oracle: Oracle) -> None:
    oracle.push("s", [event(6, 30), event(7, -50), PushedRow({"a": 8, "at": None}), event(9, 61)], WALL_US)
    assert oracle.streams["s"].high_us == WALL_US + 30 * MINUTE_US
    assert numbers(oracle, Select(StreamSource(EVENTS, None), ())) == [2, 3, 4, 5, 6]
    assert oracle.quarantine("s", WALL_US) == (2, 2)
    oracle.push("s", [event(10, -31)], WALL_US)
    assert oracle.quarantine("s", WALL_US) == (3, 3)


def test_names_types_order_and_rows_are_compared(oracle: Oracle) -> None:
    expected = oracle.answer(Select(StreamSource(EVENTS, None), ()), WALL_US)
    rows = [(1, at(-50)), (2, at(-10)), (3, at(-5)), (4, at(0)), (5, at(-7))]
    table = pa.table([[a for a, _ in rows], [t for _, t in rows]], pa.schema([("a", pa.int32()), ("at", ZONED)]))
    assert difference(table, expected) is None
    assert difference(table.take([4, 3, 2, 1, 0]), expected) is None
    assert "columns" in (difference(table.rename_columns(["a", "b"]), expected) or "")
    wider = table.set_column(0, "a", table.column("a").cast(pa.int64()))
    assert "int64" in (difference(wider, expected) or "")
    assert "missing" in (difference(table.slice(1), expected) or "")
    assert "too many" in (difference(pa.concat_tables([table, table.slice(0, 1)]), expected) or "")


@pytest.mark.not_at_one_row("no engine takes part")
def test_the_generator_covers_the_language() -> None:
    """DuckDB runs every query; many have answers; each construct is there."""
    words = Counter[str]()
    filled = made = 0
    types = set()
    for seed in range(40):
        rng = random.Random(seed)
        oracle = Oracle()
        streams = [random_stream(rng, f"s{number}") for number in range(2)]
        for stream in streams:
            types |= {column.type for column in stream.columns}
            oracle.create(stream)
            oracle.push(stream.name, random_rows(rng, stream, WALL_US, 40, misfits=True), WALL_US)
        for number in range(25):
            query = QueryMaker(rng, streams, WALL_US, number % 4).query()
            filled += bool(oracle.answer(query, WALL_US).rows)
            made += 1
            text = to_ladle(query)
            words.update(word for word in CONSTRUCTS if word in text)
        oracle.close()
    assert types >= set(SCALARS)
    assert filled > made / 3
    assert {word for word in CONSTRUCTS if words[word] < 2} == set()


CONSTRUCTS = (
    "FROM VALUES",
    *("BEGIN NOW", "BEGIN TIMESTAMP", "END NOW", "END TIMESTAMP", "[RANGE", "[ROWS", "NOW - INTERVAL", "TABLESAMPLE"),
    *("[PARTITION BY", "[NOW]", "[RANGE UNBOUNDED]", "[BEGIN", "[END"),
    *("DISTINCT", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "WITH w", "UNION ALL", "UNION (", "INTERSECT"),
    *("EXCEPT", "EXISTS (SELECT", "IN (SELECT", "FROM (SELECT", "CASE WHEN", "COALESCE", "LIKE", "BETWEEN", "IS NULL"),
    *("IS NOT NULL", "NOT IN", "<=>", " OR ", " AND ", "(NOT ", "count(*)", "sum(", "min(", "max(", "avg(", "FILTER"),
    *("upper(", "length(", "substring(", "date_trunc(", "year(", "CAST(", "X'", "DATE '", "TIMESTAMP_NTZ '", "NULLS"),
)


class Faulty:
    """A database that does one thing wrong."""

    def __init__(self, db: Database, fault: str) -> None:
        self._db = db
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def push(self, stream: str, rows: list[dict[str, Any]], *, wait: bool) -> int | None:
        if self._fault == "loses a tuple":
            rows = rows[1:]
        if self._fault == "doubles a tuple":
            rows = [*rows, rows[0]]
        if self._fault == "reorders":
            rows = rows[::-1]
        return self._db.push(stream, rows, wait=wait)


@pytest.mark.parametrize("fault", ["loses a tuple", "doubles a tuple", "reorders", None])
def test_the_driver_bites(tmp_path: Path, fault: str | None) -> None:
    def connect(path: Path, clock: ManualClock, settings: dict[str, Any]) -> Any:
        db = connect_inline(path, clock=clock, settings=settings)
        return db if fault is None else Faulty(db, fault)

    driver = Driver(tmp_path / "warehouse", connect)
    driver.db.sql(EVENTS.create())
    driver.oracle.create(EVENTS)
    driver.register_query("all_of_it", everything(EVENTS), "partial")
    driver.register_query("last", Select(StreamSource(EVENTS, None, Rows(2)), ()), "partial")
    driver.push_rows(EVENTS, [event(number, -number) for number in range(5)])
    if fault is None:
        driver.check()
    else:
        with pytest.raises(Mismatch, match="rows, expected"):
            driver.check()
    driver.close()
