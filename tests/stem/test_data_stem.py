"""Data SteMs against all pairs compared one by one, and the files that keep what they found."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ladle.plan import Bound, JoinFactor, JoinKey, PairJoin, Reach, Relop, RowsWindow, TimeWindow
from ladle.plan.join import make_edge, reach
from ladle.plan.window import MAX_US, MIN_US
from ladle.stem import data_stem
from ladle.stem.data_stem import NO_PAIRS, DataStem, Pairs, TooManyPairs, join
from ladle.stem.pairs import Cover, FoundPairs, JoinCoverage, owner_of, write_pairs

RELOPS: dict[Relop, Callable[[Any, Any], bool]] = {
    Relop.EQ: operator.eq,
    Relop.LT: operator.lt,
    Relop.LE: operator.le,
    Relop.GT: operator.gt,
    Relop.GE: operator.ge,
}
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("i", pa.int32()), ("j", pa.int64()), ("s", pa.string()), ("d", pa.float64())]
)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.none() | st.integers(-2, 4),
        st.none() | st.integers(-2, 4),
        st.none() | st.sampled_from(["", "a", "b", "ä"]),
        st.none() | st.sampled_from([-math.inf, -0.0, 0.0, 1.5, math.inf, math.nan]),
    ),
    max_size=14,
)
COLUMNS = {"i": ("i", "j"), "j": ("i", "j"), "s": ("s",), "d": ("d",)}
FACTORS = st.lists(
    st.sampled_from([*COLUMNS]).flatmap(
        lambda left: st.tuples(st.just(left), st.sampled_from([*Relop]), st.sampled_from(COLUMNS[left]))
    ),
    min_size=1,
    max_size=3,
    unique=True,
)
ENDS = st.integers(-30, 30) | st.sampled_from([MIN_US, MAX_US])


def key(name: str) -> JoinKey:
    return JoinKey(f"`{name}`", (name,))


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [[row[at] for row in rows] for at in range(len(SCHEMA))]
    return pa.table([pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def compared(relop: Relop, left: Any, right: Any) -> bool:
    """As Spark does: NULL is never true, NaN is the greatest number and equal to itself."""
    if left is None or right is None:
        return False
    if isinstance(left, float):
        left, right = ((math.isnan(each), 0.0 if math.isnan(each) else each) for each in (left, right))
    return RELOPS[relop](left, right)


@settings(max_examples=300, deadline=None)
@given(left=ROWS, right=ROWS, factors=FACTORS, ends=st.tuples(ENDS, ENDS), portion=st.sampled_from([1, 7, 1 << 20]))
def test_pairs_are_those_that_compare_one_by_one(
    left: list[Any], right: list[Any], factors: list[tuple[str, Relop, str]], ends: tuple[int, int], portion: int
) -> None:
    within = Reach(min(ends), max(ends))
    pair = PairJoin("l", "r", tuple(JoinFactor(key(a), relop, key(b)) for a, relop, b in factors))
    names = SCHEMA.names
    expected = [
        (i, j)
        for i, one in enumerate(left)
        for j, other in enumerate(right)
        if within.low < other[0] - one[0] < within.high
        and all(compared(relop, one[names.index(a)], other[names.index(b)]) for a, relop, b in factors)
    ]
    stems = [
        DataStem.of(table_of(rows), "at", pair.keys(left=is_left)) for rows, is_left in ((left, True), (right, False))
    ]
    before = data_stem._CANDIDATES_AT_ONCE
    data_stem._CANDIDATES_AT_ONCE = portion
    try:
        found = join(*stems, pair, within, pairs_max=10_000)
    finally:
        data_stem._CANDIDATES_AT_ONCE = before
    assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == expected
    assert found.left.tolist() == sorted(found.left.tolist())


def test_a_key_that_everybody_has_is_cut_by_time_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand equal keys on both sides: only what is within reach is looked at."""
    looked: list[int] = []
    check = data_stem._Probing.check

    def spy(probing: Any, pairs: Pairs, checked: frozenset[int]) -> Pairs:
        looked.append(len(pairs.left))
        return check(probing, pairs, checked)

    monkeypatch.setattr(data_stem._Probing, "check", spy)
    times = np.arange(20_000, dtype=np.int64)
    ones = pa.array(np.ones(20_000, dtype=np.int32))
    stem = DataStem(times, {"`i`": ones})
    pair = PairJoin("l", "r", (JoinFactor(key("i"), Relop.EQ, key("i")),))
    found = join(stem, DataStem(times, {"`i`": ones}), pair, Reach(-2, 2), pairs_max=100_000)
    assert len(found.left) == 3 * 20_000 - 2
    assert sum(looked) == len(found.left)
    with pytest.raises(TooManyPairs, match="more than 1,000 pairs"):
        join(stem, stem, pair, Reach(MIN_US, MAX_US), pairs_max=1_000)


def test_keys_may_be_expressions() -> None:
    rows = table_of([(second, second, second, "a", 0.5) for second in range(6)])
    minus, plus = (JoinKey(f"`i` {sign} 1", ("i",), f'"i" {sign} 1') for sign in "-+")
    pair = PairJoin("l", "r", (JoinFactor(key("i"), Relop.GE, minus), JoinFactor(key("i"), Relop.LE, plus)))
    left, right = (DataStem.of(rows, "at", pair.keys(left=is_left)) for is_left in (True, False))
    found = join(left, right, pair, Reach(MIN_US, MAX_US), pairs_max=100)
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert pairs == [(i, j) for i in range(6) for j in range(6) if abs(i - j) <= 1]


