"""Partial aggregates (PSoup section 6): a ranked tree over a stream's segments in arrival order.

A leaf is the fold of one segment's matches; a node is the fold of its children, so a window takes O(log n) nodes.
Numbers are Python's: counts and sums of integers are exact however large, and a list of sixteen is folded faster than
NumPy is called. Sums of floating point numbers are exact too (`operators/exact_sums.py`). Least and greatest values are
kept as keys (`ladle.plan.keys`), in which NaN is the greatest number.
At a window's edges (`operators/window_edges.py`) the segment's strips are leaves too, and single rows of a strip that
is cut.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.columns import AnyArray, to_numpy
from ladle.errors import EvaluationError
from ladle.operators.exact_sums import ExactSum, exact_sum, exact_sums_by
from ladle.plan.aggregate import Aggregate, Fold, Make, Output
from ladle.plan.keys import INT64_MIN, KeyKind, key_kind
from ladle.stem.column_keys import Int64Keys, encode
from ladle.stem.matches import Ids, Mask, Matches, Rows

STRIP_ROWS = 4_096
"""Tuples in a strip: the part of a segment that has folds of its own, so that a window's edge cuts little. Smaller than
a tile, which is for another purpose (decision 34).
"""
FAN_OUT = 16

Number = int | float | ExactSum
Keys = npt.NDArray[np.signedinteger]

T = TypeVar("T")

_FROM_THE_FIRST: Ids = np.zeros(1, dtype=np.intp)

EMPTY: dict[Fold, Number] = {Fold.ROWS: 0, Fold.COUNT: 0, Fold.SUM: 0, Fold.MIN: math.inf, Fold.MAX: -math.inf}
"""What nothing folds to. Infinity compares with integers, and no key is a float."""

COMBINE: dict[Fold, Callable[[Sequence[Number]], Number]] = {
    Fold.ROWS: sum,
    Fold.COUNT: sum,
    Fold.SUM: sum,
    Fold.MIN: min,  # type: ignore[dict-item]
    Fold.MAX: max,  # type: ignore[dict-item]
}


class RankedTree(Generic[T]):
    """A tree of fixed fan-out over a list that grows at its end; nodes are computed when a range first needs them."""

    __slots__ = ("_combine", "_levels")

    def __init__(self, combine: Callable[[list[T]], T]) -> None:
        self._combine = combine
        self._levels: list[list[T | None]] = [[]]

    def __len__(self) -> int:
        return len(self._levels[0])

    def __getitem__(self, at: int) -> T | None:
        return self._levels[0][at]

    def extend(self, count: int) -> None:
        """Leaves that are not known yet, at the end."""
        self._levels[0].extend([None] * count)
        size = len(self._levels[0])
        for level in range(1, self._depth(size)):
            size = -(-size // FAN_OUT)
            if level == len(self._levels):
                self._levels.append([])
            nodes = self._levels[level]
            if nodes and count:
                nodes[-1] = None
            nodes.extend([None] * (size - len(nodes)))

    def truncate(self, size: int) -> None:
        """Only the first `size` leaves stay."""
        del self._levels[self._depth(size) :]
        for nodes in self._levels:
            del nodes[size:]
            if nodes and nodes is not self._levels[0]:
                nodes[-1] = None
            size = -(-size // FAN_OUT)

    def put(self, at: int, value: T) -> None:
        """Put a leaf; the nodes above it are computed again when they are needed."""
        self._levels[0][at] = value
        for nodes in self._levels[1:]:
            at //= FAN_OUT
            nodes[at] = None

    def unknown(self, first: int, last: int) -> list[int]:
        """The leaves between that are not known."""
        return [at for at, value in enumerate(self._levels[0][first:last], first) if value is None]

    def parts(self, first: int, last: int) -> list[T] | None:
        """The nodes whose leaves are those from `first` to before `last`; None when some leaf is not known."""
        found: list[T] = []
        level = 0
        while True:
            inner_first, inner_last = -(-first // FAN_OUT), last // FAN_OUT
            if inner_last - inner_first < 2 or level + 1 == len(self._levels):
                nodes = self._nodes(level, first, last)
                return None if nodes is None else found + nodes
            for start, stop in ((first, inner_first * FAN_OUT), (inner_last * FAN_OUT, last)):
                if start < stop:
                    nodes = self._nodes(level, start, stop)
                    if nodes is None:
                        return None
                    found += nodes
            first, last, level = inner_first, inner_last, level + 1

    def _nodes(self, level: int, first: int, last: int) -> list[T] | None:
        nodes = self._levels[level]
        values = nodes[first:last]
        if None not in values:
            return values  # type: ignore[return-value]
        if level == 0:
            return None
        for at in range(first, last):
            if nodes[at] is None:
                children = self._nodes(level - 1, at * FAN_OUT, (at + 1) * FAN_OUT)
                if children is None:
                    return None
                nodes[at] = self._combine(children)
        return nodes[first:last]  # type: ignore[return-value]

    @staticmethod
    def _depth(size: int) -> int:
        depth = 1
        while size > FAN_OUT:
            size = -(-size // FAN_OUT)
            depth += 1
        return depth


class Vector:
    """A column of one segment, ready to be folded: keys, the doubles of a floating column, and which are not NULL."""

    __slots__ = ("_least", "_most", "keys", "nbytes", "numbers", "valid")

    def __init__(self, column: pa.Array | pa.ChunkedArray) -> None:
        self.keys: Keys | None = None
        self.numbers: npt.NDArray[np.float64] | None = None
        if pa.types.is_integer(column.type) and not column.null_count:
            self.keys, self.valid = to_numpy(column), None  # as they are: an integer is its key
        elif key_kind(column.type) is KeyKind.INT64:
            encoded = encode(column)
            assert isinstance(encoded, Int64Keys)
            self.keys, self.valid = encoded.keys, encoded.valid
        else:
            self.valid = to_numpy(column.is_valid()) if column.null_count else None
        if pa.types.is_floating(column.type):
            self.numbers = to_numpy(column).astype(np.float64, copy=False)
        arrays = (self.keys, self.numbers, self.valid)
        self.nbytes = sum(array.nbytes for array in arrays if array is not None)
        self._most: int | None = None
        self._least: int | None = None

    def fold(self, fold: Fold, rows: Rows) -> Number:
        """Over these rows of the segment; NULLs don't count."""
        if self.valid is not None:
            if fold is Fold.COUNT:
                return int(np.count_nonzero(self.valid[rows]))
            rows = self._not_null(rows)
        count = count_rows(rows)
        if fold is Fold.COUNT:
            return count
        if count == 0:
            return EMPTY[fold]
        assert self.keys is not None
        match fold:
            case Fold.MIN:
                return int(self.keys[rows].min())
            case Fold.MAX:
                return int(self.keys[rows].max())
            case _ if self.numbers is not None:
                return exact_sum(self.numbers[rows])
            case _:
                (total,) = exact_sums(self.keys[rows], _FROM_THE_FIRST, self.most * count)
                return total

    def fold_masked(self, fold: Fold, chosen: Chosen) -> Sequence[Number]:
        """Over the chosen rows of each strip. What nothing folds to is any number."""
        assert self.keys is not None
        match fold:
            case Fold.MIN:
                return by_strip(np.minimum, chosen.masked(self.keys, np.iinfo(self.keys.dtype).max))
            case Fold.MAX:
                least = 0 if self.least >= 0 else np.iinfo(self.keys.dtype).min
                return by_strip(np.maximum, chosen.masked(self.keys, least))
            case _ if self.numbers is not None:
                strips = np.arange(len(self.numbers)) // STRIP_ROWS
                return exact_sums_by(chosen.or_zero(self.numbers), strips, -(-len(strips) // STRIP_ROWS))
        keys = chosen.masked(self.keys, 0)
        if self.most * STRIP_ROWS <= np.iinfo(keys.dtype).max:
            return by_strip(np.add, keys, keys.dtype.type)
        if self.most * STRIP_ROWS < 1 << 63:
            return by_strip(np.add, keys, np.int64)
        return exact_sums(keys, np.arange(0, len(keys), STRIP_ROWS), self.most * STRIP_ROWS)

    def fold_runs(self, fold: Fold, rows: Ids, starts: Ids, longest: int) -> Sequence[Number]:
        """The fold of each run of rows; each begins where `starts` says, and has at least one."""
        assert self.keys is not None
        match fold:
            case Fold.MIN:
                return np.minimum.reduceat(self.keys[rows], starts).tolist()
            case Fold.MAX:
                return np.maximum.reduceat(self.keys[rows], starts).tolist()
            case _ if self.numbers is not None:
                runs = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(rows)))
                return exact_sums_by(self.numbers[rows], runs, len(starts))
            case _:
                return exact_sums(self.keys[rows], starts, self.most * longest)

    @property
    def most(self) -> int:
        """The largest magnitude of a key."""
        if self._most is None:
            assert self.keys is not None
            self._most = max(-int(self.keys.min(initial=0)), int(self.keys.max(initial=0)))
        return self._most

    @property
    def least(self) -> int:
        """The least key, or 0 if that is less."""
        if self._least is None:
            assert self.keys is not None
            self._least = int(self.keys.min(initial=0))
        return self._least

    def _not_null(self, rows: Rows) -> Ids:
        assert self.valid is not None
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        return numbers[self.valid[numbers]]


