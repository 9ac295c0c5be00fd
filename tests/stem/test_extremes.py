"""The index at the extremes of every type, against plain evaluation of each predicate by DuckDB.

Which cuts a grouped filter has depends on which other queries stand, and with it how tuples are ranked: in a table
where the cuts lie close together, else by search. So every predicate is asked alone, beside neighbours that are close,
and beside neighbours that are far away.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.test_ranges import factor_of

from ladle.clock import ManualClock
from ladle.eddy import Router
from ladle.evaluate import evaluate_factors
from ladle.plan import Block, Factor
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name
from ladle.stem.match import inside, split
from ladle.stem.query_stem import IndexPage, QueryStem, _merged, index_page, load_stem, save_page
from ladle.stem.results import Results, ResultsWriter
from ladle.testing import connect_inline

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
LONG_TEXT = 9_000
NUMBERS = count()
"""A page is mapped once per path, so each gets a name of its own."""


@dataclass(frozen=True)
class Case:
    """A type with clusters of values that lie next to each other; constants are written as in SQL."""

    type: pa.DataType
    values: tuple[Any, ...]
    clusters: tuple[tuple[str, ...], ...]

    @property
    def constants(self) -> list[str]:
        return [text for cluster in self.clusters for text in cluster]

    @property
    def table(self) -> pa.Table:
        return pa.table({"x": pa.array([None, *self.values, None], self.type)})


def integers(bits: int) -> Case:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    near = sorted({n for end in (low, high, 0) for n in range(end - 3, end + 4) if low <= n <= high})
    clusters = ([low, low + 1, low + 2], [-1, 0, 1], [high - 2, high - 1, high])
    return Case(
        {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits],
        tuple(near),
        tuple(tuple(map(str, cluster)) for cluster in clusters),
    )


def decimals(digits: int, scale: int) -> Case:
    limit = 10**digits - 1
    numbers = [-limit, 1 - limit, -1, 0, 1, limit - 1, limit]
    texts = [f"{Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)):f}" for n in numbers]
    clusters = (tuple(texts[:2]), tuple(texts[2:5]), tuple(texts[5:]))
    return Case(pa.decimal128(digits, scale), tuple(map(Decimal, texts)), clusters)


def doubles() -> Case:
    tiny, least, most = 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308
    ends = [0.0, -0.0, tiny, -tiny, least, -least, most, -most, math.inf, -math.inf, math.nan, 1.0]
    near = [math.nextafter(x, way) for x in ends for way in (math.inf, -math.inf)]
    cast = "CAST('{}' AS DOUBLE)".format
    clusters = (
        (cast("-Infinity"), "-1.7976931348623157e308", "-1.7976931348623155e308"),
        ("-5e-324", "-0.0D", "0.0D", "5e-324", "1e-323"),
        ("1.7976931348623155e308", "1.7976931348623157e308", cast("Infinity"), cast("NaN")),
    )
    return Case(pa.float64(), (*ends, *near), clusters)


def floats() -> Case:
    tiny, most = 1.401298464324817e-45, 3.4028234663852886e38
    ends = [0.0, -0.0, tiny, -tiny, most, -most, math.inf, -math.inf, math.nan, 1.0]
    with np.errstate(over="ignore"):
        near = [float(np.nextafter(np.float32(x), np.float32(way))) for x in ends for way in (math.inf, -math.inf)]
    cast = "CAST('{}' AS FLOAT)".format
    clusters = (
        (cast("-Infinity"), "-3.4028234663852886e38", "-3.4028234663852885e38"),
        ("-1.401298464324817e-45", "-0.0D", "0.0F", "1.401298464324817e-45", "5e-324"),
        ("3.4028234663852886e38", "3.4028234663852887e38", cast("Infinity"), cast("NaN")),
    )
    return Case(pa.float32(), (*ends, *near), clusters)


def dates() -> Case:
    days = [date.min, date(1, 1, 2), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 30), date.max]
    texts = [f"DATE '{day.isoformat()}'" for day in days]
    beyond = [day.toordinal() - date(1970, 1, 1).toordinal() + step for day in days for step in (-1, 0, 1)]
    values = [*beyond, -(1 << 31), 1 - (1 << 31), (1 << 31) - 2, (1 << 31) - 1]
    return Case(pa.date32(), tuple(values), (tuple(texts[:2]), tuple(texts[2:4]), tuple(texts[4:])))


def timestamps(type_: pa.DataType) -> Case:
    first, last = datetime.min, datetime.max
    moments = [first, first.replace(microsecond=1), datetime(1970, 1, 1), last.replace(microsecond=999_998), last]
    texts = [f"{type_name(type_)} '{moment.isoformat(sep=' ')}'" for moment in moments]
    us = [(moment - datetime(1970, 1, 1)) // (datetime.resolution) for moment in moments]
    values = [*(n + step for n in us for step in (-1, 0, 1)), INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX]
    return Case(type_, tuple(values), (tuple(texts[:2]), tuple(texts[2:3]), tuple(texts[3:])))


def texts() -> Case:
    long = "z" * LONG_TEXT
    values = [
        "",
        "\0",
        "\x01",
        "a",
        "a\0",
        "a\x01",
        "b",
        "\x7f",
        "\u00e9",
        "\U0010ffff",
        long,
        long[:-1],
        long + "\0",
        long + "z",
    ]
    clusters = (("''", "'\x01'"), ("'a'", "'a\x01'", "'b'"), (f"'{long[:-1]}'", f"'{long}'", "'\U0010ffff'"))
    return Case(pa.string(), tuple(values), clusters)


def binaries() -> Case:
    long = b"\xff" * LONG_TEXT
    values = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\xff",
        b"a",
        b"a\0",
        b"\xfe",
        b"\xff",
        b"\xff\0",
        b"\xff\xff",
        long,
        long[:-1],
        long + b"\0",
    ]
    named = [[b"", b"\0", b"\0\0"], [b"a", b"a\0"], [b"\xff", b"\xff\0", b"\xff\xff", long[:-1], long]]
    return Case(pa.binary(), tuple(values), tuple(tuple(f"X'{octets.hex()}'" for octets in each) for each in named))


CASES = (
    *map(integers, (8, 16, 32, 64)), decimals(18, 0), decimals(18, 18), decimals(19, 0), decimals(38, 0),
    decimals(38, 10), decimals(38, 38), doubles(), floats(), dates(), timestamps(TIMESTAMP), timestamps(TIMESTAMP_NTZ),
    texts(), binaries(), Case(pa.bool_(), (True, False), (("TRUE", "FALSE"),)),
)  # fmt: skip

EVERY_TYPE = pytest.mark.parametrize("case", [pytest.param(case, id=type_name(case.type)) for case in CASES])


def predicates(constants: Sequence[str]) -> Iterator[str]:
    """Every comparison with each constant, and ranges and lists over neighbours."""
    for text in constants:
        for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
            yield f"x {operator} {text}"
        yield f"NOT x <=> {text}"
        yield f"x IN ({text}, NULL)"
    for one, other in pairwise(constants):
        yield from (f"x {maybe}IN ({one}, {other})" for maybe in ("", "NOT "))
        yield from (f"x {maybe}BETWEEN {one} AND {other}" for maybe in ("", "NOT "))


def expected(table: pa.Table, factors: Sequence[Factor]) -> list[list[int]]:
    result = evaluate_factors(table, factors)
    assert not result.failures
    return [np.flatnonzero(result.masks[factor.sql]).tolist() for factor in factors]


def found(stem: QueryStem, table: pa.Table, directory: Path) -> list[list[int]]:
    """The rows of each block by the index, in the order of their ids."""
    writer = ResultsWriter(directory, "data.parquet", stem.blocks)
    assert stem.probe(table, writer, Router()) == {}
    path = writer.finish()
    assert path is not None
    results = Results(path)
    by_block = [results.rows(block, 0) for block in stem.blocks.tolist()]
    path.unlink()
    return [list(range(len(table))) if rows is None else rows.tolist() for rows in by_block]


def page_of(factors: Sequence[Factor], first: int = 1) -> IndexPage:
    return index_page({first + number: Block("s", (factor,)) for number, factor in enumerate(factors)})


def check(factors: Sequence[Factor], rows: Sequence[list[int]], table: pa.Table, directory: Path) -> None:
    """Some predicates together: in one page, in two pages that workers map, and in these made one."""
    half = len(factors) // 2
    pages = [page_of(factors[:half]), page_of(factors[half:], half + 1)] if half else [page_of(factors)]
    paths = [directory / f"{next(NUMBERS)}.page" for _ in pages]
    for path, page in zip(paths, pages, strict=True):
        save_page(path, page)
    mapped = load_stem([str(path) for path in paths])
    for stem in (QueryStem([page_of(factors)]), mapped, QueryStem([_merged(pages)])):
        for factor, wanted, got in zip(factors, rows, found(stem, table, directory), strict=True):
            assert got == wanted, f"{factor.sql[:200]} beside {[each.sql[:80] for each in factors]}"


def ranged(case: Case, texts: Iterator[str]) -> list[Factor]:
    made = [factor_of(text, case.type) for text in texts]
    return list({factor.sql: factor for factor in made if factor.ranges is not None}.values())


@EVERY_TYPE
def test_alone_and_beside_all_others(case: Case, tmp_path: Path) -> None:
    factors = ranged(case, predicates(case.constants))
    assert len(factors) >= 8 * len(case.constants)
    table = case.table
    rows = expected(table, factors)
    check(factors, rows, table, tmp_path)
    for factor, wanted in zip(factors, rows, strict=True):
        assert found(QueryStem([page_of([factor])]), table, tmp_path) == [wanted], factor.sql[:200]


@EVERY_TYPE
def test_beside_those_of_one_end(case: Case, tmp_path: Path) -> None:
    """The cuts of one cluster are close together, and the tuples are everywhere."""
    table = case.table
    for cluster in case.clusters:
        factors = ranged(case, predicates(cluster))
        check(factors, expected(table, factors), table, tmp_path)


@EVERY_TYPE
@settings(max_examples=8)
@given(st.randoms(use_true_random=False))
def test_beside_any_others(tmp_path_factory: pytest.TempPathFactory, case: Case, rng: random.Random) -> None:
    constants = rng.sample(case.constants, rng.randint(1, min(4, len(case.constants))))
    texts = list(predicates(constants))
    factors = ranged(case, iter(rng.sample(texts, rng.randint(1, min(12, len(texts))))))
    table = case.table.take(pa.array(rng.choices(range(len(case.table)), k=40)))
    check(factors, expected(table, factors), table, tmp_path_factory.mktemp("pages"))


@EVERY_TYPE
def test_without_an_index(case: Case) -> None:
    """What answers read where nothing is covered."""
    table = case.table
    factors = ranged(case, predicates(case.constants))
    for factor, wanted in zip(factors, expected(table, factors), strict=True):
        compared, others = split(Block("s", (factor,)))
        for ranges in compared.values():
            assert np.flatnonzero(inside(table.column("x"), ranges)).tolist() == wanted, factor.sql[:200]
        assert bool(compared) != bool(others)


@EVERY_TYPE
def test_standing_queries_with_changing_neighbours(case: Case, tmp_path: Path) -> None:
    """End to end: queries come and go between epochs, so every epoch's index has other cuts."""
    table = case.table.append_column("n", pa.array(range(len(case.table)), pa.int32()))
    together = [list(predicates(cluster))[::3] for cluster in reversed(case.clusters)]
    texts = [text for group in together for text in group]
    rows = dict(zip(texts, expected(table, [factor_of(text, case.type) for text in texts]), strict=True))
    names = {text: f"q{number}" for number, text in enumerate(rows)}
    with connect_inline(tmp_path / "warehouse", clock=ManualClock(), settings={"maintenance_seconds": 3_600.0}) as db:
        db.sql(f"CREATE STREAM s (n INT, x {type_name(case.type)})")
        epochs = 0

        def check_answers(asked: Sequence[str]) -> None:
            for text in asked:
                answer = db.invoke(names[text])
                assert answer.table.column("n").to_pylist() == rows[text] * epochs, text[:200]

        for number, group in enumerate(together):
            db.register_many({names[text]: f"SELECT n FROM s WHERE {text}" for text in group}, materialize="partial")
            db.push("s", table, wait=True)
            epochs += 1
            check_answers([text for group in together[: number + 1] for text in group])
        for text in texts[2:]:
            db.query(names[text]).unregister()
        db.push("s", table, wait=True)
        epochs += 1
        db.backfill()
        check_answers(texts[:2])
