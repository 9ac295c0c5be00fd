"""The judge: DuckDB over every tuple ever pushed, with each window written out as a predicate.

It keeps its own copy of the data, its own clocks and its own idea of which rows are accepted, and reads queries
from the generator's tree. It shares no code with the engine: nothing of `ladle.sql`, `ladle.plan` or
`ladle.evaluate` is imported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from tests.support.generate import PushedRow, ahead_us
from tests.support.lacking import lacks
from tests.support.months import to_us
from tests.support.sampling import Hashes
from tests.support.tree import (
    ARRIVAL_NUMBER,
    ARRIVAL_TIME,
    NAIVE,
    ZONED,
    At,
    ColumnSpec,
    Query,
    StreamSpec,
    columns_of,
    duck_type,
    is_ordered,
    stream_names,
    to_duckdb,
)


@dataclass
class OracleStream:
    spec: StreamSpec
    high_us: int | None = None
    """The highest timestamp accepted, or heartbeat: the clock of the stream in the log."""
    accepted: int = 0
    quarantined: list[int] = field(default_factory=list)
    """When each row in quarantine arrived, by the wall clock."""
    tables: list[pa.Table] = field(default_factory=list)
    """Raw tuples as pushed, for another judge."""


@dataclass(frozen=True)
class Expected:
    columns: tuple[ColumnSpec, ...]
    rows: list[tuple[Any, ...]]
    ordered: bool
    now_us: int
    sql: str


class Oracle:
    def __init__(self) -> None:
        self._duck = duckdb.connect(config={"threads": 1})
        # DuckDB 2.0 refuses some BETWEEN of texts over its own tables when statistics make a CASE in it NULL; Ladle's
        # tables are Arrow's and have none.
        self._duck.execute("SET disabled_optimizers = 'statistics_propagation'")
        self.streams: dict[str, OracleStream] = {}
        self._answered: dict[str, pa.Table] = {}
        """What DuckDB answered to a text, until the tuples or tables change."""
        self._hashes = Hashes()
        self._clocks: list[dict[str, int]] = []
        """The clock of each stream that has tuples with times of their own, after each push and heartbeat."""

    def close(self) -> None:
        self._duck.close()

    def create(self, spec: StreamSpec, id_: int = 1) -> None:
        """With the id that the engine has given it: samples follow from that."""
        self._hashes.streams[spec.name] = id_
        self.streams[spec.name] = OracleStream(spec)
        columns = ", ".join(f'"{column.name}" {duck_type(column.type)}' for column in spec.columns)
        self._duck.execute(
            f'CREATE TABLE raw_{spec.name} ({columns}, "{ARRIVAL_NUMBER}" BIGINT, "{ARRIVAL_TIME}" TIMESTAMP)'
        )

    def push(self, name: str, rows: list[PushedRow], wall_us: int) -> None:
        """Take a batch: what fits is accepted, the rest is in quarantine."""
        stream = self.streams[name]
        spec = stream.spec
        good: list[tuple[dict[str, Any], int]] = []
        floor, late = self.floor(name, wall_us), None
        if spec.lateness is not None and stream.high_us is not None:
            late = stream.high_us - spec.lateness.us
        for row in rows:
            ts = wall_us if spec.time is None else _time(row.values.get(spec.time))
            if row.misfit or ts is None:
                continue
            if spec.time is not None and ts > wall_us + ahead_us(spec):
                continue
            if spec.time is not None and floor is not None and ts <= floor:
                continue
            if late is not None and ts <= late:
                continue
            good.append((row.values, ts))
        if good:
            self._insert(stream, good)
        stream.quarantined += [wall_us] * (len(rows) - len(good))
        self._note_clocks()

    def heartbeat(self, name: str, us: int) -> bool:
        """A stream's clock reaches a time; whether it was not there yet."""
        stream = self.streams[name]
        if stream.high_us is not None and us <= stream.high_us:
            return False
        stream.high_us = us
        self._note_clocks()
        return True

    def maintained(self, wall_us: int) -> None:
        """Housekeeping says in the log how late it is, where tuples that are stamped on arrival leave by that: when the
        log is behind by a hundredth of their retention.
        """
        for stream in self.streams.values():
            retain, high_us = stream.spec.retain, stream.high_us
            if stream.spec.time is None and retain is not None and high_us is not None:
                behind_us = wall_us - high_us
                stream.high_us = wall_us if behind_us * 100 >= retain.us else high_us

    def _note_clocks(self) -> None:
        self._clocks.append(
            {name: each.high_us for name, each in self.streams.items() if each.spec.time and each.high_us is not None}
        )

    def _insert(self, stream: OracleStream, good: list[tuple[dict[str, Any], int]]) -> None:
        self._answered.clear()
        spec = stream.spec
        arrays = [pa.array([stored(values.get(c.name), c.type) for values, _ in good], c.type) for c in spec.columns]
        arrays += [
            pa.array(range(stream.accepted, stream.accepted + len(good)), pa.int64()),
            pa.array([ts for _, ts in good], pa.int64()).cast(ZONED),
        ]
        names = [column.name for column in spec.columns]
        table = pa.table(arrays, [*names, ARRIVAL_NUMBER, ARRIVAL_TIME])
        stream.tables.append(table)
        naive = pa.table([a.cast(NAIVE) if a.type == ZONED else a for a in arrays], table.column_names)
        self._duck.register("_batch", naive)
        self._duck.execute(f"INSERT INTO raw_{spec.name} SELECT * FROM _batch")
        self._duck.unregister("_batch")
        stream.accepted += len(good)
        newest = max(ts for _, ts in good)
        stream.high_us = newest if stream.high_us is None else max(stream.high_us, newest)

    def clock_us(self, name: str, wall_us: int) -> int | None:
        stream = self.streams[name]
        return wall_us if stream.spec.time is None else stream.high_us

    def floor(self, name: str, wall_us: int, *, timed: bool = False) -> int | None:
        """Tuples at or below it are beyond the stream's retention; for a query that reads some stream with a time of
        its own, by the log alone.
        """
        stream = self.streams[name]
        retain, clock_us = stream.spec.retain, stream.high_us if timed else self.clock_us(name, wall_us)
        return None if retain is None or clock_us is None else clock_us - retain.us

    def quarantine(self, name: str, wall_us: int) -> tuple[int, int]:
        """How many rows a quarantine holds at least and at most: those beyond retention go when they are cleaned up."""
        stream = self.streams[name]
        retain = stream.spec.retain
        kept = [at for at in stream.quarantined if retain is None or at > wall_us - retain.us]
        return len(kept), len(stream.quarantined)

    def now_us(self, streams: Collection[str], wall_us: int) -> int | None:
        """The highest so far of the lowest clock of the event-time streams that have data; None while none has.

        Of streams that are stamped on arrival it is the wall clock.
        """
        if not any(self.streams[name].spec.time for name in streams):
            return wall_us
        lowest = [min((clocks[name] for name in streams if name in clocks), default=None) for clocks in self._clocks]
        return max((us for us in lowest if us is not None), default=None)

    def at(self, streams: Collection[str], wall_us: int, now_us: int | None = None) -> At:
        """When a query over these streams is judged; `now_us` is another NOW."""
        timed = any(self.streams[name].spec.time for name in streams)
        floors = {name: self.floor(name, wall_us, timed=timed) for name in self.streams}
        found_us = self.now_us(streams, wall_us) if now_us is None else now_us
        return At(
            wall_us if found_us is None else found_us,
            {name: floor for name, floor in floors.items() if floor is not None},
            undefined=found_us is None,
            accepted={name: stream.accepted for name, stream in self.streams.items()},
            hashes=self._hashes,
        )

    def gone(self, queries: Collection[Query], wall_us: int, now_us: int) -> tuple[bool, bool]:
        """Whether an answer at another NOW must be refused, because retention let go of tuples that it would lack, and
        whether it may be: the engine need not know which tuples of a segment are beyond retention."""
        streams = {name for query in queries for name in stream_names(query)}
        present_us = self.now_us(streams, wall_us)
        if now_us >= (wall_us if present_us is None else present_us):
            return False, False
        at = self.at(streams, wall_us, now_us)
        must = any(self._duck.sql(lacks(query, at)).fetchall()[0][0] for query in queries)
        lost = (
            f'SELECT count(*) FROM raw_{name} WHERE "{ARRIVAL_TIME}" <= make_timestamp({floor_us})'
            for name, floor_us in at.floors.items()
            if name in streams
        )
        return must, must or any(self._duck.sql(count).fetchall()[0][0] for count in lost)

    def answer(self, query: Query, wall_us: int, now: datetime | None = None) -> Expected:
        at = self.at(stream_names(query), wall_us, None if now is None else to_us(now))
        sql = to_duckdb(query, at)
        return Expected(columns_of(query), rows_of(self.table(sql)), is_ordered(query), at.now_us, sql)

    def table(self, sql: str) -> pa.Table:
        """What DuckDB answers to this text; most steps of a random test change neither tuples nor NOW."""
        found = self._answered.get(sql)
        if found is None:
            try:
                found = self._duck.sql(sql).to_arrow_table()
            except duckdb.Error as error:
                error.add_note(sql)
                raise
            self._answered[sql] = found
        return found

    def raw(self, name: str) -> pa.Table | None:
        """Every accepted tuple of a stream in order of arrival."""
        tables = self.streams[name].tables
        return pa.concat_tables(tables) if tables else None


