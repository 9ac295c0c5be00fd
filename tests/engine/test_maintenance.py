"""Housekeeping: compaction, retention, orphans, results nobody needs, dropped streams, leases of readers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values
from tests.waiting import wait_until

from ladle.archive.files import temporary_path
from ladle.archive.layout import Segments
from ladle.archive.segments import DataFile, Segment
from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.housekeeping.maintenance import Maintenance, expired_files, mergeable

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")


def files_of(sizes: list[tuple[int, int]]) -> tuple[DataFile, ...]:
    ids = accumulate((rows for rows, _ in sizes), initial=0)
    return tuple(
        DataFile(f"f{number}", rows, level, number, number, (Segment(rows, 0, 0),), first_id=first_id)
        for number, ((rows, level), first_id) in enumerate(zip(sizes, ids, strict=False))
    )


def archive(db: Database, stream: str = "ticks") -> set[str]:
    """The data files on disk."""
    directory = db.path / "streams" / str(db.catalog.streams[stream].id) / "archive"
    return {path.name for path in directory.glob("*.parquet")}


def live(db: Database, stream: str = "ticks") -> set[str]:
    return {file.name for file in db.catalog.streams[stream].files}


def cleaned(db: Database, holds: Callable[[], bool]) -> None:
    """Housekeeping until something is gone: background work may have an older snapshot in use for a moment."""

    def look() -> bool:
        db.maintain()
        return holds()

    wait_until(look, "files that nobody needs stay")


# -- which files are merged --


@given(
    sizes=st.lists(st.tuples(st.integers(1, 100), st.integers(0, 3)), max_size=60),
    files_min=st.integers(2, 8),
    rows_max=st.integers(2, 100),
)
def test_runs_are_neighbours_of_one_level_that_fit(sizes: list[tuple[int, int]], files_min: int, rows_max: int) -> None:
    files = files_of(sizes)
    runs = list(mergeable(files, files_min, rows_max))
    seen: list[int] = []
    for run in runs:
        numbers = [files.index(file) for file in run]
        assert numbers == list(range(numbers[0], numbers[0] + len(run)))
        assert 2 <= len(run) <= files_min
        assert len({file.level for file in run}) == 1
        total = sum(file.rows for file in run)
        assert total <= rows_max
        assert len(run) == files_min or total * 2 > rows_max, "a run that is neither long nor full"
        seen += numbers
    assert seen == sorted(set(seen))


@given(
    epochs=st.lists(st.integers(1, 40), min_size=1, max_size=400),
    files_min=st.integers(2, 8),
    rows_max=st.sampled_from([64, 256, 1024]),
)
def test_a_tuple_is_rewritten_a_logarithm_of_times(epochs: list[int], files_min: int, rows_max: int) -> None:
    """Epoch after epoch, merging all there is to merge: few files are left, and little was written for it."""
    files: list[tuple[DataFile, list[int]]] = []
    rewritten: Counter[int] = Counter()
    for epoch, rows in enumerate(epochs):
        first_id = files[-1][0].next_id if files else 0
        file = DataFile(f"e{epoch}", rows, 0, epoch, epoch, (Segment(rows, 0, 0),), first_id=first_id)
        files.append((file, [epoch]))
        while run := next(mergeable(tuple(file for file, _ in files), files_min, rows_max), None):
            first = next(i for i, (file, _) in enumerate(files) if file is run[0])
            inside = [epoch for _, content in files[first : first + len(run)] for epoch in content]
            rewritten.update(inside)
            merged = DataFile(
                f"m{rewritten.total()}", 0, run[0].level + 1, inside[0], inside[-1],
                (Segment(sum(file.rows for file in run), 0, 0),), first_id=run[0].first_id,
            )  # fmt: skip
            files[first : first + len(run)] = [(merged, inside)]
    assert [epoch for _, content in files for epoch in content] == list(range(len(epochs)))
    levels = 1
    while files_min**levels < len(epochs):
        levels += 1
    assert max(rewritten.values(), default=0) <= levels + 1
    small = [file for file, _ in files if file.rows * 2 <= rows_max]
    big = len(files) - len(small)
    assert len(small) <= files_min * (levels + 1) * (big + 1)


def test_files_that_fill_a_segment_early_are_merged_too() -> None:
    """Ten files of a tenth of a segment each would otherwise stay for ever."""
    files = files_of([(10, 0)] * 11)
    (run,) = mergeable(files, 16, 100)
    assert len(run) == 10


def test_files_are_not_merged_over_a_gap() -> None:
    """The ids of a file's tuples follow each other: what retention removed between two stays between them."""
    files = files_of([(10, 0)] * 7)
    runs = [[file.name for file in run] for run in mergeable((*files[:3], *files[4:]), 2, 100)]
    assert runs == [["f0", "f1"], ["f4", "f5"]]


