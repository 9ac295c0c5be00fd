"""`ladle demo` from start to end: streams, standing queries, a late query, a view, and a clean stop."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from types import FrameType

import pyarrow as pa
from rich.console import Console
from rich.live import Live

import ladle
from ladle.archive.folder import local_folder
from ladle.config import Settings
from ladle.demo.crowd import crowd
from ladle.demo.flow import FileSink, Pump, Sink, choose_feeds, gateway_sink, push_sink
from ladle.demo.generators import Feed
from ladle.demo.replay import Trace
from ladle.demo.scenario import FILE_STREAMS, LATE, STREAMS, Standing, standing_queries
from ladle.demo.view import DemoPicture, QueryLine, StreamLine, count_text, render
from ladle.errors import LadleError, PipelineError, WarehouseError
from ladle.present import cells, table_text

_QUERIES = 1_000
"""Standing queries before the first tuple: those with a name in the view, and a crowd."""
_LISTED_MAX = 12
"""Queries that the view lists one by one: the named ones, and a few that others register."""
_CROWD_ASKED = 3
"""Answers of the crowd after each of a named query: some ten a second of either."""
_LATE_AFTER_SECONDS = 20.0
_VIEW_SECONDS = 0.5
_PLAIN_SECONDS = 5.0
_TURN_SECONDS = 5.0
_FIRST_ROWS_SECONDS_MAX = 180.0
_WAYS = {
    "trades": "Spark file source (Parquet)",
    "quotes": "pushed as Arrow tables",
    "sensors": "pushed as unchecked rows",
    "connections": "Spark file source (Parquet)",
}


def run_demo(
    warehouse: str | None,
    *,
    seconds: float | None,
    generated: bool,
    plain: bool,
    picture_file: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> int:
    """Run until the time is over or the user ends it; 0 either way."""
    console = Console()
    kept = None if warehouse is None else local_folder(warehouse).absolute()
    if kept is not None and kept.exists() and any(kept.iterdir()):
        raise WarehouseError(
            f"The demo wants a warehouse of its own, and '{warehouse}' is not empty.",
            hint="name a new folder, or leave -w out for a temporary one",
        )
    folder = Path(tempfile.mkdtemp(prefix="ladle-demo-"))
    try:
        with _terminated_as_interrupted():
            path = kept or folder / "warehouse"
            live = console.is_terminal and not plain
            demo = Demo(console, path, folder / "incoming", seconds=seconds, live=live, settings=settings)
            try:
                demo.run(choose_feeds(generated=generated), picture_file)
            except KeyboardInterrupt:
                console.print("stopped")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if warehouse is not None:
        console.print(f"The warehouse stays in {warehouse}.")
    return 0


class Demo:
    """One run of the demonstration."""

    def __init__(
        self,
        console: Console,
        path: Path,
        incoming: Path,
        *,
        seconds: float | None,
        live: bool,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._console = console
        self._path = path
        self._incoming = incoming
        self._seconds = seconds
        self._live = live
        self._settings = settings
        self._picture = DemoPicture("", str(path), seconds_max=seconds)
        self._standing: dict[str, Standing] = {}
        self._crowd: dict[str, str] = {}
        self._turn_until = 0.0
        self._closing = False

    def run(self, feeds: list[Feed], picture_file: str | None) -> None:
        """Run the demo until it is stopped, or its time is up."""
        self._picture.title = ", ".join(feed.description for feed in feeds)
        self._say(f"data: {self._picture.title}")
        if any(isinstance(feed, Trace) for feed in feeds):
            self._say("real data is replayed faster than it happened, with its times shifted to now")
        with _warnings_to(self._event), contextlib.ExitStack() as ending:
            db = ladle.connect(self._path, settings=self._settings)
            ending.callback(self._close, db)
            self._register(db)
            self._picture.address = ending.enter_context(served(db))
            self._say(f"console: {self._picture.address}/console/")
            pump = self._prepare(db, feeds)
            pump.start()
            asker = Asker(db, self._standing, self._crowd)
            try:
                self._watch(db, pump, asker)
            except KeyboardInterrupt:
                self._say(closing_text(self._picture, asker.took_ms))
                raise
            finally:
                pump.stop()
                if picture_file is not None:
                    save_picture(self._picture, picture_file)
            self._summary(db)
            self._say(closing_text(self._picture, asker.took_ms))
        self._say("done")

    def _close(self, db: ladle.Database) -> None:
        self._closing = True
        with self._busy("stopping the streams"):
            db.close()

    # -- the beginning --

    def _register(self, db: ladle.Database) -> None:
        for statement in STREAMS.values():
            db.sql(statement)
        queries = standing_queries(datetime.now(UTC))
        self._crowd = crowd(_QUERIES - len(queries))
        with self._busy(f"registering {_QUERIES:,} standing queries"):
            begin = time.perf_counter()
            named = {query.name: query.sql for query in queries if query.materialize == "partial"}
            db.register_many({**named, **self._crowd})
            for query in queries:
                if query.materialize != "partial":
                    db.register(query.sql, name=query.name, materialize=query.materialize)
                self._standing[query.name] = query
            seconds = time.perf_counter() - begin
        self._say(f"{_QUERIES:,} standing queries registered before the first tuple, in {seconds:.1f} s")

    def _prepare(self, db: ladle.Database, feeds: list[Feed]) -> Pump:
        with self._busy("starting Spark (about ten seconds)"):
            spark = db.spark
        self._say(f"Spark {spark.version} is up; warehouse: {self._path}")
        sinks: dict[str, Sink] = {
            "quotes": push_sink(db, "quotes", columns=["symbol", "bid", "bid_size", "ask", "ask_size", "exchange"]),
            "sensors": gateway_sink(db, "sensors"),
            **{name: FileSink(self._incoming / name) for name in FILE_STREAMS},
        }
        pump = Pump(feeds, sinks)
        with self._busy("starting the streams"):
            pump.put_history(time.time_ns() // 1_000, streams=("trades", "sensors", "connections"))
            for name, columns in FILE_STREAMS.items():
                files = spark.readStream.schema(columns).option("cleanSource", "delete")
                db.attach(name, files.parquet(str(self._incoming / name)), source="files")
        for name in STREAMS:
            self._picture.streams[name] = StreamLine(name, _WAYS[name])
        return pump

    # -- while it runs --

    def _watch(self, db: ladle.Database, pump: Pump, asker: Asker) -> None:
        asker.start()
        late = False
        try:
            with self._screen() as show:
                begin = self._await_rows(db, asker, pump, show)
                while self._seconds is None or time.monotonic() - begin < self._seconds:
                    self._picture.seconds = time.monotonic() - begin
                    if not late and self._late_is_due():
                        late = True
                        self._register_late(db)
                    self._look(db, asker, pump)
                    show()
                    time.sleep(_VIEW_SECONDS)
                if not late:
                    self._register_late(db)
                    self._look(db, asker, pump)
        finally:
            asker.stop()

    def _await_rows(self, db: ladle.Database, asker: Asker, pump: Pump, show: Callable[[], None]) -> float:
        """Wait until there are rows of every stream; the time of the demo runs from then on, and this is when."""
        waiting_since = time.monotonic()
        while True:
            self._look(db, asker, pump)
            show()
            lacking = [line.name for line in self._picture.streams.values() if not line.rows]
            if not lacking:
                return time.monotonic()
            if time.monotonic() - waiting_since > _FIRST_ROWS_SECONDS_MAX:
                why = [line.error for line in self._picture.streams.values() if line.error]
                raise PipelineError(
                    f"No rows of {', '.join(lacking)} came in {_FIRST_ROWS_SECONDS_MAX:.0f} seconds. "
                    f"{why[0] if why else ''}".rstrip(),
                    hint="is the machine busy, or its disk full?",
                )
            time.sleep(_VIEW_SECONDS)

    def _late_is_due(self) -> bool:
        due = _LATE_AFTER_SECONDS if self._seconds is None else min(_LATE_AFTER_SECONDS, self._seconds / 2)
        return self._picture.seconds >= due and self._picture.streams["trades"].rows > 0

    def _register_late(self, db: ladle.Database) -> None:
        """The point of it all: a query that comes after the data answers for the data."""
        self._standing[LATE.name] = LATE
        begin = time.perf_counter()
        query = db.register(LATE.sql, name=LATE.name)
        answer = query.invoke()
        took_ms = (time.perf_counter() - begin) * 1_000
        rows = count_text(self._picture.streams["trades"].rows)
        counted = sum(answer.table.column("blocks").to_pylist()) if len(answer) else 0
        self._event(
            f"{LATE.name} was registered after {rows} trades had arrived; {took_ms:,.0f} ms later it had answered "
            f"for all of them ({counted:,} blocks)"
        )
        self._show(LATE.name, 2 * _TURN_SECONDS)

    def _look(self, db: ladle.Database, asker: Asker, pump: Pump) -> None:
        status = db.status()
        self._picture.epoch = status.epoch
        failing = {source.stream: source.error for source in status.sources if source.error}
        for stream in status.streams:
            line = self._picture.streams.setdefault(stream.name, StreamLine(stream.name, ""))
            line.note_rows(stream.rows, self._picture.seconds)
            line.rate, line.epochs = stream.rows_per_second, stream.epochs
            line.quarantined, line.waiting = stream.quarantined, stream.pending
            line.error = failing.get(stream.name) or stream.error
        self._picture.queries_total = len(status.queries)
        for query in status.queries:
            standing = self._standing.get(query.name)
            if standing is None:
                # Other terminals may register queries of their own: a few of those are shown too.
                if query.name in self._crowd or len(self._standing) >= _LISTED_MAX:
                    continue
                standing = self._standing[query.name] = Standing(query.name, query.sql, "registered elsewhere")
            shown = self._picture.queries.setdefault(
                query.name,
                QueryLine(query.name, standing.question, standing.sql, late=query.name == LATE.name),
            )
            shown.window, shown.mode, shown.coverage = query.window, query.materialize, query.coverage
            asker.fill(shown)
        gone = set(self._picture.queries) - {query.name for query in status.queries}
        for name in gone:
            del self._picture.queries[name]
            self._standing.pop(name, None)
        if pump.error:
            self._event(pump.error)
        self._take_turns()

    def _take_turns(self) -> None:
        """Show another query's answer every few seconds."""
        names = list(self._picture.queries)
        if not names:
            self._picture.shown = None
        elif self._picture.seconds >= self._turn_until or self._picture.shown not in names:
            shown = self._picture.shown
            following = names.index(shown) + 1 if shown in names else 0
            self._show(names[following % len(names)], _TURN_SECONDS)

    def _show(self, name: str, seconds: float) -> None:
        self._picture.shown = name
        self._turn_until = self._picture.seconds + seconds

    @contextmanager
    def _screen(self) -> Iterator[Callable[[], None]]:
        if self._live:
            with Live(console=self._console, screen=True, auto_refresh=False) as live:
                size = self._console

                def draw() -> None:
                    live.update(render(self._picture, width=size.width, height=size.height), refresh=True)

                yield draw
            return
        said = [-_PLAIN_SECONDS]

        def show() -> None:
            if self._picture.has_rows and self._picture.seconds - said[0] >= _PLAIN_SECONDS:
                said[0] = self._picture.seconds
                self._say(progress_line(self._picture))

        yield show

    # -- the end --

    def _summary(self, db: ladle.Database) -> None:
        """The last answers, and what has been quarantined."""
        self._say(progress_line(self._picture))
        for name, standing in self._standing.items():
            answer = db.query(name).invoke()
            self._say(f"\n{name}: {standing.question}\n{table_text(answer.table, rows_max=5)}")
        bad = db.sql("SELECT reason, count(*) AS n FROM sensors.quarantine GROUP BY reason ORDER BY n DESC LIMIT 5")
        self._say(f"\nquarantined readings (SELECT * FROM sensors.quarantine):\n{table_text(bad.table)}")

    def _event(self, text: str) -> None:
        if self._closing:
            return
        if not self._picture.events or self._picture.events[-1] != text:
            self._picture.events.append(text)
            if not self._live:
                self._say(text)

    @contextmanager
    def _busy(self, text: str) -> Iterator[None]:
        """Something that takes seconds."""
        if not self._console.is_terminal:
            self._say(f"{text} ...")
            yield
            return
        with self._console.status(text):
            yield

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Asker:
    """A client beside the view: invokes the queries in turn, so that drawing never waits for an answer."""

    def __init__(self, db: ladle.Database, standing: dict[str, Standing], crowd: Iterable[str]) -> None:
        self._db = db
        self._standing = standing
        self._crowd = cycle(crowd)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[int, float, str, pa.Table | None, str]] = {}
        self.took_ms: list[float] = []
        """How long each answer took."""
        self._thread = threading.Thread(target=self._run, name="ladle-demo-asker", daemon=True)

    def start(self) -> None:
        """Begin to ask, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the answer that is under way."""
        self._stop.set()
        self._thread.join()

    def fill(self, line: QueryLine) -> None:
        """Put the last answer of a query into its line of the view."""
        with self._lock:
            known = self._answers.get(line.name)
        if known is not None:
            line.rows, line.took_ms, line.headline, line.answer, line.as_of = known

    def _run(self) -> None:
        while not self._stop.is_set():
            for name in list(self._standing):
                if self._stop.wait(0.1):
                    return
                known: tuple[int, float, str, pa.Table | None, str]
                try:
                    answer = self._db.query(name).invoke()
                    took_ms = answer.seconds * 1_000
                    self.took_ms.append(took_ms)
                    as_of = f"epoch {answer.epoch}, now {answer.now:%H:%M:%S} UTC"
                    known = (len(answer), took_ms, headline(answer.table), answer.table, as_of)
                except LadleError as error:
                    known = (0, 0.0, error.message, None, "")
                with self._lock:
                    self._answers[name] = known
                self._ask_the_crowd()

    def _ask_the_crowd(self) -> None:
        """The next few of the many: nobody looks at their answers here, but they are asked like the others."""
        for name in islice(self._crowd, _CROWD_ASKED):
            with contextlib.suppress(LadleError):
                self.took_ms.append(self._db.query(name).invoke().seconds * 1_000)


