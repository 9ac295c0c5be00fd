"""MERGE against DuckDB. Method: random MERGEs are done here and by DuckDB to a table of its own; after each the rows,
and the answers of standing queries over the table, are DuckDB's, and what subscribers were told adds up to them.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ladle.engine import Database
from ladle.errors import EvaluationError, LadleError, SqlError, Unsupported
from ladle.testing import connect_inline
from ladle.testing.one_row import at_one_row

STEPS = at_one_row(4, 25)
READ = ("SELECT k, v FROM t WHERE v > 1", "SELECT count(*) AS c, sum(v) AS s FROM t", "SELECT * FROM t")


def merge(rng: random.Random) -> str:
    """A MERGE that means the same in Spark and in DuckDB."""
    source = rng.choice(["u", "(SELECT k, max(v) AS v, max(name) AS name FROM u GROUP BY k)"])
    clauses = [
        *(["WHEN MATCHED AND s.v > t.v THEN UPDATE SET v = s.v + 1, name = t.name"] if rng.random() < 0.5 else []),
        *(["WHEN MATCHED AND t.v = 2 THEN DELETE"] if rng.random() < 0.4 else []),
        *([rng.choice(["WHEN MATCHED THEN UPDATE SET *", "WHEN MATCHED THEN DELETE"])] if rng.random() < 0.6 else []),
        *(["WHEN NOT MATCHED AND s.v < 2 THEN INSERT (name, k) VALUES (s.name, s.k)"] if rng.random() < 0.5 else []),
        *(["WHEN NOT MATCHED BY TARGET THEN INSERT *"] if rng.random() < 0.6 else []),
        *(["WHEN NOT MATCHED BY SOURCE AND v = 0 THEN DELETE"] if rng.random() < 0.4 else []),
        *(["WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = t.v - 1"] if rng.random() < 0.4 else []),
    ]
    on = rng.choice(["t.k = s.k", "s.k = t.k AND t.v <> 5"])
    return f"MERGE INTO t USING {source} AS s ON {on} {' '.join(clauses) or 'WHEN MATCHED THEN DELETE'}"


def rows(db: Database, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in db.sql(text).table.to_pylist())


def expected(own: duckdb.DuckDBPyConnection, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(own.sql(text).fetchall())


def test_merges_are_duckdb_s(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    own = duckdb.connect()
    with connect_inline(tmp_path / "warehouse") as db:
        for text in ("CREATE TABLE t (k INT, v INT, name STRING)", "CREATE TABLE u (k INT, v INT, name STRING)"):
            db.sql(text)
            own.sql(text)
        read = [db.register(text) for text in READ]
        subscriptions = [query.subscribe() for query in read]
        told: list[Counter[tuple[Any, ...]]] = [rows(db, text) for text in READ]
        for _ in range(STEPS):
            both(db, own, "DELETE FROM u")
            keys = rng.sample(range(12), rng.randint(0, 8))
            if keys:
                values = ", ".join(f"({key}, {rng.randint(0, 6)}, 'n{rng.randint(0, 3)}')" for key in keys)
                both(db, own, f"INSERT INTO u VALUES {values}, (NULL, 1, 'null')")
            both(db, own, merge(rng))
            if rng.random() < 0.2:
                both(db, own, f"INSERT INTO t VALUES ({rng.randint(0, 12)}, 1, NULL), (NULL, 2, 'x')")
            for number, text in enumerate(READ):
                while (delta := subscriptions[number].next(0)) is not None:
                    told[number] += Counter(tuple(row.values()) for row in delta.inserted.to_pylist())
                    told[number] -= Counter(tuple(row.values()) for row in delta.retracted.to_pylist())
                assert rows(db, f"SELECT * FROM `{read[number].name}`") == expected(own, text)
                assert told[number] == expected(own, text)


def both(db: Database, own: duckdb.DuckDBPyConnection, text: str) -> None:
    own.sql(text)
    db.sql(text)


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE TABLE t (k INT, v INT DEFAULT 7)")
        db.sql("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
        db.sql("CREATE TABLE twice (k INT, v INT)")
        db.sql("INSERT INTO twice VALUES (1, 1), (1, 2), (9, 3)")
        yield db


def test_several_rows_for_one_are_spark_s_error(db: Database) -> None:
    before = db.catalog.seq
    for clause in ("UPDATE SET v = s.v", "UPDATE SET *"):
        with pytest.raises(EvaluationError, match="MERGE_CARDINALITY_VIOLATION"):
            db.sql(f"MERGE INTO t USING twice s ON t.k = s.k WHEN MATCHED THEN {clause}")
    with pytest.raises(EvaluationError, match="MERGE_CARDINALITY_VIOLATION"):
        db.sql("MERGE INTO t USING twice s ON t.k = s.k WHEN MATCHED AND s.v = 1 THEN DELETE")
    assert db.catalog.seq == before
    inserted = "MERGE INTO t USING twice s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *"
    assert db.sql(inserted).message == "1 row merged into t"
    assert rows(db, "SELECT * FROM t") == Counter([(1, 10), (2, 20), (3, 30), (9, 3)])
    assert db.sql("MERGE INTO t USING twice s ON t.k = s.k WHEN MATCHED THEN DELETE").message == "2 rows merged into t"
    assert rows(db, "SELECT * FROM t") == Counter([(2, 20), (3, 30)])


def test_names_and_defaults(db: Database) -> None:
    """A name without its relation is the source's in INSERT, and the target's where there is no source."""
    db.sql(
        "MERGE INTO t AS x USING (SELECT k + 1 AS k, v FROM twice WHERE v > 1) AS y ON x.k = y.k "
        "WHEN MATCHED THEN UPDATE SET x.v = DEFAULT "
        "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (k * 100, DEFAULT) "
        "WHEN NOT MATCHED BY SOURCE AND v > 10 THEN UPDATE SET v = v + k"
    )
    assert rows(db, "SELECT * FROM t") == Counter([(1, 10), (2, 7), (3, 33), (1000, 7)])
    db.sql("MERGE INTO t USING twice s ON s.k = 5 WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)")
    assert rows(db, "SELECT k, v FROM t WHERE k IN (1, 9)") == Counter([(1, 10), (1, 7), (1, 7), (9, 7)])


def test_streams_and_queries_are_sources(db: Database) -> None:
    db.sql("CREATE STREAM s (k INT, v INT)")
    db.push("s", [{"k": 2, "v": 5}, {"k": 4, "v": 6}], wait=True)
    db.register("SELECT k, max(v) AS v FROM s GROUP BY k", name="q")
    for source in ("s [RANGE 1 HOUR] y", "q AS y"):
        text = f"MERGE INTO t USING {source} ON t.k = y.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        db.sql(text)
        assert rows(db, "SELECT * FROM t") == Counter([(1, 10), (2, 5), (3, 30), (4, 6)])


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("MERGE INTO t USING t ON 1 = 1 WHEN MATCHED THEN DELETE", SqlError, "both called 't'"),
        ("MERGE INTO t USING twice s ON t.k = s.k", SqlError, "Expected WHEN MATCHED"),
        ("MERGE INTO t USING twice s ON t.k = s.k WHEN MATCHED THEN INSERT *", SqlError, "Expected UPDATE SET or DEL"),
        ("MERGE INTO t USING twice s ON t.k = s.k WHEN NOT MATCHED THEN DELETE", SqlError, "Expected INSERT"),
        ("MERGE INTO t USING twice s ON t.k = s.k WHEN MATCHED THEN UPDATE SET z = 1", LadleError, "'z'"),
        ("MERGE INTO t USING twice s ON t.k = s.z WHEN MATCHED THEN DELETE", LadleError, "z"),
        ("MERGE INTO t USING twice s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = v", SqlError, "ambiguous"),
        ("MERGE INTO t USING twice s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 1, V = 2", SqlError, "given twice"),
        (
            "MERGE INTO t USING twice s ON true WHEN NOT MATCHED THEN INSERT (k) VALUES (t.k)",
            SqlError,
            "'t' has no row",
        ),
        (
            "MERGE INTO t USING twice s ON true WHEN NOT MATCHED THEN INSERT (k) VALUES (1, 2)",
            SqlError,
            "2 values for 1",
        ),
        ("MERGE INTO t USING twice s ON t.k = (SELECT 1) WHEN MATCHED THEN DELETE", Unsupported, "can't be a subquery"),
        ("MERGE INTO t USING twice s ON t.k = max(s.k) WHEN MATCHED THEN DELETE", SqlError, "aggregate"),
        (
            "MERGE INTO t USING twice s ON t.k = s.k WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET *",
            SqlError,
            "Only the last WHEN MATCHED",
        ),
        ("MERGE INTO s USING twice x ON true WHEN MATCHED THEN DELETE", SqlError, "'s' is a stream"),
    ],
)
def test_what_is_no_merge_is_refused(db: Database, text: str, kind: type[LadleError], message: str) -> None:
    db.sql("CREATE STREAM s (k INT)")
    with pytest.raises(kind, match=message):
        db.sql(text)
