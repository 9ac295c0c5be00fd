"""PSoup's experiments with joins: response time of join queries (figure 8), and composite tuples (figure 11).

Streams and constants are those of the selections (`_experiments`). A join query has one factor between the streams,
`r.a RELOP s.b +/- c`, and, as a selection has, one to four intervals, here over the attributes of both streams.
"""

from __future__ import annotations

import time
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks._bars import Bar, Quantity, faster, shown
from benchmarks._experiments import SYSTEMS, Response, constant, random_interval, settle, timed
from benchmarks._flow import create
from benchmarks._joining import check_pairs
from benchmarks._workload import COLUMNS, START_US, Interval, Selection, arrays_of, masks_one_by_one, tuples, window
from ladle.columns import from_numpy
from ladle.engine import Database
from ladle.errors import LadleError
from ladle.plan import JoinFactor, JoinKey, PairJoin, Reach, Relop
from ladle.plan.window import MAX_US, MIN_US
from ladle.stem.data_stem import DataStem, Pairs, join

DUCKDB = "DuckDB"
"""Executes a query from scratch, on the tuples of the window."""
TUPLE_BY_TUPLE = "tuple by tuple"
"""NoMat as the paper has it: an index of the data is probed with one tuple after the other."""

BAR_WINDOW = 576
"""Where the paper gives values of figure 8."""
PAPER_576 = {"PSoup-P": 29.98, "PSoup-C": 8.54}
"""Milliseconds."""

_INEQUALITIES = (Relop.LT, Relop.LE, Relop.GT, Relop.GE)
_ODD_ROWS = 345
_PAIRS_MAX = 1 << 30

Places = npt.NDArray[np.int64]
Values = npt.NDArray[np.int32]


# -- figure 8: response times --


@dataclass(frozen=True)
class InequalityJoin:
    """`r.a relop s.b + shift`, and the intervals of either side."""

    relop: Relop
    shift: int
    r: Selection
    s: Selection

    @property
    def condition(self) -> str:
        on = f"r.a {self.relop.value} s.b {'-' if self.shift < 0 else '+'} {abs(self.shift)}"
        sides = (("r", self.r), ("s", self.s))
        own = [replace(each, column=f"{name}.{each.column}").sql for name, side in sides for each in side.intervals]
        return " AND ".join((on, *own))

    def sql(self, r: str, s: str) -> str:
        return f"SELECT r.*, s.* FROM {r} AS r, {s} AS s WHERE {self.condition}"


def inequality_joins(count: int, *, seed: int) -> list[InequalityJoin]:
    rng = np.random.default_rng(seed)
    return [_inequality_join(rng) for _ in range(count)]


def _inequality_join(rng: np.random.Generator) -> InequalityJoin:
    relop = _INEQUALITIES[rng.integers(len(_INEQUALITIES))]
    shift = constant(rng) * int(rng.choice((-1, 1)))
    attributes = [(stream, column) for stream in "rs" for column in COLUMNS]
    chosen = sorted(rng.choice(len(attributes), size=rng.integers(1, 5), replace=False).tolist())
    intervals: dict[str, list[Interval]] = {"r": [], "s": []}
    for stream, column in (attributes[number] for number in chosen):
        intervals[stream].append(random_interval(rng, column))
    return InequalityJoin(relop, shift, Selection(tuple(intervals["r"])), Selection(tuple(intervals["s"])))


@contextmanager
def joined_streams(db: Database, name: str, rows: int) -> Iterator[dict[str, str]]:
    """Two streams with some tuples each, and with a few more, so that no window ends where a segment does."""
    streams = {"r": f"{name}_r", "s": f"{name}_s"}
    for stream in streams.values():
        create(db, stream)
    for number, count in enumerate((rows, min(_ODD_ROWS, rows))):
        for seed, stream in enumerate(streams.values(), 1):
            db.push(stream, tuples(rows, number, seed=seed).slice(0, count), wait=True)
    yield streams
    for stream in streams.values():
        db.drop_stream(stream, cascade=True)