def exact_sums(values: Keys, starts: Ids, most: int) -> list[int]:
    """The sum of each run of values, however large; `most` is a bound of their magnitude."""
    if most < 1 << 63:
        return np.add.reduceat(values, starts, dtype=np.int64).tolist()
    high, low = np.add.reduceat(values >> 32, starts), np.add.reduceat(values & 0xFFFF_FFFF, starts)
    return [(above << 32) + below for above, below in zip(high.tolist(), low.tolist(), strict=True)]


def count_rows(rows: Rows) -> int:
    """How many rows a slice or an array of numbers picks."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def fold_strips(folds: Iterable[tuple[str, Fold, Vector | None]], matches: Matches) -> dict[str, Sequence[Number]]:
    """The folds, by name, of the matches in each strip of a segment; those of one segment share what they look at."""
    folding: _ByNumber | _ByMask
    folding = _ByMask(matches) if matches.numbers is None else _ByNumber(matches.numbers, matches.rows)
    return {name: folding.fold(fold, vector) for name, fold, vector in folds}


class _ByNumber:
    """The strips of a segment with few matches: runs of their numbers."""

    def __init__(self, numbers: Ids, rows: int) -> None:
        self._numbers = numbers
        self._rows = rows

    def fold(self, fold: Fold, vector: Vector | None) -> Sequence[Number]:
        numbers = self._numbers
        if vector is not None and vector.valid is not None:
            numbers = numbers[vector.valid[numbers]]
        bounds = numbers.searchsorted(np.arange(0, self._rows + STRIP_ROWS, STRIP_ROWS))
        starts, counts = bounds[:-1], bounds[1:] - bounds[:-1]
        if vector is None or fold is Fold.COUNT:
            return counts.tolist()
        found: list[Number] = [EMPTY[fold]] * len(counts)
        filled = counts.nonzero()[0]
        if len(filled):
            folded = vector.fold_runs(fold, numbers, starts[filled], int(counts.max()))
            for at, number in zip(filled.tolist(), folded, strict=True):
                found[at] = number
        return found


class _ByMask:
    """The strips of a segment with many matches: every row is looked at, and those that don't match fold to nothing."""

    def __init__(self, matches: Matches) -> None:
        self._chosen = Chosen(matches.mask)
        self._counts: list[Number] = list(matches.counts(STRIP_ROWS))

    def fold(self, fold: Fold, vector: Vector | None) -> Sequence[Number]:
        chosen, counts = self._chosen, self._counts
        if vector is not None and vector.valid is not None:
            mask = vector.valid if chosen.mask is None else chosen.mask & vector.valid
            chosen, counts = Chosen(mask), self._count(mask)
        if vector is None or fold is Fold.COUNT:
            return counts
        folded = vector.fold_masked(fold, chosen)
        if fold is Fold.SUM:
            return folded
        empty = EMPTY[fold]
        return [number if count else empty for number, count in zip(folded, counts, strict=True)]

    @staticmethod
    def _count(mask: Mask) -> list[Number]:
        return [int(np.count_nonzero(mask[first : first + STRIP_ROWS])) for first in range(0, len(mask), STRIP_ROWS)]


