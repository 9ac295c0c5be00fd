"""The thousand queries of the demonstration, without Spark."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.waiting import cpu_seconds

import ladle
from ladle.demo import run
from ladle.demo.crowd import crowd
from ladle.demo.generators import Building, Market, Network
from ladle.demo.run import served
from ladle.demo.scenario import STREAMS, standing_queries
from ladle.engine import Database
from ladle.testing import connect_inline

MANY = crowd(992)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with connect_inline(tmp_path / "warehouse") as db:
        for statement in STREAMS.values():
            db.sql(statement)
        yield db


def test_a_thousand_are_registered_at_once_and_need_no_spark(db: Database) -> None:
    assert cpu_seconds(lambda: db.register_many(MANY), 15, tries=1) < 15
    stand = db.catalog.standing()
    assert [state.name for state in stand] == list(MANY)
    assert {state.plan.residual.why_spark for state in stand} == {None}
    assert len({block for state in stand for block in state.blocks}) > 500
    assert cpu_seconds(db.status, 0.5) < 0.5


def test_they_differ_and_are_the_same_each_time() -> None:
    assert crowd(992) == MANY
    assert len(set(MANY.values())) == 992
    assert len(MANY) + len(standing_queries(datetime.now(UTC))) == run._QUERIES
    assert not set(MANY) & {query.name for query in standing_queries(datetime.now(UTC))}
    with pytest.raises(AssertionError, match="not so many"):
        crowd(10_000)


def test_they_answer_what_a_count_over_the_rows_says(db: Database) -> None:
    db.register_many(MANY)
    now_us = time.time_ns() // 1_000
    rows: dict[str, pa.Table] = {}
    for feed in (Market(), Building(), Network()):
        rows |= feed.between(now_us - 5_000_000, now_us)
    for name, table in rows.items():
        db.push(name, table.drop_columns("at") if name == "quotes" else table, wait=True)
    answered = {name: db.invoke(name) for name in MANY}
    trades = rows["trades"].to_pylist()
    nvda = [row for row in trades if row["symbol"] == "NVDA"]
    assert answered["volume_nvda_10m"].to_pylist()[0]["shares"] == sum(row["size"] for row in nvda)
    assert len(answered["larger_500"]) == sum(row["size"] > 500 for row in trades)
    readings = [row for row in rows["sensors"].to_pylist() if row["mote"] == 7]
    assert answered["climate_7_10m"].to_pylist()[0]["readings"] == len(readings)


def test_the_server_takes_another_port_when_the_usual_one_is_taken(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("LADLE_PORT", str(taken.getsockname()[1]))
        with served(db) as url:
            assert not url.endswith(f":{taken.getsockname()[1]}")
            with ladle.connect(url) as remote:
                assert [stream.name for stream in remote.streams()] == list(STREAMS)
