"""The three modes: what each keeps, and that `complete` serves from it and stays right."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values
from tests.waiting import wait_until

from ladle.archive.scan import Scanner
from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing.one_row import at_one_row

MODES = ("none", "partial", "complete")
SLIDING = "SELECT n FROM ticks WHERE n % 2 = 0 BEGIN NOW - INTERVAL 6 SECONDS END NOW"


class Reads:
    """Counts the segments that are read from disk or cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = Scanner.columns

        def counted(*args: object, **kwargs: object) -> object:
            self.count += 1
            return read(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(Scanner, "columns", counted)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """No background work: what is kept is what invocations kept."""
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)


def results(db: Database) -> list[Path]:
    return sorted((db.path / "derived" / "results").glob("*/*.results"))


def test_what_each_mode_keeps(open_db: Open, still: None) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n > 1", name="q", materialize="none")
    db.push("ticks", ticks(range(5)), wait=True)
    assert results(db) == []
    assert db.backfill() == 0
    db.register("SELECT n FROM ticks WHERE n > 2", name="p", materialize="partial")
    assert db.backfill() == 1
    assert len(results(db)) == 1
    db.push("ticks", ticks(range(5)), wait=True)
    assert len(results(db)) == 2
    coverage = {status.name: (status.covered, status.segments) for status in db.status().queries}
    assert coverage == {"q": (0, 2), "p": (2, 2)}


def test_a_query_without_factors_needs_nothing_kept(open_db: Open, still: None) -> None:
    db = open_db()
    db.sql(TICKS)
    for mode in MODES:
        db.register("SELECT max(n) FROM ticks", name=mode, materialize=mode)
    db.push("ticks", ticks(range(5)), wait=True)
    assert db.backfill() == 0
    assert results(db) == []
    assert [values(db.invoke(mode)) for mode in MODES] == [[4]] * 3
    assert all(status.coverage == 1.0 for status in db.status().queries)


