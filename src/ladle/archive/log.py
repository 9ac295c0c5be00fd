"""The one log. An entry is a commit, and nothing else is.

`%020d.json` holds entries from that number on, `checkpoint-%020d.json` the whole state up to and including an entry.
Each is two lines: a JSON body with its format version and number, and a checksum of that line. A process appends its
entries to one file until the next checkpoint: a commit is one write and one fsync. Two checkpoints are kept, and the
entries after the older one, so that a broken checkpoint costs time and not data. A missing or broken entry is never
skipped: what follows it would be a history that did not happen. Only an entry that was cut off while it was written, at
the very end, was never committed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from ladle.archive.files import is_abandoned, storage_error, write_durably
from ladle.errors import CorruptLog, WarehouseError

FORMAT_VERSION = 3

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"checkpoint-(\d{20})\.json")
# A reader may list the directory while the writer adds and truncates; another look then shows a whole.
_LOOKS = 5
_ENTRY_BYTES = 1_024
"""What opening a log pays for an entry, beside its bytes, in bytes of a checkpoint."""
_PIECE = 1_000
"""Long lists of a state are encoded this much at a time: other threads wait for as long."""

logger = logging.getLogger(__name__)

Body: TypeAlias = Any
"""An entry as it is read, or a state. Any: the log looks at nothing in it, and is below the package that knows its
fields: `ladle.catalog.entry_types` declares those of entries, `Catalog.to_json` writes those of states.
"""

Entry = tuple[int, Body]


class _Broken(CorruptLog):
    """A file of the log is not what was written."""

    tail: int | None = None
    """Where the bad entry begins, when nothing follows it."""

    @classmethod
    def of(cls, path: Path, why: str, tail: int | None = None) -> _Broken:
        message = f"The log file '{path}' is not what was written: {why}."
        error = cls(message, hint="restore it from a backup of the warehouse")
        error.tail = tail
        return error


class _EntryFile:
    """The file that this process appends entries to."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def append(self, data: bytes) -> None:
        """Durable when it returns, nothing left when it raises."""
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True)
class _ReadPosition:
    """How far a reader is: the last entry read, and where in which file the next one will be."""

    seq: int
    first: int
    offset: int


