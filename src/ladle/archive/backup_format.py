"""A backup: a directory with everything durable of a warehouse as of one entry of its log.

BACKUP            the manifest: each file of the warehouse with its size and digest; then a checksum of that line
files/<digest>    the bytes of those files
lock              held while a backup is written, and shared by those who read one

Files are named by what is in them. So equal ones are there once, one that an older backup has is not copied again, and
none is ever changed. The new manifest takes the older one's place when all that it names is on the disk, and only then
what it does not name is removed: a backup that is cut short, wherever, leaves the older one as it was.

Files are copied and never linked: a disk that loses one must not lose both.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from ladle.archive.files import (
    fsync_directory,
    is_temporary,
    make_private,
    storage_error,
    temporary_path,
    write_durably,
)
from ladle.errors import WarehouseBusy, WarehouseError

FORMAT_VERSION = 1

_MANIFEST = "BACKUP"
_FILES = "files"
_LOCK = "lock"
_PIECE_BYTES = 1 << 20
_NAMED_MAX = 3

logger = logging.getLogger(__name__)

Told = Callable[[int], None]
"""Is told how many bytes were dealt with since it was last told."""


class DamagedBackup(WarehouseError):
    """A backup that is not what was written, or not wholly there."""

    code = "damaged_backup"


@dataclass(frozen=True)
class Saved:
    """A file of the warehouse, by its name there, and what names its bytes in the backup."""

    name: str
    bytes: int
    digest: str


@dataclass(frozen=True)
class BackupManifest:
    """What a backup consists of."""

    warehouse: str
    """The content of the warehouse's FORMAT, which says when it was made."""
    entry: int
    epoch: int
    at: str
    files: tuple[Saved, ...]

    @property
    def bytes(self) -> int:
        """How many bytes the files of the backup have."""
        return sum(file.bytes for file in self.files)


