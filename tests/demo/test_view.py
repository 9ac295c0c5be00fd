"""What the live view draws."""

from __future__ import annotations

import io

from rich.console import Console

from ladle.demo.view import Picture, QueryLine, StreamLine, count_text, coverage_bar, render, spark_line


def drawn(picture: Picture, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render(picture))
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
    picture = Picture("a test", "/tmp/lake", seconds=75, seconds_max=90, epoch=1_234)
    picture.streams["trades"] = StreamLine("trades", "files", rows=2_500_000, rate=600, quarantined=7)
    picture.streams["quotes"] = StreamLine("quotes", "pushed", error="the disk is full")
    picture.queries["movers"] = QueryLine(
        "movers", "the busiest", "SELECT 1", "sliding", "partial", 0.5, 3, 12.0, "symbol NVDA", "NVDA │ 7"
    )
    picture.queries["scans"] = QueryLine("scans", "who scans", "SELECT 2", "sliding", "none")
    picture.shown = "movers"
    picture.events.append("something happened")
    text = drawn(picture)
    for part in ("1,234", "1:15 of 1:30", "2.50 M", "600", "7", "the disk is full", "50%", "computed when asked"):
        assert part in text
    assert "▸ movers" in text
    assert "the busiest" in text
    assert "NVDA │ 7" in text
    assert "ladle sql -w /tmp/lake" in text
    assert "something happened" in text


def test_a_narrow_terminal_does_not_break_the_view() -> None:
    picture = Picture("a test", "/tmp/lake")
    picture.streams["trades"] = StreamLine("trades", "files")
    assert all(len(line) <= 50 for line in drawn(picture, width=50).splitlines())
