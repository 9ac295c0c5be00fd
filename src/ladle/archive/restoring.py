"""Restoring: a backup becomes a warehouse again, in a directory that is new or empty.

The warehouse's FORMAT is written last, so that a directory where this was cut short is no warehouse; a file says what
it is instead, and the next attempt begins anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from ladle.archive.backup_format import BackupManifest, DamagedBackup, Saved, Told, checked_bytes, reading, write_new
from ladle.archive.files import fsync_directory, storage_error
from ladle.archive.warehouse import FORMAT
from ladle.errors import WarehouseBusy, WarehouseError

_UNFINISHED = "RESTORING"
_IGNORED = {"lost+found"}


def restore_files(backup: Path, root: Path, told: Told | None = None) -> BackupManifest:
    """Make a warehouse of a backup, whose files are checked on the way. When it raises, nothing is left."""
    with reading(backup) as manifest, _unfinished(root):
        *others, form = sorted(manifest.files, key=lambda file: file.name == FORMAT)
        if form.name != FORMAT:
            raise DamagedBackup(f"The backup in '{backup}' is no warehouse: it has no {FORMAT}.")
        directories: set[Path] = set()
        for file in (*others, form):
            if file is form:
                # All else is on the disk before this makes it a warehouse.
                for directory in sorted(directories):
                    fsync_directory(directory)
            target = root / _inside(backup, file)
            target.parent.mkdir(mode=0o755 if _is_archive(file.name) else 0o700, parents=True, exist_ok=True)
            directories.update(parent for parent in target.parents if parent.is_relative_to(root))
            write_new(target, checked_bytes(backup, file), 0o644 if _is_archive(file.name) else 0o600, told)
        fsync_directory(root)
        fsync_directory(root.parent)
        return manifest


def _is_archive(name: str) -> bool:
    """Whether others may be let read it, as part of a Delta table."""
    return "/archive/" in name


def _inside(backup: Path, file: Saved) -> PurePosixPath:
    name = PurePosixPath(file.name)
    if name.is_absolute() or ".." in name.parts or name.parts[0] == _UNFINISHED:
        raise DamagedBackup(f"The backup in '{backup}' has a file that is not in a warehouse: {file.name}.")
    return name


@contextmanager
def _unfinished(root: Path) -> Iterator[None]:
    """While a directory is filled it says so; when that fails, it is as it was."""
    new = not root.exists()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark = os.open(root / _UNFINISHED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if _may_fill(root) else None
    except OSError as error:
        raise storage_error(error, root, "write") from error
    if mark is None:
        raise WarehouseError(
            f"'{root}' is not empty: a backup is restored into a new directory.",
            hint="name another directory, or move this one away first",
        )
    try:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WarehouseBusy(f"Another process restores a backup into '{root}'.", hint="wait for it") from None
        try:
            _empty(root)
            fsync_directory(root)
            yield
            os.unlink(root / _UNFINISHED)
            fsync_directory(root)
        except BaseException as error:
            with contextlib.suppress(OSError):
                _empty(root)
                os.unlink(root / _UNFINISHED)
                if new:
                    root.rmdir()
            if isinstance(error, OSError):
                raise storage_error(error, root, "write") from error
            raise
    finally:
        os.close(mark)


def _may_fill(root: Path) -> bool:
    names = set(os.listdir(root)) - _IGNORED
    return not names or (_UNFINISHED in names and FORMAT not in names)


def _empty(root: Path) -> None:
    """Remove all but the mark: FORMAT first, so that what is left is no warehouse."""
    names = sorted(os.listdir(root), key=lambda name: name != FORMAT)
    for name in names:
        if name == _UNFINISHED or name in _IGNORED:
            continue
        path = root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            os.unlink(path)
