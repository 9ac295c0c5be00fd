"""What an epoch costs with an empty query set, beside Spark's own foreachBatch that writes the same Parquet files.

Also: how soon a pushed row is visible, how much later when a backfill runs, and what an invocation costs beside DuckDB
over the same rows in memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._figures import Comparison, Figure, write
from benchmarks._flow import create, written_by_spark
from benchmarks._workload import START_US, source
from ladle.connection import connect
from ladle.engine import Database
from ladle.errors import LadleError

DESCRIPTION = "an epoch with an empty query set, a push, also during a backfill, and an invocation"

_FILE_ROWS = 1 << 16
"""Tuples of a file of retained data: one segment, so a backfill job has several files."""


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks epoch", description=DESCRIPTION)
    parser.add_argument("--rows", type=int, default=1 << 19, help="tuples of an epoch")
    parser.add_argument("--epochs", type=int, default=5, help="epochs measured in each round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, the alternatives taking turns")
    parser.add_argument("--retained", type=int, default=1 << 22, help="tuples that a backfill reads")
    parser.add_argument("--queries", type=int, default=512, help="queries that wait for the backfill")
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"), help="where the figures go")
    args = parser.parse_args(arguments)
    if args.quick:
        args.rows, args.epochs, args.rounds = 1 << 13, 2, 1
        args.retained, args.queries = 1 << 18, 128
    with TemporaryDirectory(prefix="ladle-bench-") as scratch:
        figures = _measure(Path(scratch), args)
    write(figures, "epoch", args.out, {name: value for name, value in vars(args).items() if name != "out"})
    return 0


def _measure(scratch: Path, args: argparse.Namespace) -> list[Figure]:
    rng = np.random.default_rng(1)
    inputs = scratch / "input"
    inputs.mkdir()
    for number in range(args.epochs + 1):
        pq.write_table(_tuples(rng, args.rows, number), inputs / f"{number}.parquet")
    times: dict[str, list[float]] = {"Spark": [], "Ladle": []}
    with connect(scratch / "warehouse") as db:
        for round_ in range(args.rounds):
            _say(f"round {round_ + 1} of {args.rounds}: {args.epochs} epochs of {args.rows} tuples each way")
            times["Spark"] += written_by_spark(db, inputs, args.rows, scratch / f"spark-{round_}").seconds
            times["Ladle"] += _ladle_epochs(db, inputs, f"r{round_}")
        _say("pushes of one row")
        db.sql("CREATE STREAM pushed (n INT)")
        for _ in range(5):
            db.push("pushed", [{"n": 0}], wait=True)
        pushes = [_timed(lambda: db.push("pushed", [{"n": 1}], wait=True)) for _ in range(5 if args.quick else 30)]
        invocations = _invocations(db, args)
        _say(f"pushes of ten rows while {args.queries} new queries meet {args.retained} old tuples")
        backfill = beside_backfill(db, rows=args.retained, queries=args.queries)
    return [
        Figure(f"epoch of {args.rows:,} tuples, no query", "s", times, ("Ladle", "Spark")),
        Figure("one pushed row visible", "s", {"push": pushes, "epoch": times["Ladle"]}, ("push", "epoch")),
        Figure(
            f"ten pushed rows visible; backfill: {args.queries} queries, {args.retained:,} tuples",
            "s",
            backfill,
            ("beside a backfill", "alone"),
            Comparison.DIFFERENCE,
        ),
        *invocations,
    ]


def _ladle_epochs(db: Database, inputs: Path, stream: str) -> list[float]:
    """Seconds between the ends of neighbouring batches: what an epoch costs as a whole."""
    create(db, stream)
    ends: list[float] = []
    attached = db.attach(stream, source(db.spark, inputs), source="files")
    seen = 0
    files = len(list(inputs.iterdir()))
    while seen < files:
        time.sleep(0.001)
        epochs = db.catalog.streams[stream].epochs
        ends += [time.perf_counter()] * (epochs - seen)
        seen = epochs
    attached.stop()
    return np.diff(ends).tolist()


def beside_backfill(db: Database, *, rows: int, queries: int, pushes: int = 30) -> dict[str, list[float]]:
    """Seconds until a small push is visible: while new queries meet old tuples, and with the same queries after that.

    Only pushes during which the backfill ran from beginning to end count as beside it.
    """
    rng = np.random.default_rng(2)
    create(db, "retained")
    for number in range(rows // _FILE_ROWS):
        db.push("retained", _tuples(rng, _FILE_ROWS, number), wait=True)
    few = _tuples(rng, 10, rows // 10)

    def push() -> float:
        return _timed(lambda: db.push("retained", few, wait=True))

    # A first backfill beside pushes: Spark starts a Python worker for each, once, and that is not what is measured.
    db.register("SELECT * FROM retained WHERE a > 0", name="first")
    while not _covered(db):
        push()
    for _ in range(5):
        push()
    db.register_many({f"interval_{number}": _interval_query(rng) for number in range(queries)})
    beside = []
    while not _covered(db):
        seconds = push()
        if not _covered(db):
            beside.append(seconds)
    if not beside:
        raise LadleError("The backfill was over before a push could be measured.", hint="take more queries or tuples")
    return {"alone": [push() for _ in range(max(pushes, len(beside)))], "beside a backfill": beside}


def _covered(db: Database) -> bool:
    return all(query.coverage == 1.0 for query in db.status().queries)


def _interval_query(rng: np.random.Generator) -> str:
    """An interval on each attribute with probability 0.6, and on one at least."""
    names = [name for name in "abcd" if rng.random() < 0.6] or ["a"]
    bounds = [(name, *rng.integers(0, 256, 2).tolist()) for name in names]
    return "SELECT * FROM retained WHERE " + " AND ".join(f"{x} > {lo} AND {x} <= {lo + w}" for x, lo, w in bounds)


def _invocations(db: Database, args: argparse.Namespace) -> list[Figure]:
    import duckdb

    stream = db.streams()[0].name
    rows = db.register(f"SELECT * FROM {stream} [ROWS 65536] WHERE a < 8 AND b > 128", name="some_rows")
    counted = db.register(f"SELECT count(*) AS c FROM {stream} [ROWS 65536] WHERE a < 8", name="counted")
    db.backfill()
    window = db.sql(f"SELECT * FROM {stream} [ROWS 65536]").table
    repeats = 20 if args.quick else 300
    figures = []
    with duckdb.connect() as other:
        other.register("w", window)
        for name, query, text in (
            ("rows", rows, "SELECT * FROM w WHERE a < 8 AND b > 128"),
            ("COUNT", counted, "SELECT count(*) AS c FROM w WHERE a < 8"),
        ):
            _say(f"invocations: {name}")
            ours = [_timed(query.invoke) * 1e3 for _ in range(repeats)]
            theirs = [_timed(partial(_asked, other, text)) * 1e3 for _ in range(repeats)]
            title = f"invoke, {name}, window 2^16"
            figures.append(Figure(title, "ms", {"DuckDB": theirs, "Ladle": ours}, ("DuckDB", "Ladle")))
    return figures


def _asked(other: Any, text: str) -> Any:
    return other.sql(text).to_arrow_table()


def _tuples(rng: np.random.Generator, rows: int, number: int) -> pa.Table:
    start_us = START_US + number * rows
    columns = {name: rng.integers(0, 256, rows, dtype=np.int32) for name in "abcd"}
    return pa.table({"ts": pa.array(np.arange(start_us, start_us + rows), pa.timestamp("us", "UTC")), **columns})


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
