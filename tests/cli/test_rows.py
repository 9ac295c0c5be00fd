"""Rows from files and pipes, a block at a time."""

from __future__ import annotations

import io
import os
import threading
import time

import pyarrow as pa
import pytest

from ladle.cli import rows
from ladle.cli.rows import format_of, read_rows
from ladle.errors import LadleError
from ladle.schema import Column, StreamSchema

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
    monkeypatch.setattr(rows, "_BLOCK_BYTES", size)
    values = [f'line "{i}"\nof {i}' if i % 3 == 0 else f"v{i}" for i in range(50)]
    quoted = ['"' + value.replace('"', '""') + '"' for value in values]
    text = "a,n\r\n" + "".join(f"{value},{i}\r\n" for i, value in enumerate(quoted))
    tables = list(read_rows(io.BytesIO(b"\xef\xbb\xbf" + text.encode()), "csv", SCHEMA, live=False))
    table = pa.concat_tables(tables)
    assert table["a"].to_pylist() == values
    assert table["n"].to_pylist() == [str(i) for i in range(50)]


def test_a_last_line_without_a_line_break_counts() -> None:
    table = pa.concat_tables(read_rows(io.BytesIO(b'{"a": "x", "n": 1}\n{"a": "y"}'), "json", SCHEMA, live=False))
    assert table.to_pylist() == [{"a": "x", "n": 1}, {"a": "y", "n": None}]


def test_nothing_gives_nothing() -> None:
    for form in ("csv", "json"):
        assert list(read_rows(io.BytesIO(b""), form, SCHEMA, live=False)) == []
    assert list(read_rows(io.BytesIO(b"a,n\n"), "csv", SCHEMA, live=False)) == []


def test_rows_of_a_pipe_arrive_before_it_ends() -> None:
    reading, writing = os.pipe()
    seen: list[tuple[float, int]] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as file:
            for table in read_rows(file, "json", SCHEMA, live=True):
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
