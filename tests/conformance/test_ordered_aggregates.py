"""Aggregates of values in an order: array_agg, string_agg, first and last.

Method: random rows of few values, so that keys tie, NULLs among them; what each aggregate is of each group, and of no
rows at all, is computed by sorting a list in Python, and compared with DuckDB and with Spark.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.conformance.values import naive
from tests.sql.names import Names

from ladle.schema import TIMESTAMP, Column, TableSchema, type_name
from ladle.sql import bind
from ladle.sql.ordered_aggregates import for_spark

ROWS = 300
GROUPS = 8
WORDS = ("a", "b", "B", "", "é", "😀", "ab", None)
TYPES: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "g": (pa.int32(), (*range(GROUPS - 2), None)),
    "n": (pa.int32(), (0, 1, 2, 3, None)),
    "f": (pa.float64(), (0.5, 1.5, -2.0, float("inf"), float("nan"), None)),
    "s": (pa.string(), WORDS),
    "d": (pa.decimal128(10, 2), (Decimal("1.50"), Decimal("-2.25"), Decimal("0.00"), None)),
    "t": (TIMESTAMP, (*(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=h) for h in range(3)), None)),
    "b": (pa.bool_(), (True, False, None)),
}
SCHEMA = pa.schema([(name, type_) for name, (type_, _) in TYPES.items()])

Row = dict[str, Any]
Key = tuple[str, bool, bool]
"""Column, whether it descends, and whether NULLs come first."""

ORDERS: tuple[tuple[str, tuple[Key, ...]], ...] = (
    ("n", (("n", False, True),)),
    ("n DESC", (("n", True, False),)),
    ("f NULLS LAST", (("f", False, False),)),
    ("f DESC NULLS FIRST, n", (("f", True, True), ("n", False, True))),
    ("s DESC, t NULLS LAST, b DESC NULLS FIRST", (("s", True, False), ("t", False, False), ("b", True, True))),
    ("d", (("d", False, True),)),
)


def _compared(x: Any, y: Any, *, desc: bool, nulls_first: bool) -> int:
    if x is None or y is None:
        return (x is not None) - (y is not None) if nulls_first else (x is None) - (y is None)
    a, b = (_ordered(each) for each in (x, y))
    found = (a > b) - (a < b)
    return -found if desc else found


def _ordered(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return value


def _sorted(rows: Sequence[Row], keys: Sequence[Key], value: str) -> list[Any]:
    """The values in order; those whose keys tie in their own."""

    def compare(x: Row, y: Row) -> int:
        for name, desc, nulls_first in (*keys, (value, False, True)):
            if found := _compared(x[name], y[name], desc=desc, nulls_first=nulls_first):
                return found
        return 0

    return [row[value] for row in sorted(rows, key=cmp_to_key(compare))]


def _some(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _joined(values: Sequence[Any]) -> str | None:
    return "-".join(_some(values)) if _some(values) else None


FORMS: dict[str, tuple[tuple[str, ...], Callable[[list[Any]], Any]]] = {
    "array": (("array_agg({x} ORDER BY {o})", "collect_list({x}) WITHIN GROUP (ORDER BY {o})"), _some),
    "first": (
        ("first({x} ORDER BY {o})", "first_value({x}) WITHIN GROUP (ORDER BY {o})"),
        lambda values: values[0] if values else None,
    ),
    "last": (
        ("last({x} ORDER BY {o})", "last_value({x}, false ORDER BY {o})"),
        lambda values: values[-1] if values else None,
    ),
    "first_some": (
        ("first({x} ORDER BY {o}) IGNORE NULLS", "first({x} IGNORE NULLS ORDER BY {o})"),
        lambda values: next(iter(_some(values)), None),
    ),
    "last_some": (
        ("last({x}, true ORDER BY {o})", "last_value({x}) WITHIN GROUP (ORDER BY {o}) IGNORE NULLS"),
        lambda values: next(iter(_some(values)[::-1]), None),
    ),
    "text": (("string_agg({x}, '-' ORDER BY {o})", "listagg({x}, '-') WITHIN GROUP (ORDER BY {o})"), _joined),
}


def _filtered(text: str) -> str:
    """FILTER stands before IGNORE NULLS."""
    return (
        f"{text.removesuffix(' IGNORE NULLS')} FILTER (WHERE n > 0){' IGNORE NULLS' * text.endswith(' IGNORE NULLS')}"
    )


def _cases(seed: int) -> list[tuple[str, Callable[[Sequence[Row]], Any]]]:
    """Calls, and what they are of a group."""
    source = random.Random(seed)
    found: list[tuple[str, Callable[[Sequence[Row]], Any]]] = []
    for text, keys in ORDERS:
        for name, (written, meaning) in FORMS.items():
            value = "s" if name == "text" else source.choice(("n", "f", "s", "d", "t", "b"))
            call = source.choice(written).format(x=value, o=text)
            found.append((call, lambda rows, k=keys, v=value, m=meaning: m(_sorted(rows, k, v))))  # type: ignore[misc]

            def of_some(rows: Sequence[Row], k: Any = keys, v: str = value, m: Any = meaning) -> Any:
                return m(_sorted([row for row in rows if row["n"] is not None and row["n"] > 0], k, v))

            found.append((_filtered(call), of_some))
    return found


def _distinct_cases() -> list[tuple[str, Callable[[Sequence[Row]], Any]]]:
    """Apart from the others: Spark can't order texts beside several DISTINCT aggregates."""
    found: list[tuple[str, Callable[[Sequence[Row]], Any]]] = []
    for value, desc in (("n", True), ("s", False), ("f", True), ("t", False)):
        order = f"{value} DESC" if desc else value
        keys = ((value, desc, False),)
        call = f"array_agg(DISTINCT {value} ORDER BY {order})"
        found.append((call, lambda rows, k=keys, v=value: _once(_some(_sorted(rows, k, v)))))  # type: ignore[misc]
    return found


