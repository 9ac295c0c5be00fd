"""Functions in SQL, defaults and MERGE beside Spark. Method: the same definitions and statements are given to Spark, or
the statement is one that only Spark can run, and the answers are compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ladle
from ladle.errors import EvaluationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FUNCTIONS = (
    "FUNCTION narrow(x INT) RETURNS TINYINT RETURN x + 1",
    "FUNCTION half(x DECIMAL(6,3), y DECIMAL(6,3)) RETURNS DECIMAL(6,2) RETURN (half.x + y) / 2",
    "FUNCTION deep(x STRING) RETURNS STRING RETURN concat(x, narrow(length(x)), soundex(x))",
)
CALLS = ("narrow(5)", "narrow(CAST(NULL AS INT))", "half(1.005, 2)", "half('1.5', 3)", "deep('Robert')", "deep(12)")
DEFAULTS = (
    "n INT, name STRING DEFAULT concat('a', 'b'), d DECIMAL(6,2) DEFAULT 1.255, day DATE DEFAULT DATE '2024-02-29'"
)
INSERTS = (
    "INSERT INTO {0} (n) VALUES (1)",
    "INSERT INTO {0} (d, n) VALUES (DEFAULT, 2), (3.555, 3)",
    "INSERT INTO {0} VALUES (4, DEFAULT, 7, NULL)",
    "INSERT INTO {0} (n, name) SELECT n + 10, name FROM {0} WHERE n = 2",
)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


def own(db: Any, text: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in db.sql(text).table.to_pylist()), key=repr)


def test_functions_and_defaults_mean_what_they_mean_in_spark(tmp_path: Path, spark: SparkSession) -> None:
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        for text in FUNCTIONS:
            db.sql(f"CREATE {text}")
            spark.sql(f"CREATE TEMPORARY {text}")
        for call in CALLS:
            assert own(db, f"SELECT {call} AS a") == rows(spark.sql(f"SELECT {call} AS a")), call
        with pytest.raises(EvaluationError):
            db.sql("SELECT narrow(127) AS a")
        db.sql(f"CREATE TABLE t ({DEFAULTS})")
        place = tmp_path / "spark"
        spark.sql(f"CREATE TABLE spark_defaults ({DEFAULTS}) USING parquet LOCATION '{place}'")
        try:
            for text in INSERTS:
                db.sql(text.format("t"))
                spark.sql(text.format("spark_defaults"))
            more = "ADD COLUMN more INT DEFAULT 6 * 7"
            db.sql(f"ALTER TABLE t {more}")
            spark.sql(f"ALTER TABLE spark_defaults {more}")
            db.sql("INSERT INTO t (n, more) VALUES (9, NULL)")
            spark.sql("INSERT INTO spark_defaults (n, more) VALUES (9, NULL)")
            assert own(db, "SELECT * FROM t") == rows(spark.sql("SELECT * FROM spark_defaults"))
        finally:
            spark.sql("DROP TABLE spark_defaults")
            for text in FUNCTIONS:
                spark.sql(f"DROP TEMPORARY FUNCTION {text.split('(')[0].removeprefix('FUNCTION ')}")


def test_a_merge_and_a_table_of_what_only_spark_computes(tmp_path: Path, spark: SparkSession) -> None:
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.create_table("t", {"n": "INT", "tags": "ARRAY<STRING>"})
        db.insert("t", [{"n": 1, "tags": ["a"]}, {"n": 2, "tags": None}, {"n": 3, "tags": ["c"]}])
        db.sql(
            "MERGE INTO t USING (SELECT explode(sequence(2, 4)) AS n) AS s ON t.n = s.n "
            "WHEN MATCHED AND soundex(CAST(s.n AS STRING)) = '3' THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET tags = array('b', CAST(s.n AS STRING)) "
            "WHEN NOT MATCHED THEN INSERT (tags, n) VALUES (split('x,y', ','), n) "
            "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET tags = reverse(tags), n = n * 100"
        )
        expected = [(100, ["a"]), (2, ["b", "2"]), (4, ["x", "y"])]
        assert own(db, "SELECT * FROM t") == expected
        db.sql("CREATE TABLE made AS SELECT n, array(n, 1) AS a, soundex('Robert') AS s FROM t WHERE n < 5")
        assert own(db, "SELECT * FROM made") == [(2, [2, 1], "R163"), (4, [4, 1], "R163")]
