"""DEFAULT of columns, and columns that tables get later."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.conftest import Open

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.engine.commands import ChangeTable
from ladle.errors import LadleError, SqlError, TypeMismatch, UnknownName, Unsupported

MADE = (
    "CREATE TABLE items (n INT, name STRING DEFAULT concat('no', ' name'), price DECIMAL(6, 2) DEFAULT 1 + 0.5, "
    "tags INT, made TIMESTAMP DEFAULT current_timestamp())"
)
NOW = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def rows(db: Database, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.sql(text).table.to_pylist()]


def test_an_insert_gives_what_it_does_not_name(db: Database, open_db: Open, clock: ManualClock) -> None:
    db.sql(MADE)
    db.sql("INSERT INTO items (n) VALUES (1)")
    db.sql("INSERT INTO items VALUES (2, DEFAULT, default, NULL, DEFAULT), (3, NULL, 7, NULL, NULL)")
    db.sql("INSERT INTO items (price, n) SELECT DEFAULT, n + 3 FROM items WHERE n = 1")
    db.insert("items", [{"n": 5}, {"n": 6}])
    db.insert("items", pa.table({"n": [7]}))
    db.insert("items", [{"n": 8, "name": None, "made": NOW}, {"N": 9, "made": NOW}])
    expected = [
        (1, "no name", Decimal("1.50"), None, NOW),
        (2, "no name", Decimal("1.50"), None, NOW),
        (3, None, Decimal("7.00"), None, None),
        (4, "no name", Decimal("1.50"), None, NOW),
        (5, "no name", Decimal("1.50"), None, NOW),
        (6, "no name", Decimal("1.50"), None, NOW),
        (7, "no name", Decimal("1.50"), None, NOW),
        (8, None, Decimal("1.50"), None, NOW),
        (9, "no name", Decimal("1.50"), None, NOW),
    ]
    assert rows(db, "SELECT * FROM items ORDER BY n") == expected
    db.close()
    again = open_db()
    clock.advance(1_000_000)
    again.sql("UPDATE items SET name = DEFAULT, made = DEFAULT, tags = DEFAULT WHERE n = 3")
    again.sql("INSERT INTO items (n) VALUES (0)")
    later = datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC)
    assert rows(again, "SELECT * FROM items WHERE n IN (0, 3) ORDER BY n") == [
        (0, "no name", Decimal("1.50"), None, later),
        (3, "no name", Decimal("7.00"), None, later),
    ]


def test_defaults_are_shown(db: Database) -> None:
    db.sql(MADE)
    described = db.sql("DESCRIBE items").table.to_pylist()
    assert [row["note"] for row in described] == [
        "",
        "default concat('no', ' name')",
        "default 1 + 0.5",
        "",
        "default current_timestamp()",
    ]
    text = db.sql("SHOW CREATE TABLE items").table.to_pylist()[0]["statement"]
    db.sql("DROP TABLE items")
    db.sql(text)
    assert db.sql("DESCRIBE items").table.to_pylist() == described


def test_a_moving_default_is_given_to_all_rows_of_a_call_or_to_none(db: Database) -> None:
    db.sql(MADE)
    with pytest.raises(TypeMismatch, match="Row 1 lacks column 'made'"):
        db.insert("items", [{"n": 8, "made": NOW}, {"n": 9}])


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("CREATE TABLE t (a INT DEFAULT (SELECT 1))", Unsupported, "A default can't be a subquery.*column 30|subquery"),
        ("CREATE TABLE t (a INT DEFAULT b, b INT)", UnknownName, "b"),
        ("CREATE TABLE t (a INT DEFAULT sum(1))", SqlError, "A default can't be an aggregate"),
        ("CREATE TABLE t (a INT DEFAULT)", SqlError, "Expected the default of column 'a'"),
        ("CREATE TABLE t (a INT DEFAULT twice(1))", Unsupported, "can't call function 'twice'"),
        ("CREATE TABLE t (a INT DEFAULT 'x')", LadleError, "x"),
        ("CREATE STREAM t (a TIMESTAMP DEFAULT now())", Unsupported, "changes with the time"),
        ("CREATE STREAM t (a INT DEFAULT 1 / 0)", LadleError, "(?i)zero"),
    ],
)
def test_what_is_no_default_is_refused(db: Database, text: str, kind: type[LadleError], message: str) -> None:
    db.sql("CREATE FUNCTION twice(n INT) RETURNS INT LANGUAGE PYTHON AS $$ pc.multiply(n, 2) $$")
    with pytest.raises(kind, match=message):
        db.sql(text)
    assert not db.tables()
    assert not db.streams()


def test_tuples_have_the_defaults_of_what_is_not_pushed(db: Database, open_db: Open) -> None:
    db.sql("CREATE STREAM s (n INT, kind STRING DEFAULT 'plain', x DOUBLE DEFAULT -1.5)")
    db.push("s", [{"n": 1}, {"n": 2, "kind": None}, {"n": 3, "x": 2.0}], wait=True)
    db.push("s", pa.table({"n": [4]}), wait=True)
    db.sql("INSERT INTO s (n) VALUES (5)")
    db.sql("INSERT INTO s VALUES (6, DEFAULT, 1 + 1)")
    db.close()
    again = open_db()
    again.sql("ALTER STREAM s ADD COLUMN more INT DEFAULT 7")
    again.push("s", [{"n": 7}], wait=True)
    assert rows(again, "SELECT * FROM s ORDER BY n") == [
        (1, "plain", -1.5, None),
        (2, None, -1.5, None),
        (3, "plain", 2.0, None),
        (4, "plain", -1.5, None),
        (5, "plain", -1.5, None),
        (6, "plain", 2.0, None),
        (7, "plain", -1.5, 7),
    ]


def test_a_table_gets_a_column_and_standing_queries_keep_theirs(db: Database, open_db: Open) -> None:
    db.create_table("t", {"n": "INT", "name": "STRING DEFAULT 'x'"})
    db.sql("INSERT INTO t (n) VALUES (1), (2)")
    before = db.catalog.seq
    db.sql("DELETE FROM t WHERE n = 1")
    old = db.register("SELECT * FROM t", name="old")
    position = old.subscribe().position
    assert db.sql("ALTER TABLE t ADD COLUMN more INT DEFAULT 40 + 2").message == "column more added to t"
    db.sql("ALTER TABLE t ADD COLUMN last STRING")
    db.register("SELECT n, more FROM t", name="new")
    db.sql("INSERT INTO t (n) VALUES (3)")
    db.sql("UPDATE t SET more = 0 WHERE n = 3")
    db.close()
    again = open_db()
    assert rows(again, "SELECT * FROM t ORDER BY n") == [(2, "x", 42, None), (3, "x", 0, None)]
    assert rows(again, "SELECT * FROM old ORDER BY n") == [(2, "x"), (3, "x")]
    assert rows(again, "SELECT * FROM new ORDER BY n") == [(2, 42), (3, 0)]
    assert rows(again, f"SELECT * FROM t VERSION AS OF {before} ORDER BY n") == [
        (1, "x", 42, None),
        (2, "x", 42, None),
    ]
    told = again.query("old").subscribe(position).next(0)
    assert told is not None
    assert told.inserted.to_pylist() == [{"n": 3, "name": "x"}]
    assert not len(told.retracted)


def test_a_column_that_a_table_can_t_get_is_refused(db: Database) -> None:
    db.sql("CREATE TABLE t (n INT)")
    for text, message in (
        ("ALTER TABLE t ADD COLUMN N STRING", "declared twice"),
        ("ALTER TABLE missing ADD COLUMN a INT", "missing"),
        ("ALTER TABLE t ADD COLUMN a INT DEFAULT 'x'", "x"),
        ("ALTER TABLE t ADD COLUMN _place INT", "choose another name|_place"),
        ("ALTER TABLE t DROP COLUMN n", "Expected ADD COLUMN name TYPE"),
    ):
        with pytest.raises(LadleError, match=message):
            db.sql(text)
    assert [table.schema.names for table in db.tables()] == [("n",)]


def test_a_statement_that_was_bound_before_a_column_came_is_bound_again(db: Database) -> None:
    db.sql("CREATE TABLE t (n INT)")
    db.sql("INSERT INTO t VALUES (1)")
    from ladle.sql import parse_one
    from ladle.sql.statement_types import UpdateRows

    text, catalog = "UPDATE t SET n = n + 1", db.catalog
    change = parse_one(text, catalog)
    assert isinstance(change, UpdateRows)
    db.sql("ALTER TABLE t ADD COLUMN more INT DEFAULT 5")
    db.run(ChangeTable(change, text, catalog))
    assert rows(db, "SELECT * FROM t") == [(2, 5)]