def _once(values: Sequence[Any]) -> list[Any]:
    return [value for at, value in enumerate(values) if not at or repr(value) != repr(values[at - 1])]


def _rows(seed: int) -> list[Row]:
    source = random.Random(seed)
    rows = [{name: source.choice(values) for name, (_, values) in TYPES.items()} for _ in range(ROWS)]
    # a group of NULLs, and one whose rows no filter lets through
    return [*rows, *({**dict.fromkeys(TYPES), "g": 90} for _ in range(3)), {**rows[0], "g": 91, "n": 0}]


def _plan(calls: Sequence[str], tail: str) -> Any:
    schema = TableSchema(tuple(Column(field.name, field.type) for field in SCHEMA))
    listed = ", ".join(f"{call} AS r{at}" for at, call in enumerate(calls))
    return bind(f"SELECT {listed} FROM r {tail}", Names({}, tables={"r": schema}))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    return repr(value)


def _check(answer: pa.Table, calls: Sequence[str], wanted: dict[Any, list[Any]], engine: str) -> None:
    columns = [column.to_pylist() for column in answer.columns]
    assert len(answer) == len(wanted)
    for row in zip(*columns, strict=True):
        for call, found, expected in zip(calls, row[1:], wanted[row[0]], strict=True):
            assert _shown(found) == _shown(expected), f"{engine}: {call} of group {row[0]}"


def _wanted(rows: Sequence[Row], cases: Sequence[tuple[str, Callable[[Sequence[Row]], Any]]]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["g"], []).append(row)
    return {group: [meaning(members) for _, meaning in cases] for group, members in groups.items()}


def _check_all(run: Callable[[Any], pa.Table], rows: Sequence[Row], cases: Sequence[Any], engine: str) -> None:
    """Of groups, and of no rows."""
    calls = [call for call, _ in cases]
    plan = _plan(["g", *calls], "GROUP BY g")
    assert plan.residual.duckdb_sql is not None
    answer = run(plan)
    _check(answer, calls, _wanted(rows, cases), engine)
    if engine == "Spark":
        # also the types, but for Spark's marks of what is never NULL
        assert answer.cast(plan.schema).schema == plan.schema
        assert [type_name(field.type) for field in answer.schema] == list(map(type_name, plan.schema.types))
    none = run(_plan(["1", *calls], "WHERE n > 100"))
    _check(none, calls, {1: [meaning([]) for _, meaning in cases]}, engine)


@pytest.mark.parametrize("seed", range(4))
def test_duckdb_gives_what_sorting_does(seed: int) -> None:
    rows = _rows(seed)
    con = duckdb.connect()
    con.register("_t0", naive(pa.Table.from_pylist(rows, SCHEMA)))
    for cases in (_cases(seed), _distinct_cases()):
        _check_all(lambda plan: con.sql(plan.residual.duckdb_sql).to_arrow_table(), rows, cases, "DuckDB")


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(2))
def test_spark_gives_what_sorting_does(spark: Any, seed: int) -> None:
    rows = _rows(seed)
    schema = ", ".join(f"{field.name} {type_name(field.type)}" for field in SCHEMA)
    spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA), schema).createOrReplaceTempView("_t0")
    for cases in (_cases(seed), _distinct_cases()):
        _check_all(lambda plan: spark.sql(for_spark(plan.residual.spark_sql)).toArrow(), rows, cases, "Spark")


def test_conditions_guard_what_may_raise() -> None:
    rows = [{**_rows(0)[0], "g": 1, "n": n} for n in (0, 1, 2, 4)]
    con = duckdb.connect()
    con.register("_t0", naive(pa.Table.from_pylist(rows, SCHEMA)))
    plan = _plan(["g", "array_agg(4 / n ORDER BY n) FILTER (WHERE n <> 0)"], "GROUP BY g")
    assert con.sql(plan.residual.duckdb_sql).fetchall() == [(1, [4.0, 2.0, 1.0])]


def test_texts_without_an_order_inside_stay_as_they_are() -> None:
    text = "SELECT 'WITHIN GROUP' AS a, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY `n`) AS b FROM `_t0`"
    assert for_spark(text) == text
    assert for_spark("SELECT first(n)  FROM t") == "SELECT first(n)  FROM t"
