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
from ladle.operators import groups as module
from ladle.operators.aggregates import Vector
from ladle.operators.groups import Grouping, Groups, TooManyGroups, TooManyKeys
from ladle.plan.aggregate import Aggregate, Fold, Make, Output, Partial, Windows

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


def by_number(grouping: Grouping, values: pa.Array) -> Groups:
    return grouping.of_rows(
        pa.table({"g": pa.nulls(len(values), pa.int8())}), {"n": Vector(values)}, slice(0, len(values))
    )


def test_a_group_whose_sum_passes_bigint_raises() -> None:
    grouping = Grouping(Aggregate(("g",), (Partial(Fold.SUM, "n"),), (Output(Make.FOLDED, 0, 0),)))
    most = by_number(grouping, pa.array([(1 << 63) - 1]))
    answer = grouping.answer(
        [most, by_number(grouping, pa.array([-1])), by_number(grouping, pa.array([1]))], pa.schema([("s", pa.int64())])
    )
    assert answer.to_pylist() == [{"s": (1 << 63) - 1}]
    with pytest.raises(EvaluationError, match="9223372036854775808 is out of range"):
        grouping.answer([most, by_number(grouping, pa.array([1]))], pa.schema([("s", pa.int64())]))


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


def test_nodes_with_few_groups_and_with_most_of_them_combine() -> None:
    """A group that has only NULLs in one part, and does not occur in another that has no NULLs, has no value."""
    grouping = Grouping(Aggregate(("g",), (Partial(Fold.MAX, "n"),), (Output(Make.GROUP, 0), Output(Make.FOLDED, 0))))

    def part(keys: list[int], values: list[int | None]) -> Groups:
        numbers = pa.array(values, pa.int64())
        return grouping.of_rows(pa.table({"g": keys}), {"n": Vector(numbers)}, slice(0, len(keys)))

    few = part(list(range(8)), [None, *range(1, 8)])
    dense = part([1, 2, 3, 4, 5, 6, 7], [9, 9, 9, 9, 9, 9, 9])
    sparse = part([3], [10])
    assert (dense.numbers is None, sparse.numbers is None) == (True, False)
    answer = grouping.answer([few, dense, sparse], pa.schema([("g", pa.int64()), ("m", pa.int64())]))
    assert answer.to_pydict() == {"g": list(range(8)), "m": [None, 9, 9, 10, 9, 9, 9, 9]}
    early = part([0], [1])
    later = grouping.answer([early], pa.schema([("g", pa.int64()), ("m", pa.int64())]))
    assert later.to_pydict() == {"g": [0], "m": [1]}


def test_a_full_dictionary_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEYS_MAX", 3)
    grouping = Grouping(Aggregate(("g",), (Partial(Fold.ROWS),), (Output(Make.GROUP, 0),)))
    assert len(grouping.of_rows(pa.table({"g": [1, 2]}), {}, slice(0, 2))) == 2
    assert len(grouping.of_rows(pa.table({"g": [2, None]}), {}, slice(0, 2))) == 2
    with pytest.raises(TooManyKeys):
        grouping.of_rows(pa.table({"g": [4, 5]}), {}, slice(0, 2))


WINDOWS = [(10, 10, 0), (10, 5, 3), (10, 1, 0), (7, 3, -4), (12, 8, 100), (30, 7, 2)]


@pytest.mark.parametrize(("size", "slide", "offset"), WINDOWS)
@given(
    rows=st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-60, 60) | st.none()), max_size=40),
    cut=st.integers(0, 40),
)
@settings(max_examples=25)
def test_panes_become_windows(size: int, slide: int, offset: int, rows: list[Any], cut: int) -> None:
    windows = Windows("t", size, slide, offset)
    outputs = (Output(Make.WINDOW, 0), Output(Make.GROUP, 0), Output(Make.FOLDED, 0), Output(Make.FOLDED, 1))
    partials = (Partial(Fold.ROWS), Partial(Fold.MAX, "n"))
    grouping = Grouping(Aggregate(("k",), partials, outputs, windows))
    keys, times = [key for key, _ in rows], [time for _, time in rows]
    moment = pa.timestamp("us", tz="UTC")
    table = pa.table({"k": pa.array(keys, pa.string()), "t": pa.array(times, pa.int64()).cast(moment)})
    vectors = {"n": Vector(pa.array(range(len(rows)), pa.int64()))}
    cut = min(cut, len(rows))
    parts = [grouping.of_rows(table, vectors, each) for each in (slice(0, cut), slice(cut, len(rows)))]
    window = pa.struct([("start", moment), ("end", moment)])
    schema = pa.schema([("w", window), ("k", pa.string()), ("c", pa.int64()), ("m", pa.int64())])
    answer = grouping.answer(parts, schema)
    answer.validate(full=True)
    bounds = [answer["w"].combine_chunks().field(at).cast(pa.int64()).to_pylist() for at in (0, 1)]
    got = {
        (start, end, key): (count, most)
        for start, end, key, count, most in zip(
            *bounds, answer["k"].to_pylist(), answer["c"].to_pylist(), answer["m"].to_pylist(), strict=True
        )
    }
    wanted: dict[Any, tuple[int, int]] = {}
    for number, (key, time) in enumerate(rows):
        for start in range(offset - 300 * slide, offset + 300 * slide, slide):
            if time is not None and start <= time < start + size:
                count, _ = wanted.get((start, start + size, key), (0, 0))
                wanted[start, start + size, key] = (count + 1, number)
    assert got == wanted
    assert len(answer) == len(wanted)
