"""What only Spark can judge of a query is judged at register; what a literal can be read as, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ladle
from ladle.errors import EvaluationError, LadleError, SqlError
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ
from ladle.sql.conformant.readable import reads_as

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def db(tmp_path: Path, spark: SparkSession) -> Iterator[ladle.Database]:
    with ladle.connect(tmp_path / "warehouse", spark=spark) as database:
        database.sql("CREATE STREAM s (name STRING, n INT, tags ARRAY<STRING>, at TIMESTAMP) TIMESTAMP BY at")
        yield database


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("SELECT soundex(tags) AS x FROM s", SqlError, "soundex(tags)"),
        ("SELECT soundex(name, name) AS x FROM s", SqlError, "requires 1 parameter"),
        ("SELECT soundex(concat(n, tags)) AS x FROM s", SqlError, "concat(n, tags)"),
        ("SELECT soundex(name) AS x, n + CAST(lower('ABC') AS INT) AS y FROM s", EvaluationError, "'abc'"),
        ("SELECT soundex(name) AS x FROM s GROUP BY 1 HAVING max(n) > CAST(upper('x') AS INT)", EvaluationError, "'X'"),
    ],
)
def test_spark_refuses_at_register(db: ladle.Database, text: str, kind: type[LadleError], said: str) -> None:
    with pytest.raises(kind) as caught:
        db.register(text, name="bad")
    assert said in caught.value.message
    assert "_s0" not in caught.value.message
    assert "SQLSTATE" not in caught.value.message
    with pytest.raises(kind):
        db.sql(f"CREATE QUERY bad AS {text}")
    with pytest.raises(kind):
        db.register_many({"good": "SELECT soundex(name) AS x FROM s", "bad": text})
    assert db.queries() == []


def test_the_schema_of_what_only_spark_runs_is_known_once_it_stands(db: ladle.Database) -> None:
    text = "SELECT soundex(name) AS code, count(*) AS c, max(at) AS last, NOW AS now FROM s GROUP BY 1"
    query = db.register(text, name="codes")
    described = {row["column"]: row["type"] for row in db.sql("DESCRIBE codes").to_pylist()}
    assert described == {"code": "STRING", "c": "BIGINT", "last": "TIMESTAMP", "now": "TIMESTAMP"}
    empty = query.invoke().table
    db.push("s", [{"name": "Robert", "n": 1, "at": "2026-01-31 09:30:00"}], wait=True)
    full = query.invoke().table
    assert empty.schema == full.schema
    assert [row["code"] for row in full.to_pylist()] == ["R163"]


def test_a_taken_name_asks_nothing_of_spark(db: ladle.Database) -> None:
    db.register("SELECT n FROM s", name="q")
    with pytest.raises(ladle.errors.AlreadyExists):
        db.register("SELECT soundex(tags) AS x FROM s", name="q")


# fmt: off
TEXTS = (
    "", "abc", "5", " 5 ", "+5", "-5", "-", "5.0", "5.", "1e3", "1d", "1f", ".5", ".", "0x10", "0x1p3", "nan", "NaN",
    "+NaN", "-inf", "Infinity", "+infinity", "INF", "infinit", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "99999999999999999999", "5 6", "\t7\n", "5\u00a0", "\u0665", "true", "T", "yes", "Y", "no",
    "n", "0", "1", "2", "tru", "on", "2024-01-31", "2024-1-5", "2024-02-30", "2023-02-29", "2024-13-01", "2024",
    "2024-05", "2024-05 ", "2024 x", "2024-01-31 x", "2024-01-31T", "2024-01-31 ", "2024-01-31T10:00:00",
    "2024-01-31 10", "2024-01-31 10:", "2024-01-31 10:00", "2024-01-31 10:0", "2024-01-31 1:2:3",
    "2024-01-31 24:00:00", "2024-01-31 23:59:60", "2024-01-31 10:00:00.", "2024-01-31 10:00:00.123456789",
    "2024-01-31 10:00:00Z", "2024-01-31 10:00:00 Z", "2024-01-31 10:00:00+01:00", "2024-01-31 10:00:00 +1",
    "2024-01-31 10:00:00+0100", "2024-01-31 10:00:00 UTC", "2024-01-31 10:00:00 GMT+1",
    "2024-01-31 10:00:00 Europe/Berlin", "2024-01-31 10:00Z", "2024-01-31Z", "2024-01-31 Z", "2024-01-31t10:00:00",
    "2024-01-31 10:00:00z", "10:00", "10:00:00", "T10:00", "t10:00", "10", "24-01-31", "12024-01-31", "0000-01-01",
    "-0044-03-15", "+2024-01-31", "today", "now", "epoch", "yesterday", "tomorrow", "TODAY", "yesterday-ish",
    "today UTC", "now UTC", "todayUTC", "2024/01/31", "31.01.2024", "noon", "2024-01-31 10:00:00 oclock", "2024-W05",
    "2024-031", "1 day",
)
# fmt: on
TYPES = {
    pa.int8(): "BIGINT",
    pa.int64(): "BIGINT",
    pa.float32(): "DOUBLE",
    pa.decimal128(10, 2): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
}
"""Types of columns, and what Spark reads a string literal as that is compared with one."""


def test_literals_are_read_as_spark_reads_them(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    names = tuple(dict.fromkeys(TYPES.values()))
    casts = [F.lit(text).try_cast(name).isNotNull() for text in TEXTS for name in names]
    (row,) = spark.range(1).select(F.array(*casts).alias("readable")).collect()
    in_spark = dict(zip([(text, name) for text in TEXTS for name in names], row.readable, strict=True))
    wrong = [
        (text, str(type_))
        for text in TEXTS
        for type_, name in TYPES.items()
        if reads_as(text, type_) != in_spark[text, name]
    ]
    assert wrong == []


@pytest.mark.parametrize(("column", "text"), [("n", "3000000000"), ("at", "yesterday"), ("n", " 5 ")])
def test_what_spark_reads_still_runs(db: ladle.Database, column: str, text: str) -> None:
    assert db.sql(f"SELECT name FROM s WHERE {column} > '{text}'").to_pylist() == []