def join_responses(
    db: Database,
    streams: Mapping[str, str],
    system: str,
    queries: Sequence[InequalityJoin],
    windows: Sequence[int],
    rounds: int,
) -> Iterator[Response]:
    """Response times of one system over windows of different sizes."""
    names: dict[int, list[str]] = {}
    for size in windows:
        r, s = (f"{stream} {window(size)}" for stream in streams.values())
        texts = {f"{streams['r']}_{size}_{number}": query.sql(r, s) for number, query in enumerate(queries)}
        db.register_many(texts, materialize=SYSTEMS[system])
        names[size] = list(texts)
    db.backfill()
    for size in windows:
        with InWindow(db, streams, size) as inside:
            check_pairs(f"{system}, windows of {size:,}", [len(db.invoke(name)) for name in names[size]],
                        [inside.count_by_duckdb(query) for query in queries])  # fmt: skip
    settle(db)
    for size in windows:
        yield timed(db, system, size, names[size], rounds)


def from_scratch(
    db: Database, streams: Mapping[str, str], queries: Sequence[InequalityJoin], windows: Sequence[int], rounds: int
) -> Iterator[Response]:
    """The same queries executed by others, on tuples in memory that are cut to the windows already."""
    for size in windows:
        with InWindow(db, streams, size) as inside:
            expected = [inside.count_by_duckdb(query) for query in queries]
            for system, execute in ((DUCKDB, inside.by_duckdb), (TUPLE_BY_TUPLE, inside.tuple_by_tuple)):
                counts = [len(execute(query)) for query in queries]  # which also warms up
                check_pairs(f"{system}, windows of {size:,}", counts, expected)
                ms = _milliseconds(execute, queries, rounds)
                yield Response(system, size, ms, ms, float(np.mean(counts)))


def _milliseconds(
    execute: Callable[[InequalityJoin], pa.Table], queries: Sequence[InequalityJoin], rounds: int
) -> list[float]:
    seconds = np.empty((rounds, len(queries)))
    for turn in range(rounds):
        for number, query in enumerate(queries):
            began = time.perf_counter()
            execute(query)
            seconds[turn, number] = time.perf_counter() - began
    return (1e3 * np.median(seconds, axis=0)).tolist()


class InWindow:
    """A context manager: the tuples of both streams' windows, and queries over them from scratch."""

    def __init__(self, db: Database, streams: Mapping[str, str], size: int) -> None:
        import duckdb

        self._tables = {name: db.sql(f"SELECT * FROM {own} {window(size)}").table for name, own in streams.items()}
        self._columns = {name: arrays_of(table) for name, table in self._tables.items()}
        self._index = Index.of(self._columns["s"]["b"])
        self._duckdb = duckdb.connect()
        for name, table in self._tables.items():
            self._duckdb.register("arriving", table)
            # DuckDB's own format is what it reads fastest.
            self._duckdb.execute(f"CREATE TABLE {name} AS SELECT * FROM arriving")
            self._duckdb.unregister("arriving")
        # DuckDB advises another call, which takes longer here.
        warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")

    def __enter__(self) -> InWindow:
        return self

    def __exit__(self, *_: object) -> None:
        self._duckdb.close()

    def count_by_duckdb(self, query: InequalityJoin) -> int:
        found = self._duckdb.execute(f"SELECT count(*) FROM r, s WHERE {query.condition}").fetchone()
        assert found is not None
        return int(found[0])

    def by_duckdb(self, query: InequalityJoin) -> pa.Table:
        return self._duckdb.execute(query.sql("r", "s")).to_arrow_table()

    def tuple_by_tuple(self, query: InequalityJoin) -> pa.Table:
        """Nested loops: each tuple of r that passes its filters probes the sorted tuples of s."""
        (r_passes,) = masks_one_by_one(self._columns["r"], [query.r])
        (s_passes,) = masks_one_by_one(self._columns["s"], [query.s])
        outer = np.flatnonzero(r_passes)
        inner: list[Places] = []
        for value in (self._columns["r"]["a"][outer] - query.shift).tolist():
            first, last = self._index.partners(query.relop, value)
            places = self._index.order[first:last]
            inner.append(places[s_passes[places]])
        pairs = _pairs(outer, inner)
        taken = {"r": from_numpy(pairs.left), "s": from_numpy(pairs.right)}
        columns = {
            f"{name}_{column}": table.column(column).take(taken[name])
            for name, table in self._tables.items()
            for column in table.column_names
        }
        return pa.table(columns)


