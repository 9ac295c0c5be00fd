"""Answers by nodes: group-bys from partial aggregates, and what is above and beside them in one statement.

Two ways that must agree: by nodes, and by the residual as a whole over all rows, which keeps and uses nothing.
"""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import at

from ladle.engine import Database
from ladle.errors import EvaluationError, PipelineError
from ladle.execute.reader import Reader
from ladle.operators import groups

STREAM = "CREATE STREAM s (k STRING, n BIGINT, at TIMESTAMP) TIMESTAMP BY at"

pytestmark = pytest.mark.not_at_one_row("who computes is its subject")

QUERIES = (
    "SELECT k, count(*) AS c FROM s WHERE n > 2 GROUP BY k HAVING c > 3 AND sum(n) > 0",
    "SELECT k, sum(n) / count(*) AS a, max(n) - min(n) AS r FROM s WHERE n > 2 GROUP BY k",
    "SELECT k, sum(n) AS t FROM s GROUP BY k ORDER BY t DESC, k LIMIT 2",
    "SELECT k FROM s GROUP BY k ORDER BY max(n) DESC, k OFFSET 1",
    "SELECT count(*) + 1 AS c, max(at) < NOW - INTERVAL 20 SECONDS AS old FROM s [RANGE 90 SECONDS]",
    "SELECT DISTINCT count(*) % 2 AS odd FROM s GROUP BY k",
    "SELECT k, count(*) AS c FROM s GROUP BY k UNION ALL SELECT 'all', count(*) FROM s [RANGE 1 MINUTE]",
    "SELECT k FROM s WHERE n = 3 EXCEPT SELECT k FROM s GROUP BY k HAVING count(*) < 20",
    "SELECT label, c FROM labels l JOIN (SELECT k, count(*) AS c FROM s GROUP BY k) q ON l.k = q.k",
    "SELECT label, c FROM labels l LEFT JOIN (SELECT k, count(*) AS c FROM s WHERE n > 6 GROUP BY k) q ON l.k = q.k",
    "SELECT k, c, rank() OVER (ORDER BY c, k) AS r FROM (SELECT k, count(*) AS c FROM s GROUP BY k)",
    "SELECT max(c) AS m, avg(c) AS a FROM (SELECT k, count(*) AS c FROM s GROUP BY k)",
    "SELECT k, count(*) AS c FROM s WHERE k IN (SELECT k FROM labels) GROUP BY k",
    "WITH w AS (SELECT k, sum(n) AS t FROM s GROUP BY k) SELECT a.k FROM w a JOIN w b ON a.t > b.t",
    "SELECT l, c FROM VALUES ('a', 1.5), ('z', 2) v(k, l) LEFT JOIN (SELECT k, count(*) c FROM s GROUP BY k) USING (k)",
    # All columns of the stream, called otherwise: it is read by its own names.
    "SELECT k, c FROM (SELECT n, max(k) AS k, count(*) AS c FROM (SELECT k AS n, n AS k, at FROM s) GROUP BY n)",
    "SELECT n, max(k) AS m FROM (SELECT k, n, at FROM s) q(n, k, t) GROUP BY n",
    "SELECT n, count(*) AS c FROM (SELECT k, n, at AS t FROM s) q GROUP BY n HAVING count(*) > 2",
    "WITH v AS (VALUES (3), (NULL)) SELECT sum(n) FROM s GROUP BY k UNION SELECT a.col1 FROM v a, v b WHERE a.col1 > 2",
)


def rows(rng: random.Random, count: int, first: int) -> list[dict[str, Any]]:
    return [
        {"k": rng.choice(["a", "b", "c", "d", None]), "n": rng.choice([None, *range(8)]), "at": at(first + second)}
        for second in range(count)
    ]


def by_nodes(db: Database, name: str, now: datetime | None = None, *, given: bool | None = True) -> pa.Table:
    """The answer, which is compared with that of the residual. `given`: whether nodes answer it; None: not counted."""
    before = db._invoker.nodes.answered
    got = db.invoke(name, now=now).table
    if given is not None:
        assert db._invoker.nodes.answered == before + given
    with db._store.pin() as catalog:
        whole = db._invoker.answer(catalog.queries[name].plan, catalog, now=now, keep_nothing=True).table
    assert got.schema == whole.schema
    ordered = "ORDER BY" in db.catalog.queries[name].sql and "OVER" not in db.catalog.queries[name].sql
    assert _listed(got, ordered=ordered) == _listed(whole, ordered=ordered)
    return got


def _listed(table: pa.Table, *, ordered: bool) -> list[Any]:
    found = [tuple(row.values()) for row in table.to_pylist()]
    return found if ordered else sorted(found, key=repr)


