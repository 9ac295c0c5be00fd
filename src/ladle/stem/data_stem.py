"""Data SteMs (PSoup section 4.1, CACQ section 3.2): tuples of a stream, sorted by what they are joined on.

A SteM holds the keys of some tuples and, for each key that was asked for, the order in which they are sorted by it,
made on first need. Two of them are probed with each other: an equality, a band or an inequality is a range of that
order for each probing tuple, and so is the reach in time; the narrowest is expanded, and the other comparisons are
checked on what comes of it. Tuples are known here by their places, from 0 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ladle.columns import to_numpy
from ladle.errors import EvaluationError
from ladle.evaluate import evaluate_keys
from ladle.plan import JoinFactor, JoinKey, PairJoin, Reach, Relop
from ladle.plan.keys import KeyKind, key_kind
from ladle.stem.column_keys import Int64Keys, encode

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_CANDIDATES_AT_ONCE = 1 << 20
"""Candidates are looked at in portions, so that a key that everybody has does not fill the memory."""
_LONG = 64
"""Ranges that are longer in the mean are copied one by one, shorter ones all at once by their numbers."""
_TIME = ""
"""The key that stands for the timestamp, and for no text."""


class TooManyPairs(EvaluationError):
    """A join has more pairs than are kept."""


class Pairs(NamedTuple):
    """Places on both sides, in order of the left."""

    left: Int64s
    right: Int64s


NO_PAIRS = Pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


class DataStem:
    """Some tuples of a stream: their times, and the keys of joins."""

    def __init__(self, times: Int64s, keys: Mapping[str, pa.Array]) -> None:
        self.times = times
        self._keys = keys
        self._codes: dict[str, Int64s] = {_TIME: times}
        self._orders: dict[str, Int64s] = {}
        self.ascending = bool((times[1:] >= times[:-1]).all())

    @staticmethod
    def of(table: pa.Table, time_column: str, keys: Sequence[JoinKey], *, seconds_max: float | None = None) -> DataStem:
        """Evaluates the keys; raises EvaluationError if one of them does."""
        times = to_numpy(table.column(time_column).cast(pa.int64()))
        return DataStem(times, evaluate_keys(table, keys, seconds_max=seconds_max))

    def __len__(self) -> int:
        return len(self.times)

    def column(self, key: JoinKey) -> pa.Array:
        """The values of a key, a value for each tuple."""
        return self._keys[key.sql]

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last time."""
        return int(self.times.min()), int(self.times.max())

    def valid(self, keys: Sequence[JoinKey]) -> Mask | None:
        """Which tuples have no NULL among some keys; None: all. A comparison with NULL is not true."""
        mask: Mask | None = None
        for key in keys:
            column = self.column(key)
            if column.null_count:
                own = to_numpy(column.is_valid())
                mask = own if mask is None else mask & own
        return mask

    def codes(self, key: str) -> Int64s:
        """Integers that compare as the key's values do, whatever they are compared with."""
        found = self._codes.get(key)
        if found is None:
            encoded = encode(self._keys[key])
            assert isinstance(encoded, Int64Keys)
            found = self._codes[key] = encoded.keys
        return found

    def order(self, key: str) -> Int64s:
        """The places sorted by a key, those with equal keys by time."""
        found = self._orders.get(key)
        if found is None:
            found = self._orders[key] = self._sorted(self.codes(key))
        return found

    def order_of(self, key: str, codes: Int64s) -> Int64s:
        """The places sorted by codes of a key, which may be the key's own, or made for one comparison."""
        return self.order(key) if self._codes.get(key) is codes else self._sorted(codes)

    def _sorted(self, codes: Int64s) -> Int64s:
        if not self.ascending:
            return np.lexsort((self.times, codes))
        return np.arange(len(self)) if codes is self.times else np.argsort(codes, kind="stable")


def join(left: DataStem, right: DataStem, pair: PairJoin, reach: Reach, *, pairs_max: int) -> Pairs:
    """The pairs that satisfy all comparisons and are within reach. Raises TooManyPairs beyond `pairs_max`."""
    if not len(left) or not len(right) or not reach.allows(left.span, right.span):
        return NO_PAIRS
    probing = _Probing(left, right, pair, reach)
    equal = [factor for factor in probing.factors if factor.relop is Relop.EQ]
    ranges = probing.by_equality(equal) if equal else probing.narrowest()
    found: list[Pairs] = []
    # Where nothing is left to check, all candidates are pairs.
    settled = probing.settles(ranges.checked)
    count = ranges.candidates if settled else 0
    for part in ranges.expanded(pairs_max if settled else _CANDIDATES_AT_ONCE) if count <= pairs_max else ():
        found.append(probing.check(part, ranges.checked))
        count += 0 if settled else len(found[-1].left)
        if count > pairs_max:
            break
    if count > pairs_max:
        raise TooManyPairs(
            f"Joining {pair.left} and {pair.right} gives more than {pairs_max:,} pairs at once.",
            hint="narrow the windows or add a condition, or raise join_pairs_max",
        )
    if not count:
        return NO_PAIRS
    pairs = found[0] if len(found) == 1 else Pairs(*map(np.concatenate, zip(*found, strict=True)))
    if ranges.of_left:
        return pairs
    # What right tuples found is in their order.
    order = np.argsort(pairs.left, kind="stable")
    return Pairs(pairs.left[order], pairs.right[order])