def test_which_files_are_expired() -> None:
    files = tuple(
        DataFile(str(n), 1, 0, n, n, tuple(Segment(1, low, high) for low, high in bounds))
        for n, bounds in enumerate([[(0, 5)], [(0, 3), (4, 9)], [(1, 4), (2, 4)], [(9, 9)]])
    )
    segments = Segments.of(files)
    assert expired_files(segments, 4, -1) == []
    assert expired_files(segments, 4, 4) == [2]
    assert expired_files(segments, 4, 5) == [0, 2]
    assert expired_files(segments, 4, 9) == [0, 1, 2, 3]
    assert expired_files(Segments.of(()), 0, 9) == []


# -- compaction --


def test_compaction_keeps_order_epochs_and_answers(open_db: Open) -> None:
    db = open_db(compact_files_min=3, grace_seconds=0.0)
    db.sql(TICKS)
    q = db.register("SELECT n FROM ticks WHERE n % 2 = 0", name="q")
    for second in range(27):
        db.push("ticks", ticks([second]), wait=True)
    for _ in range(6):
        db.maintain()
    stream = db.catalog.streams["ticks"]
    (file,) = stream.files
    assert file.level == 3
    assert values(db.sql("SELECT n FROM ticks")) == list(range(27))
    assert values(q.invoke()) == list(range(0, 27, 2))
    assert [(record.epoch, record.total) for record in stream.timeline] == [(epoch, epoch) for epoch in range(1, 28)]
    cleaned(db, lambda: archive(db) == live(db))
    assert db.status().queries[0].coverage == 1.0, "what was merged is covered"
    assert db.status().problems == {}
    db.close()
    db = open_db()
    assert values(db.sql("SELECT n FROM ticks")) == list(range(27))


def test_compaction_of_the_quarantine(open_db: Open) -> None:
    db = open_db(compact_files_min=2, grace_seconds=0.0)
    db.sql(TICKS)
    db.register("SELECT row FROM ticks.quarantine WHERE reason LIKE '%INT%'", name="bad")
    for second in range(4):
        db.push("ticks", [{"n": f"x{second}", "at": at(second)}], wait=True)
    for _ in range(3):
        db.maintain()
    quarantine = db.catalog.stream("ticks.quarantine")
    assert quarantine is not None
    assert len(quarantine.files) == 1
    assert [f"x{n}" in row for n, row in enumerate(values(db.invoke("bad")))] == [True] * 4


def test_each_round_does_a_bounded_amount(open_db: Open) -> None:
    db = open_db(compact_files_min=2)
    db.sql(TICKS)
    for second in range(40):
        db.push("ticks", ticks([second]), wait=True)
    db.maintain()
    assert len(live(db)) == 40 - 8


def test_a_file_stays_for_its_grace(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_db(compact_files_min=2, grace_seconds=3_600.0)
    db.sql(TICKS)
    db.push("ticks", ticks([1]), wait=True)
    db.push("ticks", ticks([2]), wait=True)
    before = archive(db)
    db.maintain()
    assert len(live(db)) == 1
    assert before < archive(db)
    db.maintain()
    assert before < archive(db)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3_600, time=lambda: time.time() + 3_600)
    monkeypatch.setattr("ladle.housekeeping.maintenance.time", later)
    cleaned(db, lambda: archive(db) == live(db))


def test_a_snapshot_in_use_keeps_its_files(open_db: Open) -> None:
    db = open_db(compact_files_min=2, grace_seconds=0.0)
    db.sql(TICKS)
    db.push("ticks", ticks([1]), wait=True)
    db.push("ticks", ticks([2]), wait=True)
    before = archive(db)
    with db._store.pin():
        db.maintain()
        assert len(live(db)) == 1
        assert before < archive(db)
    cleaned(db, lambda: archive(db) == live(db))


# -- retention --


