"""Statements that define: tables from queries, TRUNCATE, and SHOW CREATE, whose text makes the same again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks

from ladle.engine import Database
from ladle.errors import AlreadyExists, LadleError, TypeMismatch, UnknownName
from ladle.testing import connect_inline

NAMES = "CREATE TABLE names (n INT, name STRING)"


def shown(db: Database, what: str) -> str:
    (row,) = db.sql(f"SHOW CREATE {what}").table.to_pylist()
    text: str = row["statement"]
    return text


@pytest.fixture
def filled(db: Database) -> Database:
    db.sql(NAMES)
    db.sql("INSERT INTO names VALUES (1, 'one'), (2, 'two'), (3, NULL)")
    return db


def test_truncate_leaves_a_table_without_rows_and_tells_followers(filled: Database) -> None:
    subscription = filled.register("SELECT name FROM names WHERE n < 3", name="q").subscribe()
    assert filled.sql("TRUNCATE TABLE names").message == "3 rows deleted from names"
    delta = subscription.next(0)
    assert delta is not None
    assert sorted(delta.retracted.column("name").to_pylist()) == ["one", "two"]
    assert filled.sql("TRUNCATE names").message == "0 rows deleted from names"
    filled.sql(TICKS)
    with pytest.raises(LadleError, match="'ticks' is a stream"):
        filled.sql("TRUNCATE TABLE ticks")


def test_a_table_is_made_of_an_answer(filled: Database, open_db: Open) -> None:
    filled.sql(TICKS)
    filled.push("ticks", ticks(range(6)), wait=True)
    made = "CREATE TABLE few AS SELECT t.n, s.name AS `the name` FROM ticks t JOIN names s ON t.n = s.n WHERE t.n < 3"
    assert filled.sql(made).message == "table few created with 2 rows"
    assert filled.sql("CREATE TABLE IF NOT EXISTS few AS SELECT 1 AS a").message == (
        "table few is there already, unchanged"
    )
    emptied = filled.sql("CREATE TABLE none AS SELECT n FROM names WHERE n > 9")
    assert emptied.message == "table none created with 0 rows"
    filled.sql("INSERT INTO few VALUES (9, 'nine')")
    filled.sql("INSERT INTO none VALUES (7)")
    filled.close()
    db = open_db()
    assert sorted(map(tuple, (row.values() for row in db.sql("SELECT * FROM few").to_pylist()))) == [
        (1, "one"),
        (2, "two"),
        (9, "nine"),
    ]
    assert db.sql("SELECT * FROM none").to_pylist() == [{"n": 7}]
    assert [table.version for table in db.tables()] == [1, 2, 1]


def test_a_table_that_can_t_be_made_of_an_answer_is_refused_and_leaves_nothing(filled: Database) -> None:
    before = filled.catalog.seq
    for text, kind, message in (
        ("CREATE TABLE names AS SELECT 1 AS a", AlreadyExists, "There is a table 'names'"),
        ("CREATE TABLE other AS SELECT missing FROM names", UnknownName, "missing"),
    ):
        with pytest.raises(kind, match=message):
            filled.sql(text)
    assert filled.catalog.seq == before


def test_a_past_before_a_table_was_made_of_an_answer_is_none(filled: Database) -> None:
    before = filled.catalog.seq
    filled.sql("CREATE TABLE few AS SELECT n FROM names")
    made = filled.catalog.seq
    filled.sql("TRUNCATE TABLE few")
    assert len(filled.sql(f"SELECT * FROM few VERSION AS OF {made}").table) == 3
    with pytest.raises(LadleError, match="was not there yet"):
        filled.sql(f"SELECT * FROM few VERSION AS OF {before}")


def test_files_of_a_table_that_was_never_made_go_and_take_no_other_with_them(filled: Database, open_db: Open) -> None:
    """A process that died between the file and its entry left a file under the id that the next table gets."""
    left = filled.path / "tables" / str(filled.catalog.next_id) / "0123-v1.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"left")
    filled.maintain()
    filled.sql("CREATE TABLE few AS SELECT n FROM names")
    filled.maintain()
    assert not left.exists()
    assert len(filled.sql("SELECT * FROM few").table) == 3


DEFINED = (
    "CREATE STREAM trades (symbol STRING, `a b` DECIMAL(10,2), tags ARRAY<STRING>, at TIMESTAMP) TIMESTAMP BY at "
    "RETAIN INTERVAL 7 DAYS MAX AHEAD INTERVAL 90 MINUTES LATENESS INTERVAL 250 MILLISECONDS IDLE AFTER INTERVAL 1 DAY",
    "CREATE STREAM plain (n INT)",
    "CREATE TABLE companies (symbol STRING, parts STRUCT<a: INT, b: MAP<STRING, DATE>>)",
    "CREATE FUNCTION is_even(n INT) RETURNS BOOLEAN LANGUAGE PYTHON AS $$ pc.equal(pc.bit_wise_and(n, 1), 0) $$",
    r"CREATE FUNCTION odd(n STRING) RETURNS STRING LANGUAGE PYTHON AS 'pc.binary_join(n, \'$$\\\\\')'",
    "CREATE QUERY large WITH (materialize = 'complete') AS SELECT symbol -- who\n FROM trades [RANGE 1 HOUR] t "
    "WHERE is_even(CAST(`a b` AS INT))",
)
THINGS = (
    "STREAM trades",
    "STREAM plain",
    "TABLE companies",
    "FUNCTION is_even",
    "FUNCTION odd",
    "QUERY large",
)


def test_what_show_create_shows_makes_the_same(db: Database, tmp_path: Path) -> None:
    for text in DEFINED:
        db.sql(text)
    texts = [shown(db, what) for what in THINGS]
    with connect_inline(tmp_path / "other") as other:
        for text in texts:
            other.sql(text)
        assert [shown(other, what) for what in THINGS] == texts
        for one, two in zip(db.streams(), other.streams(), strict=True):
            assert (one.schema, one.retain_us, one.lateness_us, one.idle_after_us) == (
                two.schema,
                two.retain_us,
                two.lateness_us,
                two.idle_after_us,
            )
        assert [table.schema for table in db.tables()] == [table.schema for table in other.tables()]
        assert [each.source for each in db.functions()] == [each.source for each in other.functions()]
        assert [query.materialize for query in other.queries()] == ["complete"]


def test_show_create_of_what_is_not_there_names_what_is(db: Database) -> None:
    db.sql(NAMES)
    for what in ("TABLE nams", "STREAM names", "QUERY names", "FUNCTION names"):
        with pytest.raises(UnknownName):
            db.sql(f"SHOW CREATE {what}")
    with pytest.raises(LadleError, match="Expected SHOW CREATE STREAM"):
        db.sql("SHOW CREATE names")


def test_a_view_is_read_by_name_and_keeps_nothing(filled: Database, open_db: Open) -> None:
    made = "CREATE VIEW few AS SELECT * FROM names WHERE n < 3"
    assert filled.sql(made).message == "view few created"
    assert filled.sql(made.replace("VIEW", "VIEW IF NOT EXISTS")).message == "view few is there already, unchanged"
    filled.register("SELECT count(*) AS c FROM few", name="counted", materialize="partial")
    filled.sql("ALTER TABLE names ADD COLUMN more INT")
    filled.close()
    db = open_db()
    assert db.sql("SELECT * FROM few ORDER BY n").to_pylist() == [{"n": 1, "name": "one"}, {"n": 2, "name": "two"}]
    replaced = "CREATE OR REPLACE VIEW few AS SELECT n, name FROM names"
    assert db.sql(replaced).message == "view few replaced"
    assert db.invoke("counted").to_pylist() == [{"c": 3}]
    (view,) = db.sql("SHOW VIEWS").table.to_pylist()
    assert view == {"name": "few", "sql": "SELECT n, name FROM names", "queries": 1}
    assert shown(db, "VIEW few") == "CREATE VIEW `few` AS\nSELECT n, name FROM names"
    with pytest.raises(LadleError, match="others read it: counted"):
        db.sql("DROP VIEW few")
    for text in ("DROP VIEW counted", "CREATE OR REPLACE VIEW counted AS SELECT 1 AS c", "SHOW CREATE VIEW counted"):
        with pytest.raises(LadleError, match="keeps results"):
            db.sql(text)
    with pytest.raises(UnknownName, match="View 'nosuch' not found"):
        db.sql("DROP VIEW nosuch")
    db.sql("DROP QUERY counted")
    assert db.sql("DROP VIEW few").message == "view few dropped"
    assert db.sql("DROP VIEW IF EXISTS few").message == "there was no view few"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t (a INT, b INTERVAL DAY TO SECOND)", "Column 'b': an INTERVAL can be computed with, not kept"),
        ("CREATE STREAM t (a ARRAY<VARIANT>)", "Column 'a': a VARIANT can be computed with on Spark, not kept"),
        ("ALTER TABLE names ADD COLUMN b INTERVAL YEAR", "Column 'b': an INTERVAL"),
    ],
)
def test_types_that_no_column_can_have_are_refused_with_why(filled: Database, text: str, message: str) -> None:
    with pytest.raises(TypeMismatch, match=message):
        filled.sql(text)
