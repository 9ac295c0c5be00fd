"""Opening: what is created, what is refused and with which words, and the lock between processes."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ladle.access import LOCAL_USER
from ladle.archive.warehouse import FORMAT_VERSION, Warehouse
from ladle.errors import WarehouseBusy, WarehouseError
from ladle.schema import Column, StreamSchema
from ladle.sql.statement_types import CreateStream
from ladle.testing import connect_inline

_HOLD = """
import sys
from ladle.archive.warehouse import Warehouse
warehouse = Warehouse.open(sys.argv[1], writable=True)
print("open", flush=True)
sys.stdin.read()
"""


def test_creates_and_reopens(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    with Warehouse.open(root, writable=True) as warehouse:
        assert warehouse.writable
        assert warehouse.log == root / "log"
        assert warehouse.log.is_dir()
        assert warehouse.leases.is_dir()
        assert warehouse.socket == root / "ladle.sock"
        stream = warehouse.stream(7)
        assert stream.archive == root / "streams" / "7" / "archive"
        assert stream.results == root / "derived" / "results" / "7"
        assert len({stream.archive, stream.quarantine, stream.inbox, stream.sources}) == 4
    assert json.loads((root / "FORMAT").read_text())["format"] == FORMAT_VERSION
    Warehouse.open(str(root), writable=True).close()
    assert not Warehouse.open(root, writable=False).writable


def test_reading_needs_a_warehouse_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="no warehouse"):
        Warehouse.open(tmp_path / "none", writable=False)
    with pytest.raises(WarehouseError, match="not a warehouse"):
        Warehouse.open(tmp_path, writable=False)
    assert os.listdir(tmp_path) == []


def test_refuses_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WarehouseError, match="is a file"):
        Warehouse.open(tmp_path / "file", writable=True)
    with pytest.raises(WarehouseError, match="is a file"):
        Warehouse.open(tmp_path / "file", writable=False)
    with pytest.raises(WarehouseError, match="not empty and not a warehouse: it holds file"):
        Warehouse.open(tmp_path, writable=True)
    with pytest.raises(WarehouseError, match="Can't create"):
        Warehouse.open(tmp_path / "file" / "below", writable=True)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("writable", [True, False])
def test_refuses_a_newer_or_broken_format(tmp_path: Path, *, writable: bool) -> None:
    Warehouse.open(tmp_path, writable=True).close()
    (tmp_path / "FORMAT").write_text(json.dumps({"format": FORMAT_VERSION + 1}))
    with pytest.raises(WarehouseError, match="format 2") as caught:
        Warehouse.open(tmp_path, writable=writable)
    assert "newer Ladle" in str(caught.value)
    for broken in ("", "[]", '{"format": "x"}'):
        (tmp_path / "FORMAT").write_text(broken)
        with pytest.raises(WarehouseError, match="is broken"):
            Warehouse.open(tmp_path, writable=writable)


def test_a_creation_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / ".FORMAT.12-0badcafe-0.tmp").write_text("{")
    (tmp_path / "lost+found").mkdir()
    Warehouse.open(tmp_path, writable=True).close()
    assert Warehouse.open(tmp_path, writable=False).log.is_dir()


def test_one_writer(tmp_path: Path) -> None:
    first = Warehouse.open(tmp_path, writable=True)
    with pytest.raises(WarehouseBusy, match="this process already"):
        Warehouse.open(tmp_path, writable=True)
    Warehouse.open(tmp_path, writable=False)
    first.close()
    first.close()
    Warehouse.open(tmp_path, writable=True).close()


def test_another_process_holds_it_until_it_dies(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(WarehouseBusy, match=rf"process {holder.pid} \(since ") as caught:
            Warehouse.open(tmp_path, writable=True)
        assert "read_only=True" in str(caught.value)
        assert "`ladle`" in str(caught.value)
        Warehouse.open(tmp_path, writable=False)
        holder.kill()
        holder.wait()
    Warehouse.open(tmp_path, writable=True).close()


def test_a_lock_that_says_nothing_is_still_a_lock(tmp_path: Path) -> None:
    first = Warehouse.open(tmp_path, writable=True)
    (tmp_path / "lock").write_text("")
    with pytest.raises(WarehouseBusy, match="another process"):
        Warehouse.open(tmp_path, writable=True)
    first.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_an_unwritable_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    real = os.open

    def refuse(path: Any, flags: int, *rest: int, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return real(path, flags, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(WarehouseError) as caught:
            Warehouse.open(tmp_path, writable=True)
    assert caught.value.hint
    Warehouse.open(tmp_path, writable=True).close()


def test_a_failed_creation_releases_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(WarehouseError):
            Warehouse.open(tmp_path, writable=True)
    Warehouse.open(tmp_path, writable=True).close()


def test_derived_files_of_another_run_of_the_machine_are_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not synced: after a power cut some could be there with other bytes."""
    root = tmp_path / "warehouse"
    with Warehouse.open(root, writable=True) as warehouse:
        results = warehouse.stream(1).results
        results.mkdir(parents=True)
        (results / "a.results").write_bytes(b"x")
    with Warehouse.open(root, writable=True) as warehouse:
        assert warehouse.trusts_derived
        assert (results / "a.results").exists()
    monkeypatch.setattr("ladle.archive.warehouse.boot_id", lambda: "the next run")
    with Warehouse.open(root, writable=False) as reader:
        assert not reader.trusts_derived
        assert (results / "a.results").exists(), "a reader changes nothing"
    with Warehouse.open(root, writable=True) as warehouse:
        assert warehouse.trusts_derived
        assert not results.exists()


