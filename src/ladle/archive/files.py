"""The one place that writes durably.

A file is there wholly or not at all: its bytes go to a temporary file beside it, reach the disk, and only
then get the name. Temporary names begin with a dot (Spark and other readers skip those) and carry a mark of
the process that writes them, so that what a killed process left behind can be told from what is being
written now.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import secrets
from pathlib import Path

from ladle.errors import DiskFull, WarehouseError

_PROCESS = secrets.token_hex(4)
_numbers = itertools.count()
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_PRIVATE = 0o600
_PRIVATE_DIRECTORY = 0o700

logger = logging.getLogger(__name__)


class MissingFile(WarehouseError):
    """A file the log names is gone: deleted by hand, or under a reader that holds no lease."""

    code = "missing_file"


def write_durably(path: Path, data: bytes | memoryview, *, fsync: bool = True) -> None:
    """Write `path` so that after a crash it is there wholly or not at all; on failure nothing is left.

    Only the owner may read it.
    """
    temporary = temporary_path(path)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
        try:
            rest = memoryview(data).cast("B")
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        publish(temporary, path, fsync=fsync)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise storage_error(error, path, "write") from error


def make_private(directory: Path) -> None:
    """Make a directory that only its owner may look into; one that is there is made so, where the file system can."""
    directory.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o777 == _PRIVATE_DIRECTORY:
        return
    try:
        directory.chmod(_PRIVATE_DIRECTORY)
    except OSError as error:
        logger.warning("others may read '%s': %s", directory, error.strerror)


def publish(temporary: Path, path: Path, *, fsync: bool = True) -> None:
    """Give a finished temporary file its name; when that can't be made durable, take the name away again."""
    replaces = path.exists()
    os.rename(temporary, path)
    if not fsync:
        return
    try:
        fsync_directory(path.parent)
    except OSError:
        if not replaces:
            with contextlib.suppress(OSError):
                path.unlink()
        raise


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable: a new file is only safe when its directory is synced too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make the contents of a file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_path(path: Path) -> Path:
    """A name beside `path` that no other writer uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{_PROCESS}-{next(_numbers)}.tmp")


def is_temporary(name: str) -> bool:
    """Whether this is the name of a file that is still being written."""
    return name.startswith(".") and name.endswith(".tmp")


def is_abandoned(name: str) -> bool:
    """Whether a file is the half-written work of a process other than this one."""
    return is_temporary(name) and f"-{_PROCESS}-" not in name


def storage_error(error: OSError, path: Path, doing: str) -> WarehouseError:
    """What the user is told when the file system refuses."""
    if error.errno in _NO_SPACE:
        return DiskFull(
            f"No space left to {doing} '{path.name}' in '{path.parent}'. Nothing that was committed is lost.",
            hint="free some space on that disk and try again",
        )
    if isinstance(error, FileNotFoundError):
        return MissingFile(
            f"Can't {doing} '{path}': it is not there.",
            hint="if it was deleted by hand, restore it from a backup",
        )
    reason = error.strerror or str(error)
    return WarehouseError(
        f"Can't {doing} '{path}': {reason}.",
        hint="check that the disk is healthy and that this user may read and write there, then try again",
    )
