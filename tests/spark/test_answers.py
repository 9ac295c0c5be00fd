"""Answers that need Spark, or must not; the backfill; other tools and processes beside a running database."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.support.sampling import sampled

import ladle
from ladle.archive.layout import Extent
from ladle.archive.levels import HashLevel, hashes
from ladle.clock import to_us
from ladle.errors import EvaluationError, InvocationTimeout
from ladle.execute.reader import Reader
from ladle.pipeline import FileRelation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=UTC)
PACKETS = """CREATE STREAM PTb (saddr STRING, daddr STRING, id INT, length INT, timestamp TIMESTAMP)
             TIMESTAMP BY timestamp"""


def packets(count: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.integers(0, 600, count))
    return pa.table(
        {
            "saddr": [f"10.0.0.{n}" for n in rng.integers(0, 12, count)],
            "daddr": [f"10.0.1.{n}" for n in rng.integers(0, 12, count)],
            "id": pa.array(np.arange(count, dtype=np.int32)),
            "length": pa.array(rng.integers(40, 1500, count).astype(np.int32)),
            "timestamp": pa.array([START + timedelta(seconds=int(s)) for s in seconds], pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture
def db(tmp_path: Path, spark: SparkSession) -> Iterator[ladle.Database]:
    with ladle.connect(tmp_path / "warehouse", spark=spark) as database:
        yield database


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*table.to_pydict().values(), strict=True), key=repr)


QUERIES = {
    "q1": """SELECT date_trunc('minute', timestamp) AS minute, sum(length) AS load FROM PTb
             GROUP BY date_trunc('minute', timestamp) HAVING sum(length) > 20000
             BEGIN NOW - INTERVAL 5 MINUTES END NOW""",
    "q3": """WITH Load AS (SELECT saddr, daddr, sum(length) AS traffic FROM PTb GROUP BY saddr, daddr)
             SELECT saddr, daddr, traffic FROM Load AS L1
             WHERE (SELECT count(*) FROM Load AS L2 WHERE L2.traffic < L1.traffic)
                   > (SELECT 0.95 * count(*) FROM Load)
             ORDER BY traffic BEGIN NOW - INTERVAL 1 HOUR END NOW""",
    "rows": "SELECT saddr, length FROM PTb [ROWS 100] WHERE length > 700",
    "filtered": "SELECT count(*) AS c FROM PTb WHERE length BETWEEN 100 AND 900 AND saddr LIKE '10.0.0.1%'",
}


@pytest.mark.not_at_one_row("the setting is its subject")
@pytest.mark.parametrize("name", QUERIES)
def test_spark_and_duckdb_give_one_answer(tmp_path: Path, spark: SparkSession, name: str) -> None:
    """The same warehouse, with residuals in DuckDB, and again with the size set to one row: all in Spark."""
    path = tmp_path / "warehouse"
    with ladle.connect(path, spark=spark) as db:
        db.sql(PACKETS)
        db.push("PTb", packets(2_000), wait=True)
        db.register(QUERIES[name], name=name)
        small = db.invoke(name)
        assert len(small) > 0
    with ladle.connect(path, spark=spark, settings={"residual_rows_max": 1}) as db:
        large = db.invoke(name)
        assert large.table.schema == small.table.schema
        assert rows(large.table) == rows(small.table)


def test_streams_q3_is_what_duckdb_says(db: ladle.Database) -> None:
    db.sql(PACKETS)
    table = packets(3_000)
    db.push("PTb", table, wait=True)
    query = db.register(QUERIES["q3"], name="q3")
    with duckdb.connect() as oracle:
        oracle.register("PTb", table)
        text = QUERIES["q3"].partition(" BEGIN ")[0]
        expected = oracle.sql(text).fetchall()
    assert [tuple(row.values()) for row in query.invoke().to_pylist()] == expected


def test_what_duckdb_is_not_proven_for_runs_in_spark(db: ladle.Database) -> None:
    db.sql("CREATE STREAM s (name STRING)")
    db.push("s", [{"name": "Robert"}, {"name": "Rupert"}], wait=True)
    query = db.register("SELECT soundex(name) AS code, count(*) AS c FROM s GROUP BY 1", name="codes")
    assert "Spark" in query.explain()
    assert query.invoke().to_pylist() == [{"code": "R163", "c": 2}]


def test_spark_computes_of_now_as_of_an_entry(db: ladle.Database) -> None:
    """What it gives is what it gave when that was the present, also while NOW was undefined."""
    db.sql(PACKETS)
    db.register("SELECT soundex(saddr) AS s, NOW() - timestamp AS age, NOW() AS w FROM PTb", name="ages")
    db.register("SELECT count(*) AS c, NOW() AS w, soundex('x') AS s FROM PTb", name="counted")
    db.register("SELECT NOW() - INTERVAL 1 SECOND AS w, soundex('x') AS s, count(*) AS c FROM PTb", name="before")
    answers = [db.invoke("counted")]
    for part in (packets(5), packets(900, seed=2)):
        db.push("PTb", part, wait=True)
        answers += [db.invoke("ages"), db.invoke("counted")]
    assert answers[0].to_pylist()[0]["w"] is None
    for answer, name in zip(answers, ("counted", "ages", "counted", "ages", "counted"), strict=True):
        text = f"SELECT * FROM {name} VERSION AS OF {answer.entry}"
        assert rows(db.sql(text).table) == rows(answer.table)
        db.register(text, name="past", replace=True)
        assert rows(db.invoke("past").table) == rows(answer.table)
    assert db.sql(f"SELECT w FROM before VERSION AS OF {answers[0].entry}").to_pylist() == [{"w": None}]
    both = " UNION ALL ".join(f"SELECT w, s FROM counted VERSION AS OF {answer.entry}" for answer in answers)
    assert len({row["w"] for row in db.sql(both).to_pylist()}) == 3


def test_a_query_that_raises_or_never_ends_harms_no_other(tmp_path: Path, spark: SparkSession) -> None:
    settings = {"invoke_seconds_max": 3.0, "factor_seconds_max": 0.5}
    with ladle.connect(tmp_path / "warehouse", spark=spark, settings=settings) as db:
        db.sql("CREATE STREAM s (a INT, b INT, t STRING)")
        db.register("SELECT a FROM s WHERE a / b > 1", name="raises")
        db.register("SELECT a FROM s WHERE b <> 0 AND a / b > 1", name="guarded")
        db.register("SELECT a FROM s WHERE a > 1", name="fine")
        db.register("SELECT count(*) AS c FROM s x CROSS JOIN s y CROSS JOIN s z CROSS JOIN s w", name="endless")
        values = [{"a": n, "b": n % 5, "t": "x" * 10} for n in range(2_000)]
        started = time.monotonic()
        db.push("s", values, wait=True)
        assert time.monotonic() - started < 30
        with pytest.raises(EvaluationError, match=r"(?i)divi"):
            db.invoke("raises")
        assert len(db.invoke("fine")) == 1_998
        assert len(db.invoke("guarded")) == sum(v["b"] != 0 and v["a"] / v["b"] > 1 for v in values)
        with pytest.raises(InvocationTimeout, match="longer than 3 s"):
            db.invoke("endless")
        db.push("s", [{"a": 7, "b": 1, "t": "y"}], wait=True)
        assert len(db.invoke("fine")) == 1_999
        assert any("divi" in (q.error or "").lower() for q in db.status().queries if q.name == "raises")


@pytest.mark.not_at_one_row("its queries have no residual")
def test_the_backfill_covers_old_data_and_lets_epochs_pass(tmp_path: Path, spark: SparkSession) -> None:
    settings = {"backfill_rows_max": 20_000, "compact_files_min": 1_000}
    with ladle.connect(tmp_path / "warehouse", spark=spark, settings=settings) as db:
        db.sql(PACKETS)
        for seed in range(12):
            db.push("PTb", packets(10_000, seed), wait=True)
        before = {f"f{n}": f"SELECT id FROM PTb WHERE length > {n * 10}" for n in range(50)}
        started = time.monotonic()
        db.register_many(before)
        assert time.monotonic() - started < 5
        assert len(db.invoke("f10")) == sum(
            int((packets(10_000, seed).column("length").to_numpy() > 100).sum()) for seed in range(12)
        )
        slowest = 0.0
        deadline = time.monotonic() + 60
        while not all(query.coverage == 1.0 for query in db.status().queries):
            pushed = time.monotonic()
            db.push("PTb", packets(10, 99), wait=True)
            slowest = max(slowest, time.monotonic() - pushed)
            assert time.monotonic() < deadline, db.status().backfills
        covered = re.search(r"coverage  (\d+) of (\d+) segments", db.explain("f10"))
        assert covered is not None
        assert covered[1] == covered[2]
        assert slowest < 5.0


def test_other_tools_open_the_archive_while_it_runs(db: ladle.Database, spark: SparkSession) -> None:
    from deltalake import DeltaTable

    db.sql(PACKETS)
    table = packets(500)
    db.push("PTb", table, wait=True)
    db.maintain()
    (root,) = db.path.glob("streams/*/archive")
    delta = DeltaTable(root)
    assert len(delta.to_pandas()) == 500
    dataset = delta.to_pyarrow_dataset()
    with duckdb.connect() as other:
        other.register("ptb", dataset)
        assert other.sql("SELECT sum(length) FROM ptb").fetchall() == [(sum(table.column("length").to_pylist()),)]
    frame = spark.read.parquet(*delta.file_uris())
    assert frame.count() == 500
    assert frame.schema["timestamp"].dataType.simpleString() == "timestamp"


@pytest.mark.not_at_one_row("that reading loads no Spark is its subject")
def test_a_second_process_reads_every_committed_epoch(db: ladle.Database) -> None:
    db.sql("CREATE STREAM s (n INT)")
    db.register("SELECT count(*) AS c FROM s", name="counted")
    program = """
