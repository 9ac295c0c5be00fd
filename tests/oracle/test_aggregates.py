"""Partial aggregates against the oracle: late tuples, compaction, retention, deleted results, eviction, other NOWs.

The queries are only such as partial aggregates answer; that they do is counted.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline
from ladle.testing.driver import Driver

# a background thread that dies would go unnoticed here: answers are right without it
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def connect(path: Path, clock: ManualClock, settings: dict[str, Any]) -> Database:
    return connect_inline(path, clock=clock, settings=settings)


@pytest.mark.not_at_one_row("partial aggregates need no residual")
@pytest.mark.parametrize("seed", range(4))
def test_partial_aggregates_are_the_oracles(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    driver = Driver(tmp_path / "warehouse", connect, seed=seed)
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
    assert driver.folded > driver.checked / 5, f"{driver.folded} of {driver.checked}"
    driver.close()
