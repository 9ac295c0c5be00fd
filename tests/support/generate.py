"""Random streams and random rows for the oracle's tests, from a seeded `random.Random`.

Values come from small pools, so that predicates meet them, groups have members and window edges are hit
exactly. Numbers that get added up are multiples of 1/4, so that a sum is the same in any order; `wide` columns
hold the extremes of their type instead. Rows are Python dicts: what a client would push.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from tests.support.months import EPOCH
from tests.support.tree import NAIVE, ZONED, ColumnSpec, Span, StreamSpec

MINUTE_US = 60_000_000
DECIMAL = pa.decimal128(9, 2)
SCALARS: tuple[pa.DataType, ...] = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    DECIMAL,
    pa.decimal128(38, 10),
    pa.string(),
    pa.binary(),
    pa.date32(),
    ZONED,
    NAIVE,
)
NESTED: tuple[pa.DataType, ...] = (
    pa.list_(pa.int32()),
    pa.map_(pa.string(), pa.int32()),
    pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())]),
)

NAMES = (
    "a",
    "b",
    "c",
    "d",
    "k",
    "price",
    "size",
    "Symbol",
    "at",
    "end",
    "order",
    "begin",
    "Value",
    "range",
    "user",
    "day",
)
"""Some are reserved words somewhere, some have capitals."""
PLAIN_WORDS = (
    "",
    "a",
    "ab",
    "abc",
    "ABC",
    "b",
    "B c",
    " pad ",
    "x_y",
    "10%",
    "it's",
    'q"q',
    "zz",
    "back\\slash",
    "{x}",
)
WORDS = (*PLAIN_WORDS, "é", "naïve", "日本語", "🙂", "a" * 60, "a" * 60 + "b", "ß")
_INT_MAX = {pa.int8(): 127, pa.int16(): 32_767, pa.int32(): 2**31 - 1, pa.int64(): 2**63 - 1}
DAY = date(2023, 11, 14)
WALL_US = 1_700_000_000_000_000 // (MINUTE_US * 60) * (MINUTE_US * 60)
"""Where the manual clock starts: a full hour."""


def random_stream(rng: random.Random, name: str) -> StreamSpec:
    names = rng.sample(NAMES, rng.randint(2, 7))
    time = rng.random() < 0.7
    columns = []
    for index, column in enumerate(names):
        if index == 0 and time:
            columns.append(ColumnSpec(column, rng.choice((ZONED, ZONED, NAIVE))))
            continue
        type_ = rng.choice(NESTED) if rng.random() < 0.04 else rng.choice((*SCALARS, pa.string(), pa.int32()))
        if index == 1:
            type_ = rng.choice((pa.int32(), pa.string(), pa.int64(), pa.float64()))
        columns.append(ColumnSpec(column, type_, wide=rng.random() < 0.2, plain=rng.random() < 0.7))
    time_column = columns[0].name if time else None
    rng.shuffle(columns)
    retain = rng.choice((None, Span(1, "DAY"), Span(90, "MINUTE"), Span(6, "HOUR"), Span(7, "DAY")))
    ahead = rng.choice((None, None, Span(2, "MINUTE"), Span(1, "DAY"))) if time else None
    kept = retain if rng.random() < 0.6 else None
    lateness = rng.choice((None, None, None, Span(10, "MINUTE"), Span(2, "HOUR"))) if time else None
    return StreamSpec(name, tuple(columns), time_column, kept, ahead, lateness)


def random_value(rng: random.Random, column: ColumnSpec, wall_us: int) -> Any:
    """A value of the column's pool (never NULL), as the Python object a client would push."""
    type_ = column.type
    if type_ == pa.bool_():
        return rng.random() < 0.5
    if pa.types.is_integer(type_):
        if column.wide and rng.random() < 0.5:
            return rng.choice((_INT_MAX[type_], -_INT_MAX[type_] - 1, _INT_MAX[type_] - 1))
        return rng.randint(-3, 9) if rng.random() < 0.7 else rng.randint(-100, 100)
    if pa.types.is_floating(type_):
        if column.wide and rng.random() < 0.4:
            return rng.choice((float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-30, 3e38))
        return rng.randint(-12, 40) / 4 if rng.random() < 0.7 else rng.randint(-4000, 4000) / 4
    if pa.types.is_decimal(type_):
        cents = rng.randint(-300, 900) if rng.random() < 0.8 else rng.randint(-(10**8), 10**8)
        return Decimal(cents).scaleb(-2)
    if type_ == pa.string():
        return rng.choice(PLAIN_WORDS if column.plain else WORDS)
    if type_ == pa.binary():
        return rng.choice((b"", b"\x00", b"a", b"ab", b"\xff\xfe", b"\x00\x01", b"'\\"))
    if type_ == pa.date32():
        return (
            rng.choice((date(1900, 2, 28), date(1970, 1, 1))) if column.wide else DAY + timedelta(rng.randint(-40, 3))
        )
    if type_ in (ZONED, NAIVE):
        moment = EPOCH + timedelta(microseconds=random_us(rng, wall_us))
        return moment.replace(tzinfo=UTC) if type_ == ZONED and rng.random() < 0.7 else moment
    return _nested_value(rng, type_)


