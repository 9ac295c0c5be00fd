"""The directory that holds everything, and the lock of the one process that writes it.

FORMAT                   which format this is
lock                     flock'ed by the writer; says who it is
ladle.sock               where the writer listens
log/                     the one log: what is true
streams/<id>/archive/    a stream's segments, also a Delta table; beside it quarantine/, inbox/, sources/
tables/<id>/             a table's rows, each version a file
leases/                  what readers in other processes hold on to
positions                since which entry subscribers were told something, by stream
derived/                 may be deleted at any moment
boot                     the run of the machine in which derived/ was begun

A directory that is made for it is its owner's alone (0700), and so is in any case all but the archives: who wants other
users' tools to read those as Delta tables opens the way to them (`chmod 711`), and to nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from ladle.archive.files import fsync_directory, is_temporary, make_private, storage_error, write_durably
from ladle.archive.folder import local_folder
from ladle.errors import WarehouseBusy, WarehouseError
from ladle.json_values import JsonObject

FORMAT_VERSION = 1

FORMAT = "FORMAT"
_LOCK = "lock"
_BOOT = "boot"
# What a new warehouse may already contain: a creation that was cut short, or the root of a fresh disk.
_IGNORED = {_LOCK, "lost+found"}


@dataclass(frozen=True)
class StreamPaths:
    """Where one stream keeps its files."""

    archive: Path
    quarantine: Path
    inbox: Path
    sources: Path
    results: Path


def archive_of(stream_id: int) -> str:
    """Where a stream's segments, a Delta table too, are in the warehouse."""
    return f"streams/{stream_id}/archive"


class Warehouse:
    """An open warehouse. `open` is the only way to get one."""

    def __init__(self, path: Path, *, lock: int | None) -> None:
        self.path = path
        self.log = path / "log"
        self.streams = path / "streams"
        self.tables = path / "tables"
        self.derived = path / "derived"
        self.joins = self.derived / "joins"
        self.leases = path / "leases"
        self.socket = path / "ladle.sock"
        self._lock = lock
        self._stream_paths: dict[int, StreamPaths] = {}

    @staticmethod
    def open(path: str | Path, *, writable: bool) -> Warehouse:
        """For writing: create what is missing and take the lock. For reading: change nothing."""
        root = local_folder(path).absolute()
        try:
            is_file = root.exists() and not root.is_dir()
        except OSError as error:
            raise storage_error(error, root, "read") from error
        if is_file:
            raise WarehouseError(f"'{root}' is a file, not a warehouse.", hint="name a directory")
        return _open_for_writing(root) if writable else _open_for_reading(root)

    @property
    def writable(self) -> bool:
        """Whether this process holds the lock."""
        return self._lock is not None

    def stream(self, stream_id: int) -> StreamPaths:
        """The directories of a stream."""
        if stream_id not in self._stream_paths:
            self._stream_paths[stream_id] = self._paths_of(stream_id)
        return self._stream_paths[stream_id]

    def data(self, stream_id: int, *, quarantine: bool) -> Path:
        """Where the data files of a stream are, or of a quarantine, whose id is the next after its stream's."""
        return self.stream(stream_id - 1).quarantine if quarantine else self.stream(stream_id).archive

    def table(self, table_id: int) -> Path:
        """Where the versions of a table are."""
        return self.tables / str(table_id)

    def _paths_of(self, stream_id: int) -> StreamPaths:
        root = self.streams / str(stream_id)
        return StreamPaths(
            archive=self.path / archive_of(stream_id),
            quarantine=root / "quarantine",
            inbox=root / "inbox",
            sources=root / "sources",
            results=self.derived / "results" / str(stream_id),
        )

    @property
    def positions(self) -> Path | None:
        """Where the oldest positions that are promised are; None for a process that only reads."""
        return self.path / "positions" if self.writable else None

    @property
    def trusts_derived(self) -> bool:
        """Whether derived files are what was written. They are not synced, so that is known only while the machine that
        wrote them is up; after a power cut some might hold other bytes.
        """
        try:
            return (self.path / _BOOT).read_text() == boot_id()
        except OSError:
            return False

    def empty_derived(self) -> None:
        """Throw away all that is derived."""
        for path in self.derived.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process write; may be called again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(lock, 0)
            os.close(lock)

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_for_reading(root: Path) -> Warehouse:
    if not _has_format(root):
        raise WarehouseError(
            f"'{root}' is not a warehouse." if root.exists() else f"There is no warehouse at '{root}'.",
            hint="check the path, or open it for writing once to create it",
        )
    return Warehouse(root, lock=None)


