"""CACQ's streams and queries, an eddy over some of them, and what DuckDB counts.

The stored paper has lost its numerals; these are ours. `m(ts, a, b, c, d, e)`, attributes uniform in [0, 100). Five
*nested* queries: `a > 90`, then `AND b > 70`, `AND c > 50`, `AND d > 30`, `AND e > 10`. All seeds are fixed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks._workload import START_US, check_counts
from ladle import sql
from ladle.eddy import Account, Policy, Router
from ladle.engine import Database
from ladle.plan import Block
from ladle.stem.query_stem import PAGE, QueryStem, index_page
from ladle.stem.results import Results, ResultsWriter

ATTRIBUTES = "abcde"
CONSTANTS = {"a": 90, "b": 70, "c": 50, "d": 30, "e": 10}
TOP = 100.0
SEGMENT = 65_536
STREAM = "m"

_SCHEMA = ", ".join(["ts TIMESTAMP", *(f"{name} DOUBLE" for name in ATTRIBUTES)])
_FILTERS_PER_STATEMENT = 256


def create(db: Database, stream: str = STREAM) -> None:
    db.sql(f"CREATE STREAM {stream} ({_SCHEMA}) TIMESTAMP BY ts")


def tuples(rows: int, *seed: int, passing: Mapping[str, float] | None = None) -> pa.Table:
    """Uniform; or skewed so that `name > CONSTANTS[name]` passes these shares."""
    rng = np.random.default_rng(seed)
    columns = {}
    for name in ATTRIBUTES:
        values = rng.random(rows)
        if passing is None:
            columns[name] = values * TOP
        else:
            constant, share = CONSTANTS[name], passing[name]
            above = constant + (values - (1 - share)) / share * (TOP - constant)
            columns[name] = np.where(values > 1 - share, above, values / (1 - share) * constant)
    times = pa.array(START_US + np.arange(rows, dtype=np.int64), pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, **columns})


def above(name: str, more: int = 0) -> str:
    return f"{name} > {CONSTANTS[name] + more}"


def nested() -> list[str]:
    return [" AND ".join(above(name) for name in ATTRIBUTES[: count + 1]) for count in range(len(ATTRIBUTES))]


def on_all() -> list[str]:
    """Five queries that use all attributes, so that any of them may be the best to begin with."""
    return [" AND ".join(above(name, more) for name in ATTRIBUTES) for more in range(5)]


def arriving(workload: int) -> list[str]:
    """The three workloads whose queries arrive one after the other."""
    match workload:
        case 1:
            return [above(name) for name in ATTRIBUTES]
        case 2:
            return [" AND ".join(f"{name} > 50" for name in ATTRIBUTES[: count + 1]) for count in range(5)]
        case _:
            texts = nested()
            return [texts[place] for place in np.random.default_rng(33).permutation(len(texts))]


def random_conditions(count: int, *, seed: int, predicates: int | None = None) -> list[str]:
    """Each attribute has a predicate with probability one half, or so many of them have; no equalities."""
    rng = np.random.default_rng(seed)
    return [_random_condition(rng, predicates) for _ in range(count)]


def _random_condition(rng: np.random.Generator, predicates: int | None) -> str:
    chosen: list[str] = []
    while not chosen:
        if predicates is None:
            chosen = [name for name in ATTRIBUTES if rng.random() < 0.5]
        else:
            chosen = sorted(rng.choice(list(ATTRIBUTES), predicates, replace=False).tolist())
    relops = ("<", "<=", ">", ">=")
    return " AND ".join(f"{name} {relops[rng.integers(0, 4)]} {rng.random() * TOP:.3f}" for name in chosen)


def counts_by_duckdb(table: pa.Table, conditions: Sequence[str]) -> list[int]:
    import duckdb

    counts: list[int] = []
    with duckdb.connect() as other:
        other.register("m", table)
        for start in range(0, len(conditions), _FILTERS_PER_STATEMENT):
            some = conditions[start : start + _FILTERS_PER_STATEMENT]
            asked = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition in some)
            found = other.execute(f"SELECT {asked} FROM m").fetchone()
            assert found is not None
            counts += found
    return counts


class Eddy:
    """Some queries in one Query SteM."""

    def __init__(self, db: Database, conditions: Sequence[str], stream: str = STREAM) -> None:
        self.conditions = list(conditions)
        ids: dict[Block, int] = {}
        catalog = db.catalog
        blocks = [sql.bind(f"SELECT * FROM {stream} WHERE {text}", catalog).scans[0].block for text in conditions]
        self._ids = [ids.setdefault(block, len(ids)) for block in blocks]
        pages: dict[int, dict[int, Block]] = {}
        for block, number in ids.items():
            pages.setdefault(number // PAGE, {})[number] = block
        self.stem = QueryStem([index_page(page) for page in pages.values()])

    def run(self, segments: Sequence[pa.Table], router: Router, scratch: Path) -> Passed:
        """Let tuples pass; as in an epoch's task, which tuples satisfy which query is written down."""
        writer = ResultsWriter(scratch, "cacq.parquet", self.stem.blocks)
        began = time.perf_counter()
        for segment in segments:
            self.stem.probe(segment, writer, router)
        path = writer.finish()
        seconds = time.perf_counter() - began
        assert path is not None
        results = Results(path)
        counts = [int(results.counts(block).sum()) for block in self._ids]
        path.unlink()
        return Passed(seconds, counts)


@dataclass(frozen=True)
class Passed:
    seconds: float
    counts: list[int]
    """Of each query."""

    def check(self, what: str, table: pa.Table, conditions: Sequence[str]) -> None:
        check_counts(what, self.counts, counts_by_duckdb(table, conditions))


def segments_of(table: pa.Table) -> list[pa.Table]:
    return [table.slice(start, SEGMENT).combine_chunks() for start in range(0, len(table), SEGMENT)]


class Counting(Router):
    """Routes as a router does, and counts the visits of every chunk: a router counts those of one chunk in 64.

    What it learns and when it draws lots is not changed by that. For the count, each operator is told which tuples
    are still wanted, also where finding that out costs more than it spares.
    """

    def __init__(
        self,
        policy: Policy = Policy.TICKETS,
        known: Mapping[str, Account] | None = None,
        seed: int = 0,
        *,
        given: str | None = None,
        learn_all: bool = False,
    ) -> None:
        super().__init__(policy, known, seed)
        self.visits: dict[str, float] = {}
        self._given = given
        self._learn_all = learn_all
        self._own_turn = False

    def exploring(self) -> bool:
        self._own_turn = super().exploring()
        return True

    def order(self, operators: Sequence[str], *, explore: bool = False) -> list[str]:
        if self._given is not None:
            return sorted(operators, key=self._given.index)
        return super().order(operators, explore=explore and self._own_turn)

    def observe(self, operator: str, account: Account) -> None:
        self.visits[operator] = self.visits.get(operator, 0.0) + account.visited
        if self._own_turn or self._learn_all:
            super().observe(operator, account)


RouterMaker = Callable[[Mapping[str, Account]], Counting]
"""A router of an epoch, from what is known before."""
