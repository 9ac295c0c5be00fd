"""The Query SteM against plain evaluation of each block, tuple by tuple."""

from __future__ import annotations

import random
from collections.abc import Iterable
from decimal import Decimal
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ladle.eddy import Account, Policy, Router, routing
from ladle.eddy.routing import merged
from ladle.evaluate import FactorResult, evaluate_factors
from ladle.plan import Block, Factor
from ladle.plan.keys import Key, key_of
from ladle.plan.ranges import Ranges
from ladle.stem import grouped_filter, query_stem
from ladle.stem.grouped_filter import Arrangement
from ladle.stem.match import inside, satisfying, split
from ladle.stem.query_stem import QueryStem, index_page, load_stem, save_page
from ladle.stem.results import Results, ResultsWriter
from ladle.stem.tiles import TILE

TYPES = [pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.decimal128(30, 2)]


def value_of(type_: pa.DataType, number: int) -> object:
    if pa.types.is_boolean(type_):
        return number % 2 == 1
    if pa.types.is_floating(type_):
        return [float("nan"), float("inf"), -float("inf"), -0.0, number / 4][number % 5] if number < 5 else number / 4
    if pa.types.is_string(type_):
        return ["", "é", "a" * (number % 3)][number % 3] + str(number)
    if pa.types.is_binary(type_):
        return bytes([number % 4]) * (number % 3)
    if pa.types.is_decimal(type_):
        return Decimal(number) * Decimal(10) ** (number % 20) - Decimal("0.25")
    return number


def random_ranges(rng: random.Random, column: str, type_: pa.DataType, domain: int) -> Ranges:
    intervals: list[tuple[Key | None, Key | None]] = []
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
        low = key_of(value_of(type_, rng.randrange(domain)), type_)
        high = key_of(value_of(type_, rng.randrange(domain)), type_)
        if low > high:  # type: ignore[operator]
            low, high = high, low
        intervals.append((rng.choice([low, low, None]), rng.choice([high, high, None])))
    return Ranges.of(column, intervals, null=rng.random() < 0.2)


def random_blocks(rng: random.Random, types: dict[str, pa.DataType], count: int, domain: int) -> dict[int, Block]:
    blocks = {}
    for block in rng.sample(range(1, 10 * count + 1), count):
        factors = []
        for column, type_ in types.items():
            for number in range(rng.choice([0, 1, 1, 2])):
                ranges = random_ranges(rng, column, type_, domain)
                factors.append(Factor(f"{block}.{column}.{number}", "false", (column,), ranges))
        if rng.random() < 0.3:
            limit = rng.randrange(domain)
            factors.append(Factor(f"p{limit}", f'"x" % 7 < {limit % 7}', ("x",)))
        if not factors:
            factors.append(Factor("p3", '"x" % 7 < 3', ("x",)))
        blocks[block] = Block("s", tuple(factors))
    return blocks


Keys = dict[str, list[Key | None]]


def keys_of(table: pa.Table) -> Keys:
    """The key of each value of a table; of `x`, which predicates read, the value."""
    keys: Keys = {}
    for field in table.schema:
        values = table.column(field.name).to_pylist()
        if field.name != "x":
            values = [None if value is None else key_of(value, field.type) for value in values]
        keys[field.name] = values
    return keys


def expected(keys: Keys, block: Block) -> list[int]:
    rows = list(range(len(next(iter(keys.values())))))
    for factor in block.factors:
        if factor.ranges is not None:
            column, holds = keys[factor.ranges.column], factor.ranges.holds
            rows = [row for row in rows if holds(column[row])]
        else:
            limit = int(factor.duckdb.rpartition(" ")[2])
            rows = [row for row in rows if keys["x"][row] % 7 < limit]
    return rows


def probe(stem: QueryStem, segments: list[pa.Table], directory: Path, router: Router | None = None) -> Results:
    writer = ResultsWriter(directory, "data.parquet", stem.blocks)
    router = router or Router()
    for segment in segments:
        assert stem.probe(segment, writer, router) == {}
    path = writer.finish()
    assert path is not None
    return Results(path)


def random_table(rng: random.Random, types: dict[str, pa.DataType], rows: int, domain: int, nulls: float) -> pa.Table:
    columns = {
        name: pa.array(
            [None if rng.random() < nulls else value_of(type_, rng.randrange(domain)) for _ in range(rows)], type_
        )
        for name, type_ in types.items()
    }
    return pa.table({**columns, "x": pa.array([rng.randrange(1000) for _ in range(rows)], pa.int64())})


