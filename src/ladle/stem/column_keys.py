"""Columns as keys (`ladle.plan.keys` says what they mean), over Arrow's own memory where its layout is that of keys.

Keys in the place of a NULL are whatever lies there; `valid` says which places count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.columns import to_numpy
from ladle.plan.keys import INT64_MIN, NAN_KEY, KeyKind, key_kind

Mask = npt.NDArray[np.bool_]

_DECIMAL_BYTES = 16

_Word = TypeVar("_Word", bound=np.generic)


@dataclass(frozen=True)
class Int64Keys:
    """`keys` has one int64 per row; `valid` is None when no row is NULL."""

    keys: npt.NDArray[np.int64]
    valid: Mask | None


@dataclass(frozen=True)
class BytesKeys:
    """The key of row i is `data[offsets[i]:offsets[i + 1]]`; the first offset need not be 0."""

    offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]
    valid: Mask | None


Keys = Int64Keys | BytesKeys


def encode(column: pa.Array | pa.ChunkedArray) -> Keys:
    """The keys of a column; ValueError when its type has none."""
    kind = key_kind(column.type)
    if kind is None:
        raise ValueError(f"values of type {column.type} have no keys")
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    valid = _valid(column)
    if kind is KeyKind.INT64:
        return Int64Keys(_int64(column), valid)
    if pa.types.is_decimal(column.type):
        return BytesKeys(*_long_decimals(column), valid)
    return BytesKeys(*_texts(column), valid)


def _valid(array: pa.Array) -> Mask | None:
    bits = array.buffers()[0]
    if bits is None or array.null_count == 0:
        return None
    skip, first = divmod(array.offset, 8)
    count = first + len(array)
    octets = np.frombuffer(bits, dtype=np.uint8, offset=skip, count=(count + 7) // 8)
    return np.unpackbits(octets, count=count, bitorder="little")[first:].view(np.bool_)


def _int64(array: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_decimal(array.type):
        # up to 18 digits the lower half is the whole number
        return np.ascontiguousarray(_words(array, np.dtype("<i8"))[:, 0])
    values = to_numpy(array)
    if pa.types.is_floating(array.type):
        return _floats(values.astype(np.float64, copy=False))
    return values.astype(np.int64, copy=False)


def _floats(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    bits = values.view(np.int64)
    # the bits of a negative number are its magnitude and INT64_MIN; those of -0.0 become 0
    keys = np.where(bits < 0, np.int64(INT64_MIN) - bits, bits)
    keys[np.isnan(values)] = NAN_KEY
    return keys


def _words(array: pa.Array, dtype: np.dtype[_Word]) -> npt.NDArray[_Word]:
    """A row of words for each decimal."""
    values = array.buffers()[1]
    per_row = _DECIMAL_BYTES // dtype.itemsize
    if values is None or len(array) == 0:
        return np.empty((0, per_row), dtype=dtype)
    words = np.frombuffer(values, dtype=dtype, count=len(array) * per_row, offset=array.offset * _DECIMAL_BYTES)
    return words.reshape(-1, per_row)


def _long_decimals(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    octets = np.ascontiguousarray(_words(array, np.dtype(np.uint8))[:, ::-1])
    octets[:, 0] ^= 0x80
    offsets = np.arange(len(array) + 1, dtype=np.int64) * _DECIMAL_BYTES
    return offsets, octets.reshape(-1)


def _texts(array: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    _, places, data = array.buffers()
    if places is None or len(array) == 0:
        return np.zeros(1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(places, dtype=np.int32, count=len(array) + 1, offset=array.offset * 4)
    return offsets, np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