class Chosen:
    """Rows of a segment, as arithmetic needs them: without branches, which `where` has."""

    def __init__(self, mask: Mask | None) -> None:
        self.mask = mask
        """None: all of them."""
        self._ones: dict[np.dtype[np.signedinteger], Keys] = {}

    def masked(self, keys: Keys, other: int) -> Keys:
        """The keys of the chosen rows, and the other number elsewhere."""
        if self.mask is None:
            return keys
        ones = self._ones.get(keys.dtype)
        if ones is None:
            # Every bit where the mask holds.
            ones = self._ones[keys.dtype] = np.negative(self.mask.view(np.int8)).astype(keys.dtype)
        if not other:
            return np.bitwise_and(keys, ones)
        flip = keys.dtype.type(other)
        masked = keys ^ flip
        masked &= ones
        masked ^= flip
        return masked

    def or_zero(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The numbers, with 0 where the value is null."""
        return numbers if self.mask is None else np.where(self.mask, numbers, 0.0)


def by_strip(ufunc: np.ufunc, values: AnyArray, dtype: type[np.generic] | None = None) -> list[Number]:
    """The reduction of each strip's values."""
    whole = len(values) - len(values) % STRIP_ROWS
    found: list[Number] = ufunc.reduce(values[:whole].reshape(-1, STRIP_ROWS), axis=1, dtype=dtype).tolist()
    if whole < len(values):
        found.append(ufunc.reduce(values[whole:], dtype=dtype).item())
    return found


def fold_rows(fold: Fold, vector: Vector | None, rows: Rows) -> Number:
    """Fold the picked rows of a column into one value; without a column, count them."""
    return count_rows(rows) if vector is None else vector.fold(fold, rows)


def overflow(total: int) -> EvaluationError:
    """The error for a sum that does not fit BIGINT."""
    return EvaluationError(
        f"The sum {total} is out of range for BIGINT.", hint="sum decimals instead: sum(CAST(x AS DECIMAL(18, 0)))"
    )


def finisher(aggregate: Aggregate, output: Output, type_: pa.DataType) -> Callable[[Sequence[Number]], pa.Array]:
    """From a window's partials to a column of one value. What nothing folds to is NULL, but a count is 0."""
    at, count = output.at, output.count
    fold = aggregate.partials[at].fold
    encode_one = _encoder(type_)
    null = pa.nulls(1, type_)

    def least_or_greatest(numbers: Sequence[Number]) -> pa.Array:
        number = numbers[at]
        return null if isinstance(number, float) else encode_one(number)

    def float_of_key(numbers: Sequence[Number]) -> pa.Array:
        number = numbers[at]
        return encode_one(_float_of(number)) if isinstance(number, int) else null

    def total(numbers: Sequence[Number]) -> pa.Array:
        assert count is not None
        return encode_one(numbers[at]) if numbers[count] else null

    def integer_total(numbers: Sequence[Number]) -> pa.Array:
        assert count is not None
        number = numbers[at]
        assert isinstance(number, int)
        if not -(1 << 63) <= number < 1 << 63:
            raise overflow(number)
        return encode_one(number) if numbers[count] else null

    def average(numbers: Sequence[Number]) -> pa.Array:
        assert count is not None
        total, rows = _plain(numbers[at]), _plain(numbers[count])
        return encode_one(total / rows) if rows else null

    def decimal_average(numbers: Sequence[Number]) -> pa.Array:
        assert count is not None
        number, rows = int(_plain(numbers[at])), int(_plain(numbers[count]))
        if not rows:
            return null
        # Spark has four digits more than the column, and rounds half up
        quotient = (abs(number) * 20_000 + rows) // (2 * rows)
        return encode_one(-quotient if number < 0 else quotient)

    if output.make is Make.AVERAGE:
        return decimal_average if pa.types.is_decimal(type_) else average
    if fold in (Fold.MIN, Fold.MAX):
        return float_of_key if pa.types.is_floating(type_) else least_or_greatest
    if fold is Fold.SUM:
        # ten digits more than the column's hold the sum of ten thousand million decimals
        return integer_total if pa.types.is_integer(type_) else total
    return lambda numbers: encode_one(numbers[at])


def _plain(number: Number) -> int | float:
    return float(number) if isinstance(number, ExactSum) else number


def _float_of(key: int) -> float:
    """The double of a key."""
    value: float = struct.unpack("<d", struct.pack("<q", key if key >= 0 else INT64_MIN - key))[0]
    return value


def _encoder(type_: pa.DataType) -> Callable[[Number], pa.Array]:
    """Makes an array of one value of its bytes: Arrow's own conversion takes longer, and imports pandas."""
    if pa.types.is_floating(type_):
        pack = struct.Struct("<f" if type_.bit_width == 32 else "<d").pack
        return lambda number: pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(pack(number))])
    width, signed = max(type_.bit_width // 8, 1), type_.bit_width > 1

    def encode_one(number: Number) -> pa.Array:
        data = int(_plain(number)).to_bytes(width, "little", signed=signed)
        return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(data)])

    return encode_one
