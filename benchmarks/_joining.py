"""W2, the join workload: two streams through the streaming path, and what plain Spark does with the same files.

`r(ts, a, x)` and `s(ts, b, y)`: keys uniform in [0, 9999], one tuple of each every 100 us, windows of one second, so of
10,000 tuples of each. Filters `x < c1` and `y < c2` pass about half. Every run compares the number of pairs of each
query, over all tuples, with DuckDB's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._flow import Native, run_native
from benchmarks._workload import START_US
from ladle.engine import Database
from ladle.errors import LadleError
from ladle.stem.coverage import Coverage

KEYS = 10_000
STEP_US = 100
WINDOW_US = 10_000 * STEP_US
_VALUES = 100
_COLUMNS = {"r": ("a", "x"), "s": ("b", "y")}

EQUALITY = "r.a = s.b"
BAND = "r.a > s.b - 5 AND r.a < s.b + 5"


@dataclass(frozen=True)
class JoinQuery:
    """A join with a filter on either side."""

    x_below: int
    y_below: int
    on: str = EQUALITY

    @property
    def condition(self) -> str:
        return f"{self.on} AND r.x < {self.x_below} AND s.y < {self.y_below}"

    def sql(self, r: str, s: str) -> str:
        window = f"[RANGE {WINDOW_US} MICROSECONDS]"
        return f"SELECT r.a, r.x, s.y FROM {r} {window} AS r, {s} {window} AS s WHERE {self.condition}"


def join_queries(count: int, *, seed: int = 21) -> list[JoinQuery]:
    """Filters that pass about half; the first passes just that."""
    rng = np.random.default_rng(seed)
    others = rng.integers(40, 61, (count, 2)).tolist()
    return [JoinQuery(50, 50), *(JoinQuery(x, y) for x, y in others[1:])]


def joined_tuples(stream: str, rows: int, number: int, *, seed: int = 2) -> pa.Table:
    """The tuples of one file."""
    rng = np.random.default_rng((seed, ord(stream), number))
    times = START_US + (number * rows + np.arange(rows, dtype=np.int64)) * STEP_US
    key, value = _COLUMNS[stream]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            key: pa.array(rng.integers(0, KEYS, rows), pa.int32()),
            value: pa.array(rng.integers(0, _VALUES, rows), pa.int32()),
        }
    )


def write_streams(directory: Path, files: int, rows: int) -> Path:
    for stream in _COLUMNS:
        (directory / stream).mkdir(parents=True)
        for number in range(files):
            pq.write_table(joined_tuples(stream, rows, number), directory / stream / f"{number:05d}.parquet")
    return directory


def files_of(spark: Any, inputs: Path, stream: str) -> Any:
    key, value = _COLUMNS[stream]
    schema = f"ts TIMESTAMP, {key} INT, {value} INT"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(inputs / stream))


def pairs_by_duckdb(inputs: Path, queries: Sequence[JoinQuery]) -> list[int]:
    """How many pairs each query has over all tuples, at whatever moment both are in its windows."""
    import duckdb

    with duckdb.connect() as other:
        for stream in _COLUMNS:
            other.execute(f"CREATE TABLE {stream} AS SELECT * FROM read_parquet('{inputs}/{stream}/*.parquet')")
        on = {query.on for query in queries}
        near = f"epoch_us(r.ts) - epoch_us(s.ts) BETWEEN {1 - WINDOW_US} AND {WINDOW_US - 1}"
        counts: dict[JoinQuery, int] = {}
        for condition in on:
            other.execute(f"CREATE OR REPLACE TABLE p AS SELECT x, y FROM r, s WHERE {condition} AND {near}")
            for query in (query for query in queries if query.on == condition):
                found = other.execute(
                    f"SELECT count(*) FROM p WHERE x < {query.x_below} AND y < {query.y_below}"
                ).fetchone()
                assert found is not None
                counts[query] = found[0]
        return [counts[query] for query in queries]


@dataclass(frozen=True)
class JoinFlow:
    """One run of the streaming path with both streams."""

    seconds: float
    """Of an epoch of both, from the end of the first to the moment when all pairs are covered."""
    tuples: int
    """Of both streams in an epoch."""
    pairs: list[int]
    """Of each query, over all tuples."""

    @property
    def rate(self) -> float:
        return self.tuples / self.seconds


def join_flow(
    db: Database, name: str, inputs: Path, rows: int, queries: Sequence[JoinQuery], *, pushed: bool
) -> JoinFlow:
    """Let both streams flow past standing joins, which go again afterwards: pushed by two clients, a table each epoch,
    or through two file sources."""
    r, s = f"{name}_r", f"{name}_s"
    streams = {r: "r", s: "s"}
    for stream, of in streams.items():
        key, value = _COLUMNS[of]
        db.sql(f"CREATE STREAM {stream} (ts TIMESTAMP, {key} INT, {value} INT) TIMESTAMP BY ts")
    named = {f"{name}_{number}": query.sql(r, s) for number, query in enumerate(queries)}
    db.register_many(named, materialize="partial")
    files = len(list((inputs / "r").iterdir()))
    began = _push(db, streams, inputs) if pushed else _attach(db, streams, inputs, files)
    db.backfill()
    seconds = (time.perf_counter() - began) / (files - 1)
    pairs = [count_pairs(db, query) for query in named]
    for stream in streams:
        db.drop_stream(stream, cascade=True)
    return JoinFlow(seconds, 2 * rows, pairs)


def _push(db: Database, streams: Mapping[str, str], inputs: Path) -> float:
    """A client for each stream; when both had pushed their first table."""
    tables = {of: [pq.read_table(path) for path in sorted((inputs / of).iterdir())] for of in streams.values()}
    firsts: list[float] = []
    errors: list[BaseException] = []

    def client(stream: str, of: str) -> None:
        try:
            for number, table in enumerate(tables[of]):
                db.push(stream, table, wait=True)
                if number == 0:
                    firsts.append(time.perf_counter())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=pair) for pair in streams.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return max(firsts)


def _attach(db: Database, streams: Mapping[str, str], inputs: Path, files: int) -> float:
    """A file source for each stream, a file each epoch; when both had taken in their first."""
    attached = [db.attach(stream, files_of(db.spark, inputs, of), source="files") for stream, of in streams.items()]
    began = 0.0
    epochs = 0
    while epochs < files:
        time.sleep(0.001)
        epochs = min(db.catalog.streams[stream].epochs for stream in streams)
        if epochs and not began:
            began = time.perf_counter()
        for each in attached:
            if each.error is not None:
                raise LadleError(f"The source failed: {each.error}")
    for each in attached:
        each.stop()
    return began


def count_pairs(db: Database, name: str) -> int:
    """Pairs of a query that are kept, whether its windows still hold them or not."""
    catalog = db.catalog
    query = catalog.query(name)
    assert query is not None
    assert query.plan.joined is not None
    (edge,) = query.plan.joined.joins[0].edges
    left, right = catalog.streams[edge.pair.left.lower()], catalog.streams[edge.pair.right.lower()]
    coverage = db._store.join_coverage(edge.pair.digest(left.id, right.id))
    wanted = [
        _Masks(db._store.coverage(stream), query.blocks[scan])
        for stream, scan in ((left, edge.left), (right, edge.right))
    ]
    seen: set[tuple[str, str]] = set()
    total = 0
    for entry in (entry for file in coverage.files() for entry in file.entries):
        names = (entry.cover.left, entry.cover.right)
        if names not in seen:
            seen.add(names)
            masks = [masks.of(name) for masks, name in zip(wanted, names, strict=True)]
            total += int(np.count_nonzero(masks[0][entry.left] & masks[1][entry.right]))
    return total


class _Masks:
    """Which tuples of data files a block has."""

    def __init__(self, coverage: Coverage, block: int) -> None:
        self._coverage = coverage
        self._block = block
        self._known: dict[str, np.ndarray[Any, np.dtype[np.bool_]]] = {}

    def of(self, data_file: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if data_file not in self._known:
            results = self._coverage.find(data_file, self._block)
            if results is None:
                raise LadleError(f"Block {self._block} did not meet data file {data_file}.")
            self._known[data_file] = results.mask(self._block)
        return self._known[data_file]


# -- plain Spark on the same files --


def _joined(spark: Any, inputs: Path, query: JoinQuery | None) -> Any:
    """Spark's stream-stream join with the same window."""
    from pyspark.sql import functions as F

    r = files_of(spark, inputs, "r").withWatermark("ts", "0 seconds").alias("r")
    s = files_of(spark, inputs, "s").withWatermark("ts", "0 seconds").alias("s")
    if query is not None:
        r, s = r.where(f"x < {query.x_below}"), s.where(f"y < {query.y_below}")
    window = f"INTERVAL {WINDOW_US} MICROSECONDS"
    on = EQUALITY if query is None else query.on
    return r.join(s, F.expr(f"{on} AND r.ts > s.ts - {window} AND r.ts < s.ts + {window}"))


