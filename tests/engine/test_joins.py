"""What people see of joins: EXPLAIN, errors, and which order the eddy visits operators in."""

from __future__ import annotations

import itertools
import re
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import START

from ladle.config import POLICIES, Settings
from ladle.eddy import Policy
from ladle.engine import Database
from ladle.errors import LadleError, Unsupported

R = "CREATE STREAM r (a INT, b INT, x INT, at TIMESTAMP) TIMESTAMP BY at"
S = "CREATE STREAM s (a INT, y INT, at TIMESTAMP) TIMESTAMP BY at"


def rows(seconds: range, **columns: Any) -> list[dict[str, Any]]:
    """Tuples one second apart; a column is a function of the second."""
    return [
        {"at": START + timedelta(seconds=second), **{name: value(second) for name, value in columns.items()}}
        for second in seconds
    ]


def push_both(db: Database, seconds: range) -> None:
    db.push("r", rows(seconds, a=lambda n: n % 4, b=lambda n: n, x=lambda n: n % 10), wait=True)
    db.push("s", rows(seconds, a=lambda n: n % 4, y=lambda n: n % 10), wait=True)


@pytest.mark.not_at_one_row("there Spark joins, and looks at no pairs")
def test_explain_shows_joins_and_what_they_cost(db: Database) -> None:
    db.sql(R)
    db.sql(S)
    text = """SELECT r.x, s.y FROM r [RANGE 20 SECONDS], s [RANGE 10 SECONDS]
              WHERE r.a = s.a AND x < {} AND b >= 0 AND y > 3"""
    for number in range(3):
        db.register(text.format(number + 5), name=f"q{number}", materialize="partial")
    push_both(db, range(20))
    push_both(db, range(20, 40))
    said = db.explain("q1")
    assert "  joins\n    _s0, _s1  _s0.`a` = _s1.`a`\n      shared    with 2 other standing queries\n" in said
    assert re.search(r"coverage  ([1-9]) of \1 pairs of data files", said)
    assert "none: columns are picked from the joins" in said
    assert "analyzed" not in said
    analyzed = str(db.sql("EXPLAIN ANALYZE QUERY q1").table.column(0).to_pylist())
    assert "rows in" in analyzed
    assert "eddy      on r, over the last epochs" in analyzed
    assert "were not covered" not in analyzed
    other = db.explain("SELECT r.x, s.y FROM r [RANGE 9 SECONDS], s [RANGE 9 SECONDS] WHERE r.b = s.y", analyze=True)
    assert "coverage  0 of " in other
    assert "pairs of data files were not covered, and joined for this answer" in other


@pytest.mark.parametrize("mode", ["partial", "complete", "auto"])
def test_state_without_bounds_is_refused(db: Database, mode: str) -> None:
    db.sql(R)
    db.sql(S)
    landmark = f"BEGIN TIMESTAMP '{START:%Y-%m-%d %H:%M:%S}' END NOW"
    for text in (
        "SELECT r.x FROM r, s [ROWS 10] WHERE r.a = s.a",
        f"SELECT r.x FROM r, s [ROWS 10] WHERE r.a = s.a {landmark}",
        "SELECT count(*) FROM r [RANGE 1 DAY] one, r two WHERE one.a < two.a",
    ):
        with pytest.raises(Unsupported, match=r"state of this join is unbounded.*stream 'r'") as refused:
            db.register(text, name="q", materialize=mode)
        assert "r [RANGE 1 HOUR]" in str(refused.value)
        assert "RETAIN" in str(refused.value)
    db.register("SELECT r.x FROM r, s WHERE r.a = s.a", name="nothing", materialize="none")
    db.register("SELECT r.x FROM r, s WHERE r.a + s.a > 3", name="in_the_residual", materialize=mode)
    for stream in ("r", "s"):
        db.sql(f"ALTER STREAM {stream} SET RETAIN INTERVAL 1 DAY")
    db.register("SELECT r.x FROM r, s WHERE r.a = s.a", name="bounded", materialize=mode)


def test_a_join_that_is_too_large_is_still_answered(open_db: Open) -> None:
    """Fan-outs beyond the budget are not kept, and DuckDB computes them; another query's pairs are."""
    db = open_db(join_pairs_max=40)
    db.sql(R)
    db.sql(S)
    window = "[RANGE 1 HOUR]"
    db.register(f"SELECT r.b FROM r {window}, s {window} WHERE r.a = s.a", name="wide", materialize="partial")
    db.register(f"SELECT r.b FROM r {window}, s {window} WHERE r.b = s.y", name="narrow", materialize="partial")
    for second in range(0, 40, 20):
        push_both(db, range(second, second + 20))
        assert len(db.invoke("wide")) == (second + 20) ** 2 // 4
        db.backfill()
    before = db._invoker.joins.found
    assert len(db.invoke("narrow")) == 40
    assert db._invoker.joins.found == before
    assert db._ingest.joining.failing
    assert "gives more than 40 pairs" in next(iter(db._ingest.joining.failing.values()))


# -- the eddy --


def test_policies_are_a_setting(open_db: Open) -> None:
    assert tuple(policy.value for policy in Policy) == POLICIES
    with pytest.raises(LadleError, match=r"(?s)eddy_policy can't be 'luck'.*tickets, random, fixed, best, worst"):
        Settings(eddy_policy="luck")
    found = set()
    for policy in POLICIES:
        db = open_db(eddy_policy=policy)
        db.sql("DROP STREAM IF EXISTS r CASCADE")
        db.sql(R)
        db.register("SELECT x FROM r [ROWS 100] WHERE a < 2 AND b > 20 AND x <> 3", name="q")
        push_both_of_r = rows(range(60), a=lambda n: n % 4, b=lambda n: n, x=lambda n: n % 10)
        db.push("r", push_both_of_r, wait=True)
        found.add(str(db.invoke("q").to_pylist()))
        db.close()
    assert len(found) == 1


def test_a_dear_function_comes_after_what_is_selective_and_moves_when_the_data_do(db: Database) -> None:
    """A function that takes its time is asked about the tuples alone that a cheap filter leaves, and the join's pairs
    about neither; when the filter leaves all, it is asked about all, and the account shows it."""
    db.sql(R + " RETAIN INTERVAL 1 DAY")
    db.sql(S + " RETAIN INTERVAL 1 DAY")
    db.sql(
        "CREATE FUNCTION slow(n INT) RETURNS BOOLEAN LANGUAGE PYTHON AS $$\\nimport time\\ndef slow(n):\\n"
        "    time.sleep(0.05 + len(n) * 2e-5)\\n    return pc.greater_equal(n, 0)\\n$$".replace("\\n", "\n")
    )
    db.register("SELECT r.b, s.y FROM r, s WHERE r.a = s.a AND r.x < 1 AND slow(r.b)", name="q", materialize="partial")
    stream = db.catalog.stream("r")
    assert stream is not None

    def reached() -> float:
        accounts = db._ingest.tickets(stream)
        (account,) = (account for name, account in accounts.items() if "slow" in name.lower())
        return account.reached

    second = itertools.count(0, 500)
    for _ in range(6):
        start = next(second)
        db.push("r", rows(range(start, start + 500), a=lambda n: n, b=lambda n: n, x=lambda n: n % 20), wait=True)
    selective = reached()
    for _ in range(6):
        start = next(second)
        db.push("r", rows(range(start, start + 500), a=lambda n: n, b=lambda n: n, x=lambda _: 0), wait=True)
    assert selective < 0.25
    assert reached() > 0.75
    db.push("s", rows(range(500), a=lambda n: n, y=lambda n: n), wait=True)
    assert len(db.invoke("q")) == 25
