"""The door of a stream: batches in, tuples of the stream's schema out, and what can't be one with the reason.

Nothing is dropped in silence: a row whose values don't fit, whose time is NULL, too far ahead of the clock, too late or
older than the stream's retention goes to the quarantine as JSON text beside the reason.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ladle.clock import FIRST_US, LAST_US, to_datetime
from ladle.columns import Value, from_numpy, to_numpy
from ladle.errors import TypeMismatch, did_you_mean, nearest
from ladle.schema import ARRIVAL, TIMESTAMP, StreamSchema, as_written, type_name
from ladle.stem.convert import convert, convert_values, is_convertible, misfit, with_default
from ladle.stem.plain import plain

REASON, RAW = "_reason", "_raw"
"""Columns of a pushed file that hold rows already found wanting when they were pushed."""

FILE, LINE = "_ladle_file", "_ladle_line"
"""Columns of a pushed file that say where each row was read: the reason for rejecting one names the place."""

CORRUPT = "_corrupt_record"
"""Where Spark's JSON and CSV readers put a line they could not parse."""


@dataclass(frozen=True)
class TimeBounds:
    """What `ts` may be: after floor and `late`, and up to the ceiling; None is no bound."""

    floor_us: int | None
    ceiling_us: int | None
    late_us: int | None = None
    """The stream's clock less its LATENESS."""


@dataclass
class Rejected:
    """Rows for the quarantine."""

    reasons: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    of_batches: list[int] = field(default_factory=list)
    """How many there were in each batch that was added."""

    def __len__(self) -> int:
        return len(self.reasons)

    def extend(self, other: Rejected) -> None:
        """Add the rows that another batch rejected."""
        self.reasons.extend(other.reasons)
        self.rows.extend(other.rows)
        self.of_batches.append(len(other))


def check_columns(given: pa.Schema, schema: StreamSchema, stream: str) -> None:
    """Refuse a whole input whose columns can't be the stream's."""
    names = {name.lower(): name for name in given.names if name not in (REASON, RAW, CORRUPT, FILE, LINE)}
    known = {column.name.lower(): column for column in schema.columns}
    listed = ", ".join(f"{column.name} {type_name(column.type)}" for column in schema.columns)
    extra = [name for lowered, name in names.items() if lowered not in known]
    if extra:
        free = [column.name for lowered, column in known.items() if lowered not in names]
        raise TypeMismatch(
            f"Stream '{stream}' has no column {', '.join(repr(name) for name in extra)}. Columns: {listed}.",
            hint=did_you_mean(nearest(extra[0], free))
            or f"leave it out, or add it: ALTER STREAM {stream} ADD COLUMN {as_written(extra[0])} TYPE",
        )
    time = schema.timestamp_column
    missing = [column.name for lowered, column in known.items() if lowered not in names]
    if len(missing) == len(known) or (schema.timestamp is not None and time in missing):
        lacking = ", ".join(missing) if len(missing) == len(known) else f"{time}, the time"
        raise TypeMismatch(f"The rows lack {lacking} of stream '{stream}'. Columns: {listed}.")
    for lowered, name in names.items():
        source, target = given.field(name).type, known[lowered].type
        if not is_convertible(source, target):
            raise TypeMismatch(
                f"Column '{name}' is {type_name(source)}, but stream '{stream}' has it as {type_name(target)}.",
                hint=f"cast it first: CAST({name} AS {type_name(target)})",
            )