import sys, ladle
with ladle.connect(sys.argv[1], read_only=True) as db:
    for line in sys.stdin:
        a = db.invoke("counted")
        print(a.epoch, a.table.column("c")[0].as_py(), "pyspark" in sys.modules, flush=True)
"""
    reader = subprocess.Popen(
        [sys.executable, "-c", program, str(db.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    try:
        for n in range(1, 6):
            epoch = db.push("s", [{"n": n}], wait=True)
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert reader.stdout.readline().split() == [str(epoch), str(n), "False"]
    finally:
        reader.stdin.close()
        assert reader.wait(30) == 0


def test_pushes_keep_their_order(db: ladle.Database) -> None:
    db.sql("CREATE STREAM s (n INT)")
    for n in range(40):
        db.push("s", [{"n": n}])
    db.push("s", [{"n": 40}], wait=True)
    assert [row["n"] for row in db.sql("SELECT n FROM s").to_pylist()] == list(range(41))
    assert [row["n"] for row in db.sql("SELECT n FROM s [ROWS 3]").to_pylist()] == [38, 39, 40]


def test_invocations_while_epochs_flow(db: ladle.Database) -> None:
    """Readers see whole epochs only: each push has ten rows."""
    db.sql("CREATE STREAM s (n INT)")
    query = db.register("SELECT count(*) AS c FROM s WHERE n >= 0", name="counted")
    seen: list[int] = []
    stopping = threading.Event()

    def ask() -> None:
        while not stopping.is_set():
            seen.append(query.invoke().table.column("c")[0].as_py())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        db.push("s", [{"n": n} for n in range(10)], wait=True)
    stopping.set()
    for thread in threads:
        thread.join()
    assert all(c % 10 == 0 for c in seen)
    assert query.invoke().table.column("c")[0].as_py() == 100


def test_workers_do_not_look_for_garbage_in_what_was_loaded_before(spark: SparkSession) -> None:
    """PySpark has them look after each task: with all of Numba and Arrow to look at that took as long as an epoch."""

    def frozen(_: int) -> int:
        import gc

        return gc.get_freeze_count()

    assert min(spark.sparkContext.parallelize([1], 1).map(frozen).collect()) > 10_000


def test_windows_that_overlap_and_sessions(db: ladle.Database) -> None:
    db.sql(PACKETS)
    tuples = packets(300)
    db.push("PTb", tuples, wait=True)
    naive = tuples.set_column(4, "timestamp", tuples["timestamp"].cast(pa.timestamp("us")))
    with duckdb.connect() as oracle:
        oracle.register("PTb", naive)
        hops = oracle.sql("""
            SELECT b - h.range * INTERVAL '2 minutes' AS f, f + INTERVAL '5 minutes' AS t, count(*), sum(length)::BIGINT
            FROM (SELECT *, time_bucket(INTERVAL '2 minutes', "timestamp", TIMESTAMP '1970-01-01 00:01:00') AS b
                  FROM PTb) CROSS JOIN range(3) h WHERE "timestamp" < f + INTERVAL '5 minutes' GROUP BY f""").fetchall()
        sessions = oracle.sql("""
            SELECT saddr, min("timestamp"), max("timestamp") + INTERVAL '1 minute', count(*) FROM (
              SELECT *, sum(new) OVER (PARTITION BY saddr ORDER BY "timestamp", id) AS session FROM (
                SELECT *, CASE WHEN "timestamp" >= lag("timestamp") OVER (PARTITION BY saddr ORDER BY "timestamp", id)
                                    + INTERVAL '1 minute' THEN 1 ELSE 0 END AS new FROM PTb))
            GROUP BY saddr, session""").fetchall()
    hopping = db.sql("""SELECT window.start, window.end, count(*), sum(length) FROM PTb
                        GROUP BY window(timestamp, '5 minutes', '2 minutes', '1 minute') ORDER BY window""").table
    assert hopping["start"].to_pylist() == sorted(hopping["start"].to_pylist())
    assert rows(_naive(hopping)) == sorted(hops, key=repr)
    paused = db.sql("""SELECT saddr, session_window.start, session_window.end, count(*) FROM PTb
                       GROUP BY session_window(timestamp, '1 minute'), saddr""").table
    assert rows(_naive(paused)) == sorted(sessions, key=repr)
    last = db.sql("""SELECT max(window_time(window)) AS t FROM (
                     SELECT window, count(*) AS n FROM PTb GROUP BY window(timestamp, '5 minutes'))""").table
    latest = tuples["timestamp"][-1].as_py()
    start = START + (latest - START) // timedelta(minutes=5) * timedelta(minutes=5)
    assert last["t"].to_pylist() == [start + timedelta(minutes=5) - timedelta(microseconds=1)]


def _naive(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(pa.timestamp("us")))
    return table


def test_spark_reads_the_tuples_between_two_ids(tmp_path: Path, spark: SparkSession) -> None:
    """As of an entry, and of [ROWS n]; a column may have the name of Spark's own."""
    from ladle.pipeline.spark import _frame

    tuning = {"segment_rows_max": 64, "compact_files_min": 4}
    with ladle.connect(tmp_path / "warehouse", spark=spark, settings=tuning) as db:
        db.sql("CREATE STREAM s (n INT, _metadata INT, at TIMESTAMP) TIMESTAMP BY at")
        for first in range(0, 900, 150):
            numbers = range(first, first + 150)
            table = pa.table(
                {
                    "n": pa.array(numbers, pa.int32()),
                    "_metadata": pa.array([n % 7 for n in numbers], pa.int32()),
                    "at": pa.array([START + timedelta(seconds=n ^ 3) for n in numbers], pa.timestamp("us", "UTC")),
                }
            )
            db.push("s", table, wait=True)
        db.maintain()
        db.register("SELECT n FROM s WHERE _metadata > 1", name="q")
        rng = np.random.default_rng(1)
        with db._store.pin() as catalog:
            (scan,) = catalog.queries["q"].plan.scans
            reader = Reader(db._store, catalog, db.now_us())
            assert len(catalog.streams["s"].files) > 1
            levels = [None, *(HashLevel.of(1, Fraction(share), 7) for share in ("1/2", "1/100", "0", "99/100"))]
            for first, last in [(0, None), (0, 0), (600, 600), (64, 150), *rng.integers(0, 950, (12, 2)).tolist()]:
                begin_us = to_us(START) + int(rng.integers(-10, 900)) * 1_000_000
                level = levels[int(rng.integers(len(levels)))] if last is not None else levels[1]
                extent = Extent(begin_us, begin_us + 400_000_000, first, last, level=level)
                relation = FileRelation(reader.request(scan, extent), tuple(each.sql for each in scan.block.factors))
                found = sorted(row["n"] for row in _frame(spark, relation).collect())
                assert found == reader.read(scan, extent).column("n").to_pylist(), extent


