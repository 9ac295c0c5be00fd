"""A Spark DataFrame that is pushed: its rows once, whoever's session it is of; a streaming one is to be attached."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.rows import values

import ladle
from ladle.config import Settings
from ladle.errors import PipelineError, TypeMismatch, Unsupported
from ladle.protocols.http.process import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def db(tmp_path: Path, spark: SparkSession) -> Iterator[ladle.Database]:
    with ladle.connect(tmp_path / "warehouse", spark=spark) as database:
        database.sql("CREATE STREAM s (n BIGINT, name STRING, at TIMESTAMP) TIMESTAMP BY at")
        yield database


def test_its_rows_are_pushed_once(db: ladle.Database, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        frame = spark.range(5_000, numPartitions=4).selectExpr(
            "id AS n", "concat('name ', id) AS name", "TIMESTAMP '2026-01-30 14:30:00+01:00' AS at"
        )
        assert db.push("s", frame, wait=True, key="frame") == 1
        assert db.push("s", frame, wait=True, key="frame") == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    counted = db.sql("SELECT count(*) AS c, count(DISTINCT name) AS d, min(at) AS first, max(at) AS last FROM s")
    at = datetime(2026, 1, 30, 13, 30, tzinfo=UTC)
    assert counted[0] == {"c": 5_000, "d": 5_000, "first": at, "last": at}
    assert db.push("s", frame.limit(0)) is None
    db.create_table("t", {"n": "BIGINT"})
    assert db.insert("t", spark.range(3).withColumnRenamed("id", "n")) == 3


def test_it_goes_to_a_server_too(db: ladle.Database, spark: SparkSession) -> None:
    server = Server(db, Settings.load({"port": 0}))
    server.start()
    try:
        with ladle.connect(server.url) as remote:
            remote.push("s", spark.sql("SELECT 7L AS n, 'x' AS name, current_timestamp() AS at"), wait=True)
            assert values(remote.sql("SELECT n FROM s")) == [7]
    finally:
        server.stop()


def test_what_can_not_be_pushed_says_what_to_do(db: ladle.Database, spark: SparkSession) -> None:
    with pytest.raises(Unsupported, match="no end") as told:
        db.push("s", spark.readStream.format("rate").load())
    assert "db.attach" in str(told.value)
    with pytest.raises(PipelineError, match="zero") as failed:
        db.push("s", spark.sql("SELECT CAST(1 / (id - id) AS BIGINT) AS n FROM range(3)"))
    assert "SQLSTATE" not in failed.value.message
    with pytest.raises(TypeMismatch, match="Column of Spark"):
        db.push("s", spark.range(1).id)
    with pytest.raises(TypeMismatch, match="other"):
        db.push("s", spark.sql("SELECT 1 AS other"))
    assert values(db.sql("SELECT n FROM s")) == []
