"""Which nodes partial aggregates may give, and which they must leave alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.sql.names import Names

from ladle.plan.aggregate import Aggregate
from ladle.plan.answering import Folding
from ladle.plan.query import plan_from_json, plan_to_json
from ladle.schema import Column, StreamSchema, TableSchema
from ladle.sql import bind, folding_of

SCHEMA = StreamSchema(
    (
        Column("k", pa.string()),
        Column("i", pa.int32()),
        Column("n", pa.int64()),
        Column("f", pa.float64()),
        Column("d", pa.decimal128(18, 4)),
        Column("long", pa.decimal128(28, 4)),
        Column("b", pa.bool_()),
        Column("day", pa.date32()),
        Column("list", pa.list_(pa.int32())),
        Column("at", pa.timestamp("us", tz="UTC")),
    ),
    "at",
)


NAMES = Names(
    {"s": SCHEMA},
    {"picked": "SELECT i AS number, k FROM s WHERE i > 1"},
    tables={"t": TableSchema((Column("k", pa.string()), Column("v", pa.int32())))},
)


def shape(folding: Folding | None) -> list[str]:
    nodes = () if folding is None else folding.nodes
    return [_shape(node.aggregate) for node in nodes]


def _shape(aggregate: Aggregate) -> str:
    outputs = [f"{output.make.value} {output.at}" for output in aggregate.outputs]
    return f"{', '.join(aggregate.groups) or '-'} | {', '.join(aggregate.names)} | {', '.join(outputs)}"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) FROM s", "- | rows * | folded 0"),
        ("SELECT count(1), count(k) FROM s", "- | rows *, count k | folded 0, folded 1"),
        ("SELECT sum(i), mean(i) FROM s WHERE n > 3", "- | sum i, count i | folded 0, average 0"),
        (
            "SELECT MIN(f) a, max(day), max(b), min(d) FROM s",
            "- | min f, max day, max b, min d | folded 0, folded 1, folded 2, folded 3",
        ),
        ("SELECT avg(d) FROM s [ROWS 5]", "- | sum d, count d | average 0"),
        ("SELECT k, count(*) FROM s GROUP BY k", "k | rows * | group 0, folded 0"),
        ("SELECT max(i), day FROM s GROUP BY 2, k", "day, k | max i | folded 0, group 0"),
        ("SELECT k FROM s GROUP BY ALL", "k |  | group 0"),
        (
            "SELECT t.k, sum(t.n) FROM (SELECT k, n FROM s WHERE i = 1) t GROUP BY t.k",
            "k | sum n, count n | group 0, folded 0",
        ),
        ("SELECT k, max(number) FROM picked GROUP BY k", "k | max i | group 0, folded 0"),
        ("WITH w AS (SELECT i FROM s) SELECT count(*) FROM w", "- | rows * | folded 0"),
    ],
)
def test_what_is_only_folded(query: str, expected: str) -> None:
    folding = folding_of(bind(query, NAMES), NAMES)
    assert shape(folding) == [expected]
    assert folding is not None
    assert folding.above is None


_PER_KEY = "k | rows * | group 0, folded 0"


@pytest.mark.parametrize(
    ("query", "expected", "reads"),
    [
        ("SELECT count(*) + 1 FROM s", ["- | rows * | folded 0"], []),
        ("SELECT k, count(*) FROM s GROUP BY k HAVING count(*) > 1", [_PER_KEY], []),
        ("SELECT k, count(*) FROM s GROUP BY k ORDER BY 1", [_PER_KEY], []),
        ("SELECT k, count(*) FROM s GROUP BY k LIMIT 1", [_PER_KEY], []),
        ("SELECT DISTINCT count(*) FROM s GROUP BY k", [_PER_KEY], []),
        ("SELECT count(*) FROM (SELECT count(*) c FROM s GROUP BY k) t", [_PER_KEY], []),
        (
            "SELECT k, sum(n) / count(*) FROM s GROUP BY k",
            ["k | sum n, count n, rows * | group 0, folded 0, folded 2"],
            [],
        ),
        ("SELECT count(*) FROM s UNION ALL SELECT count(*) FROM s", ["- | rows * | folded 0"] * 2, []),
        ("SELECT count(*) FROM s UNION ALL SELECT n FROM s", ["- | rows * | folded 0"], ["_s1"]),
        (
            "WITH w AS (SELECT k, count(*) AS c FROM s GROUP BY k) SELECT a.c FROM w a JOIN w b ON a.k = b.k",
            [_PER_KEY],
            [],
        ),
        ("SELECT t.v, q.c FROM t JOIN (SELECT k, count(*) AS c FROM s GROUP BY k) q ON t.k = q.k", [_PER_KEY], ["_t0"]),
        ("SELECT rank() OVER (ORDER BY c) FROM (SELECT k, count(*) AS c FROM s GROUP BY k)", [_PER_KEY], []),
        ("SELECT k FROM s WHERE n > (SELECT avg(n) FROM s)", ["- | sum n, count n | average 0"], ["_s0"]),
        ("SELECT k FROM s a WHERE n > (SELECT avg(b.n) FROM s b WHERE b.k = a.k)", [], []),
    ],
)
def test_what_is_computed_of_what_is_folded(query: str, expected: list[str], reads: list[str]) -> None:
    folding = folding_of(bind(query, NAMES), NAMES)
    assert shape(folding) == expected
    if folding is not None:
        assert folding.above is not None
        assert sorted(folding.reads) == reads


def test_plans_of_one_text_have_one_folding() -> None:
    first, second = (folding_of(bind(f"SELECT max(n) FROM s WHERE i > {n}", NAMES), NAMES) for n in (1, 2))
    assert first is not None
    assert first is second


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM s",
        "SELECT count(DISTINCT k) FROM s",
        "SELECT count(k, i) FROM s",
        "SELECT count(list) FROM s",  # left to Spark
        "SELECT max(k) FROM s",  # strings are compared in DuckDB
        "SELECT sum(long), max(long) FROM s",
        "SELECT max(long) FROM s",
        "SELECT f, count(*) FROM s GROUP BY f",  # which zero and which NaN a group shows is DuckDB's business
        "SELECT k, avg(d) FROM s GROUP BY k",
        "SELECT sum(i + 1) FROM s",
        "SELECT i % 2, count(*) FROM s GROUP BY i % 2",
        "SELECT k, count(*) FROM s GROUP BY ROLLUP (k)",
        "SELECT count(*) FILTER (WHERE i > 1) FROM s",
        "SELECT count(*) OVER () FROM s",
        "SELECT count(*) FROM s a JOIN s b ON a.i = b.i",
        "SELECT count(*) FROM s WHERE i IN (SELECT i FROM s)",
        "SELECT count(*) FROM (SELECT i FROM s LIMIT 3) t",
        "SELECT 1",
    ],
)
def test_what_is_not_folded(query: str) -> None:
    assert folding_of(bind(query, NAMES), NAMES) is None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM s",
        "SELECT k, sum(n) / 2 FROM s GROUP BY k",
        "SELECT window, k, max(n) FROM s GROUP BY window(at, '4 minutes', '2 minutes', '1 minute'), k",
        "SELECT k FROM s",
    ],
)
def test_a_plan_is_written_with_its_folding(query: str) -> None:
    plan = bind(query, NAMES)
    assert plan.residual.foldings is not None
    assert plan_from_json(plan_to_json(plan)) == plan


def test_a_plan_of_an_older_log_is_read() -> None:
    """It says what its residual folds, or nothing."""
    plan = bind("SELECT count(*) FROM s", NAMES)
    value = plan_to_json(plan)
    value["residual"][5] = {"groups": [], "partials": [["rows", None]], "outputs": [["folded", 0, None]]}
    assert plan_from_json(value) == plan
    del value["residual"][5]
    old = plan_from_json(value)
    assert old.residual.foldings is None
    assert folding_of(old, NAMES) == folding_of(plan, NAMES)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT window, k, count(*) FROM s GROUP BY window(at, '5 minutes'), k", "window 0, group 0, folded 0"),
        ("SELECT window.end AS e, count(*) FROM s GROUP BY window(at, '5 minutes', '2 minutes')", "end 0, folded 0"),
    ],
)
def test_windows_are_folded_as_panes(query: str, expected: str) -> None:
    folding = folding_of(bind(query, NAMES), NAMES)
    assert folding is not None
    assert folding.above is None
    (node,) = folding.nodes
    assert node.aggregate.windows is not None
    assert node.aggregate.windows.panes.length_us == (60_000_000 if "2 minutes" in query else 300_000_000)
    assert ", ".join(f"{output.make.value} {output.at}" for output in node.aggregate.outputs) == expected


def test_sessions_are_not_folded() -> None:
    assert folding_of(bind("SELECT count(*) FROM s GROUP BY session_window(at, '5 minutes')", NAMES), NAMES) is None
