"""Strings beside other types: answered without Spark, with its meaning; a text that is none of the type is an error."""

from __future__ import annotations

import pytest

from ladle.engine import Database
from ladle.errors import EvaluationError, Position, TypeMismatch

TRADES = "CREATE STREAM trades (symbol STRING, price DOUBLE, size INT, at TIMESTAMP) TIMESTAMP BY at"
ROWS = [
    {"symbol": "5", "price": 5.0, "size": 5, "at": "2023-11-14 12:00:00"},
    {"symbol": " 7 ", "price": 7.5, "size": None, "at": "2023-11-14 12:00:01"},
    {"symbol": None, "price": None, "size": 9, "at": "2023-11-14 12:00:02"},
]


@pytest.fixture
def trades(db: Database) -> Database:
    db.sql(TRADES)
    db.push("trades", ROWS, wait=True)
    return db


@pytest.mark.parametrize(
    ("where", "sizes"),
    [
        ("symbol = 5", [5]),
        ("symbol > 5.5", [None]),
        ("symbol + 1 = 6", [5]),
        ("symbol IN (1, 7)", [None]),
        ("symbol BETWEEN 4 AND 6", [5]),
        ("size = '5'", [5]),
        ("size < '3000000000'", [5, 9]),
        ("price >= ' 7.5d '", [None]),
        ("at > '2023-11-14 12:00:01+00:00'", [9]),
        ("CAST(at AS DATE) = '2023-11-14T'", [5, None, 9]),
        ("coalesce(symbol, size) = 9", [9]),
        ("size = symbol", [5]),
    ],
)
def test_a_string_beside_another_type(trades: Database, where: str, sizes: list[int | None]) -> None:
    """The pipeline of this test has no Spark: an answer means that none was needed."""
    query = trades.register(f"SELECT size FROM trades WHERE {where}", name="q")
    assert [row["size"] for row in query.invoke().to_pylist()] == sizes
    assert "Spark" not in trades.explain("q").split("residual")[-1]


def test_a_text_that_is_none_harms_its_own_query_alone(trades: Database) -> None:
    trades.register("SELECT size FROM trades WHERE symbol = 5", name="casts")
    trades.register("SELECT size FROM trades WHERE size = 5", name="fine")
    assert trades.push("trades", [{**ROWS[0], "symbol": "IBM"}], wait=True) == 2
    assert len(trades.invoke("fine").table) == 2
    with pytest.raises(EvaluationError) as raised:
        trades.invoke("casts")
    assert "'IBM'" in raised.value.message
    assert "BIGINT" in raised.value.message


@pytest.mark.not_at_one_row("Spark computes a part that is written twice beforehand, whether it is looked at or not")
def test_nothing_raises_where_spark_does_not_look(trades: Database) -> None:
    """An operator whose left side is NULL does not look at the right one, also when that is written twice."""
    trades.push("trades", [{**ROWS[1], "symbol": "IBM"}], wait=True)
    text = "SELECT size = symbol AS a, size = symbol AS b, size + symbol AS c, size IN (symbol, 1) AS d FROM trades"
    last = trades.sql(f"{text} WHERE size IS NULL AND symbol = 'IBM'").to_pylist()
    assert last == [{"a": None, "b": None, "c": None, "d": None}]
    guarded = "SELECT size FROM trades WHERE symbol <> 'IBM' AND symbol = 5"
    assert [row["size"] for row in trades.sql(guarded).to_pylist()] == [5]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("SELECT size FROM trades WHERE size = 'abc'", 38),
        ("SELECT size FROM trades WHERE at = 5", 31),
        ("SELECT size FROM trades WHERE (size > 1) + 1 = 2", 32),
    ],
)
def test_what_can_never_be_is_refused_with_its_place(trades: Database, text: str, column: int) -> None:
    with pytest.raises(TypeMismatch) as refused:
        trades.register(text, name="bad")
    assert refused.value.position == Position(1, column)
    assert trades.queries() == []


def test_try_cast_gives_null(trades: Database) -> None:
    trades.push("trades", [{**ROWS[0], "symbol": "IBM"}], wait=True)
    answer = trades.sql("SELECT try_cast(symbol AS INT) AS n, try_cast(price AS TINYINT) AS p FROM trades")
    assert [(row["n"], row["p"]) for row in answer.to_pylist()] == [(5, 5), (7, 7), (None, None), (None, 5)]


def quarantined(db: Database) -> list[tuple[str, str]]:
    rows = db.sql("SELECT reason, row FROM trades.quarantine").to_pylist()
    return [(row["reason"], row["row"]) for row in rows]


def test_literals_that_do_not_fit_go_to_the_quarantine(trades: Database) -> None:
    said = trades.sql(
        "INSERT INTO trades VALUES ('IBM', 'abc', 100, TIMESTAMP '2023-11-14 12:00:03'), "
        "('KO', '69.25', 50, '2023-11-14 12:00:04'), ('GS', 1, 3000000000, DATE '2023-11-14')"
    ).message
    assert "3 rows inserted into trades, epoch 2; 2 rows of that epoch went to trades.quarantine" in (said or "")
    assert [row["symbol"] for row in trades.sql("SELECT symbol FROM trades WHERE price = 69.25").to_pylist()] == ["KO"]
    assert quarantined(trades) == [
        (
            "price: 'abc' is not a DOUBLE",
            '{"symbol": "IBM", "price": "abc", "size": 100, "at": "2023-11-14 12:00:03"}',
        ),
        (
            "size: 3000000000 is not a INT",
            '{"symbol": "GS", "price": 1, "size": 3000000000, "at": "2023-11-14"}',
        ),
    ]


def test_rows_of_a_query_that_do_not_fit_go_to_the_quarantine(trades: Database) -> None:
    trades.push("trades", [{**ROWS[0], "symbol": "IBM"}], wait=True)
    insert = "INSERT INTO trades (size, symbol, at) SELECT symbol, 'copy', at + INTERVAL 1 HOUR FROM trades"
    assert "1 row of that epoch went to trades.quarantine" in (trades.sql(insert).message or "")
    copies = trades.sql("SELECT size FROM trades WHERE symbol = 'copy' ORDER BY size").to_pylist()
    assert [row["size"] for row in copies] == [None, 5, 7]
    ((reason, row),) = quarantined(trades)
    assert reason == "size: 'IBM' is not a INT"
    assert '"size": "IBM", "symbol": "copy"' in row
    with pytest.raises(EvaluationError, match="zero"):
        trades.sql("INSERT INTO trades (size, at) SELECT 1 / (size - 5), at FROM trades WHERE size = 5")


def test_a_row_that_does_not_fit_a_table_is_an_error(db: Database) -> None:
    db.sql("CREATE TABLE names (n INT, name STRING)")
    with pytest.raises(TypeMismatch) as refused:
        db.sql("INSERT INTO names VALUES (1, 'one'), ('two', 'two')")
    assert refused.value.position is not None
    with pytest.raises(TypeMismatch, match="'two' is no INT") as refused:
        db.sql("SELECT 1 AS x; INSERT INTO names VALUES ('1', 'one'), ('two', 'two')")
    assert refused.value.position == Position(1, 56)
    db.sql("INSERT INTO names VALUES ('1', 'one')")
    assert db.sql("SELECT * FROM names").to_pylist() == [{"n": 1, "name": "one"}]
