"""PSoup's experiments (section 5.2 of the paper): response times of NoMat, PSoup-P and PSoup-C, and arrival rates.

Data are uniform in [0, 255]. A constant is a multiple of 32 with probability 0.2 and uniform otherwise; the size of an
interval is uniform in [0, 255]. NoMat, P and C are our modes `none`, `partial` and `complete`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from benchmarks._flow import create, flow
from benchmarks._probe import Probe
from benchmarks._workload import (
    COLUMNS,
    Interval,
    Selection,
    check_counts,
    counts_by_duckdb,
    named,
    tuples,
    window,
    write_files,
)
from ladle.archive.warehouse import Warehouse
from ladle.catalog.store import Store
from ladle.clock import WallClock
from ladle.config import Settings
from ladle.engine import Database
from ladle.errors import LadleError
from ladle.execute.complete_answers import KeptAnswer
from ladle.execute.invoke import Invoker

SYSTEMS = {"NoMat": "none", "PSoup-P": "partial", "PSoup-C": "complete"}
_ODD_ROWS = 12_345
_SETTLE_SECONDS = 0.5


@dataclass(frozen=True)
class Response:
    """One point: what it takes to answer, over all queries."""

    system: str
    x: int
    """The window in tuples, or the number of factors."""
    engine_ms: list[float]
    """By query, the median over the rounds."""
    wall_ms: list[float]
    rows: float
    """Tuples in an answer, in the mean."""

    @property
    def mean_ms(self) -> float:
        return float(np.mean(self.engine_ms))


def constant(rng: np.random.Generator) -> int:
    return int(32 * rng.integers(0, 8) if rng.random() < 0.2 else rng.integers(0, 256))


def equalities(count: int, *, seed: int) -> list[str]:
    """Conditions of one to four equality predicates."""
    rng = np.random.default_rng(seed)
    return [" AND ".join(f"{name} = {constant(rng)}" for name in _some(rng)) for _ in range(count)]


def intervals(count: int, *, seed: int, predicates: int | None = None) -> list[Selection]:
    """Queries of so many interval predicates on different attributes; one to four if it isn't said."""
    rng = np.random.default_rng(seed)
    return [Selection(tuple(random_interval(rng, name) for name in _some(rng, predicates))) for _ in range(count)]


