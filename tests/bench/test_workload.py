"""The workloads are what they are said to be, the same in every run, and counted right by all who count them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks._experiments import conditions, constant, equalities, intervals
from benchmarks._probe import Probe
from benchmarks._workload import (
    Selection,
    arrays_of,
    check_counts,
    counts_by_duckdb,
    masks_one_by_one,
    tuples,
    w1,
    w1s,
    write_files,
)

from ladle.errors import LadleError
from ladle.testing import connect_inline


def test_w1_has_an_attribute_with_probability_0_6() -> None:
    selections = w1(4_000)
    assert np.mean([len(each.intervals) for each in selections]) == pytest.approx(4 * 0.6, rel=0.05)
    assert selections[:10] == w1(10), "fewer queries are the first of more"
    for interval in (interval for each in selections for interval in each.intervals):
        assert 0 <= interval.low <= 255
        assert 0 <= interval.high - interval.low <= 255


def test_w1s_selects_about_a_hundredth() -> None:
    columns = arrays_of(tuples(1 << 14, 0))
    selected = [mask.mean() for mask in masks_one_by_one(columns, w1s(200))]
    assert 0.005 < np.mean(selected) < 0.02
    assert all(60 <= i.high - i.low <= 140 for each in w1s(200) for i in each.intervals)


def test_all_who_count_agree(tmp_path: Path) -> None:
    selections = [*w1(300), Selection(())]
    files = write_files(tmp_path / "input", 2, 3_000)
    counts = counts_by_duckdb(files, selections)
    first, second = (masks_one_by_one(arrays_of(tuples(3_000, number)), selections) for number in (0, 1))
    by_numpy = [int(a.sum() + b.sum()) for a, b in zip(first, second, strict=True)]
    assert counts == by_numpy
    assert counts[-1] == 6_000


def test_a_count_that_differs_is_told() -> None:
    check_counts("run", [1, 2], [1, 2])
    with pytest.raises(
        LadleError, match="run: 1 of 2 queries count other tuples than DuckDB; query 1 counts 2 instead"
    ):
        check_counts("run", [1, 2], [1, 3])


def test_the_index_and_one_query_at_a_time_find_the_same(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM r (ts TIMESTAMP, a INT, b INT, c INT, d INT) TIMESTAMP BY ts")
        probe = Probe(db, "r", w1(50), tuples(70_000, 0))
        assert probe.shared(tmp_path) > 0
        assert probe.unshared(tmp_path) > 0
        probe._counts[7] += 1
        with pytest.raises(LadleError, match="1 of"):
            probe.unshared(tmp_path)


def test_constants_have_the_papers_distribution() -> None:
    rng = np.random.default_rng(5)
    values = np.array([constant(rng) for _ in range(20_000)])
    assert values.min() == 0
    assert values.max() == 255
    # A fifth of them is meant to be a multiple of 32, and of the others one in 32 is.
    assert np.mean(values % 32 == 0) == pytest.approx(0.2 + 0.8 / 32, abs=0.01)


def test_queries_of_the_paper_have_so_many_factors() -> None:
    for factors in (1, 2, 4, 6, 8):
        for condition in conditions(20, seed=1, factors=factors):
            assert condition.count("<") == factors
    assert {condition.count("=") for condition in equalities(100, seed=1)} == {1, 2, 3, 4}
    assert {len(selection.intervals) for selection in intervals(100, seed=1)} == {1, 2, 3, 4}
