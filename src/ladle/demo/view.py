"""The live view: what `rich` draws, from a picture that the demo takes of the database twice a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from textwrap import wrap

import pyarrow as pa
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ladle.present import table_text

_BARS = " ▁▂▃▄▅▆▇█"
SPARK_WIDTH_MAX = 60
_SPARK_WIDTH_MIN = 10
_COVERAGE_WIDTH = 10
_ANSWER_LINES = 14
_ANSWER_LINES_MIN = 5
_WIDE_COLUMNS = 110
_ROOMY_LINES = 32


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
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=SPARK_WIDTH_MAX))
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
    answer: pa.Table | None = None
    as_of: str = ""
    late: bool = False


@dataclass
class DemoPicture:
    """All that the view shows."""

    title: str
    warehouse: str
    seconds: float = 0.0
    seconds_max: float | None = None
    epoch: int = 0
    streams: dict[str, StreamLine] = field(default_factory=dict)
    queries: dict[str, QueryLine] = field(default_factory=dict)
    """Those that are listed one by one."""
    queries_total: int = 0
    address: str = ""
    """Of the server, with the console."""
    shown: str | None = None
    events: deque[str] = field(default_factory=lambda: deque(maxlen=3))

    @property
    def has_rows(self) -> bool:
        """Whether any rows have come."""
        return any(line.rows for line in self.streams.values())


def render(picture: DemoPicture, *, width: int = 120, height: int = 40) -> RenderableType:
    """The view in so many columns and lines: what matters less gives way, and the answer gets what is left."""
    room = TerminalRoom(width, roomy=height >= _ROOMY_LINES)
    parts: list[RenderableType] = [
        _header(picture),
        _streams(picture.streams.values(), room),
        _queries(picture, room),
    ]
    used = 1 + sum((2 if room.roomy else 0) + 1 + len(lines) for lines in (picture.streams, picture.queries))
    if width < _WIDE_COLUMNS:
        used += sum(line.error is not None for line in picture.streams.values())
    events = list(picture.events)[-3 if room.roomy else -1 :]
    left = min(_ANSWER_LINES, height - used - len(events) - 1)
    if left >= _ANSWER_LINES_MIN:
        parts.append(_answer(picture, room, left))
    parts += [_line(event, "magenta") for event in events]
    parts.append(_next(picture, wide=width >= _WIDE_COLUMNS))
    return Group(*parts)


@dataclass(frozen=True)
class TerminalRoom:
    """What the terminal has room for."""

    width: int
    roomy: bool
    """Whether there are lines enough for frames."""

    def framed(self, content: RenderableType, title: str) -> RenderableType:
        """A table, which without a frame tells what it is by its heads."""
        if not self.roomy:
            return content
        return Panel(content, title=title, title_align="left", box=box.ROUNDED, border_style="dim", padding=(0, 0))


def spark_line(values: Iterable[float], width: int) -> str:
    """The last values as bars of eight heights; one that towers over the others is cut off."""
    last = list(values)[-width:]
    flowing = sorted(value for value in last if value > 0)
    if not flowing:
        return " " * width
    top = min(flowing[-1], 3 * flowing[len(flowing) // 2])
    bars = "".join(_BARS[0 if v <= 0 else min(8, max(1, round(v / top * 8)))] for v in last)
    return bars.rjust(width)


def coverage_bar(fraction: float, width: int = _COVERAGE_WIDTH) -> str:
    """A bar of a fixed width that shows how much is covered."""
    # Rounded down: a bar is full only when everything is covered.
    full = int(min(max(fraction, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def count_text(value: float) -> str:
    """12,345 as it is up to a million, then 1.23 M."""
    if value >= 1e9:
        return f"{value / 1e9:.2f} G"
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"


def _header(picture: DemoPicture) -> Table:
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
        Text.assemble(
            (f"{picture.queries_total:,}", "bold"),
            (" queries   epoch ", "dim"),
            (f"{picture.epoch:,}", "bold"),
            f"   {clock}   ",
            ("Ctrl-C ends", "dim"),
        ),
    )
    return line


def _streams(lines: Iterable[StreamLine], room: TerminalRoom) -> RenderableType:
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    # Narrow terminals leave out how a stream comes in; wide ones show more of its past.
    wide = room.width >= _WIDE_COLUMNS
    spark = max(_SPARK_WIDTH_MIN, min(SPARK_WIDTH_MAX, room.width - (100 if wide else 66)))
    table.add_column("stream", style="bold cyan", no_wrap=True)
    if wide:
        table.add_column("comes in through", no_wrap=True, ratio=1, overflow="ellipsis")
    for title in ("rows", "rows/s"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", style="green", no_wrap=True, width=spark)
    for title in ("epochs", "waiting", "quarantined"):
        table.add_column(title, justify="right", no_wrap=True)
    failed = []
    for line in lines:
        way = [Text(line.error, "red") if line.error else line.way] if wide else []
        table.add_row(
            line.name,
            *way,
            count_text(line.rows),
            f"{line.rate:,.0f}",
            spark_line(line.rates, spark),
            f"{line.epochs:,}",
            f"{line.waiting:,}" if line.waiting else "",
            Text(f"{line.quarantined:,}", "yellow") if line.quarantined else "",
        )
        if line.error and not wide:
            failed.append(_line(f"{line.name}: {line.error}", "red"))
    return room.framed(Group(table, *failed), "streams")


def _queries(picture: DemoPicture, room: TerminalRoom) -> RenderableType:
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    wide = room.width >= _WIDE_COLUMNS
    table.add_column("standing query", no_wrap=True)
    table.add_column("window", no_wrap=True)
    if wide:
        table.add_column("kept", no_wrap=True)
    table.add_column("covered", no_wrap=True, justify="left" if wide else "right")
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("answer now", ratio=1, no_wrap=True, overflow="ellipsis")
    for line in picture.queries.values():
        style = "bold magenta" if line.late else "bold cyan"
        name = Text(("▸ " if line.name == picture.shown else "  ") + line.name, style)
        table.add_row(
            name,
            line.window,
            *([line.mode] if wide else []),
            _coverage(line, wide=wide),
            "" if line.rows is None else f"{line.rows:,}",
            "" if line.rows is None else f"{line.took_ms:,.0f}",
            Text(line.headline),
        )
    return room.framed(table, "queries")


def _coverage(line: QueryLine, *, wide: bool) -> Text:
    if line.mode == "none":
        return Text("when asked" if wide else "", "dim")
    colour = "green" if line.coverage >= 1 else "yellow"
    percent = f"{int(line.coverage * 100):3d}%"
    return Text.assemble((coverage_bar(line.coverage), colour), f" {percent}") if wide else Text(percent, colour)


def _answer(picture: DemoPicture, room: TerminalRoom, height: int) -> RenderableType:
    """The answer of the query whose turn it is, framed or under a rule."""
    line = picture.queries.get(picture.shown or "")
    lines, width = (height - 2, room.width - 4) if room.roomy else (height - 1, room.width - 2)
    if line is None or not picture.has_rows:
        title, body, as_of, style = "answers", Text("waiting for the first rows", "dim"), None, "dim"
    else:
        title, body = f"{line.name}: {line.question}", _answer_body(line, lines, width)
        as_of, style = line.as_of or None, "magenta" if line.late else "cyan"
    if not room.roomy:
        head = Rule(Text(title, no_wrap=True, overflow="ellipsis"), align="left", style=style)
        return Group(head, Padding(body, (0, 1)))
    return Panel(
        body,
        title=title,
        title_align="left",
        subtitle=as_of,
        subtitle_align="right",
        box=box.ROUNDED,
        border_style=style,
        height=height,
    )


def _answer_body(line: QueryLine, lines: int, width: int) -> Text:
    """The statement, if there is room for it beside five rows, and as many rows as there is room for."""
    statement = wrap(line.sql, width)[: max(0, lines - 7)]
    if line.answer is None:
        shown = ["no answer yet"]
    else:
        rows = line.answer.slice(0, lines - len(statement) - 2)
        shown = table_text(rows, rows_max=len(rows), width=width, footer=False).splitlines()
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("".join(f"{part}\n" for part in statement), "dim")
    return text.append("\n".join(shown[: lines - len(statement)]))


def _next(picture: DemoPicture, *, wide: bool) -> Text:
    """Where to look, and what to type next; narrow terminals have room for the address and the command alone."""
    ways = (
        (("console:  ", picture.address), ("in another terminal:  ", f"ladle sql -w {picture.warehouse}"))
        if wide
        else (("", picture.address), ("", f"ladle sql -w {picture.warehouse}"))
    )
    text = Text(" ", no_wrap=True, overflow="ellipsis")
    for words, way in ways:
        if way:
            text.append(words, "dim").append(way).append("   ")
    return text.append("also: ladle top -w ..., ladle invoke movers -w ...", "dim") if wide else text


def _line(text: str, style: str) -> Text:
    return Text(f" {text}", style, no_wrap=True, overflow="ellipsis")
