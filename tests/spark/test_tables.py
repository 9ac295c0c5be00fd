"""Tables where only Spark can compute: what changes them, and queries over them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ladle
from ladle.errors import LadleError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

AT = datetime(2024, 1, 1, tzinfo=UTC)


def test_what_only_spark_runs(tmp_path: Path, spark: SparkSession) -> None:
    def rows(text: str) -> list[dict[str, Any]]:
        return db.sql(text).table.to_pylist()

    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
        db.create_table(
            "t", {"n": "INT", "s": "STRING", "d": "DECIMAL(6,2)", "at": "TIMESTAMP", "tags": "ARRAY<STRING>"}
        )
        one = {"n": 1, "s": "Robert", "d": None, "at": AT, "tags": ["a", None]}
        two = {"n": 2, "s": None, "d": None, "at": None, "tags": None}
        db.insert("t", [one, two])
        # By register it is analysed over the table's columns.
        db.register("SELECT soundex(t.s) AS s, x.n FROM ticks x JOIN t ON t.n = x.n", name="q")
        assert db.catalog.queries["q"].plan.schema is not None
        db.push("ticks", [{"n": 1, "at": AT}], wait=True)
        assert db.invoke("q").to_pylist() == [{"s": "R163", "n": 1}]
        db.sql("UPDATE t SET s = soundex(s), tags = array('b', s), d = CAST('12.346' AS DECIMAL(10,3)) WHERE n = 1")
        one |= {"s": "R163", "tags": ["b", "Robert"]}
        assert [{**row, "d": str(row["d"])} for row in rows("SELECT * FROM t WHERE n = 1")] == [{**one, "d": "12.35"}]
        assert rows("SELECT * FROM t WHERE n = 2") == [two]
        db.sql("INSERT INTO t (tags, n, d) SELECT split(s, '6'), n + 9, '1.5' FROM t WHERE n = 1")
        assert [(row["tags"], str(row["d"])) for row in rows("SELECT * FROM t WHERE n = 10")] == [(["R1", "3"], "1.50")]
        db.sql("DELETE FROM t WHERE soundex(s) = soundex('R163')")
        assert sorted(row["n"] for row in rows("SELECT n FROM t")) == [2, 10]
        with pytest.raises(LadleError):
            db.sql("INSERT INTO t (n) VALUES ('many')")
        assert db.tables()[0].version == 4