def modes(root: Path) -> dict[str, int]:
    """Of a directory and all in it, by name."""
    return {str(path.relative_to(root)): path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}


def may_be_reached(root: Path) -> set[str]:
    """What other users could read, if they may enter the warehouse's own directory."""
    found = set()
    for path in root.rglob("*"):
        above = [parent for parent in path.parents if parent.is_relative_to(root) and parent != root]
        open_way = all(parent.stat().st_mode & 0o001 for parent in above)
        if open_way and not path.is_dir() and path.stat().st_mode & 0o004:
            found.add(str(path.relative_to(root)))
    return found


def fill(root: Path) -> None:
    """A bit of everything: entries, pushes that wait, quarantine, tables, derived files, the audit log."""
    with connect_inline(root, settings={"maintenance_seconds": 3_600.0}) as db:
        db.execute("CREATE STREAM s (n INT, at TIMESTAMP) TIMESTAMP BY at; CREATE TABLE t (k INT)")
        db.sql("INSERT INTO t VALUES (1)")
        db.register("SELECT n FROM s WHERE n > 0", name="q")
        rows = [{"n": 1, "at": "2026-01-01T00:00:00Z"}, {"n": 2, "at": "9999-01-01T00:00:00Z"}]
        db.push("s", rows, wait=True)
        db.maintain()
        db.session(LOCAL_USER).run(CreateStream("u", StreamSchema((Column("a", pa.int32()),), None)))
        db.receive("s", rows)
        assert db.sql("SELECT * FROM s.quarantine")


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_warehouse_is_its_owners_alone(tmp_path: Path, open_umask: None) -> None:
    root = tmp_path / "warehouse"
    fill(root)
    assert modes(root)["."] == 0o700
    assert modes(root)["streams/1/archive"] & 0o005 == 0o005, "Delta tables can be let be read"
    reached = may_be_reached(root)
    assert reached
    assert all(re.match(r"streams/\d+/archive/", name) for name in reached), reached
    private = [name for name in modes(root) if re.match(r"(log|streams/1/inbox)/|FORMAT|lock|audit.log|boot", name)]
    assert {modes(root)[name] for name in private} == {0o600}, private


def test_what_an_older_version_let_others_read_is_taken_from_them(tmp_path: Path, open_umask: None) -> None:
    root = tmp_path / "warehouse"
    fill(root)
    for path in (root, *root.rglob("*")):
        if path.name != "audit.log":  # that was private then, too
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert "log/00000000000000000001.json" in may_be_reached(root)
    Warehouse.open(root, writable=True).close()
    others = {name for name in may_be_reached(root) if not re.match(r"streams/\d+/archive/", name)}
    assert others == {"FORMAT", "boot", "lock"}
    assert modes(root)["."] == 0o755, "how far it is open is its owner's to say"
