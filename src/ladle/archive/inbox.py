"""Pushes, durably received, in the order they came.

Each push is one Arrow stream in a file named by a sequence number that is never used again. The engine commits the
number with the epoch that took the rows in, and only then is the file discarded; so a push is neither lost
nor doubled by a kill at any moment, however long it waited. A client that did not hear whether its push was
received sends it again with the same *key*, which is in the file's name and goes into the commit: it counts once. A
digest of what was sent may be part of that, and then the key is refused with anything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ladle.archive.files import is_abandoned, storage_error, write_durably
from ladle.errors import InboxFull, KeyReused, WarehouseError

_FILE = b"ARROW1"
_NAME = re.compile(r"(\d{20})-(\d+)(?:-([0-9a-f]{32}(?:-[0-9a-f]{16})?))?\.arrow")


@dataclass(frozen=True)
class Pushed:
    """One push that waits."""

    seq: int
    path: Path
    rows: int
    bytes: int
    key: str | None = None
    """What its sender knows it by, as `stored_key` writes it."""


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
            directory.mkdir(parents=True, exist_ok=True)
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
        """The same, and whether its key is known: then it is not received again. What was `sent` is the table as an
        Arrow stream, if it came as one.

        The number of one that is known is returned while it waits, and 0 when it was `committed`, which gives the key
        as it was stored then. A push leaves the inbox after its commit, so one that does not wait is asked about last.
        """
        data = _encode(table) if sent is None else sent
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
            path = self._directory / f"{self._last:020d}-{table.num_rows}{suffix}.arrow"
            write_durably(path, data)
            self._waiting[self._last] = Pushed(self._last, path, table.num_rows, len(data), key)
            return self._last, False

    def pending(self, after: int) -> list[Pushed]:
        """The pushes that wait with a number above `after`, in order."""
        with self._lock:
            return [pushed for seq, pushed in self._waiting.items() if seq > after]

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
    try:
        with pa.OSFile(str(path)) as source:
            # What waits may have been received by a version that wrote Arrow's files.
            is_file = source.read(len(_FILE)) == _FILE
            source.seek(0)
            return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).read_all()
    except OSError as error:
        raise storage_error(error, path, "read") from error
    except pa.ArrowInvalid as error:
        raise WarehouseError(
            f"The pushed file '{path}' is broken: {error}.",
            hint="restore it from a backup, or move it away and push its rows again",
        ) from error


def list_pushed(directory: Path) -> list[Pushed]:
    """The pushes in a directory, in no order."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match:
                    seq, rows = int(match[1]), int(match[2])
                    found.append(Pushed(seq, Path(entry.path), rows, entry.stat().st_size, match[3]))
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