def _time(value: Any) -> int | None:
    return to_us(value) if isinstance(value, datetime) else None


def stored(value: Any, type_: pa.DataType) -> Any:
    """A pushed value as Arrow takes it: moments as microseconds, whatever their zone."""
    if isinstance(value, datetime):
        return to_us(value)
    if isinstance(value, Decimal) and pa.types.is_decimal(type_):
        return value.quantize(Decimal(1).scaleb(-type_.scale))
    return value


# --- comparing ---


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of plain values, equal when the answers are: moments as microseconds, NaN as a word."""
    columns = [_values(table.column(index)) for index in range(table.num_columns)]
    return list(zip(*columns, strict=True)) if columns else []


def _values(column: pa.ChunkedArray) -> list[Any]:
    type_ = column.type
    if pa.types.is_timestamp(type_):
        return list(column.cast(pa.timestamp("us", type_.tz)).cast(pa.int64()).to_pylist())
    values = column.to_pylist()
    if pa.types.is_floating(type_):
        return ["NaN" if value is not None and math.isnan(value) else value for value in values]
    if pa.types.is_map(type_):
        return [None if value is None else tuple(sorted(value)) for value in values]
    if pa.types.is_list(type_):
        return [None if value is None else tuple(value) for value in values]
    if pa.types.is_struct(type_):
        return [None if value is None else tuple(value.values()) for value in values]
    return list(values)


def difference(got: pa.Table, expected: Expected) -> str | None:
    """What is wrong with an answer, or None."""
    names = [column.name.lower() for column in expected.columns]
    if [name.lower() for name in got.column_names] != names:
        return f"columns are {got.column_names}, expected {names}"
    for column, type_ in zip(expected.columns, got.schema.types, strict=True):
        if type_ != column.type and not _same_nested(type_, column.type):
            return f"column {column.name} is {type_}, expected {column.type}"
    rows = rows_of(got)
    if expected.ordered:
        return None if _same_lists(rows, expected.rows) else _report(rows, expected.rows)
    return (
        None
        if Counter(rows) == Counter(expected.rows) or _same_bags(rows, expected.rows)
        else _report(rows, expected.rows)
    )


def bag_difference(rows: list[tuple[Any, ...]], expected: Expected) -> str | None:
    """What is wrong with rows that a follower has, in any order, or None."""
    wanted = expected.rows
    return None if Counter(rows) == Counter(wanted) or _same_bags(rows, wanted) else _report(rows, wanted)


def _same_nested(left: pa.DataType, right: pa.DataType) -> bool:
    """Field names and nullability inside lists and maps are not part of a type's meaning."""
    if pa.types.is_list(left) and pa.types.is_list(right):
        return bool(left.value_type == right.value_type)
    if pa.types.is_map(left) and pa.types.is_map(right):
        return bool(left.key_type == right.key_type and left.item_type == right.item_type)
    return False


def _same_lists(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    return len(left) == len(right) and all(
        _close(a, b) for one, other in zip(left, right, strict=True) for a, b in zip(one, other, strict=True)
    )


def _same_bags(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    """Equal up to rounding: what is exactly equal is struck out, the rest is paired in order."""
    one, other = Counter(left), Counter(right)
    key = repr
    return _same_lists(sorted((one - other).elements(), key=key), sorted((other - one).elements(), key=key))


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b)


def _report(got: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> str:
    missing = list((Counter(expected) - Counter(got)).elements())
    extra = list((Counter(got) - Counter(expected)).elements())
    if not missing and not extra:
        return f"same rows in another order: got {got[:8]}, expected {expected[:8]}"
    return f"{len(got)} rows, expected {len(expected)}; missing {missing[:8]}, too many {extra[:8]}"
