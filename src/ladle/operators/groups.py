"""Partial aggregates by group: what one segment, or a node of the tree, knows of each group that occurs in it.

Groups have numbers, which a dictionary that all segments share gives to their keys when these are first seen; so a
key is compared once, when its segment is folded, and combining is adding arrays. A node in which most groups occur has
an array per partial over all numbers; one with few groups has their numbers beside. Groups by time windows are kept by
*panes*, the pieces that windows are made of, and put together when they are asked for. Sums of integers are kept in two
halves, which can't overflow before two thousand million rows are added up.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ladle.columns import AnyArray, from_numpy, to_numpy
from ladle.operators.aggregates import Vector, count_rows, overflow
from ladle.operators.exact_sums import Sums, added, rounded, sums_of
from ladle.operators.panes import Combine, Starts
from ladle.plan.aggregate import Aggregate, Fold, Make, Output, Panes, Partial, Windows
from ladle.plan.keys import INT64_MAX, INT64_MIN
from ladle.stem.matches import Mask, Rows

GROUPS_MAX = 65_536
"""With more groups than this there is little to share between rows, and the tree is larger than what it is for."""
PANE_GROUPS_MAX = 4 * GROUPS_MAX
"""The same for groups by panes, of which a window has many."""
KEYS_MAX = 4 * GROUPS_MAX
"""Keys that one dictionary numbers; beyond that most of them are of groups that are gone."""
_DENSE_MAX = 1 << 22
"""Numbers of groups by panes that an array is made for, occur they or not."""
_SPARSE = 4
"""A node in which one group of so many does not occur has the numbers of those that do."""

_HALF = np.int64(0xFFFF_FFFF)
_INT64_MIN = np.int64(INT64_MIN)
_NO_PANE = _INT64_MIN
"""Of a row without a time."""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
_At = slice | Int64s
"""Where the groups of a part are among all."""


class TooManyGroups(Exception):
    """What DuckDB should fold instead."""


class TooManyKeys(Exception):
    """A dictionary is full: those who use it begin with another."""


class Dictionary:
    """Numbers for the keys of groups, in the order in which they were first seen. NULL is a key."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._lock = threading.Lock()
        self.keys: pa.Table | None = None
        """One row for each number; a longer table takes its place when keys are added."""

    def __len__(self) -> int:
        return 1 if not self._names else 0 if self.keys is None else int(self.keys.num_rows)

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return 0 if self.keys is None else int(self.keys.nbytes)

    def numbers(self, keys: pa.Table) -> Int64s:
        """The numbers of distinct keys; new ones are added."""
        with self._lock:
            known = 0 if self.keys is None else int(self.keys.num_rows)
            every = keys if self.keys is None else pa.concat_tables([self.keys, keys])
            codes, first = _codes(every)
            new = first >= known
            if known + np.count_nonzero(new) > KEYS_MAX:
                raise TooManyKeys
            numbers = np.where(new, known + np.cumsum(new) - 1, first)
            if new.any():
                self.keys = every.take(from_numpy(np.concatenate([np.arange(known), first[new]]))).combine_chunks()
            return numbers[codes[known:]]


class RowKeys(NamedTuple):
    """The numbers of the keys of a segment's rows, and their panes."""

    dictionary: Dictionary
    numbers: Int32s
    panes: Int64s | None

    @property
    def nbytes(self) -> int:
        """How many bytes they take."""
        return self.numbers.nbytes + (0 if self.panes is None else self.panes.nbytes)


class Folded(NamedTuple):
    """A partial by group. `high` is the upper half of a sum of integers; `valid` says where there was a value. Of a sum
    of floating point numbers `values` are limbs, from `limb` on, and `high` is what is infinite or NaN.
    """

    values: AnyArray
    high: AnyArray | None = None
    valid: Mask | None = None
    limb: int | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return sum(array.nbytes for array in (self.values, self.high, self.valid) if array is not None)

    @property
    def sums(self) -> Sums:
        """Sums of floating point numbers."""
        assert self.limb is not None
        return Sums(self.values, self.limb, self.high)


