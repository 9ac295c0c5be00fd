"""Groups by time windows without Spark, beside a warm Spark batch over the same rows; and changes of many groups.

A hopping window by symbol is asked for right after an epoch, so that what that brought is folded for the answer; Spark
has the same rows cached in memory. Every answer that is compared is the same in both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks._bars import Bar, Quantity, Sense, absolute, faster, make_command, print_bars, write_bars
from benchmarks._progress import Steps
from ladle.connection import connect
from ladle.engine import Database
from ladle.errors import LadleError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "hopping and session windows by symbol, beside a Spark batch, and changes of many groups"

_STREAM = "CREATE STREAM {} (symbol STRING, number INT, size BIGINT, price DOUBLE, at TIMESTAMP) TIMESTAMP BY at"
_HOPPING = """SELECT window.start AS w, symbol, count(*) AS n, sum(size) AS s, avg(price) AS p FROM {}
GROUP BY window(at, '10 minutes', '1 minute'), symbol"""
_SESSIONS = """SELECT session_window.start AS w, symbol, count(*) AS n, sum(size) AS s, avg(price) AS p FROM {}
GROUP BY session_window(at, '20 seconds'), symbol"""
_START_US = 1_700_000_000_000_000

_PAGE = """# Time windows without Spark

Written by `{command}`. Ratios of alternatives measured in one run on one machine: {machine}.
With {versions}.{quick}

{epochs} epochs of {rows} tuples, 7.5 minutes each, of {symbols} symbols.

{met} of {total} bars are met{missed}

{table}

![values against their bars]({name}.svg)

- Hopping windows of ten minutes begin every minute, so each tuple is in ten. Ladle is asked right after each of the
  last epochs: what the epoch brought is folded into panes of a minute, and panes become windows. In brackets: asked
  again.
- Spark has all tuples cached in memory, in its own form, and has run the query before. The rows of both are the same.
- Sessions have no state in Ladle: DuckDB computes them over all tuples. That they take no longer than Spark's is all
  that is asked of them.
- Many groups: a window of ten epochs in which all of {groups} groups change with every epoch. A subscriber in the same
  process is told what each epoch changed: the epoch's segment is folded for the first time, and the answer is compared
  with the one before; in brackets, what another subscriber waits who asks for the same.
