"""Statements from text to effect, through `db.sql` and `db.execute`."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values
from tests.waiting import wait_until

from ladle.engine import Database
from ladle.errors import (
    AlreadyExists,
    InUse,
    LadleError,
    Position,
    SqlError,
    TypeMismatch,
    UnknownName,
)


def test_a_script_from_nothing_to_an_answer(db: Database) -> None:
    answers = db.execute(
        """
        CREATE STREAM trades (symbol STRING, price DOUBLE, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 7 DAYS;
        CREATE QUERY dear WITH (materialize = 'complete') AS
          SELECT symbol, price FROM trades WHERE price > 100 BEGIN NOW - INTERVAL 10 MINUTES END NOW;
        INSERT INTO trades VALUES ('IBM', 101.5, TIMESTAMP '2023-11-14 12:00:00'),
                                  ('SUN', 99.0, TIMESTAMP '2023-11-14 12:00:01');
        SELECT * FROM dear;
        SELECT symbol, count(*) AS n FROM dear GROUP BY symbol
        """
    )
    assert answers[0].message == "stream trades created"
    assert answers[1].message == "query dear stands"
    assert answers[2].message == "2 rows inserted into trades, epoch 1"
    assert answers[3].to_pylist() == [{"symbol": "IBM", "price": 101.5}]
    assert answers[4].to_pylist() == [{"symbol": "IBM", "n": 1}]
    assert answers[3].epoch == 1
    assert answers[3].now == datetime(2023, 11, 14, 12, 0, 1, tzinfo=UTC)


def test_show_and_describe(db: Database) -> None:
    assert values(db.sql("SHOW STREAMS")) == []
    assert values(db.sql("SHOW QUERIES")) == []
    db.sql("CREATE STREAM s (a INT, b ARRAY<STRING>) RETAIN INTERVAL 90 SECONDS")
    db.sql(TICKS)
    db.sql("CREATE QUERY q AS SELECT n, n + 1 AS m FROM ticks [ROWS 5]")
    shown = db.sql("SHOW STREAMS").to_pylist()
    assert [row["name"] for row in shown] == ["s", "ticks"]
    assert shown[0]["columns"] == "a INT, b ARRAY<STRING>"
    assert shown[0]["timestamp"] == "on arrival"
    assert shown[0]["retain"] == "90 seconds"
    assert shown[1] == {
        "name": "ticks",
        "columns": "n INT, at TIMESTAMP",
        "timestamp": "at",
        "retain": "forever",
        "lateness": "unbounded",
        "idle": "never",
        "rows": 0,
        "epochs": 0,
        "quarantined": 0,
    }
    (query,) = db.sql("SHOW QUERIES").to_pylist()
    assert (query["name"], query["materialize"], query["window"], query["streams"]) == ("q", "auto", "rows", "ticks")
    assert db.sql("DESCRIBE ticks").to_pylist() == [
        {"column": "n", "type": "INT", "note": ""},
        {"column": "at", "type": "TIMESTAMP", "note": "the timestamp"},
    ]
    assert db.sql("DESCRIBE s").to_pylist()[2]["column"] == "ts"
    assert db.sql("DESCRIBE s").message == "Delta table: streams/1/archive; the arrival time is its column _ts"
    described = "\nDelta table: streams/3/archive\nclock: not begun; lateness: unbounded; idle: never\n2 rows"
    assert described in repr(db.sql("DESCRIBE ticks"))
    assert db.sql("DESCRIBE q").message is None
    assert values(db.sql("DESCRIBE q"), "type") == ["INT", "INT"]
    assert values(db.sql("DESCRIBE ticks.quarantine")) == ["arrived", "source", "reason", "row"]
    with pytest.raises(UnknownName, match="q, s, ticks"):
        db.sql("DESCRIBE nothing")


def test_names_are_compared_without_case_and_keep_theirs(db: Database) -> None:
    db.sql("CREATE STREAM Trades (Symbol STRING, At TIMESTAMP) TIMESTAMP BY at")
    db.sql("INSERT INTO TRADES (SYMBOL, AT) VALUES ('a', TIMESTAMP '2023-11-14 12:00:00')")
    db.sql("CREATE QUERY Dear AS SELECT symbol FROM trades")
    assert values(db.sql("SELECT * FROM dEAR")) == ["a"]
    assert [stream.name for stream in db.streams()] == ["Trades"]
    assert db.query("DEAR").name == "Dear"
    for text in ("CREATE STREAM tRADES (a INT)", "CREATE STREAM dear (a INT)", "CREATE QUERY trades AS SELECT 1"):
        with pytest.raises(AlreadyExists, match="already"):
            db.sql(text)


def test_if_exists_and_if_not_exists(db: Database) -> None:
    db.sql("DROP STREAM IF EXISTS nothing")
    db.sql("DROP QUERY IF EXISTS nothing")
    db.sql("CREATE STREAM IF NOT EXISTS s (a INT)")
    db.sql("CREATE STREAM IF NOT EXISTS s (b STRING, c INT)")
    assert values(db.sql("DESCRIBE s"))[0] == "a"
    assert db.sql("CREATE STREAM IF NOT EXISTS s (b STRING)").message == "stream s is there already, unchanged"
    assert db.sql("DROP STREAM IF EXISTS nothing").message == "there was no stream nothing"
    assert db.sql("DROP QUERY IF EXISTS nothing").message == "there was no query nothing"
    with pytest.raises(UnknownName, match="Streams: s"):
        db.sql("DROP STREAM nothing")
    with pytest.raises(UnknownName, match="Queries: none"):
        db.sql("DROP QUERY nothing")


def test_a_query_that_is_there_is_kept_with_if_not_exists(db: Database) -> None:
    db.sql(TICKS)
    assert db.sql("CREATE QUERY IF NOT EXISTS q AS SELECT n FROM ticks").message == "query q stands"
    kept = db.sql("CREATE QUERY IF NOT EXISTS Q WITH (materialize = 'none') AS SELECT 1 AS one")
    assert kept.message == "query Q stands already, unchanged"
    assert db.query("q").sql == "SELECT n FROM ticks"
    many = {"Q": "SELECT 2 AS two", "r": "SELECT 3 AS three"}
    assert [query.sql for query in db.register_many(many, if_not_exists=True)] == ["SELECT n FROM ticks", many["r"]]
    for text in ("CREATE QUERY IF NOT EXISTS ticks AS SELECT 1", "CREATE OR REPLACE QUERY ticks AS SELECT 1"):
        with pytest.raises(AlreadyExists, match="There is a stream 'ticks' already") as caught:
            db.sql(text)
        assert caught.value.hint == "choose another name, or drop the stream first"
    with pytest.raises(AlreadyExists) as taken:
        db.sql("CREATE QUERY q AS SELECT 1")
    assert taken.value.hint == "choose another name, keep it with IF NOT EXISTS, or change it with OR REPLACE"
    with pytest.raises(LadleError, match="either kept or replaced"):
        db.register("SELECT 1", name="q", if_not_exists=True, replace=True)


def test_a_query_is_replaced_in_one_commit(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks(range(10)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 5", name="q", materialize="complete")
    db.sql("CREATE QUERY other AS SELECT n FROM ticks WHERE n < 2")
    assert values(db.invoke("q")) == [6, 7, 8, 9]
    before = db.catalog
    replaced = db.sql(
        "CREATE OR REPLACE QUERY Q WITH (materialize = 'complete') AS SELECT n, at FROM ticks WHERE n > 8"
    )
    assert replaced.message == "query Q replaced"
    assert db.catalog.seq == before.seq + 1
    assert values(db.invoke("q")) == [9]
    assert [(query.name, query.materialize) for query in db.queries()] == [("Q", "complete"), ("other", "auto")]
    # Who had pinned the catalog keeps the query that was; its block has no other's id.
    assert before.query("q") is not None
    assert set(before.queries.users) & set(db.catalog.queries.users) == set(before.queries["other"].blocks)
    assert db.sql("CREATE OR REPLACE QUERY fresh AS SELECT n FROM ticks").message == "query fresh stands"
    again = db.register("SELECT max(n) AS top FROM ticks WHERE n > 8", name="q", replace=True)
    assert values(again.invoke()) == [9]
    db.close()
    reopened = open_db()
    assert values(reopened.invoke("q")) == [9]
    assert reopened.query("q").materialize == "auto"


def test_a_replaced_query_with_the_same_block_stays_covered(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks(range(10)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 5", name="q")
    db.backfill()
    assert db.status().queries[0].coverage == 1.0
    block = db.catalog.queries["q"].blocks
    db.register("SELECT count(*) AS c FROM ticks WHERE n > 5", name="q", replace=True)
    assert db.catalog.queries["q"].blocks == block
    assert db.status().queries[0].coverage == 1.0


def test_a_query_that_others_read_is_replaced_only_by_one_of_the_same_columns(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks(range(10)), wait=True)
    db.execute(
        "CREATE QUERY base AS SELECT n FROM ticks WHERE n > 2;"
        "CREATE QUERY above WITH (materialize = 'complete') AS SELECT n FROM base WHERE n < 8;"
        "CREATE QUERY top AS SELECT max(n) AS m FROM above"
    )
    assert values(db.invoke("top")) == [7]
    for text in ("SELECT n AS other FROM ticks", "SELECT CAST(n AS BIGINT) AS n FROM ticks", "SELECT n, at FROM ticks"):
        with pytest.raises(InUse, match="others read it: above, top, and its columns must stay the same: n INT"):
            db.sql(f"CREATE OR REPLACE QUERY base AS {text}")
    seq = db.catalog.seq
    db.sql("CREATE OR REPLACE QUERY base AS SELECT n - 1 AS n FROM ticks WHERE n > 3")
    assert db.catalog.seq == seq + 1
    # Those that read it, and those that read these, read the new one, and are what they were.
    assert values(db.invoke("above")) == [3, 4, 5, 6, 7]
    assert values(db.invoke("top")) == [7]
    assert [(query.name, query.materialize) for query in db.queries()] == [
        ("base", "auto"),
        ("above", "complete"),
        ("top", "auto"),
    ]
    with pytest.raises(InUse, match="top"):
        db.sql("DROP QUERY above")


@pytest.mark.parametrize("text", ["SELECT n FROM base", "SELECT n FROM above"])
def test_a_query_can_not_come_to_read_itself(db: Database, text: str) -> None:
    db.sql(TICKS)
    db.execute("CREATE QUERY base AS SELECT n FROM ticks; CREATE QUERY above AS SELECT n FROM base")
    with pytest.raises(InUse, match="Query 'base' can't read itself"):
        db.sql(f"CREATE OR REPLACE QUERY base AS {text}")
    assert db.query("base").sql == "SELECT n FROM ticks"


def test_a_stream_that_queries_stand_on_is_dropped_only_with_them(db: Database) -> None:
    db.sql(TICKS)
    db.execute(
        "CREATE QUERY q1 AS SELECT n FROM ticks WHERE n > 1; CREATE QUERY q2 AS SELECT n FROM q1;"
        "CREATE QUERY bad AS SELECT reason FROM ticks.quarantine"
    )
    with pytest.raises(InUse, match="bad, q1, q2"):
        db.sql("DROP STREAM ticks")
    with pytest.raises(InUse, match="q2"):
        db.sql("DROP QUERY q1")
    assert len(db.queries()) == 3
    db.sql("DROP QUERY q1 CASCADE")
    assert [query.name for query in db.queries()] == ["bad"]
    db.sql("DROP STREAM ticks CASCADE")
    assert db.queries() == []
    assert db.streams() == []
    with pytest.raises(UnknownName, match="There are none yet"):
        db.sql("SELECT * FROM ticks")


def test_a_new_stream_of_an_old_name_is_another(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks([1, 2]), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 0", name="q", materialize="complete")
    assert values(db.invoke("q")) == [1, 2]
    db.sql("DROP STREAM ticks CASCADE")
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n > 0", name="q", materialize="complete")
    assert values(db.invoke("q")) == []
    db.push("ticks", ticks([3]), wait=True)
    db.maintain()
    assert values(db.invoke("q")) == [3]
    assert values(db.sql("SELECT n FROM ticks")) == [3]


@pytest.mark.parametrize("name", ["at", "end", "order", "begin", "select", "group", "rows", "now", "from", "window"])
def test_reserved_words_are_names(db: Database, name: str) -> None:
    db.sql(f"CREATE STREAM `{name}` (`{name}` INT, `when` TIMESTAMP) TIMESTAMP BY `when`")
    db.sql(f"INSERT INTO `{name}` VALUES (7, TIMESTAMP '2023-11-14 12:00:00')")
    db.sql(f"CREATE QUERY q AS SELECT `{name}` FROM `{name}` [RANGE 1 HOUR] WHERE `{name}` > 1")
    assert db.sql(f"SELECT `{name}` FROM `{name}` WHERE `{name}` = 7").to_pylist() == [{name: 7}]
    assert values(db.invoke("q")) == [7]
    db.sql(f"DROP STREAM `{name}` CASCADE")


def test_plain_reserved_words_need_no_quotes(db: Database) -> None:
    db.sql("CREATE STREAM orders (order INT, end STRING, at TIMESTAMP) TIMESTAMP BY at")
    db.sql("INSERT INTO orders VALUES (1, 'x', TIMESTAMP '2023-11-14 12:00:00')")
    answer = db.sql("SELECT order, end, at FROM orders WHERE order = 1 ORDER BY at BEGIN NOW - INTERVAL 1 DAY END NOW")
    assert answer.to_pylist() == [{"order": 1, "end": "x", "at": at(0)}]


@pytest.mark.parametrize("name", ["a.b", "trades.quarantine", "a b", "", "../up", "a/b"])
def test_names_that_would_mean_something_else_are_refused(db: Database, name: str) -> None:
    with pytest.raises(LadleError):
        db.sql(f"CREATE STREAM `{name}` (a INT)")
    with pytest.raises(LadleError):
        db.register("SELECT 1", name=name)
    assert db.streams() == []


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("SELECT nothing FROM ticks", 1, 8),
        ("SELECT n\nFROM ticks\nWHERE\n  nothing > 1", 4, 3),
        ("CREATE QUERY q AS SELECT n FROM\n nowhere", 2, 2),
        ("SELECT n FROM ticks WHERE (n > 1", 1, 33),
        ("SELECT 1;\n  SELECT nothing FROM ticks", 2, 10),
        ("SELECT 1; SELECT n FROM nowhere", 1, 25),
    ],
)
def test_errors_say_where(db: Database, text: str, line: int, column: int) -> None:
    db.sql(TICKS)
    with pytest.raises(LadleError) as raised:
        db.execute(text)
    assert raised.value.position is not None
    assert raised.value.position.line == line
    assert abs(raised.value.position.column - column) <= 1, raised.value
    assert f"line {line}, column" in str(raised.value)


def test_a_script_ends_at_the_first_error_and_keeps_what_was_done(db: Database) -> None:
    with pytest.raises(SqlError) as raised:
        db.execute("CREATE STREAM a (x INT);\n\nCREATE STREAM b (x);\nCREATE STREAM c (x INT)")
    assert raised.value.position is not None
    assert raised.value.position.line == 3
    assert [stream.name for stream in db.streams()] == ["a"]
    with pytest.raises(SqlError, match="found 2"):
        db.sql("SHOW STREAMS; SHOW STREAMS")
    with pytest.raises(SqlError, match="found 0"):
        db.sql("  -- nothing\n")


def test_unknown_names_list_the_known_and_guess(db: Database) -> None:
    db.sql(TICKS)
    with pytest.raises(UnknownName, match="ticks") as raised:
        db.sql("SELECT n FROM tick")
    assert raised.value.hint is not None
    assert "ticks" in raised.value.hint
    with pytest.raises(UnknownName, match=r"Columns: at, n|Columns: n, at"):
        db.sql("SELECT m FROM ticks")
    with pytest.raises(UnknownName, match="Streams: ticks"):
        db.push("tick", [{"n": 1}])
    with pytest.raises(UnknownName):
        db.query("nothing")
    with pytest.raises(UnknownName):
        db.explain("SELECT n FROM nowhere")


def test_types_that_no_stream_may_have(db: Database) -> None:
    for type_ in ("INTERVAL", "VARIANT", "VOID", "DECIMAL(39,2)", "ARRAY<INTERVAL>"):
        with pytest.raises(LadleError):
            db.sql(f"CREATE STREAM s (a {type_})")
    with pytest.raises(TypeMismatch, match="twice"):
        db.sql("CREATE STREAM s (a INT, A STRING)")
    with pytest.raises(TypeMismatch, match="TIMESTAMP BY"):
        db.sql("CREATE STREAM s (a INT) TIMESTAMP BY a")
    with pytest.raises(UnknownName, match="Columns: a"):
        db.sql("CREATE STREAM s (a INT) TIMESTAMP BY b")
    assert db.streams() == []


EVERYTHING: dict[str, tuple[str, Any]] = {
    "flag": ("BOOLEAN", True),
    "tiny": ("TINYINT", -128),
    "small": ("SMALLINT", 32767),
    "whole": ("INT", -(1 << 31)),
    "big": ("BIGINT", (1 << 63) - 1),
    "single": ("FLOAT", 0.5),
    "dbl": ("DOUBLE", -1e300),
    "price": ("DECIMAL(38,10)", Decimal("1234567890123456789012345678.0123456789")),
    "word": ("STRING", "grüße \N{PILE OF POO}"),
    "bytes": ("BINARY", b"\x00\xff"),
    "day": ("DATE", date(1969, 12, 31)),
    "moment": ("TIMESTAMP", datetime(1950, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
    "wall": ("TIMESTAMP_NTZ", datetime(2050, 1, 2, 3, 4, 5, 678901)),
    "list": ("ARRAY<INT>", [1, None, 3]),
    "nest": ("ARRAY<ARRAY<STRING>>", [["a"], [], None]),
    "thing": ("STRUCT<x: INT, y: STRUCT<z: DECIMAL(5,2)>>", {"x": 1, "y": {"z": Decimal("1.25")}}),
    "dict": ("MAP<STRING, ARRAY<DOUBLE>>", [("k", [1.5]), ("l", None)]),
}


def test_every_type_is_carried_and_projected(open_db: Open) -> None:
    db = open_db(compact_files_min=2, grace_seconds=0.0)
    columns = ", ".join(f"`{name}` {type_}" for name, (type_, _) in EVERYTHING.items())
    db.sql(f"CREATE STREAM s ({columns}, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT * FROM s", name="all", materialize="complete")
    db.register("SELECT list, thing, dict FROM s WHERE whole < 0", name="nested")
    full = {name: value for name, (_, value) in EVERYTHING.items()}
    empty = dict.fromkeys(EVERYTHING)
    db.push("s", [{**full, "at": at(1)}, {**empty, "at": at(2)}], wait=True)
    db.push("s", [{**full, "at": at(3)}], wait=True)
    expected = [{**full, "at": at(1)}, {**empty, "at": at(2)}, {**full, "at": at(3)}]
    for _ in range(2):
        assert db.invoke("all").to_pylist() == expected
        assert db.sql("SELECT * FROM s").to_pylist() == expected
        assert db.invoke("nested").to_pylist() == [{name: full[name] for name in ("list", "thing", "dict")}] * 2
        assert db.sql("SELECT word AS w FROM s WHERE price IS NULL").to_pylist() == [{"w": None}]
        db.maintain()
    assert len(db.catalog.streams["s"].files) == 1
    db.close()
    assert open_db().invoke("all").to_pylist() == expected


def test_a_column_more(open_db: Open) -> None:
    db = open_db(compact_files_min=2, grace_seconds=0.0)
    db.sql(TICKS)
    before = db.register("SELECT * FROM ticks", name="before", materialize="complete")
    db.push("ticks", ticks([1]), wait=True)
    assert before.invoke().columns == ["n", "at"]
    db.sql("ALTER STREAM ticks ADD COLUMN word STRING")
    db.sql("ALTER STREAM ticks ADD COLUMN things ARRAY<INT>")
    db.push("ticks", [{"n": 2, "at": at(2), "word": "two", "things": [2]}], wait=True)
    expected = [
        {"n": 1, "at": at(1), "word": None, "things": None},
        {"n": 2, "at": at(2), "word": "two", "things": [2]},
    ]
    for _ in range(2):
        assert db.sql("SELECT * FROM ticks").to_pylist() == expected
        assert values(db.sql("SELECT n FROM ticks WHERE word IS NULL")) == [1]
        assert before.invoke().to_pylist() == [{k: row[k] for k in ("n", "at")} for row in expected]
        db.maintain()
    assert len(db.catalog.streams["ticks"].files) == 1
    with pytest.raises(TypeMismatch, match="twice"):
        db.sql("ALTER STREAM ticks ADD COLUMN WORD INT")
    with pytest.raises(UnknownName):
        db.sql("ALTER STREAM nothing ADD COLUMN a INT")


def test_a_push_that_waits_while_a_column_is_added(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_db()
    db.sql(TICKS)
    with monkeypatch.context() as patch:
        patch.setattr("ladle.ingest.epochs.Ingest.drain_later", lambda *_: None)
        db.push("ticks", ticks([1]))
    db.sql("ALTER STREAM ticks ADD COLUMN word STRING")
    assert db.status().streams[0].pending == 1
    db.push("ticks", [{"n": 2, "at": at(2), "word": "x"}], wait=True)
    assert values(db.sql("SELECT word FROM ticks")) == [None, "x"]
    wait_until(lambda: db.status().streams[0].pending == 0, "a push is left")


def test_retention_can_be_changed(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks([0, 100, 200]), wait=True)
    assert db.sql("ALTER STREAM ticks SET RETAIN INTERVAL 100 SECONDS").message == (
        "stream ticks is retained for 100 seconds"
    )
    assert values(db.sql("SELECT n FROM ticks")) == [200]
    db.sql("ALTER STREAM ticks SET RETAIN FOREVER")
    assert values(db.sql("SELECT n FROM ticks")) == [0, 100, 200]


def test_insert(db: Database) -> None:
    db.sql(TICKS)
    db.sql("INSERT INTO ticks (at, n) VALUES (TIMESTAMP '2023-11-14 12:00:01', 1)")
    db.sql("INSERT INTO ticks SELECT n + 10, at FROM ticks")
    assert values(db.sql("SELECT n FROM ticks")) == [1, 11]
    with pytest.raises(LadleError):
        db.sql("INSERT INTO ticks VALUES (1)")
    with pytest.raises(UnknownName):
        db.sql("INSERT INTO ticks (n, nothing) VALUES (1, 2)")
    with pytest.raises(LadleError):
        db.sql("INSERT INTO ticks.quarantine (reason) VALUES ('x')")
    with pytest.raises(LadleError):
        db.sql("INSERT INTO ticks VALUES (1, ARRAY(1))")
    assert len(db.sql("SELECT n FROM ticks")) == 2


def test_explain_says_what_there_is_to_know(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks(range(5)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 2 BEGIN NOW - INTERVAL 1 HOUR END NOW", name="q", materialize="complete")
    db.register("SELECT max(n) FROM ticks [ROWS 3] WHERE n > 2", name="r")
    db.backfill()
    text = "\n".join(values(db.sql("EXPLAIN QUERY q")))
    for part in ("complete", "sliding", "n", "coverage  1 of 1 segments (5 tuples)", "engine"):
        assert part in text
    assert "BEGIN NOW - INTERVAL 1 HOUR END NOW" in text
    assert "shared    with 1 other standing query\n" in text
    assert "[ROWS 3]" in db.query("r").explain()
    once = "\n".join(values(db.sql("EXPLAIN SELECT count(*) FROM ticks WHERE n > 3")))
    assert "one-off" in once
    assert "coverage  0 of 1" in once
    assert "DuckDB" in once
    assert "shared" not in once
    shared = db.explain("SELECT n FROM ticks WHERE n > 2")
    assert "coverage  1 of 1" in shared
    assert "shared    with 2 standing queries\n" in shared
    with pytest.raises(UnknownName):
        db.sql("EXPLAIN QUERY nothing")


def test_a_select_without_a_stream(db: Database) -> None:
    assert db.sql("SELECT 1 AS one, 'x' AS x").to_pylist() == [{"one": 1, "x": "x"}]


def test_all_or_nothing_registration(db: Database) -> None:
    db.sql(TICKS)
    seq = db.catalog.seq
    with pytest.raises(UnknownName):
        db.register_many({"a": "SELECT n FROM ticks", "b": "SELECT x FROM ticks"})
    with pytest.raises(AlreadyExists, match="twice"):
        db.register_many({"a": "SELECT n FROM ticks", "A": "SELECT n FROM ticks"})
    with pytest.raises(LadleError, match="none, partial, complete"):
        db.register("SELECT n FROM ticks", name="a", materialize="full")
    assert db.catalog.seq == seq
    assert db.register_many({}) == []
    names = [q.name for q in db.register_many({"a": "SELECT n FROM ticks", "b": "SELECT n + 1 FROM ticks"})]
    assert names == ["a", "b"]
    assert db.catalog.seq == seq + 1
    with pytest.raises(AlreadyExists):
        db.register_many({"c": "SELECT n FROM ticks", "b": "SELECT n FROM ticks"})
    assert [q.name for q in db.queries()] == ["a", "b"]


def test_positions_of_errors_survive_as_data(db: Database) -> None:
    db.sql(TICKS)
    with pytest.raises(UnknownName) as raised:
        db.register("SELECT n\n  , m FROM ticks", name="q")
    assert raised.value.position == Position(2, 5)
    assert raised.value.code == "unknown_name"


def test_answers_are_presentable(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks([1, 2]), wait=True)
    answer = db.sql("SELECT n FROM ticks BEGIN NOW - INTERVAL 1 MINUTE END NOW")
    assert len(answer) == 2
    assert "2 rows, epoch 1" in repr(answer)
    assert answer.window is not None
    assert (answer.window.begin, answer.window.end) == (at(-58), at(2))
    assert list(answer.to_pandas()["n"]) == [1, 2]
    assert isinstance(answer.table, pa.Table)
    assert repr(db.sql("DROP STREAM ticks")) == "stream ticks dropped"


def test_insert_says_what_went_to_the_quarantine(db: Database) -> None:
    db.sql("CREATE STREAM timed (n INT, at TIMESTAMP) TIMESTAMP BY at")
    said = db.sql("INSERT INTO timed VALUES (1, TIMESTAMP '2020-01-01 00:00:00'), (2, NULL)").message
    assert said is not None
    assert said.startswith("2 rows inserted into timed, epoch ")
    assert said.endswith("; 1 row of that epoch went to timed.quarantine, with the reason")


def test_derived_state_is_shown(open_db: Open) -> None:
    db = open_db()
    db.sql("CREATE STREAM s (n INT)")
    db.register("SELECT n FROM s WHERE n > 1", name="q", materialize="complete")
    db.register("SELECT count(*) FROM s WHERE n > 2", name="c", materialize="partial")
    db.push("s", [{"n": n} for n in range(10)], wait=True)
    db.invoke("q")
    db.invoke("c")
    db.maintain()
    shown = {row["kind"]: row for row in db.sql("SHOW DERIVED").to_pylist()}
    assert list(shown) == ["cache", "aggregates", "recent", "answers", "results", "masks", "pairs", "query sets"]
    for kind in ("cache", "aggregates", "answers"):
        assert shown[kind]["place"] == "memory"
        assert shown[kind]["disk_bytes"] == 0
    for kind in ("cache", "answers", "results", "query sets"):
        assert shown[kind]["things"] > 0
        assert shown[kind]["memory_bytes"] + shown[kind]["disk_bytes"] > 0
        assert shown[kind]["rebuild_seconds"] > 0
        assert shown[kind]["last_used"] is not None
    assert shown["answers"]["coverage"] == 1.0
    assert {row["evictions"] for row in shown.values()} == {0}
    listed = db.derived()
    assert [each.kind for each in listed] == list(shown)
    assert [each.things for each in listed] == [row["things"] for row in shown.values()]
