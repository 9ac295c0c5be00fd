"""Sources defined in SQL on real Spark: each format, rows that don't fit, and what keeps one from starting."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.waiting import wait_until

import ladle
from ladle.define.source_options import CSV_OPTIONS, JSON_OPTIONS, PARQUET_OPTIONS
from ladle.pipeline.readers import KAFKA_PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def db(tmp_path: Path, spark: SparkSession) -> Iterator[ladle.Database]:
    with ladle.connect(tmp_path / "warehouse", spark=spark, settings={"retry_seconds_max": 1.0}) as database:
        database.sql("CREATE STREAM s (n INT, k STRING)")
        yield database


def numbers(db: ladle.Database) -> list[int]:
    return sorted(int(str(row["n"])) for row in db.sql("SELECT n FROM s").to_pylist())


def test_files_of_three_formats_and_a_restart(tmp_path: Path, spark: SparkSession) -> None:
    for name in ("json", "csv", "parquet"):
        (tmp_path / name).mkdir()
    (tmp_path / "json" / "0 a+b%.json").write_text('{"n": 1, "k": "a"}\n{oops\n{"n": "two", "k": "b"}\n')
    (tmp_path / "csv" / "0.csv").write_text("n,k\n3,c\nfour,d\nfive\n")
    pq.write_table(pa.table({"n": pa.array([5], pa.int32()), "k": ["e"]}), tmp_path / "parquet" / "0.parquet")
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql("CREATE STREAM s (n INT, k STRING)")
        for name in ("json", "csv", "parquet"):
            header = ", header true" if name == "csv" else ""
            db.sql(f"CREATE SOURCE {name}_in FOR s FORMAT {name} OPTIONS (path '{tmp_path / name}'{header})")
        wait_until(lambda: numbers(db) == [1, 3, 5])
        assert [source.state for source in db.status().sources] == ["running"] * 3
        rejected = {(row["reason"], row["row"]) for row in db.sql("SELECT * FROM s.quarantine").to_pylist()}
        assert rejected == {
            ("0 a+b%.json: malformed record", "{oops"),
            ("0 a+b%.json: n: 'two' is not a INT", '{"n": "two", "k": "b"}'),
            ("0.csv: n: 'four' is not a INT", "four,d"),
            ("0.csv: malformed record", "five"),
        }
    (tmp_path / "json" / "1.json").write_text('{"n": 2}\n')
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.start_sources()
        wait_until(lambda: numbers(db) == [1, 2, 3, 5])
        assert {source.name: source.batch for source in db.status().sources} == {
            "json_in": 1,
            "csv_in": 0,
            "parquet_in": 0,
        }


def test_a_socket_and_a_rate(db: ladle.Database) -> None:
    db.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp")
    db.create_source("clock", stream="r", format="rate", options={"rowsPerSecond": 100})
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b'{"n": 1}\n\n[{"n": 9}]\n{"n": 2, "k": "b"}\n')
                done.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        options = {"host": "127.0.0.1", "port": server.getsockname()[1]}
        db.create_source("lines", stream="s", format="socket", options=options)
        wait_until(lambda: numbers(db) == [1, 2])
        wait_until(lambda: db.sql("SELECT count(*) AS c FROM r").to_pylist()[0]["c"])
        db.drop_source("lines")
        done.set()
        thread.join()
    (rejected,) = db.sql("SELECT source, row FROM s.quarantine").to_pylist()
    assert rejected == {"source": "lines", "row": '[{"n": 9}]'}


def test_what_keeps_a_source_from_starting_is_shown(db: ladle.Database, tmp_path: Path) -> None:
    late = tmp_path / "late"
    db.create_source("files", stream="s", format="json", options={"path": str(late)})
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    db.create_source("events", stream="s", format="kafka", options=options)
    db.create_source("other", stream="s", format="rate")
    errors = {"files": "late", "events": KAFKA_PACKAGE, "other": "no column 'timestamp', 'value'"}

    def shown() -> dict[str, str]:
        return {str(row["name"]): str(row["error"]) for row in db.sql("SHOW SOURCES").to_pylist()}

    wait_until(lambda: all(error in shown()[name] for name, error in errors.items()))
    assert "PYSPARK_SUBMIT_ARGS" in shown()["events"]
    late.mkdir()
    (late / "0.json").write_text('{"n": 1}\n')
    wait_until(lambda: numbers(db) == [1])
    assert shown()["files"] == ""
    assert KAFKA_PACKAGE.endswith(":4.3.0")


def test_a_header_in_another_order_is_told_with_its_file(db: ladle.Database, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "late.csv").write_text("k,n\na,1\n")
    db.create_source("files", stream="s", format="csv", options={"path": str(tmp_path / "in"), "header": True})
    wait_until(lambda: db.sources()[0].error)
    error = str(db.sources()[0].error)
    assert error.startswith("A Spark job failed: [FAILED_READ_FILE")
    assert "CSV header does not conform to the schema. Header: k, n; Schema: n, k" in error
    assert f"{tmp_path}/in/late.csv" in error
    assert "\n" not in error
    assert " at org." not in error


def test_a_row_without_a_time_is_told(db: ladle.Database, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"_metadata": ["x"]}), tmp_path / "in" / "0.parquet")
    db.sql("CREATE STREAM t (at TIMESTAMP, _metadata STRING) TIMESTAMP BY at")
    db.create_source("files", stream="t", format="parquet", options={"path": str(tmp_path / "in")})
    wait_until(lambda: len(db.sql("SELECT * FROM t.quarantine").to_pylist()))
    (rejected,) = db.sql("SELECT reason, row FROM t.quarantine").to_pylist()
    assert rejected == {"reason": "at: the timestamp is NULL", "row": '{"at": null, "_metadata": "x"}'}


def test_all_options_of_sparks_readers_are_known(spark: SparkSession) -> None:
    catalyst = "org.apache.spark.sql.catalyst"
    for owner, known in (
        (f"{catalyst}.csv.CSVOptions$", CSV_OPTIONS),
        (f"{catalyst}.json.JSONOptions$", JSON_OPTIONS),
        ("org.apache.spark.sql.execution.datasources.parquet.ParquetOptions$", PARQUET_OPTIONS),
    ):
        told = getattr(getattr(spark._jvm, owner), "MODULE$").getAllOptions().mkString(" ").split()
        # Names with a dot are handed on to Hadoop.
        assert {option for option in told if "." not in option} <= set(known)