class Log:
    """The writer appends and checkpoints; readers in other processes load and tail the same files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._last: int | None = None
        self._checkpoint = 0
        self._checkpoint_bytes = 0
        self._bytes_since = 0
        self._writing = threading.Lock()
        self._file: _EntryFile | None = None
        self._place: _ReadPosition | None = None

    @staticmethod
    def open(directory: Path) -> Log:
        """The log in a directory. Nothing is read or written yet."""
        return Log(directory)

    def load(self) -> tuple[int, Body | None, list[Entry]]:
        """The newest good checkpoint (number or 0, state or None) and the entries after it, in order."""
        looks = 0
        while True:
            looks += 1
            try:
                seq, state, entries = self._load()
                break
            except CorruptLog:
                if looks == _LOOKS:
                    raise
        self._checkpoint = seq
        self._checkpoint_bytes = _size(self._checkpoint_path(seq)) if seq else 0
        self._last = entries[-1][0] if entries else seq
        return seq, state, entries

    def _load(self) -> tuple[int, Body | None, list[Entry]]:
        files, checkpoints = self._list()
        seq, state, broken = self._newest_checkpoint(checkpoints)
        # A file, or a checkpoint that turned out broken, still proves that its entry was committed.
        last = max([seq, *files, *checkpoints])
        if broken and seq == 0 and 1 not in files:
            raise broken
        entries: list[Entry] = []
        self._bytes_since = 0
        needed = [first for first, following in _spans(files) if following is None or following > seq + 1]
        for first, following in _spans(needed):
            number = seq + len(entries) + 1
            if first > number:
                break
            try:
                found, end = self._read(first, 0, before=following, last=following is None)
            except FileNotFoundError:
                break  # truncated since it was listed: another look shows a newer checkpoint
            entries += [entry for entry in found if entry[0] >= number]
            self._bytes_since += end
        self._refuse_gap(seq + len(entries), last)
        return seq, state, entries

    def _refuse_gap(self, reached: int, last: int) -> None:
        if reached < last:
            raise CorruptLog(
                f"The log entry {reached + 1} is missing from '{self._entry_path(reached + 1).parent}' "
                f"(its own file would be '{self._entry_path(reached + 1)}'), though later ones or a checkpoint of it "
                "exist.",
                hint="restore it from a backup of the warehouse",
            )

    def tail(self, after: int) -> list[Entry] | None:
        """The entries committed since `after`; None when they are truncated and the caller must load anew."""
        for _ in range(_LOOKS):
            place = self._place
            if place is None or place.seq != after:
                place = self._find(after)
            if place is None:
                files, checkpoints = self._list()
                if any(first <= after + 1 for first in files):
                    continue  # committed since we looked
                return None if max([0, *files, *checkpoints]) > after else []
            try:
                entries, self._place = self._follow(place)
                return entries
            except FileNotFoundError:
                self._place = None  # truncated under us
        return None

    def _find(self, after: int) -> _ReadPosition | None:
        """Where the entry that follows is, or will be."""
        files, _ = self._list()
        first = max((number for number in files if number <= after + 1), default=None)
        if first is None:
            return None
        offset = 0
        try:
            for seq, _, end in self._records(first, 0):
                if seq > after:
                    break
                offset = end
                if seq == after:
                    break
            else:
                if first != after + 1:
                    # It ends before: what follows may be in no file at all.
                    return None if self._is_later(after) else _ReadPosition(after, first, offset)
        except FileNotFoundError:
            return None
        return _ReadPosition(after, first, offset)

    def _is_later(self, after: int) -> bool:
        files, checkpoints = self._list()
        return max([0, *files, *checkpoints]) > after

    def _follow(self, place: _ReadPosition) -> tuple[list[Entry], _ReadPosition]:
        entries: list[Entry] = []
        while True:
            found, end = self._read(place.first, place.offset, before=None, last=True)
            found = [entry for entry in found if entry[0] > place.seq]
            entries += found
            place = _ReadPosition(found[-1][0] if found else place.seq, place.first, end)
            if place.first == place.seq + 1 or not self._entry_path(place.seq + 1).exists():
                return entries, place
            place = _ReadPosition(place.seq, place.seq + 1, 0)

    def append(self, seq: int, entry: Mapping[str, object]) -> None:
        """Commit: durable when it returns, nothing left when it raises."""
        assert seq == self.last + 1, f"entry {seq} does not follow {self.last}"
        data = b"".join(_encode(seq, "entry", entry))
        with self._writing:
            self._write(self._entry_path(seq), data)
            self._bytes_since += len(data)
            self._last = seq

    def _write(self, path: Path, data: bytes) -> None:
        if self._file is None:
            write_durably(path, data)
            with contextlib.suppress(OSError):  # the next entry begins a file of its own then
                self._file = _EntryFile(path, len(data))
            return
        try:
            self._file.append(data)
        except OSError as error:
            # What is left of it, if anything, is before the file that the next entry begins.
            self._close_file()
            raise storage_error(error, path, "write") from error

    @property
    def last(self) -> int:
        """The number of the last entry this process knows."""
        if self._last is None:
            self.load()
        assert self._last is not None
        return self._last

    def is_due(self, entries_min: int, fraction: float) -> bool:
        """Whether the entries since the last checkpoint cost a reader that fraction of what the checkpoint does.

        So the cost of checkpoints stays a constant per entry, however large the state is.
        """
        entries = self.last - self._checkpoint
        return entries >= entries_min and entries * _ENTRY_BYTES + self._bytes_since >= (
            self._checkpoint_bytes * fraction
        )

    def checkpoint(self, seq: int, state: Mapping[str, object]) -> bool:
        """Write the state after entry `seq`, then delete what only older checkpoints need.

        Commits don't depend on it, so a failure is logged and returned, not raised; the next one will do.
        """
        assert seq <= self.last, f"checkpoint {seq} is beyond the last entry {self.last}"
        data = b"".join(_encode(seq, "state", state))
        try:
            write_durably(self._checkpoint_path(seq), data)
        except WarehouseError as error:
            logger.warning("checkpoint %d of the log was not written, the log goes on without: %s", seq, error)
            return False
        previous = self._checkpoint
        with self._writing:
            # The next entry begins a file of its own, so that those before it can be deleted.
            self._close_file()
            self._checkpoint, self._checkpoint_bytes, self._bytes_since = seq, len(data), 0
        if previous < seq:
            self._truncate(previous, keep={seq, previous})
        return True

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def close(self) -> None:
        """Let go of the file that entries are appended to; may be called again."""
        with self._writing:
            self._close_file()

    def _truncate(self, upto: int, keep: set[int]) -> None:
        with contextlib.suppress(OSError, CorruptLog):
            files, checkpoints = self._list()
            for first, following in _spans(files):
                # The last file may still grow.
                if following is not None and following <= upto + 1:
                    self._entry_path(first).unlink(missing_ok=True)
            for number in checkpoints:
                if number not in keep:
                    self._checkpoint_path(number).unlink(missing_ok=True)
            for name in os.listdir(self.directory):
                if is_abandoned(name):
                    (self.directory / name).unlink(missing_ok=True)

    def _list(self) -> tuple[list[int], list[int]]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            raise CorruptLog(
                f"The log directory '{self.directory}' is missing.",
                hint="restore the warehouse from a backup",
            ) from None
        except OSError as error:
            raise storage_error(error, self.directory, "read") from error
        entries = [int(match[1]) for match in map(_ENTRY.fullmatch, names) if match]
        checkpoints = [int(match[1]) for match in map(_CHECKPOINT.fullmatch, names) if match]
        return entries, checkpoints

    def _newest_checkpoint(self, checkpoints: list[int]) -> tuple[int, Body | None, CorruptLog | None]:
        """The newest that is good, and what is wrong with one that is newer."""
        broken = None
        for seq in sorted(checkpoints, reverse=True):
            try:
                return seq, self._read_checkpoint(seq), broken
            except FileNotFoundError:
                continue  # truncated since it was listed
            except CorruptLog as error:
                broken = error
                logger.warning("checkpoint %d of the log is broken, trying an older one: %s", seq, error)
        return 0, None, broken

    def _read_checkpoint(self, seq: int) -> Body:
        path = self._checkpoint_path(seq)
        records = list(_cut(path, 0))
        if len(records) != 1 or records[0][1] != _size(path):
            raise _Broken.of(path, "it is cut off, or followed by something")
        return _decode(path, records[0][0], seq, "state")[1]

    def _read(self, first: int, offset: int, *, before: int | None, last: bool) -> tuple[list[Entry], int]:
        """The entries of a file from an offset on, but for those that the next file has, and where they end."""
        try:
            entries = []
            for seq, entry, end in self._records(first, offset):
                if before is not None and seq >= before:
                    break
                entries.append((seq, entry))
                offset = end
            return entries, offset
        except _Broken as error:
            if last and error.tail is not None:
                cut = f"cut the file off at byte {error.tail}" if error.tail else "move it out of the log"
                error.hint = f"{error.hint}; or, as it is the last entry, {cut}: the warehouse then goes back by it"
            raise

    def _records(self, first: int, offset: int) -> Iterator[tuple[int, Body, int]]:
        """The entries of a file from an offset on, each with where it ends."""
        path = self._entry_path(first)
        number: int | None = first if offset == 0 else None
        for record, end in _cut(path, offset):
            seq, entry = _decode(path, record, number, "entry")
            yield seq, entry, end
            number = seq + 1

    def _entry_path(self, seq: int) -> Path:
        return self.directory / f"{seq:020d}.json"

    def _checkpoint_path(self, seq: int) -> Path:
        return self.directory / _checkpoint_name(seq)


def log_files(directory: Path) -> list[Path]:
    """The files of a log, as they are now."""
    names = sorted(os.listdir(directory)) if directory.exists() else []
    return [directory / name for name in names if _ENTRY.fullmatch(name) or _CHECKPOINT.fullmatch(name)]


def verify_log_file(path: Path) -> None:
    """Raises CorruptLog if a file of a log is not what was written."""
    log, entry = Log(path.parent), _ENTRY.fullmatch(path.name)
    if entry is None:
        log._read_checkpoint(int(path.stem.partition("-")[2]))
        return
    for _ in log._records(int(entry[1]), 0):
        pass


def checkpoint_file(seq: int, state: Mapping[str, object]) -> tuple[str, Iterator[bytes]]:
    """A log that has the whole state after an entry and nothing else: the name of its one file, and the bytes."""
    return _checkpoint_name(seq), _encode(seq, "state", state)


def _checkpoint_name(seq: int) -> str:
    return f"checkpoint-{seq:020d}.json"


def _spans(files: list[int]) -> list[tuple[int, int | None]]:
    """The first entry of each file, and of the file after it."""
    ordered = sorted(files)
    return list(zip_longest(ordered, ordered[1:]))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _encode(seq: int, key: str, value: Mapping[str, object]) -> Iterator[bytes]:
    """A body and its checksum, piece by piece."""
    head = {"format": FORMAT_VERSION, "seq": seq}
    pieces = list(_pieces(head, key, value)) if key == "state" else [_json({**head, key: value})]
    yield from pieces
    yield b"\n" + _checksum(*pieces) + b"\n"


def _pieces(head: Mapping[str, object], key: str, value: Mapping[str, object]) -> Iterator[bytes]:
    yield _json(head)[:-1] + b"," + _json(key) + b":{"
    for number, (name, item) in enumerate(value.items()):
        yield (b"," if number else b"") + _json(name) + b":"
        if not isinstance(item, list) or len(item) <= _PIECE:
            yield _json(item)
            continue
        for at in range(0, len(item), _PIECE):
            yield (b"," if at else b"[") + _json(item[at : at + _PIECE])[1:-1]
        yield b"]"
    yield b"}}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _cut(path: Path, offset: int) -> Iterator[tuple[bytes, int]]:
    """The bodies in a file from an offset on, each with where what belongs to it ends."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(error, path, "read") from error
    if offset == 0 and not data:
        raise _Broken.of(path, "it is empty", 0)
    at = 0
    while at < len(data):
        middle = data.find(b"\n", at)
        end = data.find(b"\n", middle + 1) if middle >= 0 else -1
        body = data[at:middle]
        if middle < 0 or end < 0 or data[middle + 1 : end] != _checksum(body):
            # The first entry of a file is never cut off: the file has its name when that is on disk.
            if offset + at and _is_cut_off(data[at:]):
                return
            raise _Broken.of(path, "its checksum does not match", offset + at if end in (-1, len(data) - 1) else None)
        at = end + 1
        yield body, offset + at


_ZEROS = 8
"""So many zeros in a row are a block that was not written, and no bit that changed."""


def _is_cut_off(rest: bytes) -> bool:
    """Whether the end of a file is what one sees of an entry that is being written, or was not written to its end."""
    body, newline, checksum = rest.partition(b"\n")
    if (bytes(_ZEROS) in rest or rest.endswith(b"\0")) and rest.count(b"\n") <= 2:
        return True  # by a power cut: blocks of a file that were never written are zeros
    if not newline:
        return True
    try:
        json.loads(body)
    except ValueError:
        return False
    return len(checksum) <= len(_checksum(body)) and _checksum(body).startswith(checksum)


def _decode(path: Path, body: bytes, seq: int | None, key: str) -> Entry:
    document = json.loads(body)
    if document["format"] > FORMAT_VERSION:
        raise WarehouseError(
            f"'{path}' has format {document['format']}; this Ladle knows formats up to {FORMAT_VERSION}.",
            hint="open the warehouse with a newer Ladle",
        )
    if (seq is not None and document["seq"] != seq) or key not in document:
        raise _Broken.of(path, f"it holds entry {document['seq']}")
    return document["seq"], document[key]


def _checksum(*pieces: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return b"blake2b " + digest.hexdigest().encode()