def test_complete_serves_what_it_keeps(open_db: Open, still: None, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register(SLIDING, name="q", materialize="complete")
    db.push("ticks", ticks([1, 2]), wait=True)
    db.push("ticks", ticks([3, 4]), wait=True)
    reads = Reads(monkeypatch)
    assert values(db.invoke("q")) == [2, 4]
    assert reads.count == 2
    assert values(db.invoke("q")) == [2, 4]
    assert reads.count == 2, "the answer was kept"
    db.push("ticks", ticks([6]), wait=True)
    assert values(db.invoke("q")) == [2, 4, 6]
    assert reads.count == 3, "only the new segment was read"
    db.push("ticks", ticks([9]), wait=True)
    assert values(db.invoke("q")) == [4, 6]
    assert values(db.invoke("q", now=at(4))) == [2, 4]
    assert values(db.invoke("q")) == [4, 6]


def test_complete_lets_go_of_what_left_the_window(open_db: Open, still: None) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register(SLIDING, name="q", materialize="complete")
    for second in range(0, 100, 2):
        db.push("ticks", ticks([second]), wait=True)
        assert values(db.invoke("q")) == [n for n in range(0, second + 1, 2) if n > second - 6]
    kept = db._background.kept(db.catalog.queries["q"])
    assert kept is not None
    assert len(kept._rows[0]) == 3


def test_complete_is_brought_up_to_date_in_the_background(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register(SLIDING, name="q", materialize="complete")
    epoch = db.push("ticks", ticks([2, 4]), wait=True)

    def is_kept() -> bool:
        kept = db._background.kept(db.catalog.queries["q"])
        return kept is not None and kept._answer is not None and kept._answer[0] == (db.catalog.streams["ticks"],)

    wait_until(is_kept, "the answer was not kept current")
    reads = Reads(monkeypatch)
    answer = db.invoke("q")
    assert (values(answer), answer.epoch) == ([2, 4], epoch)
    assert reads.count == 0


def test_modes_agree_whatever_happens(open_db: Open, clock: ManualClock) -> None:
    settings = {"segment_rows_max": 4, "compact_files_min": 2, "grace_seconds": 0.0}
    db = open_db(**settings)
    db.sql(f"{TICKS} RETAIN INTERVAL 20 SECONDS")
    db.sql("CREATE STREAM wall (n INT) RETAIN INTERVAL 20 SECONDS")
    texts = {
        "rows": "SELECT n FROM ticks [ROWS 5] WHERE n % 3 > 0",
        "slide": SLIDING,
        "group": "SELECT n % 2 AS odd, count(*) AS c FROM ticks [RANGE 9 SECONDS] GROUP BY n % 2 ORDER BY odd",
        "all": "SELECT n FROM ticks WHERE n > 3",
        "wall": "SELECT n FROM wall WHERE n % 2 = 0 BEGIN NOW - INTERVAL 7 SECONDS END NOW",
        "wall_all": "SELECT count(*) FROM wall",
        "bad": "SELECT count(*) FROM ticks.quarantine",
    }
    for name, text in texts.items():
        for mode in MODES:
            db.register(text, name=f"{name}_{mode}", materialize=mode)
    seconds = range(0, at_one_row(9, 60), 3)
    for second in seconds:
        clock.advance(3_000_000)
        db.push("ticks", [*ticks([second, second - 2]), {"n": "x", "at": at(second)}], wait=True)
        db.push("wall", [{"n": second}], wait=True)
        match second % 4:
            case 0:
                db.maintain()
            case 1:
                db.backfill()
            case 2:
                shutil.rmtree(db.path / "derived", ignore_errors=True)
            case 3 if second % 5 == 0:
                db.close()
                db = open_db(**settings)
        for name in texts:
            answers = {mode: db.invoke(f"{name}_{mode}").to_pylist() for mode in MODES}
            assert answers["none"] == answers["partial"] == answers["complete"], (second, name)
            again = db.invoke(f"{name}_complete").to_pylist()
            assert again == answers["none"], (second, name)
    visible = [n for second in seconds for n in (second, second - 2) if n > max(3, seconds[-1] - 20)]
    assert values(db.invoke("all_complete")) == visible


def test_derived_files_vanish_while_queries_are_asked(open_db: Open) -> None:
    db = open_db(maintenance_seconds=0.02, compact_files_min=3, grace_seconds=0.0)
    db.sql(TICKS)
    for mode in MODES:
        db.register("SELECT n FROM ticks WHERE n % 2 = 0", name=mode, materialize=mode)
    for second in range(60):
        db.push("ticks", ticks([second]), wait=True)
        if second % 3 == 0:
            shutil.rmtree(db.path / "derived", ignore_errors=True)
        for mode in MODES:
            assert values(db.invoke(mode)) == list(range(0, second + 1, 2))
    assert db.status().problems == {}


@pytest.mark.parametrize("damage", [b"", b"garbage", b"ARROW1\x00\x00" + b"\xff" * 200])
def test_broken_results_are_computed_instead(open_db: Open, still: None, damage: bytes) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n % 2 = 0", name="q")
    db.push("ticks", ticks(range(6)), wait=True)
    (path,) = results(db)
    path.write_bytes(damage)
    db.close()
    db = open_db()
    assert values(db.invoke("q")) == [0, 2, 4]
    db.backfill()
    db.maintain()
    assert values(db.invoke("q")) == [0, 2, 4]
    assert db.status().queries[0].coverage == 1.0
    assert path not in results(db)


def test_half_a_results_file(open_db: Open, still: None) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n % 2 = 0", name="q")
    db.push("ticks", ticks(range(6)), wait=True)
    (path,) = results(db)
    whole = path.read_bytes()
    db.close()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        reader = open_db(read_only=True)
        assert values(reader.invoke("q")) == [0, 2, 4]
        reader.close()


def test_the_same_answer_object_is_not_shared_by_accident(open_db: Open, still: None) -> None:
    """What is kept is immutable: an answer given out earlier does not change under its owner."""
    db = open_db()
    db.sql(TICKS)
    db.register(SLIDING, name="q", materialize="complete")
    db.push("ticks", ticks([2]), wait=True)
    first = db.invoke("q")
    db.push("ticks", ticks([4]), wait=True)
    second = db.invoke("q")
    assert (values(first), values(second)) == ([2], [2, 4])
