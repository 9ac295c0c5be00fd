"""What `ladle top` shows: figures remembered from one look to the next, and how `rich` draws them in any terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ladle.demo.view import SPARK_WIDTH_MAX, count_text, coverage_bar, spark_line
from ladle.status import OperatorStatus, Pulse, QueryStatus, StreamStatus

QUERIES_MAX = 2_000
"""With more queries than these nobody asks for the status of each."""
_WIDE_COLUMNS = 110
_SPARK_WIDTH_MIN = 8
_EDDY_NAME_MAX = 16
_QUERY_LINES_MIN = 4


class SortOrder(Enum):
    """By what `ladle top` sorts the queries."""

    BUSY = "invocations"
    NAME = "name"


@dataclass(frozen=True)
class Scroll:
    """How the list of queries is looked at."""

    sort: SortOrder = SortOrder.BUSY
    first: int = 0


class Keystroke(Enum):
    """The keys that `ladle top` heeds."""

    QUIT = "quit"
    SORT = "sort"
    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"


_SEQUENCES = {
    "\x1b[A": Keystroke.UP, "\x1bOA": Keystroke.UP, "k": Keystroke.UP,
    "\x1b[B": Keystroke.DOWN, "\x1bOB": Keystroke.DOWN, "j": Keystroke.DOWN,
    "\x1b[5~": Keystroke.PAGE_UP, "\x1b[6~": Keystroke.PAGE_DOWN, " ": Keystroke.PAGE_DOWN,
    "\x1b[H": Keystroke.HOME, "\x1bOH": Keystroke.HOME, "\x1b[1~": Keystroke.HOME,
    "\x1b[F": Keystroke.END, "\x1bOF": Keystroke.END, "\x1b[4~": Keystroke.END,
    "q": Keystroke.QUIT, "Q": Keystroke.QUIT, "s": Keystroke.SORT, "S": Keystroke.SORT,
}  # fmt: skip


def keys_of(typed: str) -> list[Keystroke]:
    """The keys in what a terminal sent; what means nothing here is passed over."""
    keys, at = [], 0
    while at < len(typed):
        known = next((text for text in _SEQUENCES if typed.startswith(text, at)), None)
        if known is not None:
            keys.append(_SEQUENCES[known])
        at += len(known) if known is not None else _unknown_length(typed, at)
    return keys


def _unknown_length(typed: str, at: int) -> int:
    """How long a key is that is not ours: an escape sequence ends with a letter or a tilde."""
    if not typed.startswith(("\x1b[", "\x1bO"), at):
        return 1
    end = next((i for i in range(at + 2, len(typed)) if typed[i].isalpha() or typed[i] == "~"), len(typed) - 1)
    return end - at + 1


def pressed(scroll: Scroll, key: Keystroke, *, page: int, total: int) -> Scroll | None:
    """How the queries are looked at after a key, with `page` of `total` in view; None to end."""
    last = max(0, total - page)
    match key:
        case Keystroke.QUIT:
            return None
        case Keystroke.SORT:
            return Scroll(SortOrder.NAME if scroll.sort is SortOrder.BUSY else SortOrder.BUSY)
        case Keystroke.HOME:
            first = 0
        case Keystroke.END:
            first = last
        case Keystroke.UP | Keystroke.DOWN:
            first = scroll.first + (1 if key is Keystroke.DOWN else -1)
        case Keystroke.PAGE_UP | Keystroke.PAGE_DOWN:
            first = scroll.first + (max(1, page) if key is Keystroke.PAGE_DOWN else -max(1, page))
    return replace(scroll, first=min(max(0, first), last))


@dataclass
class Overview:
    """What was seen last, and of what was seen before what rates need."""

    place: str
    pulse: Pulse | None = None
    queries: tuple[QueryStatus, ...] | None = None
    """None if there are too many to ask for each."""
    trouble: str | None = None
    per_second: float | None = None
    """Invocations; None until there are two looks."""
    query_rates: dict[str, float] = field(default_factory=dict)
    stream_rates: dict[str, deque[float]] = field(default_factory=dict)
    _seen_at: float = 0.0

    def take(self, pulse: Pulse, queries: tuple[QueryStatus, ...] | None, at: float) -> None:
        """A look at the time `at`, in seconds of any clock."""
        before, seconds = self.pulse, at - self._seen_at
        if before is not None and seconds > 0:
            # Counts begin anew when the process does.
            self.per_second = max(0, pulse.invocations - before.invocations) / seconds
            known = {query.name: query.invocations for query in self.queries or ()}
            self.query_rates = {
                query.name: max(0, query.invocations - known.get(query.name, 0)) / seconds for query in queries or ()
            }
            rows = {stream.name: stream.rows for stream in before.streams}
            for stream in pulse.streams:
                rates = self.stream_rates.setdefault(stream.name, deque(maxlen=SPARK_WIDTH_MAX))
                rates.append(max(0, stream.rows - rows.get(stream.name, stream.rows)) / seconds)
        self.pulse, self.queries, self.trouble, self._seen_at = pulse, queries, None, at

    def sorted_queries(self, sort: SortOrder) -> list[QueryStatus]:
        """The queries in the order in which they are shown."""
        queries = list(self.queries or ())
        if sort is SortOrder.NAME:
            return sorted(queries, key=lambda query: query.name.lower())
        return sorted(queries, key=lambda q: (-self.query_rates.get(q.name, 0.0), -q.invocations, q.name.lower()))


@dataclass(frozen=True)
class Frame:
    """How many lines of the terminal go to what."""

    streams: int
    eddies: int
    queries: int
    """Lines of queries, without heads."""


def share_out(overview: Overview, height: int) -> Frame:
    """Streams first, then what the queries need at least, then the eddies; the queries take what is left."""
    pulse = overview.pulse
    if pulse is None:
        return Frame(0, 0, 0)
    fixed = 2 + 1 + 1 + (overview.trouble is not None)  # header and totals, the heads of streams and queries
    left = max(0, height - fixed)
    wanted = len(pulse.streams)
    streams = min(wanted, max(1, left - _QUERY_LINES_MIN), max(4, left // 3))
    left -= streams + (streams < wanted)
    visited = sum(1 for operators in pulse.operators.values() if operators)
    eddies = min(visited, max(0, left - _QUERY_LINES_MIN - 1), max(4, left // 3))
    left -= eddies + 1 if eddies else 0
    return Frame(streams, eddies, max(0, left - 1))  # a line says which queries are in view


def render(overview: Overview, scroll: Scroll, *, width: int, height: int) -> RenderableType:
    """The view in so many columns and lines."""
    pulse = overview.pulse
    parts: list[RenderableType] = [_header(overview)]
    if overview.trouble is not None:
        parts.append(_line(overview.trouble, "red"))
    if pulse is None:
        return Group(*parts)
    frame = share_out(overview, height)
    parts += [_totals(overview, pulse), _streams(overview, pulse, frame.streams, width)]
    if frame.streams < len(pulse.streams):
        parts.append(_line(f"and {len(pulse.streams) - frame.streams:,} streams with less flow", "dim"))
    if frame.eddies:
        parts.append(_eddies(pulse, frame.eddies, width))
    if overview.queries is None:
        parts.append(_line(f"{pulse.queries:,} queries: too many to list each ({QUERIES_MAX:,} at most)", "dim"))
    else:
        parts += _queries(overview, scroll, frame.queries, width)
    return Group(*parts)


def _header(overview: Overview) -> Table:
    line = Table.grid(expand=True)
    line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    line.add_column(justify="right", no_wrap=True)
    epoch = "" if overview.pulse is None else f"{overview.pulse.epoch:,}"
    line.add_row(
        Text.assemble((" Ladle ", "bold reverse"), f"  {overview.place}"),
        Text.assemble(
            ("  epoch ", "dim"), (epoch, "bold"), f"   {datetime.now(UTC):%H:%M:%S} UTC   ", ("q quits, s sorts", "dim")
        ),
    )
    return line


def _totals(overview: Overview, pulse: Pulse) -> Text:
    text = Text(" ", no_wrap=True, overflow="ellipsis")
    rate = "" if overview.per_second is None else f" ({overview.per_second:,.0f}/s)"
    looked = pulse.cache_hits + pulse.cache_misses
    figures = [
        ("queries", f"{pulse.queries:,}"),
        ("invocations", f"{count_text(pulse.invocations)}{rate}"),
        ("rows/s", f"{sum(stream.rows_per_second for stream in pulse.streams):,.0f}"),
    ]
    if pulse.subscribers is not None:
        figures.append(("subscribers", f"{pulse.subscribers:,}"))
    if looked:
        figures.append(("from memory", f"{int(100 * pulse.cache_hits / looked)}%"))
    for name, value in figures:
        text.append(f"{name} ", "dim").append(value, "bold").append("   ")
    return text


def _streams(overview: Overview, pulse: Pulse, lines: int, width: int) -> Table:
    table = _table()
    spark = max(_SPARK_WIDTH_MIN, min(SPARK_WIDTH_MAX, width - 76))
    table.add_column("stream", style="bold cyan", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("rows/s", justify="right", no_wrap=True)
    table.add_column("", style="green", no_wrap=True, width=spark)
    for title in ("rows", "epochs", "pending", "quarantined"):
        table.add_column(title, justify="right", no_wrap=True)
    failing = {source.stream for source in pulse.sources if source.error}
    for stream in _flowing_most(pulse.streams, lines):
        wrong = stream.error is not None or stream.name in failing
        table.add_row(
            Text(stream.name, "bold red" if wrong else "bold cyan"),
            f"{stream.rows_per_second:,.0f}",
            spark_line(overview.stream_rates.get(stream.name, ()), spark),
            count_text(stream.rows),
            f"{stream.epochs:,}",
            f"{stream.pending:,}" if stream.pending else "",
            Text(f"{stream.quarantined:,}", "yellow") if stream.quarantined else "",
        )
    return table


def _flowing_most(streams: Sequence[StreamStatus], lines: int) -> Sequence[StreamStatus]:
    """All in their order if there is room, else those with most flow."""
    if len(streams) <= lines:
        return streams
    return sorted(streams, key=lambda stream: -stream.rows_per_second)[:lines]


def _eddies(pulse: Pulse, lines: int, width: int) -> Table:
    table = _table()
    table.add_column("eddy", style="bold cyan", no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column("shares of the tickets, in the order of visits", no_wrap=True, overflow="ellipsis", ratio=1)
    for name, operators in [each for each in pulse.operators.items() if each[1]][:lines]:
        table.add_row(name, _tickets(operators, bar=12 if width >= _WIDE_COLUMNS else 5))
    return table


def _tickets(operators: Iterable[OperatorStatus], bar: int) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for each in operators:
        name = each.name if len(each.name) <= _EDDY_NAME_MAX else each.name[: _EDDY_NAME_MAX - 1] + "…"
        text.append(f"{name} ").append(coverage_bar(each.tickets, bar), "green").append(f" {each.tickets:.0%}   ")
    return text


def _queries(overview: Overview, scroll: Scroll, lines: int, width: int) -> list[RenderableType]:
    table = _table()
    table.add_column("query", style="bold cyan", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("window", no_wrap=True, overflow="ellipsis", max_width=20)
    table.add_column("mode", no_wrap=True)
    table.add_column("covered", no_wrap=True)
    table.add_column("invocations", justify="right", no_wrap=True)
    table.add_column("per s", justify="right", no_wrap=True)
    found = overview.sorted_queries(scroll.sort)
    first = min(scroll.first, max(0, len(found) - lines))
    shown = found[first : first + lines]
    for query in shown:
        rate = overview.query_rates.get(query.name)
        table.add_row(
            Text(query.name, "bold red" if query.error else "bold cyan"),
            query.window,
            query.mode or query.materialize,
            _covered(query, wide=width >= _WIDE_COLUMNS),
            count_text(query.invocations),
            "" if rate is None else f"{rate:,.1f}",
        )
    by = "invocations per second" if scroll.sort is SortOrder.BUSY else "name"
    where = f"{first + 1:,} to {first + len(shown):,} of {len(found):,} queries" if shown else f"{len(found):,} queries"
    return [table, _line(f"{where}, by {by}", "dim")]


def _covered(query: QueryStatus, *, wide: bool) -> Text:
    if query.mode == "none":
        return Text("when asked", "dim")
    colour = "green" if query.coverage >= 1 else "yellow"
    percent = f"{int(query.coverage * 100):3d}%"
    return Text.assemble((coverage_bar(query.coverage), colour), f" {percent}") if wide else Text(percent, colour)


def _table() -> Table:
    return Table(box=None, expand=True, padding=(0, 1), header_style="dim")


def _line(text: str, style: str) -> Text:
    return Text(f" {text}", style, no_wrap=True, overflow="ellipsis")
