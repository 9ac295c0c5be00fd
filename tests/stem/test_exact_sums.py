"""Sums of floating point numbers against exact arithmetic, however they are ordered and cut."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.operators.exact_sums import Sums, added, exact_sum, exact_sums_by, rounded, sums_of

LARGE, TINY = 1.7976931348623157e308, 5e-324

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, -0.0, TINY, -TINY, LARGE, -LARGE, 2.2250738585072014e-308, 0.1, -0.1, 1e16, 1.0]),
)


def nearest(numbers: list[float]) -> float:
    total = sum(map(Fraction, numbers), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def alone(numbers: list[float]) -> float:
    return float(exact_sum(np.array(numbers, dtype=np.float64)))


def by_code(numbers: list[float], codes: list[int], count: int) -> Sums:
    return sums_of(np.array(numbers, dtype=np.float64), np.array(codes, dtype=np.int64), count)


@given(st.lists(NUMBERS, max_size=12))
def test_a_sum_is_the_nearest_double(numbers: list[float]) -> None:
    assert alone(numbers) == nearest(numbers)


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 3)), max_size=24), st.data())
def test_neither_order_nor_cuts_matter(rows: list[tuple[float, int]], data: st.DataObject) -> None:
    """Groups are the same bit for bit, and within a last bit of the exact sum."""
    whole = rounded(by_code([x for x, _ in rows], [code for _, code in rows], 4))
    mixed = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    pieces = [by_code([x for x, _ in part], [code for _, code in part], 4) for part in (mixed[:cut], mixed[cut:])]
    swapped = Sums(pieces[1].limbs[:, ::-1].copy(), pieces[1].first)
    parts = added([pieces[0], swapped], [slice(0, 4), np.array([3, 2, 1, 0])], 4)
    assert rounded(parts).tobytes() == whole.tobytes()
    singles = exact_sums_by(np.array([x for x, _ in rows]), np.array([code for _, code in rows], dtype=np.int64), 4)
    for code, (found, single) in enumerate(zip(whole.tolist(), singles, strict=True)):
        wanted = nearest([x for x, own in rows if own == code])
        assert float(single) == wanted
        assert found in (wanted, math.nextafter(wanted, math.inf), math.nextafter(wanted, -math.inf))
        assert found != 0 or math.copysign(1, found) == 1, "zero has one sign"


@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0, -math.inf], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([LARGE, LARGE, -LARGE], LARGE),
        ([LARGE, LARGE], math.inf),
        ([-LARGE, -LARGE], -math.inf),
        ([-0.0], 0.0),
        ([], 0.0),
    ],
)
def test_what_is_odd(numbers: list[float], wanted: float) -> None:
    for found in (alone(numbers), rounded(by_code(numbers, [0] * len(numbers), 1)).item()):
        assert found == wanted or (math.isnan(found) and math.isnan(wanted))
        assert wanted != 0 or math.copysign(1, found) == 1


def test_many_numbers() -> None:
    """More than are added up at once, in many parts."""
    rng = random.Random(3)
    numbers = [rng.uniform(-1e6, 1e6) for _ in range(1_000)] * 700
    total = sum(map(Fraction, numbers[:1_000])) * 700
    assert alone(numbers) == float(total)
    parts = [by_code(numbers[first : first + 1_000], [0] * 1_000, 1) for first in range(0, len(numbers), 1_000)]
    assert rounded(added(parts, [slice(0, 1)] * len(parts), 1)).item() == pytest.approx(float(total), rel=1e-15)
