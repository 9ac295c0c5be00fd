"""Backups: what was acknowledged is in them, once, whatever goes on meanwhile; what is damaged is refused by name."""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import QUIET, Open
from tests.engine.rows import TICKS, ticks, values

import ladle
from ladle.access import Role, User, secret_digest
from ladle.archive.backup_format import DamagedBackup, read_manifest, writing
from ladle.archive.inbox import Pushed, list_pushed
from ladle.archive.leases import Leases
from ladle.backup.checkpoints import NEVER, files_until, last_done
from ladle.catalog import Catalog
from ladle.catalog.store import Store
from ladle.engine import Database
from ladle.errors import Closed, DamagedFile, Denied, LadleError, WarehouseBusy, WarehouseError
from ladle.testing import connect_inline

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")


@contextmanager
def restored(backup: Path, to: Path) -> Iterator[Database]:
    """The warehouse of a backup, with the pushes that waited taken in."""
    ladle.restore(backup, to)
    with connect_inline(to, settings=QUIET) as db:
        for stream in db.catalog.streams.values():
            db._ingest.drain(stream)
        yield db


def fill(db: Database) -> None:
    """A bit of everything, in one stream and one table."""
    db.execute(f"{TICKS}; CREATE TABLE t (k INT); INSERT INTO t VALUES (1), (2)")
    db.create_function("def twice(n):\n    return pc.multiply(n, 2)\n", arguments=["INT"], returns="INT")
    db.register("SELECT n, twice(n) AS m FROM ticks WHERE n > 1", name="q")
    db.register("SELECT COUNT(*) AS c FROM ticks, t WHERE n = k", name="counted", materialize="none")
    db.push("ticks", [*ticks([0, 1, 2]), {"n": 9, "at": "9999-01-01T00:00:00Z"}], wait=True)


def answers(db: Database) -> dict[str, Any]:
    tables = {name: db.sql(f"SELECT * FROM {name}").to_pylist() for name in ("ticks", "t")}
    rejected = db.sql("SELECT row, reason FROM ticks.quarantine").to_pylist()
    return {**tables, **{query.name: db.invoke(query.name).to_pylist() for query in db.queries()}, "out": rejected}


def copied(answer: ladle.Answer) -> dict[str, tuple[int, int]]:
    """Files of each part, and how many of them were copied."""
    return {row["part"]: (row["files"], row["copied_files"]) for row in answer.to_pylist()}


def test_a_restored_warehouse_is_what_was_backed_up(db: Database, tmp_path: Path) -> None:
    fill(db)
    token = db.create_token("alice", "reader")
    before = answers(db)
    made = db.backup(tmp_path / "backup")
    assert copied(made) == {"segments": (1, 1), "quarantine": (1, 1), "tables": (1, 1), "log": (2, 2)}
    assert "is backed up in" in str(made)
    seq = db.catalog.seq
    db.push("ticks", ticks([3]), wait=True)
    db.sql("DELETE FROM t")
    db.unregister("q")
    with restored(tmp_path / "backup", tmp_path / "restored") as again:
        assert answers(again) == before
        assert again.catalog.seq == seq
        assert again.catalog.access.token(secret_digest(token)) is not None
        assert [f.name for f in again.functions()] == ["twice"]
        again.push("ticks", ticks([7]), wait=True)
        assert values(again.sql("SELECT n FROM ticks")) == [0, 1, 2, 7], "and it goes on from there"
        again.maintain()
        assert (again.path / "streams/1/archive/_delta_log").exists(), "what is derived comes again"


def test_only_what_is_new_is_copied_and_what_is_not_needed_goes(db: Database, tmp_path: Path) -> None:
    fill(db)
    backup = tmp_path / "backup"
    db.backup(backup)
    assert copied(db.backup(backup))["segments"] == (1, 0)
    assert all(not new for _, new in copied(db.backup(backup)).values()), "nothing has changed"
    db.push("ticks", ticks([3]), wait=True)
    db.sql("INSERT INTO t VALUES (3)")
    second = db.backup(backup)
    assert copied(second) == {"segments": (2, 1), "quarantine": (1, 0), "tables": (1, 1), "log": (2, 1)}
    held = {path.name for path in (backup / "files").iterdir()}
    assert held == {file.digest for file in read_manifest(backup).files}
    with restored(backup, tmp_path / "restored") as again:
        assert answers(again) == answers(db)


