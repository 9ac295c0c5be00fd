"""The ranked tree, the folds and the cuts of windows against plain Python over all rows."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ladle.archive.order import Order
from ladle.errors import EvaluationError
from ladle.operators.aggregates import (
    COMBINE,
    EMPTY,
    FAN_OUT,
    STRIP_ROWS,
    Number,
    RankedTree,
    Vector,
    count_rows,
    exact_sums,
    finisher,
    fold_rows,
    fold_strips,
)
from ladle.operators.exact_sums import ExactSum
from ladle.operators.window_edges import Times, cut_range
from ladle.plan.aggregate import Aggregate, Fold, Make, Output, Partial
from ladle.stem.matches import Matches

SIZES = st.one_of(st.integers(0, 40), st.integers(0, 5_000))


# -- the tree --


def tree_of(values: list[int], combine: Any = sum) -> RankedTree[int]:
    tree: RankedTree[int] = RankedTree(combine)
    tree.extend(len(values))
    for at, value in enumerate(values):
        tree.put(at, value)
    return tree


@given(st.data(), SIZES, st.sampled_from([sum, max, min]))
def test_a_range_of_the_tree_is_the_fold_of_its_leaves(data: st.DataObject, size: int, combine: Any) -> None:
    values = [(at * 7919) % 1009 - 500 for at in range(size)]
    tree = tree_of(values, combine)
    for _ in range(5):
        first = data.draw(st.integers(0, size))
        last = data.draw(st.integers(first, size))
        parts = tree.parts(first, last)
        assert parts is not None
        assert combine([0, *parts]) == combine([0, *values[first:last]])
        assert len(parts) <= 2 * FAN_OUT * (1 + math.ceil(math.log(max(size, 2), FAN_OUT)))


class TreeModel:
    def __init__(self) -> None:
        self.tree: RankedTree[int] = RankedTree(sum)
        self.leaves: list[int | None] = []


@given(st.lists(st.tuples(st.sampled_from(["extend", "put", "cut", "ask"]), st.integers(0, 400)), max_size=60))
@settings(max_examples=60)
def test_the_tree_follows_what_is_put_cut_and_extended(steps: list[tuple[str, int]]) -> None:
    """Nodes that were computed before must not be taken for what their leaves are now."""
    model = TreeModel()
    for step, number in steps:
        size = len(model.leaves)
        if step == "extend":
            model.tree.extend(number)
            model.leaves += [None] * number
        elif step == "cut":
            model.tree.truncate(min(size, number // 8))
            del model.leaves[number // 8 :]
        elif step == "put" and size:
            for at in range(number % size, size):
                model.tree.put(at, at + number)
                model.leaves[at] = at + number
        assert len(model.tree) == len(model.leaves)
        first = min(number, len(model.leaves))
        for start in (0, first):
            expected = model.leaves[start:]
            parts = model.tree.parts(start, len(model.leaves))
            if None in expected:
                assert parts is None
                unknown = model.tree.unknown(start, len(model.leaves))
                assert unknown == [at for at in range(start, len(model.leaves)) if model.leaves[at] is None]
            else:
                assert parts is not None
                assert sum(parts) == sum(value for value in expected if value is not None)


@pytest.mark.parametrize("left", [0, 1, FAN_OUT, FAN_OUT + 1])
def test_a_tree_that_lost_most_of_its_leaves_grows_again(left: int) -> None:
    tree = tree_of(list(range(FAN_OUT**2 + 5)))
    tree.truncate(left)
    tree.extend(2)
    for at in (left, left + 1):
        tree.put(at, 1_000)
    parts = tree.parts(0, left + 2)
    assert parts is not None
    assert sum(parts) == sum(range(left)) + 2_000


# -- folds --


def python_fold(fold: Fold, values: list[Any]) -> Any:
    values = [value for value in values if value is not None]
    match fold:
        case Fold.COUNT:
            return len(values)
        case Fold.SUM:
            return sum(values) if values else None
        case Fold.MIN:
            return min(values, key=as_spark) if values else None
        case _:
            return max(values, key=as_spark) if values else None


def as_spark(value: Any) -> Any:
    """Spark's order: NaN is the greatest number."""
    return (value != value, 0 if value != value else value)


TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "int": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "bigint": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "decimal": (pa.decimal128(18, 4), st.decimals(-(10**13), 10**13, places=4)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", tz="UTC"), st.datetimes()),
}


def one(fold: Fold, type_: pa.DataType, number: Number, count: int) -> Any:
    """The folded number as the answer has it."""
    answer_type = type_
    if fold in (Fold.COUNT, Fold.ROWS):
        answer_type = pa.int64()
    elif fold is Fold.SUM:
        answer_type = (
            pa.float64()
            if pa.types.is_floating(type_)
            else pa.decimal128(type_.precision + 10, type_.scale)
            if pa.types.is_decimal(type_)
            else pa.int64()
        )
    aggregate = Aggregate((), (Partial(fold, "c"), Partial(Fold.COUNT, "c")), ())
    make = finisher(aggregate, Output(Make.FOLDED, 0, 1 if fold is Fold.SUM else None), answer_type)
    array = make([number, count])
    assert array.type == answer_type
    array.validate(full=True)
    return array[0].as_py()


def same(got: Any, expected: Any) -> bool:
    if isinstance(got, ExactSum) or isinstance(expected, ExactSum):
        got, expected = float(got), float(expected)
        return bool(got == expected or (got != got and expected != expected))
    if isinstance(expected, float) and isinstance(got, float):
        return got == expected or (got != got and expected != expected) or math.isclose(got, expected, rel_tol=1e-9)
    return bool(got == expected)


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_folds_are_pythons(name: str, data: st.DataObject) -> None:
    """Every fold of every type over random matches, NULLs, NaN and infinities."""
    type_, values = TYPES[name]
    column = data.draw(st.lists(st.one_of(st.none(), values), max_size=30))
    ids = data.draw(st.one_of(st.none(), st.sets(st.integers(0, max(len(column) - 1, 0)))))
    if not column:
        ids = None
    array = pa.array(column, type_)
    column = array.to_pylist()
    matched = column if ids is None else [column[at] for at in sorted(ids)]
    vector = Vector(array)
    matches = Matches.of(None if ids is None else np.array(sorted(ids), dtype=np.intp), len(column))
    forms = [matches] if ids is None else [matches, Matches(len(column), numbers=np.array(sorted(ids), dtype=np.intp))]
    rows = matches.between(0, len(column))
    assert fold_rows(Fold.ROWS, None, rows) == len(matched)
    count = vector.fold(Fold.COUNT, rows)
    folds = [Fold.COUNT, Fold.MIN, Fold.MAX]
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_) or pa.types.is_floating(type_):
        folds.append(Fold.SUM)
    for fold in folds:
        expected = python_fold(fold, matched)
        if fold is Fold.SUM and pa.types.is_floating(type_) and matched and abs(expected or 0) > 1e300:
            continue  # whether it overflows on the way depends on the order of addition
        number = vector.fold(fold, rows)
        assert COMBINE[fold]([EMPTY[fold], number]) == number or number != number
        for kept in forms:
            strips = fold_strips([("c", fold, vector)], kept)["c"]
            assert same(COMBINE[fold]([EMPTY[fold], *strips]), number)
        if fold is Fold.SUM and pa.types.is_integer(type_) and expected is not None:
            fits = -(1 << 63) <= expected < 1 << 63
        else:
            fits = True
        if not fits:
            with pytest.raises(EvaluationError, match="BIGINT"):
                one(fold, type_, number, int(count))
            continue
        assert same(one(fold, type_, number, int(count)), expected), fold


