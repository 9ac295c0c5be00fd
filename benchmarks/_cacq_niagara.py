"""CACQ's comparison with NiagaraCQ (section 4): its two plans for queries that select and join, and ours.

`SELECT * FROM stocks s, articles a WHERE s.price > x AND s.symbol = a.symbol`: prices uniform in [0, 100), x uniform,
the least of them 0 so that all queries together select all; articles of 100 to 1,000 bytes. With functions, each query
has one of its own in the place of `s.price > x`, which spins 50 to 150 microseconds a quote.

NiagaraCQ's plans are NumPy over whole columns, as ours is: symbols are numbers, so that a hash table is an array.
Every plan gives pairs of row numbers for each query, and none copies tuples; the engine hands out rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks._joining import check_pairs
from benchmarks._workload import START_US
from ladle import sql
from ladle.columns import from_numpy, to_numpy
from ladle.eddy import Router
from ladle.engine import Database
from ladle.evaluate.user_functions import call
from ladle.plan import Block, Function, JoinFactor, JoinKey, PairJoin, Reach, Relop
from ladle.stem.data_stem import DataStem, Pairs, join
from ladle.stem.query_stem import QueryStem, index_page
from ladle.stem.results import Results, ResultsWriter

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

OURS, ENGINE, PUSHDOWN, JOIN_FIRST = "Ladle", "Ladle, whole engine", "NiagaraCQ pushdown", "NiagaraCQ join first"
STOCKS, ARTICLES = "stocks", "articles"
_STREAMS = {
    STOCKS: "ts TIMESTAMP, symbol BIGINT, price DOUBLE",
    ARTICLES: "ts TIMESTAMP, symbol BIGINT, body STRING",
}
_DAY_US = 86_400_000_000
_SYMBOL = JoinKey("`symbol`", ("symbol",))
_JOIN = PairJoin(STOCKS, ARTICLES, (JoinFactor(_SYMBOL, Relop.EQ, _SYMBOL),))

_SPIN = """
import time

def {name}(symbol, price):
    micros = 50 + symbol.to_numpy(zero_copy_only=False) * 37 % 101
    until = time.perf_counter() + 1e-6 * micros.sum()
    while time.perf_counter() < until:
        pass
    return pc.greater(price, {x!r})
