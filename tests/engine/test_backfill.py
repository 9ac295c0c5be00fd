"""Backfill: new queries meet old data, sharing one scan, newest data first, in small jobs."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values
from tests.waiting import wait_until

from ladle.engine import Database
from ladle.ingest.backfill import Pace
from ladle.stem.backfill_kernel import BackfillTask

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")


@pytest.fixture
def jobs(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> tuple[Database, list[list[BackfillTask]]]:
    """A database whose backfill runs only when asked, and the jobs it ran."""
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    db = open_db(backfill_rows_max=10)
    ran: list[list[BackfillTask]] = []
    run = db._pipeline.run_backfill

    def noted(tasks: Sequence[BackfillTask]) -> object:
        ran.append(list(tasks))
        return run(tasks)

    monkeypatch.setattr(db._pipeline, "run_backfill", noted)
    db.sql(TICKS)
    return db, ran


Jobs = tuple[Database, list[list[BackfillTask]]]


def test_all_that_wait_share_one_scan(jobs: Jobs) -> None:
    db, ran = jobs
    db.push("ticks", ticks(range(10)), wait=True)
    for n in range(20):
        db.register(f"SELECT n FROM ticks WHERE n > {n}", name=f"q{n}")
    assert values(db.invoke("q8")) == [9], "right before anything is covered"
    assert db.backfill() == 1
    assert [len(tasks) for tasks in ran] == [1]
    assert all(status.coverage == 1.0 for status in db.status().queries)
    assert len(list((db.path / "derived" / "querysets").iterdir())) == 1
    assert values(db.invoke("q8")) == [9]
    assert db.backfill() == 0


def test_newest_first_in_small_jobs(jobs: Jobs) -> None:
    db, ran = jobs
    for start in range(0, 40, 4):
        db.push("ticks", ticks(range(start, start + 4)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 0", name="q")
    assert db.backfill() == 5
    scanned = [task.file.name for tasks in ran for task in tasks]
    assert scanned == [file.name for file in reversed(db.catalog.streams["ticks"].files)]
    assert [len(tasks) for tasks in ran] == [2] * 5
    assert values(db.invoke("q")) == list(range(1, 40))


def test_only_what_a_window_touches(jobs: Jobs) -> None:
    db, ran = jobs
    for start in range(0, 40, 4):
        db.push("ticks", ticks(range(start, start + 4)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 0 BEGIN NOW - INTERVAL 5 SECONDS END NOW", name="q")
    db.register("SELECT n FROM ticks [ROWS 9] WHERE n > 1", name="r")
    db.backfill()
    assert len({task.file.name for tasks in ran for task in tasks}) == 3
    assert all(status.coverage == 1.0 for status in db.status().queries)


def test_it_gives_up_on_what_cannot_be_evaluated(jobs: Jobs) -> None:
    db, ran = jobs
    db.push("ticks", ticks([0, 1, 2]), wait=True)
    db.push("ticks", ticks([3, 4]), wait=True)
    db.register("SELECT n FROM ticks WHERE 10 / n > 3", name="raises")
    db.register("SELECT n FROM ticks WHERE n > 0", name="fine")
    db.backfill()
    assert db.backfill() == 0, "it would be tried for ever"
    status = {query.name: query for query in db.status().queries}
    assert (status["raises"].covered, status["raises"].segments) == (1, 2)
    assert status["raises"].error is not None
    assert status["fine"].coverage == 1.0
    assert status["fine"].error is None
    assert values(db.invoke("fine")) == [1, 2, 3, 4]
    assert len(ran) <= 2


def test_deleted_results_are_made_again(jobs: Jobs) -> None:
    db, _ = jobs
    db.push("ticks", ticks(range(5)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    assert db.backfill() == 1
    shutil.rmtree(db.path / "derived")
    assert db.status().queries[0].coverage == 0.0
    assert values(db.invoke("q")) == [2, 3, 4]
    assert db.backfill() == 1
    assert db.status().queries[0].coverage == 1.0


def test_results_deleted_in_mid_job_are_no_reason_to_give_up(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    db, _ = jobs
    db.push("ticks", ticks(range(5)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    run = db._pipeline.run_backfill

    def deleted(tasks: Sequence[BackfillTask]) -> object:
        failures = run(tasks)
        shutil.rmtree(db.path / "derived")
        return failures

    with monkeypatch.context() as patch:
        patch.setattr(db._pipeline, "run_backfill", deleted)
        assert db.backfill() == 0, "a job that got nowhere is not run again at once"
    assert db.backfill() == 1
    assert db.status().queries[0].coverage == 1.0


def test_a_query_set_that_vanished_is_not_remembered_as_empty(jobs: Jobs) -> None:
    """The query set of an epoch is deleted before the task reads it: that epoch stays uncovered, and no other."""
    db, _ = jobs
    db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    save = db._ingest.save_query_set

    def vanish(*args: object) -> object:
        (path,) = save(*args)  # type: ignore[arg-type]
        path.unlink()
        return (path,)

    db._ingest.save_query_set = vanish  # type: ignore[method-assign,assignment]
    db.push("ticks", ticks([1, 2]), wait=True)
    db._ingest.save_query_set = save  # type: ignore[method-assign]
    assert db.status().queries[0].covered == 0
    db.push("ticks", ticks([3]), wait=True)
    assert db.status().queries[0].covered == 1
    db.backfill()
    assert db.status().queries[0].coverage == 1.0
    assert values(db.invoke("q")) == [2, 3]


def test_results_of_a_file_do_not_pile_up(jobs: Jobs) -> None:
    db, _ = jobs
    db.push("ticks", ticks(range(5)), wait=True)
    for n in range(30):
        db.register(f"SELECT n FROM ticks WHERE n <> {n}", name=f"q{n}")
        db.backfill()
    assert len(list((db.path / "derived" / "results").glob("*/*.results"))) <= 8
    assert all(status.coverage == 1.0 for status in db.status().queries)
    assert values(db.invoke("q3")) == [0, 1, 2, 4]


def test_progress_is_visible(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    db, _ = jobs
    for start in range(0, 40, 10):
        db.push("ticks", ticks(range(start, start + 10)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 0", name="q")
    seen: list[tuple[int, int]] = []
    run = db._pipeline.run_backfill

    def look(tasks: Sequence[BackfillTask]) -> object:
        (progress,) = db.status().backfills
        seen.append((progress.done, progress.total))
        assert db.push("ticks", ticks([100 + len(seen)]), wait=True), "an epoch passes while a job runs"
        return run(tasks)

    monkeypatch.setattr(db._pipeline, "run_backfill", look)
    db.backfill()
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[0] == (0, 4)
    (progress,) = db.status().backfills
    assert progress.done == progress.total
    db.sql("DROP STREAM ticks CASCADE")
    db.backfill()
    assert db.status().backfills == ()


def test_jobs_are_as_long_as_epochs_can_bear() -> None:
    pace = Pace(rows=100, rows_max=1_000)
    for rows, seconds, expected in (
        (100, 0.1, 200),
        (200, 0.7, 200),
        (150, 0.4, 300),
        (20, 0.1, 300),
        (300, 0.1, 600),
        (600, 0.1, 1_000),
        (1_000, 3.0, 500),
        (1, 3.0, 1),
        (1, 0.1, 2),
    ):
        pace.note(rows, seconds)
        assert pace.rows == expected, (rows, seconds)


@pytest.fixture
def epoch(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An epoch is in flight until this is set, over data that a query waits for."""
    db, _ = jobs
    db.push("ticks", ticks(range(5)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    begun, land = threading.Event(), threading.Event()
    run = db._pipeline.run_pushed

    def held(*args: Any) -> object:
        begun.set()
        land.wait(20)
        return run(*args)

    monkeypatch.setattr(db._pipeline, "run_pushed", held)
    pushing = threading.Thread(target=lambda: db.push("ticks", ticks([7]), wait=True))
    pushing.start()
    assert begun.wait(20)
    yield land
    land.set()
    pushing.join(20)


def test_a_job_waits_for_the_epoch_in_flight(
    jobs: Jobs, epoch: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, ran = jobs
    await_landing = db._ingest.await_landing
    begun: list[tuple[int, int]] = []

    def land(seconds_max: float) -> None:
        epoch.set()
        await_landing(20)
        begun.append((db.catalog.epoch, len(ran)))

    monkeypatch.setattr(db._ingest, "await_landing", land)
    db.backfill()
    assert begun[0] == (2, 0), "the job began before the epoch was through"
    assert len(ran) == 1


def test_an_epoch_that_does_not_land_is_not_waited_for_for_ever(
    jobs: Jobs, epoch: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, ran = jobs
    monkeypatch.setattr("ladle.ingest.backfill._WAIT_SECONDS_MAX", 0.01)
    assert db.backfill() == 1
    assert len(ran) == 1
    assert db.catalog.epoch == 1


def test_it_runs_by_itself(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks(range(5)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    wait_until(lambda: db.status().queries[0].coverage == 1.0, "the backfill did not run")


def test_a_stream_dropped_in_mid_backfill(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    db, _ = jobs
    db.push("ticks", ticks(range(30)), wait=True)
    db.push("ticks", ticks(range(30)), wait=True)
    db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    run = db._pipeline.run_backfill
    dropped = threading.Event()

    def drop(tasks: Sequence[BackfillTask]) -> object:
        if not dropped.is_set():
            dropped.set()
            db.sql("DROP STREAM ticks CASCADE")
            db.maintain()
        return run(tasks)

    monkeypatch.setattr(db._pipeline, "run_backfill", drop)
    db.backfill()
    assert db.status().problems == {}
    db.sql(TICKS)
    db.push("ticks", [{"n": 1, "at": at(1)}], wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [1]