@pytest.mark.parametrize("mode", ["partial", "complete"])
def test_what_is_computed_of_groups(open_db: Open, mode: str) -> None:
    db = open_db(segment_rows_max=16, compact_files_min=3)
    db.sql(STREAM)
    db.sql("CREATE TABLE labels (k STRING, label STRING)")
    db.sql("INSERT INTO labels VALUES ('a', 'first'), ('b', 'second'), ('z', 'none')")
    for number, text in enumerate(QUERIES):
        db.register(text, name=f"q{number}", materialize=mode)
    rng = random.Random(1)
    for step in range(5):
        db.push("s", rows(rng, 30, step * 30), wait=True)
        for number, text in enumerate(QUERIES):
            by_nodes(db, f"q{number}", given=None if mode == "complete" else " IN (SELECT" not in text)
        if step == 2:
            db.sql("INSERT INTO labels VALUES ('c', 'third')")
        if step == 3:
            db.maintain()
    for number, text in enumerate(QUERIES):
        by_nodes(db, f"q{number}", at(75), given=None if mode == "complete" else " IN (SELECT" not in text)


LIMITED = (
    ("SELECT k, count(*) AS c FROM s GROUP BY k LIMIT 2", True),
    ("SELECT count(*) AS c, n, k FROM s GROUP BY k, n LIMIT 3 OFFSET 1", True),
    ("SELECT n, count(*) AS c FROM s GROUP BY n HAVING count(*) > 1 LIMIT 2", True),
    ("SELECT sum(c) AS c FROM (SELECT k, count(*) AS c FROM s GROUP BY k LIMIT 2)", True),
    ("SELECT c, k FROM (SELECT k, n, count(*) AS c FROM s GROUP BY k, n) q LIMIT 3", True),
    ("WITH q AS (SELECT k, n, max(n) AS m FROM s GROUP BY k, n) SELECT m, k FROM q LIMIT 2", True),
    ("SELECT n, 1 AS c FROM s GROUP BY n UNION ALL SELECT n, count(*) FROM s GROUP BY n LIMIT 3", True),
    # Subqueries are joined, and rows come out of joins in any order.
    ("SELECT n, k FROM s WHERE n >= (SELECT avg(n) FROM s) LIMIT 3", True),
    ("SELECT n, (SELECT max(n) FROM s) AS m FROM s LIMIT 3", True),
    ("SELECT n FROM (SELECT n, k, (SELECT count(*) FROM s) AS m FROM s) q WHERE m > 3 LIMIT 3 OFFSET 2", True),
    ("SELECT n, k FROM s t WHERE n IN (SELECT max(n) FROM s GROUP BY k) LIMIT 3", True),
    ("SELECT n, k FROM s t WHERE EXISTS (SELECT 1 FROM (SELECT k FROM s GROUP BY k) q WHERE q.k = t.k) LIMIT 3", True),
    ("SELECT k, rank() OVER (ORDER BY c) AS r FROM (SELECT k, count(*) AS c FROM s GROUP BY k) q LIMIT 2", False),
    ("SELECT n + (SELECT count(*) FROM s) AS m FROM s LIMIT 3", False),
    # What may raise is not computed for rows that are not taken.
    ("SELECT n + 1 AS m, count(*) AS c FROM s GROUP BY n LIMIT 2", False),
    ("SELECT m + 1 AS y FROM (SELECT n + 1 AS m, count(*) AS c FROM s GROUP BY n) q LIMIT 2", False),
)


@pytest.mark.parametrize(("text", "given"), LIMITED)
def test_a_limit_takes_the_rows_that_the_residual_takes(open_db: Open, text: str, *, given: bool) -> None:
    db, rng = open_db(), random.Random(5)
    db.sql(STREAM)
    db.register(text, name="q")
    for first in range(0, 60, 10):
        db.push("s", rows(rng, 10, first), wait=True)
        by_nodes(db, "q", given=given)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SELECT n FROM s `inner` WHERE n > (SELECT avg(n) AS n FROM s)", 3),
        ("SELECT n, (SELECT max(n) AS n FROM s) AS m FROM s `inner`", 6),
        ("SELECT k, sum(n) / (SELECT sum(n) AS k FROM s) AS share FROM s `inner` GROUP BY k", 2),
    ],
)
def test_relations_may_be_called_what_rules_call_theirs(open_db: Open, text: str, count: int) -> None:
    """The first compared a column with itself: no row was in its answer."""
    db = open_db()
    db.sql(STREAM)
    db.push("s", [{"k": "ab"[n % 2], "n": n, "at": at(n)} for n in range(6)], wait=True)
    db.register(text, name="q")
    assert len(by_nodes(db, "q")) == count


def test_a_cte_that_has_the_name_of_what_it_reads_is_limited(open_db: Open) -> None:
    db = open_db()
    db.sql(STREAM)
    db.push("s", [{"k": "b", "n": 1, "at": at(0)}, {"k": "a", "n": 2, "at": at(1)}], wait=True)
    answer = db.sql("WITH s AS (SELECT k, n FROM s) SELECT n FROM s LIMIT 1")
    assert answer.to_pylist() == [{"n": 1}]