def test_retention_removes_files_and_quarantine(open_db: Open, clock: ManualClock) -> None:
    db = open_db(grace_seconds=0.0)
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 100 SECONDS")
    q = db.register("SELECT n FROM ticks WHERE n >= 0", name="q")
    db.push("ticks", [*ticks([0, 50]), {"n": "bad", "at": at(1)}], wait=True)
    db.push("ticks", ticks([100]), wait=True)
    db.maintain()
    assert len(live(db)) == 2
    clock.advance(99_000_000)
    db.push("ticks", ticks([150]), wait=True)
    db.maintain()
    assert len(live(db)) == 2
    cleaned(db, lambda: archive(db) == live(db))
    assert values(q.invoke()) == [100, 150]
    assert len(db.sql("SELECT * FROM ticks.quarantine")) == 1
    clock.advance(1_000_000)
    cleaned(db, lambda: not list((db.path / "streams").glob("*/quarantine/*.parquet")))
    assert len(db.sql("SELECT * FROM ticks.quarantine")) == 0
    assert db.status().streams[0].quarantined == 1
    results = list((db.path / "derived" / "results").glob("*/*.results"))
    assert len(results) == 2, "results of expired files went with them"


# -- what nobody needs --


def test_orphans_of_a_crash_are_removed(open_db: Open) -> None:
    db = open_db(grace_seconds=0.0)
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n > 0", name="q")
    db.push("ticks", ticks([1]), wait=True)
    directory = db.path / "streams" / "1" / "archive"
    (name,) = live(db)
    results = db.path / "derived" / "results" / "1"
    orphan, strange = directory / "0123456789abcdef-00000-0.parquet", directory / "_notes.txt"
    orphan.write_bytes((directory / name).read_bytes())
    (results / "0123456789abcdef-00000-0.parquet.abc.results").write_bytes(b"x")
    half = directory / ".0123456789abcdef-00000-0.parquet.1-dead-1.tmp"
    half.write_bytes(b"half")
    torn = results / ".whatever.parquet.results.1-dead-1.tmp"
    torn.write_bytes(b"half")
    strange.write_text("mine")
    for path in (half, torn):
        os.utime(path, (0, 0))
    cleaned(db, lambda: archive(db) == live(db))
    assert not half.exists()
    assert not torn.exists()
    assert strange.exists()
    assert len(list(results.iterdir())) == 1
    assert values(db.sql("SELECT n FROM ticks")) == [1]


