"""Tables against DuckDB. Method: random INSERTs, UPDATEs and DELETEs are done here and by DuckDB to a table of its own,
between pushes, restarts, housekeeping and losses of derived state; after each step the answers of standing queries that
join a stream's window with the table are compared with DuckDB's over the raw tuples, the window written out.
"""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline
from ladle.testing.one_row import at_one_row

START = datetime(2023, 11, 14, 12)
STEPS = at_one_row(6, 40)
NAMES = ("NULL", "'n0'", "'n1'", "'n2'")
MODES = ("none", "partial", "complete", "auto")

WINDOW = "(SELECT * FROM s WHERE moment > (SELECT max(moment) FROM s) - INTERVAL 10 SECONDS)"
LAST = "(SELECT * FROM s ORDER BY number DESC LIMIT 7)"
QUERIES = (
    (
        "SELECT s.n, t.k, t.v FROM s JOIN t ON s.k = t.k WHERE s.n > 3 BEGIN NOW - INTERVAL 10 SECONDS END NOW",
        f"SELECT s.n, t.k, t.v FROM {WINDOW} s JOIN t ON s.k = t.k WHERE s.n > 3",
    ),
    (
        "SELECT t.k, count(s.n) AS c, sum(s.n) AS u FROM t LEFT JOIN s [RANGE 10 SECONDS] s ON s.k = t.k GROUP BY t.k",
        f"SELECT t.k, count(s.n) AS c, sum(s.n) AS u FROM t LEFT JOIN {WINDOW} s ON s.k = t.k GROUP BY t.k",
    ),
    (
        "SELECT n FROM s [ROWS 7] WHERE k IN (SELECT k FROM t WHERE v >= 2)",
        f"SELECT n FROM {LAST} WHERE k IN (SELECT k FROM t WHERE v >= 2)",
    ),
    ("SELECT count(*) AS c, sum(v) AS u, max(name) AS m FROM t", None),
    ("SELECT a.k, b.v FROM t a JOIN t b ON a.k = b.v", None),
)


def change(rng: random.Random) -> str:
    """A statement that means the same in Spark and in DuckDB."""
    condition = rng.choice(
        [
            f"k = {rng.randint(0, 6)}",
            f"v < {rng.randint(0, 5)} OR name IS NULL",
            f"k IN (SELECT v FROM t WHERE name = 'n{rng.randint(0, 2)}')",
            f"NOT (name = 'n{rng.randint(0, 2)}')",
            "v = (SELECT max(v) FROM t)",
        ]
    )
    where = f" WHERE {condition}" if rng.random() < 0.9 else ""
    match rng.choice(["insert", "insert", "select", "update", "update", "delete"]):
        case "insert":
            rows = [
                f"({rng.choice(['NULL', *range(7)])}, {rng.choice(['NULL', *range(6)])}, {rng.choice(NAMES)})"
                for _ in range(rng.randint(1, 5))
            ]
            return f"INSERT INTO t VALUES {', '.join(rows)}"
        case "select":
            return f"INSERT INTO t (v, k) SELECT k, v FROM t WHERE k = {rng.randint(0, 6)}"
        case "update":
            assigned = rng.choice(["v = k", "v = v - 1, k = v", "name = 'n1', v = 3", "k = NULL", "name = upper(name)"])
            return f"UPDATE t SET {assigned}{where}"
        case _:
            return f"DELETE FROM t{where}"


class Both:
    """The same done to a database and to DuckDB."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self._path = path
        self._rng = rng
        self._clock = ManualClock()
        self.db = self._open()
        self._other = duckdb.connect()
        for each in (self.db.sql, self._other.execute):
            each("CREATE TABLE t (k INT, v INT, name STRING)")
        self.db.sql("CREATE STREAM s (n INT, k INT, moment TIMESTAMP) TIMESTAMP BY moment")
        self._other.execute("CREATE TABLE s (number INT, n INT, k INT, moment TIMESTAMP)")
        self._pushed = 0
        for number, (text, _) in enumerate(QUERIES):
            self.db.register(text, name=f"q{number}", materialize=rng.choice(MODES))

    def _open(self) -> Database:
        settings = {"maintenance_seconds": 3_600.0, "segment_rows_max": 8, "compact_files_min": 3, "grace_seconds": 0.0}
        return connect_inline(self._path, clock=self._clock, settings=settings)

    def step(self) -> str:
        rng = self._rng
        match rng.choice(["change"] * 5 + ["push"] * 3 + ["maintain", "restart", "lose"]):
            case "change":
                text = change(rng)
                self.db.sql(text)
                self._other.execute(text)
                return text
            case "push":
                rows = [self._tuple() for _ in range(rng.randint(1, 9))]
                self.db.push("s", [{**row, "moment": row["moment"].replace(tzinfo=UTC)} for row in rows], wait=True)
                self._other.executemany(
                    "INSERT INTO s VALUES (?, ?, ?, ?)",
                    [[self._pushed + i, row["n"], row["k"], row["moment"]] for i, row in enumerate(rows)],
                )
                self._pushed += len(rows)
                return f"push of {len(rows)}"
            case "maintain":
                self.db.maintain()
                self.db.backfill()
                return "maintain"
            case "restart":
                self.db.close()
                self.db = self._open()
                return "restart"
            case _:
                shutil.rmtree(self._path / "derived" / "results", ignore_errors=True)
                return "derived state lost"

    def _tuple(self) -> dict[str, Any]:
        seconds = self._pushed / 3 + self._rng.randint(0, 6)
        number = self._rng.randint(0, 20)
        return {"n": number, "k": self._rng.choice([None, *range(7)]), "moment": START + timedelta(seconds=seconds)}

    def check(self, done: str) -> None:
        for number, (text, plain) in enumerate(QUERIES):
            expected = as_rows(self._other.sql(plain or text).to_arrow_table())
            assert as_rows(self.db.invoke(f"q{number}").table) == expected, f"{text} after {done}"
        table = as_rows(self.db.sql("SELECT * FROM t").table)
        assert table == as_rows(self._other.sql("SELECT * FROM t").to_arrow_table()), done

    def close(self) -> None:
        self.db.close()
        self._other.close()


def as_rows(table: pa.Table) -> list[str]:
    return sorted(" | ".join(map(str, row.values())) for row in table.to_pylist())


@pytest.mark.parametrize("seed", range(at_one_row(1, 2)))
def test_tables_like_duckdb(tmp_path: Path, seed: int) -> None:
    both = Both(tmp_path / "warehouse", random.Random(seed))
    try:
        done: list[str] = []
        for _ in range(STEPS):
            done.append(both.step())
            both.check("; ".join(done))
    finally:
        both.close()