def test_a_file_that_the_older_backup_lost_is_copied_again(db: Database, tmp_path: Path) -> None:
    fill(db)
    backup = tmp_path / "backup"
    db.backup(backup)
    for path in (backup / "files").iterdir():
        os.truncate(path, 1)
    assert copied(db.backup(backup))["segments"] == (1, 1)
    (backup / "BACKUP").write_bytes(b"gone\n")
    db.backup(backup)
    with restored(backup, tmp_path / "restored") as again:
        assert answers(again) == answers(db)


def test_a_backup_heals_when_what_is_named_is_deleted(db: Database, tmp_path: Path) -> None:
    """As the message says: nobody reads the older files again, so a flipped bit shows when they are restored."""
    fill(db)
    backup = tmp_path / "backup"
    db.backup(backup)
    segment = next(file for file in read_manifest(backup).files if "archive" in file.name)
    path = backup / "files" / segment.digest
    path.write_bytes(bytes(segment.bytes))
    with pytest.raises(DamagedBackup) as refused:
        ladle.restore(backup, tmp_path / "restored")
    assert str(path) in refused.value.message
    path.unlink()
    db.backup(backup)
    with restored(backup, tmp_path / "restored") as again:
        assert answers(again) == answers(db)


def test_nothing_is_shared_with_the_warehouse(db: Database, tmp_path: Path) -> None:
    """A disk that loses a file must not lose both."""
    fill(db)
    db.backup(tmp_path / "backup")
    ours = {path.stat().st_ino for path in db.path.rglob("*")}
    assert not ours & {path.stat().st_ino for path in tmp_path.rglob("backup/**/*")}
    modes = {path.stat().st_mode & 0o077 for path in ((tmp_path / "backup"), *(tmp_path / "backup").rglob("*"))}
    assert modes == {0}, "nobody else may read it"


# -- while epochs go on --


