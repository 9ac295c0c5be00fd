"""Defects of answers by nodes, of EXPLAIN and of errors that a review found, each as it was found."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.errors import EvaluationError, SqlError
from ladle.operators import groups
from ladle.plan.aggregate import Aggregate, Windows
from ladle.testing import connect_inline

T0 = datetime(2026, 1, 30, 11, tzinfo=UTC)
SETTINGS = {"maintenance_seconds": 3_600.0}


def rows(answer: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in answer]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with connect_inline(path, clock=ManualClock(T0 + timedelta(hours=1)), settings=SETTINGS) as made:
        yield made


@pytest.mark.parametrize("first", ["few", "all"])
def test_a_reader_of_a_copy_tells_streams_from_blocks(path: Path, db: Database, first: str) -> None:
    """It trusts no number of the writer's, and gives its own: none may be that of a stream."""
    db.sql("CREATE STREAM s (a INT)")
    db.push("s", [{"a": number} for number in range(10)], wait=True)
    db.register("SELECT count(*) AS n, sum(a) AS t FROM s WHERE a > 6", name="few")
    db.close()
    copy = path.with_name("copy")
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns("*.sock", "boot"))
    with connect_inline(copy, read_only=True) as reader:
        for _ in range(2):
            if first == "few":
                assert rows(reader.query("few").invoke()) == [(3, 24)]
            assert rows(reader.sql("SELECT count(*) AS n, sum(a) AS t FROM s")) == [(10, 45)]
            assert rows(reader.query("few").invoke()) == [(3, 24)]
            reader.explain("few")


def test_a_table_at_two_moments_beside_a_group_by(db: Database) -> None:
    db.sql("CREATE STREAM s (k STRING)")
    db.sql("CREATE TABLE c (k STRING, v INT)")
    db.push("s", [{"k": str(number % 3)} for number in range(12)], wait=True)
    db.sql("INSERT INTO c VALUES ('1', 1), ('2', 2)")
    entry = db.sql("SELECT * FROM c").entry
    db.sql("UPDATE c SET v = v + 100")
    text = f"""
        SELECT q.k, c.v, o.v AS old FROM (SELECT k, count(*) AS n FROM s GROUP BY k) AS q
        JOIN c ON q.k = c.k JOIN c VERSION AS OF {entry} AS o ON q.k = o.k
    """
    assert sorted(rows(db.sql(text))) == [("1", 101, 1), ("2", 102, 2)]
    assert sorted(rows(db.register(text, name="q").invoke())) == [("1", 101, 1), ("2", 102, 2)]


@pytest.mark.not_at_one_row("which rows of a tie Spark takes is not decided by all columns")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, count(*) AS c FROM s GROUP BY k ORDER BY c DESC LIMIT 3",
        "SELECT k, count(*) AS c FROM s GROUP BY k LIMIT 3",
        "SELECT DISTINCT k FROM s LIMIT 3",
        "SELECT k, a FROM s UNION SELECT k, a + 1 FROM s ORDER BY a LIMIT 3",
        "SELECT k FROM s GROUP BY k HAVING count(*) > 0 ORDER BY max(a) LIMIT 3 OFFSET 1",
    ],
)
def test_which_rows_of_a_tie_are_taken_does_not_depend_on_what_is_kept(path: Path, text: str) -> None:
    clock = ManualClock(T0 + timedelta(hours=1))
    with connect_inline(path, clock=clock, settings=SETTINGS) as db:
        db.sql("CREATE STREAM s (k STRING, a INT, at TIMESTAMP) TIMESTAMP BY at")
        db.push("s", [{"k": k, "a": 1, "at": T0} for k in "abcd"], wait=True)
        db.push("s", [{"k": k, "a": 1, "at": T0 + timedelta(minutes=30)} for k in "zyxw"], wait=True)
        # The newer groups are seen first, and have the first numbers.
        db.sql("SELECT k, count(*) AS c FROM s GROUP BY k BEGIN NOW - INTERVAL 5 MINUTES END NOW")
        query = db.register(text, name="q")
        before, position = rows(query.invoke()), str(query.subscribe().position)
    with connect_inline(path, clock=clock, settings=SETTINGS) as db:
        query = db.query("q")
        assert sorted(rows(query.invoke())) == sorted(before)
        assert query.subscribe(since=position).next(0.0) is None