def test_spark_samples_the_same_tuples(tmp_path: Path, spark: SparkSession) -> None:
    """The hash of levels is Spark's `xxhash64`; files have other first ids after retention and compaction."""
    ids = [0, 1, 41, 1 << 31, (1 << 62) - 1]
    for stream, seed in ((1, 0), (7, (1 << 63) - 1)):
        texts = ", ".join(f"xxhash64({stream}L, {seed}L, {id_}L)" for id_ in ids)
        found = list(spark.sql(f"SELECT {texts}").collect()[0])
        assert found == hashes(stream, seed, np.array(ids)).view(np.int64).tolist()
    tuning = {"compact_files_min": 2, "grace_seconds": 0.0, "residual_rows_max": 1}
    with ladle.connect(tmp_path / "warehouse", spark=spark, settings=tuning) as db:
        db.sql("CREATE STREAM s (n INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 500 SECONDS")
        for first in range(0, 900, 150):
            db.push("s", [{"n": n, "at": START + timedelta(seconds=n)} for n in range(first, first + 150)], wait=True)
        db.maintain()
        assert db.catalog.streams["s"].files[0].first_id > 0
        query = "SELECT n + 0 AS n, soundex('x') AS x FROM s TABLESAMPLE (30 PERCENT) WHERE n % 2 = 0"
        expected = [n for n in range(400, 900, 2) if sampled(1, 0, Fraction(3, 10), n)]
        assert sorted(row["n"] for row in db.sql(query).to_pylist()) == expected
        # A factor may raise on tuples that are not in the sample.
        outside = next(n for n in range(400, 900) if not sampled(1, 0, Fraction(3, 10), n))
        raising = f"SELECT n, soundex('x') AS x FROM s TABLESAMPLE (30 PERCENT) WHERE 10 / (n - {outside}) < 100"
        assert len(db.sql(raising)) == sum(sampled(1, 0, Fraction(3, 10), n) for n in range(400, 900))