@dataclass(frozen=True)
class Index:
    """Places sorted by one attribute. A list is what Python searches fastest for one value."""

    order: Places
    values: list[int]

    @staticmethod
    def of(column: Values) -> Index:
        order = np.argsort(column, kind="stable")
        return Index(order, column[order].tolist())

    def partners(self, relop: Relop, value: int) -> tuple[int, int]:
        """The range of those with `value relop attribute`."""
        values = self.values
        match relop:
            case Relop.EQ:
                return bisect_left(values, value), bisect_right(values, value)
            case Relop.LT:
                return bisect_right(values, value), len(values)
            case Relop.LE:
                return bisect_left(values, value), len(values)
            case Relop.GT:
                return 0, bisect_left(values, value)
            case _:
                return 0, bisect_right(values, value)


def _pairs(outer: Places, inner: Sequence[Places]) -> Pairs:
    """Each tuple with its partners."""
    if not inner:
        return Pairs(outer, outer)
    return Pairs(np.repeat(outer, [len(places) for places in inner]), np.concatenate(inner))


# -- figure 11: composite tuples --

WORKLOADS = {"Eq/Ineq": (False, True), "Ineq/Eq": (True, False), "Ineq/Ineq": (False, False)}
"""Whether RELOP2, between the streams, and RELOP3, of the shared factor, are equalities. The names are those of the
paper's text: the shared factor first."""


@dataclass(frozen=True)
class NewQuery:
    """`r.a relop1 c1 AND r.a relop2 s.b AND s.b relop3 c2`."""

    relop1: Relop
    c1: int
    relop2: Relop
    relop3: Relop
    c2: int

    def hybrids(self, rng: np.random.Generator, count: int) -> Values:
        """The values of so many tuples of r that satisfy the first factor."""
        return rng.choice(self._passing(), count)

    def _passing(self) -> Values:
        values = np.arange(256, dtype=np.int32)
        match self.relop1:
            case Relop.LT:
                return values[values < self.c1]
            case Relop.LE:
                return values[values <= self.c1]
            case Relop.GT:
                return values[values > self.c1]
            case _:
                return values[values >= self.c1]

    @property
    def condition(self) -> str:
        first, second, third = (relop.value for relop in (self.relop1, self.relop2, self.relop3))
        return f"r.a {first} {self.c1} AND r.a {second} s.b AND s.b {third} {self.c2}"


def new_queries(workload: str, count: int, *, seed: int) -> list[NewQuery]:
    rng = np.random.default_rng(seed)
    joined_equal, shared_equal = WORKLOADS[workload]

    def inequality() -> Relop:
        return _INEQUALITIES[rng.integers(len(_INEQUALITIES))]

    found: list[NewQuery] = []
    while len(found) < count:
        relop2 = Relop.EQ if joined_equal else inequality()
        relop3 = Relop.EQ if shared_equal else inequality()
        query = NewQuery(inequality(), constant(rng), relop2, relop3, constant(rng))
        if len(query._passing()):
            found.append(query)
    return found


@dataclass(frozen=True)
class Probed:
    """One point of figure 11: what step 5 takes, by query the median over the rounds."""

    workload: str
    hybrids: int
    """Tuples of r that probe, and as many of s are probed."""
    composite_ms: list[float]
    separate_ms: list[float]
    pairs: float
    """Of a query, in the mean."""


def probe_times(workload: str, hybrids: int, queries: int, rounds: int) -> Probed:
    """Both find the same pairs; how many, DuckDB says too."""
    rng = np.random.default_rng((41, hybrids))
    data = SData(rng.integers(0, 256, hybrids, dtype=np.int32))
    asked = new_queries(workload, queries, seed=42)
    probing = [query.hybrids(rng, hybrids) for query in asked]
    seconds = np.empty((2, rounds, len(asked)))
    counts: list[int] = []
    for number, (query, values) in enumerate(zip(asked, probing, strict=True)):
        composite, separate = data.composite(query, values), data.separate(query, values)
        if _summary(separate) != _summary(composite):
            raise LadleError(f"Composite and separate tuples find other pairs with {query.condition}.")
        counts.append(len(composite.left))
        for turn in range(rounds):
            for way, probe in enumerate((data.composite, data.separate)):
                began = time.perf_counter()
                probe(query, values)
                seconds[way, turn, number] = time.perf_counter() - began
    check_pairs(workload, counts, [data.count_by_duckdb(*each) for each in zip(asked, probing, strict=True)])
    ms = 1e3 * np.median(seconds, axis=1)
    return Probed(workload, hybrids, ms[0].tolist(), ms[1].tolist(), float(np.mean(counts)))


