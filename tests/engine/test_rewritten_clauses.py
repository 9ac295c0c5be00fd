"""Joins in parentheses, UNPIVOT and CLUSTER BY in standing queries: they give what the longer spelling gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks

from ladle.engine import Database
from ladle.testing.one_row import at_one_row

PAIRS = [
    (
        "SELECT n, a.n AS an, b.name, c.at FROM names b "
        "LEFT JOIN (ticks [ROWS 4] a JOIN ticks [ROWS 9] c USING (n)) USING (n)",
        "SELECT b.n, q.n AS an, b.name, q.at FROM names b LEFT JOIN (SELECT a.n, c.at FROM ticks [ROWS 4] a "
        "JOIN ticks [ROWS 9] c ON a.n = c.n) q ON b.n = q.n",
    ),
    (
        "SELECT a.n, b.name FROM ticks a RIGHT JOIN (names b FULL JOIN (SELECT 3 AS n) c USING (n)) ON a.n = c.n",
        "SELECT a.n, q.name FROM ticks a RIGHT JOIN (SELECT b.name, c.n FROM names b FULL JOIN (SELECT 3 AS n) c "
        "ON b.n = c.n) q ON a.n = q.n",
    ),
    (
        "SELECT k, v FROM (SELECT n, n * 2 AS m FROM ticks [ROWS 3]) UNPIVOT (v FOR k IN (n, m AS twice))",
        "SELECT 'n' AS k, n AS v FROM ticks [ROWS 3] UNION ALL SELECT 'twice', n * 2 FROM ticks [ROWS 3]",
    ),
    ("SELECT n FROM ticks DISTRIBUTE BY n % 2 SORT BY n DESC", "SELECT n FROM ticks ORDER BY n DESC"),
    ("SELECT name FROM names CLUSTER BY name LIMIT 2", "SELECT name FROM names ORDER BY name LIMIT 2"),
]


def counted(table: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def change(db: Database, step: int) -> None:
    db.push("ticks", ticks([2 * step, 2 * step + 1]), wait=True)
    db.sql(f"INSERT INTO names VALUES ({step}, 'name {9 - step}'), ({step + 3}, NULL)")


@pytest.mark.parametrize(("text", "longer"), PAIRS[: at_one_row(2, len(PAIRS))])
def test_standing_and_followed(open_db: Open, text: str, longer: str) -> None:
    db = open_db()
    db.sql(TICKS)
    db.sql("CREATE TABLE names (n INT, name STRING)")
    change(db, 0)
    query = db.register(text, name="q", materialize="complete")
    kept, changes = counted(query.invoke().table), query.subscribe()
    for step in (1, 2, 3):
        change(db, step)
        for delta in iter(lambda: changes.next(0.0), None):
            kept = kept - counted(delta.retracted) + counted(delta.inserted)
        expected = counted(db.sql(longer).table)
        assert counted(query.invoke().table) == kept == expected
    db.close()
    assert counted(open_db().invoke("q").table) == expected
