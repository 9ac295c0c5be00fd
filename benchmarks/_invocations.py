"""What an answer costs: engine time and wall time, beside DuckDB and Polars from scratch on the same tuples."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._flow import create
from benchmarks._workload import START_US, Selection, named, source, tuples
from ladle.connection import connect
from ladle.engine import Database
from ladle.errors import LadleError

SLIDING = "count(*) AS n, sum(b) AS s, max(c) AS m"
"""What a query of W3 asks over the last 10 s."""
_SECOND_US = 1_000_000


@dataclass
class Times:
    """Seconds of each invocation."""

    engine: list[float] = field(default_factory=list)
    """As the answer says."""
    wall: list[float] = field(default_factory=list)
    """Around the call."""


@dataclass(frozen=True)
class Held:
    """A stream that is there already, and the queries on it."""

    stream: str
    files: tuple[Path, ...]
    """In the archive."""
    tuples: pa.Table
    """All of them, as they came."""

    def newest(self, count: int) -> pa.Table:
        """What a window of so many tuples holds."""
        return self.tuples.slice(len(self.tuples) - count)


def hold(db: Database, stream: str, inputs: Path, rows: int, odd_rows: int) -> Held:
    """Take in files and a few tuples more, so that no window ends where a segment does."""
    db.attach(stream, source(db.spark, inputs), available_now=True)
    files = len(list(inputs.iterdir()))
    # The last file's tuples end where the next begins: the few come right behind them.
    behind = tuples(rows, files).slice(0, odd_rows)
    db.push(stream, behind, wait=True)
    state = db.catalog.streams[stream]
    archive = db.path / "streams" / str(state.id) / "archive"
    everything = pa.concat_tables([*(pq.read_table(path) for path in sorted(inputs.iterdir())), behind])
    return Held(stream, tuple(archive / file.name for file in state.files), everything)


def invoke_all(db: Database, names: Sequence[str], rounds: int) -> Times:
    """Invoke every query in turn. The first round is not counted: it fills the caches."""
    times = Times()
    for number in range(rounds + 1):
        for name in names:
            began = time.perf_counter()
            answer = db.invoke(name)
            wall = time.perf_counter() - began
            if number:
                times.wall.append(wall)
                times.engine.append(answer.seconds)
    return times


class Scratch:
    """The tuples of a window in memory, and queries executed over them from scratch."""

    def __init__(self, table: pa.Table) -> None:
        import duckdb
        import polars as pl

        self._duckdb = duckdb.connect()
        self._duckdb.register("arriving", table)
        # DuckDB's own format is what it reads fastest.
        self._duckdb.execute("CREATE TABLE w AS SELECT * FROM arriving")
        self._duckdb.unregister("arriving")
        self._polars = pl.from_arrow(table)
        # DuckDB advises another call, which takes longer here.
        warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")

    def by_duckdb(self, selection: Selection, columns: str = "*") -> pa.Table:
        return self._duckdb.execute(selection.sql("w", columns=columns)).to_arrow_table()

    def one_row_by_duckdb(self, selection: Selection, columns: str) -> object:
        """What takes DuckDB least for one row."""
        return self._duckdb.execute(selection.sql("w", columns=columns)).fetchone()

    def by_polars(self, selection: Selection) -> Any:
        import polars as pl

        frame: Any = self._polars
        condition = pl.lit(True)
        for interval in selection.intervals:
            condition &= (pl.col(interval.column) > interval.low) & (pl.col(interval.column) <= interval.high)
        return frame.filter(condition)

    def close(self) -> None:
        self._duckdb.close()


def timed_each(call: Callable[[Selection], object], selections: Sequence[Selection], rounds: int) -> list[float]:
    """Seconds of each call; the first round is not counted."""
    seconds = []
    for number in range(rounds + 1):
        for selection in selections:
            began = time.perf_counter()
            call(selection)
            if number:
                seconds.append(time.perf_counter() - began)
    return seconds


def check_answers(db: Database, names: Sequence[str], expected: Sequence[pa.Table]) -> None:
    """Our answers are DuckDB's, as bags."""
    for name, other in zip(names, expected, strict=True):
        ours = db.invoke(name).table
        order = [(column, "ascending") for column in ours.column_names]
        if ours.sort_by(order).to_pylist() != other.sort_by(order).to_pylist():
            raise LadleError(f"Query {name} answers {len(ours):,} rows, which are not DuckDB's {len(other):,}.")


