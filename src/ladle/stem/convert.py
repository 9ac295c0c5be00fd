"""Values into a stream's types, column by column. What does not fit is told row by row; the rest goes on.

A conversion is allowed when it can't change the meaning: numbers into wider or exactly fitting numbers, text into what
it spells, dates into timestamps, naive timestamps as UTC. Anything else is refused by type, before a row is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ladle.errors import TypeMismatch
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, type_name


def with_default(array: pa.Array, absent: Sequence[int], column: Column) -> pa.Array:
    """The array with the column's default in the rows that did not give it."""
    if column.default is None or not absent:
        return array
    numbers = np.arange(len(array))
    numbers[list(absent)] = len(array)
    return pa.concat_arrays([array, column.default.array(column.type, 1)]).take(pa.array(numbers))


def is_convertible(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of one type may become values of the other (some rows may still not fit)."""
    types = pa.types
    if source.equals(target) or types.is_null(source):
        return True
    if types.is_dictionary(source):
        return is_convertible(source.value_type, target)
    if types.is_string(source) or types.is_large_string(source) or types.is_string_view(source):
        return not types.is_nested(target) and not types.is_binary(target)
    if types.is_integer(source):
        return types.is_integer(target) or types.is_floating(target) or types.is_decimal(target)
    if types.is_floating(source) or types.is_decimal(source):
        return types.is_integer(target) or types.is_floating(target) or types.is_decimal(target)
    if types.is_date(source):
        return types.is_date32(target) or types.is_timestamp(target)
    if types.is_timestamp(source):
        return bool(types.is_timestamp(target))
    if types.is_binary(source) or types.is_large_binary(source):
        return bool(types.is_binary(target))
    if types.is_nested(source):
        return bool(types.is_nested(target))
    return False


def convert(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """The array in the target type, with NULL where a value did not fit, and the reason for each of those rows."""
    if array.type.equals(target):
        return array, {}
    if not is_convertible(array.type, target):
        raise TypeMismatch(f"{type_name(array.type)} can't become {type_name(target)}.")
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string(array.type) and not pa.types.is_string(target):
        array = pc.utf8_trim_whitespace(array)
    failures: dict[int, str] = {}
    parts = _convert_range(array, target, 0, failures)
    return pa.concat_arrays(parts) if parts else pa.array([], target), failures


def convert_values(values: Sequence[object], target: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Python values in the target type, as `convert` does it."""
    try:
        # Arrow would cut 1.5 to 1 if told the type; nested types can't be inferred, and have no such cuts at the top.
        natural = pa.array(values, target) if pa.types.is_nested(target) else pa.array(values)
        if is_convertible(natural.type, target):
            return convert(natural, target)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError, TypeError):
        pass
    parts: list[pa.Array] = []
    failures: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            natural = pa.array([value], target) if pa.types.is_nested(target) else pa.array([value])
            part, failed = convert(natural, target)
        except (pa.ArrowException, TypeMismatch, OverflowError, ValueError, TypeError):
            part, failed = pa.nulls(1, target), {0: misfit(value, target)}
        parts.append(part)
        if failed:
            failures[row] = failed[0]
    return pa.concat_arrays(parts) if parts else pa.array([], target), failures


def _convert_range(array: pa.Array, target: pa.DataType, offset: int, failures: dict[int, str]) -> list[pa.Array]:
    """Cast the whole; where that raises, cast the halves, down to the rows that are to blame."""
    if len(array) == 0:
        return []
    try:
        return [_cast(array, target)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(array) == 1:
            failures[offset] = misfit(_value(array[0]), target)
            return [pa.nulls(1, target)]
    middle = len(array) // 2
    return [
        *_convert_range(array.slice(0, middle), target, offset, failures),
        *_convert_range(array.slice(middle), target, offset + middle, failures),
    ]


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    types = pa.types
    if types.is_string(source) and types.is_timestamp(target):
        return _parse_timestamps(array, target)
    if types.is_timestamp(source) or types.is_date(source):
        # Digits below a microsecond are cut off; a moment that microseconds can't express is refused, and never wraps.
        return array.cast(options=pc.CastOptions(target, allow_time_truncate=True))
    if types.is_integer(source) and types.is_float64(target):
        return array.cast(target, safe=False)
    if types.is_floating(source) and types.is_float32(target):
        narrowed = array.cast(target, safe=False)
        finite = pc.is_finite(array)
        if pc.any(pc.and_(finite, pc.is_inf(narrowed))).as_py():
            raise pa.ArrowInvalid("out of range")
        return narrowed
    if types.is_floating(source) and types.is_decimal(target):
        return _floats_to_decimal(array, target)
    if types.is_decimal(source) and types.is_floating(target):
        return array.cast(pa.float64()).cast(target, safe=False)
    return array.cast(target)


def _parse_timestamps(array: pa.Array, target: pa.DataType) -> pa.Array:
    """ISO timestamps with or without an offset; without one they mean UTC."""
    zoned = pc.match_substring_regex(array, r"[0-9][0-9]:[0-9][0-9].*([zZ]|[+-][0-9:]+)$")
    if not pc.any(zoned).as_py():
        return array.cast(pa.timestamp("ns") if _sub_microsecond(array) else TIMESTAMP_NTZ).cast(target, safe=False)
    if pc.all(pc.fill_null(zoned, True)).as_py():
        return array.cast(TIMESTAMP).cast(target)
    # Both kinds in one column: each with its own reading.
    instants = pc.if_else(zoned, array, None).cast(TIMESTAMP)
    naive = pc.if_else(zoned, None, array).cast(TIMESTAMP_NTZ).cast(TIMESTAMP)
    return pc.coalesce(instants, naive).cast(target)


def _sub_microsecond(array: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(array, r"\.[0-9]{7,9}$")).as_py())


def _floats_to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    """By the shortest text that spells the float, as people mean it: 0.1 is 0.1."""
    if not pc.all(pc.fill_null(pc.is_finite(array), True)).as_py():
        raise pa.ArrowInvalid("not finite")
    return array.cast(pa.string()).cast(target)


def _value(scalar: pa.Scalar) -> object:
    """The value of a scalar; the number of a moment that Python has no word for."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


def misfit(value: object, target: pa.DataType) -> str:
    """Why a value is none of a column's."""
    shown = repr(value)
    return f"{shown if len(shown) <= 80 else shown[:77] + '...'} is not a {type_name(target)}"
