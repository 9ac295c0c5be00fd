"""Rates of the streaming path: a Parquet file per epoch through an attached source, and what plain Spark does with it.

Every run ends by comparing what it counted, per query and over all tuples, with DuckDB.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._workload import SCHEMA, Selection, chunks, named, source, window
from ladle.catalog import QueryState
from ladle.engine import Database
from ladle.errors import LadleError
from ladle.stem.results import Results, data_file_of, file_names

EXPRESSIONS_PER_SCAN = 100
"""CASE sums in one Spark aggregate: with more the generated code is too long to be compiled well."""
_IDLE_SECONDS_MAX = 600.0


@dataclass
class Flow:
    """One run of the streaming path."""

    rows: int
    """Tuples of an epoch."""
    ends: list[float] = field(default_factory=list)
    """When each epoch was committed."""
    results_bits: int = 0
    counts: list[int] = field(default_factory=list)
    """Per query, over all tuples."""

    @property
    def seconds(self) -> list[float]:
        """Between the ends of neighbouring epochs: what an epoch costs as a whole. The first warms up."""
        return np.diff(self.ends).tolist()

    @property
    def rates(self) -> list[float]:
        return [self.rows / seconds for seconds in self.seconds]


class Witness:
    """Keeps the results files of an epoch's data files, whatever becomes of them: results outlive no window."""

    def __init__(self, db: Database, stream: str, directory: Path) -> None:
        self._db = db
        self._stream = stream
        self._directory = directory
        directory.mkdir(parents=True)
        self.rows: dict[str, int] = {}
        """Tuples by data file, as they came; what compaction makes of them does not count."""

    def look(self) -> None:
        stream = self._db.catalog.streams[self._stream]
        for file in stream.files:
            if file.level == 0:
                self.rows[file.name] = file.rows
        results = self._db.path / "derived" / "results" / str(stream.id)
        for name in file_names(results):
            with suppress(FileExistsError, FileNotFoundError):
                os.link(results / name, self._directory / name)

    def bits(self) -> int:
        """What the results take, in memory as on disk."""
        return 8 * sum(path.stat().st_size for path in self._paths())

    def counts(self, queries: Mapping[str, Selection]) -> list[int]:
        """Tuples that satisfy each query. One without factors is satisfied by all, and nothing is kept for it."""
        catalog = self._db.catalog
        blocks = [self._block(catalog.query(name)) if each.intervals else None for name, each in queries.items()]
        everything = sum(self.rows.values())
        totals = {block: 0 for block in blocks if block is not None}
        seen: dict[str, set[int]] = {name: set() for name in self.rows}
        for path in self._paths():
            covered = seen[data_file_of(path.name) or ""]
            results = Results(path)
            for block in results.covered.tolist():
                if block not in covered and block in totals:
                    totals[block] += int(results.counts(block).sum())
                    covered.add(block)
        self._check_covered(seen, set(totals))
        return [everything if block is None else totals[block] for block in blocks]

    @staticmethod
    def _block(query: QueryState | None) -> int:
        assert query is not None
        return query.blocks[0]

    def _check_covered(self, seen: Mapping[str, set[int]], blocks: set[int]) -> None:
        for name, covered in seen.items():
            if blocks - covered:
                raise LadleError(f"{len(blocks - covered):,} of {len(blocks):,} blocks did not meet data file {name}.")

    def _paths(self) -> list[Path]:
        return [path for path in self._directory.iterdir() if data_file_of(path.name) in self.rows]


def create(db: Database, stream: str) -> None:
    db.sql(f"CREATE STREAM {stream} ({SCHEMA}) TIMESTAMP BY ts MAX AHEAD INTERVAL 100 DAYS")


def flow(
    db: Database,
    stream: str,
    inputs: Path,
    rows: int,
    selections: Sequence[Selection],
    scratch: Path,
    *,
    window_tuples: int,
) -> Flow:
    """Let the files flow past some standing queries, which go again afterwards."""
    create(db, stream)
    queries = named(selections, f"{stream} {window(window_tuples)}", prefix=f"{stream}_")
    if queries:
        db.register_many(queries, materialize="partial")
    measured = run_through(db, stream, inputs, rows, dict(zip(queries, selections, strict=True)), scratch)
    db.drop_stream(stream, cascade=True)
    return measured


def run_through(
    db: Database, stream: str, inputs: Path, rows: int, queries: Mapping[str, Selection], scratch: Path
) -> Flow:
    """The same for queries that stand already."""
    witness = Witness(db, stream, scratch / f"results-{stream}")
    measured = Flow(rows)
    attached = db.attach(stream, source(db.spark, inputs), source="files")
    files = len(list(inputs.iterdir()))
    while len(measured.ends) < files:
        time.sleep(0.001)
        epochs = db.catalog.streams[stream].epochs
        if epochs > len(measured.ends):
            measured.ends += [time.perf_counter()] * (epochs - len(measured.ends))
            witness.look()
        elif attached.error is not None:
            raise LadleError(f"The source failed: {attached.error}")
    attached.stop()
    if sum(witness.rows.values()) != files * rows:
        raise LadleError(f"{stream}: {sum(witness.rows.values()):,} tuples of {files * rows:,} arrived.")
    measured.counts = witness.counts(queries)
    measured.results_bits = witness.bits()
    return measured


