"""Schemas of streams and tables. Arrow's types are the type system; Spark SQL's names are how people write them.

Column names keep the case they were declared in and are compared without it, as in Spark.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ladle.errors import Position, TypeMismatch, Unsupported
from ladle.json_values import JsonFields, JsonObject

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


def as_written(name: str) -> str:
    """A name as people write it in SQL: quoted only where it must be, like `` `id.host` ``."""
    return name if name.isidentifier() else quoted(name)


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
    """Whether values of a type have parts: arrays, structs, maps."""
    return bool(pa.types.is_nested(type_))


_SELECTIONS_MAX = 4_096


@dataclass(frozen=True)
class Default:
    """What a column has in rows that don't give it."""

    sql: str
    value: str | None = None
    """That value as it was when the column was declared, encoded; None: it was not computed yet."""
    moves: bool = False
    """Whether it is computed anew for each statement, as current_timestamp() is."""

    def array(self, type_: pa.DataType, rows: int) -> pa.Array:
        """So many of the value as it was."""
        assert self.value is not None, "a default is computed before anybody has rows for it"
        with pa.ipc.open_stream(base64.b64decode(self.value)) as reader:
            one = pa.concat_arrays(reader.read_all().column(0).cast(type_).chunks)
        return one.take(pa.array([0] * rows, pa.int64()))

    def with_value(self, value: pa.Array, *, moves: bool) -> Default:
        """The default with the value that it was computed to."""
        sink = pa.BufferOutputStream()
        table = pa.table({"value": value})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return Default(self.sql, base64.b64encode(sink.getvalue().to_pybytes()).decode(), moves)


_DEFAULT = b"ladle.default"


@dataclass(frozen=True)
class Column:
    """A column: its name and its type."""

    name: str
    type: pa.DataType
    default: Default | None = None

    @property
    def field(self) -> pa.Field:
        """With all that is declared of it; what rows have is a plain field."""
        if self.default is None:
            return pa.field(self.name, self.type)
        told = [self.default.sql, self.default.value, self.default.moves]
        return pa.field(self.name, self.type, metadata={_DEFAULT: json.dumps(told)})

    @staticmethod
    def of(field: pa.Field) -> Column:
        """The column that a field of Arrow's stands for, with its default."""
        told = (field.metadata or {}).get(_DEFAULT)
        return Column(field.name, field.type, None if told is None else Default(*json.loads(told)))


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
        """The column of that name, or None."""
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

    def first(self, columns: int) -> StreamSchema:
        """The schema as it was when it had so many columns; asked again for as many, the same object."""
        found = self._shorter.get(columns)
        if found is None:
            found = self._shorter[columns] = StreamSchema(self.columns[:columns], self.timestamp)
        return found

    def __reduce__(self) -> tuple[type[StreamSchema], tuple[object, ...]]:
        # What was made on the way stays here: every epoch's task carries a schema.
        return StreamSchema, (self.columns, self.timestamp)

    @cached_property
    def _shorter(self) -> dict[int, StreamSchema]:
        return {}

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
        """The schema with one more column. A name that is taken is refused."""
        return StreamSchema((*self.columns, column), self.timestamp)

    def to_json(self) -> JsonObject:
        """Encode the schema."""
        return {"timestamp": self.timestamp, "columns": encode_columns(self.columns)}

    @staticmethod
    def from_json(value: JsonFields) -> StreamSchema:
        """Decode the schema."""
        return StreamSchema(decode_columns(value["columns"]), value["timestamp"])


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
        """The column of that name, or None."""
        return _named(self.columns, name)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema as Arrow's."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @cached_property
    def fields(self) -> pa.Schema:
        """`arrow` with what is declared of the columns."""
        return pa.schema([column.field for column in self.columns])

    def with_column(self, column: Column) -> TableSchema:
        """The schema with one column more."""
        return TableSchema((*self.columns, column))

    def first(self, columns: int) -> TableSchema:
        """The schema as it was when it had so many columns; asked again for as many, the same object."""
        found = self._shorter.get(columns)
        if found is None:
            found = self._shorter[columns] = TableSchema(self.columns[:columns])
        return found

    @cached_property
    def _shorter(self) -> dict[int, TableSchema]:
        return {}

    def to_json(self) -> str:
        """Encode the schema."""
        return encode_columns(self.columns)

    @staticmethod
    def from_json(value: str) -> TableSchema:
        """Decode the schema."""
        return TableSchema(decode_columns(value))


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


def encode_columns(columns: tuple[Column, ...]) -> str:
    """Declared columns as text for the log."""
    return encode_schema(pa.schema([column.field for column in columns]))


def decode_columns(text: str) -> tuple[Column, ...]:
    """Decode columns with their defaults."""
    return tuple(map(Column.of, decode_schema(text)))


def encode_schema(schema: pa.Schema) -> str:
    """An Arrow schema as text for the log; exact for every type."""
    return base64.b64encode(schema.serialize()).decode()


def decode_schema(text: str) -> pa.Schema:
    """Decode an Arrow schema from a text of the log."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def unique_names(names: Sequence[str]) -> list[str]:
    """Each name once, compared without case: the second `a` is `a_1`."""
    taken = {name.lower() for name in names}
    seen: set[str] = set()
    result = []
    for name in names:
        unique, number = name, 0
        while unique.lower() in seen or (number and unique.lower() in taken):
            number += 1
            unique = f"{name}_{number}"
        seen.add(unique.lower())
        result.append(unique)
    return result
