"""Rows from files for `ladle push`: CSV with a header, JSON lines, Parquet; Arrow tables of a few megabytes.

CSV values stay text, and the stream's door converts them, so that a value that does not fit costs its own row
and not the file. A line that can't be parsed at all goes the same way: it is pushed with the reason, and ends
in the quarantine. Every row carries its file and line, which the reason then names.
"""

from __future__ import annotations

import io
import json
import os
import select
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from pyarrow import csv

from ladle.columns import from_numpy
from ladle.errors import LadleError, TypeMismatch
from ladle.foreign import check_schema
from ladle.formats.records import Int64s, cut_records, line_numbers
from ladle.schema import StreamSchema
from ladle.stem.intake import FILE, LINE, RAW, REASON, rows_to_table

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
_UNKNOWN = 0

Broken = tuple[int, str, str]
"""Line, reason and text of what is no row."""


def format_of(name: str, given: str | None) -> str:
    """The format told, or the one that the name's ending tells; what gzip packed has its own before `.gz`."""
    if given is not None:
        return given
    plain = Path(name).with_suffix("") if is_packed(name) else Path(name)
    found = _SUFFIXES.get(plain.suffix.lower())
    if found is None:
        raise LadleError(
            f"The format of '{name}' is not clear from its name.",
            hint=f"add {', '.join(f'--format {form}' for form in FORMATS[:-1])} or --format {FORMATS[-1]}",
        )
    return found


def is_packed(name: str) -> bool:
    """Whether the name is that of a file that gzip packed."""
    return name.lower().endswith(".gz")


def read_rows(file: BinaryIO, form: str, schema: StreamSchema, *, name: str, live: bool) -> Iterator[pa.Table]:
    """The file's rows, in order, each with `name` and its line. A live input's are handed over after half a second."""
    match form:
        case "parquet":
            yield from _parquet(io.BytesIO(file.read()) if live else file, name)
        case "json":
            line = 1
            for block in _line_blocks(file, live=live):
                yield from _json(block, schema, name, line)
                line += block.count(b"\n")
        case _:
            yield from _csv(file, schema, name, live=live)


def _parquet(file: BinaryIO, name: str) -> Iterator[pa.Table]:
    row = 1
    source = pq.ParquetFile(file, page_checksum_verification=True)
    check_schema(source.schema_arrow)
    for batch in source.iter_batches(_PARQUET_ROWS):
        batch.validate(full=True)
        yield _placed(pa.Table.from_batches([batch]), name, np.arange(row, row + len(batch)))
        row += len(batch)


def _csv(file: BinaryIO, schema: StreamSchema, name: str, *, live: bool) -> Iterator[pa.Table]:
    header, rest, line = b"", b"", 1
    names: list[str] = []
    found_any = False
    for chunk in chain(_chunks(file, live=live), [b""]):
        final = not chunk
        rest += chunk
        if final and rest and not rest.endswith(b"\n"):
            rest += b"\n"
        if not header:
            end = rest.find(b"\n") + 1
            header, rest, line = rest[:end].removeprefix(b"\xef\xbb\xbf"), rest[end:], 2
            if not end:
                continue
            names = _header_names(header, schema)
        found = cut_records(rest, line, len(names), final=final)
        line += rest.count(b"\n", 0, found.used)
        rest = rest[found.used :]
        if len(found.lines) or found.broken:
            found_any = True
            yield from _csv_block(header + found.text, found.lines, found.broken, names, schema, name)
    if names and not found_any:
        # The columns are those of no row, and may be wrong all the same.
        yield from _csv_block(header, np.array([], np.int64), [], names, schema, name)


def _header_names(header: bytes, schema: StreamSchema) -> list[str]:
    """The columns that the first line names."""
    try:
        names: list[str] = csv.read_csv(io.BytesIO(header)).column_names
    except UnicodeDecodeError:
        raise TypeMismatch(
            "The first line is not text in UTF-8.", hint="write the file in UTF-8; unpack it, or end its name in .gz"
        ) from None
    _refuse_twice(names)
    separator = next((sign for sign in ";\t|" if sign in names[0]), None)
    if len(names) == 1 and separator is not None and schema.column(names[0]) is None:
        sep = separator.replace("\t", r"\t")
        raise TypeMismatch(
            f"The first line has no commas: it is {names[0]!r}.",
            hint=f"write commas between columns; CREATE SOURCE ... FORMAT csv OPTIONS (sep '{sep}') reads it as it is",
        )
    return names


