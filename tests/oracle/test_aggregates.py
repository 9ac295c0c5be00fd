"""Partial aggregates against the oracle: late tuples, compaction, retention, deleted results, eviction, other NOWs.

The queries are only such as partial aggregates answer; that they do is counted.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.driver import Driver

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline

# a background thread that dies would go unnoticed here: answers are right without it
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def connect(path: Path, clock: ManualClock, settings: dict[str, Any]) -> Database:
    return connect_inline(path, clock=clock, settings=settings)


@pytest.mark.not_at_one_row("partial aggregates need no residual")
def test_partial_aggregates_are_the_oracles(tmp_path: Path) -> None:
    drivers = [_driven(tmp_path / str(seed), seed) for seed in range(4)]
    folded, checked = sum(each.folded for each in drivers), sum(each.checked for each in drivers)
    assert folded > checked / 3, f"{folded} of {checked}"
    for driver in drivers:
        driver.close()


def _driven(directory: Path, seed: int) -> Driver:
    """A warehouse to which everything has happened in turns, and whose answers were compared."""
    rng = random.Random(seed)
    directory.mkdir()
    driver = Driver(directory / "warehouse", connect, seed=seed)
    driver.create_stream(seed)
    driver.create_stream(seed + 50)
    for number in range(4):
        driver.register_folding(seed * 100 + number, "partial")
    for step in range(30):
        driver.push(rng.randrange(10_000), rng.randint(1, 40))
        if step % 3 == 0 and len(driver.standing) < 14:
            driver.register_folding(rng.randrange(10_000), rng.choice(("partial", "partial", "complete")))
        act = rng.randrange(8)
        if act == 0:
            driver.maintain()
        elif act == 1:
            driver.backfill()
        elif act == 2:
            driver.delete_derived(rng.randrange(10_000))
        elif act == 3:
            driver.advance(rng.randint(1, 200))
        elif act == 4:
            driver.restart(rng.randrange(10_000))
        elif act == 5 and len(driver.standing) > 3:
            driver.unregister(rng.randrange(10_000))
        driver.check()
        for _ in range(3):
            driver.invoke_at(rng.randrange(10_000))
    return driver
