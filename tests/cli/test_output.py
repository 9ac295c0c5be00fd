"""Answers for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ladle.answer import Answer
from ladle.cli.output import write_answer
from ladle.cli.watch import status_text
from ladle.status import SourceStatus, Status, StreamStatus


def written(table: pa.Table, form: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    write_answer(Answer(table, 1, datetime.now(UTC)), form=form, rows_max=10)
    return capsys.readouterr().out.splitlines()


def test_json_has_a_form_for_every_type(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table(
        {
            "t": pa.array([0, 300_000_000_000_000_000, None], pa.timestamp("us", "UTC")),
            "naive": pa.array([1, None, None], pa.timestamp("us")),
            "f": [1.5, float("nan"), float("-inf")],
            "b": [b"\x01", None, b""],
            "nested": [{"a": [1, 2]}, None, {"a": []}],
            "text": ['quote "', "ü", None],
        }
    )
    rows = [json.loads(line) for line in written(table, "json", capsys)]
    assert rows[0] == {
        "t": "1970-01-01T00:00:00.000000Z",
        "naive": "1970-01-01T00:00:00.000001",
        "f": 1.5,
        "b": "01",
        "nested": {"a": [1, 2]},
        "text": 'quote "',
    }
    assert rows[1]["t"].startswith("11476-08-15T")
    assert [row["f"] for row in rows] == [1.5, "NaN", "-Infinity"]
    assert rows[2]["text"] is None


def test_csv_writes_nested_values_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"n": [1, 2], "nested": [{"a": [1, None]}, None], "b": [b"\xff", None]})
    assert written(table, "csv", capsys) == ['"n","nested","b"', '1,"{""a"":[1,null]}","ff"', "2,,"]


def test_an_answer_of_many_batches_is_written_whole_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [pa.table({"n": list(range(i * 7_000, (i + 1) * 7_000))}) for i in range(5)]
    lines = written(pa.concat_tables(parts), "json", capsys)
    assert [json.loads(line)["n"] for line in lines] == list(range(35_000))


def test_explain_is_text_that_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    line = "x" * 500
    assert written(pa.table({"plan": [line, "  y"]}), "table", capsys) == [line, "  y"]
    statement = f"CREATE QUERY `q` AS\nSELECT {'x' * 200}"
    assert written(pa.table({"statement": [statement]}), "table", capsys) == statement.splitlines()
    # A column of a user's that has such a name is a column.
    assert written(pa.table({"plan": [1]}), "table", capsys)[0] == "plan"
    assert written(pa.table({"statement": ["a"]}), "table", capsys)[0] == "statement"


def test_the_error_of_a_source_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    error = f"A Spark job failed: {'no such file ' * 20}/data/{'x' * 80}.csv\x1b[2J"
    text = status_text(
        Status("w", 0, False, "running", sources=(SourceStatus("s", "f", "restarting", error, 3, None),))
    )
    said = text[text.index("source f of s:") :].splitlines()
    said = said[: next((number for number, line in enumerate(said) if not line), len(said))]
    assert "\x1b" not in text
    assert " ".join(line.strip() for line in said) == "source f of s: " + error.replace("\x1b", "\\x1b")
    assert all(len(line) <= 60 for line in said if "xxx" not in line)
    assert said[1].startswith("  ")


def test_streams_fit_a_terminal_and_tell_of_lateness_where_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    plain = StreamStatus("trades", 2, 2, 1, 0.0, datetime(2026, 1, 30, 14, 30, tzinfo=UTC), 0, 0, 1, 1_000)
    late = replace(plain, name="late", lateness_seconds=5.0)
    idle = replace(plain, name="silent", idle=True)

    def header(*streams: StreamStatus) -> list[str]:
        text = status_text(Status("w", 1, False, "running", streams=streams))
        return [title.strip() for title in text.splitlines()[2].split("│")]

    usual = ["stream", "rows", "retained", "rows/s", "epochs", "clock", "pending", "quarantined", "files", "MB"]
    assert header(plain) == usual, "nothing is cut"
    monkeypatch.setenv("COLUMNS", "120")
    assert {"lateness"} == set(header(plain, late)) - set(usual)
    assert {"idle"} == set(header(plain, idle)) - set(usual)