def _refuse_twice(names: list[str]) -> None:
    lowered = [name.lower() for name in names]
    twice = next((name for name in names if lowered.count(name.lower()) > 1), None)
    if twice is not None:
        raise TypeMismatch(f"The first line names the column {twice!r} twice.")


def _csv_block(
    text: bytes, lines: Int64s, broken: list[Broken], names: list[str], schema: StreamSchema, name: str
) -> Iterator[pa.Table]:
    invalid: list[csv.InvalidRow] = []

    def note(row: csv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    table = csv.read_csv(
        io.BytesIO(text),
        read_options=csv.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    lines = _as_many(lines, len(table) + len(invalid))
    # The rows that Arrow numbers are the header and the records, in order.
    skipped = [row.number - 2 for row in invalid]
    broken = broken + [
        (int(lines[number]), f"{row.actual_columns} values where {row.expected_columns} were expected", row.text)
        for number, row in zip(skipped, invalid, strict=True)
    ]
    yield _placed(table, name, np.delete(lines, skipped))
    if broken:
        yield _rejected(sorted(broken), schema, name)


def _json(block: bytes, schema: StreamSchema, name: str, line: int) -> Iterator[pa.Table]:
    try:
        if any(column.default is not None for column in schema.columns):
            raise pa.ArrowInvalid("Arrow does not tell a field that is null from one that is not there.")
        table = pa_json.read_json(
            io.BytesIO(block),
            read_options=pa_json.ReadOptions(block_size=len(block) + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=schema.declared, unexpected_field_behavior="error"),
        )
        yield _placed(table, name, _as_many(line_numbers(block, line), len(table)))
        return
    except pa.ArrowException:
        # Something in this block is not as the schema says: line by line, to find which.
        pass
    rows: list[dict[str, object]] = []
    lines: list[int] = []
    broken: list[Broken] = []
    for number, content in enumerate(block.split(b"\n"), line):
        if not content.strip():
            continue
        text = content.decode("utf-8", errors="backslashreplace").rstrip("\r")
        try:
            row = json.loads(text)
        except ValueError as error:
            broken.append((number, f"not JSON: {error}", text))
            continue
        if isinstance(row, dict):
            rows.append(row)
            lines.append(number)
        else:
            broken.append((number, "not a JSON object", text))
    if rows:
        yield _placed(rows_to_table(rows, schema), name, np.array(lines))
    if broken:
        yield _rejected(broken, schema, name)


def _rejected(broken: list[Broken], schema: StreamSchema, name: str) -> pa.Table:
    """Lines for the quarantine, with their reasons."""
    columns = {column.name: pa.nulls(len(broken)) for column in schema.columns}
    columns[REASON] = pa.array([reason for _, reason, _ in broken], pa.string())
    columns[RAW] = pa.array([text for _, _, text in broken], pa.string())
    return _placed(pa.table(columns), name, np.array([line for line, _, _ in broken]))


def _placed(table: pa.Table, name: str, lines: Int64s) -> pa.Table:
    """The table with the place of each row."""
    files = pa.DictionaryArray.from_arrays(from_numpy(np.zeros(len(table), dtype=np.int8)), pa.array([name]))
    numbers = from_numpy(lines.astype(np.int64))
    return table.append_column(FILE, files).append_column(LINE, pc.if_else(pc.equal(numbers, _UNKNOWN), None, numbers))


def _as_many(lines: Int64s, rows: int) -> Int64s:
    """The lines; unknown ones when Arrow saw other rows than we did (it ends a line at a lone carriage return too)."""
    return lines if len(lines) == rows else np.full(rows, _UNKNOWN)


def _line_blocks(file: BinaryIO, *, live: bool) -> Iterator[bytes]:
    """Blocks of whole lines."""
    rest = b""
    for chunk in _chunks(file, live=live):
        rest += chunk
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest.strip():
        yield rest + b"\n"


def _chunks(file: BinaryIO, *, live: bool) -> Iterator[bytes]:
    return _live_chunks(file) if live else iter(lambda: file.read(_BLOCK_BYTES), b"")


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
