"""The difference of two answers as bags: which rows came, and which went. Columnar: no row becomes a Python object.

Rows are grouped by all their columns at once, in Arrow. Two values are one when their bits are; all NaNs are one, and
so are all NULLs. Nested values and intervals, which Arrow does not group by, are compared as texts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ladle.columns import nested_texts

Indices = npt.NDArray[np.int64]

_NONE: Indices = np.zeros(0, dtype=np.int64)
_SIGN, _ROW = "sign", "row"
_MIXED = np.uint64(0x9E3779B97F4A7C15)


def difference(before: pa.Table, after: pa.Table) -> tuple[Indices, Indices]:
    """The rows of `before` that `after` lacks, and the rows of `after` that `before` lacks, by their numbers."""
    if not len(before) or not len(after):
        return np.arange(len(before)), np.arange(len(after))
    if not before.num_columns:
        return np.arange(len(after), len(before)), np.arange(len(before), len(after))
    moved = _moved(before, after)
    if not len(moved[0]) or not len(moved[1]):
        return moved
    gone, came = _unmatched(picked(before, moved[0]), picked(after, moved[1]))
    return moved[0][gone], moved[1][came]


def _moved(before: pa.Table, after: pa.Table) -> tuple[Indices, Indices]:
    """Without rows that are the same in the same place: most of them, where few groups of many change."""
    count = min(len(before), len(after))
    same = np.ones(count, dtype=np.bool_)
    for old, new in zip(before.columns, after.columns, strict=True):
        if not _is_flat(old.type):
            return np.arange(len(before)), np.arange(len(after))
        old, new = old.slice(0, count), new.slice(0, count)
        same &= _same(old, new)
        if not same.any():
            break
    rest = np.flatnonzero(~same)
    return (
        np.concatenate([rest, np.arange(count, len(before))]),
        np.concatenate([rest, np.arange(count, len(after))]),
    )


def _same(old: pa.ChunkedArray, new: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Where two columns have one value."""
    if pa.types.is_floating(old.type):
        equal = _bits(old) == _bits(new)
    else:
        equal = _flags(pc.fill_null(pc.equal(old, new), True))
    if old.null_count or new.null_count:
        equal &= _flags(pc.equal(pc.is_null(old), pc.is_null(new)))
    return equal


def _flags(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = column.to_numpy()
    return flags.copy()


def _bits(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Floating numbers as bits: NaN is itself, and minus zero is not zero."""
    values = column.cast(pa.float64()) if column.type != pa.float64() else column
    return pc.fill_null(values, 0.0).to_numpy().view(np.int64)


def _unmatched(before: pa.Table, after: pa.Table) -> tuple[Indices, Indices]:
    """The rows of each table that the other lacks, wherever they are.

    A row whose hash the other table lacks is one of them for certain. Where groups changed, that is every row.
    """
    hashes = _hashed(before), _hashed(after)
    if hashes[0] is None or hashes[1] is None:
        return _grouped(before, after)
    old_shared = _is_in(hashes[0], hashes[1])
    if not old_shared.any():
        return np.arange(len(before)), np.arange(len(after))
    new_shared = _is_in(hashes[1], hashes[0])
    left, right = np.flatnonzero(old_shared), np.flatnonzero(new_shared)
    gone, came = _grouped(picked(before, left), picked(after, right))
    return (
        np.sort(np.concatenate([np.flatnonzero(~old_shared), left[gone]])),
        np.sort(np.concatenate([np.flatnonzero(~new_shared), right[came]])),
    )


def picked(table: pa.Table, rows: Indices) -> pa.Table:
    """Rows by their numbers, each once: all of them are the table."""
    return table if len(rows) == len(table) else table.take(pa.array(rows))


def _is_in(some: pa.Array, others: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.is_in(some, value_set=others).to_numpy(zero_copy_only=False)
    return found


def _hashed(table: pa.Table) -> pa.Array | None:
    """A number for each row, the same for equal ones; None where no column has values of a fixed width."""
    found: npt.NDArray[np.uint64] | None = None
    for column in table.columns:
        bits = _fixed_bits(column)
        if bits is not None:
            found = bits * _MIXED if found is None else ((found ^ (found >> np.uint64(29))) + bits) * _MIXED
    return None if found is None else pa.array(found)


def _fixed_bits(column: pa.ChunkedArray) -> npt.NDArray[np.uint64] | None:
    """64 bits for each value, the same for equal ones; None where values are not of a fixed width."""
    type_ = column.type
    if pa.types.is_floating(type_):
        nan = pa.scalar(float("nan"), type_)
        return _bits(pc.if_else(pc.is_nan(column), nan, column)).view(np.uint64)
    if not (pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
        return None
    if not pa.types.is_integer(type_):
        column = column.cast(pa.int64() if type_.bit_width == 64 else pa.int32())
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy().view(np.uint64)


def _grouped(before: pa.Table, after: pa.Table) -> tuple[Indices, Indices]:
    """The rows of each table that the other lacks, found by grouping the rows of both."""
    both = pa.concat_tables([before, after.cast(before.schema)])
    count = len(before)
    keys = [str(number) for number in range(both.num_columns)]
    columns = [_key(column) for column in both.columns]
    signs = np.ones(len(both), dtype=np.int64)
    signs[:count] = -1
    table = pa.Table.from_arrays(
        [*columns, pa.array(signs), pa.array(np.arange(len(both)))], names=[*keys, _SIGN, _ROW]
    )
    groups = table.group_by(keys, use_threads=False).aggregate([(_SIGN, "sum"), (_ROW, "list")])
    net = groups.column(f"{_SIGN}_sum").to_numpy()
    lists = groups.column(f"{_ROW}_list").combine_chunks()
    offsets = lists.offsets.to_numpy()
    rows = lists.flatten().to_numpy()
    starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
    # The rows of a group are in order: those of `before` first.
    gone = _ranges(rows, starts[net < 0], -net[net < 0])
    came = _ranges(rows, ends[net > 0] - net[net > 0], net[net > 0])
    return np.sort(gone), np.sort(came) - count


def _ranges(rows: Indices, starts: Indices, counts: Indices) -> Indices:
    """So many rows from each start on."""
    if not len(starts):
        return _NONE
    if int(counts.max()) == 1:
        return rows[starts]
    firsts = np.cumsum(counts) - counts
    return rows[np.repeat(starts - firsts, counts) + np.arange(int(counts.sum()))]


def _is_flat(type_: pa.DataType) -> bool:
    other = pa.types.is_null(type_) or pa.types.is_dictionary(type_) or pa.types.is_interval(type_)
    return not (other or pa.types.is_nested(type_))


def _key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column that Arrow can group by, equal where the values are."""
    if pa.types.is_floating(column.type):
        nan = pa.scalar(float("nan"), column.type)
        return pc.if_else(pc.is_nan(column), nan, column)
    if _is_flat(column.type):
        return column
    return pa.chunked_array([nested_texts(column)])
