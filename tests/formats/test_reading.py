"""Rows from files and pipes, a block at a time."""

from __future__ import annotations

import io
import os
import threading
import time

import pyarrow as pa
import pytest

from ladle.errors import LadleError
from ladle.formats import reading, records
from ladle.formats.reading import format_of, read_rows
from ladle.schema import Column, StreamSchema
from ladle.stem.intake import FILE, LINE, RAW, REASON

SCHEMA = StreamSchema((Column("a", pa.string()), Column("n", pa.int32())))


def test_the_format_follows_the_name_unless_told() -> None:
    assert [format_of(name, None) for name in ("x.CSV", "x.jsonl", "x.json", "x.parquet")] == [
        "csv",
        "json",
        "json",
        "parquet",
    ]
    assert format_of("-", "csv") == "csv"
    with pytest.raises(LadleError, match="not clear from its name") as caught:
        format_of("-", None)
    assert "--format csv" in str(caught.value)


@pytest.mark.parametrize("size", [7, 16, 64, 1 << 20])
def test_blocks_of_any_size_give_the_same_rows(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(reading, "_BLOCK_BYTES", size)
    values = [f'line "{i}"\nof {i}' if i % 3 == 0 else f"v{i}" for i in range(50)]
    quoted = ['"' + value.replace('"', '""') + '"' for value in values]
    text = "a,n\r\n" + "".join(f"{value},{i}\r\n" for i, value in enumerate(quoted))
    tables = list(read_rows(io.BytesIO(b"\xef\xbb\xbf" + text.encode()), "csv", SCHEMA, name="f", live=False))
    table = pa.concat_tables(tables)
    assert table["a"].to_pylist() == values
    assert table["n"].to_pylist() == [str(i) for i in range(50)]
    # A value over two lines moves those after it.
    assert table[LINE].to_pylist() == [2 + i + (i + 2) // 3 for i in range(50)]
    assert set(table[FILE].to_pylist()) == {"f"}


def test_a_last_line_without_a_line_break_counts() -> None:
    table = pa.concat_tables(
        read_rows(io.BytesIO(b'{"a": "x", "n": 1}\n{"a": "y"}'), "json", SCHEMA, name="f", live=False)
    )
    assert table.select(["a", "n", LINE]).to_pylist() == [{"a": "x", "n": 1, LINE: 1}, {"a": "y", "n": None, LINE: 2}]


def test_nothing_gives_nothing() -> None:
    for form in ("csv", "json"):
        assert list(read_rows(io.BytesIO(b""), form, SCHEMA, name="f", live=False)) == []
    (header,) = read_rows(io.BytesIO(b"a,n\n"), "csv", SCHEMA, name="f", live=False)
    assert (len(header), header.column_names[:2]) == (0, ["a", "n"])


def read(text: bytes, form: str = "csv") -> tuple[list[tuple[int | None, str]], list[tuple[int | None, str, str]]]:
    """Rows as (line, first value), and rejected ones as (line, reason, text)."""
    good, bad = [], []
    for table in read_rows(io.BytesIO(text), form, SCHEMA, name="f", live=False):
        for row in table.to_pylist():
            if row.get(REASON) is None:
                good.append((row[LINE], row["a"]))
            else:
                bad.append((row[LINE], row[REASON], row[RAW]))
    return good, bad


@pytest.mark.parametrize("size", [7, 1 << 20])
@pytest.mark.parametrize("rest", ["z,9\n" * 50, "z,9\n" * 50 + '"quoted, later",8\n' + "z,9\n" * 5])
def test_a_quote_that_is_not_closed_costs_its_line_alone(monkeypatch: pytest.MonkeyPatch, size: int, rest: str) -> None:
    monkeypatch.setattr(reading, "_BLOCK_BYTES", size)
    good, bad = read(('a,n\nx,1\n"two\nlines",2\n"open,3\ny,4\n' + rest).encode())
    assert good[:3] == [(2, "x"), (3, "two\nlines"), (6, "y")]
    assert [line for line, _ in good[3:]] == list(range(7, 7 + rest.count("\n")))
    assert bad == [(5, "a quote is opened here and not closed", '"open,3')]


def test_an_open_quote_that_ends_in_another_value_is_found_by_its_columns() -> None:
    # Closed by the first quote of `", b"`, where a comma follows: only the number of values is wrong.
    good, bad = read(b'a,n\n"open,1\ny,2\n", b",3\nz,4\n')
    assert good == [(3, "y"), (4, ", b"), (5, "z")]
    assert bad == [(2, "a quote is opened here and not closed", '"open,1')]


def test_an_open_quote_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "QUOTED_BYTES_MAX", 100)
    monkeypatch.setattr(reading, "_BLOCK_BYTES", 50)
    tables = iter(read_rows(io.BytesIO(b'a,n\n"open,1\n' + b"y,2\n" * 100), "csv", SCHEMA, name="f", live=False))
    before = [next(tables), next(tables)]
    # The rows after it come before the file ends.
    assert 0 < before[0].num_rows < 100
    assert before[1][LINE].to_pylist() == [2]
    assert sum(table.num_rows for table in (*before, *tables)) == 101


def test_quotes_inside_of_values_are_part_of_them() -> None:
    good, bad = read(b'a,n\n5" pipe,1\n"x"y,2\n3" pipe,3\n')
    assert good == [(2, '5" pipe'), (3, "xy"), (4, '3" pipe')]
    assert bad == []


def test_lines_count_empty_ones_and_broken_rows() -> None:
    good, bad = read(b"a,n\r\n\r\nx,1\r\n\r\nshort\r\ny,2\r\n")
    assert good == [(3, "x"), (6, "y")]
    assert bad == [(5, "1 values where 2 were expected", "short")]
    good, bad = read(b'{"a": "x"}\n\n{"a": "y"}\n{"a":\n[1]\n{"a": "z"}\n', "json")
    assert good == [(1, "x"), (3, "y"), (6, "z")]
    assert [(line, text) for line, _, text in bad] == [(4, '{"a":'), (5, "[1]")]
    # Arrow ends a row at a lone carriage return: lines that can't be told are not told.
    assert read(b"a,n\nx,1\ry,2\n") == ([(None, "x"), (None, "y")], [])


def test_rows_of_a_pipe_arrive_before_it_ends() -> None:
    reading, writing = os.pipe()
    seen: list[tuple[float, int]] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as file:
            for table in read_rows(file, "json", SCHEMA, name="f", live=True):
                seen.append((time.monotonic(), table.num_rows))

    thread = threading.Thread(target=read)
    thread.start()
    os.write(writing, b'{"n": 1}\n{"n": 2}\n{"n"')
    deadline = time.monotonic() + 10
    while not seen and time.monotonic() < deadline:
        time.sleep(0.01)
    ended = time.monotonic()
    os.write(writing, b": 3}\n")
    os.close(writing)
    thread.join(10)
    assert [count for _, count in seen] == [2, 1]
    assert seen[0][0] <= ended
