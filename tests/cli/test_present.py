"""Tables in the terminal."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from ladle.present import clip, table_text, text_width


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    table = pa.table({"symbol": ["IBM", "BKNG"], "price": [9.5, 3890.25]})
    assert table_text(table, width=80).splitlines() == [
        "symbol │   price",
        "───────┼────────",
        "IBM    │     9.5",
        "BKNG   │ 3890.25",
        "(2 rows)",
    ]


def test_only_the_first_rows_are_shown_and_the_rest_is_counted() -> None:
    text = table_text(pa.table({"n": list(range(1000))}), rows_max=3)
    assert text.splitlines()[-1] == "(first 3 of 1,000 rows)"
    assert len(text.splitlines()) == 2 + 3 + 1


def test_without_footer_the_count_is_told_only_when_rows_are_left_out() -> None:
    table = pa.table({"n": [1, 2]})
    assert "rows" not in table_text(table, footer=False)
    assert "(first 1 of 2 rows)" in table_text(table, rows_max=1, footer=False)


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (pa.array([None], pa.int32()), "NULL"),
        (pa.array([True]), "true"),
        (pa.array([0.1 + 0.2]), "0.3"),
        (pa.array([Decimal("10.50")]), "10.50"),
        (pa.array([b"\x01\xff"]), "X'01FF'"),
        (pa.array([date(2026, 1, 31)]), "2026-01-31"),
        (pa.array([1_700_000_000_500_000], pa.timestamp("us", "UTC")), "2023-11-14 22:13:20.5"),
        (pa.array([1_700_000_000_000_000], pa.timestamp("us")), "2023-11-14 22:13:20"),
        # Beyond the year 9999, where Python's datetime ends.
        (pa.array([300_000_000_000_000_000], pa.timestamp("us", "UTC")), "11476-08-15 05:20:00"),
        (pa.array([{"a": [1, None]}]), '{"a": [1, null]}'),
    ],
)
def test_values_of_each_type(array: pa.Array, shown: str) -> None:
    assert table_text(pa.table({"v": array})).splitlines()[2].strip() == shown


def test_control_characters_of_the_data_do_not_reach_the_terminal() -> None:
    text = table_text(pa.table({"a\x1b]0;title\x07": ["\x1b[2J gone\nnext\r"]}))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[2J gone\\nnext\\r" in text


@pytest.mark.parametrize("width", [20, 40, 60, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    table = pa.table({f"column_{i}": ["some rather long text " * 3, "漢字かな" * 9] for i in range(9)})
    lines = table_text(table, width=width).splitlines()
    assert all(text_width(line) <= width for line in lines[:-1])


def test_columns_that_have_no_room_are_named() -> None:
    table = pa.table({f"column_{i}": ["some rather long text"] for i in range(9)})
    lines = table_text(table, width=40).splitlines()
    assert lines[0].endswith("│ …")
    assert lines[-1].endswith("column_8)")


def test_wide_characters_are_cut_at_whole_characters() -> None:
    assert clip("漢字かな", 5) == "漢字…"
    assert text_width(clip("漢字かな", 5)) == 5


def test_an_answer_without_columns_has_only_a_count() -> None:
    assert table_text(pa.table({})) == "(0 rows)"


def test_nothing_heavy_is_loaded() -> None:
    code = "import sys, ladle.present; print([m for m in ('rich', 'pandas', 'pyspark', 'duckdb') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
