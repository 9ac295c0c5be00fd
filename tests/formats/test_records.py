"""CSV cut into records: every line is accounted for once, whatever the quotes, and wherever the input is cut."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ladle.formats import records
from ladle.formats.records import Records, cut_records, line_numbers

COLUMNS = 2
VALUES = st.text(st.sampled_from('ab",\n '), max_size=6)


def whole(text: bytes) -> Records:
    return cut_records(text, 1, COLUMNS, final=True)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1))
def test_what_a_writer_of_csv_wrote_is_cut_where_it_began(rows: list[tuple[str, str]]) -> None:
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n")
    lines = []
    for row in rows:
        lines.append(written.getvalue().count("\n") + 1)
        writer.writerow(row)
    found = whole(written.getvalue().encode())
    assert found.lines.tolist() == lines
    assert found.text == written.getvalue().encode()
    assert found.broken == []


@given(st.text(st.sampled_from('a",\n'), max_size=40), st.integers(0, 40))
@example('"a,\na","\n', 4)
@example('"\n","\na,a\n', 2)
def test_no_line_is_lost_or_doubled_and_a_cut_anywhere_changes_nothing(text: str, at: int) -> None:
    data = text.encode() + b"\n"
    found = whole(data)
    assert found.used == len(data)
    places = [*found.lines.tolist(), *(line for line, _, _ in found.broken)]
    assert len(set(places)) == len(places)
    kept = found.text.replace(b"\n", b"") + b"".join(shown.encode() for _, _, shown in found.broken).replace(b"\n", b"")
    assert sorted(kept) == sorted(data.replace(b"\n", b""))
    first = cut_records(data[:at], 1, COLUMNS, final=False)
    line = 1 + data.count(b"\n", 0, first.used)
    rest = cut_records(data[first.used :], line, COLUMNS, final=True)
    assert first.text + rest.text == found.text
    assert [*first.lines, *rest.lines] == found.lines.tolist()
    assert first.broken + rest.broken == found.broken


@given(st.text(st.sampled_from('a",\n'), max_size=40))
def test_both_ways_of_cutting_agree(text: str) -> None:
    data = text.encode() + b"\n"
    regular = records._cut_regular(data, 1, COLUMNS)
    if regular is not None and regular.used == len(data):
        slow = records._cut_by_record(data, 1, COLUMNS, final=True)
        assert (slow.text, slow.lines.tolist(), slow.broken) == (regular.text, regular.lines.tolist(), [])


def test_a_line_without_end_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "QUOTED_BYTES_MAX", 10)
    found = cut_records(b'a,b\n"' + b"x" * 50, 1, COLUMNS, final=False)
    assert found.text == b"a,b\n"
    assert [line for line, _, _ in found.broken] == [2]
    assert found.used == 55


def test_numbers_of_lines_that_are_not_empty() -> None:
    assert line_numbers(b"a\n\r\n\nb\r\n", 10).tolist() == [10, 13]
