"""Users' functions on Spark: in the tasks of epochs and backfills, and in residuals that only Spark runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ladle
from ladle.errors import EvaluationError, InvocationTimeout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS: dict[str, tuple[str, Any]] = {
    "k": ("INT", 0),
    "b": ("BOOLEAN", True),
    "tiny": ("TINYINT", -128),
    "small": ("SMALLINT", 7),
    "big": ("BIGINT", -(1 << 63)),
    "f": ("FLOAT", 0.5),
    "d": ("DOUBLE", -0.1),
    "short": ("DECIMAL(9,2)", Decimal("1.25")),
    "long": ("DECIMAL(38,10)", Decimal("-9999999999999999999999999999.5")),
    "s": ("STRING", "größer"),
    "bytes": ("BINARY", b"\x00\xff"),
    "day": ("DATE", date(2024, 2, 29)),
    "at": ("TIMESTAMP", datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)),
    "local": ("TIMESTAMP_NTZ", datetime(2024, 2, 29, 12, 0, 0, 1)),
}
ODD = "CREATE FUNCTION odd(n INT) RETURNS BOOLEAN LANGUAGE PYTHON AS $$ pc.equal(pc.bit_wise_and(n, 1), 1) $$"
ONLY_SPARK = "soundex(s)"


@pytest.fixture
def db(tmp_path: Path, spark: SparkSession) -> Iterator[ladle.Database]:
    settings = {"invoke_seconds_max": 15.0, "factor_seconds_max": 1.0}
    with ladle.connect(tmp_path / "warehouse", spark=spark, settings=settings) as database:
        declared = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
        database.sql(f"CREATE STREAM t ({declared})")
        database.sql(ODD)
        yield database


def rows(count: int) -> list[dict[str, Any]]:
    full = [{**{name: value for name, (_, value) in COLUMNS.items()}, "k": k} for k in range(count)]
    return [*full, {**dict.fromkeys(COLUMNS), "k": count}]


def test_in_where_and_in_a_residual_that_only_spark_runs(db: ladle.Database) -> None:
    for name, (type_, _) in COLUMNS.items():
        db.create_function(f"def same_{name}(x):\n    return x\n", arguments=[type_], returns=type_)
    same = ", ".join(f"same_{name}({name}) AS {name}" for name in COLUMNS)
    db.push("t", rows(3), wait=True)
    db.register("SELECT k FROM t WHERE odd(k)", name="standing")
    db.register(f"SELECT {same} FROM t", name="here")
    db.register(f"SELECT {same} FROM t WHERE k < 0 OR odd(k) OR NOT odd(k) OR {ONLY_SPARK} = 'x'", name="there")
    db.push("t", [{**row, "k": row["k"] + 4} for row in rows(3)], wait=True)
    db.backfill()
    assert db.invoke("standing").table.column("k").to_pylist() == [1, 3, 5, 7]
    status = {query.name: query for query in db.status().queries}
    assert status["standing"].coverage == 1.0
    assert "Spark: function soundex" in db.explain("there")
    here, there = (db.invoke(name).table.sort_by("k") for name in ("here", "there"))
    assert here.schema == there.schema
    assert here.to_pylist() == there.to_pylist() == [*rows(3), *({**row, "k": row["k"] + 4} for row in rows(3))]


def test_large_inputs_and_replaced_functions(tmp_path: Path, spark: SparkSession) -> None:
    """A residual that DuckDB could run goes to Spark when it is large: its files are filtered by functions there."""
    with ladle.connect(tmp_path / "warehouse", spark=spark, settings={"residual_rows_max": 1}) as db:
        db.sql("CREATE STREAM t (k INT)")
        db.sql(ODD)
        db.register("SELECT count(*) + sum(k) AS c, max(odd(k)) AS o FROM t WHERE odd(k)", name="q")
        db.push("t", pa.table({"k": pa.array(range(100), pa.int32())}), wait=True)
        assert db.invoke("q").table.to_pylist() == [{"c": 50 + 2500, "o": True}]
        db.sql(ODD.replace("CREATE", "CREATE OR REPLACE").replace(", 1) $$", ", 0) $$"))
        assert db.invoke("q").table.to_pylist() == [{"c": 50 + 2450, "o": True}]
        fussy = "def fussy(k):\n    assert not pc.any(pc.equal(k, 0)).as_py()\n    return k\n"
        db.create_function(fussy, arguments=["INT"], returns="INT")
        guarded = db.sql("SELECT count(*) + 0 AS c FROM t WHERE k <> 0 AND fussy(k) > 9")
        assert guarded.table.to_pylist() == [{"c": 90}], "what comes before a function is a guard on Spark too"


def test_what_goes_wrong_in_a_worker(db: ladle.Database) -> None:
    db.push("t", rows(3), wait=True)
    db.create_function("def bad(k):\n    raise ValueError('no')\n", arguments=["INT"], returns="INT")
    db.create_function("def short_(k):\n    return k[:1]\n", arguments=["INT"], returns="INT")
    db.create_function("def never(k):\n    while True:\n        pass\n", arguments=["INT"], returns="BOOLEAN")
    with pytest.raises(EvaluationError, match=r"Function 'bad' raised ValueError: no \(line 2 of its source\)"):
        db.sql(f"SELECT bad(k), {ONLY_SPARK} FROM t")
    with pytest.raises(EvaluationError, match=r"Function 'short_' returned 1 values for \d rows"):
        db.sql(f"SELECT short_(k), {ONLY_SPARK} FROM t")
    db.register("SELECT k FROM t WHERE never(k)", name="never")
    db.register("SELECT k FROM t WHERE odd(k)", name="fine")
    began = time.monotonic()
    assert db.push("t", rows(1), wait=True) == 2, "the epoch goes on"
    with pytest.raises(InvocationTimeout, match="took longer than 15 s"):
        db.sql(f"SELECT never(k), {ONLY_SPARK} FROM t")
    assert time.monotonic() - began < 120
    assert sorted(db.invoke("fine").table.column("k").to_pylist()) == [1, 1, 3]
    assert db.sql(f"SELECT count({ONLY_SPARK}) AS c FROM t WHERE odd(k)").table.to_pylist() == [{"c": 1}]


def test_a_dear_function_is_called_once_for_each_tuple(tmp_path: Path, spark: SparkSession) -> None:
    """A share of them in the epoch, the others by the backfill; and by nobody when files are compacted or asked."""
    settings = {"functions_epoch_seconds_max": 1e-9, "compact_files_min": 2, "maintenance_seconds": 3_600.0}
    for attempt in range(5):
        asked = tmp_path / f"asked {attempt}"
        lines = [
            "def counted(k):",
            f"    with open({str(asked)!r}, 'a') as file:",
            "        file.write(''.join(f'{each}\\n' for each in k.to_pylist()))",
            "    return pc.equal(pc.bit_wise_and(k, 1), 1)",
        ]
        with ladle.connect(tmp_path / f"warehouse {attempt}", spark=spark, settings=settings) as db:
            db.sql("CREATE STREAM t (k INT)")
            db.create_function("\n".join(lines) + "\n", arguments=["INT"], returns="BOOLEAN")
            db.register("SELECT k FROM t WHERE counted(k)", name="q", materialize="partial")
            for first in (0, 1_000):
                db.push("t", pa.table({"k": pa.array(range(first, first + 1_000), pa.int32())}), wait=True)
            db.maintain()
            db.backfill()
            assert len(db.catalog.streams["t"].files) == 1
            error = db.status().queries[0].error or ""
            if "took longer than 0.1 s and was stopped" in error:
                continue  # the machine stood still: a call was given up, and is asked again
            assert db.status().queries[0].coverage == 1.0
            assert db.invoke("q").table.column("k").to_pylist() == list(range(1, 2_000, 2))
            assert sorted(map(int, asked.read_text().split())) == list(range(2_000))
            return
    raise AssertionError("a function of microseconds never came back within 0.1 s")
