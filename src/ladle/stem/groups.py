"""Partial aggregates by group: what one segment, or a node of the tree, knows of each group that occurs in it.

The group's columns, and an array per partial. Rows of a segment are such a thing too, each a group of one; so folding
rows and combining nodes is one operation. Sums of integers are kept in two halves, which can't overflow before two
thousand million rows are added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ladle.columns import from_numpy, to_numpy
from ladle.plan.aggregate import Aggregate, Fold, Make, Output, Partial
from ladle.plan.keys import INT64_MAX, INT64_MIN
from ladle.stem.aggregates import Vector, count_rows, overflow
from ladle.stem.matches import Mask, Rows

GROUPS_MAX = 65_536
"""With more groups than this there is little to share between rows, and the tree is larger than what it is for."""

_HALF = np.int64(0xFFFF_FFFF)
_INT64_MIN = np.int64(INT64_MIN)

Int64s = npt.NDArray[np.int64]


class TooManyGroups(Exception):
    """What DuckDB should fold instead."""


class Folded(NamedTuple):
    """A partial by group. `high` is the upper half of a sum of integers; `valid` says where there was a value."""

    values: npt.NDArray[Any]
    high: Int64s | None = None
    valid: Mask | None = None


class Groups:
    """Partials by group."""

    __slots__ = ("keys", "nbytes", "partials")

    def __init__(self, keys: pa.Table, partials: list[Folded]) -> None:
        self.keys = keys
        self.partials = partials
        arrays = [array for partial in partials for array in partial if array is not None]
        self.nbytes = int(keys.nbytes) + sum(array.nbytes for array in arrays)

    def __len__(self) -> int:
        return int(self.keys.num_rows)


class Grouping:
    """How one list of partials is folded by one list of columns."""

    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate

    def of_rows(self, segment: pa.Table, vectors: Mapping[str, Vector], rows: Rows) -> Groups:
        """The groups of some rows of a segment, whose table has the group columns."""
        keys = segment.select(self._aggregate.groups)
        if isinstance(rows, slice):
            keys = keys.slice(rows.start, rows.stop - rows.start)
        else:
            keys = keys.take(from_numpy(rows))
        partials = [
            _of_rows(partial, None if partial.column is None else vectors[partial.column], rows)
            for partial in self._aggregate.partials
        ]
        return self._folded(keys, partials)

    def combined(self, parts: Sequence[Groups]) -> Groups:
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part.partials for part in parts), strict=True)
        return self._folded(pa.concat_tables([part.keys for part in parts]), [_concatenated(c) for c in columns])

    def _folded(self, keys: pa.Table, partials: Sequence[Folded]) -> Groups:
        codes, first = _codes(keys)
        if len(first) > GROUPS_MAX:
            raise TooManyGroups
        folds = [partial.fold for partial in self._aggregate.partials]
        folded = [_fold(fold, rows, codes, len(first)) for fold, rows in zip(folds, partials, strict=True)]
        return Groups(keys.take(from_numpy(first)).combine_chunks(), folded)

    def answer(self, parts: Sequence[Groups], schema: pa.Schema) -> pa.Table:
        filled = [part for part in parts if len(part)]
        if not filled:
            return schema.empty_table()
        groups = self.combined(filled)
        outputs = zip(self._aggregate.outputs, schema, strict=True)
        return pa.Table.from_arrays(
            [self._output(groups, output, field.type) for output, field in outputs], schema=schema
        )

    def _output(self, groups: Groups, output: Output, type_: pa.DataType) -> pa.Array:
        if output.make is Make.GROUP:
            return groups.keys.column(output.at)
        fold = self._aggregate.partials[output.at].fold
        values, high, valid = groups.partials[output.at]
        if fold in (Fold.MIN, Fold.MAX):
            return _decoded(values, valid, type_)
        if high is not None:
            high = high + (values >> 32)
            values = values & _HALF
        if output.make is Make.AVERAGE:
            assert output.count is not None
            sums = values if high is None else high * 2.0**32 + values
            with np.errstate(all="ignore"):
                return _array(type_, sums / groups.partials[output.count].values, valid)
        if high is None:
            return _array(type_, values, valid)
        if pa.types.is_decimal(type_):
            # ten digits more than the column's hold the sum of ten thousand million rows
            return _array(type_, np.stack([(high & _HALF) << 32 | values, high >> 32], axis=1), valid)
        outside = np.flatnonzero((high >= 1 << 31) | (high < -(1 << 31)))
        if len(outside):
            raise overflow((int(high[outside[0]]) << 32) + int(values[outside[0]]))
        return _array(type_, (high << 32) | values, valid)


def _codes(keys: pa.Table) -> tuple[Int64s, Int64s]:
    """A number for each row's group, and the first row of each group. NULL is a group."""
    codes = np.zeros(keys.num_rows, dtype=np.int64)
    count = 1
    for column in keys.columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + to_numpy(encoded.indices)
        count *= len(encoded.dictionary)
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


def _concatenated(parts: Sequence[Folded]) -> Folded:
    values: Any = np.concatenate([part.values for part in parts])
    halves = [part.high for part in parts if part.high is not None]
    high = np.concatenate(halves) if halves else None
    if all(part.valid is None for part in parts):
        return Folded(values, high)
    valid = [np.ones(len(part.values), dtype=np.bool_) if part.valid is None else part.valid for part in parts]
    return Folded(values, high, np.concatenate(valid))


def _fold(fold: Fold, rows: Folded, codes: Int64s, count: int) -> Folded:
    """Rows to groups; a group without a value that is not NULL is not valid."""
    values, high, valid = rows
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
    with np.errstate(all="ignore"):
        sums = _at(np.add, np.zeros(count, dtype=values.dtype), codes, values)
    return Folded(sums, None if high is None else _at(np.add, np.zeros(count, dtype=np.int64), codes, high), valid)


def _at(ufunc: np.ufunc, into: npt.NDArray[Any], codes: Int64s, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    ufunc.at(into, codes, values)
    return into


def _decoded(keys: npt.NDArray[Any], valid: Mask | None, type_: pa.DataType) -> pa.Array:
    """The values of keys."""
    if pa.types.is_floating(type_):
        bits = np.where(keys < 0, _INT64_MIN - keys, keys)
        return _array(type_, bits.view(np.float64), valid)
    if pa.types.is_decimal(type_):
        return _array(type_, np.stack([keys, keys >> 63], axis=1), valid)
    if pa.types.is_boolean(type_):
        return pc.cast(_array(pa.int64(), keys, valid), type_)
    return _array(type_, keys, valid)


def _array(type_: pa.DataType, values: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    """Numbers as an array of a type that has as many bits, or is a narrower number."""
    if pa.types.is_floating(type_):
        values = values.astype(f"f{type_.bit_width // 8}")
    elif not pa.types.is_decimal(type_):
        values = values.astype(f"i{type_.bit_width // 8}")
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(type_, len(values), [mask, pa.py_buffer(np.ascontiguousarray(values))])
