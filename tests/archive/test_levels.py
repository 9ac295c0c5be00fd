"""Levels: against the hash written down in Python's whole numbers, and against what is to be expected of chance."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sampling import hashed, sampled

from ladle.archive.levels import HASHES, HashLevel, hashes

IDS = st.integers(0, (1 << 62) - 1)
SEEDS = st.integers(0, (1 << 63) - 1)
SHARES = st.fractions(0, 1)
MANY = np.arange(100_000)


@given(stream=st.integers(1, 1 << 40), seed=SEEDS, share=SHARES, ids=st.lists(IDS, max_size=40))
def test_the_hash_is_the_one_that_is_written_down(stream: int, seed: int, share: Fraction, ids: list[int]) -> None:
    array = np.array(ids, dtype=np.int64)
    assert hashes(stream, seed, array).tolist() == [hashed(stream, seed, id_) for id_ in ids]
    if share.numerator * HASHES % share.denominator == 0:  # elsewhere the bound is below by less than one hash
        found = HashLevel.of(stream, share, seed).has(array).tolist()
        assert found == [sampled(stream, seed, share, id_) for id_ in ids]


def test_hashes_do_not_depend_on_what_is_hashed_together() -> None:
    whole = hashes(3, 0, MANY)
    for first, last in ((0, 1), (16_383, 16_385), (777, 60_000), (99_999, 100_000), (5, 5)):
        assert (hashes(3, 0, MANY[first:last]) == whole[first:last]).all()
    assert (hashes(3, 0, MANY[::-3]) == whole[::-3]).all()


@given(stream=st.integers(1, 1000), seed=SEEDS, shares=st.tuples(SHARES, SHARES))
def test_a_level_is_within_every_larger_one(stream: int, seed: int, shares: tuple[Fraction, Fraction]) -> None:
    small, large = (HashLevel.of(stream, share, seed).has(MANY[:2_000]) for share in sorted(shares))
    assert not (small & ~large).any()


@pytest.mark.parametrize("percent", [1, 10, 50, 90])
@pytest.mark.parametrize(("stream", "seed"), [(1, 0), (2, 0), (1, 1), (1, 7), (40, (1 << 63) - 1)])
def test_the_share_is_within_five_sigma(percent: int, stream: int, seed: int) -> None:
    share = Fraction(percent, 100)
    found = int(HashLevel.of(stream, share, seed).has(MANY).sum())
    expected = share * len(MANY)
    assert abs(found - expected) < 5 * sqrt(expected * (1 - share))


@pytest.mark.parametrize(("one", "other"), [((1, 0), (1, 1)), ((1, 0), (2, 0)), ((1, 1), (1, 2)), ((3, 5), (5, 3))])
def test_seeds_and_streams_have_nothing_to_do_with_each_other(one: tuple[int, int], other: tuple[int, int]) -> None:
    both = [HashLevel.of(stream, Fraction(1, 5), seed).has(MANY) for stream, seed in (one, other)]
    found, expected = int((both[0] & both[1]).sum()), len(MANY) / 25
    assert abs(found - expected) < 5 * sqrt(expected * (1 - 1 / 25))


def test_neighbours_have_nothing_to_do_with_each_other() -> None:
    found = HashLevel.of(1, Fraction(1, 2), 0).has(MANY)
    same = int((found[1:] == found[:-1]).sum())
    assert abs(same - len(same_pairs := MANY[1:]) / 2) < 5 * sqrt(len(same_pairs) / 4)


def test_nothing_and_everything() -> None:
    assert not HashLevel.of(1, Fraction(0), 0).has(MANY).any()
    assert HashLevel.of(1, Fraction(1), 0).has(MANY).all()
