"""Partials by group against plain Python: NULL is a group, sums are exact, and parts combine to the whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ladle.errors import EvaluationError
from ladle.plan.aggregate import Aggregate, Fold, Make, Output, Partial
from ladle.stem import groups as module
from ladle.stem.aggregates import Vector
from ladle.stem.groups import Grouping, Groups, TooManyGroups

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [-1, 0, 127, None]),
    "bigint": (pa.int64(), [-(1 << 63), 0, 5, None]),
    "string": (pa.string(), ["", "a", "ä", None]),
    "binary": (pa.binary(), [b"", b"\xff", None]),
    "date": (pa.date32(), [date(1970, 1, 1), date(1900, 2, 28), None]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [datetime(2023, 1, 1), None]),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(2023, 1, 1), None]),
    "decimal": (pa.decimal128(38, 10), [Decimal("0.0000000001"), Decimal(-1), None]),
}

AGGREGATE = Aggregate(
    groups=("k", "l"),
    partials=(
        Partial(Fold.ROWS),
        Partial(Fold.COUNT, "n"),
        Partial(Fold.SUM, "n"),
        Partial(Fold.MIN, "f"),
        Partial(Fold.MAX, "f"),
        Partial(Fold.SUM, "d"),
        Partial(Fold.MAX, "d"),
        Partial(Fold.MIN, "b"),
    ),
    outputs=(
        Output(Make.GROUP, 0),
        Output(Make.GROUP, 1),
        Output(Make.FOLDED, 0),
        Output(Make.FOLDED, 1),
        Output(Make.FOLDED, 2, 1),
        Output(Make.AVERAGE, 2, 1),
        Output(Make.FOLDED, 3),
        Output(Make.FOLDED, 4),
        Output(Make.FOLDED, 5, 1),
        Output(Make.FOLDED, 6),
        Output(Make.FOLDED, 7),
    ),
)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int64(), st.one_of(st.none(), st.integers(-(1 << 58), 1 << 58), st.integers(-3, 3))),
    "f": (pa.float32(), st.one_of(st.none(), st.floats(width=32))),
    "d": (pa.decimal128(18, 2), st.one_of(st.none(), st.decimals(-(10**15), 10**15, places=2))),
    "b": (pa.bool_(), st.one_of(st.none(), st.booleans())),
}


def schema(key: pa.DataType) -> pa.Schema:
    types = [key, pa.int8(), pa.int64(), pa.int64(), pa.int64(), pa.float64(), pa.float32(), pa.float32()]
    types += [pa.decimal128(28, 2), pa.decimal128(18, 2), pa.bool_()]
    return pa.schema([pa.field(f"o{at}", type_) for at, type_ in enumerate(types)])


def as_spark(value: Any) -> Any:
    return (value != value, 0 if value != value else value)


def expected(rows: list[dict[str, Any]]) -> dict[Any, tuple[Any, ...]]:
    answer = {}
    for group in {(row["k"], row["l"]) for row in rows}:
        inside = [row for row in rows if (row["k"], row["l"]) == group]

        def known(name: str, inside: list[dict[str, Any]] = inside) -> list[Any]:
            return [row[name] for row in inside if row[name] is not None]

        def fold(how: Callable[[list[Any]], Any], name: str, known: Any = known) -> Any:
            return how(known(name)) if known(name) else None

        numbers = known("n")
        answer[group] = (
            len(inside),
            len(numbers),
            fold(sum, "n"),
            sum(numbers) / len(numbers) if numbers else None,
            fold(lambda values: min(values, key=as_spark), "f"),
            fold(lambda values: max(values, key=as_spark), "f"),
            fold(sum, "d"),
            fold(max, "d"),
            fold(min, "b"),
        )
    return answer


def same(got: Any, wanted: Any) -> bool:
    if isinstance(got, float) and isinstance(wanted, float):
        return (got != got and wanted != wanted) or math.isclose(got, wanted, rel_tol=1e-12)
    return bool(got == wanted)


@pytest.mark.parametrize("name", KEYS)
@given(data=st.data())
@settings(max_examples=25)
def test_groups_are_pythons(name: str, data: st.DataObject) -> None:
    type_, keys = KEYS[name]
    row = {"k": st.sampled_from(keys), "l": st.sampled_from([0, 1, None]), **{v: s for v, (_, s) in VALUES.items()}}
    rows = data.draw(st.lists(st.fixed_dictionaries(row), max_size=25))
    types = {"k": type_, "l": pa.int8(), **{value: kind for value, (kind, _) in VALUES.items()}}
    table = pa.table({column: pa.array([r[column] for r in rows], kind) for column, kind in types.items()})
    picked = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else []
    cut = data.draw(st.integers(0, len(picked)))
    vectors = {value: Vector(table.column(value)) for value in VALUES}
    grouping = Grouping(AGGREGATE)
    parts = [grouping.of_rows(table, vectors, np.array(part, dtype=np.intp)) for part in (picked[:cut], picked[cut:])]
    answer = grouping.answer(parts, schema(type_))
    answer.validate(full=True)
    got = {tuple(values[:2]): values[2:] for values in (tuple(r.values()) for r in answer.to_pylist())}
    wanted = expected([table.slice(at, 1).to_pylist()[0] for at in picked])
    assert got.keys() == wanted.keys()
    assert len(answer) == len(wanted)
    for group, values in wanted.items():
        assert all(same(a, b) for a, b in zip(got[group], values, strict=True)), (group, got[group], values)


def by_number(values: pa.Array) -> Groups:
    grouping = Grouping(Aggregate(("g",), (Partial(Fold.SUM, "n"),), (Output(Make.FOLDED, 0, 0),)))
    return grouping.of_rows(
        pa.table({"g": pa.nulls(len(values), pa.int8())}), {"n": Vector(values)}, slice(0, len(values))
    )


def test_a_group_whose_sum_passes_bigint_raises() -> None:
    grouping = Grouping(Aggregate(("g",), (Partial(Fold.SUM, "n"),), (Output(Make.FOLDED, 0, 0),)))
    most = by_number(pa.array([(1 << 63) - 1]))
    answer = grouping.answer(
        [most, by_number(pa.array([-1])), by_number(pa.array([1]))], pa.schema([("s", pa.int64())])
    )
    assert answer.to_pylist() == [{"s": (1 << 63) - 1}]
    with pytest.raises(EvaluationError, match="9223372036854775808 is out of range"):
        grouping.answer([most, by_number(pa.array([1]))], pa.schema([("s", pa.int64())]))


def test_too_many_groups_are_left_to_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUPS_MAX", 3)
    grouping = Grouping(Aggregate(("g",), (Partial(Fold.ROWS),), (Output(Make.GROUP, 0),)))
    assert len(grouping.of_rows(pa.table({"g": [1, 2, 3, 1]}), {}, slice(0, 4))) == 3
    with pytest.raises(TooManyGroups):
        grouping.of_rows(pa.table({"g": [1, 2, 3, 4]}), {}, slice(0, 4))


def test_many_groups_of_several_columns() -> None:
    """More combinations than there are rows: codes are made dense on the way."""
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.integers(0, 500, 2_000) for name in "abc"})
    grouping = Grouping(Aggregate(("a", "b", "c"), (Partial(Fold.ROWS),), (Output(Make.FOLDED, 0),)))
    found = grouping.of_rows(table, {}, slice(0, 2_000))
    assert len(found) == len({tuple(row.values()) for row in table.to_pylist()})
    assert int(found.partials[0].values.sum()) == 2_000
