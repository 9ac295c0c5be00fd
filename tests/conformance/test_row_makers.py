"""Functions that make rows: in the SELECT list, behind LATERAL VIEW and in FROM.

Method: Spark runs the text as it stands, or what is written beside it, and the text that the binder makes of it, over
the same rows: arrays, maps and structs, empty ones and NULLs among them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.sql.names import Names

from ladle.schema import Column, TableSchema, type_name
from ladle.sql import bind
from ladle.sql.ordered_aggregates import for_spark

_PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
G = pa.table(
    {
        "n": pa.array([1, 2, 3, 4, None], pa.int32()),
        "col": pa.array(["x", "y", "x", None, "y"]),
        "xs": pa.array([[3, 1], [], None, [5, None, 5], [7]], pa.list_(pa.int32())),
        "m": pa.array([[("a", 1), ("b", None)], [], None, [("c", 3)], []], pa.map_(pa.string(), pa.int32())),
        "ps": pa.array(
            [[{"a": 1, "b": "x"}, {"a": None, "b": None}], [], None, [{"a": 4, "b": ""}], []], pa.list_(_PAIR)
        ),
        "s": pa.array(
            [{"ys": [1, 2]}, {"ys": []}, None, {"ys": None}, {"ys": [9]}], pa.struct([("ys", pa.list_(pa.int32()))])
        ),
        "j": pa.array(['{"a": 1, "b": "x"}', '{"a": null}', "none", None, '{"b": [1, 2]}']),
    }
)

CASES: tuple[str | tuple[str, str], ...] = (
    "SELECT n, explode(xs) FROM g",
    "SELECT n, explode(xs) AS x FROM g WHERE n < 4",
    "SELECT n, explode_outer(xs) AS x, col FROM g ORDER BY n, x",
    "SELECT posexplode(xs), n FROM g",
    "SELECT n, posexplode(xs) AS (p, x) FROM g ORDER BY p DESC, x LIMIT 3",
    "SELECT posexplode_outer(xs) AS (p, x), * FROM g",
    "SELECT n, explode(m) FROM g",
    "SELECT explode_outer(m) AS (k, v), n FROM g",
    "SELECT posexplode(m), n FROM g",
    "SELECT posexplode_outer(m) AS (p, k, v) FROM g",
    "SELECT n, inline(ps) FROM g",
    "SELECT inline_outer(ps) AS (c, d), n FROM g",
    "SELECT inline(array(struct(n, col AS c, 1))), n AS o FROM g",
    "SELECT inline(array(named_struct('u', n, 'v', col))) FROM g",
    "SELECT stack(2, n, col, 5, 'a'), n AS o FROM g",
    "SELECT stack(2, n, 1, 7) AS (a, b), col FROM g WHERE n > 1",
    "SELECT json_tuple(j, 'a', 'b'), n FROM g",
    "SELECT n, json_tuple(j, 'b') AS b FROM g",
    "SELECT explode(s.ys) AS y, n FROM g",
    "SELECT explode(map(col, n)) FROM g WHERE col IS NOT NULL",
    "SELECT explode(map_from_arrays(xs, xs)) AS (k, v) FROM g WHERE n = 1",
    "SELECT DISTINCT explode(xs) AS x FROM g ORDER BY x",
    "SELECT n, explode(xs) AS x, row_number() OVER (ORDER BY n) > 0 AS r, count(*) OVER (PARTITION BY n) AS c FROM g",
    "SELECT explode(sequence(1, 3)) AS n",
    "SELECT posexplode_outer(array()) WHERE 1 < 2",
    "SELECT stack(2, 1, 'a', 2, 'b') AS (n, s)",
    "SELECT explode(xs) AS x FROM g UNION ALL SELECT n FROM g",
    "SELECT n FROM g WHERE n IN (SELECT explode(array(1, 4, 9)))",
    "SELECT g.n, e.x FROM g, LATERAL (SELECT explode(g.xs) AS x) AS e",
    "SELECT g.n, e.* FROM g, LATERAL (SELECT posexplode_outer(g.xs)) AS e",
    "SELECT y, count(*) AS c FROM (SELECT explode(xs) AS y FROM g) GROUP BY y",
    "SELECT col, explode(collect_set(n)) AS x, count(*) AS c FROM g GROUP BY col",
    ("SELECT col, explode(collect_set(n)) AS x, count(*) AS c FROM g GROUP BY col HAVING count(*) > 1",
     "SELECT col, explode(ns) AS x, c FROM (SELECT col, collect_set(n) AS ns, count(*) AS c FROM g GROUP BY col) "
     "WHERE c > 1"),
    "SELECT explode(array(max(n), min(n))) AS x FROM g",
    ("SELECT col, explode(collect_set(n)) AS x, col FROM g GROUP BY col",
     "SELECT col, explode(collect_set(n)) AS x, col AS col_1 FROM g GROUP BY col"),
    ("SELECT col AS c, posexplode(array_agg(n ORDER BY n DESC)) AS (p, x) FROM g GROUP BY col ORDER BY c, p",
     "SELECT col AS c, posexplode(sort_array(collect_list(n), false)) AS (p, x) FROM g GROUP BY col ORDER BY c, p"),
    ("SELECT n, explode(xs) AS x FROM g QUALIFY row_number() OVER (PARTITION BY n ORDER BY x DESC) = 1",
     "SELECT n, max(x) AS x FROM (SELECT n, explode(xs) AS x FROM g) GROUP BY n"),
    "SELECT n, x, posexplode(y) FROM g LATERAL VIEW explode(xs) e AS x LATERAL VIEW OUTER explode(array(s.ys)) f AS y",
    "SELECT n, u, v FROM g LATERAL VIEW OUTER inline(ps) p AS u, v",
    "SELECT n, p.* FROM g LATERAL VIEW inline(ps) p",
    "SELECT n, p.* FROM g LATERAL VIEW explode(m) p",
    "SELECT n, x FROM g LATERAL VIEW explode_outer(xs) p AS x",
    "SELECT n, a, c0 FROM g LATERAL VIEW json_tuple(j, 'a', 'b') t AS a, c0 LATERAL VIEW stack(2, a, c0) AS z",
    "SELECT * FROM inline(array(struct(1, 'a'), struct(2, 'b')))",
    "SELECT v.n, w FROM stack(2, 1, 'a', 2, 'b') AS v(n, w) JOIN g ON g.n = v.n",
    "SELECT * FROM posexplode_outer(array(1, 2)) AS t(p, x)",
    "SELECT * FROM json_tuple('{\"a\": 1}', 'a', 'b')",
    "SELECT n, t.* FROM g, LATERAL inline_outer(ps) AS t(a, b)",
)  # fmt: skip


@pytest.fixture(scope="module")
def tables(spark: Any) -> Any:
    schema = ", ".join(f"{field.name} {type_name(field.type)}" for field in G.schema)
    spark.createDataFrame(G, schema).createOrReplaceTempView("g")
    return spark


def _rows(frame: Any, *, ordered: bool) -> list[str]:
    rows = [repr(tuple(row)) for row in frame.collect()]
    return rows if ordered else sorted(rows)


@pytest.mark.spark
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_spark_makes_the_same_rows(tables: Any, case: str | tuple[str, str]) -> None:
    text, spelled = (case, case) if isinstance(case, str) else case
    schema = TableSchema(tuple(Column(field.name, field.type) for field in G.schema))
    plan = bind(text, Names({}, tables={"g": schema}))
    for table in plan.tables:
        tables.table(table.table).createOrReplaceTempView(table.relation)
    ours, theirs = tables.sql(for_spark(plan.residual.spark_sql)), tables.sql(spelled)
    assert ours.columns == theirs.columns
    assert [field.dataType for field in ours.schema] == [field.dataType for field in theirs.schema]
    ordered = "ORDER BY" in text.rsplit(")", 1)[-1]
    assert _rows(ours, ordered=ordered) == _rows(theirs, ordered=ordered)
