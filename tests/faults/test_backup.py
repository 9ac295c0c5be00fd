"""Kills while a warehouse is backed up or restored. Method: a child does it, and is killed (SIGKILL) at each step that
touches the disk, one after the other, until one gets to its end. What a killed backup leaves is the older backup or the
new one, whole, and the next backup is as good as any. What a killed restore leaves is no warehouse, or all of it.
"""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import SCHEMA, back_up_until, forked, restore_until, rows_of

import ladle
from ladle.archive.backup_format import read_manifest
from ladle.engine import Database
from ladle.errors import WarehouseError
from ladle.testing import connect_inline

QUIET = {"maintenance_seconds": 3_600.0, "compact_files_min": 2, "grace_seconds": 0.0}


def state_of(db: Database) -> dict[str, Any]:
    for stream in db.catalog.streams.values():
        db._ingest.drain(stream)
    rows = db.sql("SELECT n FROM a").table.column("n").to_pylist()
    return {"rows": rows, "table": db.sql("SELECT * FROM t").to_pylist(), "q": len(db.invoke("q"))}


@pytest.fixture
def warehouse(tmp_path: Path) -> tuple[Path, Path, dict[str, Any], dict[str, Any]]:
    """A warehouse, an older backup of it, and the state then and now."""
    path, backup = tmp_path / "warehouse", tmp_path / "backup"
    with connect_inline(path, settings=QUIET) as db:
        db.execute(f"{SCHEMA.format(name='a')}; CREATE TABLE t (k INT); INSERT INTO t VALUES (1)")
        db.register("SELECT n FROM a WHERE k < 5", name="q")
        for push in (1, 2):
            db.push("a", rows_of(push, 5), wait=True)
        db.backup(backup)
        before = state_of(db)
        db.sql("INSERT INTO t VALUES (2)")
        db.push("a", rows_of(3, 5), wait=True)
        for _ in range(3):
            db.maintain()
        db.receive("a", rows_of(4, 5))
    # The state now is with the push that waits: seen in a copy, where it is taken in.
    shutil.copytree(path, tmp_path / "copy")
    with connect_inline(tmp_path / "copy", settings=QUIET) as db:
        after = state_of(db)
    assert len(after["rows"]) == 20
    return path, backup, before, after


def killed_at_each_step(work: Callable[..., None], *arguments: Any, before: Callable[[], None]) -> Any:
    """The steps at which a child was killed; ends with the one that got to its end."""
    for kill_at in itertools.count(1, 2):  # before each call; after it is before the next
        before()
        code = forked(work, kill_at, *arguments)
        if code == 0:
            return
        assert code == -signal.SIGKILL
        yield kill_at


def restored(backup: Path, to: Path) -> dict[str, Any]:
    ladle.restore(backup, to)
    with connect_inline(to, settings=QUIET) as db:
        found = state_of(db)
    shutil.rmtree(to)
    return found


def test_killed_while_backing_up(warehouse: tuple[Path, Path, dict[str, Any], dict[str, Any]], tmp_path: Path) -> None:
    path, older, before, after = warehouse
    backup, to = tmp_path / "killed", tmp_path / "restored"

    def begin() -> None:
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(older, backup)

    seen = []
    for kill_at in killed_at_each_step(back_up_until, path, backup, before=begin):
        found = restored(backup, to)
        assert found in (before, after), kill_at
        seen.append(found == after)
        if kill_at % 10 == 1:
            with connect_inline(path, settings=QUIET, read_only=True) as db:
                db.backup(backup)
            assert restored(backup, to) == after
            held = {file.name for file in (backup / "files").iterdir()}
            assert held == {file.digest for file in read_manifest(backup).files}, "what the killed one left is gone"
    assert restored(backup, to) == after
    assert seen == sorted(seen), "from one step on it is the new one"
    assert len(seen) > 15
    assert {*seen} == {False, True}


def test_killed_while_restoring(warehouse: tuple[Path, Path, dict[str, Any], dict[str, Any]], tmp_path: Path) -> None:
    _, backup, before, _ = warehouse
    to = tmp_path / "restored"
    outcomes = []
    for kill_at in killed_at_each_step(restore_until, backup, to, before=lambda: shutil.rmtree(to, ignore_errors=True)):
        whole = (to / "FORMAT").exists()
        outcomes.append(whole)
        if not whole:
            for read_only in (True, False):
                if to.exists() and any(to.iterdir()):
                    with pytest.raises(WarehouseError, match="not a warehouse"):
                        connect_inline(to, settings=QUIET, read_only=read_only)
            ladle.restore(backup, to)
        with connect_inline(to, settings=QUIET) as db:
            assert state_of(db) == before, kill_at
    assert outcomes == sorted(outcomes)
    assert len(outcomes) > 10
