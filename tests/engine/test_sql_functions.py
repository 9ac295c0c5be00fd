"""Functions whose body is SQL. Method: a query that calls them beside the same query with the body written out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks

from ladle.engine import Database
from ladle.errors import InUse, LadleError, SqlError, UnknownName, Unsupported
from ladle.plan import Engine

DEFINED = (
    "CREATE FUNCTION next_one(x INT) RETURNS INT RETURN x + 1",
    "CREATE FUNCTION spread(low DOUBLE, high DOUBLE) RETURNS DOUBLE RETURN (spread.high - low) / greatest(high, 1)",
    "CREATE FUNCTION twice_next(x INT) RETURNS BIGINT RETURN next_one(next_one(x)) * 2",
    "CREATE FUNCTION seven() RETURNS INT RETURN 3 + 4",
    "CREATE FUNCTION is_old(n INT) RETURNS BOOLEAN RETURN CASE WHEN n IS NULL THEN NULL ELSE n < 4 END",
)
PAIRS = (
    ("SELECT n, next_one(n) AS a FROM ticks", "SELECT n, CAST(CAST(n AS INT) + 1 AS INT) AS a FROM ticks"),
    ("SELECT next_one(n + 1) * 2 AS a FROM ticks WHERE is_old(n)", "SELECT (n + 2) * 2 AS a FROM ticks WHERE n < 4"),
    ("SELECT spread(n, n + seven()) AS a FROM ticks", "SELECT 7D / greatest(n + 7D, 1) AS a FROM ticks"),
    ("SELECT sum(twice_next(n)) AS a FROM ticks", "SELECT sum((n + 2) * 2L) AS a FROM ticks"),
    (
        "SELECT next_one(n % 2) AS k, count(*) AS c FROM ticks GROUP BY next_one(n % 2) HAVING next_one(n % 2) > 1",
        "SELECT n % 2 + 1 AS k, count(*) AS c FROM ticks GROUP BY n % 2 HAVING n % 2 = 1",
    ),
    ("SELECT next_one(max(n)) AS a FROM ticks", "SELECT max(n) + 1 AS a FROM ticks"),
    ("SELECT a.n FROM ticks a, ticks b WHERE next_one(a.n) = b.n", "SELECT n FROM ticks WHERE n < 5"),
)


def rows(db: Database, text: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in db.sql(text).table.to_pylist()), key=repr)


@pytest.fixture
def filled(db: Database) -> Database:
    db.sql(TICKS)
    db.push("ticks", ticks(range(6)), wait=True)
    for text in DEFINED:
        db.sql(text)
    return db


@pytest.mark.parametrize(("text", "written"), PAIRS)
def test_a_call_is_its_body(filled: Database, text: str, written: str) -> None:
    expected = rows(filled, written)
    assert expected
    assert rows(filled, text) == expected


def test_standing_queries_have_the_bodies_indexed_and_keep_them(filled: Database, open_db: Open) -> None:
    filled.register("SELECT n FROM ticks WHERE next_one(n) > 3", name="q")
    assert filled.catalog.queries["q"].plan.residual.engine is Engine.PROJECTION
    assert filled.sql("SHOW FUNCTIONS").table.to_pylist()[0]["queries"] == 1
    filled.close()
    db = open_db()
    assert rows(db, "SELECT * FROM q") == [(3,), (4,), (5,)]
    subscription = db.query("q").subscribe()
    db.sql("CREATE OR REPLACE FUNCTION next_one(x INT) RETURNS INT RETURN x + 2")
    assert rows(db, "SELECT * FROM q") == [(2,), (3,), (4,), (5,)]
    assert rows(db, "SELECT twice_next(1) AS a") == [(10,)], "what it calls is looked up when it is bound"
    db.close()
    assert rows(open_db(), "SELECT * FROM q") == [(2,), (3,), (4,), (5,)]
    del subscription


def test_a_query_over_another_and_a_function_follow_a_new_version(filled: Database) -> None:
    filled.register("SELECT twice_next(n) AS a FROM ticks WHERE n = 1", name="low")
    filled.register("SELECT a + seven() AS b FROM low", name="high")
    filled.sql("CREATE OR REPLACE FUNCTION next_one(x INT) RETURNS INT RETURN x * 10")
    filled.sql("CREATE OR REPLACE FUNCTION seven() RETURNS INT RETURN 700")
    assert rows(filled, "SELECT * FROM high") == [(900,)]


def test_describe_and_names_of_columns(filled: Database) -> None:
    assert filled.sql("SELECT next_one(n) FROM ticks").table.column_names == ["next_one(n)"]
    facts = {row["name"]: row["value"] for row in filled.sql("DESCRIBE FUNCTION next_one").table.to_pylist()}
    assert (facts["language"], facts["source"]) == ("SQL", "x + 1")
    shown = filled.sql("SHOW CREATE FUNCTION spread").table.to_pylist()[0]["statement"]
    filled.sql("DROP FUNCTION spread")
    filled.sql(shown)
    assert rows(filled, "SELECT spread(1, 2) AS a") == [(0.5,)]


def test_what_is_called_stays(filled: Database) -> None:
    filled.register("SELECT next_one(n) AS a FROM ticks", name="q")
    with pytest.raises(InUse, match="functions call it: twice_next"):
        filled.sql("DROP FUNCTION next_one CASCADE")
    with pytest.raises(InUse, match="queries call it: q"):
        filled.sql("CREATE OR REPLACE FUNCTION next_one(x BIGINT) RETURNS INT RETURN 1")
    filled.sql("DROP FUNCTION twice_next")
    with pytest.raises(InUse, match="queries call it: q"):
        filled.sql("DROP FUNCTION next_one")
    filled.sql("DROP FUNCTION next_one CASCADE")
    assert not filled.queries()


def test_python_and_sql_call_each_other(filled: Database) -> None:
    filled.sql("CREATE FUNCTION thrice(n INT) RETURNS INT LANGUAGE PYTHON AS $$ pc.multiply(n, 3) $$")
    filled.sql("CREATE FUNCTION mixed(n INT) RETURNS INT RETURN thrice(n) + 1")
    filled.register("SELECT mixed(next_one(n)) AS a FROM ticks WHERE thrice(next_one(n)) < 9", name="q")
    assert rows(filled, "SELECT * FROM q") == [(4,), (7,)]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN y + 1", UnknownName, "Parameter 'y' not found"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN (SELECT max(n) FROM ticks)", Unsupported, "can't read streams"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN sum(x)", Unsupported, "can't aggregate"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN f(x)", LadleError, "can't call itself"),
        (
            "CREATE OR REPLACE FUNCTION next_one(x INT) RETURNS INT RETURN twice_next(x)",
            LadleError,
            "can't call itself",
        ),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN nosuch(x)", UnknownName, "nosuch"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN", SqlError, "Expected the expression that 'f' returns"),
        ("CREATE FUNCTION f(x INT) RETURNS INT x", SqlError, "LANGUAGE PYTHON, or RETURN"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN x, x", SqlError, "Unexpected ','"),
        ("CREATE FUNCTION upper(x INT) RETURNS INT RETURN x", LadleError, "Spark SQL has that name"),
        ("SELECT next_one(1, 2)", SqlError, "takes 1 arguments, not 2"),
    ],
)
def test_what_is_no_function_is_refused(filled: Database, text: str, kind: type[LadleError], message: str) -> None:
    before = filled.catalog.seq
    with pytest.raises(kind, match=message):
        filled.sql(text)
    assert filled.catalog.seq == before


def test_a_call_that_would_grow_without_end_is_refused(filled: Database) -> None:
    filled.sql("CREATE FUNCTION d0(x INT) RETURNS INT RETURN x + x + x + x")
    for level in range(1, 6):
        filled.sql(f"CREATE FUNCTION d{level}(x INT) RETURNS INT RETURN d{level - 1}(x) + d{level - 1}(x)")
    with pytest.raises(SqlError, match="become more than 20,000 parts"):
        filled.sql("SELECT d5(d5(d5(d5(n)))) FROM ticks")
