"""Tables: made, filled, changed, dropped, and read by queries as they stand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values
from tests.waiting import wait_until

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.engine.commands import ChangeTable
from ladle.errors import (
    AlreadyExists,
    EvaluationError,
    InUse,
    LadleError,
    ReadOnly,
    SqlError,
    TypeMismatch,
    UnknownName,
)
from ladle.sql import bind, parse_one
from ladle.testing.one_row import at_one_row

NAMES = "CREATE TABLE names (n INT, name STRING)"
JOINED = "SELECT t.n, s.name FROM ticks t JOIN names s ON t.n = s.n"


@pytest.fixture
def filled(db: Database) -> Database:
    db.sql(TICKS)
    db.sql(NAMES)
    db.sql("INSERT INTO names VALUES (1, 'one'), (2, 'two'), (3, NULL)")
    db.push("ticks", ticks(range(6)), wait=True)
    return db


def rows(db: Database, text: str) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(row.values()) for row in db.sql(text).table.to_pylist()),
        key=lambda row: tuple((value is None, str(value)) for value in row),
    )


def files(db: Database) -> list[Path]:
    return sorted(db.path.glob("tables/*/*"))


def whole(db: Database) -> list[Path]:
    """The files that have all rows of a version; others lead to one from the next."""
    return [path for path in files(db) if "difference" not in path.name]


def test_statements_say_what_they_did(db: Database) -> None:
    said = [
        db.sql(text).message
        for text in (
            NAMES,
            "CREATE TABLE IF NOT EXISTS names (other DOUBLE)",
            "INSERT INTO names VALUES (1, 'one'), (2, 'two')",
            "INSERT INTO names (name) SELECT 'three'",
            "UPDATE names SET n = 3 WHERE name = 'three'",
            "UPDATE names SET n = 4 WHERE name = 'four'",
            "DELETE FROM names WHERE n < 3",
            "DELETE FROM names",
            "DROP TABLE names",
            "DROP TABLE IF EXISTS names",
        )
    ]
    assert said == [
        "table names created",
        "table names is there already, unchanged",
        "2 rows inserted into names",
        "1 row inserted into names",
        "1 row updated in names",
        "0 rows updated in names",
        "2 rows deleted from names",
        "1 row deleted from names",
        "table names dropped",
        "there was no table names",
    ]


def test_show_and_describe(filled: Database) -> None:
    filled.register(JOINED, name="q")
    (shown,) = filled.sql("SHOW TABLES").table.to_pylist()
    assert shown.pop("bytes") == files(filled)[0].stat().st_size
    assert shown == {"name": "names", "columns": "n INT, name STRING", "rows": 3, "version": 1, "queries": 1}
    described = filled.sql("DESCRIBE names").table.to_pylist()
    assert [(row["column"], row["type"], row["note"]) for row in described] == [
        ("n", "INT", ""),
        ("name", "STRING", ""),
    ]
    assert filled.sql("DESCRIBE TABLE names").table.to_pylist() == described
    (table,) = filled.tables()
    assert (table.name, table.rows, table.version, table.schema.names) == ("names", 3, 1, ("n", "name"))


def test_values_of_every_type(open_db: Open) -> None:
    db = open_db()
    columns = {
        "b": "BOOLEAN",
        "i1": "TINYINT",
        "i2": "SMALLINT",
        "i4": "INT",
        "i8": "BIGINT",
        "f4": "FLOAT",
        "f8": "DOUBLE",
        "d": "DECIMAL(20,3)",
        "s": "STRING",
        "x": "BINARY",
        "day": "DATE",
        "at": "TIMESTAMP",
        "local": "TIMESTAMP_NTZ",
        "tags": "ARRAY<STRING>",
        "part": "STRUCT<a: INT, b: STRING>",
    }
    assert db.create_table("t", columns)
    row = {
        "b": True,
        "i1": -128,
        "i2": 32_767,
        "i4": -(1 << 31),
        "i8": (1 << 63) - 1,
        "f4": 0.5,
        "f8": -0.1,
        "d": Decimal("12345678901234567.891"),
        "s": 'it\'s "x"\n',
        "x": b"\x00\xff",
        "day": date(1969, 12, 31),
        "at": datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
        "local": datetime(1, 1, 1),
        "tags": ["a", None],
        "part": {"a": 1, "b": None},
    }
    nothing = dict.fromkeys(columns)
    assert db.insert("t", [row, nothing]) == 2
    assert db.sql("SELECT * FROM t WHERE b").table.to_pylist() == [row]
    assert db.sql("SELECT * FROM t WHERE b IS NULL").table.to_pylist() == [nothing]
    db.sql("UPDATE t SET i4 = i4 + 1, s = NULL, at = at + INTERVAL 1 SECOND, d = d / 10 WHERE i1 < 0")
    changed = {**row, "i4": row["i4"] + 1, "s": None, "at": datetime(2024, 3, 1, 0, 0, 0, 999_999, tzinfo=UTC)}
    changed["d"] = Decimal("1234567890123456.789")
    db.sql("DELETE FROM t WHERE i1 IS NULL")
    assert db.sql("SELECT * FROM t").table.to_pylist() == [changed]
    db.close()
    assert open_db().sql("SELECT * FROM t").table.to_pylist() == [changed]


def test_a_row_that_does_not_fit_is_an_error_of_the_whole_statement(filled: Database) -> None:
    before = rows(filled, "SELECT * FROM names")
    with pytest.raises(TypeMismatch, match="3000000000 is no INT"):
        filled.sql("INSERT INTO names VALUES (7, 'seven'), (3000000000, 'much')")
    for text in (
        "INSERT INTO names VALUES (7, 'seven'), (3000000000 + 1, 'much')",
        "INSERT INTO names SELECT 1 / (n - 2), name FROM names",
        "UPDATE names SET n = n * 1000000000",
        "DELETE FROM names WHERE 1 / (n - 2) > 0",
    ):
        with pytest.raises(EvaluationError):
            filled.sql(text)
    for given, reason in (
        ([{"n": 7}, {"n": "many"}], r"Row 1 does not fit table 'names': n: 'many' is not a INT\. None was inserted"),
        ([{"n": 7, "nome": "x"}], r"Table 'names' has no column 'nome'\. Columns: n INT, name STRING"),
        ([7], "Row 0 for table 'names' is a int"),
        (pa.table({"n": [[1]]}), "Column 'n' is ARRAY<BIGINT>, but table 'names' has it as INT"),
        (7, "Rows can't be a int"),
    ):
        with pytest.raises(TypeMismatch, match=reason):
            filled.insert("names", given)
    assert rows(filled, "SELECT * FROM names") == before
    assert filled.tables()[0].version == 1


def test_rows_as_people_have_them(db: Database) -> None:
    db.sql(NAMES)
    assert db.insert("NAMES", {"N": 1, "name": "one"}) == 1
    assert db.insert("names", [{"n": "2"}, {"NAME": "no number"}]) == 2
    assert db.insert("names", pa.table({"name": ["three"], "n": pa.array([3], pa.int64())})) == 1
    assert db.insert("names", pd.DataFrame({"n": [4]})) == 1
    assert db.insert("names", pa.table({"n": pa.chunked_array([], pa.int8())})) == 0
    assert db.insert("names", []) == 0
    assert rows(db, "SELECT * FROM names") == [
        (1, "one"),
        (2, None),
        (3, "three"),
        (4, None),
        (None, "no number"),
    ]
    assert db.tables()[0].version == 4


def test_update_sees_the_row_as_it_was(db: Database) -> None:
    db.sql("CREATE TABLE t (a INT, b INT, _changed STRING)")
    db.sql("INSERT INTO t VALUES (1, 2, 'x'), (3, 4, NULL), (NULL, 5, 'y')")
    db.sql("UPDATE t SET a = b, b = a WHERE a > 1 OR _changed = 'x'")
    assert rows(db, "SELECT * FROM t") == [(2, 1, "x"), (4, 3, None), (None, 5, "y")]
    db.sql("UPDATE t SET a = (SELECT max(b) FROM t), b = CASE WHEN t.a IS NULL THEN 0 ELSE b END")
    assert rows(db, "SELECT * FROM t") == [(5, 0, "y"), (5, 1, "x"), (5, 3, None)]
    db.sql("UPDATE t SET b = 9 WHERE b IN (SELECT b FROM t WHERE _changed IS NOT NULL)")
    assert rows(db, "SELECT * FROM t") == [(5, 3, None), (5, 9, "x"), (5, 9, "y")]
    db.sql("DELETE FROM t WHERE _changed <> 'x'")
    assert rows(db, "SELECT b FROM t") == [(3,), (9,)]


def test_rows_come_from_streams_queries_and_the_table_itself(filled: Database) -> None:
    filled.register("SELECT n FROM ticks WHERE n > 3", name="high")
    filled.sql("INSERT INTO names SELECT n, concat('tick ', n) FROM high")
    filled.sql("INSERT INTO names SELECT n + 10, name FROM names WHERE n = 1")
    assert rows(filled, "SELECT * FROM names WHERE n > 3") == [(11, "one"), (4, "tick 4"), (5, "tick 5")]
    filled.sql("DELETE FROM names WHERE n NOT IN (SELECT n FROM ticks)")
    assert values(filled.sql("SELECT count(*) FROM names")) == [5]
    filled.sql("INSERT INTO ticks SELECT n + 100, TIMESTAMP '2023-11-14 13:00:00' FROM names WHERE n = 2")
    assert values(filled.sql("SELECT max(n) FROM ticks")) == [102]


@pytest.mark.parametrize("mode", at_one_row(["complete"], ["none", "partial", "complete", "auto"]))
def test_a_standing_query_reads_the_table_as_it_stands(filled: Database, mode: str) -> None:
    filled.register(f"{JOINED} WHERE t.n < 3 BEGIN NOW - INTERVAL 1 HOUR END NOW", name="q", materialize=mode)
    filled.register("SELECT count(*) AS c, max(n) AS top FROM names", name="alone", materialize=mode)
    filled.register("SELECT q.n FROM q, alone WHERE alone.c > 1", name="reader", materialize=mode)

    def answers() -> tuple[Any, ...]:
        for _ in range(2):  # the second time from what is kept
            found = (
                rows(filled, "SELECT * FROM q"),
                sorted(values(filled.invoke("q"))),
                rows(filled, "SELECT * FROM alone"),
            )
        assert filled.invoke("alone").table.to_pylist()[0]["c"] == found[2][0][0]
        assert sorted(values(filled.invoke("reader"))) == (found[1] if found[2][0][0] > 1 else [])
        return found[1], found[2]

    assert answers() == ([1, 2], [(3, 3)])
    filled.sql("INSERT INTO names VALUES (0, 'zero'), (2, 'zwei')")
    assert answers() == ([0, 1, 2, 2], [(5, 3)])
    filled.sql("UPDATE names SET n = 0 WHERE n = 1")
    assert answers() == ([0, 0, 2, 2], [(5, 3)])
    filled.push("ticks", ticks([0.5]), wait=True)
    assert answers() == ([0, 0, 0, 0, 2, 2], [(5, 3)])
    filled.sql("DELETE FROM names WHERE name <> 'zwei' OR n = 3")
    assert answers() == ([2], [(1, 2)])
    filled.sql("DELETE FROM names")
    assert answers() == ([], [(0, None)])


def test_an_answer_that_is_kept_notices_a_new_version(filled: Database) -> None:
    filled.register(JOINED, name="q", materialize="complete")
    wait_until(lambda: any(row.things for row in filled.derived() if row.kind == "answers"), "the answer is kept")
    for number in range(at_one_row(4, 20)):
        filled.sql(f"UPDATE names SET name = 'v{number}' WHERE n = 1")
        assert {row["name"] for row in filled.invoke("q").table.to_pylist() if row["n"] == 1} == {f"v{number}"}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s.n, t.at FROM names s LEFT JOIN ticks t ON s.n = t.n AND t.n > 1",
        "SELECT n FROM ticks WHERE n IN (SELECT n FROM names WHERE name IS NOT NULL)",
        "SELECT n FROM ticks WHERE EXISTS (SELECT 1 FROM names WHERE names.n = ticks.n)",
        "SELECT n FROM ticks UNION ALL SELECT n FROM names",
        "SELECT a.n FROM names a JOIN names b ON a.n < b.n",
        "SELECT s.name, count(*) AS c, sum(t.n) AS u FROM ticks [ROWS 4] t, names s WHERE t.n = s.n GROUP BY s.name",
        "WITH s AS (SELECT n AS k FROM names) SELECT count(*) AS c FROM ticks, s WHERE n <> k",
        "SELECT (SELECT max(n) FROM names) AS m, count(*) AS c FROM ticks",
        "SELECT a.n FROM (SELECT x.n FROM ticks [RANGE 1 HOUR] x JOIN ticks [RANGE 1 HOUR] y ON x.n = y.n) a "
        "JOIN names s ON a.n = s.n",
    ],
)
def test_anywhere_in_a_query(filled: Database, text: str) -> None:
    with duckdb.connect() as other:
        other.register("ticks", filled.sql("SELECT * FROM ticks").table)
        other.register("names", filled.sql("SELECT * FROM names").table)
        plain = text.replace("ticks [ROWS 4] t", "(SELECT * FROM ticks WHERE n > 1) t").replace(" [RANGE 1 HOUR]", "")
        expected = _as_text(other.sql(plain).to_arrow_table())
    filled.register(text, name="q")
    for _ in range(2):
        assert _as_text(filled.invoke("q").table) == expected
        filled.backfill()


def _as_text(table: pa.Table) -> list[str]:
    return sorted("|".join(map(str, row.values())) for row in table.to_pylist())


def test_no_stream_no_window_and_now_is_the_wall_clock(filled: Database, clock: ManualClock) -> None:
    filled.register("SELECT n, NOW AS moment FROM names WHERE n = 1", name="q", materialize="complete")
    for _ in range(2):
        answer = filled.invoke("q")
        assert answer.windows == ()
        assert answer.table.to_pylist()[0]["moment"] == answer.now == datetime.fromtimestamp(clock.now_us() / 1e6, UTC)
        clock.advance(60)
    filled.sql("CREATE TABLE seen (at TIMESTAMP)")
    filled.sql("INSERT INTO seen SELECT NOW FROM ticks WHERE n = 1")
    assert values(filled.sql("SELECT at FROM seen")) == [at(5)]


def test_explain_shows_tables(filled: Database) -> None:
    filled.register(JOINED, name="q")
    shown = filled.explain("q")
    assert "tables    _t0 = names, as it stands: 3 rows\n      columns   n, name" in shown
    assert "none: no stream is read" in filled.explain("SELECT n FROM names")


def test_names_belong_to_one_thing(filled: Database) -> None:
    filled.register("SELECT n FROM ticks", name="q")
    for text, taken in (
        (NAMES, "table 'names'"),
        ("CREATE TABLE Ticks (a INT)", "stream 'ticks'"),
        ("CREATE TABLE q (a INT)", "query 'q'"),
        ("CREATE STREAM names (a INT)", "table 'names'"),
        ("CREATE QUERY names AS SELECT 1", "table 'names'"),
    ):
        with pytest.raises(AlreadyExists, match=f"There is a {taken} already"):
            filled.sql(text)
    with pytest.raises(LadleError, match="'a b' can't name a table"):
        filled.sql("CREATE TABLE `a b` (a INT)")
    with pytest.raises(LadleError, match="needs a column"):
        filled.create_table("t", {})
    with pytest.raises(LadleError, match="'names' is a table, not a stream"):
        filled.push("names", [{"n": 1}])
    with pytest.raises(UnknownName, match="Tables: names"):
        filled.insert("nomes", [{"n": 1}])
    with pytest.raises(SqlError, match="is not a type"):
        filled.create_table("t", {"a": "NUMBER OF SOMETHING"})


def test_a_table_that_is_read_is_dropped_with_its_readers_or_not_at_all(filled: Database) -> None:
    filled.register(JOINED, name="q")
    filled.register("SELECT n FROM q", name="reader")
    filled.register("SELECT n FROM ticks", name="other")
    with pytest.raises(InUse, match=r"Table 'names' can't be dropped: queries read it: q, reader\."):
        filled.sql("DROP TABLE names")
    filled.sql("DROP TABLE names CASCADE")
    assert [query.name for query in filled.queries()] == ["other"]
    with pytest.raises(UnknownName):
        filled.sql("SELECT * FROM names")
    filled.maintain()
    assert files(filled) == []
    filled.sql("CREATE TABLE names (n STRING)")
    assert rows(filled, "SELECT * FROM names") == []
    with pytest.raises(UnknownName, match="Table 'nomes' not found"):
        filled.sql("DROP TABLE nomes")


def test_a_subscriber_is_told_of_epochs_over_the_table_as_it_stands(filled: Database) -> None:
    filled.register(JOINED, name="q")
    with filled.query("q").subscribe() as changes:
        filled.sql("INSERT INTO names VALUES (7, 'seven'), (8, 'eight')")
        assert changes.next(0.0) is None
        filled.push("ticks", ticks([7]), wait=True)
        change = changes.next(5.0)
        assert change is not None
        assert change.inserted.to_pylist() == [{"n": 7, "name": "seven"}]


def test_what_was_committed_is_there_after_a_restart(open_db: Open) -> None:
    db = open_db(checkpoint_entries=1)
    db.sql(TICKS)
    db.sql(NAMES)
    db.register(JOINED, name="q")
    for number in range(5):
        db.sql(f"INSERT INTO names VALUES ({number}, 'v{number}')")
    db.push("ticks", ticks(range(3)), wait=True)
    db.maintain()
    db.sql("UPDATE names SET name = 'late' WHERE n = 2")
    db.close()
    db = open_db()
    assert sorted(values(db.invoke("q"), "name")) == ["late", "v0", "v1"]
    assert db.tables()[0].version == 6
    db.sql("DELETE FROM names WHERE n = 2")
    assert sorted(values(db.invoke("q"), "name")) == ["v0", "v1"]


def test_old_versions_and_orphans_are_removed(filled: Database) -> None:
    for number in range(4):
        filled.sql(f"UPDATE names SET name = '{number}'")
    assert len(files(filled)) == 9, "five versions, and the differences to four of them"
    (table,) = filled.catalog.tables.values()
    directory = files(filled)[0].parent
    (directory / "0123456789abcdef-v9.parquet").write_bytes(b"never committed")
    (directory / ".0123456789abcdef-v9.parquet.1-2-3.tmp").write_bytes(b"half")
    (directory.parent / "999").mkdir()
    filled.maintain()
    assert len(files(filled)) == 5
    assert {path.name for path in files(filled)} == {file.name for file in table.files} >= {table.file}
    assert not (directory.parent / "999").exists()
    filled.sql("DELETE FROM names")
    filled.maintain()
    assert whole(filled) == []
    assert rows(filled, "SELECT * FROM names") == []
    assert filled.status().problems == {}


def test_a_snapshot_that_is_read_keeps_its_version(filled: Database) -> None:
    with filled._store.pin() as catalog:
        filled.sql("UPDATE names SET name = 'new'")
        filled.maintain()
        filled._store.cache.drop(catalog.tables["names"].file or "")
        answer = filled._invoker.answer(bind("SELECT name FROM names WHERE n = 1", catalog), catalog)
        assert values(answer) == ["one"]
    filled.maintain()
    assert len(whole(filled)) == 1


def test_readers_see_new_versions(filled: Database, open_db: Open) -> None:
    filled.register(JOINED, name="q", materialize="complete")
    reader = open_db(read_only=True)
    for number in range(3):
        filled.sql(f"UPDATE names SET name = 'v{number}' WHERE n = 1")
        filled.maintain()
        assert f"v{number}" in values(reader.invoke("q"), "name")
        assert f"v{number}" in values(reader.sql("SELECT name FROM names"))
    filled.sql("CREATE TABLE more (a INT)")
    assert [table.name for table in reader.tables()] == ["names", "more"]
    for text in (
        "INSERT INTO names VALUES (1, 'x')",
        "DELETE FROM names",
        "DROP TABLE names",
        "CREATE TABLE x (a INT)",
    ):
        with pytest.raises(ReadOnly):
            reader.sql(text)
    with pytest.raises(ReadOnly):
        reader.insert("names", [{"n": 1}])
    assert len(whole(filled)) == 1


def test_a_table_has_a_limit(open_db: Open) -> None:
    db = open_db(table_bytes_max=1_000)
    db.sql("CREATE TABLE t (n BIGINT)")
    db.insert("t", pa.table({"n": range(100)}))
    with pytest.raises(LadleError, match=r"would have 1,\d\d\d bytes; it may have 1,000\. Nothing was changed"):
        db.insert("t", pa.table({"n": range(100)}))
    assert values(db.sql("SELECT count(*) FROM t")) == [100]
    db.close()
    db = open_db(table_bytes_max=10)
    db.sql("DELETE FROM t WHERE n >= 50")
    assert values(db.sql("SELECT count(*) FROM t")) == [50]


def test_more_rows_than_a_row_group_has(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.archive.table_files.GROUP_ROWS", 7)
    db.sql("CREATE TABLE t (n INT, s STRING)")
    db.insert("t", pa.table({"n": range(20), "s": [str(n) for n in range(20)]}))
    db._store.cache.drop(db.catalog.tables["t"].file or "")
    assert db.sql("SELECT n, s FROM t ORDER BY n").table.to_pylist() == [{"n": n, "s": str(n)} for n in range(20)]


def test_statements_on_one_table_take_turns(db: Database) -> None:
    threads, each = 4, at_one_row(2, 12)
    db.sql("CREATE TABLE counts (k INT, c INT)")
    db.sql("CREATE TABLE other (k INT)")
    db.insert("counts", [{"k": k, "c": 0} for k in range(3)])
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(each):
                db.sql(f"UPDATE counts SET c = c + 1 WHERE k = {i % 3}")
                db.insert("other", [{"k": number}])
                db.sql("INSERT INTO counts SELECT 9, count(*) FROM counts WHERE k < 3")
        except BaseException as error:
            failed.append(error)

    def clean() -> Iterator[None]:
        while any(thread.is_alive() for thread in running):
            db.maintain()
            yield

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for _ in clean():
        pass
    assert failed == []
    assert values(db.sql("SELECT sum(c) FROM counts WHERE k < 3")) == [threads * each]
    assert rows(db, "SELECT k, c FROM counts WHERE k = 9") == [(9, 3)] * (threads * each)
    assert values(db.sql("SELECT count(*) FROM other")) == [threads * each]


def test_a_version_that_came_in_between_is_not_overwritten(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes turns can't meet this; what commits past it must not be lost either."""
    commit = filled.parts.tables._commit
    between = iter([True, False])

    def late(catalog: Any, table: Any, version: Any) -> bool:
        if next(between, False):
            other = pa.table({"n": [8], "name": ["between"]}, schema=table.schema.arrow)
            commit(catalog, table, replace(version, rows=other, appended=False))
        return commit(catalog, table, version)

    monkeypatch.setattr(filled.parts.tables, "_commit", late)
    filled.sql("INSERT INTO names VALUES (9, 'nine')")
    assert rows(filled, "SELECT * FROM names") == [(8, "between"), (9, "nine")]
    filled.maintain()
    assert len(whole(filled)) == 1


