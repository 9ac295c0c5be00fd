"""Answers on standard output: a table for people, CSV or JSON lines for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from ladle.answer import Answer

FORMATS = ("table", "csv", "json")
_BATCH_ROWS = 10_000


def add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="table: for people (default); csv: with a header; json: one object a line",
    )
    parser.add_argument(
        "--rows",
        type=_row_count,
        default=40,
        metavar="N",
        help="how many rows a table shows (default 40, 0: all); csv and json always write all",
    )


def write_answer(answer: Answer, *, form: str, rows_max: int) -> None:
    """Write one answer to standard output; of a statement that answers nothing, for people, what it did."""
    table = answer.table
    if table.num_columns == 0:
        if form == "table" and answer.message:
            sys.stdout.write(answer.message + "\n")
        return
    if form == "table" and table.column_names == ["plan"]:
        # What EXPLAIN says is text, not a column to be cut to the terminal.
        sys.stdout.write("\n".join(table.column(0).to_pylist()) + "\n")
        return
    match form:
        case "csv":
            _write_csv(table)
        case "json":
            sys.stdout.writelines(_json_lines(table))
        case _:
            from ladle.present import table_text

            sys.stdout.write(table_text(table, rows_max=rows_max or table.num_rows) + "\n")
            if answer.message:
                sys.stdout.write(answer.message + "\n")


def _write_csv(table: pa.Table) -> None:
    import pyarrow as pa
    from pyarrow import csv

    flat = table
    for index, field in enumerate(table.schema):
        if not _csv_has(field.type):
            # Arrow writes no nested values or bytes into CSV; JSON's form of them is what a reader can parse.
            texts = [None if value is None else _json(value) for value in table.column(index).to_pylist()]
            flat = flat.set_column(index, field.name, pa.array(texts, pa.string()))
    sys.stdout.flush()
    csv.write_csv(flat, _binary_stdout())


def _csv_has(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return not (pa.types.is_nested(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _json_lines(table: pa.Table) -> Iterator[str]:
    """The lines of a few thousand rows at a time."""
    names = table.column_names
    encode = _encoder().encode
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        # By position, because an answer may have two columns of one name.
        columns = [_json_values(column) for column in batch.columns]
        rows = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
        yield "".join(f"{encode(row)}\n" for row in rows)


def _json_values(column: pa.Array) -> list[Any]:
    """Values that JSON has. Times go through Arrow: faster, and beyond the year 9999."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        return pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1).to_pylist()
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        # As Spark writes them; JSON has no numbers for these.
        words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return [words.get(repr(value), value) for value in column.to_pylist()]
    return column.to_pylist()


def _json(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else _encoder().encode(value)


def _encoder() -> json.JSONEncoder:
    from ladle.present import plain

    return json.JSONEncoder(default=plain, ensure_ascii=False)


def _binary_stdout() -> Any:
    return getattr(sys.stdout, "buffer", sys.stdout)


def _row_count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count
