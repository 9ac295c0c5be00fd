"""Values that find differences: edges of every type, crossed with each other, and random ones."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa

from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ
from ladle.sql.conformant.signatures import ANY_TYPES

ROWS = 441
EDGES = 21
COPIES = "abc"

_STRINGS = (
    "", " ", "a", "A", "abc", " abc ", "abc  ", "ABC", "a%b", "a_b", "\\", "ab\nc", "\t x\r\n",
    "é", "Straße İ", "日本語", "a😀b",
    "aXbXc", "e\u0301Σ", "12",
)  # fmt: skip
_MORE_STRINGS = ("hello world", "e\u0301", "naïve Straße", "😀😀", "-7", "x" * 50, "a,b,,c", "true", "foo.bar", "\x7f")
_DATES = (
    "0001-01-01", "0004-02-29", "0099-12-31", "1000-06-15", "1582-10-04", "1582-10-15", "1600-02-29", "1899-12-31",
    "1900-01-01", "1969-12-31", "1970-01-01", "1970-01-04", "1999-12-31", "2000-02-29", "2016-01-03", "2020-12-31",
    "2021-01-01", "2023-01-31", "2024-02-29", "9999-12-31",
)  # fmt: skip


def edges(type_: pa.DataType) -> list[Any]:
    """At most EDGES - 1 values, each special for some reason; NULL is added by `column`."""
    if pa.types.is_boolean(type_):
        return [True, False]
    if pa.types.is_integer(type_):
        top = 1 << (type_.bit_width - 1)
        return [0, 1, -1, 2, -2, 3, -3, 5, 7, 10, -10, 25, -25, 99, 100, top - 1, -top, top - 2, -top + 1, top // 2]
    if pa.types.is_floating(type_):
        nan, inf = float("nan"), float("inf")
        near = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            0.1,
            2.675,
            float(1 << 63),
            -3.7,
            nan,
            inf,
            -inf,
            1e-30,
            100.0,
        ]
        return [*near, 2147483647.5, 9.3e18]
    if pa.types.is_decimal(type_):
        unit = Decimal(1).scaleb(-type_.scale)
        top = Decimal(10) ** (type_.precision - type_.scale) - unit
        near = [Decimal(0), unit, -unit, top, -top, top - unit, 5 * unit, -5 * unit, 15 * unit, 25 * unit, 50 * unit]
        near += [Decimal(n) for n in (1, -1, 2, 3, -3, 7)] + [Decimal(n) / 2 for n in (1, -1, 5)]
        return [value.quantize(unit) for value in near]
    if type_ == pa.string():
        return list(_STRINGS)
    if type_ == pa.binary():
        return [b"", b"\0", b"a", b"A", b"abc", b"\xff", b"\xc3\x28", "é".encode(), b"\x7f", b"ab\0c"]
    days = [date.fromisoformat(text) for text in _DATES]
    if type_ == pa.date32():
        return days
    times = ["00:00:00", "23:59:59.999999", "12:34:56.5", "00:00:00.000001", "10:00:00"]
    return [datetime.fromisoformat(f"{day.isoformat()} {times[i % len(times)]}") for i, day in enumerate(days)]


def _random(type_: pa.DataType, source: random.Random) -> Any:
    if pa.types.is_boolean(type_):
        return source.choice((True, False, None))
    if pa.types.is_integer(type_):
        return source.randrange(-100, 100) if source.random() < 0.6 else source.getrandbits(type_.bit_width - 1)
    if pa.types.is_floating(type_):
        return source.choice((source.uniform(-100, 100), source.gauss(0, 1e6), float(source.randrange(-50, 50))))
    if pa.types.is_decimal(type_):
        digits = source.randrange(1, type_.precision + 1)
        return Decimal(source.randrange(-(10**digits) + 1, 10**digits)).scaleb(-type_.scale)
    if type_ == pa.string():
        return source.choice((*_STRINGS, *_MORE_STRINGS)) + source.choice(("", "", "b", " ", "é"))
    if type_ == pa.binary():
        return source.randbytes(source.randrange(4))
    day = date(1, 1, 1) + timedelta(days=source.randrange(date.max.toordinal() - 1))
    if type_ == pa.date32():
        return day
    return datetime(day.year, day.month, day.day) + timedelta(microseconds=source.randrange(86_400_000_000))


def column(type_: pa.DataType, copy: str) -> pa.Array:
    """ROWS values: the columns `a` and `b` of two types meet in every pair of their edges, `c` is random."""
    special = [None, *edges(type_)]
    assert len(special) <= EDGES
    source = random.Random(f"{type_}{copy}")
    values: list[Any]
    if copy == "c":
        values = [_random(type_, source) if source.random() < 0.9 else None for _ in range(ROWS)]
    else:
        special += [_random(type_, source) for _ in range(EDGES - len(special))]
        values = [special[i % EDGES if copy == "a" else i // EDGES] for i in range(ROWS)]
    return pa.array(values, type_)


def name_of(type_: pa.DataType, copy: str) -> str:
    """The column of `table` that holds this type."""
    return f"c{ANY_TYPES.index(type_)}{copy}"


def table() -> pa.Table:
    """Three columns of every type, and `k`, a group of about twenty rows each."""
    with localcontext() as wide:
        wide.prec = 60
        columns = {name_of(type_, copy): column(type_, copy) for type_ in ANY_TYPES for copy in COPIES}
    columns["k"] = pa.array([i % 23 for i in range(ROWS)], pa.int32())
    columns["n"] = pa.array(range(ROWS), pa.int32())
    return pa.table(columns)


def naive(given: pa.Table) -> pa.Table:
    """As data reach DuckDB: timestamps without their zone."""
    fields = [field.with_type(TIMESTAMP_NTZ) if field.type == TIMESTAMP else field for field in given.schema]
    return given.cast(pa.schema(fields))
