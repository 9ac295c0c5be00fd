"""Answers on standard output: a table for people, CSV or JSON lines for programs."""

from __future__ import annotations

import argparse
import sys
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ladle.answer import Answer

FORMATS = ("table", "csv", "json")


def add_format(parser: argparse.ArgumentParser) -> None:
    """Give a command the option `--format`."""
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


def write_answer(answer: Answer, *, form: str, rows_max: int, header: bool = True) -> None:
    """Write one answer to standard output; of a statement that answers nothing, for people, what it did. CSV has a
    `header`, unless it goes on.
    """
    from ladle.formats.writing import json_lines, write_csv

    table = answer.table
    if table.num_columns == 0:
        if form == "table" and answer.message:
            sys.stdout.write(answer.message + "\n")
        return
    match form:
        case "csv":
            sys.stdout.flush()
            write_csv(table, _binary_stdout(), header=header)
        case "json":
            sys.stdout.writelines(json_lines(table))
        case _:
            from ladle.present import table_text, whole_text

            text = whole_text(table)
            sys.stdout.write((table_text(table, rows_max=rows_max or table.num_rows) if text is None else text) + "\n")
            if answer.message:
                sys.stdout.write(answer.message + "\n")


def _binary_stdout() -> IO[bytes]:
    return cast("IO[bytes]", getattr(sys.stdout, "buffer", sys.stdout))


def _row_count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count
