"""WITH RECURSIVE over random small graphs: DuckDB gives what Spark gives, and what Python computes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.names import Names

from ladle.schema import Column, TableSchema
from ladle.sql import bind

Edges = list[tuple[int, int]]

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.int32())])
NAMES = Names({}, tables={"edges": TableSchema(tuple(Column(f.name, f.type) for f in SCHEMA))})
DEPTH = 4

WALKS = (
    "WITH RECURSIVE r(n, d) AS (SELECT DISTINCT a, 0 FROM edges UNION ALL "
    f"SELECT e.b, d + 1 FROM r JOIN edges e ON e.a = r.n WHERE d < {DEPTH}) SELECT n, d FROM r"
)
REACHED = (
    "WITH RECURSIVE r(s, n, d) AS (SELECT a, b, 1 FROM edges UNION ALL SELECT DISTINCT r.s, e.b, d + 1 "
    f"FROM r, edges e WHERE e.a = r.n AND d < {DEPTH}) SELECT DISTINCT s, n FROM r"
)
SQUARES = (
    "WITH RECURSIVE r(s, n, d) AS (SELECT a, b, 1 FROM edges UNION ALL SELECT DISTINCT x.s, y.n, x.d * 2 "
    f"FROM r x JOIN r y ON x.n = y.s WHERE x.d < {DEPTH}) SELECT s, n, d FROM r"
)
LEFT = (
    "WITH RECURSIVE r(n, d) AS (SELECT min(a), 0 FROM edges UNION ALL SELECT coalesce(e.b, -1), d + 1 FROM r "
    f"LEFT JOIN (SELECT DISTINCT a, b FROM edges) e ON e.a = r.n WHERE d < {DEPTH}) SELECT d, n, count(*) FROM r "
    "GROUP BY d, n"
)
DEAD_ENDS = (
    "WITH RECURSIVE r(n, d) AS (SELECT DISTINCT a, 0 FROM edges UNION ALL (WITH ends AS (SELECT n, d FROM r WHERE "
    "NOT EXISTS (SELECT 1 FROM edges e WHERE e.a = r.n)) SELECT x.n - 1, x.d + 1 FROM ends x LEFT ANTI JOIN edges "
    f"ON b = -1 WHERE d < {DEPTH} AND n IN (SELECT n FROM ends))) SELECT n, d FROM r"
)


def walks(edges: Edges) -> Counter[tuple[int, ...]]:
    level = Counter({(a, 0): 1 for a, _ in edges})
    found = Counter(level)
    for depth in range(1, DEPTH + 1):
        following: Counter[tuple[int, int]] = Counter()
        for (n, _), times in level.items():
            for a, b in edges:
                if a == n:
                    following[b, depth] += times
        found += following
        level = following
    return Counter(dict(found))


def reached(edges: Edges) -> Counter[tuple[int, ...]]:
    found = level = set(edges)
    for _ in range(DEPTH - 1):
        level = {(s, b) for s, n in level for a, b in edges if a == n}
        found = found | level
    return Counter(dict.fromkeys(found, 1))


def squares(edges: Edges) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter((a, b, 1) for a, b in edges)
    level, depth = set(edges), 1
    while depth < DEPTH:
        level, depth = {(s, n) for s, m in level for t, n in level if m == t}, depth * 2
        found += Counter((s, n, depth) for s, n in level)
    return found


def left(edges: Edges) -> Counter[tuple[int, ...]]:
    level: Counter[int | None] = Counter([min((a for a, _ in edges), default=None)])
    found: Counter[tuple[int, ...]] = Counter()
    for depth in range(DEPTH + 1):
        found += Counter((depth, n, times) for n, times in level.items())  # type: ignore[misc]
        following: Counter[int | None] = Counter()
        for n, times in level.items():
            for b in {b for a, b in edges if a == n} or {-1}:
                following[b] += times
        level = following
    return found


CASES = {"walks": (WALKS, walks), "reached": (REACHED, reached), "squares": (SQUARES, squares), "left": (LEFT, left)}

graphs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=7)


def table(edges: Edges) -> pa.Table:
    return pa.table([[a for a, _ in edges], [b for _, b in edges]], schema=SCHEMA)


def rows(answer: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*answer.to_pydict().values(), strict=True))


def by_duckdb(text: str, edges: Edges) -> Counter[tuple[Any, ...]]:
    plan = bind(text, NAMES)
    assert plan.residual.duckdb_sql is not None, plan.residual.why_spark
    assert plan.schema is not None
    with duckdb.connect(config={"threads": "2"}) as con:
        con.register("_t0", table(edges))
        return rows(con.sql(plan.residual.duckdb_sql).to_arrow_table().cast(plan.schema))


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25)
@given(edges=graphs)
def test_what_python_computes(name: str, edges: Edges) -> None:
    text, computed = CASES[name]
    assert by_duckdb(text, edges) == computed(edges)


@pytest.mark.spark
@pytest.mark.parametrize("edges", [[(0, 1), (1, 2), (2, 0), (2, 3), (2, 3)], [(3, 3), (0, 4)], []])
@pytest.mark.parametrize("text", [*(text for text, _ in CASES.values()), DEAD_ENDS])
def test_what_spark_computes(spark: Any, text: str, edges: Edges) -> None:
    expected = by_duckdb(text, edges)
    for name in ("_t0", "edges"):
        spark.createDataFrame(table(edges), "a INT, b INT").createOrReplaceTempView(name)
    assert rows(spark.sql(text).toArrow()) == expected
    assert rows(spark.sql(bind(text, NAMES).residual.spark_sql).toArrow()) == expected


LIMITS = [
    ("SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 4", 3, None),
    ("SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3", 3, 3),
    ("SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 1", 0, None),
    ("SELECT id FROM range(0) UNION ALL SELECT n + 1 FROM t", 0, 0),
    ("SELECT 1 UNION ALL SELECT n FROM (SELECT n + 1 AS n FROM t WHERE n < 4 LIMIT 1)", 3, None),
    ("SELECT 1 UNION ALL SELECT n + 1 FROM t JOIN range(1) ON n < 4", 3, None),
    ("SELECT 1 UNION ALL SELECT 5 FROM range(1) WHERE EXISTS (SELECT 1 FROM t WHERE n < 0)", 1, 1),
    ("SELECT 1 UNION ALL SELECT 5 FROM range(1) WHERE EXISTS (SELECT 1 FROM t WHERE n < 0)", 0, None),
]


def _limited(query: str, level: int) -> str:
    # what is asked of the rows must not make the limit less
    return f"WITH RECURSIVE t(n) MAX RECURSION LEVEL {level} AS ({query}) SELECT count(*) FROM t WHERE n < 1000"


@pytest.mark.parametrize(("query", "level", "count"), LIMITS)
def test_levels_in_duckdb(query: str, level: int, count: int | None) -> None:
    if count is None:
        with pytest.raises(duckdb.Error, match=f"RECURSION_LEVEL_LIMIT_EXCEEDED. Recursion level limit {level} "):
            by_duckdb(_limited(query, level), [])
    else:
        assert by_duckdb(_limited(query, level), []) == Counter([(count,)])


@pytest.mark.spark
@pytest.mark.parametrize(("query", "level", "count"), LIMITS)
def test_levels_in_spark(spark: Any, query: str, level: int, count: int | None) -> None:
    text = bind(_limited(query, level), NAMES).residual.spark_sql
    if count is None:
        with pytest.raises(Exception, match="RECURSION_LEVEL_LIMIT_EXCEEDED"):
            spark.sql(text).collect()
    else:
        assert spark.sql(text).collect()[0][0] == count


@pytest.mark.parametrize("condition", ["", " WHERE n < 3", " ORDER BY n LIMIT 1", " LIMIT 1"])
def test_an_endless_recursion_ends(condition: str) -> None:
    text = f"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n FROM t{condition}"
    with pytest.raises(duckdb.Error, match="Recursion level limit 100 reached"):
        by_duckdb(text, [])


def test_rows_of_all_steps_are_limited() -> None:
    many = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t, range(10)) SELECT count(*) FROM t"
    once = (
        "WITH RECURSIVE t(n) AS (SELECT id FROM range({}) UNION ALL SELECT n FROM t WHERE n < 0) SELECT count(*) FROM t"
    )
    for text in (many, once.format(1_000_000)):
        with pytest.raises(duckdb.Error, match="Recursion row limit 1000000 reached"):
            by_duckdb(text, [])
    assert by_duckdb(once.format(999_999), []) == Counter([(999_999,)])