"""
"""How long it spins for a quote follows from its symbol, so that it is the same in all plans."""


@dataclass(frozen=True)
class Market:
    """One update: quotes, and so many articles on each."""

    stocks: pa.Table
    articles: pa.Table

    @staticmethod
    def of(stocks: int, articles: int) -> Market:
        rng = np.random.default_rng((9, stocks, articles))
        body = "".join(chr(97 + number) for number in rng.integers(0, 26, 2_000).tolist())
        symbols = np.repeat(np.arange(stocks), articles)
        rng.shuffle(symbols)
        sizes = rng.integers(100, 1_001, len(symbols)).tolist()
        starts = rng.integers(0, 1_000, len(symbols)).tolist()
        bodies = [body[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        return Market(
            pa.table({"ts": _times(stocks, 1), "symbol": rng.permutation(stocks), "price": rng.random(stocks) * 100}),
            pa.table({"ts": _times(len(symbols), articles), "symbol": symbols, "body": bodies}),
        )

    @cached_property
    def symbols(self) -> Ids:
        return to_numpy(self.stocks.column("symbol"))

    @cached_property
    def prices(self) -> Floats:
        return to_numpy(self.stocks.column("price"))

    def pairs_by_duckdb(self, constants: Sequence[float]) -> list[int]:
        import duckdb

        with duckdb.connect() as other:
            other.register(STOCKS, self.stocks)
            other.register(ARTICLES, self.articles)
            other.execute("CREATE TABLE p AS SELECT price FROM stocks s, articles a WHERE s.symbol = a.symbol")
            asked = ", ".join(f"count(*) FILTER (WHERE price > {x!r})" for x in constants)
            found = other.execute(f"SELECT {asked} FROM p").fetchone()
            assert found is not None
            return list(found)


def _times(rows: int, each: int) -> pa.Array:
    """So many tuples each microsecond: both streams end at the same time."""
    return pa.array(START_US + np.arange(rows, dtype=np.int64) // each, pa.timestamp("us", "UTC"))


def constants_of(count: int) -> list[float]:
    constants = np.random.default_rng((10, count)).random(count) * 100
    constants[constants.argmin()] = 0.0
    return [round(each, 3) for each in constants.tolist()]


def create_market(db: Database) -> None:
    for name, columns in _STREAMS.items():
        db.sql(f"CREATE STREAM {name} ({columns}) TIMESTAMP BY ts")


# -- NiagaraCQ --


class HashTable:
    """Articles by symbol; made once, whichever joins share it."""

    def __init__(self, market: Market) -> None:
        symbols = to_numpy(market.articles.column("symbol"))
        self._rows = np.argsort(symbols, kind="stable")
        self._counts = np.bincount(symbols, minlength=len(market.symbols))
        self._firsts = np.cumsum(self._counts) - self._counts

    def probe(self, stocks: Ids, symbols: Ids) -> Pairs:
        counts = self._counts[symbols]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self._firsts[symbols] - ends + counts, counts)
        return Pairs(np.repeat(stocks, counts), self._rows[places])


def _grouped_selection(prices: Floats, constants: Sequence[float]) -> list[Ids]:
    """The rows of each query, through an index of the constants."""
    order = np.argsort(prices)
    firsts = np.searchsorted(prices[order], constants, side="right")
    return [order[first:] for first in firsts.tolist()]


def join_first(market: Market, constants: Sequence[float]) -> list[Pairs]:
    """One join of all tuples, and the grouped selection over what it gives."""
    joined = HashTable(market).probe(np.arange(len(market.symbols)), market.symbols)
    rows = _grouped_selection(market.prices[joined.left], constants)
    return [Pairs(joined.left[own], joined.right[own]) for own in rows]


def pushdown(market: Market, constants: Sequence[float]) -> list[Pairs]:
    """The grouped selection, and a join for each query with the one hash table."""
    table = HashTable(market)
    return [table.probe(rows, market.symbols[rows]) for rows in _grouped_selection(market.prices, constants)]


def join_first_calling(market: Market, functions: Sequence[Function]) -> list[Pairs]:
    """Functions are called for each joined tuple."""
    joined = HashTable(market).probe(np.arange(len(market.symbols)), market.symbols)
    arguments = [from_numpy(market.symbols[joined.left]), from_numpy(market.prices[joined.left])]
    masks = [to_numpy(call(function, arguments)) for function in functions]
    rows = [np.flatnonzero(mask) for mask in masks]
    return [Pairs(joined.left[own], joined.right[own]) for own in rows]


def pushdown_calling(market: Market, functions: Sequence[Function]) -> list[Pairs]:
    table = HashTable(market)
    arguments = [from_numpy(market.symbols), from_numpy(market.prices)]
    rows = [np.flatnonzero(to_numpy(call(function, arguments))) for function in functions]
    return [table.probe(own, market.symbols[own]) for own in rows]


# -- Ladle --


class Shared:
    """Our kernels: the Query SteM gives quotes their lineage, one join finds pairs, and lineage says whose they are."""

    def __init__(self, db: Database, conditions: Sequence[str], scratch: Path) -> None:
        catalog = db.catalog
        ids: dict[Block, int] = {}
        blocks = [sql.bind(f"SELECT * FROM {STOCKS} s WHERE {text}", catalog).scans[0].block for text in conditions]
        self._ids = [ids.setdefault(block, len(ids)) for block in blocks]
        self._stem = QueryStem([index_page({number: block for block, number in ids.items()})])
        self._scratch = scratch

    def run(self, market: Market) -> list[Pairs]:
        writer = ResultsWriter(self._scratch, "stocks.parquet", self._stem.blocks)
        self._stem.probe(market.stocks, writer, Router())
        path = writer.finish()
        assert path is not None
        sides = [DataStem.of(table, "ts", [_SYMBOL]) for table in (market.stocks, market.articles)]
        left, right = join(sides[0], sides[1], _JOIN, Reach(-_DAY_US, _DAY_US), pairs_max=1 << 30)
        results = Results(path)
        found = []
        for block in self._ids:
            own = np.flatnonzero(results.mask(block)[left])
            found.append(Pairs(left[own], right[own]))
        path.unlink()
        return found


def through_engine(db: Database, market: Market, conditions: Sequence[str], expected: Sequence[int]) -> float:
    """Seconds from the first push to the last answer: durable tuples, Spark's jobs, pairs kept, and rows handed out."""
    window = "[RANGE 1 DAY]"
    queries = {
        f"market_{number}": f"SELECT * FROM {STOCKS} {window} s, {ARTICLES} {window} a "
        f"WHERE {text} AND s.symbol = a.symbol"
        for number, text in enumerate(conditions)
    }
    db.register_many(queries, materialize="partial")
    began = time.perf_counter()
    db.push(ARTICLES, market.articles, wait=True)
    db.push(STOCKS, market.stocks, wait=True)
    counts = [len(db.invoke(name)) for name in queries]
    seconds = time.perf_counter() - began
    check_pairs(ENGINE, counts, expected)
    for stream in _STREAMS:
        db.drop_stream(stream, cascade=True)
    create_market(db)
    return seconds


