"""WITH RECURSIVE over streams, tables and queries: asked, standing, followed, and after a restart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks

from ladle.engine import Database
from ladle.errors import EvaluationError, LadleError
from ladle.testing.one_row import at_one_row

PARTS = """
WITH RECURSIVE needed(part, amount, depth) AS (
  SELECT part, amount, 1 FROM orders
  UNION ALL
  SELECT p.piece, n.amount * p.pieces, depth + 1 FROM needed n JOIN parts p ON p.part = n.part WHERE depth < 9
) SELECT part, sum(amount) AS amount FROM needed GROUP BY part"""


@pytest.fixture
def filled(db: Database) -> Database:
    fill(db)
    return db


def fill(db: Database) -> None:
    db.sql("CREATE STREAM orders (part STRING, amount INT, at TIMESTAMP) TIMESTAMP BY at")
    db.sql("CREATE TABLE parts (part STRING, piece STRING, pieces INT)")
    db.sql("INSERT INTO parts VALUES ('bike', 'wheel', 2), ('wheel', 'spoke', 20), ('bike', 'bell', 1)")
    order(db, "bike", 1, 0)
    order(db, "wheel", 3, 10)


def order(db: Database, part: str, amount: int, second: int) -> None:
    db.push("orders", [{"part": part, "amount": amount, "at": at(second)}], wait=True)


def counted(table: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def amounts(db: Database, text: str) -> dict[str, int]:
    return {row["part"]: row["amount"] for row in db.sql(text).table.to_pylist()}


ALL = {"bike": 1, "wheel": 5, "spoke": 100, "bell": 1}


def test_a_bill_of_materials_over_a_stream_and_a_table(filled: Database) -> None:
    assert amounts(filled, PARTS) == ALL
    window = PARTS.replace("FROM orders", "FROM orders [RANGE 5 SECONDS]")
    assert amounts(filled, window) == {"wheel": 3, "spoke": 60}
    bounds = PARTS.replace("depth < 9\n", "depth < 9 BEGIN NOW - INTERVAL 5 SECONDS END NOW\n")
    assert amounts(filled, bounds) == {"wheel": 3, "spoke": 60}


@pytest.mark.parametrize("mode", at_one_row(["partial"], ["none", "partial", "complete"]))
def test_it_stands_is_followed_and_survives_a_restart(open_db: Open, mode: str) -> None:
    db = open_db()
    fill(db)
    db.sql(f"CREATE QUERY needed WITH (materialize = '{mode}') AS {PARTS}")
    kept = counted(db.invoke("needed").table)
    changes = db.query("needed").subscribe()
    order(db, "bell", 4, 20)
    db.sql("INSERT INTO parts VALUES ('bell', 'spring', 3)")
    db.sql("DELETE FROM parts WHERE piece = 'wheel'")
    for delta in iter(lambda: changes.next(0.0), None):
        kept = kept - counted(delta.retracted) + counted(delta.inserted)
    expected = {"bike": 1, "wheel": 3, "spoke": 60, "bell": 5, "spring": 15}
    assert kept == counted(db.invoke("needed").table) == Counter(expected.items())
    db.close()
    db = open_db()
    assert amounts(db, "SELECT * FROM needed") == expected
    order(db, "bell", 1, 30)
    assert amounts(db, "SELECT part, amount FROM needed WHERE part = 'spring'") == {"spring": 18}


def test_a_view_of_it_is_read_by_others_and_shown(open_db: Open) -> None:
    db = open_db()
    fill(db)
    db.sql(f"CREATE VIEW needed AS {PARTS}")
    assert amounts(db, "SELECT n.part, n.amount FROM needed n LEFT ANTI JOIN parts p ON p.part = n.part") == {
        "spoke": 100,
        "bell": 1,
    }
    twice = "SELECT a.part, a.amount + b.amount AS amount FROM needed a JOIN needed b ON a.part = b.part"
    assert amounts(db, twice) == {part: 2 * amount for part, amount in ALL.items()}
    many = " UNION ALL ".join(["SELECT part, amount FROM needed"] * 6)
    assert amounts(db, f"SELECT part, sum(amount) AS amount FROM ({many}) GROUP BY part")["spoke"] == 600
    deeper = "WITH RECURSIVE d(part, amount) AS (SELECT part, amount FROM needed WHERE amount < 2 UNION ALL {})"
    step = "SELECT n.part, d.amount * 10 FROM d JOIN needed n ON n.amount = d.amount * 5"
    assert amounts(db, f"{deeper.format(step)} SELECT part, amount FROM d WHERE amount > 5") == {"wheel": 10}
    shown = db.sql("SHOW CREATE VIEW needed").table.to_pylist()[0]
    text = next(value for value in shown.values() if "RECURSIVE" in str(value))
    db.sql("DROP VIEW needed")
    db.sql(text)
    assert amounts(db, "SELECT * FROM needed") == ALL
    db.close()
    assert amounts(open_db(), "SELECT * FROM needed") == ALL


def test_the_past_is_read_too(filled: Database) -> None:
    entry = filled.sql(PARTS).entry
    filled.sql(f"CREATE VIEW needed AS {PARTS}")
    filled.sql("DELETE FROM parts")
    order(filled, "bell", 4, 20)
    assert amounts(filled, f"SELECT * FROM needed VERSION AS OF {entry}") == ALL
    assert amounts(filled, "SELECT * FROM needed") == {"bike": 1, "wheel": 3, "bell": 4}


def test_a_name_hides_a_stream_and_ends_with_its_query(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks([50]), wait=True)
    text = "WITH RECURSIVE ticks(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM Ticks WHERE n < 3) SELECT n FROM ticks"
    assert counted(db.sql(text).table) == Counter([(1,), (2,), (3,)])
    both = f"SELECT a.n FROM ({text}) a UNION ALL SELECT n FROM ticks"
    assert counted(db.sql(both).table) == Counter([(1,), (2,), (3,), (50,)])
    inside = (
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL (WITH t AS (SELECT n FROM ticks) SELECT n FROM t)) SELECT n FROM t"
    )
    assert counted(db.sql(inside).table) == Counter([(1,), (50,)])


def test_columns_may_be_called_anything(db: Database) -> None:
    text = (
        "WITH RECURSIVE `_level`(`_level`, `_before`, `r`) AS (SELECT 1, 2, 'a' UNION ALL "
        "SELECT `_level` + 1, `_before`, concat(r, 'b') FROM `_level` WHERE `_level` < 3) SELECT * FROM `_level`"
    )
    assert counted(db.sql(text).table) == Counter([(1, 2, "a"), (2, 2, "ab"), (3, 2, "abb")])


def test_one_without_an_end_is_stopped(db: Database) -> None:
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
    with pytest.raises(EvaluationError, match=r"\[RECURSION_LEVEL_LIMIT_EXCEEDED\] Recursion level limit 100 reached"):
        db.sql(endless)
    with pytest.raises(EvaluationError, match="Recursion level limit 7 reached"):
        db.sql(endless.replace("t(n)", "t(n) MAX RECURSION LEVEL 7"))
    with pytest.raises(EvaluationError, match="Recursion row limit 1000000 reached"):
        db.sql(endless.replace("FROM t)", "FROM t, range(50))"))
    db.sql(f"CREATE QUERY q AS {endless}")
    with pytest.raises(EvaluationError, match="RECURSION_LEVEL_LIMIT_EXCEEDED"):
        db.invoke("q")


def test_its_time_is_the_statement_s(open_db: Open) -> None:
    db = open_db(invoke_seconds_max=1.0)
    slow = (
        "WITH RECURSIVE t(n) MAX RECURSION LEVEL 100000 AS (SELECT 1 UNION ALL SELECT DISTINCT n + 1 FROM t, "
        "range(20000) a, range(20000) b WHERE a.id + b.id > n) SELECT count(*) FROM t"
    )
    with pytest.raises(LadleError, match="Evaluation took longer than"):
        db.sql(slow)


def test_texts_that_differ_in_constants_alone(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks([1, 2, 3, 4]), wait=True)
    text = (
        "WITH RECURSIVE t(n) MAX RECURSION LEVEL {0} AS (SELECT n FROM ticks WHERE n > {1} UNION ALL "
        "SELECT k.n FROM t JOIN ticks k ON k.n = t.n + 1 WHERE k.n < {2}) SELECT n FROM t"
    )
    for number, (level, low, high) in enumerate([(5, 2, 5), (5, 3, 5), (7, 1, 3), (6, 0, 9)]):
        db.register(text.format(level, low, high), name=f"q{number}")
        expected: Counter[tuple[int]] = Counter()
        for n in range(low + 1, 5):
            expected += Counter([(n,), *((m,) for m in range(n + 1, min(high, 5)))])
        assert counted(db.invoke(f"q{number}").table) == expected


def test_it_is_one_node_of_the_tree(filled: Database) -> None:
    filled.sql(f"CREATE QUERY needed AS {PARTS}")
    shown = str(filled.explain("needed"))
    assert "recursive WITH" in shown
    assert "GroupBy part" in shown
    renamed = PARTS.replace("needed", "wanted").replace("parts p", "parts q").replace("p.p", "q.p")
    filled.sql(f"CREATE QUERY same AS {renamed}")
    fragment = next(line for line in str(filled.explain("needed")).splitlines() if "recursive WITH" in line)
    assert "shared with 1 other standing query" in fragment
