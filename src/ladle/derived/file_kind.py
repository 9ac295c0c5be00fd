"""Derived files of one sort, as a kind: each file is a thing. They may be deleted, by us or anybody, at any moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ladle.derived.contract import KindAccount, Place, Thing
from ladle.derived.registry import Derived

_LOOK_SECONDS = 30.0
"""An account is of a look at the directories that is no older; housekeeping looks more often."""

FileId = tuple[str, str]
"""The names of a file's directory and of the file."""


class About(Protocol):
    """What is known of the files of one sort, apart from what the file system knows."""

    def costs(self) -> Callable[[FileId, int], float]:
        """What gives the seconds that it takes to make a file of so many bytes anew; it is asked for at each look."""

    def used(self, file: FileId) -> float | None:
        """When a file was last used in this process."""

    def remove(self, file: FileId) -> None:
        """Forget what is known of a file that is deleted."""
        ...

    def covered(self) -> tuple[int, int]:
        """How many parts are covered, of how many that are demanded."""


class Files:
    """A kind of derived state whose things are the files below a directory."""

    place = Place.DISK

    def __init__(
        self, name: str, derived: Derived, root: Path, suffix: str, about: About, *, rebuilt: str, nested: bool = True
    ) -> None:
        """The files are in the directories of `root`; if they are not `nested`, in itself."""
        self.name = name
        self.rebuilt = rebuilt
        self.bytes = 0
        self._derived = derived
        self._root = root
        self._suffix = suffix
        self._about = about
        self._nested = nested
        self._lock = threading.Lock()
        self._things: dict[FileId, Thing] = {}
        self._seconds = 0.0
        self._used: float | None = None
        self._looked: float | None = None
        derived.add(self)

    # -- the contract --

    def things(self) -> list[Thing]:
        """All files, looked at now."""
        now, began = self._derived.clock(), self._derived.began
        cost, found = self._about.costs(), dict[FileId, Thing]()
        for file, size, written in self._list():
            # What was used before this process began is not known: it counts from when it was written.
            used = max(min(written - began, now), self._about.used(file) or float("-inf"))
            found[file] = Thing(file, size, cost(file, size), used)
        with self._lock:
            self._things, self._looked = found, now
            self.bytes = sum(thing.bytes for thing in found.values())
            self._seconds = sum(thing.seconds for thing in found.values())
            self._used = max((thing.used for thing in found.values()), default=None)
        return list(found.values())

    def drop(self, things: Sequence[Thing]) -> int:
        """Delete files; how many bytes that freed."""
        freed = 0
        # By name, which is a file's own for good: another look may have been taken since.
        doomed = {thing.identity for thing in things}
        with self._lock:
            files = [file for file in self._things if file in doomed]
        for file in files:
            self._about.remove(file)
            if not self._path(file).exists():
                with self._lock:
                    gone = self._things.pop(file, None)
                    if gone is not None:
                        self.bytes -= gone.bytes
                        self._seconds = self._seconds - gone.seconds if self._things else 0.0
                        freed += gone.bytes
        return freed

    def account(self) -> KindAccount:
        """How many files there are, their bytes, and how much of what is demanded they cover."""
        looked = self._looked
        if looked is None or self._derived.clock() - looked > _LOOK_SECONDS:
            self.things()
        covered, wanted = self._about.covered()
        with self._lock:
            return KindAccount(len(self._things), self.bytes, self._seconds, self._used, covered, wanted)

    def _path(self, file: FileId) -> Path:
        directory, name = file
        return self._root / directory / name if self._nested else self._root / name

    def _list(self) -> Iterator[tuple[FileId, int, float]]:
        """Files with their sizes, and when they were written."""
        directories = [entry.name for entry in _entries(self._root)] if self._nested else [""]
        for directory in directories:
            for entry in _entries(self._root / directory):
                if entry.name.endswith(self._suffix) and not entry.name.startswith("."):
                    try:
                        stat = entry.stat()
                    except OSError:
                        continue  # it was deleted just now
                    yield (directory, entry.name), stat.st_size, stat.st_mtime


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:  # it is not there, or no directory
        return []