def while_pinning(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Do something once, after what is looked at before the snapshot, and before the snapshot."""
    pin, acts, thread = Store.pin, [act], threading.current_thread()

    @contextmanager
    def pinning(store: Store) -> Iterator[Catalog]:
        if acts and threading.current_thread() is thread:  # in the background snapshots are pinned too
            acts.pop()()
        with pin(store) as catalog:
            yield catalog

    monkeypatch.setattr(Store, "pin", pinning)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_push_that_waits_is_in_it(open_db: Open, tmp_path: Path, read_only: bool) -> None:
    db = open_db()
    fill(db)
    db.receive("ticks", ticks([5]))
    db.receive("ticks", ticks([6]))
    asked = open_db(read_only=True) if read_only else db
    assert copied(asked.backup(tmp_path / "backup"))["pushes"] == (2, 2)
    with restored(tmp_path / "backup", tmp_path / "restored") as again:
        assert values(again.sql("SELECT n FROM ticks")) == [0, 1, 2, 5, 6]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_push_that_is_taken_in_meanwhile_is_there_once(
    open_db: Open, tmp_path: Path, read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = open_db()
    fill(db)
    db.receive("ticks", ticks([5]))
    asked = open_db(read_only=True) if read_only else db
    while_pinning(monkeypatch, lambda: (db._ingest.drain(db.catalog.streams["ticks"]), db.receive("ticks", ticks([6]))))
    assert "pushes" not in copied(asked.backup(tmp_path / "backup")), "the second came after the backup was asked for"
    with restored(tmp_path / "backup", tmp_path / "restored") as again:
        assert values(again.sql("SELECT n FROM ticks")) == [0, 1, 2, 5]


def test_a_reader_that_can_hold_no_lease_misses_nothing(
    open_db: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a mount that it can't write to: a push is taken in after the log was read, and before the inbox is."""
    db = open_db()
    fill(db)
    db.receive("ticks", ticks([5]))
    monkeypatch.setattr(Leases, "acquire", lambda *_: None)
    reader = open_db(read_only=True)
    acts = [lambda: db._ingest.drain(db.catalog.streams["ticks"])]

    def listing(directory: Path) -> list[Pushed]:
        if acts:
            acts.pop()()
        return list_pushed(directory)

    monkeypatch.setattr("ladle.backup.copying.list_pushed", listing)
    reader.backup(tmp_path / "backup")
    with restored(tmp_path / "backup", tmp_path / "restored") as again:
        assert values(again.sql("SELECT n FROM ticks")) == [0, 1, 2, 5]


@pytest.mark.parametrize("read_only", [False, True])
def test_files_that_are_compacted_meanwhile_stay(
    open_db: Open, tmp_path: Path, read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads a snapshot, here or in another process, keeps its files."""
    db = open_db(compact_files_min=2, grace_seconds=0.0)
    fill(db)
    for second in range(3, 9):
        db.push("ticks", ticks([second]), wait=True)
    before = answers(db)
    asked = open_db(read_only=True) if read_only else db
    copy = "ladle.archive.backup_format.Copying.copy"
    calls = []

    def copying(self: Any, source: Path, name: str, told: Any = None) -> Any:
        if not calls:
            for _ in range(4):
                db.maintain()
            assert len(db.catalog.streams["ticks"].files) < 7
        calls.append(name)
        return own(self, source, name, told)

    from ladle.archive.backup_format import Copying

    own = Copying.copy
    monkeypatch.setattr(copy, copying)
    assert copied(asked.backup(tmp_path / "backup"))["segments"] == (7, 7)
    monkeypatch.undo()
    with restored(tmp_path / "backup", tmp_path / "restored") as again:
        assert answers(again) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_everything_at_once(open_db: Open, tmp_path: Path, read_only: bool) -> None:
    """Pushes that were acknowledged before the backup was asked for are in it, once; of others a prefix."""
    db = open_db(maintenance_seconds=0.01, compact_files_min=3, grace_seconds=0.0, checkpoint_entries=7)
    db.sql(TICKS)
    db.sql("CREATE STREAM b (n INT, at TIMESTAMP) TIMESTAMP BY at")
    acknowledged = {"ticks": 0, "b": 0}
    stop = threading.Event()
    errors: list[BaseException] = []

    def push(stream: str) -> None:
        rng = random.Random(stream)
        try:
            while not stop.is_set() and acknowledged[stream] < 400:
                db.push(stream, ticks([acknowledged[stream]]), wait=rng.random() < 0.3)
                acknowledged[stream] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=push, args=(stream,)) for stream in acknowledged]
    for thread in threads:
        thread.start()
    asked = open_db(read_only=True) if read_only else db
    for number in range(4):
        before = dict(acknowledged)
        asked.backup(tmp_path / "backup")
        with restored(tmp_path / "backup", tmp_path / f"restored{number}") as again:
            for stream, least in before.items():
                found = values(again.sql(f"SELECT n FROM {stream}"))
                assert found == list(range(len(found))), "each once, in order"
                assert len(found) >= least, "what was acknowledged is there"
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors


# -- sources --


def checkpoint(root: Path, offsets: list[int], commits: list[int]) -> Path:
    for name, numbers in (("offsets", offsets), ("commits", commits), ("sources/0", offsets)):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in numbers:
            (root / name / str(number)).write_text("v1")
            (root / name / f".{number}.crc").write_text("")
    (root / "metadata").write_text("{}")
    return root


def test_a_checkpoint_ends_with_the_last_batch_of_the_snapshot(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "c", offsets=[3, 4, 5, 6], commits=[3, 4, 5])
    assert last_done(path) == 5
    assert last_done(tmp_path / "none") == NEVER
    kept = {str(file) for file in files_until(path, 4) or ()}
    assert {name for name in kept if not name.startswith("sources")} == {
        "metadata",
        "offsets/3",
        "offsets/4",
        "commits/3",
        "commits/4",
    }
    assert "sources/0/6" in kept, "what was listed is read from where the offsets end"
    assert "offsets/6" in {str(file) for file in files_until(path, 6) or ()}
    assert "commits/6" not in {str(file) for file in files_until(path, 6) or ()}
    assert files_until(path, 2) is None, "Spark has forgotten where that batch ended"
    assert files_until(path, 9) is not None, "it never knew"
    assert {str(file) for file in files_until(path, NEVER) or ()} == {
        "metadata",
        "sources/0/3",
        "sources/0/4",
        "sources/0/5",
        "sources/0/6",
    }


@pytest.mark.parametrize("committed", ["before", "meanwhile"])
def test_a_source_is_backed_up_as_of_the_snapshot(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: str
) -> None:
    db.sql(TICKS)
    stream = db.catalog.streams["ticks"]
    path = db._store.warehouse.stream(stream.id).sources / "files"

    def batch(number: int) -> None:
        checkpoint(path, [number], [])
        tables = [db_rows(number)]
        db._ingest.take_in("ticks", stream.id, "files", number, lambda task: db._pipeline.run_batch(task, tables))  # type: ignore[arg-type]

    def db_rows(number: int) -> Any:
        import pyarrow as pa

        return pa.Table.from_pylist(ticks([number]))

    batch(0)
    checkpoint(path, [], [0])
    batch(1)
    if committed == "before":
        checkpoint(path, [], [1])
    else:
        while_pinning(monkeypatch, lambda: (checkpoint(path, [], [1]), batch(2), checkpoint(path, [], [2]), batch(3)))
    db.backup(tmp_path / "backup")
    # Spark goes on after the snapshot: what it notes then is not in it.
    ladle.restore(tmp_path / "backup", tmp_path / "restored")
    with connect_inline(tmp_path / "restored", settings=QUIET) as again:
        taken = again.catalog.streams["ticks"].batches["files"]
        assert values(again.sql("SELECT n FROM ticks")) == list(range(taken + 1))
        found = tmp_path / "restored" / path.relative_to(db.path)
        assert max(int(file.name) for file in (found / "offsets").iterdir()) == taken
        assert max(int(file.name) for file in (found / "commits").iterdir()) <= taken


# -- what is refused --


def test_directories_that_won_t_do(db: Database, tmp_path: Path) -> None:
    fill(db)
    for inside in (db.path / "backup", db.path, tmp_path):
        with pytest.raises(WarehouseError, match="in one another"):
            db.backup(inside)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letters.txt").write_text("dear")
    with pytest.raises(WarehouseError, match=r"not a backup: it holds letters\.txt"):
        db.backup(tmp_path / "full")
    with connect_inline(tmp_path / "other", settings=QUIET) as other:
        (other.path / "FORMAT").write_text('{"format": 1, "created": "long ago"}\n')
        other.backup(tmp_path / "others")
    with pytest.raises(WarehouseError, match="of another warehouse"):
        db.backup(tmp_path / "others")
    with pytest.raises(WarehouseError, match="There is no backup"):
        ladle.restore(tmp_path / "full", tmp_path / "restored")
    db.backup(tmp_path / "backup")
    with pytest.raises(WarehouseError, match="is not empty"):
        ladle.restore(tmp_path / "backup", db.path)
    assert not (tmp_path / "restored").exists()
    db.close()
    with pytest.raises(Closed):
        db.backup(tmp_path / "backup")


def test_one_backup_at_a_time(db: Database, tmp_path: Path) -> None:
    fill(db)
    db.backup(tmp_path / "backup")
    with writing(tmp_path / "backup", (db.path / "FORMAT").read_text()):
        with pytest.raises(WarehouseBusy, match="by another process"):
            db.backup(tmp_path / "backup")
        with pytest.raises(WarehouseBusy, match="by another process"):
            ladle.restore(tmp_path / "backup", tmp_path / "restored")
    ladle.restore(tmp_path / "backup", tmp_path / "restored")


def test_a_damaged_backup_is_refused_by_name_and_nothing_is_left(db: Database, tmp_path: Path) -> None:
    fill(db)
    backup, target = tmp_path / "backup", tmp_path / "restored"
    db.backup(backup)
    for file in read_manifest(backup).files:
        path = backup / "files" / file.digest
        whole = path.read_bytes()
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 1
        for damaged in (bytes(flipped), whole[:-1], whole + b"\0", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(DamagedBackup) as refused:
                ladle.restore(backup, target)
            assert file.name in refused.value.message
            assert not target.exists()
        path.unlink(missing_ok=True)
        path.write_bytes(whole)
    manifest = bytearray((backup / "BACKUP").read_bytes())
    for at in range(0, len(manifest), 7):
        manifest[at] ^= 4
        (backup / "BACKUP").write_bytes(manifest)
        with pytest.raises(DamagedBackup, match="not what was written"):
            ladle.restore(backup, target)
        manifest[at] ^= 4
    (backup / "BACKUP").write_bytes(manifest)
    with restored(backup, target) as again:
        assert answers(again) == answers(db)


def test_a_backup_of_a_newer_version_is_refused(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.archive.backup_format.FORMAT_VERSION", 2)
    db.backup(tmp_path / "backup")
    monkeypatch.undo()
    with pytest.raises(WarehouseError, match="has format 2"):
        ladle.restore(tmp_path / "backup", tmp_path / "restored")


def test_a_file_that_is_cut_off_is_not_backed_up(db: Database, tmp_path: Path) -> None:
    fill(db)
    (path,) = (db.path / "streams/1/archive").glob("*.parquet")
    os.truncate(path, 10)
    with pytest.raises(WarehouseError, match="is broken") as refused:
        db.backup(tmp_path / "backup")
    assert path.name in refused.value.message
    path.unlink()
    with pytest.raises(WarehouseError, match="it is not there"):
        db.backup(tmp_path / "backup")


@pytest.mark.parametrize("files", ["streams/1/archive/*.parquet", "tables/*/*"])
def test_a_file_with_a_flipped_bit_is_not_backed_up(db: Database, tmp_path: Path, files: str) -> None:
    fill(db)
    backup = tmp_path / "backup"
    db.backup(backup)
    path = next(iter(db.path.glob(files)))
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    with pytest.raises(DamagedFile, match=re.escape(path.name)):
        db.backup(tmp_path / "another")
    db.backup(backup)  # has it from before, and whole
    with restored(backup, tmp_path / "restored") as again:
        assert (again.path / path.relative_to(db.path)).read_bytes() == whole


def test_backups_are_for_admins(db: Database, tmp_path: Path) -> None:
    fill(db)
    target = tmp_path / "backup"
    for role in (Role.READER, Role.WRITER):
        with pytest.raises(Denied, match="back the warehouse up"):
            db.session(User("bob", role)).execute(f"BACKUP TO '{target}'")
    assert not target.exists()
    root = db.session(User("root", Role.ADMIN))
    with pytest.raises(LadleError, match="not a whole path"):
        root.execute("BACKUP TO 'here'")
    assert len(root.execute(f"BACKUP TO '{target}'")[0]) == 4
    notes = [json.loads(line) for line in (db.path / "audit.log").read_text().splitlines()]
    assert [(note["action"], note["outcome"]) for note in notes][-1] == ("backup", "done")


def test_an_empty_warehouse_has_a_backup_too(db: Database, tmp_path: Path) -> None:
    db.backup(tmp_path / "it's a\\b")
    with restored(tmp_path / "it's a\\b", tmp_path / "restored") as again:
        assert again.catalog.seq == 0
        again.sql(TICKS)
