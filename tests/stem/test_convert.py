"""Values into a stream's types. Method: each case names a source, a target, and what must come out or why it can't."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ladle.errors import TypeMismatch
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ
from ladle.stem.convert import convert, convert_values

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (pa.array([1, None, 3]), pa.int32(), [1, None, 3]),
        (pa.array([1, 2]), pa.float64(), [1.0, 2.0]),
        (pa.array([2**60 + 1]), pa.float64(), [float(2**60 + 1)]),
        (pa.array([1.0, 2.0]), pa.int32(), [1, 2]),
        (pa.array([0.1]), pa.decimal128(10, 2), [Decimal("0.10")]),
        (pa.array([Decimal("1.25")]), pa.float64(), [1.25]),
        (pa.array([" 5 ", "-7"]), pa.int64(), [5, -7]),
        (pa.array(["true", "false"]), pa.bool_(), [True, False]),
        (pa.array(["2024-01-01 12:00:00"]), TIMESTAMP, [NOON]),
        (pa.array(["2024-01-01T14:00:00+02:00"]), TIMESTAMP, [NOON]),
        (pa.array(["2024-01-01T12:00:00Z", "2024-01-01 12:00:00", None]), TIMESTAMP, [NOON, NOON, None]),
        (pa.array(["2024-01-01 12:00:00.123456789"]), TIMESTAMP, [NOON.replace(microsecond=123456)]),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ns")), TIMESTAMP, [NOON]),
        (pa.array([NOON]), TIMESTAMP_NTZ, [NOON.replace(tzinfo=None)]),
        (pa.array([date(2024, 1, 1)]), TIMESTAMP, [NOON.replace(hour=0)]),
        (pa.array(["2024-02-29"]), pa.date32(), [date(2024, 2, 29)]),
        (pa.array(["a", "a"]).dictionary_encode(), pa.string(), ["a", "a"]),
        (pa.array([], pa.string()), pa.int32(), []),
        (pa.nulls(2), pa.float64(), [None, None]),
    ],
)
def test_what_fits_is_converted(source: pa.Array, target: pa.DataType, expected: list[Any]) -> None:
    array, failures = convert(source, target)
    assert array.type == target
    assert array.to_pylist() == expected
    assert failures == {}


@pytest.mark.parametrize(
    ("source", "target", "bad"),
    [
        (pa.array([1, 300, 2]), pa.int8(), [1]),
        (pa.array(["1", "x", "", "4"]), pa.int32(), [1, 2]),
        (pa.array([1.5, 2.0]), pa.int32(), [0]),
        (pa.array([1e300, 1.0]), pa.float32(), [0]),
        (pa.array([float("nan"), 1.0]), pa.decimal128(10, 2), [0]),
        (pa.array(["yesterday", "2024-01-01"]), TIMESTAMP, [0]),
        (pa.array([Decimal("1.255"), Decimal("1.250")]), pa.decimal128(10, 2), [0]),
        (pa.array([1 << 62, 1], pa.timestamp("s")), TIMESTAMP, [0]),
        (pa.array([1, (1 << 31) - 1, -(1 << 31)], pa.date32()), TIMESTAMP, [1, 2]),
    ],
)
def test_misfits_become_null_with_a_reason(source: pa.Array, target: pa.DataType, bad: list[int]) -> None:
    array, failures = convert(source, target)
    assert array.type == target
    assert sorted(failures) == bad
    assert all(array[row].as_py() is None for row in bad)
    assert all(array[row].as_py() is not None for row in range(len(source)) if row not in bad)
    assert all("is not a" in reason for reason in failures.values())


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.int32(), pa.string()),
        (pa.bool_(), pa.int32()),
        (pa.int64(), TIMESTAMP),
        (pa.int64(), pa.bool_()),
        (TIMESTAMP, pa.date32()),
        (pa.string(), pa.binary()),
        (pa.string(), pa.list_(pa.string())),
    ],
)
def test_what_would_change_the_meaning_is_refused(source: pa.DataType, target: pa.DataType) -> None:
    with pytest.raises(TypeMismatch, match="can't become"):
        convert(pa.nulls(1, source), target)


def test_python_values_of_mixed_kinds_fail_one_by_one() -> None:
    array, failures = convert_values([1, "2", "x", None, 2.5, True, [1]], pa.int32())
    assert array.to_pylist() == [1, 2, None, None, None, None, None]
    assert sorted(failures) == [2, 4, 5, 6]


def test_a_float_is_never_cut_to_an_int() -> None:
    array, failures = convert_values([1.5, 2.0], pa.int32())
    assert array.to_pylist() == [None, 2]
    assert list(failures) == [0]


def test_nested_values() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    array, failures = convert_values([{"a": 1, "b": ["x"]}, None, 5], kind)
    assert array.to_pylist() == [{"a": 1, "b": ["x"]}, None, None]
    assert list(failures) == [2]
    mapping, failures = convert_values([{"k": 1}], pa.map_(pa.string(), pa.int64()))
    assert mapping.to_pylist() == [[("k", 1)]]
    assert not failures
