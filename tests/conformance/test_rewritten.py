"""Clauses that the binder writes as others: QUALIFY, PIVOT, UNPIVOT, SORT BY, BY NAME and exact counts.

Method: Spark runs the text as it stands where it knows the clause, else what is written beside it; Ladle's statement
runs in DuckDB over the same rows, and in Spark too.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from tests.conformance.test_queries import R, S, _rows
from tests.conformance.values import naive
from tests.sql.names import Names

from ladle.schema import Column, TableSchema, type_name
from ladle.sql import bind
from ladle.sql.ordered_aggregates import for_spark

CASES = (
    (
        "SELECT id, s FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY id DESC) = 1 ORDER BY y, id LIMIT 4",
        "SELECT id, s FROM (SELECT id, s, y, row_number() OVER (PARTITION BY k ORDER BY id DESC) AS n FROM r) "
        "WHERE n = 1 ORDER BY y, id LIMIT 4",
    ),
    (
        "SELECT DISTINCT k, rank() OVER (ORDER BY b) AS nth FROM r WHERE x > 0 QUALIFY nth <= 3 ORDER BY k",
        "SELECT DISTINCT k, nth FROM (SELECT k, rank() OVER (ORDER BY b) AS nth FROM r WHERE x > 0) "
        "WHERE nth <= 3 ORDER BY k",
    ),
    (
        "SELECT k, count(*) AS n FROM r GROUP BY k HAVING count(*) < 3 "
        "QUALIFY rank() OVER (ORDER BY count(*) DESC) = 1",
        "SELECT k, n FROM (SELECT k, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS place FROM r GROUP BY k "
        "HAVING count(*) < 3) WHERE place = 1",
    ),
    (
        "SELECT * FROM (SELECT k, b, x FROM r) PIVOT (sum(x) AS t, count(*) AS n FOR b IN (true AS yes, false AS no))",
        None,
    ),
    (
        "SELECT * FROM (SELECT k, s, y, id FROM r) PIVOT (max(id) FOR s IN ('a', 'b' AS c)) AS p WHERE a IS NOT NULL",
        None,
    ),
    ("SELECT * FROM (SELECT b, x FROM r) PIVOT (avg(x) FOR b IN (true AS t, NULL AS n))", None),
    (
        "SELECT * FROM (SELECT k, x, s, id FROM r) PIVOT (sum(id) AS t, count(*) AS n FOR (k, s) IN "
        "((1, 'a'), (2, NULL) AS none, (NULL, 'a'), (-7, 'b'))) AS p ORDER BY x",
        None,
    ),
    (
        "SELECT * FROM (SELECT b, x, id FROM r) PIVOT (max(id) FOR (b, x) IN ((true, 0), (false, 1), (NULL, NULL)))",
        None,
    ),
    ("SELECT * FROM (SELECT b, id FROM r) PIVOT (max(id) FOR (b) IN (true, (false) AS f))", None),
    ("SELECT * FROM (SELECT id, x, id + 1L AS y FROM r) UNPIVOT (v FOR n IN (x, y AS other))", None),
    (
        "SELECT * FROM (SELECT id, s, s || id AS k FROM r) UNPIVOT INCLUDE NULLS (v FOR n IN (S, k)) WHERE v <> 'a'",
        None,
    ),
    ("SELECT * FROM (SELECT id, s, x FROM r) AS t UNPIVOT ((v, w) FOR n IN ((s, t.x), (s, id) AS ids)) AS u", None),
    ("SELECT n, count(v), count(*) FROM r UNPIVOT INCLUDE NULLS ((v) FOR n IN ((b), (b) AS again)) GROUP BY n", None),
    ("SELECT u.v, s.name FROM (SELECT x, id FROM r) UNPIVOT (v FOR n IN (x, id)) AS u LEFT JOIN s ON u.v = s.z", None),
    ("SELECT r.id, s.name FROM (r JOIN s ON r.k = s.k) LEFT JOIN s AS t ON t.z = r.x", None),
    ("SELECT a.id, t.name FROM r AS a JOIN (s AS t JOIN r AS b ON b.k = t.k OR b.x = 1) ON a.id = b.id + 1", None),
    ("SELECT r.id, a.k, b.id AS n FROM r LEFT JOIN (s AS a JOIN r AS b ON a.k = b.k AND b.x > 1) ON r.k = a.k", None),
    ("SELECT r.id, a.*, b.x FROM r FULL JOIN (s AS a LEFT JOIN r AS b ON a.k = b.k) ON r.k = a.k AND b.x > 1", None),
    ("SELECT k, r.k AS rk, a.k AS ak, name, b.id FROM r LEFT JOIN (s AS a JOIN r AS b USING (k)) USING (k)", None),
    (
        "SELECT k, a.k AS ak, t.k AS bk FROM (SELECT 3 AS z) AS r RIGHT JOIN (s AS a FULL JOIN r AS t USING "
        "(k)) USING (z)",
        None,
    ),
    (
        "SELECT a.*, b.name AS other FROM (SELECT k FROM r) AS c FULL JOIN (s AS a RIGHT JOIN (SELECT k, name FROM s) "
        "AS b USING (k)) USING (k)",
        None,
    ),
    (
        "SELECT * EXCEPT (b.k) FROM (SELECT id FROM r) AS c LEFT JOIN (s AS a JOIN (SELECT k FROM r) AS b ON "
        "a.k = b.k) ON a.z = c.id",
        None,
    ),
    ("SELECT r.id, w.z FROM r LEFT JOIN (s AS a LEFT ANTI JOIN r AS b ON b.x = a.z) AS w ON w.k = r.k", None),
    ("SELECT id FROM r LEFT SEMI JOIN (s AS a LEFT JOIN s AS b ON a.k = b.z) ON r.k = b.k", None),
    (
        "SELECT r.id, c.name FROM r LEFT JOIN (s AS a LEFT JOIN (s AS b JOIN s AS c ON b.z = c.k) ON a.k = "
        "b.k) ON r.x = a.z",
        None,
    ),
    (
        "SELECT r.id, count(a.name) AS n FROM r LEFT JOIN (s AS a CROSS JOIN (SELECT 1 AS one) AS t) "
        "ON a.k = r.k AND one = 1 GROUP BY r.id",
        None,
    ),
    ("SELECT n, count(x) AS c FROM range(-1, 7, 2) AS g(n) LEFT JOIN r ON r.x = g.n GROUP BY n", None),
    ("SELECT id FROM range(3) UNION ALL SELECT id FROM range(5, 1, -2)", None),
    ("SELECT id FROM r CLUSTER BY y, id", "SELECT id FROM r ORDER BY y, id"),
    ("SELECT id, y FROM r DISTRIBUTE BY k, x + 1 SORT BY y DESC, id", "SELECT id, y FROM r ORDER BY y DESC, id"),
    ("SELECT k FROM r UNION ALL SELECT z FROM s DISTRIBUTE BY k", None),
    (
        "SELECT k AS n FROM r UNION SELECT z FROM s CLUSTER BY n",
        "SELECT k AS n FROM r UNION SELECT z FROM s ORDER BY n",
    ),
    ("SELECT id FROM r SORT BY y DESC, id", "SELECT id FROM r ORDER BY y DESC, id"),
    ("SELECT k, z FROM s UNION ALL BY NAME SELECT x AS z, k FROM r", "SELECT k, z FROM s UNION ALL SELECT k, x FROM r"),
    ("SELECT k, z FROM s UNION BY NAME SELECT x AS z, k FROM r", "SELECT k, z FROM s UNION SELECT k, x FROM r"),
    (
        "SELECT b, approx_count_distinct(k) AS n, approx_count_distinct(k, 0.01) FILTER (WHERE x > 1) AS m "
        "FROM r GROUP BY b",
        "SELECT b, count(DISTINCT k) AS n, count(DISTINCT k) FILTER (WHERE x > 1) AS m FROM r GROUP BY b",
    ),
    (
        "SELECT b, string_agg(s, ', ' ORDER BY id DESC) AS t, "
        "listagg(s ORDER BY x NULLS LAST, id) FILTER (WHERE id > 1) AS u, "
        "listagg(DISTINCT s, '-' ORDER BY s DESC) AS v FROM r GROUP BY b HAVING last(x ORDER BY id) > 0",
        "SELECT b, string_agg(s, ', ') WITHIN GROUP (ORDER BY id DESC) AS t, listagg(s) WITHIN GROUP (ORDER BY x NULLS "
        "LAST, id) FILTER (WHERE id > 1) AS u, listagg(DISTINCT s, '-') WITHIN GROUP (ORDER BY s DESC) AS v FROM r "
        "GROUP BY b HAVING max_by(x, id) > 0",
    ),
    (
        "SELECT k, first(y ORDER BY id) AS a, last(y ORDER BY id) AS b, first(s ORDER BY id DESC) AS c "
        "FROM r GROUP BY k",
        "SELECT k, min_by(y, id) AS a, max_by(y, id) AS b, max_by(s, id) AS c FROM r GROUP BY k",
    ),
)


@pytest.fixture(scope="module")
def engines(spark: Any) -> Any:
    con = duckdb.connect(config={"threads": "2", "enable_external_access": "false"})
    for number, (name, given) in enumerate((("r", R), ("s", S))):
        schema = ", ".join(f"{field.name} {type_name(field.type)}" for field in given.schema)
        spark.createDataFrame(given, schema).createOrReplaceTempView(name)
        con.register(f"given_{number}", naive(given))
        con.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{number}")
    return spark, con


@pytest.mark.spark
@pytest.mark.parametrize(("text", "spelled"), CASES, ids=range(len(CASES)))
def test_clause(engines: Any, text: str, spelled: str | None) -> None:
    spark, con = engines
    columns = {"r": R.schema, "s": S.schema}
    tables = {name: TableSchema(tuple(Column(f.name, f.type) for f in schema)) for name, schema in columns.items()}
    plan = bind(text, Names({}, tables=tables))
    for table in plan.tables:
        spark.table(table.table).createOrReplaceTempView(table.relation)
        con.execute(f"CREATE OR REPLACE VIEW {table.relation} AS SELECT * FROM {table.table}")
    assert plan.residual.duckdb_sql is not None
    assert plan.schema is not None
    expected = spark.sql(spelled or text).toArrow()
    assert plan.schema.names == expected.schema.names
    assert list(plan.schema.types) == list(expected.schema.types)
    ordered = "ORDER BY" in text.rsplit(")", 1)[-1] or "SORT BY" in text or "CLUSTER BY" in text
    wanted = _rows(expected, ordered=ordered)
    assert _rows(con.sql(plan.residual.duckdb_sql).to_arrow_table().cast(plan.schema), ordered=ordered) == wanted
    assert _rows(spark.sql(for_spark(plan.residual.spark_sql)).toArrow(), ordered=ordered) == wanted
