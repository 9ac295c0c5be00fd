"""What the live view draws."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from rich.console import Console

from ladle.demo.run import closing_text, headline
from ladle.demo.scenario import LATE, STREAMS, standing_queries
from ladle.demo.view import DemoPicture, QueryLine, StreamLine, count_text, coverage_bar, render, spark_line


def drawn(picture: DemoPicture, width: int = 120, height: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render(picture, width=width, height=height))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_a_spark_line_scales_to_its_highest_value() -> None:
    assert spark_line([0, 1, 4, 8], width=4) == " ▁▄█"
    assert spark_line([], width=3) == "   "
    # A burst does not flatten the rest.
    assert spark_line([100, 2, 2, 2, 2], width=5) == "█▃▃▃▃"
    assert spark_line(range(100), width=5)[-1] == "█"


def test_a_coverage_bar_is_full_only_at_the_end() -> None:
    assert coverage_bar(0.999, width=4) == "███░"
    assert coverage_bar(1.0, width=4) == "████"


def test_counts() -> None:
    assert [count_text(n) for n in (0, 999_999, 1_234_567, 5e9)] == ["0", "999,999", "1.23 M", "5.00 G"]


def test_the_view_shows_streams_queries_the_answer_and_what_to_type() -> None:
    picture = DemoPicture("a test", "/tmp/lake", seconds=75, seconds_max=90, epoch=1_234)
    picture.streams["trades"] = StreamLine("trades", "files", rows=2_500_000, rate=600, quarantined=7)
    picture.streams["quotes"] = StreamLine("quotes", "pushed", error="the disk is full")
    picture.queries["movers"] = QueryLine(
        "movers", "the busiest", "SELECT 1", "sliding", "partial", 0.5, 3, 12.0, "symbol NVDA",
        pa.table({"symbol": ["NVDA"], "n": [7]}),
    )  # fmt: skip
    picture.queries["scans"] = QueryLine("scans", "who scans", "SELECT 2", "sliding", "none")
    picture.shown = "movers"
    picture.events.append("something happened")
    text = drawn(picture)
    for part in ("1,234", "1:15 of 1:30", "2.50 M", "600", "7", "the disk is full", "50%", "when asked"):
        assert part in text
    assert "▸ movers" in text
    assert "the busiest" in text
    assert "NVDA   │ 7" in text
    assert "ladle sql -w /tmp/lake" in text
    assert "something happened" in text


def test_a_narrow_terminal_does_not_break_the_view() -> None:
    picture = DemoPicture("a test", "/tmp/lake")
    picture.streams["trades"] = StreamLine("trades", "files")
    assert all(len(line) <= 50 for line in drawn(picture, width=50).splitlines())


def full_picture() -> DemoPicture:
    """Every stream and query of the demonstration, with as much to show as there can be."""
    picture = DemoPicture(
        "real market, real building, real network", "/tmp/ladle-demo-abc/warehouse", 75, 90, epoch=412
    )
    picture.queries_total, picture.address = 1_001, "http://127.0.0.1:8642"
    for name in STREAMS:
        picture.streams[name] = StreamLine(name, "Spark file source (Parquet)", 999_999, 20_576, 1_234, 398, 12)
        picture.streams[name].rates.extend(range(1, 61))
    answer = pa.table({"symbol": ["NVDA", "TSLA", "AAPL", "MSFT", "AMZN"], "shares": [123_456] * 5})
    for standing in (*standing_queries(datetime(2026, 1, 31, tzinfo=UTC)), LATE):
        picture.queries[standing.name] = QueryLine(
            standing.name, standing.question, standing.sql, "landmark", standing.materialize, 1.0, 5, 123.0,
            headline(answer), answer, "epoch 411, now 12:33:12 UTC",
        )  # fmt: skip
    picture.shown = "movers"
    picture.events.extend(["one " * 50, "two " * 50, "three " * 50])
    return picture


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 50), (100, 30), (110, 32), (140, 40), (220, 24)])
def test_everything_fits_into_the_terminal(width: int, height: int) -> None:
    lines = drawn(full_picture(), width, height).splitlines()
    assert len(lines) <= height
    assert max(len(line) for line in lines) <= width
    text = "\n".join(lines)
    for name in (*STREAMS, *full_picture().queries):
        assert name in text
    # Whole numbers, no heads cut to a letter, and an answer with its first rows.
    for part in ("999,999", "20,576", "1,234", "398", "100%", "covered", "quarantined", "1:15 of 1:30", "three three"):
        assert part in text
    assert "ladle sql -w /tmp/ladle-demo-abc/warehouse" in text
    assert "http://127.0.0.1:8642" in text
    assert "1,001 queries" in text
    assert "symbol │ shares" in text
    assert "AAPL   │ 123456" in text


def test_a_wide_terminal_shows_more() -> None:
    narrow, wide = drawn(full_picture(), 80, 24), drawn(full_picture(), 140, 40)
    assert "Spark file source (Parquet)" in wide
    assert "kept" in wide
    assert "symbol NVDA, shares 123456" in wide
    assert "SELECT symbol, count(*)" in wide
    bars = [sum(char in "▁▂▃▄▅▆▇█" for char in text.splitlines()[row]) for text, row in ((narrow, 2), (wide, 3))]
    assert bars[1] >= 2 * bars[0] > 0


def test_before_the_first_rows_it_says_that_it_waits() -> None:
    picture = full_picture()
    for line in picture.streams.values():
        line.rows = 0
    assert "waiting for the first rows" in drawn(picture, 80, 24)
    assert "waiting for the first rows" not in drawn(full_picture(), 80, 24)


def test_the_closing_words() -> None:
    assert closing_text(full_picture(), [5.0, 1.0, 30.0]).splitlines() == [
        "1:15: 4.00 M rows in 4 streams, 412 epochs, 1,592 rows quarantined",
        "1,001 standing queries gave 3 answers, half in 5 ms or less",
    ]
    assert "half in 0.312 ms or less" in closing_text(full_picture(), [0.3119])
    assert "answers" not in closing_text(full_picture(), [])