def test_a_table_that_was_made_anew_meanwhile(filled: Database) -> None:
    catalog = filled.catalog
    text = "INSERT INTO names SELECT n, upper(name) FROM names"
    bound: Any = parse_one(text, catalog)
    filled.sql("DROP TABLE names")
    with pytest.raises(UnknownName, match="Table 'names' not found"):
        filled.run(ChangeTable(bound, text, catalog))
    filled.sql("CREATE TABLE names (n STRING, name STRING)")
    filled.insert("names", {"n": "a", "name": "b"})
    assert filled.run(ChangeTable(bound, text, catalog)) == 1
    assert rows(filled, "SELECT * FROM names") == [("a", "B"), ("a", "b")]


@pytest.mark.not_at_one_row("that nothing of it needs Spark is its subject")
def test_times_that_python_has_not(db: Database) -> None:
    """In nested columns, which are compared when a version is replaced."""
    db.sql("CREATE TABLE far (n INT, times ARRAY<TIMESTAMP>)")
    after_the_year_9999 = 253_402_300_800_000_000
    times = pa.array([[0], [after_the_year_9999], [None]], pa.list_(pa.timestamp("us", "UTC")))
    db.insert("far", pa.table({"n": pa.array([1, 2, 3], pa.int32()), "times": times}))
    query = db.register("SELECT n, times FROM far", name="of_far")
    with query.subscribe() as changes:
        db.sql("UPDATE far SET n = 4 WHERE n = 2")
        db.sql("DELETE FROM far WHERE n = 1")
        told = [changes.next(0.0), changes.next(0.0)]
    assert [
        (delta.inserted["n"].to_pylist(), delta.retracted["n"].to_pylist()) for delta in told if delta is not None
    ] == [([4], [2]), ([], [1])]
    assert db.sql("SELECT n FROM far").table["n"].to_pylist() == [4, 3]


@pytest.mark.not_at_one_row("that there is no Spark is its subject")
def test_what_only_spark_can_run_says_so(filled: Database) -> None:
    with pytest.raises(LadleError, match="needs Spark"):
        filled.sql("UPDATE names SET name = soundex(name)")
    assert filled.tables()[0].version == 1
