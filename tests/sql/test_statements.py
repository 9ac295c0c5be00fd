"""Every statement of the grammar as data, scripts, and what the shell asks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.sql.names import RESERVED, Catalog

from ladle.delta import ChangeOptions
from ladle.errors import SqlError
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, StreamSchema, TableSchema
from ladle.sql import bind, is_unfinished, parse, parse_one, split_script
from ladle.sql.statement_types import (
    AddColumn,
    Advance,
    CreateQuery,
    CreateStream,
    CreateTable,
    DeleteRows,
    Describe,
    DropQuery,
    DropStream,
    DropTable,
    ExplainQuery,
    ExplainSelect,
    Insert,
    InsertRows,
    Materialize,
    Select,
    SetIdleAfter,
    SetLateness,
    SetRetain,
    ShowQueries,
    ShowStreams,
    ShowTables,
    Statement,
    Subscribe,
    Subscribing,
    UpdateRows,
)

DAY_US = 86_400_000_000


def one(text: str) -> Statement:
    return parse_one(text, Catalog())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SHOW STREAMS", ShowStreams()),
        ("show queries;", ShowQueries()),
        ("show tables", ShowTables()),
        ("DESCRIBE trades", Describe("trades")),
        ("DESCRIBE TABLE companies", Describe("companies")),
        (
            "CREATE TABLE t (a INT, `b c` STRING)",
            CreateTable("t", TableSchema((Column("a", pa.int32()), Column("b c", pa.string())))),
        ),
        (
            "CREATE TABLE IF NOT EXISTS table (a DATE)",
            CreateTable("table", TableSchema((Column("a", pa.date32()),)), True),
        ),
        ("DROP TABLE t", DropTable("t")),
        ("DROP TABLE IF EXISTS t CASCADE", DropTable("t", cascade=True, if_exists=True)),
        ("DELETE FROM companies", DeleteRows("Companies", None)),
        ("DESC trades.quarantine", Describe("trades.quarantine")),
        ("DESCRIBE STREAM trades", Describe("trades")),
        ("DESCRIBE query", Describe("query")),
        ("DESCRIBE stream.quarantine", Describe("stream.quarantine")),
        ("EXPLAIN QUERY q", ExplainQuery("q")),
        ("DROP STREAM s", DropStream("s")),
        ("DROP STREAM IF EXISTS `a b` CASCADE", DropStream("a b", cascade=True, if_exists=True)),
        ("DROP QUERY q", DropQuery("q")),
        ("DROP QUERY IF EXISTS q CASCADE", DropQuery("q", cascade=True, if_exists=True)),
        ("ALTER STREAM s ADD COLUMN order DOUBLE", AddColumn("s", Column("order", pa.float64()))),
        ("ALTER STREAM s SET RETAIN INTERVAL 7 DAYS", SetRetain("s", 7 * DAY_US)),
        ("ALTER STREAM s SET RETAIN FOREVER", SetRetain("s", None)),
        ("ALTER STREAM s SET LATENESS INTERVAL 7 DAYS", SetLateness("s", 7 * DAY_US)),
        ("ALTER STREAM s SET LATENESS UNBOUNDED", SetLateness("s", None)),
        ("ALTER STREAM s SET IDLE AFTER 1 DAY", SetIdleAfter("s", DAY_US)),
        ("ALTER STREAM s SET IDLE NEVER", SetIdleAfter("s", None)),
        ("SUBSCRIBE q", Subscribe("q", Subscribing(None, ChangeOptions(), False, False))),
        ("SUBSCRIBE since SINCE 17", Subscribe("since", Subscribing(17, ChangeOptions(), False, False))),
        ("SUBSCRIBE q SINCE '17'", Subscribe("q", Subscribing(17, ChangeOptions(), False, False))),
        ("SUBSCRIBE q SINCE 'e5n-7'", Subscribe("q", Subscribing("e5n-7", ChangeOptions(), False, False))),
        ("SUBSCRIBE q SINCE 'e5n-7q3'", Subscribe("q", Subscribing("e5n-7q3", ChangeOptions(), False, False))),
        ("SUBSCRIBE istream", Subscribe("istream", Subscribing(None, ChangeOptions(), False, False))),
        (
            "SUBSCRIBE `istream` WITH (Snapshot = true, progress FALSE)",
            Subscribe("istream", Subscribing(None, ChangeOptions(), True, False)),
        ),
        (
            "subscribe rstream(q) since 'e5' with (expirations = 'out', progress = true)",
            Subscribe("q", Subscribing("e5", ChangeOptions.of("out", "rstream"), False, True)),
        ),
        ("SUBSCRIBE ISTREAM(q)", Subscribe("q", Subscribing(None, ChangeOptions.of(relation="istream"), False, False))),
        ("SUBSCRIBE DSTREAM(q)", Subscribe("q", Subscribing(None, ChangeOptions.of(relation="dstream"), False, False))),
        ("ALTER STREAM s ADVANCE TO TIMESTAMP '1970-01-02 00:00:00'", Advance("s", DAY_US)),
        ("ALTER STREAM s ADVANCE TO '1970-01-02T01:00:00+01:00'", Advance("s", DAY_US)),
    ],
)
def test_statement(text: str, expected: Statement) -> None:
    assert one(text) == expected


def test_create_query_keeps_or_replaces_when_told() -> None:
    query = CreateQuery("q", bind("SELECT 1", Catalog()))
    assert one("CREATE QUERY q AS SELECT 1") == query
    assert one("CREATE QUERY IF NOT EXISTS q AS SELECT 1") == replace(query, if_not_exists=True)
    assert one("create or replace query q AS SELECT 1") == replace(query, replace=True)
    assert one("CREATE QUERY if AS SELECT 1") == replace(query, name="if")
    for text, message in (
        ("CREATE OR REPLACE QUERY IF NOT EXISTS q AS SELECT 1", "not both, found 'IF'"),
        ("CREATE OR REPLACE STREAM s (a INT)", "Expected CREATE OR REPLACE QUERY"),
    ):
        with pytest.raises(SqlError, match=message):
            one(text)


def test_create_stream() -> None:
    statement = one(
        """CREATE STREAM IF NOT EXISTS Trades (
             symbol STRING, price DECIMAL(10, 2), `end` ARRAY<INT>, order STRUCT<a: INT, b: MAP<STRING, DATE>>,
             at TIMESTAMP, timestamp TIMESTAMP_NTZ, flag BOOLEAN, tiny TINYINT, blob BINARY
           ) TIMESTAMP BY AT RETAIN INTERVAL '1 day 12 hours' MAX AHEAD 10 MINUTES
           LATENESS INTERVAL 5 SECONDS IDLE AFTER 2 MINUTES"""
    )
    columns = (
        Column("symbol", pa.string()),
        Column("price", pa.decimal128(10, 2)),
        Column("end", pa.list_(pa.int32())),
        Column("order", pa.struct([("a", pa.int32()), ("b", pa.map_(pa.string(), pa.date32()))])),
        Column("at", TIMESTAMP),
        Column("timestamp", TIMESTAMP_NTZ),
        Column("flag", pa.bool_()),
        Column("tiny", pa.int8()),
        Column("blob", pa.binary()),
    )
    assert isinstance(statement, CreateStream)
    assert statement.schema.columns == columns
    assert statement.schema.timestamp_column == "at"
    assert statement == CreateStream(
        "Trades",
        StreamSchema(columns, "AT"),
        retain_us=DAY_US * 3 // 2,
        max_ahead_us=600_000_000,
        lateness_us=5_000_000,
        idle_after_us=120_000_000,
        if_not_exists=True,
    )


def test_create_stream_defaults() -> None:
    statement = one("CREATE STREAM s (a INT)")
    assert statement == CreateStream("s", StreamSchema((Column("a", pa.int32()),)))
    assert one("CREATE STREAM s (a INT) RETAIN FOREVER LATENESS UNBOUNDED IDLE NEVER") == statement


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_words_are_names(name: str) -> None:
    created = one(f"CREATE STREAM {name} ({name} TIMESTAMP) TIMESTAMP BY {name}")
    assert isinstance(created, CreateStream)
    assert created.schema.timestamp_column == name
    plain = bind(
        f"SELECT {name}, max({name}) FROM odd WHERE {name} > 1 AND odd.{name} < 5 GROUP BY {name} "
        f"HAVING {name} > 0 ORDER BY {name} BEGIN NOW - INTERVAL 1 DAY END NOW",
        Catalog(),
    )
    quoted = bind(
        f"SELECT `{name}`, max(`{name}`) FROM odd WHERE `{name}` > 1 AND odd.`{name}` < 5 GROUP BY `{name}` "
        f"HAVING `{name}` > 0 ORDER BY `{name}` BEGIN NOW - INTERVAL 1 DAY END NOW",
        Catalog(),
    )
    assert (plain.scans, plain.residual) == (quoted.scans, quoted.residual)
    assert not plain.residual.uses_now


@pytest.mark.parametrize(
    ("clause", "mode"),
    [
        ("", None),
        ("WITH (materialize = 'none') ", Materialize.NONE),
        ("WITH (MATERIALIZE = 'Partial') ", Materialize.PARTIAL),
        ("WITH (materialize = 'complete') ", Materialize.COMPLETE),
    ],
)
def test_create_query(clause: str, mode: Materialize | None) -> None:
    text = "SELECT * FROM trades  BEGIN NOW - INTERVAL 1 DAY END NOW"
    statement = one(f"CREATE QUERY Recent {clause}AS {text};")
    assert statement == CreateQuery("Recent", bind(text, Catalog()), mode)
    assert isinstance(statement, CreateQuery)
    assert statement.plan.sql == text


def test_select_and_explain_carry_the_plan() -> None:
    text = "SELECT symbol FROM trades"
    assert one(text) == Select(bind(text, Catalog()))
    assert one(f"EXPLAIN {text}") == ExplainSelect(bind(text, Catalog()))


def test_insert_casts_to_the_types_of_the_stream() -> None:
    statement = one("INSERT INTO TRADES (size, symbol) VALUES (1, upper('a')), (2, NULL)")
    assert isinstance(statement, Insert)
    assert (statement.stream, statement.columns) == ("trades", ("size", "symbol"))
    schema = pa.schema([pa.field("size", pa.int32()), pa.field("symbol", pa.string())])
    assert statement.plan.schema in (None, schema)
    assert "CAST(`_i`.`col1` AS INT) AS `size`" in statement.plan.residual.spark_sql
    assert statement.plan.scans == ()


def test_insert_without_columns_means_all_of_them() -> None:
    statement = one("INSERT INTO trades SELECT * FROM trades WHERE price > 1")
    assert isinstance(statement, Insert)
    assert statement.columns == ("symbol", "Price", "size", "at")
    assert [factor.sql for factor in statement.plan.scans[0].block.factors] == ["`Price` > 1"]


def test_what_changes_a_table_is_a_select_over_it() -> None:
    inserted = one("INSERT INTO companies (listed, symbol) VALUES ('2024-01-31', upper('IBM'))")
    assert isinstance(inserted, InsertRows)
    assert inserted.table == "Companies"
    assert inserted.plan.tables == ()
    assert "CAST(NULL AS STRING) AS `name`" in inserted.plan.residual.spark_sql
    updated = one("UPDATE companies SET name = upper(companies.symbol) WHERE listed IS NULL")
    assert isinstance(updated, UpdateRows)
    assert [table.table for table in updated.plan.tables] == ["Companies"]
    assert updated.plan.schema is not None
    assert updated.plan.schema.names == ["Symbol", "name", "listed", "_changed"]
    assert updated.plan.residual.duckdb_sql is not None
    deleted = one("DELETE FROM companies WHERE symbol = 'IBM'")
    assert isinstance(deleted, DeleteRows)
    assert deleted.plan is not None
    assert "NOT" in deleted.plan.residual.spark_sql
    assert deleted.plan.residual.duckdb_sql is not None


def test_a_script_is_split_by_its_tokens() -> None:
    script = "SELECT ';' ; -- no; statement\nCREATE STREAM a (b INT);;\n/* ; */ SELECT `x;y` FROM a"
    assert split_script(script) == ["SELECT ';'", "CREATE STREAM a (b INT)", "SELECT `x;y` FROM a"]
    assert split_script(" -- nothing\n;") == []


def test_positions_count_from_the_start_of_the_script() -> None:
    with pytest.raises(SqlError) as caught:
        parse("SHOW STREAMS;\nSELECT 1 +;", Catalog())
    assert caught.value.position is not None
    assert caught.value.position.line == 2


def test_parse_gives_every_statement() -> None:
    assert parse("SHOW STREAMS; SHOW QUERIES", Catalog()) == [ShowStreams(), ShowQueries()]


@pytest.mark.parametrize("text", ["SELECT 1;", "SELECT ';';", "SELECT 1; -- done", ";", "SELECT\n1\n;\n"])
def test_complete(text: str) -> None:
    assert not is_unfinished(text)


@pytest.mark.parametrize(
    "text", ["SELECT 1", "SELECT ';", "SELECT 1 /* ;", "SELECT `a;", "SELECT 1; SELECT", "SELECT 1 --;", "(VALUES (1)"]
)
def test_incomplete(text: str) -> None:
    assert is_unfinished(text)


@pytest.mark.parametrize("text", ["", "--;", "selekt 1", "SELECT 1; nonsense"])
def test_what_is_no_statement_is_not_waited_for(text: str) -> None:
    assert not is_unfinished(text)


def test_importing_the_package_loads_no_parser() -> None:
    script = "import sys, ladle.sql; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
