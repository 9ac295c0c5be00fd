"""What is read of history is counted, whoever reads it: answers, tasks, compaction, Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks

from ladle.archive.checks import parse_footer
from ladle.archive.footers import Footer
from ladle.engine import Database
from ladle.engine.watched import figures
from ladle.testing.inline import InlinePipeline

pytestmark = pytest.mark.not_at_one_row("Spark reads every residual there")


@pytest.fixture
def db(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Two streams with three files each, and nothing that goes on in the background."""
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    db = open_db(derived_memory_bytes_max=0, compact_files_min=3)
    db.sql(TICKS)
    db.sql("CREATE STREAM other (n INT, at TIMESTAMP) TIMESTAMP BY at")
    for first in range(0, 90, 30):
        db.push("ticks", ticks(range(first, first + 30)), wait=True)
        db.push("other", ticks(range(first, first + 30)), wait=True)
    return db


def read(db: Database) -> dict[str, int]:
    """The bytes that were read from files, by what for, but for answers in this process."""
    return {kind: size for kind, size in figures(db.parts).read_bytes.items() if kind not in ("files", "memory")}


def stored(db: Database, stream: str, *columns: str) -> int:
    """What columns of all files of a stream take on disk."""
    state = db.catalog.streams[stream]
    directory = db.path / "streams" / str(state.id) / "archive"
    footers = [Footer(parse_footer(directory / file.name, file.checks)) for file in state.files]
    return sum(footer.bytes_of(0, columns) for footer in footers)


def test_tasks_tell_what_they_read(db: Database) -> None:
    nothing = {"compaction": 0, "backfill": 0, "joins": 0, "spark": 0}
    assert read(db) == nothing
    db.register("SELECT at FROM ticks WHERE n % 3 = 0", name="q", materialize="partial")
    db.backfill()
    assert read(db) == {**nothing, "backfill": stored(db, "ticks", "n")}
    joined = "SELECT a.n FROM ticks [RANGE 1 HOUR] a JOIN other [RANGE 1 HOUR] b ON a.n = b.n"
    db.register(joined, name="joined", materialize="partial")
    db.backfill()
    by_jobs = read(db)["joins"]
    # A worker keeps the rows of the files that it probed last, so no file is read twice.
    assert by_jobs == stored(db, "ticks", "n", "at") + stored(db, "other", "n", "at")
    db.push("ticks", ticks(range(90, 95)), wait=True)
    assert read(db)["joins"] > by_jobs


def test_compaction_tells_what_it_reads(db: Database) -> None:
    whole = stored(db, "ticks", "n", "at") + stored(db, "other", "n", "at")
    db.maintain()
    assert read(db)["compaction"] == whole


def test_what_spark_reads_is_what_it_is_asked_for(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_residual(*_: Any) -> pa.Table:
        return pa.table({"s": ["x"]})

    monkeypatch.setattr(InlinePipeline, "run_residual", run_residual)
    db.sql("SELECT soundex('x') AS s, at FROM ticks WHERE n % 3 = 0")
    whole = read(db)["spark"]
    assert whole == stored(db, "ticks", "n", "at")
    db.sql("SELECT soundex('x') AS s, n FROM ticks WHERE n > 60")
    third = read(db)["spark"] - whole
    assert 0 < third < stored(db, "ticks", "n") / 2
    db.sql("SELECT soundex('x') AS s, n FROM ticks [RANGE 1 HOUR]")
    assert read(db)["spark"] == whole + third + whole