@dataclass(frozen=True)
class _CodedComparison:
    """A comparison with the codes of both sides."""

    factor: JoinFactor
    left: Int64s
    right: Int64s

    @property
    def relop(self) -> Relop:
        return self.factor.relop

    def holds(self, pairs: Pairs) -> Mask:
        return _COMPARE[self.relop](self.left[pairs.left], self.right[pairs.right])


_COMPARE = {
    Relop.EQ: np.equal,
    Relop.LT: np.less,
    Relop.LE: np.less_equal,
    Relop.GT: np.greater,
    Relop.GE: np.greater_equal,
}


@dataclass(frozen=True)
class _ProbeRanges:
    """For each probing tuple a range of the other side's order; and which comparisons that settles already."""

    order: Int64s
    first: Int64s
    last: Int64s
    probing: Int64s | None
    """The places of the probing tuples; None: all of them, in order."""
    of_left: bool
    """Whether it is left tuples that probe."""
    checked: frozenset[int]
    """The numbers of factors; -1 is the reach."""

    @property
    def candidates(self) -> int:
        return int(np.maximum(self.last - self.first, 0).sum())

    def expanded(self, at_once: int) -> Iterator[Pairs]:
        """The candidates, about so many at once."""
        counts = np.maximum(self.last - self.first, 0)
        ends = np.cumsum(counts)
        start = 0
        while start < len(counts):
            before = int(ends[start - 1]) if start else 0
            # At least one probing tuple at a time.
            stop = max(int(np.searchsorted(ends, before + at_once, side="right")), start + 1)
            own = counts[start:stop]
            total = int(ends[stop - 1]) - before
            if total:
                numbers = np.arange(start, stop) if self.probing is None else self.probing[start:stop]
                probing = np.repeat(numbers, own)
                if total > _LONG * (stop - start):
                    spans = zip(self.first[start:stop].tolist(), self.last[start:stop].tolist(), strict=True)
                    others = np.concatenate([self.order[first:last] for first, last in spans if first < last])
                else:
                    offsets = self.first[start:stop] - (ends[start:stop] - own - before)
                    others = self.order[np.arange(total) + np.repeat(offsets, own)]
                yield Pairs(probing, others) if self.of_left else Pairs(others, probing)
            start = stop


