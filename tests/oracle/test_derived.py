"""Derived state may vanish at any moment: no answer changes, and no action fails."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.driver import MODES, Driver
from tests.support.join_queries import MODES as JOIN_MODES
from tests.support.joins import JoinDriver
from tests.waiting import wait_until

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline
from ladle.testing.one_row import AT_ONE_ROW, at_one_row

# a background thread that dies would go unnoticed here: answers are right without it
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def connect(path: Path, clock: ManualClock, settings: dict[str, Any]) -> Database:
    return connect_inline(path, clock=clock, settings=settings)


def within(memory: int, disk: int) -> Callable[[Path, ManualClock, dict[str, Any]], Database]:
    """Connects with these budgets; housekeeping comes only when it is called."""
    budgets = {"derived_memory_bytes_max": memory, "derived_disk_bytes_max": disk, "maintenance_seconds": 3_600.0}
    return lambda path, clock, settings: connect(path, clock, settings | budgets)


def check_budgets(db: Database) -> None:
    """After a round no place is over its budget; what threads keep just now is given a moment."""
    wait_until(lambda: sum(row.memory_bytes for row in db.derived()) <= db.settings.derived_memory_bytes_max, "memory")
    assert sum(row.disk_bytes for row in db.derived()) <= db.settings.derived_disk_bytes_max


def evictions(db: Database) -> Counter[str]:
    return Counter({row.kind: row.evictions for row in db.derived()})


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


def test_everything_is_dropped_under_running_work(tmp_path: Path) -> None:
    """Another thread drops things of all kinds, as rounds do, in the midst of answers, epochs and backfills."""
    driver = Driver(tmp_path / "warehouse", within(1 << 30, 1 << 30), seed=6)
    driver.create_stream(4)
    stop, rng = threading.Event(), random.Random(6)
    dropped = Counter[str]()

    def drop() -> None:
        while not stop.wait(0.002):
            for kind in driver.db._store.derived.kinds:
                things = list(kind.things())
                freed = kind.drop(rng.sample(things, rng.randint(0, len(things))))
                dropped[kind.name] += freed > 0

    dropping = threading.Thread(target=drop)
    dropping.start()
    try:
        for number in range(at_one_row(3, 10)):
            driver.push(number, 20)
            driver.register(number, number % 4, ("auto", *MODES)[number % 4])
            driver.register_folding(number, "auto")
            driver.db._backfill.round()  # to the end it would never come
            if number % 5 == 4:
                driver.maintain()
            driver.check(limit=4)
    finally:
        stop.set()
        dropping.join()
    driver.check()
    assert {"cache", "results"} <= {kind for kind, times in dropped.items() if times}
    driver.close()


BUDGETS = ((0, 1), (3_000, 2_000), (20_000, 10_000))


@pytest.mark.parametrize(("memory", "disk"), BUDGETS)
def test_tiny_budgets_change_no_answer(tmp_path: Path, memory: int, disk: int) -> None:
    rng = random.Random(memory)
    driver = Driver(tmp_path / "warehouse", within(memory, disk), seed=memory)
    driver.create_stream(1)
    driver.create_stream(2)
    evicted = Counter[str]()
    for number in range(at_one_row(4, 12)):
        driver.push(rng.randrange(10_000), rng.randint(5, 40))
        driver.register(rng.randrange(10_000), rng.randint(0, 3), ("auto", *MODES)[number % 4])
        driver.register_folding(rng.randrange(10_000), "auto")
        match number % 6:
            case 1:
                driver.backfill()
            case 3:
                evicted += evictions(driver.db)
                driver.restart(rng.randrange(10_000))
            case 4:
                driver.delete_derived(rng.randrange(10_000))
        driver.check(limit=6)
        driver.maintain()
        check_budgets(driver.db)
        driver.check(limit=6)
    driver.check()
    evicted += evictions(driver.db)
    assert AT_ONE_ROW or evicted["results"] + evicted["query sets"] > 0
    assert AT_ONE_ROW or memory in (0, 20_000) or evicted["cache"] + evicted["aggregates"] > 0
    driver.close()


@pytest.mark.parametrize(("memory", "disk"), BUDGETS)
def test_tiny_budgets_change_no_join(tmp_path: Path, memory: int, disk: int) -> None:
    rng = random.Random(memory)
    driver = JoinDriver(tmp_path / "warehouse", within(memory, disk), seed=3)
    evicted = Counter[str]()
    for number in range(at_one_row(3, 8)):
        driver.push(rng.randrange(10_000), rng.randint(5, 20))
        if number < 6:
            driver.register(rng.randrange(10_000), ("auto", *JOIN_MODES)[number % (1 + len(JOIN_MODES))])
        driver.db.backfill()
        if number % 4 == 2:
            evicted += evictions(driver.db)
            driver.restart(rng.randrange(10_000))
        driver.db.maintain()
        check_budgets(driver.db)
        driver.check()
    evicted += evictions(driver.db)
    assert AT_ONE_ROW or disk == 10_000 or evicted["results"] + evicted["pairs"] > 0
    driver.close()


def test_the_budget_of_disk_holds_across_restarts(tmp_path: Path) -> None:
    """Files that another process left are held to the budget too; with more room they are made anew."""
    path, clock = tmp_path / "warehouse", ManualClock()

    def files() -> list[int]:
        return [file.stat().st_size for file in (path / "derived" / "results").glob("*/*.results")]

    db = within(1 << 20, 1 << 20)(path, clock, {"segment_rows_max": 64})
    db.sql("CREATE STREAM s (a INT)")
    db.register_many({f"q{n}": f"SELECT a FROM s WHERE a % 7 = {n}" for n in range(5)}, materialize="partial")
    for _ in range(8):
        db.push("s", [{"a": n} for n in range(200)], wait=True)
    db.maintain()
    before = sum(files())
    db.close()
    budget = before // 3
    db = within(1 << 20, budget)(path, clock, {})
    db.maintain()
    assert 0 < sum(files()) <= budget
    assert AT_ONE_ROW or evictions(db)["results"] > 0
    # Explicit modes can't be lowered: what was dropped is not made anew, only to be dropped again.
    assert db.backfill() == 0
    assert "derived_disk_bytes_max" in db.status().problems["clean-up"]
    assert [len(db.invoke(f"q{n}")) for n in range(5)] == [8 * len(range(n, 200, 7)) for n in range(5)]
    db.close()
    db = within(1 << 20, 1 << 20)(path, clock, {})
    db.backfill()
    db.maintain()
    assert budget < sum(files())
    assert all(query.coverage == 1.0 for query in db.status().queries)
    assert [len(db.invoke(f"q{n}")) for n in range(5)] == [8 * len(range(n, 200, 7)) for n in range(5)]
    db.close()


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
