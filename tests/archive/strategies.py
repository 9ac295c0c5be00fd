"""Random schemas and tables over every type a stream may have."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ

_SCALARS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(7, 2): st.decimals(Decimal("-99999.99"), Decimal("99999.99"), places=2),
    pa.decimal128(38, 10): st.decimals(Decimal(-(10**27)), Decimal(10**27), places=10),
    pa.string(): st.text(st.characters(exclude_categories=("Cs",)), max_size=40),
    pa.binary(): st.binary(max_size=20),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    TIMESTAMP: st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),
    TIMESTAMP_NTZ: st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
}


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(lambda item: pa.map_(pa.string(), item)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda types: pa.struct([pa.field(f"f{i}", type_) for i, type_ in enumerate(types)])
        ),
    )


types = st.recursive(st.sampled_from(list(_SCALARS)), _nested, max_leaves=4)


def values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type as Python has them, some of them NULL."""
    if pa.types.is_map(type_):
        pairs = st.dictionaries(st.text("abc", max_size=3), values(type_.item_type), max_size=3)
        return st.none() | pairs.map(lambda pairs: list(pairs.items()))
    if pa.types.is_list(type_):
        return st.none() | st.lists(values(type_.value_type), max_size=3)
    if pa.types.is_struct(type_):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type) for field in type_})
    return st.none() | _SCALARS[type_]


@st.composite
def tables(draw: st.DrawFn, *, rows_max: int = 40) -> pa.Table:
    """A table of a stream: random columns, and `at`, the tuples' time."""
    columns = draw(st.lists(types, max_size=4))
    rows = draw(st.integers(0, rows_max))
    fields = [pa.field(f"c{i}", type_) for i, type_ in enumerate(columns)]
    arrays = [
        pa.array(draw(st.lists(values(field.type), min_size=rows, max_size=rows)), field.type) for field in fields
    ]
    ts_type = draw(st.sampled_from([TIMESTAMP, TIMESTAMP_NTZ]))
    at = draw(st.lists(st.integers(-(10**15), 4 * 10**15), min_size=rows, max_size=rows))
    arrays.insert(0, pa.array(at, pa.int64()).cast(ts_type))
    return pa.Table.from_arrays(arrays, schema=pa.schema([pa.field("at", ts_type), *fields]))


def trades(first: int, rows: int) -> pa.Table:
    """A small table with one column of each common type, recognisable by its numbers."""
    numbers = range(first, first + rows)
    return pa.table(
        {
            "symbol": pa.array([f"S{number % 7}" for number in numbers], pa.string()),
            "price": pa.array([number / 4 for number in numbers], pa.float64()),
            "size": pa.array([None if number % 5 == 0 else number for number in numbers], pa.int32()),
            "at": pa.array([number * 1_000_000 for number in numbers], pa.int64()).cast(TIMESTAMP),
        }
    )


TRADES = trades(0, 0).schema
