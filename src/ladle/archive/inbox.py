"""Pushes, durably received, in the order they came.

Each push is one Arrow stream in a file named by a sequence number that is never used again. The engine commits the
number with the epoch that took the rows in, and only then is the file discarded; so a push is neither lost
nor doubled by a kill at any moment, however long it waited. A client that did not hear whether its push was
received sends it again with the same *key*, which is in the file's name and goes into the commit: it counts once. A
digest of what was sent may be part of that, and then the key is refused with anything else. The name also has the
file's checksum. A file that is not what was written is set aside in `damaged/`, and the others go on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from ladle.archive.files import is_abandoned, make_private, storage_error, write_durably
from ladle.errors import DamagedFile, InboxFull, KeyReused
from ladle.foreign import NotArrow, read_stream

_FILE = b"ARROW1"
_NAME = re.compile(r"(\d{20})-(\d+)(?:-([0-9a-f]{32}(?:-[0-9a-f]{16})?))?(?:\.([0-9a-f]{8}))?\.arrow")
_DAMAGED = "damaged"


@dataclass(frozen=True)
class Pushed:
    """One push that waits."""

    seq: int
    path: Path
    rows: int
    bytes: int
    key: str | None = None
    """What its sender knows it by, as `stored_key` writes it."""
    checksum: int | None = None
    """None: it was received by a version that kept none."""


def stored_key(key: str, body: bytes | None = None) -> str:
    """A key as the inbox and the log have it, with the digest of a body if the key is to come with no other."""
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return digest if body is None else f"{digest}-{hashlib.blake2b(body, digest_size=8).hexdigest()}"


def find_key(stored: Iterable[str], key: str) -> str | None:
    """The one of these that is of the same key, whatever came with it."""
    own = key.partition("-")[0]
    return next((each for each in stored if each.startswith(own)), None)


class Inbox:
    """The pushes of one stream. Thread-safe; one process owns it."""

    def __init__(self, directory: Path, *, after: int, bytes_max: int) -> None:
        """`after` is the last committed number: numbering goes on beyond it even when every file is gone."""
        self._directory = directory
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        try:
            make_private(directory)
            for name in os.listdir(directory):
                if is_abandoned(name):
                    (directory / name).unlink(missing_ok=True)
            found = sorted(list_pushed(directory), key=lambda pushed: pushed.seq)
        except OSError as error:
            raise storage_error(error, directory, "read") from error
        # What is known to be durable; a push that failed is not on it, whatever the directory shows.
        self._waiting = {pushed.seq: pushed for pushed in found}
        self._last = max([after, *self._waiting])

    @property
    def bytes(self) -> int:
        """How many bytes wait."""
        with self._lock:
            return sum(pushed.bytes for pushed in self._waiting.values())

    def put(self, table: pa.Table) -> int:
        """Receive a push: durable when it returns, nothing left when it raises. Its number is returned."""
        return self.put_once(table, None, lambda _: None)[0]

    def put_once(
        self,
        table: pa.Table,
        key: str | None,
        committed: Callable[[str], str | None],
        sent: memoryview | None = None,
    ) -> tuple[int, bool]:
        """Receive a push, and say whether its key is known: then it is not received again. What was
        `sent` is the table as an Arrow stream, if it came as one.

        The number of one that is known is returned while it waits, and 0 when it was `committed`, which gives the key
        as it was stored then. A push leaves the inbox after its commit, so one that does not wait is asked about last.
        """
        data = _encode(table) if sent is None else sent
        checksum = crc32(data)
        # The number is taken and the file is made durable under one lock: a later number never gets ahead.
        with self._lock:
            if key is not None:
                keys = {pushed.key: pushed.seq for pushed in self._waiting.values() if pushed.key is not None}
                known = find_key(keys, key) or committed(key)
                if known is not None:
                    _refuse_other(known, key)
                    return keys.get(known, 0), True
            waiting = sum(pushed.bytes for pushed in self._waiting.values())
            if waiting + len(data) > self._bytes_max:
                raise InboxFull(
                    f"The push of {len(data):,} bytes does not fit: {waiting:,} of {self._bytes_max:,} bytes "
                    "wait in the stream's inbox.",
                    hint="wait until the stream has caught up, push fewer rows at a time, or raise the "
                    "setting push_bytes_max",
                )
            self._last += 1
            suffix = "" if key is None else f"-{key}"
            path = self._directory / f"{self._last:020d}-{table.num_rows}{suffix}.{checksum:08x}.arrow"
            write_durably(path, data)
            self._waiting[self._last] = Pushed(self._last, path, table.num_rows, len(data), key, checksum)
            return self._last, False

    def pending(self, after: int) -> list[Pushed]:
        """The pushes that wait with a number above `after`, in order."""
        with self._lock:
            return [pushed for seq, pushed in self._waiting.items() if seq > after]

    def set_aside(self, name: str) -> None:
        """Keep a copy of a damaged file for people to look at; call it before the commit that discards the file."""
        aside = self._directory / _DAMAGED
        try:
            make_private(aside)
            if not (aside / name).exists():
                shutil.copyfile(self._directory / name, aside / name)
        except OSError as error:
            raise storage_error(error, aside / name, "write") from error

    def discard(self, upto: int) -> None:
        """Delete the pushes up to this number; call it after their commit."""
        with self._lock:
            done = [pushed for seq, pushed in self._waiting.items() if seq <= upto]
            for pushed in done:
                # A file that can't be deleted now is found again at the next start, and discarded then.
                with contextlib.suppress(OSError):
                    pushed.path.unlink(missing_ok=True)
                del self._waiting[pushed.seq]


def _refuse_other(known: str, key: str) -> None:
    before, now = known.partition("-")[2], key.partition("-")[2]
    if before and now and before != now:
        raise KeyReused(
            "The key came before, with another body. Nothing was taken of this one.",
            hint="give each push a key of its own, and the same key only to one that is sent again as it was",
        )


def read_pushed(path: Path) -> pa.Table:
    """The rows of a pushed file. Raises DamagedFile if it is not what was written."""
    pushed = _of_name(path)
    checksum = None if pushed is None else pushed.checksum
    try:
        data = path.read_bytes()
    except OSError as error:
        raise storage_error(error, path, "read") from error
    if checksum is not None:
        if crc32(data) != checksum:
            raise _damaged(path, "its checksum does not match")
        # What was written was looked through before.
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.read_all()
    try:
        table = _read_file(data) if data.startswith(_FILE) else read_stream(pa.py_buffer(data))
    except (NotArrow, pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise _damaged(path, str(error)) from error
    if pushed is not None and len(table) != pushed.rows:
        raise _damaged(path, f"it has {len(table):,} rows, and should have {pushed.rows:,}")
    return table


def _read_file(data: bytes) -> pa.Table:
    """What waits may have been received by a version that wrote Arrow's files."""
    reader = pa.ipc.open_file(pa.py_buffer(data))
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, reader.schema)


def _damaged(path: Path, why: str) -> DamagedFile:
    return DamagedFile(
        f"The pushed file '{path.name}' is broken: {why}.",
        hint="restore it from a backup of the warehouse, or push its rows again",
    )


def _of_name(path: Path) -> Pushed | None:
    """What a file's name says of it, but for its size; None if it is no push."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    checksum = None if match[4] is None else int(match[4], 16)
    return Pushed(int(match[1]), path, int(match[2]), 0, match[3], checksum)


def damaged_pushes(directory: Path) -> list[Path]:
    """The files of an inbox that were set aside."""
    try:
        return list((directory / _DAMAGED).iterdir())
    except FileNotFoundError:
        return []


def list_pushed(directory: Path) -> list[Pushed]:
    """The pushes in a directory, in no order."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                pushed = _of_name(Path(entry.path))
                if pushed is not None:
                    found.append(replace(pushed, bytes=entry.stat().st_size))
    except FileNotFoundError:
        # No inbox yet, or a push was taken in by the writing process while this one looked.
        return found
    return found


def _encode(table: pa.Table) -> memoryview:
    """As it is: packing takes longer than it saves for a file that is read once, in a moment."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
