"""Arrow streams that others wrote: nothing is made of their bytes before these were looked through.

Arrow's reader checks the heads of messages, and that buffers are where these say; what is in the buffers it takes as it
comes. An offset that points outside of its buffer ends the process at the first look, so each batch is validated before
anything else is asked of it, even its size.

A stream may also be small, and its rows large. A value may come once and stand in many rows: in a dictionary, or behind
views. A compressed buffer begins with its size before it was compressed, for which Arrow's reader then takes memory. So
sizes are told without unpacking or writing out anything. Where the buffers are is in the head of each message, a
flatbuffer: a table there is a place from which its *vtable* is found, and that says where each field is. Numbers are
little-endian. (Arrow's format: Message.fbs, "Serialization and IPC".)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

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
_VIEW_BYTES = 16
"""A view has four numbers of four bytes, the first its value's length."""
_ROW_BYTES = 8
"""What a row counts at least: one that is nothing but NULLs takes no room before it is in a stream."""


class NotArrow(ValueError):
    """Bytes that are no Arrow stream, or one that is damaged."""


class TooManyBytes(ValueError):
    """A stream whose rows take more bytes than they may."""


def read_stream(stream: pa.Buffer, *, bytes_max: int | None = None) -> pa.Table:
    """All rows, validated. With `bytes_max` they take no more than that when they are unpacked and written out, and
    columns whose size can't be told before are refused.
    """
    size = 0
    try:
        if bytes_max is not None:
            _refuse_larger(unpacked_bytes(stream), bytes_max)
        with pa.ipc.open_stream(stream) as reader:
            schema = reader.schema
            check_schema(schema, repeating=bytes_max is None)
            batches = []
            for batch in reader:
                if bytes_max is None:
                    batch.validate(full=True)
                else:
                    size += _validated_bytes(batch, bytes_max - size)
                    _refuse_larger(size, bytes_max)
                batches.append(batch)
            return pa.Table.from_batches(batches, schema)
    except TooManyBytes:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise NotArrow(first_line(error)) from error


def check_schema(schema: pa.Schema, *, repeating: bool = True) -> None:
    """Refuse names that are no text and time zones that nobody knows, which Arrow does not look at. Unless they may be
    `repeating`, refuse types that repeat values in ways whose size can't be told beforehand.
    """
    for field in schema:
        for inner in _fields(field):
            name: str = inner.name  # raises if it is no UTF-8
            if pa.types.is_timestamp(inner.type) and inner.type.tz not in (None, "UTC"):
                pa.lib.string_to_tzinfo(inner.type.tz)
            if not repeating and inner is not field and _repeats(inner.type):
                raise NotArrow(f"column '{field.name}' has {inner.type} in '{name}'; cast it to a plain type first")
        if not repeating and not _is_told(field.type):
            raise NotArrow(f"column '{field.name}' is {field.type}; cast it to a plain type first")


def first_line(error: BaseException) -> str:
    """The first line of what an error says: libraries append traces of their own."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _fields(field: pa.Field) -> Iterator[pa.Field]:
    """A field, and all that are in it."""
    yield field
    type_ = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        yield from _fields(pa.field("", type_.value_type))
    elif pa.types.is_nested(type_):
        for number in range(type_.num_fields):
            yield from _fields(type_.field(number))


def _repeats(type_: pa.DataType) -> bool:
    """Whether arrays of a type may have one value in many places."""
    types = pa.types
    return bool(
        types.is_dictionary(type_)
        or types.is_run_end_encoded(type_)
        or types.is_union(type_)
        or types.is_list_view(type_)
        or types.is_large_list_view(type_)
        or _is_view(type_)
    )


def _is_told(type_: pa.DataType) -> bool:
    """Whether `written_out_bytes` knows what a column of the type takes."""
    if pa.types.is_dictionary(type_):
        return not pa.types.is_nested(type_.value_type) and (_is_view(type_.value_type) or _is_told(type_.value_type))
    return _is_view(type_) or not _repeats(type_)


def _validated_bytes(batch: pa.RecordBatch, bytes_max: int) -> int:
    """What a batch takes when it is written out, after it was validated."""
    _refuse_larger(batch.num_rows * _ROW_BYTES, bytes_max)
    batch.validate()
    # Validating looks at all that views show: that is bounded by what they say they show.
    for column in batch.columns:
        values = column.dictionary if isinstance(column, pa.DictionaryArray) else column
        if _is_view(values.type):
            _refuse_larger(int(_lengths(values).sum()), bytes_max)
    batch.validate(full=True)
    return max(written_out_bytes(batch), batch.num_rows * _ROW_BYTES)


def _refuse_larger(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise TooManyBytes


def unpacked_bytes(stream: pa.Buffer) -> int:
    """The sum of what its compressed buffers say. Raises what Arrow raises, and NotArrow, if it is no stream."""
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
                raise NotArrow("a message points outside of itself") from None


def written_out_bytes(batch: pa.RecordBatch) -> int:
    """With each value as often as it stands in a row. For batches that were validated."""
    return sum(_written_out(column) for column in batch.columns)


def _written_out(column: pa.Array) -> int:
    if isinstance(column, pa.DictionaryArray):
        return int(_lengths(column.dictionary)[column.indices.drop_null()].sum())
    return int(_lengths(column).sum()) if _is_view(column.type) else int(column.nbytes)


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    """The bytes of each value."""
    if _is_view(values.type):
        if not len(values):
            return np.empty(0, dtype=np.int64)
        words = np.frombuffer(values.buffers()[1], "<i4", len(values) * _VIEW_BYTES // 4, values.offset * _VIEW_BYTES)
        return np.where(np.asarray(values.is_valid()), words[:: _VIEW_BYTES // 4], 0).astype(np.int64).clip(0)
    if values.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        lengths: pa.Array = pc.binary_length(values).fill_null(0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.full(len(values), -(-values.nbytes // max(len(values), 1)), dtype=np.int64)


def _is_view(type_: pa.DataType) -> bool:
    return type_ in (pa.string_view(), pa.binary_view())


def _batch_bytes(head: memoryview, body: memoryview, kind: str) -> int:
    message = _number(head, "<I", 0)
    version = _field(head, message, _VERSION)
    if _field(head, message, _CUSTOM) is not None and (version is None or _number(head, "<h", version) < _VERSION_5):
        # There compression may be hidden, of a kind that was given up.
        raise NotArrow("its batches are of a form before Arrow 1.0")
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
        raise NotArrow("a message has no batch")
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
        raise NotArrow("a message points outside of itself")
    number: int = struct.unpack_from(form, data, at)[0]
    return number
