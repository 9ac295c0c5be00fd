"""The one log. An entry is a commit, and nothing else is.

`%020d.json` holds one entry, `checkpoint-%020d.json` the whole state up to and including an entry. Both are
two lines: a JSON body with its format version and number, and a checksum of that line. Two checkpoints are
kept, and the entries after the older one, so that a broken checkpoint costs time and not data. A missing or
broken entry is never skipped: what follows it would be a history that did not happen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

from ladle.archive.files import is_abandoned, storage_error, write_durably
from ladle.errors import CorruptLog, WarehouseError

FORMAT_VERSION = 1

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"checkpoint-(\d{20})\.json")
# A reader may list the directory while the writer adds and truncates; another look then shows a whole.
_LOOKS = 5

logger = logging.getLogger(__name__)

Entry = tuple[int, dict[str, Any]]


class Log:
    """The writer appends and checkpoints; readers in other processes load and tail the same files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._last: int | None = None
        self._checkpoint = 0

    @staticmethod
    def open(directory: Path) -> Log:
        return Log(directory)

    def load(self) -> tuple[int, dict[str, Any] | None, list[Entry]]:
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
        self._last = entries[-1][0] if entries else seq
        return seq, state, entries

    def _load(self) -> tuple[int, dict[str, Any] | None, list[Entry]]:
        numbers, checkpoints = self._list()
        seq, state, broken = self._newest_checkpoint(checkpoints)
        # A checkpoint that turned out broken still proves that its entry was committed.
        last = max([seq, *numbers, *checkpoints])
        if broken and seq == 0 and 1 not in numbers:
            raise broken
        entries = [(number, self._read_entry(number, last=number == last)) for number in range(seq + 1, last + 1)]
        return seq, state, entries

    def tail(self, after: int) -> list[Entry] | None:
        """The entries committed since `after`; None when they are truncated and the caller must load anew."""
        entries: list[Entry] = []
        with contextlib.suppress(FileNotFoundError):
            while True:
                number = after + len(entries) + 1
                entries.append((number, _decode(self._entry_path(number), number, "entry")))
        if entries or self._entry_path(after).exists():
            return entries
        numbers, checkpoints = self._list()
        if after + 1 in numbers:
            return self.tail(after)  # committed since we looked
        return None if max([0, *numbers, *checkpoints]) > after else []

    def append(self, seq: int, entry: dict[str, Any]) -> None:
        """Commit: durable when it returns, nothing left when it raises."""
        assert seq == self.last + 1, f"entry {seq} does not follow {self.last}"
        write_durably(self._entry_path(seq), _encode(seq, "entry", entry))
        self._last = seq

    @property
    def last(self) -> int:
        """The number of the last entry this process knows."""
        if self._last is None:
            self.load()
        assert self._last is not None
        return self._last

    def checkpoint(self, seq: int, state: dict[str, Any]) -> bool:
        """Write the state after entry `seq`, then delete what only older checkpoints need.

        Commits don't depend on it, so a failure is logged and returned, not raised; the next one will do.
        """
        assert seq <= self.last, f"checkpoint {seq} is beyond the last entry {self.last}"
        try:
            write_durably(self._checkpoint_path(seq), _encode(seq, "state", state))
        except WarehouseError as error:
            logger.warning("checkpoint %d of the log was not written, the log goes on without: %s", seq, error)
            return False
        previous = self._checkpoint
        self._checkpoint = seq
        if previous < seq:
            self._truncate(previous, keep={seq, previous})
        return True

    def _truncate(self, upto: int, keep: set[int]) -> None:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self.directory)):
                entry, checkpoint = _ENTRY.fullmatch(name), _CHECKPOINT.fullmatch(name)
                useless = (
                    (entry is not None and int(entry[1]) <= upto)
                    or (checkpoint is not None and int(checkpoint[1]) not in keep)
                    or is_abandoned(name)
                )
                if useless:
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

    def _newest_checkpoint(self, checkpoints: list[int]) -> tuple[int, dict[str, Any] | None, CorruptLog | None]:
        """The newest that is good, and what is wrong with one that is newer."""
        broken = None
        for seq in sorted(checkpoints, reverse=True):
            try:
                return seq, _decode(self._checkpoint_path(seq), seq, "state"), broken
            except FileNotFoundError:
                continue  # truncated since it was listed
            except CorruptLog as error:
                broken = error
                logger.warning("checkpoint %d of the log is broken, trying an older one: %s", seq, error)
        return 0, None, broken

    def _read_entry(self, seq: int, *, last: bool) -> dict[str, Any]:
        path = self._entry_path(seq)
        try:
            return _decode(path, seq, "entry")
        except FileNotFoundError:
            raise CorruptLog(
                f"The log entry '{path}' is missing, though later ones or a checkpoint of it exist.",
                hint="restore it from a backup of the warehouse",
            ) from None
        except CorruptLog as error:
            if last:
                error.hint = (
                    "restore it from a backup; or, as it is the last entry, move it out of the log: "
                    "the warehouse then goes back to the commit before it"
                )
            raise

    def _entry_path(self, seq: int) -> Path:
        return self.directory / f"{seq:020d}.json"

    def _checkpoint_path(self, seq: int) -> Path:
        return self.directory / f"checkpoint-{seq:020d}.json"


def _encode(seq: int, key: str, value: dict[str, Any]) -> bytes:
    document = {"format": FORMAT_VERSION, "seq": seq, key: value}
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    return body + b"\n" + _checksum(body) + b"\n"


def _decode(path: Path, seq: int, key: str) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(error, path, "read") from error
    body, _, rest = data.partition(b"\n")
    if rest != _checksum(body) + b"\n":
        raise _broken(path, "its checksum does not match")
    document = json.loads(body)
    if document["format"] > FORMAT_VERSION:
        raise WarehouseError(
            f"'{path}' has format {document['format']}; this Ladle knows formats up to {FORMAT_VERSION}.",
            hint="open the warehouse with a newer Ladle",
        )
    if document["seq"] != seq or key not in document:
        raise _broken(path, f"it holds entry {document['seq']}")
    value: dict[str, Any] = document[key]
    return value


def _checksum(body: bytes) -> bytes:
    return b"blake2b " + hashlib.blake2b(body, digest_size=16).hexdigest().encode()


def _broken(path: Path, why: str) -> CorruptLog:
    return CorruptLog(
        f"The log file '{path}' is not what was written: {why}.",
        hint="restore it from a backup of the warehouse",
    )