# -- the experiments --


@dataclass(frozen=True)
class Completion:
    """Seconds to complete one update, by system; samples."""

    x: int
    """Queries, or articles per quote."""
    seconds: dict[str, list[float]]

    def median(self, system: str) -> float:
        return float(np.median(self.seconds[system]))


def selections(
    db: Database, scratch: Path, queries: int, *, stocks: int, rounds: int, engine_rounds: int
) -> Completion:
    """Plain selections, one article per quote."""
    market = Market.of(stocks, 1)
    constants = constants_of(queries)
    conditions = [f"s.price > {x!r}" for x in constants]
    expected = market.pairs_by_duckdb(constants)
    shared = Shared(db, conditions, scratch)
    plans: dict[str, Any] = {
        OURS: lambda: shared.run(market),
        PUSHDOWN: lambda: pushdown(market, constants),
        JOIN_FIRST: lambda: join_first(market, constants),
    }
    seconds = _timed(plans, expected, rounds)
    seconds[ENGINE] = [through_engine(db, market, conditions, expected) for _ in range(engine_rounds)]
    return Completion(queries, seconds)


def calls(
    db: Database, scratch: Path, functions: Sequence[Function], articles: int, *, stocks: int, rounds: int
) -> Completion:
    """A function for each query, and so many articles per quote."""
    market = Market.of(stocks, articles)
    constants = constants_of(len(functions))
    conditions = [f"{function.name}(s.symbol, s.price)" for function in functions]
    expected = market.pairs_by_duckdb(constants)
    shared = Shared(db, conditions, scratch)
    plans: dict[str, Any] = {
        OURS: lambda: shared.run(market),
        PUSHDOWN: lambda: pushdown_calling(market, functions),
        JOIN_FIRST: lambda: join_first_calling(market, functions),
    }
    seconds = _timed(plans, expected, rounds, warm=False)
    seconds[ENGINE] = [through_engine(db, market, conditions, expected) for _ in range(rounds)]
    return Completion(articles, seconds)


def create_functions(db: Database, count: int) -> list[Function]:
    names = [f"investor_{number}" for number in range(count)]
    return [
        db.create_function(_SPIN.format(name=name, x=x), name, arguments=["BIGINT", "DOUBLE"], returns="BOOLEAN")
        for name, x in zip(names, constants_of(count), strict=True)
    ]


def _timed(plans: dict[str, Any], expected: Sequence[int], rounds: int, *, warm: bool = True) -> dict[str, list[float]]:
    """The plans take turns; each is checked every time."""
    seconds: dict[str, list[float]] = {name: [] for name in plans}
    for turn in range(rounds + warm):
        for name, plan in plans.items():
            began = time.perf_counter()
            found = plan()
            taken = time.perf_counter() - began
            check_pairs(name, [len(pairs.left) for pairs in found], expected)
            if turn or not warm:
                seconds[name].append(taken)
    return seconds