def native_joins(spark: Any, inputs: Path, queries: Sequence[JoinQuery], scratch: Path) -> Native:
    """One stream-stream join for each query, all at once; their rows go nowhere."""
    from pyspark.sql import functions as F

    frames = [_joined(spark, inputs, query).observe("seen", F.count(F.lit(1)).alias("n")) for query in queries]
    return run_native(frames, "append", scratch)


def shared_join(
    spark: Any, inputs: Path, rows: int, queries: Sequence[JoinQuery], scratch: Path
) -> tuple[float, list[int]]:
    """Plain Spark at its best: one stream-stream join, and a CASE sum per query over its rows. Tuples per second."""
    from pyspark.sql import functions as F

    sums = [
        F.expr(f"sum(CASE WHEN x < {query.x_below} AND y < {query.y_below} THEN 1 ELSE 0 END)").alias(f"n{number}")
        for number, query in enumerate(queries)
    ]
    ends: list[float] = []
    counts = [0] * len(queries)

    def sum_up(batch: Any, _: int) -> None:
        found = batch.agg(*sums).collect()[0]
        ends.append(time.perf_counter())
        counts[:] = [known + (new or 0) for known, new in zip(counts, found, strict=True)]

    writer = _joined(spark, inputs, None).writeStream.foreachBatch(sum_up).trigger(availableNow=True)
    writer.option("checkpointLocation", str(scratch / "checkpoint")).start().awaitTermination()
    files = len(list((inputs / "r").iterdir()))
    # The last batches may have no new tuples, and only move the watermark.
    return 2 * rows * (files - 1) / (ends[min(files, len(ends)) - 1] - ends[0]), counts


def check_pairs(what: str, found: Sequence[int], expected: Sequence[int]) -> None:
    wrong = [number for number, count in enumerate(expected) if found[number] != count]
    if wrong:
        first = wrong[0]
        raise LadleError(
            f"{what}: {len(wrong):,} of {len(expected):,} queries have other pairs than DuckDB; query {first} has "
            f"{found[first]:,} instead of {expected[first]:,}."
        )
