"""Shared joins at the extremes of types: the pairs that the Data SteM finds are DuckDB's of all pairs.

Method: the same rows in two streams, epoch by epoch, and every comparison as a standing join; beside it DuckDB compares
each row of one with each of the other.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from ladle.testing import connect_inline

NUMBERS = {
    "TINYINT": (-128, -127, -1, 0, 1, 126, 127),
    "INT": (-(2**31), 1 - 2**31, -1, 0, 1, 2**31 - 2, 2**31 - 1),
    "BIGINT": (-(2**63), 1 - 2**63, -(2**53) - 1, -1, 0, 1, 2**53 + 1, 2**63 - 2, 2**63 - 1),
    "DOUBLE": (float("-inf"), -1.7976931348623157e308, -5e-324, -0.0, 0.0, 5e-324, 1.0, float("inf"), float("nan")),
    "DECIMAL(38,0)": tuple(f"{sign}{'9' * 37}{last}" for sign in ("-", "") for last in (8, 9)),
    "STRING": ("", "\0", "\x7f", "\u00ff", "\U0010ffff", "a" * 4_000, "a" * 4_000 + "b"),
}
OPERATORS = ("=", "<", "<=", ">", ">=")


@pytest.mark.not_at_one_row("there Spark joins, and looks at no pairs")
@pytest.mark.parametrize("kind", NUMBERS)
def test_pairs_are_those_of_all_pairs(kind: str, tmp_path: Path) -> None:
    values = NUMBERS[kind]
    at = "2026-01-30 14:30:00"
    with connect_inline(tmp_path / "warehouse") as db:
        for stream in "ab":
            db.sql(f"CREATE STREAM {stream} (n INT, v {kind}, at TIMESTAMP) TIMESTAMP BY at")
        for number, operator in enumerate(OPERATORS):
            db.register(
                f"SELECT a.n, b.n AS m FROM a [RANGE 1 HOUR] a, b [RANGE 1 HOUR] b WHERE a.v {operator} b.v",
                name=f"q{number}",
            )
        rows = [{"n": number, "v": value, "at": at} for number, value in enumerate((*values, None))]
        # One row an epoch on one side, all in one on the other: pairs are found by epochs of both.
        db.push("b", rows[::2], wait=True)
        for row in rows:
            db.push("a", [row], wait=True)
        db.push("b", rows[1::2], wait=True)
        duck = duckdb.connect()
        duck.execute(f"CREATE TABLE t (n INT, v {kind.replace('STRING', 'VARCHAR')})")
        duck.executemany("INSERT INTO t VALUES (?, ?)", [(row["n"], row["v"]) for row in rows])
        for number, operator in enumerate(OPERATORS):
            expected = duck.sql(f"SELECT a.n, b.n FROM t a, t b WHERE a.v {operator} b.v ORDER BY ALL").fetchall()
            got = sorted((row["n"], row["m"]) for row in db.invoke(f"q{number}").to_pylist())
            assert got == expected, operator