def _nested_value(rng: random.Random, type_: pa.DataType) -> Any:
    if pa.types.is_list(type_):
        return [rng.choice((None, 1, 2, 3)) for _ in range(rng.randint(0, 3))]
    if pa.types.is_map(type_):
        return [(key, rng.choice((None, 1, 2))) for key in rng.sample(("k", "l", "m"), rng.randint(0, 3))]
    return {"x": rng.choice((None, 1, 2)), "y": rng.choice((None, "a", "é"))}


def random_us(rng: random.Random, wall_us: int) -> int:
    """A moment near the wall clock, mostly on a half minute so that window edges are hit."""
    back = rng.choice((rng.randint(0, 20), rng.randint(0, 20), rng.randint(0, 300), rng.randint(0, 3000)))
    us = wall_us - back * (MINUTE_US // 2)
    return us + rng.choice((0, 0, 0, 1, -1, rng.randint(-MINUTE_US, MINUTE_US)))


@dataclass(frozen=True)
class PushedRow:
    """A row as a client sends it. `misfit` names a column whose value can't be of the column's type."""

    values: dict[str, Any]
    misfit: str | None = None


def random_rows(rng: random.Random, stream: StreamSpec, wall_us: int, count: int, *, misfits: bool) -> list[PushedRow]:
    """A batch: NULLs, late and out-of-order times, and some rows that must be quarantined."""
    rows = []
    steady = rng.random() < 0.5
    nulls = rng.choice((0.0, 0.05, 0.3))
    for index in range(count):
        values: dict[str, Any] = {}
        for column in stream.columns:
            if column.name != stream.time and rng.random() < nulls:
                if rng.random() < 0.7:
                    values[column.name] = None
                continue
            values[column.name] = random_value(rng, column, wall_us)
        if stream.time:
            us = _row_time(rng, wall_us, index, count, steady=steady)
            values[stream.time] = None if us is None else EPOCH + timedelta(microseconds=us)
        misfit = None
        numbers = [c.name for c in stream.columns if pa.types.is_integer(c.type) or c.type == pa.date32()]
        if misfits and numbers and rng.random() < 0.04:
            misfit = rng.choice(numbers)
            values[misfit] = "not a value"
        rows.append(PushedRow(values, misfit))
    return rows


def _row_time(rng: random.Random, wall_us: int, index: int, count: int, *, steady: bool) -> int | None:
    dice = rng.random()
    if dice < 0.02:
        return None
    if dice < 0.04:
        return wall_us + rng.choice((2, 61, 90, 1441)) * MINUTE_US + rng.choice((0, 1))
    if dice < 0.06:
        return wall_us - rng.choice((60, 1440, 10_080, 20_000)) * MINUTE_US - rng.randint(0, 5) * MINUTE_US
    return wall_us - (count - index) * (MINUTE_US // 2) if steady else random_us(rng, wall_us)


def ahead_us(stream: StreamSpec) -> int:
    """How far beyond the wall clock a row of an event-time stream may be."""
    return (stream.ahead or Span(1, "HOUR")).us
