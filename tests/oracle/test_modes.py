"""PSoup's three modes are one engine: none, partial and complete give the same answers, and the right ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.driver import MODES, Driver
from tests.support.queries import QueryMaker

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline
from ladle.testing.one_row import at_one_row

# a background thread that dies would go unnoticed here: answers are right without it
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def connect(path: Path, clock: ManualClock, settings: dict[str, Any]) -> Database:
    return connect_inline(path, clock=clock, settings=settings)


STEPS = at_one_row(2, 8)
QUERIES = at_one_row(3, 6)


@pytest.mark.parametrize("seed", range(at_one_row(1, 4)))
def test_modes_agree(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    driver = Driver(tmp_path / "warehouse", connect, seed=seed)
    driver.create_stream(seed)
    driver.push(seed, 30)
    for number in range(QUERIES):
        query = QueryMaker(rng, driver.streams, driver.wall_us, rng.randint(0, 3)).query()
        for mode in MODES:
            driver.register_query(f"q{number}_{mode}", query, mode)
    for _ in range(STEPS):
        step = rng.randrange(6)
        if step < 2:
            driver.push(rng.randrange(1000), rng.randint(1, 40))
        elif step == 2:
            driver.advance(rng.randint(1, 40))
        elif step == 3:
            driver.backfill()
        elif step == 4:
            driver.heartbeat(rng.randrange(1000))
        else:
            driver.maintain()
        driver.check()
        for _ in range(QUERIES):
            driver.invoke_at(rng.randrange(1000))
    assert driver.checked + driver.unanswered > STEPS * (4 * QUERIES - 2)
    driver.close()


def test_complete_follows_the_clock_without_new_data(tmp_path: Path) -> None:
    """An arrival-stamped stream: nothing arrives, time passes, and the kept answer must shrink by itself."""
    clock = ManualClock()
    db = connect(tmp_path / "warehouse", clock, {})
    db.sql("CREATE STREAM s (a INT)")
    names = []
    for mode in MODES:
        names.append(
            db.register("SELECT a FROM s BEGIN NOW - INTERVAL 1 MINUTE END NOW", name=mode, materialize=mode).name
        )
    db.push("s", [{"a": 1}], wait=True)
    clock.advance(40_000_000)
    db.push("s", [{"a": 2}], wait=True)
    for expected in ([1, 2], [2], []):
        for name in names:
            assert sorted(db.query(name).invoke().table.column("a").to_pylist()) == expected, name
        clock.advance(30_000_000)
    db.close()
