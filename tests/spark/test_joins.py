"""Joins on Spark: pairs are found in the epoch's own job; those it could not know of by the next, or the backfill."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ladle
from ladle.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=UTC)
ROWS = 400
FILES = 5
CLICKS = "CREATE STREAM clicks (user INT, page STRING, at TIMESTAMP) TIMESTAMP BY at"
BUYS = "CREATE STREAM buys (buyer BIGINT, cents INT, at TIMESTAMP) TIMESTAMP BY at"
QUERIES = {
    "bought": """SELECT c.user, c.page, b.cents, c.at, b.at AS bought FROM clicks [RANGE 60 SECONDS] c,
                 buys [RANGE 30 SECONDS] b WHERE c.user = b.buyer AND b.cents > 20""",
    "soon": """SELECT count(*) AS n FROM clicks c JOIN buys b ON c.user = b.buyer AND b.at >= c.at
               AND b.at < c.at + INTERVAL 10 SECONDS BEGIN NOW - INTERVAL 2 MINUTES END NOW""",
    "again": """SELECT a.page, count(*) AS n FROM clicks [RANGE 40 SECONDS] a, clicks [RANGE 40 SECONDS] b
                WHERE a.user = b.user AND a.page <> b.page GROUP BY a.page""",
}
EXPECTED = {
    "bought": """SELECT c.user, c.page, b.cents, c.at, b.at FROM clicks c, buys b WHERE c.user = b.buyer
                 AND b.cents > 20 AND c.at > now - INTERVAL 60 SECONDS AND b.at > now - INTERVAL 30 SECONDS""",
    "soon": """SELECT count(*) FROM clicks c, buys b WHERE c.user = b.buyer AND b.at >= c.at
               AND b.at < c.at + INTERVAL 10 SECONDS AND c.at > now - INTERVAL 2 MINUTES
               AND b.at > now - INTERVAL 2 MINUTES""",
    "again": """SELECT a.page, count(*) FROM clicks a, clicks b WHERE a.user = b.user AND a.page <> b.page
                AND a.at > now - INTERVAL 40 SECONDS AND b.at > now - INTERVAL 40 SECONDS GROUP BY a.page""",
}


def clicks(number: int) -> pa.Table:
    rng = np.random.default_rng((1, number))
    return pa.table(
        {
            "user": pa.array(rng.integers(0, 40, ROWS), pa.int32()),
            "page": [f"p{n}" for n in rng.integers(0, 5, ROWS)],
            "at": times(number),
        }
    )


def buys(number: int) -> pa.Table:
    rng = np.random.default_rng((2, number))
    return pa.table(
        {
            "buyer": pa.array(rng.integers(0, 40, ROWS), pa.int64()),
            "cents": pa.array(rng.integers(0, 100, ROWS), pa.int32()),
            "at": times(number),
        }
    )


def times(number: int) -> pa.Array:
    moments = [START + timedelta(milliseconds=50 * (number * ROWS + i)) for i in range(ROWS)]
    return pa.array(moments, pa.timestamp("us", "UTC"))


def check(db: ladle.Database, files: int) -> None:
    with duckdb.connect() as judge:
        judge.execute("SET TimeZone = 'UTC'")
        judge.register("clicks", pa.concat_tables([clicks(number) for number in range(files)]))
        judge.register("buys", pa.concat_tables([buys(number) for number in range(files)]))
        for name, text in EXPECTED.items():
            answer = db.invoke(name)
            assert answer.now == START + timedelta(milliseconds=50 * (files * ROWS - 1))
            # Both streams end at the same moment, so that is NOW.
            expected = judge.execute(
                text.replace("FROM ", 'FROM (SELECT max(clicks."at") AS now FROM clicks), ', 1)
            ).fetchall()
            found = [tuple(row.values()) for row in answer.to_pylist()]
            assert sorted(found, key=repr) == sorted(expected, key=repr), name
            assert found


def test_pairs_are_found_while_both_streams_flow(tmp_path: Path, spark: SparkSession) -> None:
    for name, make in (("clicks", clicks), ("buys", buys)):
        (tmp_path / name).mkdir()
        for number in range(FILES):
            pq.write_table(make(number), tmp_path / name / f"{number}.parquet")
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql(CLICKS)
        db.sql(BUYS)
        for name, text in QUERIES.items():
            db.register(text, name=name, materialize="partial")
        sources = []
        for name, columns in (
            ("clicks", "user INT, page STRING, at TIMESTAMP"),
            ("buys", "buyer BIGINT, cents INT, at TIMESTAMP"),
        ):
            files = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name))
            sources.append(db.attach(name, files, source="files"))
        deadline = time.monotonic() + 120
        while any(stream.epochs < FILES for stream in db.status().streams):
            assert time.monotonic() < deadline
            assert not any(source.error for source in sources)
            time.sleep(0.05)
        for source in sources:
            source.stop()
        check(db, FILES)
        db.backfill()
        before = db._invoker.joins.found
        check(db, FILES)
        assert db._invoker.joins.found == before, "some pairs were not covered"
        db.maintain()
        check(db, FILES)


def test_a_query_that_comes_after_the_data(tmp_path: Path, spark: SparkSession) -> None:
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql(CLICKS)
        db.sql(BUYS)
        for number in range(2):
            db.push("clicks", clicks(number), wait=True)
            db.push("buys", buys(number), wait=True)
        for name, text in QUERIES.items():
            db.register(text, name=name)
        check(db, 2)
        db.backfill()
        before = db._invoker.joins.found
        check(db, 2)
        assert db._invoker.joins.found == before


def test_unbounded_joins_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql(CLICKS)
        db.sql(BUYS)
        text = "SELECT count(*) AS n FROM clicks [RANGE 1 HOUR] c, buys b WHERE c.user = b.buyer"
        with pytest.raises(Unsupported, match=r"unbounded.*'buys'"):
            db.register(text, name="all")
        db.register(text, name="all", materialize="none")
        db.sql("ALTER STREAM buys SET RETAIN INTERVAL 1 DAY")
        db.register(text, name="kept")


def test_changes_go_to_a_sink_of_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Of a join, too: each epoch's new rows once, as a DataFrame with the stream's types."""
    heard: list[int] = []
    done = threading.Event()
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql(CLICKS)
        db.sql(BUYS)
        query = db.register(QUERIES["bought"], name="bought")

        def write(frame: DataFrame, epoch: int) -> None:
            frame.write.parquet(str(tmp_path / "sink" / f"epoch={epoch}"))
            heard.append(epoch)
            if len(heard) == 2:
                done.set()

        with query.subscribe(since=0).to_spark(spark, write):
            for number in range(2):
                db.push("clicks", clicks(number), wait=True)
                db.push("buys", buys(number), wait=True)
            assert done.wait(60)
        told = spark.read.parquet(str(tmp_path / "sink"))
        assert dict(told.dtypes)["at"] == "timestamp"
        last = {tuple(row) for row in told.where(f"epoch = {heard[-1]}").drop("epoch").collect()}
        now = {tuple(row.values()) for row in db.invoke("bought").to_pylist()}
        assert last
        assert {row[:3] for row in last} <= {row[:3] for row in now}