def test_an_epoch_in_flight_is_not_an_orphan(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Housekeeping in the middle of an epoch, at each of its ends, with no grace at all."""
    db = open_db(grace_seconds=0.0)
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n > 0", name="q")
    run = db._pipeline.run_pushed

    def run_and_clean(*args: object) -> object:
        manifests = run(*args)  # type: ignore[arg-type]
        db.maintain()
        return manifests

    monkeypatch.setattr(db._pipeline, "run_pushed", run_and_clean)
    for second in range(3):
        db.push("ticks", ticks([second + 1]), wait=True)
    assert values(db.invoke("q")) == [1, 2, 3]
    assert archive(db) == live(db)


def test_a_query_set_that_is_being_written_stays(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n > 1", name="q")
    db.push("ticks", ticks(range(3)), wait=True)
    (page,) = (db.path / "derived" / "querysets").iterdir()
    half = temporary_path(page)
    half.write_bytes(b"half")
    db.unregister("q")
    db.maintain()
    assert half.exists()


def test_a_commit_in_the_middle_of_the_look_for_orphans(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch is in flight when the look begins and committed before it ends; and a stream is born meanwhile."""
    db = open_db(grace_seconds=0.0)
    db.sql(TICKS)
    ingest = db._ingest
    seen = type(ingest).in_flight.fget  # type: ignore[attr-defined]

    def commit_first(self: object) -> set[str]:
        monkeypatch.undo()
        busy: set[str] = seen(self)
        db.push("ticks", ticks([1]), wait=True)
        db.sql("CREATE STREAM young (n INT)")
        db.push("young", [{"n": 1}], wait=True)
        return busy

    for where in (commit_first, lambda self: (commit_first(self), seen(self))[1]):
        monkeypatch.setattr(type(ingest), "in_flight", property(where))
        db.maintain()
        assert values(db.sql("SELECT n FROM ticks")) != []
        assert values(db.sql("SELECT n FROM young")) == [1]
        db.sql("DROP STREAM young")
    assert values(db.sql("SELECT n FROM ticks")) == [1, 1]


def test_results_go_with_their_query(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks(range(4)), wait=True)
    for n in range(3):
        db.register(f"SELECT n FROM ticks WHERE n > {n}", name=f"q{n}")
        db.backfill()
    found = db.path / "derived" / "results" / "1"
    assert len(list(found.glob("*.results"))) == 3
    db.unregister("q1")
    db._maintenance.run()
    assert len(list(found.glob("*.results"))) == 2, "an ordinary round notices that a query went"
    db.unregister("q0")
    db.unregister("q2")
    db.maintain()
    assert list(found.glob("*.results")) == []


def test_results_beyond_every_window_go(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n >= 0 BEGIN NOW - INTERVAL 10 SECONDS END NOW", name="q")
    for second in range(0, 100, 5):
        db.push("ticks", ticks([second]), wait=True)
    db.maintain()
    assert len(list((db.path / "derived" / "results" / "1").glob("*.results"))) == 2
    assert values(db.invoke("q")) == [90, 95]
    assert values(db.invoke("q", now=at(20))) == [15, 20]


def test_a_dropped_stream_leaves_nothing(open_db: Open) -> None:
    db = open_db(grace_seconds=0.0)
    for name in ("a", "b"):
        db.sql(f"CREATE STREAM {name} (n INT)")
        db.register(f"SELECT n FROM {name} WHERE n > 0", name=f"q{name}")
        db.push(name, [{"n": 1}, {"n": "x"}], wait=True)
        db.push(name, [{"n": 2}])
    wait_until(lambda: all(s.pending == 0 for s in db.status().streams), "pushes wait")
    workers = {lane.worker for lane in db._ingest._lanes.values()}
    db.sql("DROP STREAM a CASCADE")
    cleaned(db, lambda: [path.name for path in (db.path / "streams").iterdir()] == [str(db.catalog.streams["b"].id)])
    assert len(list((db.path / "derived" / "results").iterdir())) == 1
    assert list(db._ingest._lanes) == [db.catalog.streams["b"].id]
    wait_until(lambda: sum(w is not None and w.is_alive() for w in workers) == 1, "the worker of a stream that is gone")
    assert values(db.invoke("qb")) == [1, 2]


def test_a_stream_dropped_under_its_waiting_pushes(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_db(grace_seconds=0.0)
    db.sql(TICKS)
    monkeypatch.setattr("ladle.ingest.epochs.Ingest.drain_later", lambda *_: None)
    db.push("ticks", ticks([1]))
    db.sql("DROP STREAM ticks")
    db.maintain()
    db.sql(TICKS)
    db.push("ticks", ticks([2]), wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [2]


# -- readers in other processes --

_READER = """
import sys
from ladle.testing import connect_inline
db = connect_inline(sys.argv[1], read_only=True)
print("open", flush=True)
for line in sys.stdin:
    if line == "read\\n":
        with db._store.pin() as catalog:
            print(catalog.seq, flush=True)
            sys.stdin.readline()
            for file in catalog.streams["ticks"].files:
                assert (db._store.directory(catalog.streams["ticks"]) / file.name).exists(), file.name
            print("whole", flush=True)
    else:
        print(db.sql("SELECT n FROM ticks").table.column("n").to_pylist(), flush=True)
"""


def test_a_reader_in_mid_read_keeps_its_files(open_db: Open) -> None:
    db = open_db(compact_files_min=2, grace_seconds=0.0)
    db.sql(TICKS)
    db.push("ticks", ticks([1]), wait=True)
    db.push("ticks", ticks([2]), wait=True)
    before = archive(db)
    with subprocess.Popen(
        [sys.executable, "-c", _READER, str(db.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None

        def tell(line: str) -> str:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write(line + "\n")
            reader.stdin.flush()
            return reader.stdout.readline().strip()

        assert reader.stdout.readline() == "open\n"
        assert tell("read") == str(db.catalog.seq)
        db.maintain()
        assert len(live(db)) == 1
        assert before < archive(db), "a file was deleted under a reader"
        assert tell("done") == "whole"
        # The reader is still there but reads nothing: it holds nothing either.
        cleaned(db, lambda: archive(db) == live(db))
        assert tell("ask") == "[1, 2]"
        db.push("ticks", ticks([3]), wait=True)
        assert tell("ask") == "[1, 2, 3]"
        assert tell("read") == str(db.catalog.seq)
        db.sql("DROP STREAM ticks")
        db.maintain()
        assert tell("done") == "whole", "not even a dropped stream goes away under a reader"
        reader.kill()
    cleaned(db, lambda: not list((db.path / "streams").iterdir()))


def test_a_trouble_that_stays_is_said_once(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = iter(["the disk is full", "the disk is full", "the disk is gone", None, "the disk is gone"])

    def compact(_: object) -> None:
        if (reason := next(reasons)) is not None:
            raise OSError(reason)

    monkeypatch.setattr(Maintenance, "_compact", compact)
    told = []
    for _ in range(5):
        db.maintain()
        told.append(db.status().problems.get("compaction"))
    assert told == ["the disk is full", "the disk is full", "the disk is gone", None, "the disk is gone"]
    said = [record.getMessage() for record in caplog.records if "compaction" in record.getMessage()]
    assert said == ["compaction: the disk is full", "compaction: the disk is gone", "compaction: the disk is gone"]
