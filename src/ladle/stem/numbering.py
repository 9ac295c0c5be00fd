"""Numbers of blocks: by which results, pairs and pages of the Query SteM know them.

A number is given when a block is first bound, and written down beside what is derived with it: it means what this table
says, and is nothing that the log knows. The table is of one translation of texts (`ladle.plan.translation`). It grows
at its end, and each part has a checksum. Without it, or with one that is damaged or of another translation, another one
is begun, with numbers that were never given: they begin at the time of day, in microseconds. So whatever was derived
before is simply uncovered.

A number must never mean two blocks. So a range of numbers is reserved in the table before any of it is given; which
blocks got them is written down later, many at a time. A process that is killed in between leaves numbers that nobody
has: what it derived with them is uncovered, and derived again. To write down each number at once would take longer than
everything else that a registration does.

A process that only reads looks numbers up. Blocks that it does not find get numbers that no file has: nothing is
covered for them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from zlib_ng.zlib_ng import crc32

from ladle.archive.files import write_durably
from ladle.errors import LadleError
from ladle.plan.translation import translation

_log = logging.getLogger(__name__)

_MAGIC = b"LADLENB1"
_BEGIN = struct.Struct("<QII")
"""Of a table: its first number, the length of the name of its translation, which follows, and a checksum."""
_HEAD = struct.Struct("<QQI")
"""Of an append: how many blocks it has, the first number that is not reserved, and a checksum."""
_END = struct.Struct("<8sQ")
"""After the last append: how many blocks there are in all, so that no part can be missing at the end."""
_ENDS = b"LADLEEND"
_NAME_MAX = 256
_DIGEST = 16
_ROW = np.dtype([("number", "<i8"), ("digest", f"V{_DIGEST}")])
_PRIVATE = 1 << 61
"""Numbers from here on are a reader's own."""
_ALIGNED = 1 << 12
"""Blocks that come one after the other share a page of the Query SteM from the first one on."""
_RESERVED = 1 << 10
"""So many numbers more than were given are reserved at a time."""
_FOUND_MAX = 4_096
_FEW = 1_000
"""So many numbers of blocks that are gone are kept in any case."""


class DamagedNumbers(ValueError):
    """A table of numbers that is not what was written."""


class NumberTable(NamedTuple):
    """A table of numbers, as it was read."""

    begin: int
    """The first number: no other table has it."""
    numbers: dict[bytes, int]
    """By the digests of blocks."""
    following: int
    """The first number that is not reserved: it comes next, in another process."""


def is_older(path: Path) -> bool:
    """Whether a table is of another translation: then nobody reads it."""
    data = path.read_bytes()[: len(_MAGIC) + _BEGIN.size + _NAME_MAX]
    if not data.startswith(_MAGIC) or len(data) < len(_MAGIC) + _BEGIN.size:
        return False
    begin, length, checksum = _BEGIN.unpack_from(data, len(_MAGIC))
    name = data[len(_MAGIC) + _BEGIN.size :][:length]
    return checksum == _checksum(begin, length, name) and name != translation().encode()


def read_numbers(data: bytes) -> NumberTable:
    """The table that a file has; refused if it is not whole, or of another translation."""
    at, end = len(_MAGIC) + _BEGIN.size, len(data) - _END.size
    if not data.startswith(_MAGIC) or end < at:
        raise DamagedNumbers("it does not begin as a table of numbers does")
    begin, length, checksum = _BEGIN.unpack_from(data, len(_MAGIC))
    name = data[at : at + length]
    if checksum != _checksum(begin, length, name):
        raise DamagedNumbers("a checksum does not match")
    if name != translation().encode():
        raise DamagedNumbers(f"it is of another translation: {name.decode(errors='replace')}")
    at += length
    numbers, following, total = dict[bytes, int](), begin, 0
    while at < end:
        if end - at < _HEAD.size:
            raise DamagedNumbers("it is cut off")
        count, following, checksum = _HEAD.unpack_from(data, at)
        rows = data[at + _HEAD.size : min(at + _HEAD.size + count * _ROW.itemsize, end)]
        if len(rows) != count * _ROW.itemsize or checksum != _checksum(count, following, rows):
            raise DamagedNumbers("a checksum does not match")
        table = np.frombuffer(rows, dtype=_ROW)
        numbers.update(zip(table["digest"].tolist(), table["number"].tolist(), strict=True))
        at += _HEAD.size + len(rows)
        total += count
    if _END.unpack_from(data, end) != (_ENDS, total):
        raise DamagedNumbers("its end is missing")
    return NumberTable(begin, numbers, following)


