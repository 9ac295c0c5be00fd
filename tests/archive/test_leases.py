"""Leases between processes: held while the owner lives, gone when it does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ladle.archive.leases import Leases

_HOLD = """
import sys
from pathlib import Path
from ladle.archive.leases import Leases
lease = Leases(Path(sys.argv[1])).acquire(3)
print("held", flush=True)
sys.stdin.readline()
lease.move(8)
print("moved", flush=True)
sys.stdin.read()
"""


def test_the_oldest_counts(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    assert leases.oldest() is None
    first, second = leases.acquire(5), leases.acquire(9)
    assert first is not None
    assert second is not None
    assert leases.oldest() == 5
    first.move(12)
    assert leases.oldest() == 9
    second.release()
    second.release()
    assert leases.oldest() == 12
    with first:
        pass
    assert leases.oldest() is None
    assert os.listdir(tmp_path) == []


def test_a_lease_ends_with_its_owner(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        assert leases.oldest() == 3
        owner.stdin.write(b"\n")
        owner.stdin.flush()
        assert owner.stdout.readline() == b"moved\n"
        assert leases.oldest() == 8
        assert os.listdir(tmp_path)[0].startswith(f"{owner.pid}-")
        owner.kill()
        owner.wait()
    assert leases.oldest() is None
    assert os.listdir(tmp_path) == []


def test_goes_without_where_it_can_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Leases(tmp_path / "missing").acquire(1) is None
    assert Leases(tmp_path / "missing").oldest() is None

    def read_only(*_: Any, **__: Any) -> int:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        assert Leases(tmp_path).acquire(1) is None


def test_a_lease_being_made_is_left_alone_and_an_abandoned_one_removed(tmp_path: Path) -> None:
    fresh, old = tmp_path / ".1-a.1-0badcafe-0.tmp", tmp_path / ".1-b.1-0badcafe-1.tmp"
    fresh.touch()
    old.touch()
    os.utime(old, (time.time() - 3_600,) * 2)
    assert Leases(tmp_path).oldest() is None
    assert os.listdir(tmp_path) == [fresh.name]


def test_an_unreadable_position_holds_everything(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    with leases.acquire(5) or pytest.fail("no lease"):
        (tmp_path / os.listdir(tmp_path)[0]).write_bytes(b"00000000000000000005 00000000000000000006\n")
        assert leases.oldest() == 0


def test_a_position_is_never_seen_half_moved(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    lease = leases.acquire(10**9)
    assert lease is not None
    stop = threading.Event()

    def move() -> None:
        while not stop.is_set():
            lease.move(10**9)
            lease.move(10**9 - 1)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        assert {leases.oldest() for _ in range(2_000)} <= {10**9, 10**9 - 1}
    finally:
        stop.set()
        thread.join()
