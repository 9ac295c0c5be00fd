"""Mode auto: what is kept follows how a query is asked, and no answer depends on it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.conftest import Open

from ladle.clock import ManualClock
from ladle.engine import Database

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")

SECOND = 1_000_000
QUERY = "SELECT n FROM s WHERE n > 1 BEGIN NOW - INTERVAL 1 DAY END NOW"


@pytest.fixture
def auto(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> Database:
    """No background work: tests say when a beat is."""
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    db = open_db(auto_idle_seconds=100.0)
    db.sql("CREATE STREAM s (n BIGINT)")
    db.register(QUERY, name="q")
    return db


def push(db: Database, *numbers: int) -> None:
    db.push("s", [{"n": n} for n in numbers], wait=True)


def mode(db: Database) -> str:
    (query,) = db.status().queries
    assert query.materialize == "auto"
    return query.mode


def numbers(db: Database) -> list[Any]:
    return db.invoke("q").table.column("n").to_pylist()


def beat(db: Database) -> None:
    db._demands.look()


def test_auto_is_the_default_and_begins_with_results_per_segment(auto: Database) -> None:
    push(auto, 1, 2, 3)
    assert mode(auto) == "partial"
    (query,) = auto.status().queries
    assert query.covered == 1
    assert "auto: partial now, because it is new: results kept per segment" in auto.explain("q")
    assert numbers(auto) == [2, 3]
    assert auto.query("q").materialize == "auto"


def test_asked_once_is_told_without_a_ratio(auto: Database, clock: ManualClock) -> None:
    push(auto, 1, 2)
    clock.advance(90 * SECOND)
    beat(auto)
    numbers(auto)
    clock.advance(10 * SECOND)
    assert "auto: partial now, because it was asked once or so lately: results" in auto.explain("q")


def test_a_query_that_nobody_asks_is_swapped_out_and_back(auto: Database, clock: ManualClock) -> None:
    push(auto, 1, 2)
    beat(auto)
    clock.advance(101 * SECOND)
    beat(auto)
    assert mode(auto) == "none"
    assert "because nobody asked for it since" in auto.explain("q")
    push(auto, 3)
    assert auto.status().queries[0].covered == 1, "nothing was computed for the second file"
    assert auto.backfill() == 0, "and the backfill leaves it alone"
    assert numbers(auto) == [2, 3], "the answer is right all the same"
    assert mode(auto) == "partial"
    push(auto, 4)
    assert auto.backfill() == 1
    assert auto.status().queries[0].coverage == 1.0
    assert numbers(auto) == [2, 3, 4]


def test_a_block_that_another_query_wants_stays(auto: Database, clock: ManualClock) -> None:
    auto.register("SELECT n + 1 FROM s WHERE n > 1 BEGIN NOW - INTERVAL 1 HOUR END NOW", name="other")
    beat(auto)
    clock.advance(60 * SECOND)
    auto.invoke("other")
    clock.advance(60 * SECOND)
    beat(auto)
    assert {query.name: query.mode for query in auto.status().queries} == {"q": "none", "other": "partial"}
    push(auto, 2)
    assert [query.covered for query in auto.status().queries] == [1, 1]


def test_the_choice_follows_the_workload(auto: Database, clock: ManualClock) -> None:
    """Asked often between changes, the answer is kept; when changes outrun the asking, only results are."""
    push(auto, 1, 2)
    beat(auto)
    for _ in range(20):
        numbers(auto)
        clock.advance(1 * SECOND)
    beat(auto)
    assert mode(auto) == "complete"
    assert "times per change of its data: the current window's rows and answer kept current" in auto.explain("q")
    assert auto._background.kept(auto.catalog.queries["q"]) is not None
    for n in range(200):
        push(auto, n)
        clock.advance(1 * SECOND)
        if n % 50 == 0:
            numbers(auto)
        beat(auto)
    assert mode(auto) == "partial"
    assert numbers(auto) == [2, *range(2, 200)]


def test_a_large_answer_is_not_kept(open_db: Open, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    db = open_db(derived_memory_bytes_max=10_000)
    db.sql("CREATE STREAM s (n BIGINT)")
    db.register(QUERY, name="q")
    push(db, *range(1_000))
    for _ in range(20):
        numbers(db)
    beat(db)
    assert mode(db) == "partial"


def test_results_stay_within_their_bytes(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    db = open_db(derived_disk_bytes_max=4_000)
    db.sql("CREATE STREAM s (n BIGINT)")
    db.register_many({f"q{i}": f"SELECT n FROM s WHERE n % 100 > {i}" for i in range(20)})
    for _ in range(10):
        push(db, *range(500))
    beat(db)
    for i in range(10, 20):
        db.invoke(f"q{i}")
    db.maintain()
    results = list((db.path / "derived" / "results").glob("*/*.results"))
    assert sum(path.stat().st_size for path in results) <= 4_000
    modes = {query.name: query.mode for query in db.status().queries}
    assert modes["q0"] == "none", "those asked longest ago go first"
    assert len(db.invoke("q19").table) == 10 * 5 * 80
    assert "clean-up" not in db.status().problems


def test_without_a_query_that_may_be_swapped_out_too_many_results_are_a_problem(open_db: Open) -> None:
    db = open_db(derived_disk_bytes_max=1)
    db.sql("CREATE STREAM s (n BIGINT)")
    db.register(QUERY, name="q", materialize="partial")
    push(db, 1, 2)
    db.maintain()
    assert "derived_disk_bytes_max" in db.status().problems["clean-up"]
    assert numbers(db) == [2]