- All samples are in `{name}.json`, which the command writes beside this page, and which git leaves out.
"""


@dataclass(frozen=True)
class Sizes:
    rows: int = 1 << 16
    epochs: int = 8
    symbols: int = 200
    groups: int = 10_000
    wide_epochs: int = 14
    answers: int = 3


QUICK = Sizes(rows=1 << 11, epochs=6, symbols=20, groups=500, wide_epochs=6, answers=2)


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks windows", description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the figures go (default: docs/benchmarks)")
    args = parser.parse_args(arguments)
    sizes = QUICK if args.quick else Sizes()
    with TemporaryDirectory(prefix="ladle-bench-") as scratch:
        bars = measure(Path(scratch), sizes)
    print_bars(bars)
    command = make_command("windows", quick=args.quick)
    write_bars(
        bars, "windows", _PAGE, args.out, command, asdict(sizes), quick=args.quick,
        packages=("pyspark", "duckdb", "numpy", "pyarrow"), epochs=str(sizes.epochs), rows=f"{sizes.rows:,}",
        symbols=str(sizes.symbols), groups=f"{sizes.groups:,}",
    )  # fmt: skip
    return 0


def measure(scratch: Path, sizes: Sizes) -> list[Bar]:
    rng = np.random.default_rng(1)
    tuples = [_tuples(rng, sizes, number) for number in range(sizes.epochs)]
    with Steps(3) as steps, connect(scratch / "warehouse") as db:
        steps.step("windows")
        db.sql(_STREAM.format("trades"))
        hopping = db.register(_HOPPING.format("trades"), name="hopping", materialize="partial")
        sessions = db.register(_SESSIONS.format("trades"), name="sessions", materialize="partial")
        fresh: list[float] = []
        again: list[float] = []
        for number, epoch in enumerate(tuples):
            db.push("trades", epoch, wait=True)
            if number >= len(tuples) - sizes.answers - 1:
                fresh.append(_timed(hopping.invoke))
                again.append(_timed(hopping.invoke))
        paused = [_timed(sessions.invoke) for _ in range(sizes.answers + 1)]
        steps.step("Spark")
        _cached(db.spark, tuples)
        native = {"hopping": _by_spark(db.spark, _HOPPING, sizes), "sessions": _by_spark(db.spark, _SESSIONS, sizes)}
        for query, text in ((hopping, _HOPPING), (sessions, _SESSIONS)):
            _check(query.invoke().table, db.spark.sql(text.format("native")).toArrow())
        steps.step("many groups")
        first, later = _many_groups(db, sizes)
    groups = f"a change of {sizes.groups:,} groups for a subscriber, windows of ten epochs"
    return [
        faster(
            "hopping", "a hopping window by symbol", _ms("Ladle", fresh[1:]), _ms("Spark batch", native["hopping"][1:]),
            50, None, beside=f"{np.median(again[1:]) * 1e3:.3g} ms",
        ),
        faster(
            "sessions", "sessions by symbol", _ms("Ladle", paused[1:]), _ms("Spark batch", native["sessions"][1:]),
            1, None,
        ),
        absolute(
            "groups", groups, _ms("Ladle", first), Sense.AT_MOST, 15, None, beside=f"{np.median(later) * 1e3:.3g} ms"
        ),
    ]  # fmt: skip


def _by_spark(spark: SparkSession, text: str, sizes: Sizes) -> list[float]:
    return [_timed(lambda: spark.sql(text.format("native")).toArrow()) for _ in range(sizes.answers + 1)]


def _many_groups(db: Database, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Seconds until a subscriber has what an epoch changed: the first who asks, and one who asks again."""
    rng = np.random.default_rng(2)
    db.sql(_STREAM.format("wide"))
    text = "SELECT number, count(*) AS n, sum(size) AS s FROM wide [RANGE 75 MINUTES] GROUP BY number"
    query = db.register(text, name="wide_groups", materialize="partial")
    heard = query.subscribe()
    first: list[float] = []
    later: list[float] = []
    for number in range(sizes.wide_epochs):
        before = heard.position
        db.push("wide", _tuples(rng, sizes, number), wait=True)
        seconds = _timed(partial(heard.next, 0.0))
        if number >= min(10, sizes.wide_epochs // 2):
            first.append(seconds)
            later.append(_timed(partial(query.subscribe(since=before).next, 0.0)))
    return first, later


def _cached(spark: SparkSession, tuples: Sequence[pa.Table]) -> None:
    frame = spark.createDataFrame(pa.concat_tables(tuples)).repartition(2).cache()
    frame.count()
    frame.createOrReplaceTempView("native")


def _check(ours: pa.Table, theirs: pa.Table) -> None:
    """Raises unless both have the same rows; averages of doubles to nine digits."""
    keys = [("w", "ascending"), ("symbol", "ascending")]
    ours, theirs = (table.select(["w", "symbol", "n", "s", "p"]).sort_by(keys) for table in (ours, theirs))
    exact = ["symbol", "n", "s"]
    same = ours.select(exact).equals(theirs.cast(ours.schema).select(exact))
    if not same or not np.allclose(ours["p"].to_numpy(), theirs["p"].to_numpy(), rtol=1e-9):
        raise LadleError("Ladle and Spark answered different rows.")


def _ms(label: str, seconds: Sequence[float]) -> Quantity:
    return Quantity(label, "ms", [each * 1e3 for each in seconds])


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _tuples(rng: np.random.Generator, sizes: Sizes, number: int) -> pa.Table:
    """An epoch of 7.5 minutes."""
    length_us = 450_000_000
    times = _START_US + number * length_us + np.sort(rng.integers(0, length_us, sizes.rows))
    symbols = pa.array([f"S{n:03d}" for n in range(sizes.symbols)])
    return pa.table(
        {
            "symbol": symbols.take(pa.array(rng.integers(0, sizes.symbols, sizes.rows))),
            "number": rng.integers(0, sizes.groups, sizes.rows).astype(np.int32),
            "size": rng.integers(1, 1_000, sizes.rows),
            "price": rng.random(sizes.rows) * 100,
            "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )
