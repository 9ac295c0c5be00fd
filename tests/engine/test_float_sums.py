"""Who follows sums of floating point numbers is told to take away what he was told before, bit for bit: whatever was
merged, restarted, let go of or computed along another path since.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import at
from tests.engine.test_between import Follower

from ladle.engine import Database
from ladle.evaluate import duck

pytestmark = pytest.mark.not_at_one_row("Spark adds up in any order")

QUERIES = {
    "grouped": "SELECT k, sum(x) AS s, avg(f) AS a FROM s GROUP BY k",
    "alone": "SELECT sum(x) AS s, avg(x) AS a FROM s [RANGE 9 SECONDS]",
    "hopping": "SELECT window.start AS w, sum(x) AS s FROM s GROUP BY window(at, '8 seconds', '2 seconds')",
    "having": "SELECT k, sum(x) AS s FROM s GROUP BY k HAVING avg(x) > 1.0D",
    "computed": "SELECT k, sum(x + 1) AS s, stddev(x) AS d FROM s GROUP BY k",
}


def rows(rng: random.Random, second: int) -> list[dict[str, Any]]:
    """Of sizes so different that the order in which they are added shows."""
    return [
        {"k": rng.randint(0, 3), "x": value, "f": value, "at": at(second)}
        for value in (rng.uniform(-1, 1) * 10.0 ** rng.randint(-3, 9) for _ in range(rng.choice((1, 20, 300))))
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_is_the_answer_after_restarts(open_db: Open, seed: int) -> None:
    rng = random.Random(seed)
    settings = {"compact_files_min": 2, "grace_seconds": 0.0}
    db: Database = open_db(**settings)
    db.sql("CREATE STREAM s (k INT, x DOUBLE, f FLOAT, at TIMESTAMP) TIMESTAMP BY at")
    db.register_many(QUERIES)
    followers = [Follower(db, name) for name in QUERIES]
    for second in range(24):
        db.push("s", rows(rng, second), wait=True)
        match rng.choice(("restart", "compact", "follow", "wait")):
            case "restart":
                db.close()
                db = open_db(**settings)
            case "compact":
                db.maintain()
            case "wait":
                continue
        for follower in followers:
            follower.catch_up(db)
    for follower in followers:
        follower.catch_up(db)
        again = Follower(db, follower.name)
        assert follower.rows == again.rows, "told step by step, and computed now"


def test_who_follows_is_told_what_one_thread_computes(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several DuckDB adds up in another order each time."""
    asked = list[bool]()
    run = duck.run

    def noted(*arguments: Any, in_order: bool = False, **named: Any) -> Any:
        asked.append(in_order)
        return run(*arguments, in_order=in_order, **named)

    monkeypatch.setattr(duck, "run", noted)
    db = open_db()
    db.sql("CREATE STREAM s (k INT, x DOUBLE, f FLOAT, at TIMESTAMP) TIMESTAMP BY at")
    db.register_many(QUERIES)
    followers = [Follower(db, name) for name in QUERIES]
    db.push("s", rows(random.Random(1), 1), wait=True)
    asked.clear()
    for follower in followers:
        follower.catch_up(db)
    assert asked
    assert all(asked)
