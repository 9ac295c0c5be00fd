"""Readers in other processes hold a lease on the log position they read at, so that no file goes away under
them.

A lease is a small file, locked by its owner for as long as it lives and holding the position. A reader takes
the lease before it loads the log (position 0 holds everything), then moves it to what it loaded; the writer
asks for the oldest right before it deletes files that the log no longer names. Whoever comes after that sees
a log without those files.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import time
from pathlib import Path

from ladle.archive.files import is_temporary, temporary_path

_ABANDONED_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Lease:
    """Held by its descriptor's lock: it ends with `release`, or with the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    def move(self, seq: int) -> None:
        """Say which entry is read from now on; files that only older entries need may go."""
        assert self._descriptor is not None, "the lease was released"
        os.pwrite(self._descriptor, _encode(seq), 0)

    def release(self) -> None:
        """May be called again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(descriptor)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """The leases of one warehouse."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def acquire(self, seq: int) -> Lease | None:
        """None when the directory can't be written: a reader on a read-only mount goes without."""
        path = self._directory / f"{os.getpid()}-{secrets.token_hex(4)}"
        temporary = temporary_path(path)
        try:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            logger.debug("reading without a lease: %s", error)
            return None
        try:
            # Locked before it gets its name, so that nobody takes it for a dead one.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(descriptor, _encode(seq), 0)
            os.rename(temporary, path)
        except OSError as error:
            logger.debug("reading without a lease: %s", error)
            os.close(descriptor)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            return None
        return Lease(path, descriptor)

    def oldest(self) -> int | None:
        """The lowest position that a living reader holds; leases of the dead are removed on the way."""
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return None
        positions = [seq for name in names if (seq := self._position(self._directory / name)) is not None]
        return min(positions, default=None)

    def _position(self, path: Path) -> int | None:
        if is_temporary(path.name) and not _is_old(path):
            return None
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if _is_locked(descriptor):
                return None if is_temporary(path.name) else _decode(descriptor)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        finally:
            os.close(descriptor)


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _ABANDONED_SECONDS
    except OSError:
        return False


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _encode(seq: int) -> bytes:
    # Twice, so that a position read while it is being moved is noticed.
    return f"{seq:020d} {seq:020d}\n".encode()


def _decode(descriptor: int) -> int:
    """The position; 0, which holds everything, when it can't be read."""
    for _ in range(100):
        try:
            first, second = os.pread(descriptor, 64, 0).split()
        except ValueError:
            continue
        if first == second:
            return int(first)
    return 0
