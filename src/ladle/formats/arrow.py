"""How large an Arrow stream is when it is unpacked, and its rows when they are written out, told without doing either.

A value may come once and stand in many rows: in a dictionary, or behind views. A compressed buffer begins with its size
before it was compressed, for which Arrow's reader then takes memory. Where the buffers are is in the head of each
message, a flatbuffer: a table there is a place from which its *vtable* is found, and that says where each field is.
Numbers are little-endian. (Arrow's format: Message.fbs, "Serialization and IPC".)
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_LENGTH = 8
"""Bytes of a size. -1 is for a buffer that is not compressed."""
_VERSION_5 = 4
_VERSION, _HEADER, _CUSTOM = 0, 2, 4
"""Fields of a message."""
_DICTIONARY_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3
"""Fields of a batch of records."""
_VIEW_WORDS = 4
"""A view has four numbers of four bytes, the first its value's length."""


def unpacked_bytes(stream: pa.Buffer) -> int:
    """The sum of what its compressed buffers say. Raises what Arrow raises, and ValueError, if it is no stream."""
    size = 0
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(stream))
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return size
        if message.type in ("record batch", "dictionary"):
            try:
                size += _batch_bytes(memoryview(message.metadata), memoryview(message.body), message.type)
            except struct.error:
                raise ValueError("a message points outside of itself") from None


def written_out_bytes(batch: pa.RecordBatch) -> int:
    """With each value as often as it stands in a row. For batches that were validated."""
    return sum(_written_out(column) for column in batch.columns)


def _written_out(column: pa.Array) -> int:
    if isinstance(column, pa.DictionaryArray):
        return int(_lengths(column.dictionary)[column.indices.drop_null()].sum())
    return int(_lengths(column).sum()) if _has_views(column) else int(column.nbytes)


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    """The bytes of each value."""
    if _has_views(values):
        words = np.frombuffer(values.buffers()[1], "<i4") if len(values) else np.empty(0, "<i4")
        of_each = words.reshape(-1, _VIEW_WORDS)[values.offset : values.offset + len(values), 0]
        return np.where(np.asarray(values.is_valid()), of_each, 0).astype(np.int64)
    if values.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        lengths: pa.Array = pc.binary_length(values).fill_null(0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.full(len(values), -(-values.nbytes // max(len(values), 1)), dtype=np.int64)


def _has_views(values: pa.Array) -> bool:
    return values.type in (pa.string_view(), pa.binary_view())


def _batch_bytes(head: memoryview, body: memoryview, kind: str) -> int:
    message = _number(head, "<I", 0)
    version = _field(head, message, _VERSION)
    if _field(head, message, _CUSTOM) is not None and (version is None or _number(head, "<h", version) < _VERSION_5):
        # There compression may be hidden, of a kind that was given up.
        raise ValueError("its batches are of a form before Arrow 1.0")
    batch = _table(head, message, _HEADER)
    if kind == "dictionary":
        batch = _table(head, batch, _DICTIONARY_DATA)
    at = _field(head, batch, _BUFFERS)
    if at is None or _field(head, batch, _COMPRESSION) is None:
        return 0
    at += _number(head, "<I", at)
    places = np.frombuffer(head, "<i8", 2 * _number(head, "<I", at), at + 4).reshape(-1, 2)
    return sum(max(_number(body, "<q", int(offset)), 0) for offset, length in places if length >= _LENGTH)


def _table(head: memoryview, table: int, field: int) -> int:
    at = _field(head, table, field)
    if at is None:
        raise ValueError("a message has no batch")
    return at + _number(head, "<I", at)


def _field(head: memoryview, table: int, field: int) -> int | None:
    """Where a field of a table is, if it has it."""
    vtable = table - _number(head, "<i", table)
    at = 4 + 2 * field
    if at + 2 > _number(head, "<H", vtable):
        return None
    offset = _number(head, "<H", vtable + at)
    return table + offset if offset else None


def _number(data: memoryview, form: str, at: int) -> int:
    if at < 0:
        raise ValueError("a message points outside of itself")
    number: int = struct.unpack_from(form, data, at)[0]
    return number