@settings(max_examples=60)
@given(
    st.randoms(use_true_random=False),
    st.lists(st.sampled_from(TYPES), min_size=1, max_size=3),
    st.lists(st.integers(1, 200), min_size=1, max_size=3),
    st.sampled_from([3, 30, 1000]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_every_block_finds_its_rows(
    rng: random.Random, types: list[pa.DataType], sizes: list[int], domain: int, nulls: float
) -> None:
    columns = {f"c{number}": type_ for number, type_ in enumerate(types)}
    blocks = random_blocks(rng, columns, 20, domain)
    segments = [random_table(rng, columns, rows, domain, nulls) for rows in sizes]
    with TemporaryDirectory() as name:
        directory = Path(name)
        save_page(directory / "one.page", index_page({b: blocks[b] for b in sorted(blocks)[:10]}))
        save_page(directory / "two.page", index_page({b: blocks[b] for b in sorted(blocks)[10:]}))
        stem = load_stem([str(directory / "one.page"), str(directory / "two.page")])
        results = probe(stem, segments, directory)
        keys = [keys_of(segment) for segment in segments]
        for block_id, block in blocks.items():
            counts = results.counts(block_id).tolist()
            for number, segment in enumerate(segments):
                rows = results.rows(block_id, number)
                found = list(range(len(segment))) if rows is None else rows.tolist()
                assert found == expected(keys[number], block)
                assert counts[number] == len(found)


INT64_TYPES = [pa.int32(), pa.int64(), pa.float64(), pa.bool_()]


@settings(max_examples=60)
@given(
    st.randoms(use_true_random=False),
    st.lists(st.sampled_from(INT64_TYPES), min_size=1, max_size=3),
    st.sampled_from([3, 30, 1000]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_without_an_index_the_rows_are_the_same(
    rng: random.Random, types: list[pa.DataType], domain: int, nulls: float
) -> None:
    columns = {f"c{number}": type_ for number, type_ in enumerate(types)}
    table = random_table(rng, columns, 100, domain, nulls)
    keys = keys_of(table)
    for block in random_blocks(rng, columns, 10, domain).values():
        # IS NULL alone has no key that tells its kind, and is left to the text of the factor
        ends = [interval for factor in block.factors if factor.ranges for interval in factor.ranges.intervals]
        if any(f.ranges and set(f.ranges.intervals) <= {(None, None)} for f in block.factors) or not ends:
            continue
        compared, others = split(block)
        mask = np.ones(len(table), dtype=np.bool_)
        for column, ranges in compared.items():
            mask &= inside(table.column(column), ranges)
        if others:
            mask &= satisfying(table, others)
        assert np.flatnonzero(mask).tolist() == expected(keys, block)


@pytest.mark.parametrize(("bitmaps_max", "nulls"), [(0, 0.05), (8, 0.0), (100_000, 0.05)])
def test_large_tiles_in_both_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bitmaps_max: int, nulls: float
) -> None:
    """Several tiles a segment, bitmaps by cut and by step, blocks from a single row to all."""
    monkeypatch.setattr(grouped_filter, "_BITMAPS_MAX", bitmaps_max)
    rng = random.Random(7)
    types = {"a": pa.int32(), "b": pa.float64(), "c": pa.string()}
    table = random_table(rng, types, 2 * TILE + 77, 2000, nulls)
    blocks = random_blocks(rng, types, 40, 2000)
    point = key_of(value_of(pa.int32(), 5), pa.int32())
    assert isinstance(point, int)
    blocks[1000] = Block("s", (Factor("one", "false", ("a",), Ranges.of("a", [(point, point + 1)])),))
    blocks[1001] = Block("s", (Factor("all", "false", ("a",), Ranges.of("a", [(None, None)], null=True)),))
    blocks[1002] = Block("s", (Factor("none", "false", ("a",), Ranges.of("a", [])),))
    results = probe(QueryStem([index_page(blocks)]), [table], tmp_path)
    keys = keys_of(table)
    for block_id, block in blocks.items():
        rows = results.rows(block_id, 0)
        assert (list(range(len(table))) if rows is None else rows.tolist()) == expected(keys, block)
    assert results.rows(1001, 0) is None


def integers(column: str, *intervals: tuple[int, int], null: bool = False) -> Factor:
    return Factor(f"{column} in {intervals}", "false", (column,), Ranges.of(column, intervals, null=null))


def rows_of(results: Results, block: int, table: pa.Table, *, segment: int = 0) -> list[int]:
    rows = results.rows(block, segment)
    return list(range(len(table))) if rows is None else rows.tolist()


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("piece", [200, 1 << 17])
def test_as_few_or_as_many_rows_as_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: bool, piece: int
) -> None:
    """Verified one by one, ids of every density, bits; rows far from each other or side by side; results in one piece
    and in many."""
    monkeypatch.setattr(query_stem, "_PAYLOAD_WORDS", piece)
    numbers = np.arange(TILE)
    values = np.random.default_rng(3).permutation(numbers) if spread else numbers
    table = pa.table({"a": values, "b": np.zeros(TILE, dtype=np.int64)})
    sizes = [1, 20, 48, 49, 100, 128, 129, 256, 257, 400, 511, 512, 513, 600, 4000, TILE - 1, TILE]
    blocks = {size: Block("s", (integers("a", (100, 100 + size)), integers("b", (0, 1)))) for size in sizes}
    results = probe(QueryStem([index_page(blocks)]), [table], tmp_path)
    for size in sizes:
        inside = (values >= 100) & (values < 100 + size)
        assert rows_of(results, size, table) == np.flatnonzero(inside).tolist()


@pytest.mark.parametrize("bitmaps_max", [0, 100_000])
def test_intervals_of_one_factor_close_to_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bitmaps_max: int
) -> None:
    """A bitmap by step has rows too many or too few near its end: those may be another interval's."""
    monkeypatch.setattr(grouped_filter, "_BITMAPS_MAX", bitmaps_max)
    table = pa.table({"a": pa.array([None, *range(1, 1000)], pa.int64())})
    lists = [[(100, 103), (105, 900)], [(1, 3), (4, 6), (7, 999)], [(5, 500), (501, 502), (503, 800)], [(10, 10)]]
    blocks = {
        2 * number + null: Block("s", (integers("a", *intervals, null=bool(null)),))
        for number, intervals in enumerate(lists)
        for null in (0, 1)
    }
    results = probe(QueryStem([index_page(blocks)]), [table], tmp_path)
    keys = keys_of(table)
    for block_id, block in blocks.items():
        assert rows_of(results, block_id, table) == expected(keys, block)


def test_pages_share_what_a_tile_is_arranged_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts that one page has and another lacks, columns and predicates in another order, a column without cuts."""
    arranged: list[int] = []
    arrange = Arrangement.arrange

    def counted(self: Arrangement, number: int, *rest: Any) -> None:
        arranged.append(number)
        arrange(self, number, *rest)

    monkeypatch.setattr(Arrangement, "arrange", counted)
    monkeypatch.setattr(query_stem, "_DEAR_SECONDS", 1e9)  # on a busy machine anything may take long
    odd, third = Factor("odd", '"x" % 7 < 2', ("x",)), Factor("third", '"x" % 7 < 3', ("x",))
    texts = Factor("t", "false", ("t",), Ranges.of("t", [(b"a", b"c"), (b"d", b"dd")]))
    some = Factor("some", "false", ("t",), Ranges.of("t", [(None, None)]))
    pages = [
        {1: Block("s", (integers("a", (3, 9)), texts, odd)), 2: Block("s", (integers("b", (1, 4)), third))},
        {5: Block("s", (third, some, integers("b", (2, 8)))), 6: Block("s", (integers("a", (0, 5), (7, 8)), odd))},
        {8: Block("s", (Factor("u", "false", ("t",), Ranges.of("t", [(b"b", None)])), integers("a", (3, 4))))},
    ]
    rng = random.Random(2)
    table = pa.table({
        "a": [rng.randrange(10) for _ in range(500)],
        "b": [rng.randrange(10) for _ in range(500)],
        "t": [rng.choice(["a", "b", "bb", "c", "d", "dda", None]) for _ in range(500)],
        "x": list(range(500)),
    })  # fmt: skip
    for number, page in enumerate(pages):
        save_page(tmp_path / f"{number}.page", index_page(page))
    paths = [str(tmp_path / f"{number}.page") for number in range(3)]
    stem = load_stem(paths)
    results = probe(stem, [table] * 2, tmp_path)
    assert len(arranged) == 8 + 3, "each page by itself at first, then all together"
    assert load_stem(paths) is stem
    keys = keys_of(table)
    for page in pages:
        for block_id, block in page.items():
            assert rows_of(results, block_id, table) == expected(keys, block)
            assert rows_of(results, block_id, table, segment=1) == expected(keys, block)


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("dear", [0.0, 1.0])
@pytest.mark.parametrize("explore_every", [1, 2, 1_000])
def test_no_order_changes_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy, dear: float, explore_every: int
) -> None:
    """Every policy, with predicates before and after they are known to be dear, and filters that look at few tuples."""
    monkeypatch.setattr(query_stem, "_DEAR_SECONDS", dear)
    monkeypatch.setattr(query_stem, "_SECONDS_PER_BLOCK", 0.0)
    monkeypatch.setattr(routing, "_EXPLORE_EVERY", explore_every)
    rng = random.Random(explore_every)
    types = {"a": pa.int32(), "b": pa.float64(), "c": pa.string()}
    segments = [random_table(rng, types, 1_500, 300, 0.1) for _ in range(3)] + [random_table(rng, types, 5, 3, 0.5)]
    blocks = random_blocks(rng, types, 12, 300)
    router = Router(policy, seed=3)
    results = probe(QueryStem([index_page(blocks)]), segments, tmp_path, router)
    keys = [keys_of(segment) for segment in segments]
    for block_id, block in blocks.items():
        for number, segment in enumerate(segments):
            rows = results.rows(block_id, number)
            assert (list(range(len(segment))) if rows is None else rows.tolist()) == expected(keys[number], block)
    if explore_every <= 2:
        assert {"a", "b", "c"} <= set(router.accounts)


def test_tuples_that_no_query_wants_visit_fewer_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One selective filter and one that lets most pass: the selective one comes first by itself, and the other looks at
    what is left. When the data turn, the order does."""
    monkeypatch.setattr(query_stem, "_SECONDS_PER_BLOCK", 0.0)
    # a visit takes the same time whatever else the machine does
    ticks = count()
    monkeypatch.setattr(query_stem, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * 1e-6))
    one = Factor("one", "false", ("a",), Ranges.of("a", [(0, 10)]))
    other = Factor("other", "false", ("b",), Ranges.of("b", [(0, 10)]))
    stem = QueryStem([index_page({1: Block("s", (other, one))})])
    rng = random.Random(5)
    spread = pa.array([rng.randrange(1000) for _ in range(TILE)], pa.int64())
    close = pa.array([rng.randrange(11) for _ in range(TILE)], pa.int64())
    known: dict[str, Account] = {}
    for first, second in (("a", "b"), ("b", "a")):
        segment = pa.table({first: spread, second: close})
        for epoch in range(6):
            router = Router(known=known, seed=epoch)
            probe(stem, [segment] * 20, tmp_path / f"{first}{epoch}", router)
            known = merged(known, [router.accounts])
        assert Router(known=known).order(["a", "b"]) == [first, second]
        assert known[second].reached < 0.5


