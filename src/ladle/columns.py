"""Arrow arrays as NumPy's and back, over the same memory.

PyArrow's own conversions import pandas to ask whether it is meant, which costs a cold start more than the whole answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

AnyArray: TypeAlias = npt.NDArray[Any]
"""An array of whatever type the column has. Any: which one is known when it runs, and NumPy gives no arithmetic to an
array of `np.generic`.
"""


Value: TypeAlias = Any
"""A value of a row as Python has it: a number, text, time, list, dictionary, or None. Any: whoever reads a column knows
what it has, and a union of all would make each look once more. What is given by others is `object`.
"""


def to_numpy(array: pa.Array | pa.ChunkedArray) -> AnyArray:
    """Numbers, booleans, or times as numbers. NULLs are not looked at: the caller has none, or has replaced them."""
    if isinstance(array, pa.ChunkedArray):
        parts = [to_numpy(chunk) for chunk in array.chunks]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, dtype=_dtype(array.type))
    values = array.buffers()[1]
    if pa.types.is_boolean(array.type):
        if values is None or len(array) == 0:
            return np.empty(0, dtype=np.bool_)
        bits = np.frombuffer(values, dtype=np.uint8)
        first, last = array.offset, array.offset + len(array)
        return np.unpackbits(bits, count=last, bitorder="little")[first:].view(np.bool_)
    dtype = _dtype(array.type)
    if values is None or len(array) == 0:
        return np.empty(0, dtype=dtype)
    return np.frombuffer(values, dtype=dtype, count=len(array), offset=array.offset * dtype.itemsize)


def from_numpy(values: AnyArray) -> pa.Array:
    """Numbers or booleans as an Arrow array without NULLs."""
    if values.dtype == np.bool_:
        packed = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])
    contiguous = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(contiguous)])


@cache
def _dtype(type_: pa.DataType) -> np.dtype[np.generic]:
    if pa.types.is_boolean(type_):
        return np.dtype(np.bool_)
    if pa.types.is_floating(type_):
        return np.dtype(f"f{type_.bit_width // 8}")
    kind = "u" if pa.types.is_unsigned_integer(type_) else "i"
    return np.dtype(f"{kind}{type_.bit_width // 8}")


def from_strings(values: Sequence[str | None]) -> pa.Array:
    """An Arrow array of strings; None is null."""
    encoded = [b"" if value is None else value.encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    valid = np.packbits(np.array([value is not None for value in values], dtype=np.bool_), bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def nested_texts(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Nested values as texts, equal where the values are."""
    values = column.cast(_with_numbers(column.type)).to_pylist()
    return from_strings([None if value is None else repr(value) for value in values])


def _with_numbers(type_: pa.DataType) -> pa.DataType:
    """A type with numbers in the place of times: Python has none after the year 9999."""
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_map(type_):
        return pa.map_(_with_numbers(type_.key_type), _with_numbers(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(_with_numbers(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_with_numbers(field.type)) for field in type_])
    return type_
