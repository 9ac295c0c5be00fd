"""Schemas of streams and tables. Arrow's types are the type system; Spark SQL's names are how people write them.

Column names keep the case they were declared in and are compared without it, as in Spark.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ladle.errors import Position, TypeMismatch, Unsupported

ARRIVAL = "_ts"
"""The column that holds the arrival time of a stream that is not `TIMESTAMP BY` one of its own."""

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
    pa.null(): "VOID",
}


def quoted(name: str) -> str:
    """A name as SQL has it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def type_name(type_: pa.DataType) -> str:
    """The Spark SQL name of an Arrow type."""
    known = _NAMES.get(type_)  # once: to hash a type takes a microsecond
    if known is not None:
        return known
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"ARRAY<{type_name(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"MAP<{type_name(type_.key_type)}, {type_name(type_.item_type)}>"
    if pa.types.is_struct(type_):
        return f"STRUCT<{', '.join(f'{field.name}: {type_name(field.type)}' for field in type_)}>"
    return str(type_).upper()


def is_supported(type_: pa.DataType) -> bool:
    """Whether a column may have this type."""
    if pa.types.is_list(type_):
        return is_supported(type_.value_type)
    if pa.types.is_map(type_):
        return is_supported(type_.key_type) and is_supported(type_.item_type)
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(is_supported(field.type) for field in type_)
    return (type_ in _NAMES and type_ != pa.null()) or pa.types.is_decimal128(type_)


def is_nested(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_))


_SELECTIONS_MAX = 4_096


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType


@dataclass(frozen=True)
class StreamSchema:
    """The declared columns, and which of them is the tuple's time (None: stamped on arrival)."""

    columns: tuple[Column, ...]
    timestamp: str | None = None

    def __post_init__(self) -> None:
        _check_declared(self.columns)
        for column in self.columns:
            if column.name.lower() == ARRIVAL:
                raise TypeMismatch(f"'{ARRIVAL}' is the name of the arrival time; choose another column name.")
        if self.timestamp is not None and self.column(self.timestamp) is None:
            raise TypeMismatch(f"TIMESTAMP BY names '{self.timestamp}', which is not a column.")
        if self.timestamp is not None and not pa.types.is_timestamp(self.arrow.field(self.timestamp_column).type):
            raise TypeMismatch(
                f"TIMESTAMP BY needs a TIMESTAMP or TIMESTAMP_NTZ column; '{self.timestamp}' is not one."
            )

    def column(self, name: str) -> Column | None:
        return _named(self.columns, name)

    @cached_property
    def timestamp_column(self) -> str:
        """The physical name of the column that holds `ts`."""
        if self.timestamp is None:
            return ARRIVAL
        column = self.column(self.timestamp)
        assert column is not None
        return column.name

    def select(self, names: tuple[str, ...]) -> pa.Schema:
        """Some fields of `arrow`; made once for each choice, as every invocation asks."""
        found = self._selected.get(names)
        if found is None:
            if len(self._selected) >= _SELECTIONS_MAX:
                self._selected.clear()
            found = self._selected[names] = pa.schema([self.arrow.field(name) for name in names])
        return found

    def __reduce__(self) -> tuple[type[StreamSchema], tuple[object, ...]]:
        # What was made on the way stays here: every epoch's task carries a schema.
        return StreamSchema, (self.columns, self.timestamp)

    @cached_property
    def _selected(self) -> dict[tuple[str, ...], pa.Schema]:
        return {}

    @cached_property
    def arrow(self) -> pa.Schema:
        """What a segment of this stream holds: the declared columns, and the arrival time when that is the clock."""
        fields = [pa.field(column.name, column.type) for column in self.columns]
        if self.timestamp is None:
            fields.append(pa.field(ARRIVAL, TIMESTAMP))
        return pa.schema(fields)

    @property
    def declared(self) -> pa.Schema:
        """The declared columns alone: what `SELECT *` shows and what pushed rows have."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def with_column(self, column: Column) -> StreamSchema:
        return StreamSchema((*self.columns, column), self.timestamp)

    def to_json(self) -> dict[str, object]:
        return {"timestamp": self.timestamp, "columns": encode_schema(self.declared)}

    @staticmethod
    def from_json(value: dict[str, str]) -> StreamSchema:
        declared = decode_schema(value["columns"])
        return StreamSchema(tuple(Column(field.name, field.type) for field in declared), value["timestamp"])


def require_time_column(stream: str, schema: StreamSchema, what: str, position: Position | None = None) -> None:
    """Refuse what only a stream with a time column can have."""
    if schema.timestamp is None:
        raise Unsupported(
            f"Stream '{stream}' is stamped on arrival, so its clock is the wall clock: it takes no {what}.",
            hint="a stream with a time of its own is created with TIMESTAMP BY column",
            position=position,
        )


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table. Its rows have no time of their own."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _check_declared(self.columns)

    def column(self, name: str) -> Column | None:
        return _named(self.columns, name)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def to_json(self) -> str:
        return encode_schema(self.arrow)

    @staticmethod
    def from_json(value: str) -> TableSchema:
        return TableSchema(tuple(Column(field.name, field.type) for field in decode_schema(value)))


def _check_declared(columns: tuple[Column, ...]) -> None:
    """Each name once, and types that a column may have."""
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise TypeMismatch(f"Column '{column.name}' is declared twice.")
        if not is_supported(column.type):
            raise TypeMismatch(
                f"Column '{column.name}' can't have the type {type_name(column.type)}.",
                hint="use BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, BINARY, "
                "DATE, TIMESTAMP, TIMESTAMP_NTZ, or ARRAY, STRUCT and MAP of these",
            )
        seen.add(column.name.lower())


def _named(columns: tuple[Column, ...], name: str) -> Column | None:
    lowered = name.lower()
    return next((column for column in columns if column.name.lower() == lowered), None)


def encode_schema(schema: pa.Schema) -> str:
    """An Arrow schema as text for the log; exact for every type."""
    return base64.b64encode(schema.serialize()).decode()


def decode_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