def test_selects_that_do_not_stand(open_db: Open) -> None:
    db = open_db()
    db.sql(STREAM)
    db.push("s", rows(random.Random(2), 50, 0), wait=True)
    assert db.sql("SELECT count(*) AS c FROM s HAVING c > 1").to_pylist() == [{"c": 50}]
    assert db._invoker.nodes.answered == 1
    assert db.sql("SELECT count(*) AS c FROM s WHERE n >= 0 HAVING c > 100").to_pylist() == []
    assert db._invoker.nodes.answered == 1, "the block does not stand"


def test_what_raises_above_is_told_as_the_residual_tells_it(open_db: Open) -> None:
    db = open_db()
    db.sql(STREAM)
    db.register("SELECT 10 / (count(*) - 3) AS x FROM s", name="q", materialize="partial")
    db.push("s", rows(random.Random(3), 2, 0), wait=True)
    assert by_nodes(db, "q").to_pylist() == [{"x": -10.0}]
    db.push("s", rows(random.Random(3), 1, 5), wait=True)
    with pytest.raises(EvaluationError, match=r"(?i)division by zero"):
        db.invoke("q")


def test_many_rows_beside_the_groups_are_left_to_the_residual(open_db: Open) -> None:
    """What is large runs on Spark, as a whole: DuckDB is given so many rows and no more."""
    db = open_db(residual_rows_max=40)
    db.sql(STREAM)
    db.push("s", rows(random.Random(4), 30, 0), wait=True)
    db.register("SELECT k, count(*) AS c FROM s GROUP BY k UNION ALL SELECT k, n FROM s", name="q")
    assert len(db.invoke("q")) == 35
    db.push("s", rows(random.Random(4), 30, 30), wait=True)
    with pytest.raises(PipelineError, match="needs Spark") as caught:
        db.invoke("q")
    assert "ladle.connect starts one" in (caught.value.hint or "")


def test_explain_says_which_nodes_are_given(open_db: Open) -> None:
    db = open_db()
    db.sql(STREAM)
    db.register("SELECT k, count(*) AS c FROM s GROUP BY k HAVING c > 3 ORDER BY c LIMIT 2", name="q")
    said = db.explain("q")
    assert "partial aggregates in a tree over 0 segments, and DuckDB over their rows" in said
    assert "GroupBy k | COUNT(*)  [weak, premature; tree of aggregates" in said


def test_answers_as_of_an_earlier_entry(open_db: Open) -> None:
    """Over the tuples that had arrived by then, though the newest snapshot is read, and files were merged since."""
    db = open_db(segment_rows_max=16, compact_files_min=3)
    db.sql(STREAM)
    texts = [
        "SELECT k, count(*) AS c, sum(n) AS t, min(n) AS l FROM s WHERE n > 1 GROUP BY k",
        "SELECT k, max(n) AS c FROM s [RANGE 50 SECONDS] GROUP BY k HAVING c > 4",
        "SELECT count(*) AS c, sum(n) AS t FROM s WHERE n > 1 BEGIN NOW - INTERVAL 70 SECONDS END NOW",
        "SELECT k, count(*) AS c FROM s [ROWS 40] GROUP BY k UNION ALL SELECT k, n FROM s [ROWS 7]",
    ]
    for number, text in enumerate(texts):
        db.register(text, name=f"q{number}", materialize="partial")
    rng = random.Random(5)
    expected: dict[tuple[str, int], list[Any]] = {}
    pushed = 0
    for step in range(8):
        pushed += 10 + 3 * step
        db.push("s", rows(rng, 10 + 3 * step, step * 25 - (9 if step % 3 == 0 else 0)), wait=True)
        if step == 5:
            db.maintain()
        for number in range(len(texts)):
            expected[f"q{number}", pushed] = _listed(db.invoke(f"q{number}").table, ordered=False)
    with db._store.pin() as catalog:
        reader = Reader(db._store, catalog, db._store.clock.now_us())
        stream = catalog.streams["s"]
        clocks = {record.total: record.clock_us for record in stream.timeline}
        for (name, total), wanted in expected.items():
            plan = catalog.queries[name].plan
            now_us = clocks[total]
            extents = [reader.extent_as_of(scan, now_us, total, now_us, None) for scan in plan.scans]
            before = db._invoker.nodes.answered
            got = db._invoker.as_of(plan, catalog, reader, extents, {}, now_us)
            assert db._invoker.nodes.answered == before + 1
            assert _listed(got, ordered=False) == wanted, (name, total)


def test_keys_that_come_and_go_do_not_fill_the_dictionary(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "KEYS_MAX", 40)
    db = open_db()
    db.sql(STREAM)
    db.register("SELECT k, count(*) AS c FROM s [RANGE 19 SECONDS] GROUP BY k", name="q", materialize="partial")
    for step in range(12):
        made = [{"k": f"{step} {number}", "n": 1, "at": at(step * 10 + number)} for number in range(10)]
        db.push("s", made, wait=True)
        assert len(by_nodes(db, "q")) == min(19, 10 * (step + 1))
