"""Tables as CSV and as JSON. Values that a format has no form for are written as Spark, or JSON, would write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ladle.columns import Value
from ladle.present import plain

_BATCH_ROWS = 10_000
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def write_csv(table: pa.Table, sink: IO[bytes], *, header: bool = True) -> None:
    """With a header or without, into a binary file."""
    from pyarrow import csv

    flat = table
    for index, field in enumerate(table.schema):
        if not _csv_has(field.type):
            # Arrow writes no nested values or bytes into CSV; JSON's form of them is what a reader can parse.
            values = [value for chunk in table.column(index).chunks for value in json_values(chunk)]
            texts = [None if value is None else _json(value) for value in values]
            flat = flat.set_column(index, field.name, pa.array(texts, pa.string()))
    csv.write_csv(flat, sink, csv.WriteOptions(include_header=header))


def json_lines(table: pa.Table) -> Iterator[str]:
    """One object a line; the lines of a few thousand rows at a time."""
    for rows in row_batches(table):
        yield "".join(f"{encoded(row).decode()}\n" for row in rows)


def json_rows(table: pa.Table) -> list[dict[str, Value]]:
    """Rows of values that `encoded` has a form for."""
    return [row for rows in row_batches(table) for row in rows]


def encoded(value: object) -> bytes:
    """JSON, as short as it can be. A number beyond 64 bits, which orjson has no form for, is none of ours."""
    try:
        return orjson.dumps(value, default=plain)
    except orjson.JSONEncodeError:  # a map may have other keys than text; to look for them takes twice as long
        return orjson.dumps(value, default=plain, option=orjson.OPT_NON_STR_KEYS)


def row_batches(table: pa.Table) -> Iterator[list[dict[str, Value]]]:
    """Rows as `json_rows` gives them, a few thousand at a time."""
    names = table.column_names
    # An answer comes in a chunk from each segment: many, of few rows.
    for batch in table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS):
        # By position, because an answer may have two columns of one name.
        columns = [json_values(column) for column in batch.columns]
        yield [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _csv_has(type_: pa.DataType) -> bool:
    return not (pa.types.is_nested(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def json_values(column: pa.Array) -> list[Value]:
    """Values that JSON has."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return _times(column)
    values: list[Value] = column.to_pylist()
    return [_worded(value) for value in values] if _needs_words(column) else values


def _needs_words(column: pa.Array) -> bool:
    """Whether some number in it, at whatever depth, is not finite."""
    type_ = column.type
    if pa.types.is_floating(type_):
        return pc.all(pc.is_finite(column)).as_py() is False
    if pa.types.is_map(type_):
        return _needs_words(column.keys) or _needs_words(column.items)
    if pa.types.is_struct(type_):
        return any(map(_needs_words, column.flatten()))
    return pa.types.is_nested(type_) and _needs_words(column.flatten())


def _worded(value: Value) -> Value:
    """Numbers that are not finite as Spark writes them: JSON has none for these."""
    match value:
        case float():
            return _WORDS.get(repr(value), value)
        case dict():
            return {key: _worded(each) for key, each in value.items()}
        case list() | tuple():
            return [_worded(each) for each in value]
    return value


def _times(column: pa.Array) -> list[str | None]:
    """ISO 8601, by numpy: faster than Arrow's by far, and beyond the year 9999, where Python has no times."""
    zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    zone: Literal["naive", "UTC"] = "UTC" if zoned else "naive"
    texts: list[str | None] = np.datetime_as_string(column.to_numpy(zero_copy_only=False), timezone=zone).tolist()
    return texts if column.null_count == 0 else [None if text == "NaT" else text for text in texts]


def _json(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else encoded(value).decode()
