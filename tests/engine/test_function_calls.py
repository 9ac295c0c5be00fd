"""How often a user's function is called: once for each tuple, whatever happens to the files (decision 23)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values
from tests.support.pauses import backfill_stopped

from ladle.clock import ManualClock
from ladle.eddy import Account
from ladle.engine import Database
from ladle.ingest.troubles import Troubles
from ladle.stem.blocks import NO_BLOCKS, BlockSet, candidates

pytestmark = pytest.mark.not_at_one_row("it computes no residual")


class Counted:
    """A function that writes down what it is asked, and is true of odd numbers."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "asked"
        self._file.touch()

    def create(self, db: Database) -> None:
        lines = [
            "def counted(n):",
            f"    with open({str(self._file)!r}, 'a') as file:",
            "        file.write(''.join(f'{each}\\n' for each in n.to_pylist()))",
            "    return pc.equal(pc.bit_wise_and(n, 1), 1)",
        ]
        db.create_function("\n".join(lines) + "\n", arguments=["INT"], returns="BOOLEAN", replace=True)

    def forget(self) -> None:
        self._file.write_text("")

    @property
    def asked(self) -> list[int]:
        """The numbers that it was asked, in order of the numbers."""
        return sorted(map(int, self._file.read_text().split()))


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def test_compaction_and_the_joining_of_results_call_nothing(open_db: Open, counted: Counted) -> None:
    db = open_db(compact_files_min=4)
    db.sql(TICKS)
    counted.create(db)
    db.register("SELECT n FROM ticks WHERE counted(n)", name="q", materialize="partial")
    db.register("SELECT n FROM ticks WHERE n > 10", name="plain", materialize="partial")
    for first in range(0, 160, 10):
        db.push("ticks", ticks(range(first, first + 10)), wait=True)
    assert counted.asked == list(range(160))
    db.maintain()
    db.maintain()
    assert len(db.catalog.streams["ticks"].files) == 1
    assert all(query.coverage == 1.0 for query in db.status().queries), "before any backfill"
    assert values(db.invoke("q")) == list(range(1, 160, 2))
    assert values(db.invoke("plain")) == list(range(11, 160))
    # Each new query adds a results file; many are made one.
    for limit in range(20):
        db.register(f"SELECT n FROM ticks WHERE n > {limit}", name=f"q{limit}", materialize="partial")
        db.backfill()
    (file,) = db.catalog.streams["ticks"].files
    assert len(db._store.coverage(db.catalog.streams["ticks"]).names(file.name)) < 10
    assert values(db.invoke("q")) == list(range(1, 160, 2))
    db.close()
    db = open_db()
    assert values(db.invoke("q")) == list(range(1, 160, 2))
    assert counted.asked == list(range(160))


def postpone(db: Database, query: str) -> int:
    """Let the eddy know that the function of a join's left side is dear and that few tuples have partners, so that it
    is called for those alone; the block that has it."""
    plan = db.catalog.queries[query].plan
    assert plan.joined is not None
    (edge,) = plan.joined.joins[0].edges
    (factor,) = plan.scans[0].block.calling
    selective = Account(1e6, 1e6, 9.9e5, 1.0, 1.0)
    operators = {edge.pair.operator(left=left): selective for left in (True, False)}
    for stream in plan.streams:
        db._ingest._tickets[db.catalog.streams[stream].id] = {factor.sql: Account(1e6, 1e6, 5e5, 1e3), **operators}
    return db.catalog.queries[query].blocks[0]


TINY = 1e-9
"""A budget with which a function is asked one slice."""


def test_what_an_epoch_leaves_the_backfill_does_and_nothing_twice(open_db: Open, counted: Counted) -> None:
    db = open_db(functions_epoch_seconds_max=TINY, compact_files_min=4)
    db.sql(TICKS)
    counted.create(db)
    db.register("SELECT n FROM ticks WHERE counted(n)", name="q", materialize="partial")
    db.register("SELECT n FROM ticks WHERE counted(n) AND n >= 1000", name="half", materialize="partial")
    db.register("SELECT n FROM ticks WHERE n > 10", name="plain", materialize="partial")
    expected = list(range(1, 2_000, 2))
    with backfill_stopped(db):
        db.push("ticks", ticks(range(2_000)), wait=True)
        by_epoch = counted.asked
        assert 0 < len(by_epoch) < 2_000, "a share of it"
        status = {query.name: query for query in db.status().queries}
        assert (status["plain"].coverage, status["q"].coverage) == (1.0, 0.0)
        assert (status["q"].error, status["half"].error) == (None, None), "it is no failure to have no time"
        assert values(db.invoke("q")) == expected
        rest = sorted(set(range(2_000)) - set(by_epoch))
        assert counted.asked == sorted([*by_epoch, *rest]), "an answer asks what is not known yet"
        counted.forget()
        for first in (2_000, 2_010, 2_020):
            db.push("ticks", ticks(range(first, first + 10)), wait=True)
        counted.forget()
        db.maintain()
        assert len(db.catalog.streams["ticks"].files) == 1, "compacted before all was said"
        assert counted.asked == []
        db.close()
    db = open_db()
    db.backfill()
    assert counted.asked == rest, "what was said before the restart and compaction is not asked again"
    assert all(query.coverage == 1.0 for query in db.status().queries)
    counted.forget()
    assert values(db.invoke("q")) == list(range(1, 2_030, 2))
    assert values(db.invoke("half")) == list(range(1_001, 2_030, 2))
    db.maintain()
    assert counted.asked == []
    assert not list((db.path / "derived").rglob("*.masks"))


