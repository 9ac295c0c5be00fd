"""Queries that read queries: each is bound once, however often it is read, and answers are what they were."""

from __future__ import annotations

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks, values

from ladle.engine import Database

LEVELS = 20
BODIES = {
    "join": "SELECT a.n FROM {below} a JOIN {below} b ON a.n = b.n",
    "union": "SELECT n FROM {below} UNION ALL SELECT n FROM {below} WHERE n > 100",
    "subquery": "SELECT n FROM {below} WHERE n IN (SELECT n FROM {below})",
    "with": "WITH c AS (SELECT n FROM {below}), d AS (SELECT n FROM {below}) SELECT c.n FROM c JOIN d ON c.n = d.n",
}


@pytest.mark.not_at_one_row("Spark writes common table expressions out again")
@pytest.mark.parametrize("kind", BODIES)
def test_what_each_level_reads_twice_does_not_double(db: Database, kind: str) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks(range(6)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 1", name="q0")
    for level in range(1, LEVELS + 1):
        db.register(BODIES[kind].format(below=f"q{level - 1}"), name=f"q{level}")
        plan = db.catalog.queries[f"q{level}"].plan
        assert len(plan.scans) <= 4
        assert plan.queries is not None
        assert set(plan.queries) == {f"q{below}" for below in range(level)}
        assert sorted(values(db.invoke(f"q{level}"))) == [2, 3, 4, 5]
    text = db.catalog.queries[f"q{LEVELS}"].plan.residual.duckdb_sql
    assert text is not None
    assert len(text) < 1_000 * LEVELS, "it is as long as the queries, not as what they expand to"


@pytest.mark.not_at_one_row("each of them is analysed by Spark")
def test_a_long_chain_of_queries(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks(range(3)), wait=True)
    db.register("SELECT n FROM ticks", name="q0")
    for level in range(1, 120):
        db.register(f"SELECT n + 1 AS n FROM q{level - 1}", name=f"q{level}")
    assert values(db.invoke("q119")) == [119, 120, 121]


def test_windows_and_names_stay_each_query_s_own(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks(range(10)), wait=True)
    db.register("SELECT n FROM ticks [ROWS 3]", name="few")
    reads = " UNION ALL ".join(["SELECT n FROM few"] * 6)
    # A common table expression of the same name is another thing, inside and outside.
    text = f"WITH c AS ({reads}) SELECT count(*) AS rows, min(n) AS least FROM c"
    assert db.sql(text).table.to_pylist() == [{"rows": 18, "least": 7}]
    shadow = "WITH few AS (SELECT 1 AS n) SELECT n FROM few " + "UNION ALL SELECT n FROM few " * 6
    assert values(db.sql(shadow)) == [1] * 7
    both = f"SELECT n FROM ticks [ROWS 1] UNION ALL {reads}"
    assert sorted(values(db.sql(both))) == sorted([9, *[7, 8, 9] * 6])
    db.register(both, name="both")
    db.push("ticks", ticks([10]), wait=True)
    assert sorted(values(db.invoke("both"))) == sorted([10, *[8, 9, 10] * 6])
