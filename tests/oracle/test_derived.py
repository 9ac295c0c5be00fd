"""Derived state may vanish at any moment: no answer changes, and no action fails."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline
from ladle.testing.driver import MODES, Driver
from ladle.testing.one_row import at_one_row

# a background thread that dies would go unnoticed here: answers are right without it
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def connect(path: Path, clock: ManualClock, settings: dict[str, Any]) -> Database:
    return connect_inline(path, clock=clock, settings=settings)


ROUNDS = at_one_row(2, 12)


@pytest.mark.parametrize("seed", range(at_one_row(1, 5)))
def test_deleting_derived_files_changes_no_answer(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    driver = Driver(tmp_path / "warehouse", connect, seed=seed)
    driver.create_stream(seed)
    driver.create_stream(seed + 100)
    for number in range(8):
        driver.push(rng.randrange(10_000), rng.randint(5, 40))
        driver.register(rng.randrange(10_000), rng.randint(0, 3), MODES[number % 3])
    driver.backfill()
    driver.check()
    for _ in range(ROUNDS):
        # deleted before, between and after whatever else the warehouse is doing
        driver.delete_derived(rng.randrange(10_000))
        act = rng.choice((driver.maintain, driver.backfill, lambda: driver.restart(rng.randrange(10_000)), None))
        if act is None:
            driver.push(rng.randrange(10_000), rng.randint(1, 20))
        else:
            act()
        driver.delete_derived(rng.randrange(10_000))
        driver.check()
    driver.check_catalog()
    assert driver.checked >= 8 * ROUNDS - driver.unanswered
    driver.close()


def test_derived_files_vanish_under_running_work(tmp_path: Path) -> None:
    """Deleted by another thread in the midst of epochs, backfills and compactions."""
    driver = Driver(tmp_path / "warehouse", connect, seed=5)
    driver.create_stream(4)
    stop = threading.Event()

    def delete() -> None:
        while not stop.wait(0.001):
            for entry in (tmp_path / "warehouse" / "derived").iterdir():
                shutil.rmtree(entry, ignore_errors=True)

    deleting = threading.Thread(target=delete)
    deleting.start()
    try:
        for number in range(at_one_row(3, 15)):
            driver.push(number, 20)
            driver.register(number, number % 4, MODES[number % 3])
            driver.backfill()
            if number % 5 == 4:
                driver.maintain()
            driver.check(limit=3)
    finally:
        stop.set()
        deleting.join()
    driver.check()
    driver.close()


def test_there_is_derived_state_to_delete(tmp_path: Path) -> None:
    """The tests above would prove nothing if results were kept elsewhere, or nowhere."""
    db = connect(tmp_path / "warehouse", ManualClock(), {})
    db.sql("CREATE STREAM s (a INT)")
    db.register("SELECT a FROM s WHERE a > 1", name="q")
    db.push("s", [{"a": 1}, {"a": 2}], wait=True)
    db.backfill()
    assert [file for file in (tmp_path / "warehouse" / "derived").rglob("*") if file.is_file()]
    assert db.query("q").invoke().table.to_pylist() == [{"a": 2}]
    db.close()