def _summary(pairs: Pairs) -> list[int]:
    """The number of pairs, and sums that other pairs hardly have too."""
    return [len(pairs.left), int(pairs.left.sum()), int(pairs.right.sum()), int((pairs.left * pairs.right).sum())]


class SData:
    """The S-Data SteM, sorted by `b`: as there before the query comes, so that no way pays for it."""

    _A, _B = JoinKey("`a`", ("a",)), JoinKey("`b`", ("b",))
    _REACH = Reach(MIN_US, MAX_US)

    def __init__(self, column: Values) -> None:
        self._b = column
        self._index = Index.of(column)
        self._times = START_US + np.arange(len(column), dtype=np.int64)

    def composite(self, query: NewQuery, values: Values) -> Pairs:
        """All hybrid tuples at once: the shared factor once, and the engine's join of two SteMs."""
        first, last = self._index.partners(query.relop3.flipped, query.c2)
        places = np.sort(self._index.order[first:last])
        left = DataStem(self._times[: len(values)], {self._A.sql: from_numpy(values)})
        right = DataStem(self._times[places], {self._B.sql: from_numpy(self._b[places])})
        pair = PairJoin("r", "s", (JoinFactor(self._A, query.relop2, self._B),))
        found = join(left, right, pair, self._REACH, pairs_max=_PAIRS_MAX)
        return Pairs(found.left, places[found.right])

    def separate(self, query: NewQuery, values: Values) -> Pairs:
        """One hybrid tuple after the other, each with both factors. They are ranges of one order, so what both leave
        is found without comparing tuples.
        """
        index, relop2, shared = self._index, query.relop2, query.relop3.flipped
        inner: list[Places] = []
        for value in values.tolist():
            first, last = index.partners(shared, query.c2)
            own_first, own_last = index.partners(relop2, value)
            first = max(first, own_first)
            inner.append(index.order[first : max(first, min(last, own_last))])
        return _pairs(np.arange(len(values)), inner)

    def count_by_duckdb(self, query: NewQuery, values: Values) -> int:
        import duckdb

        with duckdb.connect() as other:
            other.register("r", pa.table({"a": values}))
            other.register("s", pa.table({"b": self._b}))
            found = other.execute(f"SELECT count(*) FROM r, s WHERE {query.condition}").fetchone()
        assert found is not None
        return int(found[0])


# -- bars --


def join_bars(joins: Sequence[Response], probes: Sequence[Probed]) -> list[Bar]:
    return [*_bars_of_invocations(joins), *_bars_of_probes(probes)]


def _bars_of_invocations(joins: Sequence[Response]) -> list[Bar]:
    """Medians over the queries."""
    at = {each.system: each.engine_ms for each in joins if each.x == BAR_WINDOW}
    nomat = Quantity("NoMat", "ms", at["NoMat"])
    others = ", ".join(f"{system} {shown(median(at[system]))} ms" for system in (DUCKDB, TUPLE_BY_TUPLE))
    what = f"join invocation, window {BAR_WINDOW} as in figure 8, against NoMat"
    return [
        faster("figure 8", f"{what}: {system}", Quantity(system, "ms", at[system]), nomat, 50, 200,
               beside=f"from scratch: {others}")
        for system in ("PSoup-P", "PSoup-C")
    ]  # fmt: skip


def _bars_of_probes(probes: Sequence[Probed]) -> list[Bar]:
    """With the most hybrid tuples. Where the paper prefers separate tuples, composite ones are to be no worse."""
    most = max(each.hybrids for each in probes)
    asked = {"Eq/Ineq": 2.0, "Ineq/Eq": 1.0, "Ineq/Ineq": 1.0}
    return [
        faster(
            "figure 11", f"composite against {most:,} separate tuples, {each.workload}",
            Quantity("composite", "ms", each.composite_ms), Quantity("separate", "ms", each.separate_ms),
            asked[each.workload], 10,
        )
        for each in probes
        if each.hybrids == most
    ]  # fmt: skip
