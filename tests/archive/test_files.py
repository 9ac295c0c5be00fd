"""A write is there wholly or not at all: every system call in it is made to fail in turn."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ladle.archive.files import is_abandoned, temporary_path, write_durably
from ladle.errors import DiskFull, WarehouseError


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_durably(path, b"one")
    write_durably(path, memoryview(b"two"))
    write_durably(tmp_path / "y", b"", fsync=False)
    assert path.read_bytes() == b"two"
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES])
def test_a_failure_leaves_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write_durably(old, b"before")

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        for path in (old, new):
            with pytest.raises(WarehouseError) as caught:
                write_durably(path, b"after")
            assert isinstance(caught.value, DiskFull) == (number in (errno.ENOSPC, errno.EDQUOT))
            assert str(tmp_path) in str(caught.value)
            assert caught.value.hint
    assert old.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["old"]
    write_durably(new, b"after")
    assert new.read_bytes() == b"after"


def test_a_name_that_is_not_durable_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.fsync, []

    def fail_on_directory(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EIO, "broken")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_on_directory)
    with pytest.raises(WarehouseError, match="broken"):
        write_durably(tmp_path / "x", b"data")
    assert os.listdir(tmp_path) == []


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    write_durably(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def test_a_missing_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="gone"):
        write_durably(tmp_path / "gone" / "x", b"")


def test_own_temporary_files_are_not_abandoned(tmp_path: Path) -> None:
    assert not is_abandoned(temporary_path(tmp_path / "x").name)
    assert is_abandoned(".x.1-0badcafe-0.tmp")
    assert not is_abandoned("x.tmp")


def test_a_durable_write_is_quick(tmp_path: Path) -> None:
    started = time.perf_counter()
    for number in range(20):
        write_durably(tmp_path / str(number), b"x" * 1_000)
    assert time.perf_counter() - started < 5
