"""Answers as programs and notebooks use them: rows as dictionaries, and HTML that data can't break."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ladle.answer import Answer

NOW = datetime(2026, 1, 30, tzinfo=UTC)


def answer(table: pa.Table, message: str | None = None) -> Answer:
    return Answer(table, 3, NOW, message=message)


def test_rows_are_dictionaries() -> None:
    rows = [{"symbol": f"S{number}", "n": number} for number in range(3_000)]
    found = answer(pa.concat_tables([pa.Table.from_pylist(rows[:10]), pa.Table.from_pylist(rows[10:])]))
    assert len(found) == 3_000
    assert list(found) == rows == found.to_pylist()
    assert found[0] == rows[0]
    assert found[-1]["symbol"] == "S2999"
    assert found[5:12] == rows[5:12]
    assert found[-2:] == rows[-2:]
    assert found[::-1] == rows[::-1]
    assert found[:0] == []
    assert rows[7] in found


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_row_that_is_not_there(number: int) -> None:
    with pytest.raises(IndexError, match="0 rows"):
        answer(pa.table({"n": pa.array([], pa.int64())}))[number]


def test_a_column_is_not_a_row() -> None:
    with pytest.raises(TypeError, match=re.escape("answer.table['n']")):
        answer(pa.table({"n": [1]}))["n"]  # type: ignore[call-overload]


def test_a_plan_and_a_statement_are_printed_whole() -> None:
    statement = f"CREATE FUNCTION f AS $$\n\treturn {'x' * 300}\x1b\n$$"
    assert str(answer(pa.table({"statement": [statement]}))).startswith(statement.replace("\x1b", "\\x1b") + "\n1 row")
    assert str(answer(pa.table({"plan": ["y" * 300, "  z"]}))).startswith("y" * 300 + "\n  z\n2 rows")
    assert "│" in str(answer(pa.table({"plan": ["y"], "n": [1]})))


def test_a_notebook_shows_the_first_rows() -> None:
    shown = answer(pa.table({"symbol": [f"S{n}" for n in range(1_000)], "n": range(1_000)}))._repr_html_()
    assert shown.count("<tr>") == 51
    assert ">S49<" in shown
    assert ">S50<" not in shown
    assert "first 50 of 1,000 rows" in shown
    assert "epoch 3, now 2026-01-30 00:00:00 UTC" in shown
    assert '<th style="text-align: right">n</th>' in shown


def test_a_notebook_shows_some_of_many_columns() -> None:
    shown = answer(pa.table({f"c{n}": [n] for n in range(300)}))._repr_html_()
    assert shown.count("<td") == 50
    assert "not shown: c50, c51" in shown


def test_data_is_escaped() -> None:
    bad = "<script>alert('x')</script>&\x1b[2J"
    shown = answer(pa.table({bad: [bad], "<b>": [None]}), message=bad)._repr_html_()
    assert "<script" not in shown
    assert "\x1b" not in shown
    assert "&lt;b&gt;" in shown
    assert "NULL" in shown


def test_a_statement_shows_what_it_did() -> None:
    assert answer(pa.table({}), "stream <s> created")._repr_html_() == "<p>stream &lt;s&gt; created</p>"


def test_a_long_value_is_cut() -> None:
    assert len(answer(pa.table({"t": ["x" * 100_000]}))._repr_html_()) < 1_000
