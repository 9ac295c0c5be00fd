"""Statements that are long, wide or deep: they work, or say which limit they are beyond; none ends in a traceback."""

from __future__ import annotations

import sys
import threading
import time

import pyarrow as pa
import pytest
from tests.sql.names import Names

from ladle import sql
from ladle.config import Settings
from ladle.errors import InvocationTimeout, SqlError
from ladle.schema import TIMESTAMP, Column, StreamSchema
from ladle.sql.limits import StatementLimits, nesting
from ladle.sql.script import only_chunk


def nested(before: str, around: tuple[str, str], inside: str, after: str, depth: int) -> str:
    opening, closing = around
    return before + opening * depth + inside + closing * depth + after


NAMES = Names({"s": StreamSchema((Column("n", pa.int32()), Column("at", TIMESTAMP)), "at")})

DEEP = {
    "parentheses": ("SELECT ", ("(", ")"), "n", " AS x FROM s"),
    "calls": ("SELECT ", ("abs(", ")"), "n", " AS x FROM s"),
    "CASE": ("SELECT ", ("CASE WHEN n > 1 THEN ", " ELSE 0 END"), "n", " AS x FROM s"),
    "NOT": ("SELECT n FROM s WHERE ", ("NOT ", ""), "n > 1", ""),
    "minus": ("SELECT ", ("- ", ""), "n", " AS x FROM s"),
    "subqueries": ("", ("SELECT n FROM (", ") AS q"), "SELECT n FROM s", ""),
    "IN": ("SELECT n FROM s WHERE ", ("n IN (SELECT n FROM s WHERE ", ")"), "n > 1", ""),
    "arrays": ("SELECT ", ("array(", ")"), "n", " AS x FROM s"),
    "sums": ("SELECT n", (" + 1", ""), "", " AS x FROM s"),
    "texts": ("SELECT 'a'", (" || 'b'", ""), "", " AS x FROM s"),
    "elements": ("SELECT array(1)", ("[0]", ""), "", " AS x FROM s"),
    "EXCEPT": ("SELECT n FROM s", (" EXCEPT SELECT n FROM s", ""), "", ""),
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_statements_are_bound_or_refused_with_the_setting(kind: str) -> None:
    before = sys.getrecursionlimit()
    text = nested(*DEEP[kind], depth=40)
    sql.bind(text, NAMES)
    assert sql.split_script(text) == [text]
    assert sql.subscription(text) is None, "shells ask this first"
    with pytest.raises(SqlError, match=r"statement_depth_max allows 100|statement_tokens_max allows 200,000"):
        sql.bind(nested(*DEEP[kind], depth=30_000), NAMES)
    with pytest.raises(SqlError, match="statement_depth_max"):
        sql.bind(nested(*DEEP[kind], depth=1_200), NAMES)
    assert sys.getrecursionlimit() == before


def test_the_measure_of_nesting() -> None:
    def depth(text: str) -> int:
        return nesting(only_chunk(text).tokens)[0]

    assert depth("SELECT n FROM s WHERE a = 1 OR b = 2") == 0
    assert depth("SELECT ((n)) FROM s") == 2
    assert depth("SELECT " + ", ".join(["(n)"] * 500) + " FROM s") == 1
    assert depth("SELECT n FROM s WHERE " + " OR ".join(["(n = 1)"] * 500)) == 1
    assert depth("SELECT CASE WHEN n = 1 THEN CASE WHEN n = 2 THEN 3 END END FROM s BEGIN NOW END NOW") == 2
    assert depth("SELECT n" + " + 1" * 80 + " FROM s") == 10
    assert depth("SELECT NOT NOT NOT n") == 3
    assert depth("SELECT n FROM s" + " EXCEPT SELECT n FROM s" * 40) == 5
    assert depth("SELECT a" + "[0]" * 40) == 5
    assert depth(")))(") == 1


WIDE = {
    "OR": ("SELECT n FROM s WHERE " + " OR ".join(f"n = {number}" for number in range(0, 4_000, 2))),
    "AND": ("SELECT n FROM s WHERE " + " AND ".join(f"n <> {number}" for number in range(0, 1_000, 2))),
    "IN": ("SELECT n FROM s WHERE n IN (" + ", ".join(str(number) for number in range(0, 40_000, 2)) + ")"),
    "UNION ALL": " UNION ALL ".join(["SELECT n FROM s"] * 1_000),
    "UNION": " UNION ".join(["SELECT n FROM s"] * 200),
    "NOT OR": "SELECT n FROM s WHERE NOT (" + " OR ".join(f"n = {number}" for number in range(200)) + ")",
}


@pytest.mark.parametrize("kind", WIDE)
def test_wide_statements_are_bound_for_duckdb(kind: str) -> None:
    plan = sql.bind(WIDE[kind], NAMES)
    assert plan.residual.why_spark is None
    if kind in ("OR", "IN"):
        (factor,) = plan.scans[0].block.factors
        assert factor.ranges is not None
        assert len(factor.ranges.intervals) == len(WIDE[kind].split("n = " if kind == "OR" else ",")) - (kind == "OR")


def test_limits_name_their_settings() -> None:
    with pytest.raises(SqlError, match=r"31 characters; statement_characters_max allows 30"):
        sql.bind("SELECT n FROM s WHERE n = 12345", NAMES, Settings(statement_characters_max=30))
    with pytest.raises(SqlError, match=r"8 tokens; statement_tokens_max allows 4") as raised:
        sql.parse_one("SELECT n FROM s WHERE n = 1", NAMES, Settings(statement_tokens_max=4))
    assert raised.value.position is not None
    assert raised.value.position.column == 17
    with pytest.raises(SqlError, match=r"3 levels, and statement_depth_max allows 2") as raised:
        sql.parse_one("SELECT (((n))) FROM s", NAMES, Settings(statement_depth_max=2))
    assert raised.value.position is not None
    assert raised.value.position.column == 10
    # What was accepted before is not refused now.
    assert sql.rebind("SELECT (((n))) AS n FROM s", NAMES).sql


def test_time_is_up() -> None:
    tokens = only_chunk("SELECT " + "(" * 20 + "n" + ")" * 20).tokens
    before = sys.getrecursionlimit()

    def endless() -> None:
        while True:
            time.sleep(0.001)

    with pytest.raises(InvocationTimeout, match=r"took longer than 0\.2 s"):
        StatementLimits(seconds=0.2).run(tokens, endless)
    assert sys.getrecursionlimit() == before
    assert not any(each.name == "ladle-statement" for each in threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        StatementLimits().run(tokens, lambda: 1 / 0)


def test_an_epoch_that_is_no_number_of_ours() -> None:
    with pytest.raises(SqlError, match="Expected a position in quotes, or the number of an epoch"):
        sql.subscription(f"SUBSCRIBE q SINCE {'9' * 5_000}")