def test_sums_that_pass_64_bits_are_exact() -> None:
    values = np.array([(1 << 63) - 1] * 5 + [-(1 << 63)] * 2 + [3] + [-(1 << 63)] * 3 + [1, 2], dtype=np.int64)
    runs = [(0, 8), (8, 11), (11, 13)]
    expected = [sum(int(value) for value in values[first:last]) for first, last in runs]
    assert exact_sums(values, np.array([first for first, _ in runs]), 8 << 63) == expected
    assert exact_sums(np.array([1, 2], dtype=np.int8), np.zeros(1, dtype=np.intp), 4) == [3]


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([1e308, 1e308], math.inf),
    ],
)
def test_infinities_and_nan_propagate_through_sums(values: list[float], total: float) -> None:
    """Within a segment and between two, without a warning."""
    rows = slice(0, 2)
    whole = Vector(pa.array(values)).fold(Fold.SUM, rows)
    parts = [Vector(pa.array([value])).fold(Fold.SUM, slice(0, 1)) for value in values]
    assert same(float(whole), total)
    assert same(float(COMBINE[Fold.SUM](parts)), total)


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [
        (10, 4, "0.025000"),
        (1, 3, "0.003333"),
        (2, 3, "0.006667"),
        (-2, 3, "-0.006667"),
        (1, 20_000, "0.000001"),
        (-1, 20_000, "-0.000001"),
        (0, 7, "0.000000"),
    ],
)
def test_an_average_of_decimals_is_rounded_half_up(total: int, count: int, expected: str) -> None:
    aggregate = Aggregate((), (Partial(Fold.SUM, "c"), Partial(Fold.COUNT, "c")), ())
    make = finisher(aggregate, Output(Make.AVERAGE, 0, 1), pa.decimal128(13, 6))
    assert make([total, count])[0].as_py() == Decimal(expected)


# -- matches, strips and edges --

ROWS = 3 * STRIP_ROWS + 123


@pytest.fixture(scope="module", params=["all", "few", "many", "none"])
def ids(request: pytest.FixtureRequest) -> np.ndarray[Any, Any] | None:
    rng = np.random.default_rng(3)
    share = {"all": 1.0, "few": 0.002, "many": 0.4, "none": 0.0}[request.param]
    return None if request.param == "all" else np.flatnonzero(rng.random(ROWS) < share)


def numbers(matches: Matches, first: int, last: int) -> list[int]:
    rows = matches.between(first, last)
    found = list(range(rows.start, rows.stop)) if isinstance(rows, slice) else rows.tolist()
    assert count_rows(rows) == len(found)
    return found


@given(st.integers(0, ROWS), st.integers(0, ROWS), st.randoms(use_true_random=False))
def test_matches_between(ids: np.ndarray[Any, Any] | None, a: int, b: int, rng: Any) -> None:
    first, last = sorted((a, b))
    matches = Matches.of(ids, ROWS)
    every = list(range(ROWS)) if ids is None else ids.tolist()
    assert numbers(matches, first, last) == [row for row in every if first <= row < last]
    mask = np.array([rng.random() < 0.5 for _ in range(min(last - first, 200))], dtype=np.bool_)
    among = matches.among(first, mask)
    assert not isinstance(among, slice)
    assert among.tolist() == [row for row in every if first <= row < first + len(mask) and mask[row - first]]


