"""Answers on standard output: a table for people, CSV or JSON lines for programs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ladle.answer import Answer

FORMATS = ("table", "csv", "json")


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
    from ladle.formats.writing import json_lines, write_csv

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
            sys.stdout.flush()
            write_csv(table, _binary_stdout())
        case "json":
            sys.stdout.writelines(json_lines(table))
        case _:
            from ladle.present import table_text

            sys.stdout.write(table_text(table, rows_max=rows_max or table.num_rows) + "\n")
            if answer.message:
                sys.stdout.write(answer.message + "\n")


def _binary_stdout() -> Any:
    return getattr(sys.stdout, "buffer", sys.stdout)


def _row_count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count
