"""Rows as people have them (dictionaries, Arrow, pandas, Spark) into a table for the inbox, or for a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from ladle.catalog import StreamState
from ladle.errors import TypeMismatch
from ladle.schema import Column, TableSchema, type_name
from ladle.stem.convert import convert, convert_values, is_convertible, with_default
from ladle.stem.intake import check_columns, rows_to_table

_Given = Mapping[str, object]


def as_table(rows: object, stream: StreamState) -> pa.Table:
    """Whole inputs that can't fit are refused here; single rows that don't are sorted out when they are taken in."""
    given = _given(rows)
    if isinstance(given, list):
        return rows_to_table(given, stream.schema)
    check_columns(given.schema, stream.schema, stream.name)
    return given


def fitting_rows(rows: object, table: str, schema: TableSchema) -> pa.Table:
    """Rows of a table. There is no quarantine: one that does not fit is an error, and no row is taken.

    Columns that no row has are left out where their default moves: it is computed by whoever has the table.
    """
    given = _given(rows)
    names = list(dict.fromkeys(_names(given, table)))
    columns: dict[str, pa.Array] = {}
    known = {name.lower(): name for name in names}
    extra = [name for name in names if schema.column(name) is None]
    if extra:
        listed = ", ".join(f"{column.name} {type_name(column.type)}" for column in schema.columns)
        raise TypeMismatch(f"Table '{table}' has no column {', '.join(map(repr, extra))}. Columns: {listed}.")
    for column in schema.columns:
        name = known.get(column.name.lower())
        if name is None and column.default is not None and column.default.moves:
            continue
        if isinstance(given, list):
            values, absent = _values(given, column)
            array, failures = convert_values(values, column.type)
            array = with_default(array, absent, column)
        elif name is None:
            array, failures = with_default(pa.nulls(len(given), column.type), range(len(given)), column), {}
        else:
            source = given.column(name)
            if not is_convertible(source.type, column.type):
                raise TypeMismatch(
                    f"Column '{name}' is {type_name(source.type)}, but table '{table}' has it as "
                    f"{type_name(column.type)}.",
                    hint=f"cast it first: CAST({name} AS {type_name(column.type)})",
                )
            array, failures = convert(pa.concat_arrays(source.chunks) if source.num_chunks else source, column.type)
        for row, reason in failures.items():
            raise TypeMismatch(f"Row {row} does not fit table '{table}': {column.name}: {reason}. None was inserted.")
        columns[column.name] = array
    return pa.table(columns, schema=pa.schema([schema.arrow.field(name) for name in columns]))


def _values(given: list[_Given], column: Column) -> tuple[list[object], list[int]]:
    """A column's values of dictionaries, and which of these have none."""
    lowered, values, absent = column.name.lower(), [], []
    for number, row in enumerate(given):
        found = [value for key, value in row.items() if str(key).lower() == lowered]
        values.append(found[0] if found else None)
        if not found:
            absent.append(number)
    if absent and column.default is not None and column.default.moves:
        raise TypeMismatch(
            f"Row {absent[0]} lacks column '{column.name}', whose default is {column.default.sql}, and others have it.",
            hint="give it in all rows of one call, or in none",
        )
    return values, absent


def _names(given: pa.Table | list[_Given], table: str) -> Iterable[str]:
    if not isinstance(given, list):
        return given.column_names
    for number, row in enumerate(given):
        if not isinstance(row, Mapping):
            raise TypeMismatch(
                f"Row {number} for table '{table}' is a {type(row).__name__}, not a dictionary of columns to values."
            )
    return (str(name) for row in given for name in row)


def _given(rows: object) -> pa.Table | list[_Given]:
    """Arrow, or a list of dictionaries."""
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows
    if type(rows).__module__.startswith("pyspark.sql."):
        return _collected(rows)
    if hasattr(rows, "__arrow_c_stream__") or type(rows).__module__.partition(".")[0] == "pandas":
        return _given(_from_frame(rows))
    if isinstance(rows, Mapping):
        return [rows]
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        return list(rows)
    raise TypeMismatch(
        f"Rows can't be a {type(rows).__name__}.",
        hint="give a dictionary or a list of them, a pandas or Spark DataFrame, or an Arrow table",
    )


def _collected(frame: object) -> pa.Table:
    """The rows of a Spark DataFrame; another object of Spark's is none of ours."""
    from ladle.pipeline.frames import collected, is_frame

    if not is_frame(frame):
        raise TypeMismatch(f"Rows can't be a {type(frame).__name__} of Spark.", hint="give a DataFrame of it")
    return collected(frame)


def _from_frame(frame: object) -> pa.Table:
    if hasattr(frame, "to_dict") and hasattr(frame, "iloc") and hasattr(frame, "astype"):
        try:
            return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            # A column of mixed objects: row by row, so that only the misfits are left out.
            return pa.Table.from_pandas(frame.astype(object).map(_plain), preserve_index=False)
    return pa.table(frame)


def _plain(value: object) -> str | None:
    return None if value is None or value != value else str(value)