@dataclass
class Copying:
    """A backup that is being written. Made by `writing`."""

    directory: Path
    older: BackupManifest | None
    """The backup that the directory holds until this one is done."""
    copied: set[str] = field(default_factory=set)
    """The names of files whose bytes were not there before."""
    _older_files: Mapping[str, Saved] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._older_files = {} if self.older is None else {file.name: file for file in self.older.files}

    def unchanged(self, name: str, size: int) -> Saved | None:
        """A file that never changes, if the older backup has it: it need not be read again."""
        known = self._older_files.get(name)
        return known if known is not None and known.bytes == size and self._has(known) else None

    def copy(self, source: Path, name: str, told: Told | None = None) -> Saved:
        """Copy a file of the warehouse. Raises FileNotFoundError when it is gone."""
        try:
            opened = source.open("rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(error, source, "read") from error
        with opened:
            pieces = _pieces(opened, source)
            first = next(pieces, b"")
            # Most of what is read each time, like the checkpoints of sources, is small and there already.
            if len(first) < _PIECE_BYTES and self._has(known := Saved(name, len(first), _digest(first))):
                if told is not None:
                    told(len(first))
                return known
            return self.put(name, itertools.chain([first], pieces), told)

    def put(self, name: str, pieces: Iterable[bytes], told: Told | None = None) -> Saved:
        """Write a file of the warehouse from its bytes."""
        target = self.directory / _FILES / PurePosixPath(name).name
        temporary = temporary_path(target)
        try:
            digest, size = _write(temporary, pieces, told)
            saved = Saved(name, size, digest)
            if self._has(saved):
                os.unlink(temporary)
            else:
                os.rename(temporary, self._path(digest))
                self.copied.add(name)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise storage_error(error, target, "write") from error
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        return saved

    def finish(self, manifest: BackupManifest) -> None:
        """Let this be the directory's backup, and remove what it does not need."""
        try:
            fsync_directory(self.directory / _FILES)
            fsync_directory(self.directory)
            write_durably(self.directory / _MANIFEST, _encode(manifest))
            needed = {file.digest for file in manifest.files}
            for name in os.listdir(self.directory / _FILES):
                if name not in needed:
                    os.unlink(self.directory / _FILES / name)
        except OSError as error:
            raise storage_error(error, self.directory, "write") from error

    def _path(self, digest: str) -> Path:
        return self.directory / _FILES / digest

    def _has(self, file: Saved) -> bool:
        try:
            return self._path(file.digest).stat().st_size == file.bytes
        except FileNotFoundError:
            return False


@contextmanager
def writing(directory: Path, warehouse: str) -> Iterator[Copying]:
    """Write a backup of the warehouse with that FORMAT into a directory, which is made if it is not there."""
    try:
        if not directory.exists():
            make_private(directory)
        names = os.listdir(directory)
    except OSError as error:
        raise storage_error(error, directory, "write") from error
    foreign = sorted(name for name in names if name not in (_MANIFEST, _FILES, _LOCK) and not is_temporary(name))
    if foreign:
        listed = ", ".join(foreign[:_NAMED_MAX]) + (", ..." if len(foreign) > _NAMED_MAX else "")
        raise WarehouseError(
            f"'{directory}' is not empty and not a backup: it holds {listed}.", hint="name a new or empty directory"
        )
    with _locked(directory, exclusive=True):
        older = _older(directory)
        if older is not None and older.warehouse != warehouse:
            raise WarehouseError(
                f"'{directory}' holds a backup of another warehouse.", hint="name another directory for this one"
            )
        make_private(directory / _FILES)
        yield Copying(directory, older)


def _older(directory: Path) -> BackupManifest | None:
    try:
        return read_manifest(directory) if (directory / _MANIFEST).exists() else None
    except DamagedBackup as error:
        # What it named is not known, so all is read again; what is there already is found by its digest.
        logger.warning("a new backup takes the place of one that can't be read: %s", error.message)
        return None


def read_manifest(directory: Path) -> BackupManifest:
    """What the backup in a directory consists of; whether its files are well is not looked at."""
    path = directory / _MANIFEST
    try:
        body, newline, checksum = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        raise WarehouseError(
            f"There is no backup in '{directory}'.", hint="name the directory that `ladle backup` wrote to"
        ) from None
    except OSError as error:
        raise storage_error(error, path, "read") from error
    if not newline or checksum != _checksum(body):
        raise DamagedBackup(f"'{path}' is not what was written.", hint="use another backup")
    document = json.loads(body)
    if document["format"] > FORMAT_VERSION:
        raise WarehouseError(
            f"The backup in '{directory}' has format {document['format']}; this Ladle knows formats up to "
            f"{FORMAT_VERSION}.",
            hint="restore it with a newer Ladle",
        )
    files = tuple(Saved(*file) for file in document["files"])
    return BackupManifest(document["warehouse"], document["entry"], document["epoch"], document["at"], files)


@contextmanager
def reading(directory: Path) -> Iterator[BackupManifest]:
    """A backup all of whose files are there, with the sizes they should have; none goes away meanwhile."""
    with _locked(directory, exclusive=False):
        manifest = read_manifest(directory)
        wrong = [file for file in manifest.files if not _is_there(directory, file)]
        if wrong:
            raise _damaged(directory, wrong, "missing or cut off")
        yield manifest


def checked_bytes(directory: Path, file: Saved) -> Iterator[bytes]:
    """A file's bytes; raises at the end when they are not what was written."""
    digest = _new_digest()
    try:
        with _path(directory, file).open("rb") as opened:
            while piece := opened.read(_PIECE_BYTES):
                digest.update(piece)
                yield piece
    except OSError as error:
        raise storage_error(error, _path(directory, file), "read") from error
    if digest.hexdigest() != file.digest:
        raise _damaged(directory, [file], "not what was written")


def _is_there(directory: Path, file: Saved) -> bool:
    try:
        return _path(directory, file).stat().st_size == file.bytes
    except OSError:
        return False


def _path(directory: Path, file: Saved) -> Path:
    return directory / _FILES / file.digest


def _damaged(directory: Path, files: list[Saved], how: str) -> DamagedBackup:
    listed = ", ".join(f"{file.name} ('{_path(directory, file)}')" for file in files[:_NAMED_MAX])
    more = f" and {len(files) - _NAMED_MAX:,} more" if len(files) > _NAMED_MAX else ""
    return DamagedBackup(
        f"Of the backup in '{directory}' {how}: {listed}{more}. Nothing was restored.",
        hint="use another backup; or, if the warehouse still lives, delete what is named there and back it up again",
    )


def _pieces(opened: IO[bytes], path: Path) -> Iterator[bytes]:
    try:
        while piece := opened.read(_PIECE_BYTES):
            yield piece
    except OSError as error:
        raise storage_error(error, path, "read") from error


def _write(path: Path, pieces: Iterable[bytes], told: Told | None) -> tuple[str, int]:
    """Write a file to the disk; the digest of its bytes, and how many they are."""
    digest = _new_digest()

    def digested() -> Iterator[bytes]:
        for piece in pieces:
            digest.update(piece)
            yield piece

    size = write_new(path, digested(), 0o600, told)
    return digest.hexdigest(), size


def write_new(path: Path, pieces: Iterable[bytes], mode: int, told: Told | None) -> int:
    """Write a file that is not there yet to the disk; how many bytes it has."""
    size = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        for piece in pieces:
            size += len(piece)
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if told is not None:
                told(len(piece))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size


def _encode(manifest: BackupManifest) -> bytes:
    document = {
        "format": FORMAT_VERSION,
        "warehouse": manifest.warehouse,
        "entry": manifest.entry,
        "epoch": manifest.epoch,
        "at": manifest.at,
        "files": [[file.name, file.bytes, file.digest] for file in manifest.files],
    }
    body = json.dumps(document, separators=(",", ":")).encode()
    return body + b"\n" + _checksum(body)


def _checksum(body: bytes) -> bytes:
    return b"blake2b " + _digest(body).encode() + b"\n"


def _digest(data: bytes) -> str:
    digest = _new_digest()
    digest.update(data)
    return digest.hexdigest()


def _new_digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=32)


@contextmanager
def _locked(directory: Path, *, exclusive: bool) -> Iterator[None]:
    """Nobody else writes to the backup meanwhile; with `exclusive`, nobody reads it either."""
    path = directory / _LOCK
    try:
        flags = os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if exclusive:
            raise storage_error(error, path, "write") from error
        # Without the file, nobody has written here since it was copied from elsewhere.
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WarehouseBusy(
                f"The backup in '{directory}' is being written or restored by another process.",
                hint="wait until that is done",
            ) from None
        yield
    finally:
        os.close(descriptor)