def _open_for_writing(root: Path) -> Warehouse:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, root, "create") from error
    if not _has_format(root):
        _refuse_foreign(root)
    lock = _take_lock(root)
    try:
        if not _has_format(root):
            body: JsonObject = {"format": FORMAT_VERSION, "created": datetime.now(UTC).isoformat(timespec="seconds")}
            write_durably(root / FORMAT, json.dumps({**body, "checksum": _checksum(body)}).encode() + b"\n")
            fsync_directory(root.parent)
        warehouse = Warehouse(root, lock=lock)
        _keep_private(warehouse)
        if not warehouse.trusts_derived:
            _begin_derived(warehouse)
        fsync_directory(root)
    except OSError as error:
        os.close(lock)
        raise storage_error(error, root, "write") from error
    except BaseException:
        os.close(lock)
        raise
    return warehouse


def _keep_private(warehouse: Warehouse) -> None:
    """Make what is missing, and take from others what an older version let them read."""
    for directory in (warehouse.log, warehouse.tables, warehouse.derived, warehouse.leases):
        make_private(directory)
    warehouse.streams.mkdir(exist_ok=True)
    for part in ("inbox", "quarantine", "sources"):
        for directory in warehouse.streams.glob(f"*/{part}"):
            make_private(directory)


def boot_id() -> str:
    """Names this run of the machine. Without a name from the system, every process is one of its own."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{os.getpid()}-{time.time_ns()}"


def _begin_derived(warehouse: Warehouse) -> None:
    """Throw away what may not be what was written."""
    warehouse.empty_derived()
    write_durably(warehouse.path / _BOOT, boot_id().encode())


def _has_format(root: Path) -> bool:
    """Whether this is a warehouse we can open; raises when it is one that we can't."""
    path = root / FORMAT
    try:
        body = json.loads(path.read_bytes())
        version = int(body["format"])
        if body.pop("checksum", None) not in (None, _checksum(body)):
            raise ValueError("its checksum does not match")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise storage_error(error, path, "read") from error
    except (ValueError, KeyError, TypeError) as error:
        raise WarehouseError(
            f"'{path}' is broken.",
            hint=f'if this is a Ladle warehouse, write {{"format": {FORMAT_VERSION}}} into it',
        ) from error
    if version > FORMAT_VERSION:
        raise WarehouseError(
            f"The warehouse '{root}' has format {version}; this Ladle knows formats up to {FORMAT_VERSION}.",
            hint="open it with a newer Ladle",
        )
    return True


def _checksum(body: JsonObject) -> int:
    return crc32(json.dumps(body, sort_keys=True).encode())


def verify_format(root: Path) -> bool:
    """Whether the file that says which format a warehouse has is protected by a checksum; raises if it is damaged."""
    return _has_format(root) and "checksum" in json.loads((root / FORMAT).read_bytes())


def _refuse_foreign(root: Path) -> None:
    try:
        names = sorted(name for name in os.listdir(root) if name not in _IGNORED and not is_temporary(name))
    except OSError as error:
        raise storage_error(error, root, "read") from error
    if names and not _has_format(root):
        listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise WarehouseError(
            f"'{root}' is not empty and not a warehouse: it holds {listed}.",
            hint="name a new or empty directory",
        )


def _take_lock(root: Path) -> int:
    path = root / _LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(error, path, "write") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        owner = {"pid": os.getpid(), "started": datetime.now(UTC).isoformat(timespec="seconds")}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode() + b"\n", 0)
    except BlockingIOError:
        holder = os.pread(descriptor, 4096, 0)
        os.close(descriptor)
        raise _busy(root, holder) from None
    except OSError as error:
        os.close(descriptor)
        raise storage_error(error, path, "lock") from error
    return descriptor


def _busy(root: Path, holder: bytes) -> WarehouseBusy:
    try:
        owner = json.loads(holder)
        pid, started = int(owner["pid"]), str(owner["started"])
    except (ValueError, KeyError, TypeError):
        who = "another process"
    else:
        who = "this process already" if pid == os.getpid() else f"process {pid} (since {started})"
    return WarehouseBusy(
        f"The warehouse '{root}' is open for writing by {who}.",
        hint="open it with read_only=True, or use the `ladle` commands, which go through the running "
        "process, or close that one first",
    )
