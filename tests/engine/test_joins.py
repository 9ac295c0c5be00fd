"""What people see of joins: EXPLAIN, errors, and which order the eddy visits operators in."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import START

from ladle.config import POLICIES, Settings
from ladle.eddy import Policy
from ladle.engine import Database
from ladle.errors import LadleError, Unsupported
from ladle.evaluate import user_functions as functions
from ladle.plan import Function
from ladle.stem import asking, query_stem
from ladle.stem import join_kernel as joining
from ladle.stem.blocks import candidates

R = "CREATE STREAM r (a INT, b INT, x INT, at TIMESTAMP) TIMESTAMP BY at"
S = "CREATE STREAM s (a INT, y INT, at TIMESTAMP) TIMESTAMP BY at"


def rows(seconds: Iterable[int], **columns: Any) -> list[dict[str, Any]]:
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

SLOWLY_EVEN = """CREATE FUNCTION slowly_even(n INT) RETURNS BOOLEAN LANGUAGE PYTHON AS $$
def slowly_even(n):
    return pc.equal(pc.bit_wise_and(n, 1), 0)
$$"""


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock for the eddy, by which a function takes 2 ms for each tuple and all else 10 ms, whatever the machine."""
    spent = 0.0
    call = functions.call

    def now() -> float:
        nonlocal spent
        spent += 1e-2
        return spent

    def call_dearly(function: Function, arguments: Sequence[pa.Array]) -> pa.Array:
        nonlocal spent
        spent += len(arguments[0]) * 2e-3
        return call(function, arguments)

    for module in (joining, query_stem, asking):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=now, monotonic=time.monotonic))
    monkeypatch.setattr(functions, "call", call_dearly)


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


@pytest.mark.usefixtures("costs")
@pytest.mark.not_at_one_row("its place is chosen when tuples arrive")
def test_a_dear_function_comes_after_what_is_selective_and_moves_when_the_data_do(db: Database) -> None:
    """A function that takes its time is asked about the tuples alone that a cheap filter leaves, and not about pairs of
    a join that gives many; when the filter leaves all, it is asked about all, and the account shows it."""
    db.sql(R + " RETAIN INTERVAL 1 DAY")
    db.sql(S + " RETAIN INTERVAL 1 DAY")
    db.sql("CREATE FUNCTION slow(n INT) RETURNS BOOLEAN LANGUAGE PYTHON AS $$pc.equal(pc.bit_wise_and(n, 4), 4)$$")
    db.register("SELECT r.b, s.y FROM r, s WHERE r.a = s.a AND r.x < 1 AND slow(r.b)", name="q", materialize="partial")
    stream = db.catalog.stream("r")
    assert stream is not None

    def reached() -> float:
        accounts = db._ingest.tickets(stream)
        (account,) = (account for name, account in accounts.items() if "slow" in name.lower())
        return account.reached

    for start in (0, 500):
        db.push("s", rows(range(start, start + 500), a=lambda n: n % 500, y=lambda n: n), wait=True)
    for _ in range(6):
        db.push("r", rows(range(500), a=lambda n: n, b=lambda n: n, x=lambda n: n % 20), wait=True)
    selective = reached()
    for _ in range(6):
        db.push("r", rows(range(500), a=lambda n: n, b=lambda n: n, x=lambda _: 0), wait=True)
    assert selective < 0.25
    assert reached() > 0.75
    db.push("r", rows([1_000], a=lambda n: n, b=lambda n: n, x=lambda n: n), wait=True)
    assert len(db.invoke("q")) == 2 * 6 * (12 + 248)


