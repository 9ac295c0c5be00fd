"""Encoders of columns give the keys that `key_of` gives value by value, and keys have the order of Spark's values."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.plan.keys import Key, KeyKind, float_key, key_domain, key_kind, key_of
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ
from ladle.stem.column_keys import BytesKeys, Int64Keys, encode


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1

    def of(number: int) -> Decimal:
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    return (st.sampled_from([0, 1, -1, limit, -limit]) | st.integers(-limit, limit)).map(of)


VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.date32(): st.dates(),
    TIMESTAMP: st.datetimes().map(lambda moment: moment.replace(tzinfo=None)),
    TIMESTAMP_NTZ: st.datetimes(),
    pa.decimal128(5, 2): decimals(5, 2),
    pa.decimal128(18, 0): decimals(18, 0),
    pa.decimal128(18, 18): decimals(18, 18),
    pa.decimal128(19, 3): decimals(19, 3),
    pa.decimal128(38, 10): decimals(38, 10),
    pa.decimal128(38, 38): decimals(38, 38),
    pa.string(): st.text(max_size=6),
    pa.binary(): st.binary(max_size=6),
}
TYPES = [pytest.param(type_, id=str(type_)) for type_ in VALUES]


def keys_of(column: pa.Array | pa.ChunkedArray) -> list[Key | None]:
    """What an encoder gave, as Python has it."""
    encoded = encode(column)
    if isinstance(encoded, Int64Keys):
        assert encoded.keys.dtype == np.int64
        assert encoded.keys.flags.c_contiguous
        keys: list[Key] = [int(key) for key in encoded.keys]
    else:
        data = encoded.data.tobytes()
        keys = [data[lo:hi] for lo, hi in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)]
    valid = [True] * len(keys) if encoded.valid is None else encoded.valid.tolist()
    return [key if there else None for key, there in zip(keys, valid, strict=True)]


def expected(values: list[Any], type_: pa.DataType) -> list[Key | None]:
    return [None if value is None else key_of(value, type_) for value in values]


@pytest.mark.parametrize("type_", TYPES)
@given(st.data())
def test_columns_have_the_keys_of_their_values(type_: pa.DataType, data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.lists(st.none() | VALUES[type_], max_size=20), max_size=3))
    column = pa.chunked_array([pa.array(part, type_) for part in parts], type_)
    assert keys_of(column) == expected([value for part in parts for value in part], type_)


@pytest.mark.parametrize("type_", TYPES)
@given(st.data())
def test_slices_are_respected(type_: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[type_], min_size=1, max_size=40))
    start = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values)))
    column = pa.array(values, type_).slice(start, length)
    assert keys_of(column) == expected(values[start : start + length], type_)


def spark_order(one: Any, other: Any) -> int:
    if isinstance(one, float) and (math.isnan(one) or math.isnan(other)):
        return math.isnan(one) - math.isnan(other)
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    return (one > other) - (one < other)


@pytest.mark.parametrize("type_", TYPES)
@given(st.data())
def test_order_is_kept(type_: pa.DataType, data: st.DataObject) -> None:
    one, other = data.draw(VALUES[type_]), data.draw(VALUES[type_])
    first, second = key_of(one, type_), key_of(other, type_)
    assert (first > second) - (first < second) == spark_order(one, other)
    domain = key_domain(type_)
    if domain is not None:
        assert domain[0] <= first <= domain[1]


def test_floats_in_order() -> None:
    tiny = 5e-324
    ordered = [-math.inf, -1e308, -1.0, -tiny, 0.0, tiny, 1.0, 1e308, math.inf, math.nan]
    assert [float_key(value) for value in ordered] == sorted(float_key(value) for value in ordered)
    assert len({float_key(value) for value in ordered}) == len(ordered)
    assert float_key(-0.0) == float_key(0.0) == 0
    assert float_key(-tiny) == -1
    noted = np.array([0x7FF8000000000001, -1], dtype=np.int64).view(np.float64)
    assert keys_of(pa.Array.from_buffers(pa.float64(), 2, [None, pa.py_buffer(noted)])) == [float_key(math.nan)] * 2


@pytest.mark.parametrize("type_", [pa.int64(), TIMESTAMP, TIMESTAMP_NTZ])
def test_what_are_keys_already_is_not_copied(type_: pa.DataType) -> None:
    column = pa.array([3, 1, 2], pa.int64()).cast(type_)
    encoded = encode(pa.chunked_array([column]))
    assert isinstance(encoded, Int64Keys)
    assert encoded.valid is None
    assert encoded.keys.__array_interface__["data"][0] == column.buffers()[1].address


def test_texts_are_not_copied() -> None:
    column = pa.array(["a", None, "bc"])
    encoded = encode(column)
    assert isinstance(encoded, BytesKeys)
    assert encoded.data.__array_interface__["data"][0] == column.buffers()[2].address


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int8())]
)
def test_nested_types_have_no_keys(type_: pa.DataType) -> None:
    assert key_kind(type_) is None
    with pytest.raises(ValueError, match="no keys"):
        encode(pa.array([], type_))


def test_every_type_of_a_stream_has_a_kind() -> None:
    texts = {pa.string(), pa.binary(), pa.decimal128(19, 3), pa.decimal128(38, 10), pa.decimal128(38, 38)}
    for type_ in VALUES:
        assert key_kind(type_) is (KeyKind.BYTES if type_ in texts else KeyKind.INT64)
