"""One query can't harm another, nor an epoch: expressions that raise, that take too long, and complete queries so."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values
from tests.support.pauses import backfill_stopped
from tests.waiting import wait_until

from ladle.engine import Database
from ladle.errors import EvaluationError, InvocationTimeout, LadleError
from ladle.evaluate import duck
from ladle.interrupt import in_main_thread

RAISES = "SELECT n FROM ticks WHERE 10 / n > 3"
DIGEST = "word"
for _ in range(5):
    DIGEST = f"md5(repeat({DIGEST}, 1000))"
SLOW_FACTOR = f"length({DIGEST}) > 0"
SLOW_ROWS = 60_000


def words(first: int, rows: int = SLOW_ROWS) -> pa.Table:
    """Rows on which SLOW_FACTOR takes ten seconds or more: its limits here are a tenth of that."""
    moments = pa.array(range(first, first + rows), pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"n": list(range(first, first + rows)), "word": ["0123456789"] * rows, "at": moments})


@pytest.mark.parametrize("mode", ["none", "partial", "complete"])
def test_an_expression_that_raises(db: Database, mode: str) -> None:
    db.sql(TICKS)
    db.register(RAISES, name="raises", materialize=mode)
    db.register("SELECT n FROM ticks WHERE n > 1", name="fine", materialize=mode)
    db.push("ticks", ticks([1, 2]), wait=True)
    assert values(db.invoke("raises")) == [1, 2]
    assert db.push("ticks", ticks([0, 3, 5]), wait=True) == 2, "the epoch goes on"
    db.backfill()
    assert values(db.invoke("fine")) == [2, 3, 5]
    with pytest.raises(EvaluationError) as raised:
        db.invoke("raises")
    assert "zero" in raised.value.message.lower()
    status = {query.name: query for query in db.status().queries}
    assert status["fine"].error is None
    if mode != "none":
        assert status["fine"].coverage == 1.0
        assert status["raises"].error is not None
        assert (status["raises"].covered, status["raises"].segments) == (1, 2)
        assert "problem" in db.explain("raises")
        assert "uncovered" in db.explain("raises")
    # Outside the window what raises is not looked at.
    inside = "SELECT n FROM ticks WHERE 10 / n > 3 BEGIN TIMESTAMP '2023-11-14 12:00:00' END NOW"
    assert values(db.sql(inside)) == [1, 2, 3]
    db.unregister("raises")
    db.maintain()
    assert all(query.error is None for query in db.status().queries)
    assert db.status().problems == {}


def test_a_window_that_leaves_the_raising_tuple_behind(db: Database) -> None:
    db.sql(TICKS)
    for mode in ("none", "partial", "complete"):
        db.register(f"{RAISES} BEGIN NOW - INTERVAL 5 SECONDS END NOW", name=mode, materialize=mode)
    db.push("ticks", ticks([0, 1]), wait=True)
    for mode in ("none", "partial", "complete"):
        with pytest.raises(EvaluationError):
            db.invoke(mode)
    db.push("ticks", [{"n": 2, "at": at(5.5)}], wait=True)
    for mode in ("none", "partial", "complete"):
        assert values(db.invoke(mode)) == [1, 2], mode


def test_a_guard_before_what_raises(db: Database) -> None:
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n <> 0 AND 10 / n > 3", name="guarded")
    db.push("ticks", ticks([0, 1, 2, 9]), wait=True)
    db.backfill()
    assert values(db.invoke("guarded")) == [1, 2]
    assert db.status().queries[0].error is None


def test_a_residual_that_raises(db: Database) -> None:
    db.sql(TICKS)
    for mode in ("none", "partial", "complete"):
        db.register("SELECT 10 / n AS x FROM ticks", name=mode, materialize=mode)
    db.push("ticks", ticks([0, 1]), wait=True)
    for mode in ("none", "partial", "complete"):
        with pytest.raises(EvaluationError):
            db.invoke(mode)
    db.push("ticks", ticks([2]), wait=True)
    assert len(db.sql("SELECT n FROM ticks")) == 3


def test_an_expression_that_takes_long(open_db: Open) -> None:
    """Neither an epoch nor another query waits for it, whether it gets on within its budget or not at all."""
    db = open_db(factor_seconds_max=1.0, invoke_seconds_max=1.0)
    db.sql("CREATE STREAM s (n INT, word STRING, at TIMESTAMP) TIMESTAMP BY at")
    db.register(f"SELECT n FROM s WHERE {SLOW_FACTOR}", name="slow")
    db.register("SELECT n FROM s WHERE n % 10000 = 7", name="fine")
    with backfill_stopped(db):
        for epoch in (1, 2):
            db.push("s", words((epoch - 1) * SLOW_ROWS), wait=True)
            status = {query.name: query for query in db.status().queries}
            assert (status["fine"].coverage, status["slow"].covered) == (1.0, 0)
            assert "longer than" in (status["slow"].error or "longer than"), "no trouble while it gets on"
            assert values(db.invoke("fine")) == list(range(7, epoch * SLOW_ROWS, 10_000))
        with pytest.raises(LadleError, match="longer than"):
            db.invoke("slow")
        db.maintain()
        assert len(db.invoke("fine")) == 12
        db.unregister("slow")
        db.maintain()
        assert db.status().problems == {}


@pytest.mark.not_at_one_row("its time limit is shorter than a Spark job")
def test_a_complete_query_that_does_not_end(open_db: Open) -> None:
    db = open_db(invoke_seconds_max=1.0)
    db.sql("CREATE STREAM s (n INT, word STRING, at TIMESTAMP) TIMESTAMP BY at")
    db.register(f"SELECT sum(CASE WHEN {SLOW_FACTOR} THEN 1 END) AS x FROM s", name="slow", materialize="complete")
    db.register("SELECT count(*) AS c FROM s", name="fine", materialize="complete")
    db.push("s", words(0), wait=True)
    slow = db._background.kept(db.catalog.queries["slow"])
    assert slow is not None
    wait_until(lambda: slow.too_slow, "the background goes on trying")
    assert values(db.invoke("fine")) == [SLOW_ROWS]
    with pytest.raises(InvocationTimeout):
        db.invoke("slow")


def test_a_thread_that_meets_a_bug_goes_on(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Housekeeping and background work serve everybody: an error nobody thought of is told and tried again."""
    db = open_db(maintenance_seconds=0.02, compact_files_min=2)
    db.sql(TICKS)
    with monkeypatch.context() as patch:
        patch.setattr("ladle.housekeeping.maintenance.compact", lambda *_, **__: 1 / 0)
        patch.setattr("ladle.ingest.backfill.needed_files", lambda *_: 1 / 0)
        for second in range(3):
            db.push("ticks", ticks([second]), wait=True)
        wait_until(lambda: "compaction" in db.status().problems, "the problem is not shown")
        assert "zero" in db.status().problems["compaction"]
    db.register("SELECT n FROM ticks WHERE n > 0", name="q")
    wait_until(lambda: db.status().problems == {}, "the problem stays")
    wait_until(lambda: len(db.catalog.streams["ticks"].files) < 3, "compaction does not go on")
    wait_until(lambda: db.status().queries[0].coverage == 1.0, "the backfill does not go on")


def test_a_limit_that_passes_as_the_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(work: Callable[[], pa.Table], cancel: Callable[[], None], **_: object) -> pa.Table:
        """The wait was over just before the work is, and what comes next just after."""
        found = work()
        cancel()
        return found

    monkeypatch.setattr(duck, "run_apart", late)
    for _ in range(2):  # the statement after it has nothing of that
        assert duck.run("SELECT 1 AS x", {}, seconds_max=1.0).to_pylist() == [{"x": 1}]


def test_nothing_of_duckdb_runs_in_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it would look for Ctrl-C itself, and raise RuntimeError; also while its settings are made."""
    open_one, opened_by = duck._open, []

    def noted(limits: duck._Limits) -> duck._Opened:
        opened_by.append(in_main_thread())
        return open_one(limits)

    monkeypatch.setattr(duck, "_open", noted)
    one_of_its_own = (200 << 20) + 1  # no statement before it had this limit
    assert in_main_thread()
    assert duck.run("SELECT 1 AS x", {}, memory_bytes_max=one_of_its_own).to_pylist() == [{"x": 1}]
    assert opened_by == [False]