def headline(table: pa.Table) -> str:
    """The first row in a few words: `symbol NVDA, shares 12345`."""
    if not table.num_rows:
        return "nothing"
    first = table.slice(0, 1)
    return ", ".join(
        f"{name} {cells(column)[0]}" for name, column in zip(first.column_names, first.columns, strict=True)
    )


def progress_line(picture: DemoPicture) -> str:
    """What the demo prints in place of its view where there is no terminal."""
    streams = ", ".join(f"{line.name} {count_text(line.rows)}" for line in picture.streams.values())
    rate = sum(line.rate for line in picture.streams.values())
    kept = [line.coverage for line in picture.queries.values() if line.mode != "none"]
    covered = f", coverage {int(100 * sum(kept) / len(kept))}%" if kept else ""
    return (
        f"[{picture.seconds:4.0f} s] epoch {picture.epoch:,}: {streams} rows; {rate:,.0f} rows/s; "
        f"{picture.queries_total:,} queries{covered}"
    )


def closing_text(picture: DemoPicture, took_ms: Sequence[float]) -> str:
    """What it all came to, in a sentence or two."""
    rows = sum(line.rows for line in picture.streams.values())
    quarantined = sum(line.quarantined for line in picture.streams.values())
    lines = [
        f"{int(picture.seconds) // 60}:{int(picture.seconds) % 60:02d}: {count_text(rows)} rows in "
        f"{len(picture.streams)} streams, {picture.epoch:,} epochs, {count_text(quarantined)} rows quarantined"
    ]
    if took_ms:
        middle = sorted(took_ms)[len(took_ms) // 2]
        lines.append(
            f"{picture.queries_total:,} standing queries gave {len(took_ms):,} answers, half in {middle:.3g} ms or less"
        )
    return "\n".join(lines)


def save_picture(picture: DemoPicture, file: str) -> None:
    """The view as an SVG that needs nothing from the network, and keeps its spaces in every viewer."""
    console = Console(record=True, width=124, file=io.StringIO(), force_terminal=True)
    console.print(render(picture, width=124))
    svg = console.export_svg(title="ladle demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("<text ", '<text xml:space="preserve" ')
    svg = svg.replace("font-family: Fira Code, monospace", "font-family: Menlo, Consolas, DejaVu Sans Mono, monospace")
    Path(file).write_text(svg, encoding="utf-8")


@contextmanager
def served(db: ladle.Database) -> Iterator[str]:
    """The database over HTTP, at the usual port if that is free; gives the address."""
    from ladle.protocols.http.process import Server

    settings = Settings.load()
    try:
        server = Server(db, settings)
    except LadleError:
        server = Server(db, replace(settings, port=0))
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


@contextmanager
def _warnings_to(say: Callable[[str], None]) -> Iterator[None]:
    """What Ladle warns of goes into the view, and not across it."""

    class Sayer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage().splitlines()[0])

    sayer = Sayer(logging.WARNING)
    logger = logging.getLogger("ladle")
    logger.addHandler(sayer)
    try:
        yield
    finally:
        logger.removeHandler(sayer)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: cleanly."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.stdout.flush()