def test_a_dear_predicate_sees_only_tuples_that_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_stem, "_DEAR_SECONDS", 0.0)
    narrow = Factor("narrow", "false", ("x",), Ranges.of("x", [(0, 10)]))
    dear = Factor("dear", '"x" % 2 = 0', ("x",))
    stem = QueryStem([index_page({1: Block("s", (dear, narrow))})])
    segment = pa.table({"x": pa.array(range(1000), pa.int64())})
    known = {"dear": Account(1000, 1000, 500, 1.0)}
    router = Router(known=known)
    results = probe(stem, [segment], tmp_path, router)
    assert router.accounts["dear"].visited == 10
    rows = results.rows(1, 0)
    assert rows is not None
    assert rows.tolist() == [0, 2, 4, 6, 8]


def test_a_few_tuples_make_no_predicate_dear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a statement costs by itself is much for each of ten tuples: all predicates still share one."""
    statements: list[int] = []

    def counted(table: pa.Table, factors: Iterable[Factor], **limits: Any) -> FactorResult:
        wanted = list(factors)
        statements.append(len(wanted))
        return evaluate_factors(table, wanted, **limits)

    monkeypatch.setattr(query_stem, "evaluate_factors", counted)
    blocks = {number: Block("s", (Factor(f"p{number}", f'"x" % 7 = {number}', ("x",)),)) for number in range(1, 6)}
    router = Router(known={f"p{number}": Account(10, 10, 5, 0.005) for number in range(1, 6)})
    probe(QueryStem([index_page(blocks)]), [pa.table({"x": pa.array(range(10), pa.int64())})] * 3, tmp_path, router)
    assert statements == [5, 5, 5]


def test_a_factor_that_raises_leaves_only_its_own_blocks_uncovered(tmp_path: Path) -> None:
    bad = Factor("bad", "CAST(\"x\" || 'y' AS INTEGER) = 1", ("x",))
    good = Factor("good", "false", ("x",), Ranges.of("x", [(0, 10)]))
    stem = QueryStem([index_page({1: Block("s", (good,)), 2: Block("s", (good, bad)), 3: Block("s", (bad,))})])
    writer = ResultsWriter(tmp_path, "data.parquet", stem.blocks)
    failures = stem.probe(pa.table({"x": [1, 50]}), writer, Router())
    assert set(failures) == {2, 3}
    path = writer.finish()
    assert path is not None
    results = Results(path)
    assert results.covered.tolist() == [1]
    rows = results.rows(1, 0)
    assert rows is not None
    assert rows.tolist() == [0]


def test_a_page_that_is_gone_or_damaged_covers_nothing(tmp_path: Path) -> None:
    assert len(load_stem([str(tmp_path / "gone.page")]).blocks) == 0
    path = tmp_path / "damaged.page"
    save_page(path, index_page({1: Block("s", (Factor("f", "false", ("x",), Ranges.of("x", [(0, 10)])),))}))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert len(load_stem([str(path)]).blocks) == 0
    assert not path.exists()