def test_two_group_bys_over_one_scan_are_told_apart(db: Database) -> None:
    db.sql("CREATE STREAM s (k STRING, a INT)")
    db.push("s", [{"k": "abc"[number % 3], "a": number} for number in range(30)], wait=True)
    text = """
        WITH x AS (SELECT * FROM s) SELECT p.k, p.c, q.m
        FROM (SELECT k, count(*) AS c FROM x GROUP BY k) AS p, (SELECT a, max(a) AS m FROM x GROUP BY a) AS q
        WHERE q.m = p.c
    """
    assert sorted(rows(db.sql(text))) == [("a", 10, 10), ("b", 10, 10), ("c", 10, 10)]
    found: dict[str, dict[str, Any]] = {}

    def look(node: dict[str, Any]) -> None:
        if node["node"] == "GroupBy":
            found[node["columns"][0]] = node
        for child in node["children"]:
            look(child)

    look(db.explain_tree(text, analyze=True))
    assert {name: node["kept"]["rows"] for name, node in found.items()} == {"k": 3, "a": 30}
    assert {name: node["measured"]["rows"] for name, node in found.items()} == {"k": 3, "a": 30}
    assert "[30 rows" in db.explain(text, analyze=True)


def test_windows_that_overlap_too_often_are_known_before_they_are_made() -> None:
    """Arrays for all of them together were made before they were counted."""
    aggregate = Aggregate(("k",), (), (), Windows("at", 20_000_000_000, 1_000_000, 0))
    grouping = groups.Grouping(aggregate)
    made = np.arange(420)
    grouping.dictionary.numbers(pa.table({"k": made}))
    panes = groups.Groups(len(made), [], numbers=made, panes=made)
    tracemalloc.start()
    try:
        with pytest.raises(groups.TooManyGroups):
            grouping.answer([panes], pa.schema([]))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_more_keys_than_a_dictionary_holds_are_not_folded_again_and_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "KEYS_MAX", 100)
    db.sql("CREATE STREAM s (k BIGINT, a INT)")
    keys = np.arange(400)
    db.push("s", pa.table({"k": keys, "a": pa.array(keys % 7, pa.int32())}), wait=True)
    aggregates = db._invoker.nodes.aggregates
    begun = []
    begin = aggregates._begin_anew
    monkeypatch.setattr(aggregates, "_begin_anew", lambda *given: (begun.append(given), begin(*given)))
    for _ in range(3):
        assert len(db.sql("SELECT k, sum(a) AS x FROM s GROUP BY k HAVING sum(a) > 3")) == 171
    assert len(begun) == 1


def test_times_that_python_has_no_form_for(db: Database) -> None:
    db.sql("CREATE TABLE c (v DATE)")
    db.insert("c", pa.table({"v": pa.array([-10_000_000], pa.int32()).cast(pa.date32())}))
    answer = db.sql("SELECT * FROM c")
    for read in (answer.to_pylist, lambda: list(answer), lambda: answer[0], lambda: answer[:1]):
        with pytest.raises(EvaluationError, match="has no form for"):
            read()
    assert answer.table.column("v").cast(pa.int32()).to_pylist() == [-10_000_000]


@pytest.mark.parametrize("text", ["LIMIT 2147483648", "LIMIT 99999999999999999999", "OFFSET 2147483648"])
def test_a_limit_beyond_int_is_refused(db: Database, text: str) -> None:
    db.sql("CREATE STREAM s (a INT)")
    for whole in (f"SELECT a FROM s {text}", f"SELECT a FROM s UNION SELECT a FROM s {text}"):
        with pytest.raises(SqlError, match="is too large for"):
            db.sql(whole)
    assert len(db.sql("SELECT a FROM s LIMIT 2147483647")) == 0


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("CAST(m AS INT)", "CAST_OVERFLOW"),
        ("CAST(999.5 AS TINYINT)", "CAST_OVERFLOW"),
        ("CAST(m AS DECIMAL(10, 2))", "CAST_OVERFLOW"),
        ("-(-b - 1)", "ARITHMETIC_OVERFLOW"),
        ("(-b - 1) div -1", "ARITHMETIC_OVERFLOW"),
        ("b + 1", "ARITHMETIC_OVERFLOW"),
    ],
)
def test_what_does_not_fit_is_told_in_sparks_words(db: Database, expression: str, code: str) -> None:
    db.sql("CREATE STREAM s (b BIGINT, m DECIMAL(38, 0))")
    db.push("s", [{"b": 2**63 - 1, "m": Decimal(10**37)}], wait=True)
    with pytest.raises(EvaluationError, match=rf"^\[{code}\]"):
        db.sql(f"SELECT {expression} AS x FROM s")