class Intake:
    """Splits batches into tuples and rejected rows."""

    def __init__(self, schema: StreamSchema, bounds: TimeBounds, arrived_us: int) -> None:
        self._schema = schema
        self._bounds = bounds
        self._arrived_us = arrived_us

    def split(self, batch: pa.RecordBatch | pa.Table) -> tuple[pa.Table, Rejected]:
        """The rows of a batch that fit, as the stream has them, and those that don't, with the reasons."""
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        reasons: dict[int, str] = {}
        table = plain(table, reasons)
        columns = self._columns(table, reasons)
        tuples = pa.Table.from_arrays(columns, schema=self._schema.arrow)
        self._check_time(tuples, reasons)
        self._already_rejected(table, reasons)
        if not reasons:
            return tuples, Rejected()
        keep = np.ones(len(table), dtype=np.bool_)
        keep[list(reasons)] = False
        return tuples.filter(from_numpy(keep)), _rejected(table, reasons)

    def _columns(self, table: pa.Table, reasons: dict[int, str]) -> list[pa.Array]:
        given = {name.lower(): name for name in table.column_names}
        columns = []
        for column in self._schema.arrow:
            name = given.get(column.name.lower())
            if name is not None:
                array, failures = convert(_single(table.column(name)), column.type)
                for row, reason in failures.items():
                    reasons.setdefault(row, f"{column.name}: {reason}")
            elif column.name == ARRIVAL:
                array = pa.repeat(pa.scalar(self._arrived_us, TIMESTAMP), len(table))
            else:
                declared = self._schema.column(column.name)
                lacking = pa.nulls(len(table), column.type)
                array = lacking if declared is None else with_default(lacking, range(len(table)), declared)
            columns.append(array)
        return columns

    def _already_rejected(self, table: pa.Table, reasons: dict[int, str]) -> None:
        if REASON in table.column_names:
            column = table.column(REASON)
            for row in _rows(pc.is_valid(column)):
                reasons[row] = column[row].as_py()
        if CORRUPT in table.column_names:
            column = table.column(CORRUPT)
            for row in _rows(pc.is_valid(column)):
                reasons[row] = self._why_malformed(column[row].as_py(), table, row)

    def _why_malformed(self, line: str, table: pa.Table, row: int) -> str:
        """Of a line that Spark could not parse it leaves those columns NULL that were to blame."""
        given = {name.lower(): name for name in table.column_names}
        targets = {column.name.lower(): column for column in self._schema.columns if column.name.lower() in given}
        for name, value in _fields(line, list(targets)).items():
            if name in targets and value not in (None, "") and not table.column(given[name])[row].is_valid:
                return f"{targets[name].name}: {misfit(value, targets[name].type)}"
        return "malformed record"

    def _check_time(self, tuples: pa.Table, reasons: dict[int, str]) -> None:
        name = self._schema.timestamp_column
        column = _single(tuples.column(name))
        times = column.cast(pa.int64())
        for row in _rows(pc.is_null(column)):
            reasons.setdefault(row, f"{name}: the timestamp is NULL")
        for row in _rows(pc.or_(pc.less(times, FIRST_US), pc.greater(times, LAST_US))):
            reasons.setdefault(row, f"{name}: not in the years 1 to 9999")
        floor_us, ceiling_us = self._bounds.floor_us, self._bounds.ceiling_us
        if ceiling_us is not None and ceiling_us < LAST_US:
            for row in _rows(pc.greater(times, ceiling_us)):
                reasons.setdefault(row, f"{name}: later than {to_datetime(ceiling_us)} (the clock plus MAX AHEAD)")
        if floor_us is not None and floor_us >= FIRST_US:
            for row in _rows(pc.less_equal(times, floor_us)):
                reasons.setdefault(row, f"{name}: older than the stream's retention, {to_datetime(floor_us)}")
        late_us = self._bounds.late_us
        if late_us is not None and late_us >= FIRST_US:
            for row in _rows(pc.less_equal(times, late_us)):
                reasons.setdefault(row, f"{name}: not after {to_datetime(late_us)} (the stream's clock less LATENESS)")


def rows_to_table(rows: Sequence[Mapping[str, object]], schema: StreamSchema) -> pa.Table:
    """Dictionaries as a table for the inbox: rows that don't fit carry the reason and their own text."""
    reasons: dict[int, str] = {}
    known = {column.name.lower(): column.name for column in schema.columns}
    lowered = [_lowered(row, number, known, reasons) for number, row in enumerate(rows)]
    columns: dict[str, pa.Array] = {}
    for column in schema.columns:
        key = column.name.lower()
        array, failures = convert_values([row.get(key) for row in lowered], column.type)
        absent = () if column.default is None else [number for number, row in enumerate(lowered) if key not in row]
        columns[column.name] = with_default(array, absent, column)
        for number, reason in failures.items():
            reasons.setdefault(number, f"{column.name}: {reason}")
    table = pa.table(columns)
    return with_rejections(table, {number: (reason, _json(rows[number])) for number, reason in reasons.items()})


