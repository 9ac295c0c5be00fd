"""Attached sources on real Spark: file, rate, socket and Python sources, several at once, failures and restarts."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from tests.waiting import wait_until

import ladle
from ladle.errors import AlreadyExists, TypeMismatch, Unsupported, WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def db(tmp_path: Path, spark: SparkSession) -> Iterator[ladle.Database]:
    with ladle.connect(tmp_path / "warehouse", spark=spark) as database:
        yield database


def write_json(directory: Path, name: str, numbers: range) -> None:
    directory.mkdir(exist_ok=True)
    hidden = directory / f".{name}"
    hidden.write_text("".join(json.dumps({"n": n, "k": str(n % 3)}) + "\n" for n in numbers))
    hidden.rename(directory / name)


def json_source(spark: SparkSession, directory: Path) -> Any:
    return spark.readStream.schema("n INT, k STRING").option("maxFilesPerTrigger", 1).json(str(directory))


def count(db: ladle.Database, stream: str) -> int:
    return int(db.sql(f"SELECT count(*) AS c FROM {stream}").table.column("c")[0].as_py())


def numbers(db: ladle.Database, stream: str) -> list[int]:
    return [int(str(row["n"])) for row in db.sql(f"SELECT n FROM {stream}").to_pylist()]


def test_files_are_taken_in_once_across_restarts(tmp_path: Path, spark: SparkSession) -> None:
    inputs = tmp_path / "in"
    write_json(inputs, "0.json", range(100))
    write_json(inputs, "1.json", range(100, 250))
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql("CREATE STREAM s (n INT, k STRING)")
        db.attach("s", json_source(spark, inputs), source="files", available_now=True)
        assert sorted(numbers(db, "s")) == list(range(250))
        assert db.status().streams[0].epochs == 2
    write_json(inputs, "2.json", range(250, 300))
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.attach("s", json_source(spark, inputs), source="files", available_now=True)
        assert sorted(numbers(db, "s")) == list(range(300))
        assert db.status().sources[0].batch == 2


def test_a_batch_that_comes_again_is_skipped(tmp_path: Path, spark: SparkSession) -> None:
    """Spark forgets that it committed a batch (its commit log is lost), and sends it again."""
    inputs = tmp_path / "in"
    write_json(inputs, "0.json", range(100))
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql("CREATE STREAM s (n INT, k STRING)")
        db.attach("s", json_source(spark, inputs), source="files", available_now=True)
        before = db.sql("SELECT * FROM s").epoch
        for commit in (tmp_path / "warehouse").glob("streams/*/sources/files/commits/*"):
            commit.unlink()
        db.attach("s", json_source(spark, inputs), source="files", available_now=True)
        assert sorted(numbers(db, "s")) == list(range(100))
        assert db.sql("SELECT * FROM s").epoch == before


def test_late_rows_of_a_source_are_quarantined(db: ladle.Database, tmp_path: Path, spark: SparkSession) -> None:
    """By the clock at the commit before, also when a heartbeat comes while Spark looks at the batch."""
    inputs, wanted = tmp_path / "in", "n INT, at TIMESTAMP"
    inputs.mkdir()
    for name, seconds in enumerate(((5, 30), (20, 21), (31, 36))):
        rows = [json.dumps({"n": n, "at": f"2024-01-01T10:00:{n:02}Z"}) for n in seconds]
        (inputs / f"{name}.json").write_text("\n".join(rows))
        os.utime(inputs / f"{name}.json", (name, name))
    db.sql(f"CREATE STREAM s ({wanted}) TIMESTAMP BY at LATENESS INTERVAL 10 SECONDS")
    run_batch, beats = db._pipeline.run_batch, [None, None, "2024-01-01 10:00:45", None]

    def overtaken(task: Any, batch: Any) -> Any:
        manifests = run_batch(task, batch)
        if (at := beats.pop(0)) is not None:
            db.heartbeat("s", at)
        return manifests

    files = spark.readStream.schema(wanted).option("maxFilesPerTrigger", 1).json(str(inputs))
    with patch.object(db._pipeline, "run_batch", overtaken):
        db.attach("s", files, source="files", available_now=True)
    assert (numbers(db, "s"), beats) == ([5, 30, 21, 36], [])
    reasons = [str(row["reason"]) for row in db.sql("SELECT reason FROM s.quarantine").to_pylist()]
    assert reasons == [
        f"at: not after 2024-01-01 10:00:{late}+00:00 (the stream's clock less LATENESS)" for late in (20, 35)
    ]


def test_several_streams_and_sources_at_once(db: ladle.Database, tmp_path: Path, spark: SparkSession) -> None:
    db.sql("CREATE STREAM s (n INT, k STRING)")
    db.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp")
    for name in ("one", "two"):
        write_json(tmp_path / name, "0.json", range(50))
        db.attach("s", json_source(spark, tmp_path / name), source=name)
    db.attach("r", spark.readStream.format("rate").option("rowsPerSecond", 500).load(), source="rate")
    db.push("s", [{"n": -1, "k": "pushed"}], wait=True)
    wait_until(lambda: count(db, "s") == 101 and count(db, "r") >= 500)
    assert [source.state for source in db.status().sources] == ["running"] * 3
    values = [row["value"] for row in db.sql("SELECT value FROM r ORDER BY value").to_pylist()]
    assert values == list(range(len(values)))


def test_a_socket_source(db: ladle.Database, spark: SparkSession) -> None:
    db.sql("CREATE STREAM lines (value STRING)")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"hello\nworld\n")
                done.wait(60)

        done = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        attached = db.attach("lines", lines, source="socket")
        try:
            wait_until(lambda: count(db, "lines") == 2)
        finally:
            attached.stop()
            done.set()
            thread.join()
    assert {row["value"] for row in db.sql("SELECT value FROM lines").to_pylist()} == {"hello", "world"}


def test_a_python_data_source(db: ladle.Database, spark: SparkSession) -> None:
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"at": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
            stop = min(start["at"] + 10, 40)
            return iter([(n,) for n in range(start["at"], stop)]), {"at": stop}

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
            return iter([(n,) for n in range(start["at"], end["at"])])

    class Counting(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counting"

        def schema(self) -> str:
            return "n INT"

        def simpleStreamReader(self, schema: Any) -> Reader:
            return Reader()

    spark.dataSource.register(Counting)
    db.sql("CREATE STREAM s (n INT)")
    db.attach("s", spark.readStream.format("counting").load(), source="python")
    wait_until(lambda: count(db, "s") == 40)
    assert sorted(numbers(db, "s")) == list(range(40))


def test_a_source_that_fails_is_restarted_and_the_others_go_on(
    db: ladle.Database, tmp_path: Path, spark: SparkSession
) -> None:
    from pyspark.sql import functions as F

    good, bad = tmp_path / "good", tmp_path / "bad"
    flag = tmp_path / "broken"
    flag.touch()
    write_json(bad, "0.json", range(10))
    write_json(good, "0.json", range(10))
    path = str(flag)

    @F.udf("int")  # type: ignore[untyped-decorator]
    def sometimes(n: int) -> int:
        if os.path.exists(path):
            raise ValueError("the source is broken")
        return n

    db.sql("CREATE STREAM a (n INT, k STRING)")
    db.sql("CREATE STREAM b (n INT, k STRING)")
    db.attach("a", json_source(spark, bad).withColumn("n", sometimes("n")), source="bad")
    db.attach("b", json_source(spark, good), source="good")

    def failing() -> bool:
        return any(s.name == "bad" and s.restarts >= 1 and "broken" in (s.error or "") for s in db.status().sources)

    wait_until(failing)
    write_json(good, "1.json", range(10, 20))
    wait_until(lambda: count(db, "b") == 20)
    assert count(db, "a") == 0
    flag.unlink()
    wait_until(lambda: count(db, "a") == 10)
    wait_until(lambda: all(s.error is None and s.state == "running" for s in db.status().sources))


def test_malformed_and_mistyped_rows_are_quarantined(db: ladle.Database, tmp_path: Path, spark: SparkSession) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "x.json").write_text('{"n": 1, "k": "5"}\n{oops\n{"n": 2, "k": "five"}\n')
    db.sql("CREATE STREAM s (n INT, k INT)")
    frame = spark.readStream.schema("n INT, k STRING, _corrupt_record STRING").json(str(inputs))
    db.attach("s", frame, source="files", available_now=True)
    assert db.sql("SELECT * FROM s").to_pylist() == [{"n": 1, "k": 5}]
    rejected = {(row["reason"], row["row"]) for row in db.sql("SELECT * FROM s.quarantine").to_pylist()}
    assert rejected == {
        ("malformed record", "{oops"),
        ("k: 'five' is not a INT", '{"n": 2, "k": "five"}'),
    }


def test_what_cannot_be_attached_is_refused(db: ladle.Database, tmp_path: Path, spark: SparkSession) -> None:
    db.sql("CREATE STREAM s (n INT, k STRING)")
    with pytest.raises(Unsupported, match="streaming DataFrame"):
        db.attach("s", spark.range(3).toDF("n"))
    with pytest.raises(TypeMismatch, match="no column 'timestamp', 'value'"):
        db.attach("s", spark.readStream.format("rate").load())
    write_json(tmp_path / "in", "0.json", range(3))
    with pytest.raises(TypeMismatch, match="is BOOLEAN, but stream 's' has it as INT"):
        db.attach("s", spark.readStream.schema("n BOOLEAN, k STRING").json(str(tmp_path / "in")))
    attached = db.attach("s", json_source(spark, tmp_path / "in"), source="files")
    with pytest.raises(AlreadyExists, match="is running"):
        db.attach("s", json_source(spark, tmp_path / "in"), source="files")
    wait_until(lambda: count(db, "s") == 3)
    attached.stop()
    for path in (tmp_path / "warehouse").glob("streams/*/sources/files"):
        path.rename(tmp_path / "stolen")
    with pytest.raises(WarehouseError, match="checkpoint is gone"):
        db.attach("s", json_source(spark, tmp_path / "in"), source="files")
