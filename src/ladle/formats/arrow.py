"""How large an Arrow stream is when it is unpacked, told without unpacking it.

A compressed buffer begins with its size before it was compressed, for which Arrow's reader then takes memory. Where the
buffers are is in the head of each message, a flatbuffer: a table there is a place from which its *vtable* is found, and
that says where each field is. Numbers are little-endian. (Arrow's format: Message.fbs, "Serialization and IPC".)
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

_LENGTH = 8
"""Bytes of a size. -1 is for a buffer that is not compressed."""
_VERSION_5 = 4
_VERSION, _HEADER, _CUSTOM = 0, 2, 4
"""Fields of a message."""
_DICTIONARY_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3
"""Fields of a batch of records."""


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
