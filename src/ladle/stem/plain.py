"""Columns as the intake works with them: no dictionaries, no views, and texts that are UTF-8.

Arrow has few kernels for views, and takes a text's bytes as they come; Spark hands over whatever bytes a source called
a string. A text that is none would end in an error at the first query that looks at it, so its row is rejected here.
"""

from __future__ import annotations

import pyarrow as pa

from ladle.columns import Value


def plain(table: pa.Table, reasons: dict[int, str]) -> pa.Table:
    """The same rows; to the reasons are added those of rows with bytes that are no text, which is shown escaped."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = _written_out(_single(column))
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            array = _as_text(array, name, reasons)
        columns.append(array)
    return pa.table(columns, names=table.column_names) if columns else table


def _single(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _written_out(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(array.indices, _written_out(array.dictionary)).dictionary_decode()
    if pa.types.is_string_view(array.type):
        return array.cast(pa.binary_view()).cast(pa.binary()).view(pa.string())
    return array.cast(pa.binary()) if pa.types.is_binary_view(array.type) else array


def _as_text(array: pa.Array, name: str, reasons: dict[int, str]) -> pa.Array:
    values: list[object] = []
    for row, value in enumerate(array.cast(_in_bytes(array.type)).to_pylist()):
        try:
            values.append(_decoded(value, array.type, "strict"))
        except UnicodeDecodeError:
            values.append(_decoded(value, array.type, "backslashreplace"))
            reasons.setdefault(row, f"{name}: bytes that are not UTF-8")
    try:
        return pa.array(values, array.type)
    except (pa.ArrowInvalid, ValueError, OverflowError):
        return _what_fits(values, array.type, name, reasons)


def _what_fits(values: list[object], type_: pa.DataType, name: str, reasons: dict[int, str]) -> pa.Array:
    """The values that a type can hold, and NULL with a reason for the others."""
    for row, value in enumerate(values):
        try:
            pa.array([value], type_)
        except (pa.ArrowInvalid, ValueError, OverflowError):
            values[row] = None
            reasons.setdefault(row, f"{name}: {str(value)[:100]!r} is not a {type_}")
    return pa.array(values, type_)


def _in_bytes(type_: pa.DataType) -> pa.DataType:
    """The type with bytes for texts."""
    types = pa.types
    if types.is_string(type_):
        return pa.binary()
    if types.is_large_string(type_):
        return pa.large_binary()
    if types.is_struct(type_):
        return pa.struct([field.with_type(_in_bytes(field.type)) for field in type_])
    if types.is_map(type_):
        return pa.map_(_in_bytes(type_.key_type), _in_bytes(type_.item_type))
    if types.is_fixed_size_list(type_):
        return pa.list_(type_.value_field.with_type(_in_bytes(type_.value_type)), type_.list_size)
    if types.is_large_list(type_):
        return pa.large_list(type_.value_field.with_type(_in_bytes(type_.value_type)))
    if types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_in_bytes(type_.value_type)))
    return type_


def _decoded(value: Value, type_: pa.DataType, errors: str) -> Value:
    types = pa.types
    if value is None:
        return None
    if types.is_string(type_) or types.is_large_string(type_):
        return value.decode(errors=errors)
    if types.is_struct(type_):
        return {field.name: _decoded(value[field.name], field.type, errors) for field in type_}
    if types.is_map(type_):
        inner = type_.key_type, type_.item_type
        return [tuple(_decoded(part, kind, errors) for part, kind in zip(pair, inner, strict=True)) for pair in value]
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return [_decoded(each, type_.value_type, errors) for each in value]
    return value
