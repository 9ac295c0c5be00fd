"""The difference of two tables as bags, against counting rows one by one."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.execute.difference import difference

TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-2, 2)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.sampled_from(["", "a", "ä", "None"])),
    (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, math.nan])),
    (pa.timestamp("us", tz="UTC"), st.integers(0, 2)),
    (pa.list_(pa.int32()), st.lists(st.integers(0, 1), max_size=2)),
    (pa.struct([("x", pa.float64())]), st.fixed_dictionaries({"x": st.sampled_from([1.0, None])})),
    (pa.decimal128(10, 2), st.decimals(-1, 1, places=2)),
    (pa.null(), st.none()),
    (pa.month_day_nano_interval(), st.tuples(st.integers(0, 1), st.just(0), st.integers(0, 1))),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    chosen = draw(st.lists(st.sampled_from(TYPES), min_size=0, max_size=3))
    schema = pa.schema([(f"c{number}", type_) for number, (type_, _) in enumerate(chosen)])

    def table() -> pa.Table:
        count = draw(st.integers(0, 8))
        columns = [
            pa.array(draw(st.lists(st.one_of(st.none(), values), min_size=count, max_size=count)), type_)
            for type_, values in chosen
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    one = table()
    # The second is mostly the first with other rows: what did not move is skipped.
    other = table() if draw(st.booleans()) else pa.concat_tables([one.slice(draw(st.integers(0, 2))), table()])
    return one, other


def bag(table: pa.Table) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


@given(tables())
def test_what_went_and_what_came(both: tuple[pa.Table, pa.Table]) -> None:
    before, after = both
    gone, came = difference(before, after)
    assert list(gone) == sorted(set(gone))
    assert list(came) == sorted(set(came))
    assert bag(before.take(gone)) == bag(before) - bag(after)
    assert bag(after.take(came)) == bag(after) - bag(before)


@pytest.mark.parametrize("rows", [(3, 1), (1, 3), (2, 2), (0, 2)])
def test_rows_without_columns(rows: tuple[int, int]) -> None:
    """SELECT of nothing has rows all the same."""
    one, other = (pa.table({"x": range(count)}).select([]) for count in rows)
    gone, came = difference(one, other)
    assert (len(gone), len(came)) == (max(rows[0] - rows[1], 0), max(rows[1] - rows[0], 0))


def test_it_does_not_walk_over_rows() -> None:
    """A hundred thousand rows that all change take a moment."""
    count = 100_000
    before = pa.table({"k": np.arange(count), "v": np.zeros(count)})
    after = pa.table({"k": np.arange(count)[::-1].copy(), "v": np.r_[np.ones(5), np.zeros(count - 5)]})
    gone, came = difference(before, after)
    assert sorted(before["k"].take(gone).to_pylist()) == list(range(count - 5, count))
    assert sorted(after["k"].take(came).to_pylist()) == list(range(count - 5, count))


def test_nested_times_that_python_has_none_for() -> None:
    at, day = pa.timestamp("us", "UTC"), pa.date32()
    type_ = pa.struct([("a", at), ("b", pa.list_(day)), ("c", pa.map_(at, pa.list_(at)))])
    beyond_us, beyond_days = 253_402_300_800_000_000, 2_932_897
    numbers = pa.struct(
        [("a", pa.int64()), ("b", pa.list_(pa.int32())), ("c", pa.map_(pa.int64(), pa.list_(pa.int64())))]
    )
    rows = [{"a": beyond_us + n, "b": [beyond_days, None], "c": [(beyond_us, [beyond_us + n])]} for n in (0, 1)]
    both = pa.table({"x": pa.array([*rows, None], numbers).cast(type_)})
    gone, came = difference(both, both.take([2, 0, 0]))
    assert (gone.tolist(), came.tolist()) == ([1], [2])