def conditions(count: int, *, seed: int, factors: int) -> list[str]:
    """Conditions of so many boolean factors: two make an interval, a single one is a bound."""
    if factors > 1:
        return [selection.condition for selection in intervals(count, seed=seed, predicates=factors // 2)]
    rng = np.random.default_rng(seed)
    return [f"{_some(rng, 1)[0]} <= {constant(rng)}" for _ in range(count)]


def _some(rng: np.random.Generator, count: int | None = None) -> list[str]:
    size = int(rng.integers(1, len(COLUMNS) + 1)) if count is None else count
    return sorted(rng.choice(list(COLUMNS), size=size, replace=False).tolist())


def random_interval(rng: np.random.Generator, column: str) -> Interval:
    low = constant(rng)
    return Interval(column, low, low + int(rng.integers(0, 256)))


@contextmanager
def loaded(db: Database, stream: str, rows: int) -> Iterator[None]:
    """A stream with some tuples in it, and with a few more, so that no window ends where a segment does."""
    create(db, stream)
    for number in range(max(rows // (1 << 16), 1)):
        db.push(stream, tuples(min(rows, 1 << 16), number), wait=True)
    number = max(rows // (1 << 16), 1)
    db.push(stream, tuples(min(rows, 1 << 16), number).slice(0, _ODD_ROWS), wait=True)
    yield
    db.drop_stream(stream, cascade=True)


def responses(
    db: Database,
    stream: str,
    system: str,
    conditions_: Sequence[str],
    windows: Sequence[int],
    rounds: int,
    *,
    name: str,
) -> Iterator[Response]:
    """Response times of one system over windows of different sizes; `name` begins the queries' names."""
    names: dict[int, list[str]] = {}
    for size in windows:
        queries = {
            f"{name}_{size}_{number}": f"SELECT * FROM {stream} {window(size)} WHERE {condition}"
            for number, condition in enumerate(conditions_)
        }
        db.register_many(queries, materialize=SYSTEMS[system])
        names[size] = list(queries)
    db.backfill()
    for size in windows:
        check_rows(db, stream, size, dict(zip(names[size], conditions_, strict=True)))
    settle(db)
    for size in windows:
        yield timed(db, system, size, names[size], rounds)


def timed(db: Database, system: str, x: int, names: Sequence[str], rounds: int) -> Response:
    """Invoke each query in turn, so many rounds."""
    engine = np.empty((rounds, len(names)))
    wall = np.empty_like(engine)
    rows = 0
    for turn in range(rounds):
        for number, query in enumerate(names):
            began = time.perf_counter()
            answer = db.invoke(query)
            wall[turn, number] = time.perf_counter() - began
            engine[turn, number] = answer.seconds
            rows += len(answer)
    ms, wall_ms = (1e3 * np.median(each, axis=0) for each in (engine, wall))
    return Response(system, x, ms.tolist(), wall_ms.tolist(), rows / rounds / len(names))


def check_rows(db: Database, stream: str, size: int, queries: dict[str, str]) -> None:
    """Each answer has as many rows as DuckDB finds in the window. It also warms up."""
    import duckdb

    inside = db.sql(f"SELECT * FROM {stream} {window(size)}").table
    with duckdb.connect() as other:
        other.register("inside", inside)
        asked = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition in queries.values())
        expected = other.execute(f"SELECT {asked} FROM inside").fetchone()
    assert expected is not None
    check_counts(f"window of {size:,}", [len(db.invoke(name)) for name in queries], expected)


def settle(db: Database) -> None:
    """Wait until complete queries are current, so that keeping them so doesn't run beside the measurement."""
    known = -1
    while (kept := sum(query.kept_bytes for query in db.status().queries)) != known:
        known = kept
        time.sleep(_SETTLE_SECONDS)


# -- arrival rates --


@dataclass(frozen=True)
class Arrival:
    """Tuples per second that the engine takes in with so many queries, by system; samples."""

    queries: int
    rates: dict[str, list[float]]


def arrivals(
    db: Database, scratch: Path, queries: int, *, rows: int, epoch: int, rounds: int, window_tuples: int
) -> Arrival:
    """P costs the probe; C costs the probe and bringing all answers up to date after each epoch."""
    selections = intervals(queries, seed=23)
    stream = f"rate_{queries}"
    with standing(db, stream, selections, window_tuples):
        probe = Probe(db, stream, selections, tuples(rows, 0))
        probe.shared(scratch)  # compiles, if nothing was compiled before
        shared, unshared = [], []
        for _ in range(rounds):
            shared.append(probe.shared(scratch))
            unshared.append(probe.unshared(scratch))
        kept = maintenance(db, stream, epoch=epoch, rounds=rounds)
    return Arrival(
        queries,
        {
            "PSoup-P_Shrd": [1 / each for each in shared],
            "PSoup-P_Unshrd": [1 / each for each in unshared],
            "PSoup-C_Shrd": [1 / (a + b) for a, b in zip(shared, kept, strict=True)],
            "PSoup-C_Unshrd": [1 / (a + b) for a, b in zip(unshared, kept, strict=True)],
        },
    )


@contextmanager
def standing(db: Database, stream: str, selections: Sequence[Selection], window_tuples: int) -> Iterator[None]:
    create(db, stream)
    db.register_many(named(selections, f"{stream} {window(window_tuples)}", prefix=f"{stream}_"), materialize="partial")
    yield
    db.drop_stream(stream, cascade=True)


def maintenance(db: Database, stream: str, *, epoch: int, rounds: int) -> list[float]:
    """Seconds per tuple that bringing all answers up to date takes, after epochs of so many tuples.

    By itself, in a reader of its own: in the database it would run beside whatever else does.
    """
    warehouse = Warehouse.open(db.path, writable=False)
    store = Store(warehouse, WallClock(), Settings())
    invoker = Invoker(store, _no_spark)
    seconds = []
    try:
        kept: dict[str, KeptAnswer] = {}
        for number in range(rounds + 1):
            db.push(stream, tuples(epoch, number), wait=True)
            with store.pin() as catalog:
                queries = [query for query in catalog.queries.values() if stream in query.plan.streams]
                plans = {query.name: query.plan for query in queries}
                kept = kept or {name: KeptAnswer(plan) for name, plan in plans.items()}
                began = time.perf_counter()
                for name, plan in plans.items():
                    invoker.answer(plan, catalog, kept=kept[name])
                if number:
                    seconds.append((time.perf_counter() - began) / epoch)
    finally:
        store.close()
    return seconds


def _no_spark() -> NoReturn:
    raise LadleError("These queries need no Spark.")


def streamed(db: Database, scratch: Path, queries: int, *, rows: int, epochs: int, window_tuples: int) -> list[float]:
    """The same rate through the whole streaming path: Spark, durable files and commits."""
    inputs = scratch / "input"
    files = sorted(inputs.iterdir()) if inputs.exists() else write_files(inputs, epochs + 1, rows)
    selections = intervals(queries, seed=23)
    directory = scratch / f"streamed-{queries}"
    directory.mkdir()
    measured = flow(db, f"streamed_{queries}", inputs, rows, selections, directory, window_tuples=window_tuples)
    check_counts(f"{queries:,} queries", measured.counts, counts_by_duckdb(files, selections))
    return measured.rates
