"""Tables as JSON: values that JSON has no form for, and times that Python has none for."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ladle.formats.writing import encoded, json_lines, json_rows, write_csv

NOON = datetime(2024, 5, 1, 12, 0, 0, 250, tzinfo=UTC)
BEYOND = 253_402_300_800_000_000
"""The first microsecond of the year 10000."""
BEYOND_DAYS = BEYOND // 86_400_000_000


def through(array: pa.Array) -> list[Any]:
    return [row["x"] for row in json.loads(encoded(json_rows(pa.table({"x": array}))))]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([NOON, None], pa.timestamp("us", "UTC")), ["2024-05-01T12:00:00.000250Z", None]),
        (pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("us")), ["2024-05-01T12:00:00.000250", None]),
        (pa.array([NOON.replace(microsecond=0)], pa.timestamp("s", "UTC")), ["2024-05-01T12:00:00Z"]),
        (pa.array([BEYOND], pa.timestamp("us", "UTC")), ["10000-01-01T00:00:00.000000Z"]),
        (pa.array([-1], pa.timestamp("ns", "UTC")), ["1969-12-31T23:59:59.999999999Z"]),
        (pa.array([None, None], pa.timestamp("us", "UTC")), [None, None]),
        (pa.array([], pa.timestamp("us", "UTC")), []),
        (
            pa.array([1.5, float("nan"), float("inf"), -float("inf"), None]),
            [1.5, "NaN", "Infinity", "-Infinity", None],
        ),
        (pa.array([[1.5, float("inf")], [None, float("nan")], None]), [[1.5, "Infinity"], [None, "NaN"], None]),
        (pa.array([{"a": [{"b": -float("inf")}]}, {"a": None}]), [{"a": [{"b": "-Infinity"}]}, {"a": None}]),
        (pa.array([[("k", float("nan"))]], pa.map_(pa.string(), pa.float64())), [[["k", "NaN"]]]),
        (pa.array([2**63 - 1, -(2**63), None], pa.int64()), [2**63 - 1, -(2**63), None]),
        (pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)), ["1.10", None]),
        (pa.array([date(2024, 5, 1), None, date(1, 1, 1)]), ["2024-05-01", None, "0001-01-01"]),
        (pa.array([BEYOND_DAYS, None], pa.int32()).cast(pa.date32()), ["10000-01-01", None]),
        (pa.array([True, None]), [True, None]),
        (pa.array(['a"b', "\u00e9", None]), ['a"b', "\u00e9", None]),
    ],
)
def test_values(array: pa.Array, expected: list[Any]) -> None:
    assert through(array) == expected


def test_an_answer_in_many_chunks() -> None:
    table = pa.concat_tables([pa.table({"n": [number, number + 1]}) for number in range(0, 20, 2)])
    assert json_rows(table) == [{"n": number} for number in range(20)]
    assert "".join(json_lines(table)) == "".join(f'{{"n":{number}}}\n' for number in range(20))


def test_no_rows() -> None:
    assert json_rows(pa.table({"n": pa.array([], pa.int64())})) == []


def test_csv_has_all_numbers_in_nested_values() -> None:
    sink = io.BytesIO()
    write_csv(pa.table({"x": pa.array([[1.5, float("inf")], [None, float("nan")], None])}), sink)
    assert sink.getvalue().decode().splitlines() == ['"x"', '"[1.5,""Infinity""]"', '"[null,""NaN""]"', ""]
