"""Registering among very many standing queries: what one more costs, and what the many cost everybody else.

Without Spark: tasks run in this process, so that what is measured is the catalog, the log and the driver's share of an
epoch. Times are of the clock, and beside them of this process's processor, which a busy machine does not stretch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from ladle.engine import Database
from ladle.ingest.epochs import Ingest
from ladle.testing import connect_inline

_STREAM = "CREATE STREAM r (ts TIMESTAMP, a INT, b INT, c INT, d INT) TIMESTAMP BY ts"
_START_US = 1_700_000_000_000_000


def run(quick: bool) -> dict[str, float]:
    """The figures by name; `..._cpu` are of the processor, `per_s` are rates, the rest seconds."""
    many, singly = (2_000, 100) if quick else (100_000, 1_000)
    rng = np.random.default_rng(3)
    with TemporaryDirectory(prefix="ladle-bench-") as scratch:
        path = Path(scratch) / "warehouse"
        figures: dict[str, float] = {"queries": many}
        with connect_inline(path) as db:
            db.sql(_STREAM)
            figures |= _one_by_one(db, [selective_query(rng) for _ in range(singly)])
            texts = {f"many_{number}": selective_query(rng) for number in range(many - singly)}
            figures |= _in_one_call(db, texts)
            figures |= _one_more(db, [selective_query(rng) for _ in range(20 if quick else 100)])
            figures |= _epochs(db, rng, 3 if quick else 10)
            figures |= _one_more(db, [selective_query(rng) for _ in range(20)], "_beside_backfill")
            figures |= _inserting(db, 3 if quick else 20)
            figures |= _named("status_s", db.status)
            figures |= _named("close_s", db.close)
        opened: list[Database] = []
        figures |= _named("open_s", lambda: opened.append(connect_inline(path)))
        figures |= _named("first_invoke_s", lambda: opened[0].invoke("many_0"))
        opened[0].close()
    return figures


def selective_query(rng: np.random.Generator) -> str:
    """W1s of the peers: an interval on each of four attributes, about 1,000 rows of 2^16."""
    bounds = [(name, int(rng.integers(0, 256)), int(rng.integers(60, 141))) for name in "abcd"]
    return "SELECT * FROM r [ROWS 65536] WHERE " + " AND ".join(
        f"{name} > {low} AND {name} <= {low + width}" for name, low, width in bounds
    )


def _one_by_one(db: Database, texts: list[str]) -> dict[str, float]:
    db.register(texts[0], name="first")
    db.register(texts[1], name="second")
    with _timed() as took:
        for number, text in enumerate(texts[2:]):
            db.register(text, name=f"single_{number}")
    count = len(texts) - 2
    return {"singly_per_s": count / took["s"], "singly_cpu_per_s": count / took["cpu"]}


def _in_one_call(db: Database, texts: dict[str, str]) -> dict[str, float]:
    with _timed() as took:
        db.register_many(texts)
    return {"at_once_per_s": len(texts) / took["s"], "at_once_cpu_per_s": len(texts) / took["cpu"]}


def _one_more(db: Database, texts: list[str], when: str = "") -> dict[str, float]:
    came, came_cpu, went, went_cpu = [], [], [], []
    for number, text in enumerate(texts):
        with _timed() as took:
            db.register(text, name=f"one_more_{number}")
        came.append(took["s"])
        came_cpu.append(took["own_cpu"])
    for number in range(len(texts)):
        with _timed() as took:
            db.unregister(f"one_more_{number}")
        went.append(took["s"])
        went_cpu.append(took["own_cpu"])
    return {
        f"register_one_more{when}_s": median(came),
        f"register_one_more{when}_cpu_s": median(came_cpu),
        f"unregister_one{when}_s": median(went),
        f"unregister_one{when}_cpu_s": median(went_cpu),
    }


def _epochs(db: Database, rng: np.random.Generator, count: int) -> dict[str, float]:
    """An epoch's share of the driver: making its task. With the query set as it was, and after one query came."""
    ingest: Ingest = db._ingest
    same, changed = [], []
    for number in range(count):
        db.push("r", _tuples(rng, 10, 1_000 + 10 * number), wait=True)
        same.append(_task_seconds(db, ingest))
        db.register(selective_query(rng), name=f"between_{number}")
        changed.append(_task_seconds(db, ingest))
    return {"epoch_task_cpu_s": median(same), "epoch_task_after_register_cpu_s": median(changed)}


def _inserting(db: Database, count: int) -> dict[str, float]:
    """What a row of `INSERT ... VALUES` takes of the processor: read, cast and pushed, in statements of 1,000."""
    db.sql("CREATE STREAM inserted (symbol STRING, price DOUBLE, size INT, at TIMESTAMP) TIMESTAMP BY at")
    rows = ", ".join(f"('S{n}', {n}.5, {n}, TIMESTAMP '2023-11-14 12:00:00')" for n in range(1_000))
    taken = []
    for _ in range(count):
        with _timed() as took:
            db.sql(f"INSERT INTO inserted VALUES {rows}")
        taken.append(took["own_cpu"] / 1_000)
    return {"insert_row_cpu_s": median(taken)}


def _task_seconds(db: Database, ingest: Ingest) -> float:
    catalog = db.catalog
    with _timed() as took:
        ingest._task(catalog, catalog.streams["r"], "bench")
    return took["own_cpu"]


def _tuples(rng: np.random.Generator, rows: int, first: int) -> pa.Table:
    columns = {name: rng.integers(0, 256, rows, dtype=np.int32) for name in "abcd"}
    times = np.arange(_START_US + first, _START_US + first + rows)
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), **columns})


def _named(name: str, call: Callable[[], Any]) -> dict[str, float]:
    with _timed() as took:
        call()
    return {name: took["s"], name.replace("_s", "_cpu_s"): took["cpu"]}


@contextmanager
def _timed() -> Iterator[dict[str, float]]:
    """Seconds by the clock, of the processor, and of this thread alone."""
    took: dict[str, float] = {}
    started, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
    yield took
    took |= {
        "s": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
        "own_cpu": time.thread_time() - own,
    }
