"""Trouble from outside: a second writer, a reader that wants to write, broken and missing files, a full disk.

Each time: a clear error that says what to do, nothing lost, and on it goes when the cause is gone.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks, values

from ladle.engine import Database
from ladle.errors import Closed, CorruptLog, ReadOnly, UnknownName, WarehouseBusy, WarehouseError
from ladle.ingest.backfill import Backfill
from ladle.testing import connect_inline

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")

HOLD = """
import sys
from ladle.testing import connect_inline
db = connect_inline(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def run_python(script: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload]


def copied(db: Database, to: Path) -> Path:
    """The warehouse as a kill at this moment would leave it, each entry of the log in a file of its own."""
    shutil.copytree(db.path, to)
    for path in (to / "log").glob("[0-9]*.json"):
        lines = path.read_bytes().splitlines(keepends=True)
        for number in range(0, len(lines), 2):
            entry(to, int(path.stem) + number // 2).write_bytes(b"".join(lines[number : number + 2]))
    return to


def entry(path: Path, number: int) -> Path:
    return path / "log" / f"{number:020d}.json"


# -- other processes --


def test_a_second_writer_is_told_who_is_first(tmp_path: Path) -> None:
    path = tmp_path / "warehouse"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        with pytest.raises(WarehouseBusy, match=f"process {first.pid} ") as raised:
            connect_inline(path)
        assert raised.value.hint is not None
        assert "read_only" in raised.value.hint
        connect_inline(path, read_only=True).close()
        os.kill(first.pid, signal.SIGKILL)
    connect_inline(path).close()


def test_twice_in_one_process(db: Database) -> None:
    with pytest.raises(WarehouseBusy, match="this process already"):
        connect_inline(db.path)


def test_a_reader_reads_and_no_more(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register("SELECT n FROM ticks WHERE n > 1", name="q", materialize="complete")
    reader = open_db(read_only=True)
    db.push("ticks", ticks([1, 2]), wait=True)
    assert values(reader.invoke("q")) == [2]
    assert reader.status().read_only
    for act in (
        lambda: reader.push("ticks", ticks([1])),
        lambda: reader.sql("CREATE STREAM s (a INT)"),
        lambda: reader.sql("DROP STREAM ticks CASCADE"),
        lambda: reader.sql("ALTER STREAM ticks SET RETAIN FOREVER"),
        lambda: reader.sql("ALTER STREAM ticks ADD COLUMN x INT"),
        lambda: reader.sql("INSERT INTO ticks VALUES (1, TIMESTAMP '2023-11-14 12:00:00')"),
        lambda: reader.register("SELECT 1", name="r"),
        lambda: reader.unregister("q"),
        reader.maintain,
        reader.backfill,
    ):
        with pytest.raises(ReadOnly, match="opened for reading"):
            act()
    for second in range(3, 8):
        db.push("ticks", ticks([second]), wait=True)
        assert values(reader.invoke("q")) == list(range(2, second + 1)), "every committed epoch is seen"
    db.unregister("q")
    with pytest.raises(UnknownName):
        reader.invoke("q")
    db.close()
    assert values(reader.sql("SELECT count(*) FROM ticks")) == [7]


def test_a_reader_far_behind_loads_anew(open_db: Open) -> None:
    """The entries it lacks were truncated after checkpoints."""
    db = open_db(checkpoint_entries=2, compact_files_min=2, grace_seconds=0.0)
    db.sql(TICKS)
    db.push("ticks", ticks([0]), wait=True)
    reader = open_db(read_only=True)
    for second in range(1, 20):
        db.push("ticks", ticks([second]), wait=True)
        db.maintain()
    assert not entry(db.path, 5).exists()
    assert values(reader.sql("SELECT n FROM ticks")) == list(range(20))


# -- files that are not what they were --


@pytest.mark.parametrize("damage", ["garbled", "cut", "empty", "missing"])
def test_a_broken_log_entry(open_db: Open, tmp_path: Path, damage: str) -> None:
    db = open_db()
    db.sql(TICKS)
    for second in range(4):
        db.push("ticks", ticks([second]), wait=True)
    path = copied(db, tmp_path / "copy")
    broken = entry(path, 3)
    good = broken.read_bytes()
    match damage:
        case "garbled":
            broken.write_bytes(good[:50] + bytes(byte ^ 1 for byte in good[50:60]) + good[60:])
        case "cut":
            broken.write_bytes(good[: len(good) // 2])
        case "empty":
            broken.write_bytes(b"")
        case "missing":
            broken.unlink()
    for read_only in (False, True):
        with pytest.raises(CorruptLog, match=broken.name) as raised:
            connect_inline(path, read_only=read_only)
        assert raised.value.hint is not None
        assert "backup" in raised.value.hint
    broken.write_bytes(good)
    with connect_inline(path) as again:
        assert values(again.sql("SELECT n FROM ticks")) == [0, 1, 2, 3]
        again.push("ticks", ticks([4]), wait=True)
        assert len(again.sql("SELECT n FROM ticks")) == 5


def test_a_broken_last_entry_may_be_moved_away(open_db: Open, tmp_path: Path) -> None:
    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks([0]), wait=True)
    db.push("ticks", ticks([1]), wait=True)
    path = copied(db, tmp_path / "copy")
    last = entry(path, db.catalog.seq)
    last.write_bytes(b"nonsense")
    with pytest.raises(CorruptLog) as raised:
        connect_inline(path)
    assert raised.value.hint is not None
    assert "move it out of the log" in raised.value.hint
    last.rename(tmp_path / "away")
    with connect_inline(path) as again:
        assert values(again.sql("SELECT n FROM ticks")) == [0]


def test_a_broken_checkpoint_costs_nothing(open_db: Open, tmp_path: Path) -> None:
    db = open_db(checkpoint_entries=3)
    db.sql(TICKS)
    for second in range(9):
        db.push("ticks", ticks([second]), wait=True)
        db.maintain()
    path = copied(db, tmp_path / "copy")
    newest = sorted((path / "log").glob("checkpoint-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    with connect_inline(path) as again:
        assert values(again.sql("SELECT n FROM ticks")) == list(range(9))


def test_a_data_file_that_is_gone(open_db: Open) -> None:
    db = open_db(derived_memory_bytes_max=0)
    db.sql(TICKS)
    db.push("ticks", ticks([1]), wait=True)
    (file,) = (db.path / "streams" / "1" / "archive").glob("*.parquet")
    away = file.with_suffix(".away")
    file.rename(away)
    with pytest.raises(WarehouseError, match=file.name):
        db.sql("SELECT n FROM ticks")
    db.push("ticks", ticks([2]), wait=True)
    assert values(db.sql("SELECT n FROM ticks BEGIN TIMESTAMP '2023-11-14 12:00:01' END NOW")) == [2]
    away.rename(file)
    assert values(db.sql("SELECT n FROM ticks")) == [1, 2]


def test_a_newer_format_is_refused(open_db: Open, tmp_path: Path) -> None:
    db = open_db()
    db.sql(TICKS)
    path = copied(db, tmp_path / "copy")
    (path / "FORMAT").write_text(json.dumps({"format": 99}))
    for read_only in (False, True):
        with pytest.raises(WarehouseError, match="format 99") as raised:
            connect_inline(path, read_only=read_only)
        assert raised.value.hint is not None
        assert "newer Ladle" in raised.value.hint


def test_what_is_no_warehouse(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    for name, read_only, said in (
        ("file", False, "is a file"),
        ("file", True, "is a file"),
        ("full", False, "mine.txt"),
        ("full", True, "not a warehouse"),
        ("nowhere", True, "no warehouse"),
    ):
        with pytest.raises(WarehouseError, match=said):
            connect_inline(tmp_path / name, read_only=read_only)
    assert (tmp_path / "full" / "mine.txt").read_text() == "x"
    assert not (tmp_path / "nowhere").exists()


AS_NOBODY = """
import os, sys
from ladle.errors import WarehouseError
from ladle.testing import connect_inline
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for read_only in (True, False):
    try:
        connect_inline(sys.argv[1], read_only=read_only)
    except WarehouseError as error:
        print(error.code, "|", error.message, "|", error.hint, flush=True)
    else:
        print("opened")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("closed", ["warehouse", "parent", "log", "FORMAT"])
def test_a_warehouse_that_may_not_be_read(closed: str) -> None:
    # Not in pytest's own directory, which nobody else may enter.
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        path = Path(root) / "parent" / "warehouse"
        with connect_inline(path) as db:
            db.sql(TICKS)
        target = {"warehouse": path, "parent": path.parent, "log": path / "log", "FORMAT": path / "FORMAT"}[closed]
        target.chmod(0o000)
        ran = run_python(AS_NOBODY, path)
        assert ran.stderr == ""
        for line in ran.stdout.splitlines():
            assert line.startswith("warehouse |"), line
            assert "Permission denied" in line
            assert "this user may read" in line
        assert len(ran.stdout.splitlines()) == 2
        target.chmod(0o755)
        with connect_inline(path) as db:
            assert [stream.name for stream in db.streams()] == ["ticks"]


# -- files that stay open --


def in_use(path: Path) -> list[str]:
    """The files under a directory that this process has open or mapped."""
    open_files = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if os.path.lexists(entry)]
    mapped = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return [name for name in (*open_files, *mapped) if name.startswith(str(path))]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not tell what is open")
def test_a_closed_database_has_no_file_open(tmp_path: Path) -> None:
    """Though the one who closed it keeps it, and the answers."""
    path = tmp_path / "warehouse"
    db = connect_inline(path, settings={"maintenance_seconds": 3600.0})
    for stream in ("a", "b"):
        db.sql(f"CREATE STREAM {stream} (n INT, k INT, at TIMESTAMP) TIMESTAMP BY at")
    for mode in ("none", "partial", "complete", "auto"):
        db.register("SELECT n FROM a WHERE k > 0", name=mode, materialize=mode)
    db.register("SELECT a.n FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k", name="pairs")
    db.register("SELECT k, COUNT(*) AS c FROM a WHERE n > 2 GROUP BY k", name="counts")
    rows = [{**row, "k": row["n"] % 3} for row in ticks(range(40))]
    for stream in ("a", "b", "a", "b"):
        db.push(stream, rows, wait=True)
    db.backfill()
    answers = [db.invoke(query.name) for query in db.queries()]
    assert any(name.endswith(".results") for name in in_use(path)), "or nothing is shown here"
    assert any(name.endswith(".pairs") for name in in_use(path))
    db.close()
    assert in_use(path) == []
    assert all(answers)


def test_results_are_mapped_and_not_held_open(tmp_path: Path) -> None:
    """There may be thousands of them, and a process may have a thousand files open."""
    with connect_inline(tmp_path / "warehouse", settings={"maintenance_seconds": 3600.0}) as db:
        db.sql(TICKS)
        db.register("SELECT n FROM ticks WHERE n > 1", name="q")
        for second in range(20):
            db.push("ticks", ticks([second]), wait=True)
        assert len(db.invoke("q")) == 18
        held = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if os.path.lexists(entry)]
        assert not [name for name in held if "derived" in name]


# -- a full disk --

ON_A_SMALL_DISK = """
import os, subprocess, sys
from pathlib import Path
from ladle.errors import DiskFull
from ladle.testing import connect_inline
from tests.engine.rows import TICKS, ticks, values
from tests.waiting import wait_until

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
PAGE = 4096
filler = disk / "filler"

def fill():
    with filler.open("ab") as file:
        while True:
            try:
                os.write(file.fileno(), b"x" * PAGE)
            except OSError:
                return

def free(pages):
    os.truncate(filler, max(filler.stat().st_size - pages * PAGE, 0))

def refused(act):
    try:
        act()
    except DiskFull as error:
        assert "No space left" in error.message, error.message
        assert "free some space" in error.hint, error.hint
        return error
    raise AssertionError("there was room after all")

def numbers():
    return values(db.sql("SELECT n FROM ticks"))

settings = {"grace_seconds": 0.0, "maintenance_seconds": 3600.0, "retry_seconds_max": 1.0}
db = connect_inline(disk / "warehouse", settings=settings)
db.sql(TICKS)
db.register("SELECT n FROM ticks WHERE n > 0", name="q")
db.push("ticks", ticks([0, 1]), wait=True)

fill()
refused(lambda: db.push("ticks", ticks([100])))
refused(lambda: db.push("ticks", ticks([100]), wait=True))
# The first does not fit into what is left of the log's last block, those after it would each begin a file.
refused(lambda: db.register_many({f"r{n}": f"SELECT n FROM ticks WHERE n > {n}" for n in range(500)}))
refused(lambda: db.register("SELECT n FROM ticks WHERE n > 5", name="r"))
refused(lambda: db.sql("CREATE STREAM s (a INT)"))
refused(lambda: db.unregister("q"))
assert numbers() == [0, 1] and values(db.invoke("q")) == [1], "reading goes on"
assert [query.name for query in db.queries()] == ["q"]
assert list((disk / "warehouse").glob("streams/*/inbox/*")) == [], "a failed push left something"
assert list((disk / "warehouse").glob("log/.*")) == [], "a failed commit left something"

# Room for the push but not for the epoch: at the data file, and at the log entry.
for pages, number in ((1, 2), (2, 3)):
    db._store._log.close()  # the next entry needs a block of its own
    fill()
    free(pages)
    error = refused(lambda: db.push("ticks", ticks([number]), wait=True))
    assert "safe in the inbox" in error.hint, error.hint
    assert numbers() == list(range(number))
    wait_until(lambda: db.status().streams[0].error is not None, "the error is not shown")
    free(1000)
    db.maintain()
    wait_until(lambda: numbers() == list(range(number + 1)), "the push is not taken in when there is room")
    wait_until(lambda: db.status().streams[0].error is None, "the error stays")

# Housekeeping that has no room says so, and goes on later.
for number in range(4, 20):
    db.push("ticks", ticks([number]), wait=True)
fill()
db.maintain()
assert "compaction" in db.status().problems, db.status().problems
assert "No space left" in db.status().problems["compaction"]
assert numbers() == list(range(20))
free(1000)
db.maintain()
assert db.status().problems == {}, db.status().problems
assert len(db.catalog.streams["ticks"].files) < 20

# A backfill whose results don't fit is not begun again and again: it pauses, says why, and goes on when there is room.
jobs = []
run_backfill = db._pipeline.run_backfill
db._pipeline.run_backfill = lambda tasks: (jobs.append(len(tasks)), run_backfill(tasks))[1]
many = {f"many{n}": f"SELECT n FROM ticks WHERE n > {n} AND n % 7 <> {n}" for n in range(300)}
fill()
free(40)
db._store._log.close()
db.register_many(many, materialize="partial")
fill()
wait_until(lambda: "backfill" in db.status().problems, "nobody says that the backfill pauses")
assert "No space left" in db.status().problems["backfill"], db.status().problems
assert "It is tried again in" in db.status().problems["backfill"]
begun = len(jobs)
for _ in range(50):
    db._background._work.set()
    wait_until(lambda: not db._background._work.is_set(), "the background sleeps")
assert len(jobs) <= begun + 3, (begun, jobs)
assert values(db.invoke("many3")) == [n for n in range(4, 20) if n % 7 != 3], "answers are right meanwhile"
free(1000)
wait_until(lambda: all(query.coverage == 1.0 for query in db.status().queries), "it does not go on by itself")
wait_until(lambda: db.status().problems == {}, "the word on it stays")
for name in many:
    db.unregister(name)
db.maintain()

# Closing and opening on a full disk.
fill()
db.close()
db = connect_inline(disk / "warehouse", read_only=True)
assert numbers() == list(range(20))
db.close()
free(1000)
db = connect_inline(disk / "warehouse")
assert numbers() == list(range(20))
assert values(db.invoke("q")) == list(range(1, 20))
db.register("SELECT n FROM ticks WHERE n > 5", name="r")
assert values(db.invoke("r")) == list(range(6, 20))
db.close()
print("recovered")
"""


def private_mounts() -> list[str] | None:
    """How to run a command that may mount what nobody else sees; None where that is not allowed."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        try:
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            return None
    return None


def test_a_full_disk(tmp_path: Path) -> None:
    private = private_mounts()
    if private is None:
        pytest.skip("this system lets nobody mount a small disk")
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [*private, sys.executable, "-c", ON_A_SMALL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=root,
    )
    assert (ran.returncode, ran.stdout) == (0, "recovered\n"), ran.stderr


def test_a_backfill_that_closing_ends_is_no_trouble(
    open_db: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()

    def until_closing(_: Backfill, stopping: threading.Event) -> int:
        begun.set()
        assert stopping.wait(30)
        raise Closed

    monkeypatch.setattr(Backfill, "round", until_closing)
    with caplog.at_level(logging.WARNING):
        db = open_db()
        db.sql("CREATE STREAM s (n INT)")
        db.push("s", [{"n": 1}], wait=True)
        assert begun.wait(30)
        db.close()
    assert caplog.messages == []