@pytest.mark.not_at_one_row("its place is chosen when tuples arrive")
def test_pairs_and_what_functions_said_of_them_move_too(open_db: Open, counted: Counted) -> None:
    db = open_db(compact_files_min=4)
    db.sql("CREATE STREAM r (n INT, k INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 1 DAY")
    db.sql("CREATE STREAM s (k INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 1 DAY")
    counted.create(db)
    text = "SELECT r.n FROM r, s WHERE r.k = s.k AND counted(r.n)"
    db.register(text, name="q", materialize="partial")
    own = "SELECT a.n, b.n AS m FROM r a, r b WHERE a.k = b.n AND a.k < 20"
    db.register(own, name="own", materialize="partial")
    block = postpone(db, "q")
    for first in range(0, 160, 20):
        keys = (first + 1, first + 2)
        db.push("s", [{"k": k, "at": at(first + 19)} for k in keys], wait=True)
        db.push("r", [{"n": n, "k": n, "at": at(n)} for n in range(first, first + 20)], wait=True)
    stream = db.catalog.streams["r"]
    assert all(candidates(block) in db._store.coverage(stream).covered(file.name) for file in stream.files)
    db.backfill()
    partnered = [n for first in range(0, 160, 20) for n in (first + 1, first + 2)]
    expected = [n for n in partnered if n % 2]
    assert sorted(values(db.invoke("q"))) == expected
    assert counted.asked == partnered
    pairs = sorted((row["n"], row["m"]) for row in db.invoke("own").to_pylist())
    db.maintain()
    assert [len(db.catalog.streams[name].files) for name in ("r", "s")] == [2, 2]
    found = db._invoker.joins.found
    assert sorted(values(db.invoke("q"))) == expected
    assert sorted((row["n"], row["m"]) for row in db.invoke("own").to_pylist()) == pairs
    assert db._invoker.joins.found == found, "pairs of files were joined anew"
    assert db.backfill() == 0, "nothing is left to find"
    assert counted.asked == partnered


def test_one_that_is_very_slow_gets_on_and_harms_no_epoch(open_db: Open, clock: ManualClock) -> None:
    """A slice of it takes longer than may be: slices become smaller, to one tuple at a time."""
    db = open_db(factor_seconds_max=0.1, functions_epoch_seconds_max=0.1)
    db.sql(TICKS)
    source = "def slow(n):\n    import time\n    time.sleep(0.03 * len(n))\n    return pc.equal(n, 3)\n"
    db.create_function(source, arguments=["INT"], returns="BOOLEAN")
    db.register("SELECT n FROM ticks WHERE slow(n)", name="q", materialize="partial")
    with backfill_stopped(db):
        db.push("ticks", ticks(range(20)), wait=True)
        assert db.status().queries[0].coverage == 0.0, "the epoch did not wait for it"
    for _ in range(5):
        clock.advance(600_000_000)
        db.backfill()
    assert db.status().queries[0].coverage == 1.0
    assert values(db.invoke("q")) == [3]
    assert db.status().queries[0].error is None