@given(
    data=st.data(),
    shuffled=st.sampled_from([0, 50, ROWS]),
    skip=st.one_of(st.just(0), st.integers(0, ROWS)),
    until=st.one_of(st.just(ROWS), st.integers(0, ROWS)),
)
@settings(max_examples=60)
def test_edges_are_exact(
    ids: np.ndarray[Any, Any] | None, data: st.DataObject, shuffled: int, skip: int, until: int
) -> None:
    """Whole strips and cut ones together are the rows of the window, whether times ascend or not."""
    times = np.repeat(np.arange(ROWS // 3 + 1, dtype=np.int64), 3)[:ROWS]
    rng = np.random.default_rng(shuffled)
    if shuffled:
        places = rng.choice(ROWS, shuffled, replace=False)
        times[np.sort(places)] = times[places]
    bound = st.integers(-2, ROWS // 3 + 3)
    begin, end = sorted((data.draw(bound), data.draw(bound)))
    values = rng.integers(-1000, 1000, ROWS)
    vector, matches = Vector(pa.array(values)), Matches.of(ids, ROWS)
    rows = np.arange(ROWS) if ids is None else ids.astype(np.int64)
    inside = rows[(times[rows] > begin) & (times[rows] <= end) & (rows >= skip) & (rows < until)]
    whole, parts = Times(times).cut(begin, end, skip, until)
    for fold in (Fold.COUNT, Fold.SUM, Fold.MIN, Fold.MAX):
        strips = fold_strips([("c", fold, vector)], matches)["c"]
        found = [EMPTY[fold], *(strips[strip] for strip in whole)]
        for first, last, mask in parts:
            picked = matches.between(first, last) if mask is None else matches.among(first, mask)
            found.append(vector.fold(fold, picked))
        expected = vector.fold(fold, inside) if len(inside) else EMPTY[fold]
        assert COMBINE[fold](found) == expected
    first, last, mask = Times(times).rows(begin, end, skip, until)
    picked = matches.between(first, last) if mask is None else matches.among(first, mask)
    assert (list(range(picked.start, picked.stop)) if isinstance(picked, slice) else picked.tolist()) == inside.tolist()


@given(st.integers(0, ROWS), st.integers(0, ROWS))
def test_a_range_is_whole_strips_and_its_ends(first: int, last: int) -> None:
    whole, parts = cut_range(first, last, ROWS)
    found = [row for strip in whole for row in range(strip * STRIP_ROWS, min((strip + 1) * STRIP_ROWS, ROWS))]
    found += [row for start, stop, _ in parts for row in range(start, stop)]
    assert sorted(found) == list(range(first, last))
    assert sum(stop - start for start, stop, _ in parts) < 2 * STRIP_ROWS


# -- segments --

SEGMENTS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 60), st.integers(0, 20)), max_size=40)


@given(
    drawn=SEGMENTS,
    a=st.integers(-5, 90),
    b=st.integers(-5, 90),
    first_row=st.one_of(st.just(0), st.integers(0, 130)),
    last_row=st.one_of(st.none(), st.integers(0, 130)),
    ascending=st.booleans(),
)
def test_a_window_is_runs_and_edges(
    drawn: list[tuple[int, int, int]], a: int, b: int, first_row: int, last_row: int | None, *, ascending: bool
) -> None:
    """Every segment is inside, at an edge or outside, as its own times and its place say."""
    segments = sorted(drawn, key=lambda segment: segment[1]) if ascending else drawn
    begin, end = sorted((a, b))
    rows = np.array([count for count, _, _ in segments], dtype=np.int64)
    low = np.array([start for _, start, _ in segments], dtype=np.int64)
    high = np.array([start + length for _, start, length in segments], dtype=np.int64)
    runs, edges = Order(rows, low, high).cut(begin, end, first_row, last_row)
    inside = [at for first, last in runs for at in range(first, last)]
    assert sorted([*inside, *(at for at, _ in edges)]) == sorted({*inside, *(at for at, _ in edges)})
    skips = dict(edges)
    ends = np.cumsum(rows)
    for at in range(len(segments)):
        skip = max(0, int(first_row - (ends[at] - rows[at])))
        stop = int(rows[at]) if last_row is None else min(int(rows[at]), int(last_row - (ends[at] - rows[at])))
        touched = high[at] > begin and low[at] <= end and skip < stop
        whole = low[at] > begin and high[at] <= end and skip == 0 and stop == rows[at]
        assert (at in inside) == bool(touched and whole), at
        assert skips.get(at) == (skip if touched and not whole else None), at


@given(SEGMENTS, st.integers(1, 150), st.integers(0, 90), st.one_of(st.none(), st.integers(-5, 60)))
def test_the_last_rows_begin_where_counting_says(
    drawn: list[tuple[int, int, int]], rows: int, now: int, floor: int | None
) -> None:
    counts = [count for count, _, _ in drawn]
    low = [start for _, start, _ in drawn]
    high = [start + length for _, start, length in drawn]
    order = Order(*(np.array(column, dtype=np.int64) for column in (counts, low, high)))
    first = order.last_rows(rows, now, floor)
    if first is None:
        assert any(at > now for at in high) or floor is not None
    elif first > 0:
        assert sum(counts) - first == rows
        starts = np.cumsum([0, *counts])
        touched = [at for at in range(len(counts)) if starts[at + 1] > first]
        assert all(high[at] <= now and (floor is None or low[at] > floor) for at in touched)
    else:
        assert sum(counts) <= rows
