"""`ladle top`: what it counts, how it fits the terminal, and its keys."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.conftest import Run
from tests.cli.test_shell import Terminal

from ladle.cli.overview import QUERIES_MAX, Keystroke, Overview, Scroll, SortOrder, keys_of, pressed, render, share_out
from ladle.cli.top import Looking
from ladle.connection import serve as serve_socket
from ladle.status import OperatorStatus, Pulse, QueryStatus, StreamStatus
from ladle.testing import connect_inline


def stream(name: str, rows: int = 999_999, **more: object) -> StreamStatus:
    made = StreamStatus(name, rows, rows, 1_234, 20_576.0, None, 3, 398, 12, 1_000_000)
    return replace(made, **more)  # type: ignore[arg-type]


def pulse_of(streams: int = 4, queries: int = 50, invocations: int = 1_000) -> Pulse:
    made = tuple(stream(f"stream_{number}") for number in range(streams))
    operators = {
        each.name: (OperatorStatus("price", 0.75, 1.0, 0.5, 1e-7), OperatorStatus("size", 0.25, 0.5, 0.5, 1e-7))
        for each in made
    }
    return Pulse(412, queries, invocations, made, (), operators, 99, 1, subscribers=17)


def queries_of(count: int = 50, asked: int = 0) -> tuple[QueryStatus, ...]:
    return tuple(
        QueryStatus(
            f"query_{n:03d}", "SELECT 1", "auto", "sliding", 5, 10, n + (asked if n == 7 else 0), mode="partial"
        )
        for n in range(count)
    )


def full(streams: int = 4) -> Overview:
    overview = Overview("http://127.0.0.1:8642")
    overview.take(pulse_of(streams), queries_of(), 10.0)
    overview.take(pulse_of(streams, invocations=1_500), queries_of(asked=400), 12.0)
    return overview


def drawn(overview: Overview, scroll: Scroll = Scroll(), width: int = 80, height: int = 24) -> list[str]:  # noqa: B008
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render(overview, scroll, width=width, height=height))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text).splitlines()


def test_rates_come_from_two_looks() -> None:
    overview = Overview("here")
    overview.take(pulse_of(), queries_of(), 10.0)
    assert overview.per_second is None
    more = replace(pulse_of(invocations=1_500), streams=(stream("stream_0", 1_000_999),))
    overview.take(more, queries_of(asked=400), 12.0)
    assert overview.per_second == 250
    assert overview.query_rates["query_007"] == 200
    assert list(overview.stream_rates["stream_0"]) == [500.0]
    # A process that began anew counts from nought.
    overview.take(pulse_of(invocations=3), queries_of(), 13.0)
    assert overview.per_second == 0


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 50), (100, 30), (140, 40), (220, 24)])
def test_everything_fits_into_the_terminal(width: int, height: int) -> None:
    lines = drawn(full(), width=width, height=height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for part in ("stream_0", "stream_3", "20,576", "999,999", "1,234", "398", "412", "quarantined", "subscribers 17"):
        assert part in text
    for part in ("(250/s)", "price", "75%", "query_007", "200.0", "sliding", "partial", "50%", "of 50 queries"):
        assert part in text
    # The one asked most is the first, and the lines are used.
    assert text.index("query_007") < text.index("query_049")
    assert len(lines) >= min(height, 60) - 1


def test_many_streams_leave_room_for_the_queries() -> None:
    for height in (10, 24, 60):
        lines = drawn(full(streams=300), height=height)
        assert len(lines) <= height
        assert "streams with less flow" in "\n".join(lines)
    assert sum("query_" in line for line in drawn(full(streams=300))) >= 3


def test_a_hundred_thousand_queries_are_counted_and_not_listed() -> None:
    overview = Overview("here")
    overview.take(pulse_of(queries=100_000), None, 1.0)
    assert "100,000 queries: too many to list each" in "\n".join(drawn(overview))


def test_trouble_is_told_and_the_last_figures_stay() -> None:
    overview = full()
    overview.trouble = "The server does not answer."
    lines = drawn(overview)
    assert len(lines) <= 24
    assert "The server does not answer." in lines[1]
    assert "query_007" in "\n".join(lines)


def test_keys_of_what_a_terminal_sends() -> None:
    assert keys_of("sq") == [Keystroke.SORT, Keystroke.QUIT]
    assert keys_of("\x1b[A\x1b[B\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[F") == [
        Keystroke.UP, Keystroke.DOWN, Keystroke.DOWN, Keystroke.PAGE_UP,
        Keystroke.PAGE_DOWN, Keystroke.HOME, Keystroke.END,
    ]  # fmt: skip
    # Keys that mean nothing here are no part of another's.
    assert keys_of("x\x1b[1;5Cq\x1b[15~\x1b") == [Keystroke.QUIT]


def test_keys_scroll_sort_and_quit() -> None:
    def after(scroll: Scroll, *keys: Keystroke) -> Scroll:
        for key in keys:
            moved = pressed(scroll, key, page=10, total=25)
            assert moved is not None
            scroll = moved
        return scroll

    assert pressed(Scroll(), Keystroke.QUIT, page=10, total=25) is None
    assert after(Scroll(), Keystroke.DOWN, Keystroke.DOWN, Keystroke.UP).first == 1
    assert after(Scroll(), Keystroke.UP).first == 0
    assert after(Scroll(), Keystroke.PAGE_DOWN).first == 10
    assert after(Scroll(), Keystroke.PAGE_DOWN, Keystroke.PAGE_DOWN).first == 15
    assert after(Scroll(), Keystroke.END, Keystroke.PAGE_UP).first == 5
    assert after(Scroll(), Keystroke.END, Keystroke.HOME).first == 0
    assert after(Scroll(first=9), Keystroke.SORT) == Scroll(SortOrder.NAME)
    assert after(Scroll(SortOrder.NAME), Keystroke.SORT).sort is SortOrder.BUSY
    assert pressed(Scroll(), Keystroke.PAGE_DOWN, page=10, total=3) == Scroll()


def test_scrolling_shows_further_queries() -> None:
    overview = full()
    page = share_out(overview, 24).queries
    by_name = drawn(overview, Scroll(SortOrder.NAME))
    assert sum("query_" in line for line in by_name) == page
    assert "query_000" in "\n".join(by_name)
    last = drawn(overview, Scroll(SortOrder.NAME, first=1_000))
    assert "query_049" in "\n".join(last)
    assert f"{51 - page} to 50 of 50 queries, by name" in last[-1]


@pytest.mark.parametrize("writer", [True, False])
def test_one_view_of_a_warehouse(trades: Run, warehouse: Path, writer: bool) -> None:
    if writer:
        with connect_inline(warehouse) as db:
            serve_socket(db)
            db.invoke("dear")
            once = trades("top", "--once")
    else:
        once = trades("top", "--once")
    assert once.code == 0, once.err
    for part in (str(warehouse)[:40], "trades", "queries 1", "dear", "sliding", "1 to 1 of 1 queries"):
        assert part in once.out
    assert f"invocations {int(writer)}" in once.out
    assert "\x1b" not in once.out


def test_with_very_many_queries_none_is_asked_for() -> None:
    class Many:
        def pulse(self) -> Pulse:
            return pulse_of(queries=QUERIES_MAX + 1)

        def status(self) -> None:
            raise AssertionError("nobody asks for the status of each")

    looking, overview = Looking(None), Overview("here")  # type: ignore[arg-type]
    looking._db = Many()
    looking.look(overview)
    assert overview.queries is None


def test_the_live_view_heeds_keys_and_a_writer_that_goes(trades: Run, warehouse: Path) -> None:
    with connect_inline(warehouse) as db:
        serve_socket(db)
        terminal = Terminal([sys.executable, "-m", "ladle.cli", "top", "-w", str(warehouse)], {"LINES": "24"})
        try:
            terminal.wait_for("by invocations per second")
            terminal.type("s")
            terminal.wait_for("by name")
            db.close()
            # It goes on with the files.
            terminal.type("s")
            terminal.wait_for("by invocations per second")
            terminal.type("q")
            assert terminal.close() == 0
        finally:
            terminal.process.kill()
            terminal.process.wait()