def while_flowing(db: Database, stream: str, inputs: Path, kinds: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Invocations per second of each kind of query, one thread, while the stream flows as fast as it can.

    Each kind has an equal share of the epochs. The first epoch warms up.
    """
    files = len(list(inputs.iterdir()))
    share = (files - 1) // len(kinds)
    attached = db.attach(stream, source(db.spark, inputs), source="files")
    _await_epochs(db, stream, 1, attached)
    rates = {}
    for number, (kind, names) in enumerate(kinds.items(), 1):
        for name in names:
            db.invoke(name)
        last = files if number == len(kinds) else 1 + number * share
        count = 0
        began = time.perf_counter()
        while db.catalog.streams[stream].epochs < last:
            for name in names:
                db.invoke(name)
            count += len(names)
        rates[kind] = count / (time.perf_counter() - began)
    attached.stop()
    return rates


def _await_epochs(db: Database, stream: str, epochs: int, attached: Any) -> None:
    while db.catalog.streams[stream].epochs < epochs:
        if attached.error is not None:
            raise LadleError(f"The source failed: {attached.error}")
        time.sleep(0.001)


def first_invocations(db: Database, held: Held, selections: Sequence[Selection]) -> dict[str, list[float]]:
    """Seconds of the first answer of a query that nothing was computed for, over all that is retained."""
    import duckdb

    seconds: dict[str, list[float]] = {"running": [], "just opened": [], "DuckDB": []}
    files = ", ".join(f"'{path}'" for path in held.files)
    for number, selection in enumerate(selections):
        text = selection.sql(held.stream)
        with duckdb.connect() as other:
            began = time.perf_counter()
            scanned: pa.Table = other.execute(selection.sql(f"read_parquet([{files}])")).to_arrow_table()
            seconds["DuckDB"].append(time.perf_counter() - began)
        with connect(db.path, read_only=True) as reader:
            seconds["just opened"].append(reader.sql(text).seconds)
        query = db.register(text, name=f"{held.stream}_first_{number}")
        answer = query.invoke()
        seconds["running"].append(answer.seconds)
        query.unregister()
        db.backfill()  # it may have begun for the query; the next one is measured with nothing beside it
        if len(scanned) != len(answer):
            raise LadleError(f"The first answer has {len(answer):,} rows, DuckDB's {len(scanned):,}.")
    return seconds


def sliding(db: Database, stream: str, inputs: Path, rows: int, selections: Sequence[Selection]) -> float:
    """W3: aggregates over the last 10 s, each read once a second of stream time; tuples per second times queries.

    Time runs from the first epoch's commit, whose answers are still to be read; its tuples are not counted.
    """
    create(db, stream)
    queries = named(selections, f"{stream} [RANGE 10 SECONDS]", prefix=f"{stream}_", columns=SLIDING)
    db.register_many(queries, materialize="partial")
    attached = db.attach(stream, source(db.spark, inputs), source="files")
    files = len(list(inputs.iterdir()))
    read_us = START_US
    began = 0.0
    for epochs in range(1, files + 1):
        _await_epochs(db, stream, epochs, attached)
        if epochs == 1:
            began = time.perf_counter()
        clock_us = db.catalog.streams[stream].clock_us
        assert clock_us is not None
        while read_us + _SECOND_US <= clock_us:
            read_us += _SECOND_US
            for name in queries:
                db.invoke(name, now=_moment(read_us))
    seconds = time.perf_counter() - began
    attached.stop()
    _check_sliding(db, queries, inputs, selections, read_us)
    db.drop_stream(stream, cascade=True)
    return (files - 1) * rows / seconds * len(queries)


def _check_sliding(
    db: Database, queries: Mapping[str, str], inputs: Path, selections: Sequence[Selection], read_us: int
) -> None:
    import duckdb

    begin, end = (_moment(at_us).isoformat() for at_us in (read_us - 10 * _SECOND_US, read_us))
    with duckdb.connect() as other:
        other.execute("SET TimeZone = 'UTC'")
        bounds = f"ts > TIMESTAMPTZ '{begin}' AND ts <= TIMESTAMPTZ '{end}'"
        scan = f"(SELECT * FROM read_parquet('{inputs}/*.parquet') WHERE {bounds})"
        for name, selection in zip(queries, selections, strict=True):
            expected = other.execute(selection.sql(scan, columns=SLIDING)).fetchone()
            found = tuple(db.invoke(name, now=_moment(read_us)).to_pylist()[0].values())
            if found != expected:
                raise LadleError(f"Sliding aggregate {name} is {found}; DuckDB says {expected}.")


def _moment(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)


def register_one_more(db: Database, source: str, selections: Sequence[Selection]) -> list[float]:
    """Seconds that a registration takes beside the many that stand already."""
    seconds = []
    for name, text in named(selections, source, prefix="one_more_").items():
        began = time.perf_counter()
        db.register(text, name=name)
        seconds.append(time.perf_counter() - began)
    return seconds
