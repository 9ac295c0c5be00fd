"""The live view: what `rich` draws, from a picture that the demo takes of the database twice a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_BARS = " ▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 24
_COVERAGE_WIDTH = 10
_ANSWER_LINES = 12


@dataclass
class StreamLine:
    """A stream, as one line shows it."""

    name: str
    way: str
    rows: int = 0
    rate: float = 0.0
    epochs: int = 0
    quarantined: int = 0
    waiting: int = 0
    error: str | None = None
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=_SPARK_WIDTH))
    _noted: tuple[float, int] | None = None

    def note_rows(self, rows: int, seconds: float) -> None:
        """Take the count of rows; once a second, its growth becomes a bar of the spark line."""
        before, self.rows = self.rows, rows
        if self._noted is None or before == 0:
            # The first rows are history; as a bar they would dwarf what flows.
            self._noted = (seconds, rows)
        elif seconds - self._noted[0] >= 1:
            self.rates.append((rows - self._noted[1]) / (seconds - self._noted[0]))
            self._noted = (seconds, rows)


@dataclass
class QueryLine:
    """A standing query, as one line shows it."""

    name: str
    question: str
    sql: str
    window: str = ""
    mode: str = ""
    coverage: float = 0.0
    rows: int | None = None
    took_ms: float = 0.0
    headline: str = ""
    answer: str = ""
    as_of: str = ""
    late: bool = False


@dataclass
class Picture:
    """All that the view shows."""

    title: str
    warehouse: str
    seconds: float = 0.0
    seconds_max: float | None = None
    epoch: int = 0
    streams: dict[str, StreamLine] = field(default_factory=dict)
    queries: dict[str, QueryLine] = field(default_factory=dict)
    shown: str | None = None
    events: deque[str] = field(default_factory=lambda: deque(maxlen=3))


def render(picture: Picture, height: int = 40) -> RenderableType:
    """The view in `height` lines: in a low terminal the answer gets what is left."""
    parts: list[RenderableType] = [
        _header(picture),
        _next(picture),
        _streams(picture.streams.values()),
        _queries(picture),
    ]
    if picture.events:
        parts.append(_events(picture))
    used = 2 + len(picture.streams) + 3 + len(picture.queries) + 3 + len(picture.events)
    left = min(_ANSWER_LINES, height - used - 1)
    if left >= 4:
        parts.append(_answer(picture, left))
    return Group(*parts)


def spark_line(values: Iterable[float], width: int = _SPARK_WIDTH) -> str:
    """The last values as bars of eight heights; one that towers over the others is cut off."""
    last = list(values)[-width:]
    flowing = sorted(value for value in last if value > 0)
    if not flowing:
        return " " * width
    top = min(flowing[-1], 3 * flowing[len(flowing) // 2])
    bars = "".join(_BARS[0 if v <= 0 else min(8, max(1, round(v / top * 8)))] for v in last)
    return bars.rjust(width)


def coverage_bar(fraction: float, width: int = _COVERAGE_WIDTH) -> str:
    # Rounded down: a bar is full only when everything is covered.
    full = int(min(max(fraction, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def count_text(value: float) -> str:
    """12,345 as it is up to a million, then 1.23 M."""
    if value >= 1e9:
        return f"{value / 1e9:.2f} G"
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"


def _header(picture: Picture) -> Table:
    line = Table.grid(expand=True)
    line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    line.add_column(width=2)
    line.add_column(justify="right", no_wrap=True)
    clock = f"{int(picture.seconds) // 60}:{int(picture.seconds) % 60:02d}"
    if picture.seconds_max is not None:
        clock += f" of {int(picture.seconds_max) // 60}:{int(picture.seconds_max) % 60:02d}"
    line.add_row(
        Text.assemble((" Ladle ", "bold reverse"), f"  {picture.title}"),
        "",
        Text.assemble(("epoch ", "dim"), (f"{picture.epoch:,}", "bold"), f"   {clock}   ", ("Ctrl-C ends", "dim")),
    )
    return line


def _streams(lines: Iterable[StreamLine]) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    table.add_column("stream", style="bold cyan", no_wrap=True)
    table.add_column("comes in through", no_wrap=True, ratio=1, overflow="ellipsis")
    for title in ("rows", "rows/s"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", style="green", no_wrap=True, min_width=_SPARK_WIDTH)
    for title in ("epochs", "waiting", "quarantined"):
        table.add_column(title, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            line.name,
            Text(line.error, "red") if line.error else line.way,
            count_text(line.rows),
            f"{line.rate:,.0f}",
            spark_line(line.rates),
            f"{line.epochs:,}",
            f"{line.waiting:,}" if line.waiting else "",
            Text(f"{line.quarantined:,}", "yellow") if line.quarantined else "",
        )
    return Panel(table, title="streams", title_align="left", box=box.ROUNDED, border_style="dim", padding=(0, 0))


def _queries(picture: Picture) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    table.add_column("standing query", no_wrap=True)
    table.add_column("window", no_wrap=True)
    table.add_column("kept", no_wrap=True)
    table.add_column("covered", no_wrap=True, min_width=_COVERAGE_WIDTH + 5)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("answer now", ratio=1, no_wrap=True, overflow="ellipsis")
    for line in picture.queries.values():
        style = "bold magenta" if line.late else "bold cyan"
        name = Text(("▸ " if line.name == picture.shown else "  ") + line.name, style)
        table.add_row(
            name,
            line.window,
            line.mode,
            _coverage(line),
            "" if line.rows is None else f"{line.rows:,}",
            "" if line.rows is None else f"{line.took_ms:,.0f}",
            Text(line.headline),
        )
    return Panel(table, title="queries", title_align="left", box=box.ROUNDED, border_style="dim", padding=(0, 0))


def _coverage(line: QueryLine) -> Text:
    if line.mode == "none":
        return Text("computed when asked", "dim")
    colour = "green" if line.coverage >= 1 else "yellow"
    return Text.assemble((coverage_bar(line.coverage), colour), f" {int(line.coverage * 100):3d}%")


def _answer(picture: Picture, height: int) -> Panel:
    line = picture.queries.get(picture.shown or "")
    if line is None:
        return Panel(Text("waiting for the first tuples", "dim"), box=box.ROUNDED, border_style="dim", height=height)
    body = Text.assemble((line.sql, "dim"), "\n", line.answer or "no answer yet", overflow="ellipsis")
    return Panel(
        body,
        title=f"{line.name}: {line.question}",
        title_align="left",
        subtitle=line.as_of or None,
        subtitle_align="right",
        box=box.ROUNDED,
        border_style="magenta" if line.late else "cyan",
        height=height,
    )


def _events(picture: Picture) -> Text:
    """What happened."""
    lines = "\n".join(f" {event}" for event in picture.events)
    return Text(lines, "magenta", no_wrap=True, overflow="ellipsis")


def _next(picture: Picture) -> Text:
    """What to type next."""
    return Text.assemble(
        (" in another terminal:  ", "dim"),
        f"ladle sql -w {picture.warehouse}",
        ("   also: ladle invoke movers -w ..., ladle status -w ...", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