# -- plain Spark on the same files --


@dataclass
class Native:
    """What some native streaming queries did together."""

    rate: float
    """Tuples per second, each of which every query saw."""
    counts: list[int]


def native_queries(spark: Any, inputs: Path, selections: Sequence[Selection], scratch: Path) -> Native:
    """One Spark streaming query for each of ours, all at once; their rows go nowhere, which costs the least."""
    from pyspark.sql import functions as F

    def frame(selection: Selection) -> Any:
        return source(spark, inputs).where(selection.condition).observe("seen", F.count(F.lit(1)).alias("n"))

    return run_native([frame(selection) for selection in selections], "append", scratch)


def native_windows(spark: Any, inputs: Path, selections: Sequence[Selection], columns: str, scratch: Path) -> Native:
    """One windowed Spark streaming query for each sliding aggregate: a window of 10 s every second."""
    from pyspark.sql import functions as F

    aggregates = [F.expr(column) for column in columns.split(", ")]

    def frame(selection: Selection) -> Any:
        kept = source(spark, inputs).withWatermark("ts", "1 second").where(selection.condition)
        return kept.groupBy(F.window("ts", "10 seconds", "1 second")).agg(*aggregates)

    return run_native([frame(selection) for selection in selections], "update", scratch)


def run_native(frames: Sequence[Any], mode: str, scratch: Path) -> Native:
    """Start all, wait for all. The time that starting them takes is not counted against them."""
    running = []
    began = time.time()
    for number, frame in enumerate(frames):
        writer = frame.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
        running.append(writer.option("checkpointLocation", str(scratch / f"checkpoint-{number}")).start())
    started = time.time()
    for query in running:
        if not query.awaitTermination(int(_IDLE_SECONDS_MAX)):
            raise LadleError("A native Spark query did not end.")
    progress = [dict(batch) for query in running for batch in query.recentProgress]
    ended = [(_end_of(batch), int(batch["numInputRows"])) for batch in progress]
    # A batch that was half done when the last query started counts whole: that favours Spark.
    tuples = sum(rows for end, rows in ended if end > started) / len(running)
    last = max(end for end, _ in ended)
    if not tuples:  # all was over before the last was started
        started, tuples = began, sum(rows for _, rows in ended) / len(running)
    counts = [sum(_seen(dict(batch)) for batch in query.recentProgress) for query in running]
    return Native(tuples / (last - started), counts)


def _end_of(batch: Mapping[str, Any]) -> float:
    """When a batch was over, on the wall clock."""
    from datetime import datetime

    began = datetime.fromisoformat(str(batch["timestamp"]).replace("Z", "+00:00")).timestamp()
    return began + float(batch["batchDuration"]) / 1e3


def _seen(batch: Mapping[str, Any]) -> int:
    observed = batch["observedMetrics"]
    return int(observed["seen"]["n"]) if "seen" in observed else 0


def shared_scan(db: Database, inputs: Path, rows: int, selections: Sequence[Selection], scratch: Path) -> Flow:
    """The best that plain Spark does when it shares the scan: per micro-batch, CASE sums over the cached batch."""
    from pyspark.sql import functions as F

    sums = [
        [F.expr(f"sum(CASE WHEN {selection.condition} THEN 1 ELSE 0 END)").alias(f"n{number}") for number, selection in
         enumerate(chunk)]
        for chunk in chunks(selections, EXPRESSIONS_PER_SCAN)
    ]  # fmt: skip
    measured = Flow(rows, counts=[0] * len(selections))

    def sum_up(batch: Any, _: int) -> None:
        batch.persist()
        found = [count or 0 for chunk in sums for count in batch.agg(*chunk).collect()[0]]
        batch.unpersist()
        measured.ends.append(time.perf_counter())
        measured.counts = [a + b for a, b in zip(measured.counts, found, strict=True)]

    writer = source(db.spark, inputs).writeStream.foreachBatch(sum_up).trigger(availableNow=True)
    writer.option("checkpointLocation", str(scratch / "checkpoint")).start().awaitTermination()
    return measured


def written_by_spark(db: Database, inputs: Path, rows: int, scratch: Path) -> Flow:
    """Spark's own foreachBatch, writing the same tuples as Parquet."""
    measured = Flow(rows)

    def write_batch(batch: Any, _: int) -> None:
        batch.write.mode("append").parquet(str(scratch / "data"))
        measured.ends.append(time.perf_counter())

    writer = source(db.spark, inputs).writeStream.foreachBatch(write_batch).trigger(availableNow=True)
    writer.option("checkpointLocation", str(scratch / "checkpoint")).start().awaitTermination()
    return measured