def _checksum(one: int, other: int, data: bytes) -> int:
    return crc32(data, crc32(struct.pack("<QQ", one, other)))


def _whole(begin: int, pairs: Sequence[tuple[bytes, int]], following: int) -> bytes:
    name = translation().encode()
    head = _BEGIN.pack(begin, len(name), _checksum(begin, len(name), name)) + name
    return _MAGIC + head + _appended(pairs, following) + _END.pack(_ENDS, len(pairs))


def _appended(pairs: Sequence[tuple[bytes, int]], following: int) -> bytes:
    rows = np.zeros(len(pairs), dtype=_ROW)
    rows["number"] = [number for _, number in pairs]
    rows["digest"] = np.frombuffer(b"".join(digest for digest, _ in pairs), dtype=f"V{_DIGEST}")
    data = rows.tobytes()
    return _HEAD.pack(len(pairs), following, _checksum(len(pairs), following, data)) + data


class Numbering:
    """Any thread may use it."""

    def __init__(self, path: Path | None = None, *, writable: bool = True) -> None:
        """Without a path the numbers are this process's alone. Who writes must find a table that is whole: numbers that
        were given are not given again. A reader may do without.
        """
        self._path = path
        self._writable = writable
        self._lock = threading.RLock()
        self._numbers: dict[bytes, int] | None = {} if path is None else None
        self._begin = self._following = self._reserved = 1
        """The first number; the one that comes next; the first that is not reserved in the table."""
        self._total = 0
        """How many blocks the table has, also those that are gone."""
        self._unsaved: list[tuple[bytes, int]] = []
        self._holder: int | None = None
        """The thread that gives many numbers just now."""
        self._place: tuple[int, int] | None = None
        """Inode and size of the table, as it was last read or written."""
        self._private = 0
        self._found: dict[str, int] = {}
        """Numbers that were asked for lately, by the keys themselves."""
        if path is not None and writable:
            self._read()

    @staticmethod
    def begun(path: Path) -> Numbering:
        """One that begins anew, with numbers that nothing has yet."""
        begin = time.time_ns() // 1_000 // _ALIGNED * _ALIGNED
        write_durably(path, _whole(begin, [], begin), fsync=False)
        return Numbering(path)

    def numbers(self, keys: Sequence[str]) -> tuple[int, ...]:
        """The numbers of blocks, by what they are known by. Those that have none get one."""
        with self._lock:
            known = self._load()
            digests = [_digest(key) for key in keys]
            if any(digest not in known for digest in digests):
                if self._writable:
                    self._give(known, digests)
                else:
                    known = self._look(digests)
            return tuple([known[digest] for digest in digests])

    @property
    def begin(self) -> int:
        """The first number of the table: no other one has it."""
        with self._lock:
            self._load()
            return self._begin

    def find(self, key: str) -> int | None:
        """The number of a block, if it has one."""
        # Each invocation asks; what was found stays true until the table is another.
        known = self._found.get(key)
        if known is not None:
            return known
        with self._lock:
            number = self._load().get(_digest(key))
            if number is not None:
                self._found = self._found if len(self._found) < _FOUND_MAX else {}
                self._found[key] = number
            return number

    def hold(self) -> None:
        """For numbers that this thread is given from now on a range is reserved once, when it releases them."""
        with self._lock:
            self._holder = threading.get_ident()

    def release(self) -> None:
        """Let go of what was held while numbers were given."""
        with self._lock:
            self._holder = None
            self._reserve()

    def save(self) -> None:
        """Write down which blocks have the numbers that were given: from then on they outlive this process."""
        with self._lock:
            if self._unsaved:
                self._save(_RESERVED)

    def close(self) -> None:
        """Write everything down, and give back what was reserved."""
        with self._lock:
            if self._unsaved or self._reserved > self._following:
                self._save(0)

    def keep(self, numbers: Collection[int]) -> None:
        """Forget the numbers of blocks that are gone, when they are the most."""
        with self._lock:
            known = self._load()
            if not self._writable or len(known) <= 2 * len(numbers) + _FEW:
                return
            self._numbers, self._found = {each: number for each, number in known.items() if number in numbers}, {}
            self._write_whole(_RESERVED)

    def is_current(self) -> bool:
        """In a process that reads: whether looking again would find no more, and no other table."""
        with self._lock:
            if self._writable or self._path is None or self._numbers is None:
                return True
            place = self._placed()
            if place is None or place == self._place:
                return True
            if self._private or self._place is None:
                return False
            if place[0] == self._place[0]:
                return True
            begin = self._begin
            with suppress(OSError, DamagedNumbers):
                self._read()
            return self._begin == begin

    def _load(self) -> dict[bytes, int]:
        if self._numbers is None:
            self._numbers = {}
            with suppress(OSError, DamagedNumbers):
                self._read()
        return self._numbers

    def _read(self) -> None:
        assert self._path is not None
        self._place = self._placed()
        self._begin, found, self._following = read_numbers(self._path.read_bytes())
        self._reserved = self._following
        self._total = len(found)
        private = {digest: number for digest, number in (self._numbers or {}).items() if number >= _PRIVATE}
        self._numbers, self._found = {**private, **found}, {}

    def _look(self, digests: Sequence[bytes]) -> dict[bytes, int]:
        """In a process that reads: what the one that writes has numbered since; the others get numbers of our own."""
        if self._place != self._placed():
            with suppress(OSError, DamagedNumbers):
                self._read()
        known = self._load()
        for digest in digests:
            if digest not in known:
                known[digest] = _PRIVATE + self._private
                self._private += 1
        return known

    def _give(self, known: dict[bytes, int], digests: Sequence[bytes]) -> None:
        for digest in digests:
            if digest not in known:
                known[digest] = self._following
                self._unsaved.append((digest, self._following))
                self._following += 1
        if self._path is None:
            self._unsaved = []
        elif self._holder != threading.get_ident():
            self._reserve()

    def _reserve(self) -> None:
        """See that numbers that were given are reserved: before anything has them in its name."""
        if self._path is not None and self._following > self._reserved:
            self._save(_RESERVED)

    def _save(self, more: int) -> None:
        """Write down what was numbered, and reserve so many numbers more."""
        assert self._path is not None
        place = self._placed()
        if place is None or place != self._place:
            # It was deleted with all that was derived, or is not what we wrote.
            self._write_whole(more)
            return
        total, reserved = self._total + len(self._unsaved), self._following + more
        data = _appended(self._unsaved, reserved) + _END.pack(_ENDS, total)
        try:
            with self._path.open("r+b", buffering=0) as file:
                file.seek(-_END.size, os.SEEK_END)
                if file.write(data) != len(data):
                    raise OSError("it was written in part")
            self._unsaved, self._total, self._reserved = [], total, reserved
            self._place = place[0], place[1] + len(data) - _END.size
        except OSError as error:
            self._give_up(error)

    def _write_whole(self, more: int) -> None:
        assert self._path is not None
        assert self._numbers is not None
        pairs, reserved = list(self._numbers.items()), self._following + more
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_durably(self._path, _whole(self._begin, pairs, reserved), fsync=False)
            self._unsaved, self._total, self._reserved, self._place = [], len(pairs), reserved, self._placed()
        except (OSError, LadleError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """A table that lacks numbers is worse than none: they would be given again."""
        _log.warning("numbers of blocks can't be written (%s): what is derived is good until this process ends", error)
        assert self._path is not None
        self._place = None
        with suppress(OSError), self._path.open("r+b") as file:
            file.write(bytes(len(_MAGIC)))  # it takes no room, as another file would

    def _placed(self) -> tuple[int, int] | None:
        assert self._path is not None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_size


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=_DIGEST).digest()
