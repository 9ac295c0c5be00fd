"""Rows from files for `ladle push`: CSV with a header, JSON lines, Parquet; Arrow tables of a few megabytes.

CSV values stay text, and the stream's door converts them, so that a value that does not fit costs its own row
and not the file. A line that can't be parsed at all goes the same way: it is pushed with the reason, and ends
in the quarantine.
"""

from __future__ import annotations

import io
import json
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from pyarrow import csv

from ladle.errors import LadleError
from ladle.schema import StreamSchema
from ladle.stem.intake import RAW, REASON, rows_to_table

FORMATS = ("csv", "json", "parquet")
_SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_BLOCK_BYTES = 8 << 20
_PARQUET_ROWS = 1 << 18
_LINGER_SECONDS = 0.5


def format_of(name: str, given: str | None) -> str:
    """The format told, or the one that the name's ending tells."""
    if given is not None:
        return given
    found = _SUFFIXES.get(Path(name).suffix.lower())
    if found is None:
        raise LadleError(
            f"The format of '{name}' is not clear from its name.", hint=f"add --format {', '.join(FORMATS)}"
        )
    return found


def read_rows(file: BinaryIO, form: str, schema: StreamSchema, *, live: bool) -> Iterator[pa.Table]:
    """The file's rows, in order. From a live input, what has come is handed over after half a second."""
    match form:
        case "parquet":
            yield from _parquet(io.BytesIO(file.read()) if live else file)
        case "json":
            for block in _line_blocks(file, live=live, quoted=False):
                yield from _json(block, schema)
        case _:
            yield from _csv(file, schema, live=live)


def _parquet(file: BinaryIO) -> Iterator[pa.Table]:
    for batch in pq.ParquetFile(file).iter_batches(_PARQUET_ROWS):
        yield pa.Table.from_batches([batch])


def _csv(file: BinaryIO, schema: StreamSchema, *, live: bool) -> Iterator[pa.Table]:
    header = b""
    for block in _line_blocks(file, live=live, quoted=True):
        if not header:
            block = block.removeprefix(b"\xef\xbb\xbf")
            end = block.index(b"\n") + 1
            header, block = block[:end], block[end:]
        if block.strip():
            yield from _csv_block(header, block, schema)


def _csv_block(header: bytes, block: bytes, schema: StreamSchema) -> Iterator[pa.Table]:
    broken: list[tuple[str, str]] = []

    def note(row: csv.InvalidRow) -> str:
        broken.append((f"{row.actual_columns} values where {row.expected_columns} were expected", row.text))
        return "skip"

    names = csv.read_csv(io.BytesIO(header)).column_names
    yield csv.read_csv(
        io.BytesIO(header + block),
        read_options=csv.ReadOptions(use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if broken:
        yield _rejected(broken, schema)


def _json(block: bytes, schema: StreamSchema) -> Iterator[pa.Table]:
    try:
        yield pa_json.read_json(
            io.BytesIO(block),
            read_options=pa_json.ReadOptions(block_size=len(block) + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=schema.declared),
        )
        return
    except pa.ArrowException:
        # Something in this block is not as the schema says: line by line, to find which.
        pass
    rows, broken = [], []
    for line in block.splitlines():
        if not line.strip():
            continue
        text = line.decode("utf-8", errors="backslashreplace")
        try:
            row = json.loads(text)
        except ValueError as error:
            broken.append((f"not JSON: {error}", text))
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            broken.append(("not a JSON object", text))
    if rows:
        yield rows_to_table(rows, schema)
    if broken:
        yield _rejected(broken, schema)


def _rejected(broken: list[tuple[str, str]], schema: StreamSchema) -> pa.Table:
    """Lines for the quarantine, with their reasons."""
    columns = {column.name: pa.nulls(len(broken)) for column in schema.columns}
    columns[REASON] = pa.array([reason for reason, _ in broken], pa.string())
    columns[RAW] = pa.array([text for _, text in broken], pa.string())
    return pa.table(columns)


def _line_blocks(file: BinaryIO, *, live: bool, quoted: bool) -> Iterator[bytes]:
    """Blocks of whole lines; with `quoted`, a line break inside quotes ends no line."""
    rest = b""
    for chunk in _live_chunks(file) if live else iter(lambda: file.read(_BLOCK_BYTES), b""):
        rest += chunk
        end = _last_line_end(rest, quoted=quoted)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest.strip():
        yield rest + b"\n"


def _last_line_end(block: bytes, *, quoted: bool) -> int:
    end = block.rfind(b"\n") + 1
    while quoted and end and block.count(b'"', 0, end) % 2:
        end = block.rfind(b"\n", 0, end - 1) + 1
    return end


def _live_chunks(file: BinaryIO) -> Iterator[bytes]:
    """What a pipe or terminal gives, gathered for up to half a second."""
    gathered = b""
    due = None
    while True:
        wait = None if due is None else max(0.0, due - time.monotonic())
        ready, _, _ = select.select([file], [], [], wait)
        if ready:
            chunk = os.read(file.fileno(), 1 << 20)
            if not chunk:
                break
            gathered += chunk
            due = due if due is not None else time.monotonic() + _LINGER_SECONDS
        if gathered and (len(gathered) >= _BLOCK_BYTES or (due is not None and time.monotonic() >= due)):
            yield gathered
            gathered, due = b"", None
    if gathered:
        yield gathered
