"""Which residuals partial aggregates may answer, and which they must leave alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.sql.names import Names

from ladle.plan.query import Plan, plan_from_json, plan_to_json
from ladle.schema import Column, StreamSchema
from ladle.sql import bind

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


NAMES = Names({"s": SCHEMA}, {"picked": "SELECT i AS number, k FROM s WHERE i > 1"})


def shape(plan: Plan) -> str | None:
    found = plan.residual.aggregate
    if found is None:
        return None
    outputs = [f"{output.make.value} {output.at}" for output in found.outputs]
    return f"{', '.join(found.groups) or '-'} | {', '.join(found.names)} | {', '.join(outputs)}"


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
    ],
)
def test_what_is_only_folded(query: str, expected: str) -> None:
    plan = bind(query, NAMES)
    assert shape(plan) == expected
    assert plan_from_json(plan_to_json(plan)) == plan


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
        "SELECT count(*) + 1 FROM s",
        "SELECT sum(i + 1) FROM s",
        "SELECT i % 2, count(*) FROM s GROUP BY i % 2",
        "SELECT k, count(*) FROM s GROUP BY k HAVING count(*) > 1",
        "SELECT k, count(*) FROM s GROUP BY k ORDER BY 1",
        "SELECT k, count(*) FROM s GROUP BY k LIMIT 1",
        "SELECT k, count(*) FROM s GROUP BY ROLLUP (k)",
        "SELECT count(*) FILTER (WHERE i > 1) FROM s",
        "SELECT count(*) OVER () FROM s",
        "SELECT DISTINCT count(*) FROM s",
        "SELECT count(*) FROM s a JOIN s b ON a.i = b.i",
        "SELECT count(*) FROM s WHERE i IN (SELECT i FROM s)",
        "SELECT count(*) FROM (SELECT i FROM s LIMIT 3) t",
        "SELECT count(*) FROM (SELECT count(*) c FROM s GROUP BY k) t",
        "WITH w AS (SELECT i FROM s) SELECT count(*) FROM w",
        "SELECT count(*) FROM s UNION ALL SELECT count(*) FROM s",
        "SELECT 1",
    ],
)
def test_what_is_more_than_folded(query: str) -> None:
    assert shape(bind(query, NAMES)) is None


def test_a_plan_of_an_older_log_folds_nothing() -> None:
    value = plan_to_json(bind("SELECT count(*) FROM s", NAMES))
    value["residual"] = value["residual"][:5]
    assert plan_from_json(value).residual.aggregate is None
