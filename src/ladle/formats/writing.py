"""Tables as CSV and as JSON. Values that a format has no form for are written as Spark, or JSON, would write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ladle.present import plain

_BATCH_ROWS = 10_000


def write_csv(table: pa.Table, sink: Any) -> None:
    """With a header, into a binary file."""
    from pyarrow import csv

    flat = table
    for index, field in enumerate(table.schema):
        if not _csv_has(field.type):
            # Arrow writes no nested values or bytes into CSV; JSON's form of them is what a reader can parse.
            texts = [None if value is None else _json(value) for value in table.column(index).to_pylist()]
            flat = flat.set_column(index, field.name, pa.array(texts, pa.string()))
    csv.write_csv(flat, sink)


def json_lines(table: pa.Table) -> Iterator[str]:
    """One object a line; the lines of a few thousand rows at a time."""
    for rows in _row_batches(table):
        yield "".join(f"{encoded(row).decode()}\n" for row in rows)


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of values that `encoded` has a form for."""
    return [row for rows in _row_batches(table) for row in rows]


def encoded(value: Any) -> bytes:
    """JSON, as short as it can be. A number beyond 64 bits, which orjson has no form for, is none of ours."""
    try:
        return orjson.dumps(value, default=plain)
    except orjson.JSONEncodeError:  # a map may have other keys than text; to look for them takes twice as long
        return orjson.dumps(value, default=plain, option=orjson.OPT_NON_STR_KEYS)


def _row_batches(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    names = table.column_names
    # An answer comes in a chunk from each segment: many, of few rows.
    for batch in table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS):
        # By position, because an answer may have two columns of one name.
        columns = [_json_values(column) for column in batch.columns]
        yield [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _csv_has(type_: pa.DataType) -> bool:
    return not (pa.types.is_nested(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _json_values(column: pa.Array) -> list[Any]:
    """Values that JSON has."""
    if pa.types.is_timestamp(column.type):
        return _times(column)
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        # As Spark writes them; JSON has no numbers for these.
        words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return [words.get(repr(value), value) for value in column.to_pylist()]
    return column.to_pylist()


def _times(column: pa.Array) -> list[str | None]:
    """ISO 8601, by numpy: faster than Arrow's by far, and beyond the year 9999, where Python has no times."""
    zone: Literal["naive", "UTC"] = "naive" if column.type.tz is None else "UTC"
    texts: list[str | None] = np.datetime_as_string(column.to_numpy(zero_copy_only=False), timezone=zone).tolist()
    return texts if column.null_count == 0 else [None if text == "NaT" else text for text in texts]


def _json(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else encoded(value).decode()