class Groups:
    """Partials by group: of those with these numbers, or of all up to `size` that are present (None: all are)."""

    __slots__ = ("_count", "nbytes", "numbers", "panes", "partials", "present", "size")

    def __init__(
        self,
        size: int,
        partials: list[Folded],
        *,
        numbers: Int64s | None = None,
        present: Mask | None = None,
        panes: Int64s | None = None,
    ) -> None:
        self.size = size
        self.numbers = numbers
        self.present = present
        self.panes = panes
        self.partials = partials
        arrays = [array for array in (numbers, present, panes) if array is not None]
        self.nbytes = sum(each.nbytes for each in (*partials, *arrays))
        if numbers is not None:
            self._count = len(numbers)
        else:
            self._count = size if present is None else int(np.count_nonzero(present))

    def __len__(self) -> int:
        return self._count


class Grouping:
    """How one list of partials is folded by one list of columns, and by the panes of windows."""

    def __init__(self, aggregate: Aggregate, dictionary: Dictionary | None = None) -> None:
        self._aggregate = aggregate
        self._folds = [partial.fold for partial in aggregate.partials]
        self.dictionary = Dictionary(aggregate.groups) if dictionary is None else dictionary

    def keys(self, segment: pa.Table) -> RowKeys:
        """The keys of the rows of a segment, whose table has the group columns, and the time if there are windows."""
        keys, windows = segment.select(self._aggregate.groups), self._aggregate.windows
        numbers = np.zeros(segment.num_rows, dtype=np.int32)
        if self._aggregate.groups:
            codes, first = _codes(keys)
            if len(first) > GROUPS_MAX:
                raise TooManyGroups
            numbers = self.dictionary.numbers(keys.take(from_numpy(first)))[codes].astype(np.int32)
        panes = None if windows is None else _panes(segment.column(windows.column), windows.panes)
        return RowKeys(self.dictionary, numbers, panes)

    def of_rows(self, segment: pa.Table, vectors: Mapping[str, Vector], rows: Rows) -> Groups:
        """The groups of some rows of a segment."""
        return self.folded(self.keys(segment), vectors, rows)

    def folded(self, keys: RowKeys, vectors: Mapping[str, Vector], rows: Rows) -> Groups:
        """The groups of some rows of a segment whose keys have their numbers."""
        assert keys.dictionary is self.dictionary
        numbers = keys.numbers[rows].astype(np.int64)
        panes = None if keys.panes is None else keys.panes[rows]
        partials = [
            _of_rows(partial, None if partial.column is None else vectors[partial.column], rows)
            for partial in self._aggregate.partials
        ]
        if panes is not None and (panes == _NO_PANE).any():
            timed = panes != _NO_PANE
            numbers, panes = numbers[timed], panes[timed]
            partials = [_some(partial, timed) for partial in partials]
        slots = _Slots(len(self.dictionary), [panes])
        at = slots.places(numbers, panes)
        assert not isinstance(at, slice)
        present = np.zeros(slots.size, dtype=np.bool_)
        present[at] = True
        folds = zip(self._folds, partials, strict=True)
        return self._packed(slots, present, [_fold(fold, part, at, slots.size) for fold, part in folds])

    def combined(self, parts: Sequence[Groups]) -> Groups:
        """The groups of all parts, added up."""
        return parts[0] if len(parts) == 1 else self._packed(*self._spread(parts))

    def _spread(self, parts: Sequence[Groups]) -> tuple[_Slots, Mask, list[Folded]]:
        """Places for all groups that may be in the parts, those that are, and what is combined at each."""
        slots = _Slots(len(self.dictionary), [part.panes for part in parts])
        places = [slots.places(part.numbers, part.panes, part.size) for part in parts]
        present = np.zeros(slots.size, dtype=np.bool_)
        for part, at in zip(parts, places, strict=True):
            present[at] |= True if part.present is None else part.present
        return slots, present, [_added(fold, parts, at, places, present) for at, fold in enumerate(self._folds)]

    def _packed(self, slots: _Slots, present: Mask, partials: list[Folded]) -> Groups:
        """Arrays over all numbers, or over those that occur."""
        count = int(np.count_nonzero(present))
        if count > (GROUPS_MAX if slots.by_number else PANE_GROUPS_MAX):
            raise TooManyGroups
        if slots.by_number and count * _SPARSE >= slots.size * (_SPARSE - 1):
            return Groups(slots.size, partials, present=None if count == slots.size else present)
        numbers, panes = slots.groups(np.flatnonzero(present))
        return Groups(slots.size, [_some(each, present) for each in partials], numbers=numbers, panes=panes)

    def answer(self, parts: Sequence[Groups], schema: pa.Schema) -> pa.Table:
        """The rows of the answer: a row for each group of all parts."""
        filled = [part for part in parts if len(part)]
        if not filled:
            return schema.empty_table()
        windows = self._aggregate.windows
        groups = self.combined(filled) if windows is None else self._of_windows(filled, windows)
        partials = groups.partials
        numbers = groups.numbers
        if numbers is None and groups.present is not None:
            numbers = np.flatnonzero(groups.present)
            partials = [_some(each, groups.present) for each in partials]
        keys = self.dictionary.keys
        if keys is not None and numbers is not None:
            keys = keys.take(from_numpy(numbers))
        elif keys is not None and keys.num_rows > groups.size:
            keys = keys.slice(0, groups.size)
        outputs = zip(self._aggregate.outputs, schema, strict=True)
        columns = [self._output(keys, groups.panes, partials, output, field.type) for output, field in outputs]
        return pa.Table.from_arrays(columns, schema=schema)

    def _of_windows(self, parts: Sequence[Groups], windows: Windows) -> Groups:
        """Panes to windows, of which each pane is in several; instead of panes the groups then have starts."""
        slots, present, partials = self._spread(parts)
        by_pane = present.reshape(-1, slots.keys)
        keys = np.flatnonzero(by_pane.any(axis=0))
        starts = Starts.of(windows, slots.first, len(by_pane))
        if starts.padded * len(keys) > 2 * _DENSE_MAX:
            raise TooManyGroups

        def of_windows(values: AnyArray, combine: Combine, empty: int) -> AnyArray:
            panes = values.reshape(by_pane.shape)
            return starts.combined(panes if len(keys) == panes.shape[1] else panes[:, keys], combine, empty).ravel()

        of_present = of_windows(present, np.logical_or, False)
        found = np.flatnonzero(of_present)
        if len(found) > PANE_GROUPS_MAX:
            raise TooManyGroups
        folded = []
        for fold, (values, high, valid, limb) in zip(self._folds, partials, strict=True):
            empty, combine = _FOLDS[fold]
            with np.errstate(all="ignore"):
                if limb is None:
                    values = of_windows(values, combine, empty)[found]
                else:
                    values = np.stack([of_windows(each, np.add, 0)[found] for each in values])
                high = None if high is None else of_windows(high, np.add, 0)[found]
            valid = None if valid is None else of_windows(valid, np.logical_or, False)[found]
            folded.append(Folded(values, high, None if valid is None or valid.all() else valid, limb))
        starts_us = (found // len(keys) + starts.first) * windows.slide_us + windows.offset_us
        return Groups(slots.size, folded, numbers=keys[found % len(keys)], panes=starts_us)

    def _output(
        self,
        keys: pa.Table | None,
        starts_us: Int64s | None,
        partials: list[Folded],
        output: Output,
        type_: pa.DataType,
    ) -> pa.Array:
        if output.make in (Make.WINDOW, Make.START, Make.END):
            assert starts_us is not None
            assert self._aggregate.windows is not None
            sides = (starts_us, starts_us + self._aggregate.windows.size_us)
            if output.make is not Make.WINDOW:
                return from_numpy(sides[output.make is Make.END]).cast(type_)
            arrays = [from_numpy(us).cast(field.type) for us, field in zip(sides, type_, strict=True)]
            return pa.StructArray.from_arrays(arrays, fields=list(type_))
        if output.make is Make.GROUP:
            assert keys is not None
            return keys.column(output.at)
        fold = self._folds[output.at]
        values, high, valid, limb = partials[output.at]
        if fold in (Fold.MIN, Fold.MAX):
            return _decoded(values, valid, type_)
        if limb is not None:
            values, high = rounded(partials[output.at].sums), None
        if high is not None:
            high = high + (values >> 32)
            values = values & _HALF
        if output.make is Make.AVERAGE:
            assert output.count is not None
            sums = values if high is None else high * 2.0**32 + values
            with np.errstate(all="ignore"):
                return _array(type_, sums / partials[output.count].values, valid)
        if high is None:
            return _array(type_, values, valid)
        if pa.types.is_decimal(type_):
            # ten digits more than the column's hold the sum of ten thousand million rows
            return _array(type_, np.stack([(high & _HALF) << 32 | values, high >> 32], axis=1), valid)
        outside = np.flatnonzero((high >= 1 << 31) | (high < -(1 << 31)))
        if len(outside):
            raise overflow((int(high[outside[0]]) << 32) + int(values[outside[0]]))
        return _array(type_, (high << 32) | values, valid)


class _Slots:
    """Places for groups in arrays: their numbers, or pane by pane the numbers of each."""

    def __init__(self, keys: int, panes: Sequence[Int64s | None]) -> None:
        filled = [each for each in panes if each is not None and len(each)]
        self.by_number = all(each is None for each in panes)
        self.keys = keys
        self.first = min((int(each.min()) for each in filled), default=0)
        last = max((int(each.max()) for each in filled), default=self.first - 1)
        self.size = keys if self.by_number else (last - self.first + 1) * keys
        if not self.by_number and self.size > _DENSE_MAX:
            raise TooManyGroups

    def places(self, numbers: Int64s | None, panes: Int64s | None, size: int = 0) -> _At:
        if numbers is None:
            return slice(0, size)
        return numbers if panes is None else (panes - self.first) * self.keys + numbers

    def groups(self, places: Int64s) -> tuple[Int64s, Int64s | None]:
        """Numbers and panes of places."""
        if self.by_number:
            return places, None
        return places % self.keys, places // self.keys + self.first


def _panes(column: pa.ChunkedArray, panes: Panes) -> Int64s:
    """The pane of each row's time."""
    us = pc.fill_null(column.cast(pa.timestamp("us")).cast(pa.int64()), INT64_MIN).combine_chunks()
    times = to_numpy(us)
    return np.where(times == _NO_PANE, _NO_PANE, (times - panes.offset_us) // panes.length_us)


def _some(folded: Folded, chosen: Mask) -> Folded:
    values, high, valid, limb = folded
    high = None if high is None else high[chosen]
    return Folded(values[..., chosen], high, None if valid is None else valid[chosen], limb)


def _added(fold: Fold, groups: Sequence[Groups], number: int, places: Sequence[_At], present: Mask) -> Folded:
    """One partial of parts, in each of which a group comes once."""
    parts, size = [each.partials[number] for each in groups], len(present)
    whole = _added_sums(parts, places, size) if parts[0].limb is not None else _added_values(fold, parts, places, size)
    if all(part.valid is None for part in parts):
        return whole
    valid = np.zeros(size, dtype=np.bool_)
    for each, part, at in zip(groups, parts, places, strict=True):
        # A group that does not occur in a part has no value there.
        has = each.present if part.valid is None else part.valid
        valid[at] |= True if has is None else has
    return whole._replace(valid=None if valid[present].all() else valid)


def _added_sums(parts: Sequence[Folded], places: Sequence[_At], size: int) -> Folded:
    limbs, first, odd = added([part.sums for part in parts], places, size)
    return Folded(limbs, odd, limb=first)


def _added_values(fold: Fold, parts: Sequence[Folded], places: Sequence[_At], size: int) -> Folded:
    empty, combine = _FOLDS[fold]
    values = np.full(size, empty, dtype=parts[0].values.dtype)
    for part, at in zip(parts, places, strict=True):
        values[at] = combine(values[at], part.values)
    high: Int64s | None = None
    if any(part.high is not None for part in parts):
        high = np.zeros(size, dtype=np.int64)
        for part, at in zip(parts, places, strict=True):
            if part.high is not None:
                high[at] += part.high
    return Folded(values, high)


_FOLDS: dict[Fold, tuple[int, Combine]] = {
    Fold.ROWS: (0, np.add),
    Fold.COUNT: (0, np.add),
    Fold.SUM: (0, np.add),
    Fold.MIN: (INT64_MAX, np.minimum),
    Fold.MAX: (INT64_MIN, np.maximum),
}


def _codes(keys: pa.Table) -> tuple[Int64s, Int64s]:
    """A number for each row's group, and the first row of each group. NULL is a group."""
    codes = np.zeros(keys.num_rows, dtype=np.int64)
    count = 1
    for column in keys.columns:
        own, size = _column_codes(column)
        codes = codes * size + own
        count *= size
        if count > 4 * keys.num_rows:
            _, codes = np.unique(codes, return_inverse=True)
            count = int(codes.max()) + 1 if len(codes) else 0
    first = np.full(count, -1, dtype=np.int64)
    # of several rows of one group the last that is put stays
    first[codes[::-1]] = np.arange(keys.num_rows - 1, -1, -1)
    present = first >= 0
    if present.all():
        return codes, first
    return (np.cumsum(present) - 1)[codes], first[present]


def _column_codes(column: pa.ChunkedArray) -> tuple[AnyArray, int]:
    """A number for each value, and how many numbers there may be."""
    if pa.types.is_integer(column.type) and not column.null_count and len(column):
        # Integers that lie close together are numbers already.
        values = to_numpy(column).astype(np.int64, copy=False)
        least, most = int(values.min()), int(values.max())
        if most - least < 4 * len(values):
            return values - least, most - least + 1
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return to_numpy(encoded.indices), len(encoded.dictionary)


def _of_rows(partial: Partial, vector: Vector | None, rows: Rows) -> Folded:
    """A partial of single rows."""
    if vector is None:
        return Folded(np.ones(count_rows(rows), dtype=np.int64))
    valid = None if vector.valid is None else vector.valid[rows]
    if partial.fold is Fold.COUNT:
        return Folded(np.ones(count_rows(rows), dtype=np.int64) if valid is None else valid.astype(np.int64))
    if partial.fold is Fold.SUM and vector.numbers is not None:
        return Folded(vector.numbers[rows], None, valid)
    assert vector.keys is not None
    keys = vector.keys[rows].astype(np.int64, copy=False)
    return Folded(keys & _HALF, keys >> 32, valid) if partial.fold is Fold.SUM else Folded(keys, None, valid)


def _fold(fold: Fold, rows: Folded, codes: Int64s, count: int) -> Folded:
    """Rows to groups; a group without a value that is not NULL is not valid."""
    values, high, valid, _ = rows
    if valid is not None:
        codes, values = codes[valid], values[valid]
        high = None if high is None else high[valid]
        valid = np.zeros(count, dtype=np.bool_)
        valid[codes] = True
        if valid.all():
            valid = None
    if fold is Fold.MIN:
        return Folded(_at(np.minimum, np.full(count, INT64_MAX, dtype=np.int64), codes, values), None, valid)
    if fold is Fold.MAX:
        return Folded(_at(np.maximum, np.full(count, INT64_MIN, dtype=np.int64), codes, values), None, valid)
    if values.dtype == np.float64:
        limbs, first, odd = sums_of(values, codes, count)
        return Folded(limbs, odd, valid, first)
    sums = _at(np.add, np.zeros(count, dtype=values.dtype), codes, values)
    return Folded(sums, None if high is None else _at(np.add, np.zeros(count, dtype=np.int64), codes, high), valid)


def _at(ufunc: np.ufunc, into: AnyArray, codes: Int64s, values: AnyArray) -> AnyArray:
    ufunc.at(into, codes, values)
    return into


def _decoded(keys: AnyArray, valid: Mask | None, type_: pa.DataType) -> pa.Array:
    """The values of keys."""
    if pa.types.is_floating(type_):
        bits = np.where(keys < 0, _INT64_MIN - keys, keys)
        return _array(type_, bits.view(np.float64), valid)
    if pa.types.is_decimal(type_):
        return _array(type_, np.stack([keys, keys >> 63], axis=1), valid)
    if pa.types.is_boolean(type_):
        return pc.cast(_array(pa.int64(), keys, valid), type_)
    return _array(type_, keys, valid)


def _array(type_: pa.DataType, values: AnyArray, valid: Mask | None) -> pa.Array:
    """Numbers as an array of a type that has as many bits, or is a narrower number."""
    if pa.types.is_floating(type_):
        values = values.astype(f"f{type_.bit_width // 8}")
    elif not pa.types.is_decimal(type_):
        values = values.astype(f"i{type_.bit_width // 8}")
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(type_, len(values), [mask, pa.py_buffer(np.ascontiguousarray(values))])