def with_rejections(table: pa.Table, rejected: Mapping[int, tuple[str, str]]) -> pa.Table:
    """The table with the columns that mark rows as rejected, when there are any."""
    if not rejected:
        return table
    reasons = [rejected[row][0] if row in rejected else None for row in range(len(table))]
    raws = [rejected[row][1] if row in rejected else None for row in range(len(table))]
    table = table.append_column(REASON, pa.array(reasons, pa.string()))
    return table.append_column(RAW, pa.array(raws, pa.string()))


def rejection(column: str, value: object, type_: pa.DataType, row: Mapping[str, object]) -> tuple[str, str]:
    """Why a row is none of the stream's, for the value of one column, and its own text."""
    return f"{column}: {misfit(value, type_)}", _json(row)


def not_cast(rows: pa.Table, given: pa.Table) -> dict[int, tuple[str, str]]:
    """The rejections of rows that have NULL in a column where something was given."""
    found: dict[int, tuple[str, str]] = {}
    for number, name in enumerate(rows.column_names):
        lost = pc.and_(pc.is_null(rows.column(number)), pc.is_valid(given.column(number)))
        for row in _rows(lost):
            values = dict(zip(rows.column_names, (column[row].as_py() for column in given.columns), strict=True))
            found.setdefault(row, rejection(name, values[name], rows.column(number).type, values))
    return found


def _lowered(
    row: Mapping[str, object], number: int, known: Mapping[str, str], reasons: dict[int, str]
) -> dict[str, object]:
    if not isinstance(row, Mapping):
        raise TypeMismatch(f"Row {number} is a {type(row).__name__}, not a dictionary of column names to values.")
    lowered = {str(key).lower(): value for key, value in row.items()}
    extra = [str(key) for key in row if str(key).lower() not in known]
    if extra:
        reasons[number] = (
            f"unknown column {', '.join(repr(key) for key in extra)}; columns: {', '.join(known.values())}"
        )
    return lowered


def _fields(line: str, names: Sequence[str]) -> dict[str, object]:
    """What a line of JSON or CSV has for each column, as far as that can be told."""
    if line.lstrip().startswith("{"):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        return {str(name).lower(): value for name, value in values.items()}
    try:
        fields = next(csv.reader([line]), [])
    except csv.Error:
        return {}
    return dict(zip(names, fields, strict=True)) if len(fields) == len(names) else {}


def _rejected(table: pa.Table, reasons: Mapping[int, str]) -> Rejected:
    rejected = Rejected()
    picked = _picked(table, sorted(reasons))
    for row, value in zip(sorted(reasons), _values(picked), strict=True):
        raw = value.pop(RAW, None) or value.pop(CORRUPT, None)
        value.pop(REASON, None)
        place = [str(part) for part in (value.pop(FILE, None), value.pop(LINE, None)) if part is not None]
        rejected.reasons.append(": ".join([":".join(place), reasons[row]] if place else [reasons[row]]))
        rejected.rows.append(raw if raw is not None else _json(value))
    return rejected


def _picked(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    try:
        return table.take(pa.array(rows))
    except pa.ArrowNotImplementedError:
        # Arrow can't take rows of every type, but cuts all of them.
        return pa.concat_tables([table.slice(row, 1) for row in rows])


def _values(table: pa.Table) -> list[dict[str, Value]]:
    columns = [_column_values(column) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _column_values(column: pa.ChunkedArray) -> list[Value]:
    try:
        values: list[Value] = column.to_pylist()
    except (ArithmeticError, LookupError, ValueError):
        # A time that Python has no word for is shown as its number, anything else as Arrow shows it.
        if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
            return column.cast(pa.int64() if column.type.bit_width == 64 else pa.int32()).to_pylist()
        values = [chunk.slice(row, 1).to_string() for chunk in column.chunks for row in range(len(chunk))]
    return values


def _json(value: object) -> str:
    return json.dumps(value, default=_text, ensure_ascii=False)


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _rows(mask: pa.Array | pa.ChunkedArray) -> list[int]:
    array = mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
    rows: list[int] = np.flatnonzero(to_numpy(array.fill_null(False))).tolist()
    return rows


def _single(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