# -- what is shared --


def test_the_same_join_is_known_whoever_writes_it() -> None:
    one = make_edge(
        0, 1, ("r", "s"), [JoinFactor(key("a"), Relop.LT, key("b")), JoinFactor(key("c"), Relop.EQ, key("d"))]
    )
    other = make_edge(
        0, 1, ("s", "r"), [JoinFactor(key("d"), Relop.EQ, key("c")), JoinFactor(key("b"), Relop.GT, key("a"))]
    )
    assert one.pair == other.pair
    assert (one.left, one.right) == (other.right, other.left)
    assert one.pair.digest(1, 2) == other.pair.digest(1, 2) != one.pair.digest(1, 3)


def _back(us: int) -> Bound:
    return Bound(-us, relative=True)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (TimeWindow(_back(10), _back(0)), TimeWindow(_back(5), _back(0))),
        (TimeWindow(_back(10), _back(4)), TimeWindow(_back(5), _back(0))),
        (TimeWindow(_back(3), _back(0)), TimeWindow(None, None)),
        (TimeWindow(Bound(7), _back(0)), TimeWindow(_back(5), _back(2))),
    ],
)
def test_reach_is_how_far_apart_two_tuples_of_one_answer_may_be(left: TimeWindow, right: TimeWindow) -> None:
    within = reach(left, right)
    seen = set()
    for now in range(60):
        for one in range(40):
            for other in range(40):
                ends = (left.resolve(now), right.resolve(now))
                if all(begin < at <= end for at, (begin, end) in zip((one, other), ends, strict=True)):
                    assert within.low < other - one < within.high
                    seen.add(other - one)
    if within.is_bounded:
        assert seen == set(range(within.low + 1, within.high))


def test_windows_of_months_and_rows_reach_far_enough() -> None:
    month = TimeWindow(Bound(0, relative=True, months=-1), Bound(0, relative=True))
    within = reach(month, month)
    assert within.high > 31 * 86_400_000_000 - 1
    assert reach(RowsWindow(5), month) == Reach(within.low, MAX_US)
    assert not reach(RowsWindow(5), RowsWindow(5)).is_bounded


# -- files --


def test_a_pairs_file_says_what_it_covers(tmp_path: Path) -> None:
    pairs = Pairs(np.array([0, 3, 3]), np.array([7, 1, 2]))
    within = Reach(-10, 10)
    assert write_pairs(
        tmp_path,
        "new.parquet",
        [
            FoundPairs(
                Cover("new.parquet", "old.parquet", within, frozenset({4, 9}), None),
                pairs,
                {(0, 9): np.array([3]), (1, 6): np.array([1, 7])},
            ),
            FoundPairs(Cover("new.parquet", "older.parquet", within, None, None), NO_PAIRS, {(0, 4): np.array([2])}),
        ],
    )
    coverage = JoinCoverage(tmp_path)
    coverage.refresh()
    entry = coverage.find("new.parquet", "old.parquet", Reach(-3, 10), frozenset({9}), None)
    assert entry is not None
    assert entry.left.tolist() == [0, 3, 3]
    assert entry.right.tolist() == [7, 1, 2]
    lineages = {(side, block): entry.lineage(side, block) for side in (0, 1) for block in (4, 6, 9, None)}
    assert {key: rows.tolist() for key, rows in lineages.items() if rows is not None} == {(0, 9): [3], (1, 6): [1, 7]}
    assert coverage.find("new.parquet", "old.parquet", Reach(-11, 10), frozenset({9}), None) is None
    assert coverage.find("new.parquet", "old.parquet", within, frozenset({5}), None) is None
    assert coverage.find("new.parquet", "old.parquet", within, None, None) is None
    assert coverage.find("old.parquet", "new.parquet", within, frozenset({4}), None) is None
    older = coverage.find("new.parquet", "older.parquet", within, frozenset({5}), frozenset({1}))
    assert older is not None
    assert len(older.left) == 0
    of_older = older.lineage(0, 4)
    assert of_older is not None
    assert of_older.tolist() == [2]
    (file,) = coverage.files()
    assert owner_of(file.name) == "new.parquet"


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_a_damaged_pairs_file_covers_nothing(tmp_path: Path, keep: float) -> None:
    cover = Cover("a", "b", Reach(-1, 1), None, None)
    path = write_pairs(tmp_path, "a", [FoundPairs(cover, Pairs(np.arange(1_000), np.arange(1_000)))])
    assert path is not None
    content = path.read_bytes()
    path.write_bytes(content[: int(keep if keep >= 1 else keep * len(content))])
    coverage = JoinCoverage(tmp_path)
    coverage.refresh()
    assert coverage.find("a", "b", cover.reach, None, None) is None
    assert not path.exists(), "it is thrown away"


def test_without_a_directory_nothing_is_covered(tmp_path: Path) -> None:
    for directory in (None, tmp_path / "gone"):
        coverage = JoinCoverage(directory)
        coverage.refresh()
        assert coverage.find("a", "b", Reach(0, 1), None, None) is None


def test_times_are_those_of_the_column() -> None:
    table = table_of([(5, 1, 1, "a", 0.5)])
    stem = DataStem.of(table, "at", [key("i")])
    assert stem.span == (5, 5)
    assert table.column("at")[0].as_py() == datetime(1970, 1, 1, microsecond=5, tzinfo=UTC)
