"""The door of a stream: every row comes out as a tuple or with a reason, and none is lost."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.errors import TypeMismatch
from ladle.schema import TIMESTAMP, Column, StreamSchema
from ladle.stem.intake import Intake, TimeBounds, check_columns, rows_to_table

EVENTS = StreamSchema((Column("k", pa.int32()), Column("At", TIMESTAMP)), timestamp="at")
ARRIVALS = StreamSchema((Column("k", pa.int32()),))
FREE = TimeBounds(None, None)


def at(second: int) -> datetime:
    return datetime(2024, 1, 1, 0, 0, second)


def test_rows_are_split_and_none_is_lost() -> None:
    rows: list[dict[str, Any]] = [
        {"k": 1, "at": at(1)},
        {"K": "x", "at": at(2)},
        {"k": 3, "at": None},
        {"k": 4, "at": at(4), "extra": 1},
        {"k": None, "at": at(5)},
    ]
    good, bad = Intake(EVENTS, FREE, 0).split(rows_to_table(rows, EVENTS))
    assert good.to_pydict()["k"] == [1, None]
    assert good.schema == EVENTS.arrow
    assert [reason.split(":")[0] for reason in bad.reasons] == ["k", "At", "unknown column 'extra'; columns"]
    assert json.loads(bad.rows[0])["K"] == "x"


def test_time_is_bounded_on_both_sides() -> None:
    bounds = TimeBounds(floor_us=1_704_067_201_000_000, ceiling_us=1_704_067_203_000_000)
    table = rows_to_table([{"k": n, "at": at(n)} for n in range(6)], EVENTS)
    good, bad = Intake(EVENTS, bounds, 0).split(table)
    assert good.to_pydict()["k"] == [2, 3]
    assert len(bad) == 4


def test_arrival_time_is_stamped() -> None:
    good, _ = Intake(ARRIVALS, FREE, 5).split(pa.table({"k": [1, 2]}))
    assert good.column("_ts").cast(pa.int64()).to_pylist() == [5, 5]


def test_spark_marks_corrupt_records() -> None:
    table = pa.table({"k": [1, None], "_corrupt_record": [None, "{oops"]})
    good, bad = Intake(ARRIVALS, FREE, 0).split(table)
    assert good.to_pydict()["k"] == [1]
    assert bad.rows == ["{oops"]
    assert bad.reasons == ["malformed record"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"K": "two", "AT": "2024-01-01T00:00:01"}', "k: 'two' is not a INT"),
        ("two,2024-01-01T00:00:01", "k: 'two' is not a INT"),
        ("two", "malformed record"),
        ('"two,2024', "malformed record"),
        ('{"k": "two"} {}', "malformed record"),
        ('{"k": null}', "malformed record"),
    ],
)
def test_the_column_that_spark_could_not_parse_is_named(line: str, reason: str) -> None:
    table = pa.table({"k": pa.nulls(1, pa.int32()), "at": [at(1)], "_corrupt_record": [line]})
    _, bad = Intake(EVENTS, FREE, 0).split(table)
    assert bad.reasons == [reason]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**40), 2**40), st.text(max_size=3), st.floats())))
def test_each_value_is_a_tuple_or_a_rejection(values: list[Any]) -> None:
    good, bad = Intake(ARRIVALS, FREE, 0).split(rows_to_table([{"k": v} for v in values], ARRIVALS))
    assert len(good) + len(bad) == len(values)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pa.schema([("k", pa.int32()), ("at", TIMESTAMP), ("z", pa.int8())]), "no column 'z'"),
        (pa.schema([("k", pa.int32())]), "lack At"),
        (pa.schema([("k", pa.bool_()), ("at", TIMESTAMP)]), "is BOOLEAN, but stream 's' has it as INT"),
    ],
)
def test_whole_inputs_that_cannot_fit_are_refused(given: pa.Schema, message: str) -> None:
    with pytest.raises(TypeMismatch, match=message):
        check_columns(given, EVENTS, "s")


def not_text(type_: pa.DataType) -> pa.Array:
    """What a source may call a string: the second one is none."""
    values = pa.array([b"good", b"b\xffd", None], pa.binary())
    return pa.Array.from_buffers(pa.string(), 3, values.buffers()).cast(type_, safe=False)


@pytest.mark.parametrize("nested", [False, True])
def test_bytes_that_are_no_text_are_rejected_and_shown(nested: bool) -> None:
    texts = not_text(pa.string())
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts) if nested else texts
    schema = StreamSchema((Column("s", column.type), Column("at", TIMESTAMP)), timestamp="at")
    batch = pa.table({"s": column, "at": pa.array([1, 2, 3], TIMESTAMP)})
    good, bad = Intake(schema, TimeBounds(None, None), 0).split(batch)
    assert good.column("s").to_pylist() == ([["good"], [None]] if nested else ["good", None])
    assert bad.reasons == ["s: bytes that are not UTF-8"]
    assert "b\\\\xffd" in bad.rows[0]


@pytest.mark.parametrize("type_", [pa.string_view(), pa.dictionary(pa.int8(), pa.string_view())])
def test_rows_with_views_are_rejected_one_by_one(type_: pa.DataType) -> None:
    """Arrow can't take rows of views out of a column."""
    values = pa.array(["1", "x", "3"], pa.string_view())
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), values) if pa.types.is_dictionary(type_) else values
    schema = StreamSchema((Column("n", pa.int64()), Column("at", TIMESTAMP)), timestamp="at")
    batch = pa.table({"n": column, "at": pa.array([1, 2, 3], TIMESTAMP)})
    good, bad = Intake(schema, TimeBounds(None, None), 0).split(batch)
    assert good.column("n").to_pylist() == [1, 3]
    assert bad.reasons == ["n: 'x' is not a BIGINT"]
