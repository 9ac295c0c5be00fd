"""Sums of floating point numbers that do not depend on the order of the numbers, or on where they are cut into parts.

An answer that is computed again, over segments that were merged since or by a process that was started anew, must be
the same bit for bit: what a subscriber is told to take away is then what he was told before. So numbers are added up
as what they are, whole multiples of 2^-1074, in *limbs* of 32 bits: limb n counts multiples of 2^(32 n - 1074). Numbers
of like size need three or four limbs. What is infinite or NaN is added up apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

_LIMB = 32
_HALF = np.int64((1 << _LIMB) - 1)
_LEAST = 1074
"""The least double is 2^-1074."""
_MANTISSA = 52
_ROWS = 1 << 19
"""So many limbs of 32 bits are added up as doubles without loss."""
_LARGE = math.ldexp(1.0, 900)
_LOWER = 20
"""Numbers from `_LARGE` on are added up as if they were so many limbs lower: nothing overflows then."""


class Sums(NamedTuple):
    """Sums of groups: a row for each limb, from one on, and a column for each group."""

    limbs: Int64s
    first: int
    odd: Doubles | None = None
    """The sums of what is infinite or NaN; 0 where there is none, and None where there is nowhere."""


class ExactSum:
    """One sum. It adds up with others and with 0, and is rounded when it is made a float."""

    __slots__ = ("odd", "total")

    def __init__(self, total: int, odd: float = 0.0) -> None:
        self.total = total
        """Multiples of the least double."""
        self.odd = odd

    def __add__(self, other: ExactSum | float) -> ExactSum:
        if isinstance(other, ExactSum):
            return ExactSum(self.total + other.total, self.odd + other.odd)
        return self if other == 0 else NotImplemented

    __radd__ = __add__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ExactSum):
            return self.total == other.total and (self.odd == other.odd)
        return isinstance(other, int | float) and float(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __float__(self) -> float:
        if self.odd:  # NaN is true
            return self.odd
        try:
            return self.total / (1 << _LEAST)
        except OverflowError:
            return math.inf if self.total > 0 else -math.inf


def exact_sum(numbers: Doubles) -> ExactSum:
    """The sum of all numbers."""
    (found,) = exact_sums_by(numbers, np.zeros(len(numbers), dtype=np.int64), 1)
    return found


def exact_sums_by(numbers: Doubles, codes: Int64s, count: int) -> list[ExactSum]:
    """The sums of the numbers of each code below `count`."""
    limbs, first, odd = sums_of(numbers, codes, count)
    totals = [0] * count
    for number in reversed(range(len(limbs))):
        totals = [(total << _LIMB) + limb for total, limb in zip(totals, limbs[number].tolist(), strict=True)]
    odds = [0.0] * count if odd is None else odd.tolist()
    return [ExactSum(total << (_LIMB * first), own) for total, own in zip(totals, odds, strict=True)]


def sums_of(numbers: Doubles, codes: Int64s, count: int) -> Sums:
    """The sums of the numbers of each code below `count`."""
    if len(numbers) > _ROWS:
        halves = slice(0, len(numbers) // 2), slice(len(numbers) // 2, None)
        parts = [sums_of(numbers[half], codes[half], count) for half in halves]
        return added(parts, [slice(0, count)] * 2, count)
    if count > max(4 * len(numbers), _ROWS):
        own, codes = np.unique(codes, return_inverse=True)
        return added([sums_of(numbers, codes, len(own))], [own], count)
    most = float(max(numbers.max(initial=0.0), -numbers.min(initial=0.0)))
    if most < _LARGE:
        return _sums(numbers, codes, count, most)
    odd: Doubles | None = None
    finite = np.isfinite(numbers)
    if not finite.all():
        odd = np.zeros(count)
        with np.errstate(all="ignore"):  # infinities of both signs make NaN, as they should
            np.add.at(odd, codes[~finite], numbers[~finite])
        numbers, codes = numbers[finite], codes[finite]
    # What is large is added up as smaller numbers, some limbs lower.
    large = np.abs(numbers) >= _LARGE
    high = sums_of(np.ldexp(numbers[large], -_LIMB * _LOWER), codes[large], count)
    low = sums_of(numbers[~large], codes[~large], count)
    whole = added([high._replace(first=high.first + _LOWER), low], [slice(0, count)] * 2, count)
    return whole._replace(odd=odd)


def _sums(numbers: Doubles, codes: Int64s, count: int, most: float) -> Sums:
    """The same of numbers that are not large, limb by limb from above: what is added to a number and taken away again
    rounds it to whole multiples of the limb's. All that is done is exact.
    """
    number = max(-(-(math.frexp(most)[1] - _LIMB + _LEAST) // _LIMB), 0) if most else 0
    top, rest, wholes, found = number, numbers.copy(), np.empty_like(numbers), list[Int64s]()
    while True:
        unit = _LIMB * number - _LEAST
        rounding = math.ldexp(1.5, unit + _MANTISSA)
        np.add(rest, rounding, out=wholes)
        wholes -= rounding
        own = wholes.sum(keepdims=True) if count == 1 else np.bincount(codes, wholes, count)
        found.append(np.ldexp(own, -unit).astype(np.int64))
        rest -= wholes
        if not number or not rest.any():
            break
        number -= 1
    return Sums(_carried(np.stack(found[::-1])), top - len(found) + 1)


def added(parts: Sequence[Sums], places: Sequence[slice | Int64s], count: int) -> Sums:
    """The sums of parts, whose groups are at these places among so many; in each part a group comes once."""
    first = min(part.first for part in parts)
    last = max(part.first + len(part.limbs) for part in parts)
    limbs = np.zeros((last - first, count), dtype=np.int64)
    odd: Doubles | None = None
    for part, at in zip(parts, places, strict=True):
        own = slice(part.first - first, part.first - first + len(part.limbs))
        limbs[own, at] += part.limbs
        if part.odd is not None:
            odd = np.zeros(count) if odd is None else odd
            with np.errstate(all="ignore"):
                odd[at] += part.odd
    return Sums(_carried(limbs), first, odd)


def rounded(sums: Sums) -> Doubles:
    """The sums as doubles: what they are depends on the sum alone, and lies within its last bit."""
    limbs = _carried(sums.limbs.copy())
    negative = limbs[-1] < 0
    if negative.any():
        limbs = _carried(np.where(negative, -limbs, limbs))
    found, at = np.zeros(limbs.shape[1]), np.zeros(limbs.shape[1], dtype=np.int64)
    with np.errstate(all="ignore"):
        # Each by its own limbs: those of others may be far away.
        for number, limb in enumerate(limbs):
            there = limb != 0
            found = np.where(there, limb + np.ldexp(found, _LIMB * (at - number)), found)
            at[there] = number
        found = np.ldexp(found, _LIMB * (sums.first + at) - _LEAST)
    found = np.where(negative, -found, found)
    return found if sums.odd is None else np.where(sums.odd == 0, found, sums.odd)


def _carried(limbs: Int64s) -> Int64s:
    """Every limb but the last from 0 to 2^32; the last has the sign."""
    for low, high in pairwise(limbs):
        high += low >> _LIMB
        low &= _HALF
    return limbs