@pytest.mark.usefixtures("costs")
@pytest.mark.not_at_one_row("its place is chosen when tuples arrive")
def test_a_dear_function_comes_after_a_join_that_few_tuples_pass_and_before_one_that_gives_many(db: Database) -> None:
    """By itself, within few epochs of a change; and whatever its place, the answer is the same."""
    db.sql(R + " RETAIN INTERVAL 1 DAY")
    db.sql(S + " RETAIN INTERVAL 1 DAY")
    db.sql(SLOWLY_EVEN)
    name = "q"
    db.register("SELECT r.b, s.y FROM r, s WHERE r.a = s.a AND slowly_even(r.b)", name=name, materialize="partial")
    block = db.catalog.queries[name].blocks[0]

    def push(first: int, partners: int) -> bool:
        """Some tuples of r, after the partners of one in ten, or of each; whether the function was postponed."""
        every, of = (1, partners) if partners else (10, 1)
        keys = [first + n for n in range(0, 200, every) for _ in range(of)]
        db.push("s", rows(range(len(keys)), a=lambda n: keys[n], y=lambda n: keys[n]), wait=True)
        db.push("r", rows(range(200), a=lambda n: first + n, b=lambda n: first + n, x=lambda n: n), wait=True)
        stream = db.catalog.streams["r"]
        covered = db._store.coverage(stream).covered(stream.files[-1].name)
        assert (block in covered) != (candidates(block) in covered)
        return candidates(block) in covered

    places = [push(200 * epoch, 0) for epoch in range(6)]
    assert places[-3:] == [True] * 3, places
    places = [push(200 * epoch, 5) for epoch in range(6, 14)]
    assert places[-3:] == [False] * 3, places
    places = [push(200 * epoch, 0) for epoch in range(14, 22)]
    assert places[-3:] == [True] * 3, places
    evens = [b for epoch in range(6) for b in range(200 * epoch, 200 * epoch + 200, 10)]
    evens += [b for b in range(1_200, 2_800, 2) for _ in range(5)]
    evens += [b for epoch in range(14, 22) for b in range(200 * epoch, 200 * epoch + 200, 10)]
    db.push("r", rows([1_000], a=lambda _: -1, b=lambda n: n, x=lambda n: n), wait=True)
    db.push("s", rows([1_000], a=lambda _: -2, y=lambda n: n), wait=True)
    for act in (lambda: None, db.backfill, db.maintain, db.backfill):
        act()
        assert sorted(row["b"] for row in db.invoke(name).to_pylist()) == evens
        assert db.status().queries[0].coverage == 1.0
    said = "\n".join(row["plan"] for row in db.sql(f"EXPLAIN ANALYZE QUERY {name}").to_pylist())
    assert re.search(r"partners of r .*%.*\n.*SLOWLY_EVEN", said), said
    # Somebody who wants the function's tuples themselves has them, and then nothing is postponed any more.
    db.register("SELECT b FROM r WHERE slowly_even(b)", name="alone", materialize="partial")
    db.backfill()
    assert not push(200 * 22, 0)
    assert len(db.invoke("alone")) == 22 * 100 + 1 + 100
    assert all(query.coverage == 1.0 for query in db.status().queries)


@pytest.mark.not_at_one_row("there Spark joins, and looks at no pairs")
def test_a_limit_takes_the_same_rows_however_they_were_joined(open_db: Open) -> None:
    """Pairs come in the order in which they were found, which is another after a backfill or a compaction."""
    texts = (
        "SELECT b FROM r [RANGE 1 HOUR] JOIN s [RANGE 1 HOUR] ON x = y LIMIT 3",
        "SELECT b, y FROM (SELECT b + 0 AS c, b, y FROM r [RANGE 1 HOUR] JOIN s [RANGE 1 HOUR] ON x = y) q LIMIT 3",
    )
    db = open_db()
    db.sql(R)
    db.sql(S)
    for first in (0, 10):
        db.push("r", rows(range(first, first + 10), a=lambda n: n, b=lambda n: 99 - n, x=lambda n: n), wait=True)
        db.push("s", rows(range(first, first + 10), a=lambda n: n, y=lambda n: n), wait=True)
    for text in texts:
        answer = db.sql(text).to_pylist()
        assert [row["b"] for row in answer] == [80, 81, 82]
    db.close()
    by_duckdb = open_db(join_pairs_max=1)
    for text in texts:
        assert [row["b"] for row in by_duckdb.sql(text).to_pylist()] == [80, 81, 82]
