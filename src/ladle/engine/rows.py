"""Rows as people have them (dictionaries, Arrow, pandas) into a table for the inbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from ladle.catalog import StreamState
from ladle.errors import TypeMismatch
from ladle.stem.intake import check_columns, rows_to_table


def as_table(rows: Any, stream: StreamState) -> pa.Table:
    """Whole inputs that can't fit are refused here; single rows that don't are sorted out when they are taken in."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        check_columns(rows.schema, stream.schema, stream.name)
        return rows
    if hasattr(rows, "__arrow_c_stream__") or type(rows).__module__.partition(".")[0] == "pandas":
        return as_table(_from_frame(rows), stream)
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        return rows_to_table(list(rows), stream.schema)
    raise TypeMismatch(
        f"Rows can't be a {type(rows).__name__}.",
        hint="push a list of dictionaries, a pandas DataFrame or an Arrow table",
    )


def _from_frame(frame: Any) -> pa.Table:
    if hasattr(frame, "to_dict") and hasattr(frame, "iloc"):
        try:
            return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            # A column of mixed objects: row by row, so that only the misfits are left out.
            return pa.Table.from_pandas(frame.astype(object).map(_plain), preserve_index=False)
    return pa.table(frame)


def _plain(value: Any) -> str | None:
    return None if value is None or value != value else str(value)