class _Probing:
    """One join of two SteMs."""

    def __init__(self, left: DataStem, right: DataStem, pair: PairJoin, reach: Reach) -> None:
        self._left, self._right, self._reach = left, right, reach
        self.factors = [_CodedComparison(factor, *_codes(left, right, factor)) for factor in pair.factors]
        self._left_valid = left.valid(pair.keys(left=True))
        self._right_valid = right.valid(pair.keys(left=False))
        (left_first, left_last), (right_first, right_last) = left.span, right.span
        self._near = reach.low < right_first - left_last and right_last - left_first < reach.high
        """Whether all tuples are within reach of all."""

    def settles(self, checked: frozenset[int]) -> bool:
        """Whether nothing is left to check."""
        unchecked = not checked.issuperset(range(len(self.factors))) or not (self._near or -1 in checked)
        return not unchecked and self._left_valid is None and self._right_valid is None

    def check(self, pairs: Pairs, checked: frozenset[int]) -> Pairs:
        """Those for which everything else holds."""
        for number, factor in enumerate(self.factors):
            if number not in checked and len(pairs.left):
                pairs = _those(pairs, factor.holds(pairs))
        if -1 not in checked and len(pairs.left) and not self._near:
            apart = self._right.times[pairs.right] - self._left.times[pairs.left]
            pairs = _those(pairs, (apart > self._reach.low) & (apart < self._reach.high))
        for valid, places in ((self._left_valid, 0), (self._right_valid, 1)):
            if valid is not None and len(pairs.left):
                pairs = _those(pairs, valid[pairs[places]])
        return pairs

    def by_equality(self, equal: Sequence[_CodedComparison]) -> _ProbeRanges:
        """Left tuples probe right ones that are sorted by the keys that must be equal, and then by time."""
        left, right = equal[0].left, equal[0].right
        for other in equal[1:]:
            left, right = _combined((left, right), (other.left, other.right))
        order = self._right.order_of(equal[0].factor.right.sql, right)
        codes = right[order]
        first = np.searchsorted(codes, left, side="left")
        last = np.searchsorted(codes, left, side="right")
        checked = frozenset(self.factors.index(factor) for factor in equal)
        ranges = _ProbeRanges(order, first, last, None, True, checked)
        if ranges.candidates <= 4 * (len(left) + len(right)) or not self._reach.is_bounded:
            return ranges
        # Tuples with equal keys are in order of time: of those only the ones within reach.
        times = np.sort(self._right.times)
        ranks = np.searchsorted(times, self._right.times[order])
        groups = np.cumsum(np.concatenate(([0], codes[1:] != codes[:-1])))
        width = len(times) + 1
        composite = groups * width + ranks
        hit = np.flatnonzero(last > first)
        own = groups[first[hit]] * width
        after = np.searchsorted(times, self._left.times[hit] + self._reach.low, side="right")
        before = np.searchsorted(times, self._left.times[hit] + self._reach.high, side="left")
        return _ProbeRanges(
            order,
            np.searchsorted(composite, own + after),
            np.searchsorted(composite, own + before),
            hit,
            True,
            checked | {-1},
        )

    def narrowest(self) -> _ProbeRanges:
        """Without equalities: whichever key of either side leaves the fewest candidates, or time."""
        found = [self._by_key(key, of_left=True) for key in dict.fromkeys(f.factor.right.sql for f in self.factors)]
        found += [self._by_key(key, of_left=False) for key in dict.fromkeys(f.factor.left.sql for f in self.factors)]
        if self._reach.is_bounded:
            found.append(self._by_time())
        return min(found, key=lambda ranges: ranges.candidates)

    def _by_key(self, key: str, *, of_left: bool) -> _ProbeRanges:
        """The tuples of one side sorted by one of its keys, and probed with all that is compared with that key."""
        sorted_side = self._right if of_left else self._left
        numbers = [
            number
            for number, each in enumerate(self.factors)
            if (each.factor.right.sql if of_left else each.factor.left.sql) == key
        ]
        first_factor = self.factors[numbers[0]]
        own = first_factor.right if of_left else first_factor.left
        order = sorted_side.order_of(key, own)
        checked = []
        probes = len(self._left) if of_left else len(self._right)
        first = np.zeros(probes, dtype=np.int64)
        last = np.full(probes, len(order), dtype=np.int64)
        for number in numbers:
            factor = self.factors[number]
            codes, probe = (factor.right, factor.left) if of_left else (factor.left, factor.right)
            if codes is not own and not np.array_equal(codes, own):
                continue  # texts are coded anew for each comparison
            checked.append(number)
            # `probe relop sorted`, seen from the probing side.
            relop = factor.relop if of_left else factor.relop.flipped
            in_order = codes[order]
            match relop:
                case Relop.LT:
                    first = np.maximum(first, np.searchsorted(in_order, probe, side="right"))
                case Relop.LE:
                    first = np.maximum(first, np.searchsorted(in_order, probe, side="left"))
                case Relop.GT:
                    last = np.minimum(last, np.searchsorted(in_order, probe, side="left"))
                case _:
                    last = np.minimum(last, np.searchsorted(in_order, probe, side="right"))
        return _ProbeRanges(order, first, last, None, of_left, frozenset(checked))

    def _by_time(self) -> _ProbeRanges:
        order = self._right.order(_TIME)
        times = self._right.times[order]
        first = np.searchsorted(times, self._left.times + self._reach.low, side="right")
        last = np.searchsorted(times, self._left.times + self._reach.high, side="left")
        return _ProbeRanges(order, first, last, None, True, frozenset({-1}))


def _those(pairs: Pairs, mask: Mask) -> Pairs:
    return pairs if mask.all() else Pairs(pairs.left[mask], pairs.right[mask])


def _codes(left: DataStem, right: DataStem, factor: JoinFactor) -> tuple[Int64s, Int64s]:
    """Both sides of a comparison as integers."""
    column = left.column(factor.left)
    if key_kind(column.type) is KeyKind.INT64:
        return left.codes(factor.left.sql), right.codes(factor.right.sql)
    # Texts and long decimals are ranked among themselves.
    both = pa.concat_arrays([_whole(column), _whole(right.column(factor.right))])
    if factor.relop is Relop.EQ:
        ranks = both.dictionary_encode().indices.fill_null(-1)
    else:
        ranks = pc.rank(both, tiebreaker="dense")
    codes = to_numpy(ranks).astype(np.int64)
    return codes[: len(left)], codes[len(left) :]


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _combined(one: tuple[Int64s, Int64s], other: tuple[Int64s, Int64s]) -> tuple[Int64s, Int64s]:
    """Codes that are equal where both are."""
    split = len(one[0])
    _, first = np.unique(np.concatenate(one), return_inverse=True)
    values, second = np.unique(np.concatenate(other), return_inverse=True)
    codes = first * len(values) + second
    return codes[:split], codes[split:]