def test_two_that_are_dear_get_on_together(open_db: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither has the time for a whole file in one job: what the one said is kept while the other is not done."""
    monkeypatch.setattr("ladle.ingest.backfill._JOB_SECONDS_MAX", 0.1)
    db = open_db(functions_epoch_seconds_max=TINY)
    db.sql(TICKS)
    for name in ("f", "g"):
        lines = [
            f"def {name}(n):",
            "    import time",
            "    time.sleep(0.0005 * len(n))",
            "    return pc.greater(n, -1)",
        ]
        db.create_function("\n".join(lines) + "\n", arguments=["INT"], returns="BOOLEAN")
    db.register("SELECT n FROM ticks WHERE f(n) AND g(n)", name="q", materialize="partial")
    backfill = db._background._backfill
    with backfill_stopped(db):
        db.push("ticks", ticks(range(1_500)), wait=True)
        for _ in range(40):
            clock.advance(600_000_000)
            backfill.round()
    assert db.status().queries[0].coverage == 1.0
    assert db.status().queries[0].error is None
    assert len(values(db.invoke("q"))) == 1_500


def test_one_that_takes_longer_than_a_job_for_one_tuple(
    open_db: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladle.ingest.backfill._JOB_SECONDS_MAX", 0.05)
    db = open_db(functions_epoch_seconds_max=TINY, factor_seconds_max=1.0)
    db.sql(TICKS)
    source = "def slow(n):\n    import time\n    time.sleep(0.15 * len(n))\n    return pc.equal(n, 3)\n"
    db.create_function(source, arguments=["INT"], returns="BOOLEAN")
    db.register("SELECT n FROM ticks WHERE slow(n)", name="q", materialize="partial")
    backfill = db._background._backfill
    with backfill_stopped(db):
        db.push("ticks", ticks(range(6)), wait=True)
        clock.advance(600_000_000)
        for _ in range(8):
            backfill.round()
    assert db.status().queries[0].coverage == 1.0, "each job gets on, and none is a failure"
    assert db.status().queries[0].error is None


def moody(ready: Path, trouble: str) -> str:
    """The source of a function that is true of three, and makes trouble until a file is there."""
    lines = [
        "def moody(n):",
        "    import os",
        f"    if not os.path.exists({str(ready)!r}):",
        f"        {trouble}",
        "    return pc.equal(n, 3)",
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("trouble", ["raise ValueError('not yet')", "while True:\n            pass"])
def test_one_that_begins_to_work_is_covered_in_the_end(
    open_db: Open, clock: ManualClock, tmp_path: Path, trouble: str
) -> None:
    db = open_db(factor_seconds_max=0.2, functions_epoch_seconds_max=0.2)
    db.sql(TICKS)
    ready = tmp_path / "ready"
    db.create_function(moody(ready, trouble), arguments=["INT"], returns="BOOLEAN")
    db.register("SELECT n FROM ticks WHERE moody(n)", name="q", materialize="partial")
    db.register("SELECT n FROM ticks WHERE n > 1", name="plain", materialize="partial")
    for first in (0, 10):
        db.push("ticks", ticks(range(first, first + 10)), wait=True)
    status = {query.name: query for query in db.status().queries}
    assert status["q"].error is not None
    assert (status["q"].coverage, status["plain"].coverage) == (0.0, 1.0)
    with backfill_stopped(db):
        for pause in (1, 2, 4):
            assert db.backfill() == 0, "it rests"
            clock.advance(pause * 1_000_000)
            assert db.backfill() == 1, "it is tried once, with one file"
    ready.touch()

    def caught_up() -> tuple[float, str | None]:
        """Coverage and error once it was tried; on a busy machine even what works may take longer than it has."""
        for pause in (8, 16, 32, 64):
            clock.advance(pause * 1_000_000)
            db.backfill()
            query = next(query for query in db.status().queries if query.name == "q")
            if query.error is None:
                break
        return query.coverage, query.error

    assert caught_up() == (1.0, None)
    assert values(db.invoke("q")) == [3]
    epochs = []
    for later in range(3):
        db.push("ticks", ticks([3.5 + later]), wait=True)
        epochs.append(db.status().queries[0].coverage == 1.0)
        assert caught_up() == (1.0, None)
    assert any(epochs), "epochs have it again"


@pytest.mark.not_at_one_row("its place is chosen when tuples arrive")
def test_one_that_comes_after_a_join_and_begins_to_work(open_db: Open, clock: ManualClock, tmp_path: Path) -> None:
    db = open_db()
    for stream in ("r", "s"):
        db.sql(f"CREATE STREAM {stream} (n INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 1 DAY")
    ready = tmp_path / "ready"
    db.create_function(moody(ready, "raise ValueError('not yet')"), arguments=["INT"], returns="BOOLEAN")
    db.register("SELECT r.n FROM r, s WHERE r.n = s.n AND moody(r.n)", name="q", materialize="partial")
    block = postpone(db, "q")
    with backfill_stopped(db):
        db.push("s", ticks([3, 4]), wait=True)
        db.push("r", ticks(range(6)), wait=True)
        file = db.catalog.streams["r"].files[0].name
        assert candidates(block) in db._store.coverage(db.catalog.streams["r"]).covered(file)
        for pause in (1, 2):
            assert db.backfill() == (1 if pause == 1 else 0), "the epoch left it, and then it rests"
            clock.advance(pause * 1_000_000)
            assert db.backfill() == 1, "it is tried once"
        ready.touch()
        clock.advance(4_000_000)
        assert db.backfill() == 1
        assert db._ingest.joining.failing == {}
        ready.unlink()
        assert values(db.invoke("q")) == [3], "it is not called for an answer"


def test_pauses_grow() -> None:
    clock = ManualClock()
    troubles = Troubles(clock)
    block = BlockSet.of([7])
    pauses = []
    for _ in range(14):
        begun = clock.now_us()
        troubles.note({7: ("it raised", False)}, ["a"])
        troubles.note({7: ("it raised", False)}, ["b"])
        while troubles.resting("a", block, set()):
            clock.advance(500_000)
        pauses.append((clock.now_us() - begun) / 1e6)
    assert pauses[:5] == [1, 2, 4, 8, 16]
    assert pauses[-1] == 600
    assert troubles.resting("other", block, set()) == NO_BLOCKS
    tried = set[int]()
    assert troubles.resting("a", block, tried) == NO_BLOCKS
    assert troubles.resting("b", block, tried) == block, "one file at a time"
    troubles.over(7, "other")
    assert troubles.reason(7) == "it raised"
    troubles.over(7, "a")
    assert troubles.reason(7) is None
