"""Coverage: which results files exist for a stream's data files.

An index over a directory of derived files, and nothing more: it may be emptied or deleted under us at any moment. What
it does not find, or can't read, is uncovered, and the reader computes it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import numpy as np

from ladle.stem.blocks import NO_BLOCKS, BlockSet
from ladle.stem.listed_directory import Listing
from ladle.stem.masks import FactorMask, masked_file_of, read_masks, write_masks
from ladle.stem.results import DamagedResults, Results, data_file_of

_log = logging.getLogger(__name__)
_MAPPED_MAX = 16_384
_MOMENT_SECONDS = 0.02
"""How late an answer may see what was covered otherwise than by its epoch: it is the same answer."""


class Coverage:
    """The results files of one stream."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory nothing is covered."""
        self._directory = directory
        self._lock = threading.Lock()
        self._names: dict[str, tuple[str, ...]] = {}
        """By data file. Looked up without the lock, for each segment of each answer: so what is there is replaced, and
        never changed.
        """
        self._masked: frozenset[str] = frozenset()
        """Data files that have masks."""
        self._mapped: OrderedDict[str, Results] = OrderedDict()
        self._covered: dict[str, tuple[tuple[str, ...], BlockSet]] = {}
        self._covered_by: dict[str, BlockSet] = {}
        self._sets: dict[BlockSet, BlockSet] = {NO_BLOCKS: NO_BLOCKS}
        self._listing = None if directory is None else Listing(directory)
        self._looked = (-1, 0.0)
        """At which snapshot the directory was last looked at, and until when that will do for it."""
        self._now = time.monotonic()
        """A moment ago: to note a use takes no look at the clock."""

    def find(self, data_file: str, block: int) -> Results | None:
        """The results that cover this block on this data file, or None."""
        for name in self.names(data_file):
            results = self._open(data_file, name)
            try:
                if results is not None and results.has(block):
                    results.used = self._now
                    return results
            except DamagedResults as error:
                self._throw_away(data_file, name, error)
        return None

    def masks(self, data_file: str) -> dict[str, FactorMask]:
        """What dear factors that are not done have said of a data file, by their texts."""
        if data_file not in self._masked or self._directory is None:
            return {}
        return read_masks(self._directory, data_file)

    @property
    def masked(self) -> frozenset[str]:
        """The data files that have masks, as last listed."""
        return self._masked

    def remove_masks(self, data_file: str) -> None:
        """Forget what functions said of the tuples of a data file."""
        if self._directory is not None:
            write_masks(self._directory, data_file, {})

    def results(self, data_file: str) -> list[Results]:
        """All that is known of a data file, wholly verified."""
        found = []
        for name in self.names(data_file):
            results = self._open(data_file, name)
            try:
                if results is not None:
                    results.check()
                    found.append(results)
            except DamagedResults as error:
                self._throw_away(data_file, name, error)
        return found

    def covered(self, data_file: str) -> BlockSet:
        """All blocks that are covered on a data file. Files that are covered alike share one set."""
        names = self.names(data_file)
        with self._lock:
            known = self._covered.get(data_file)
        if known is not None and known[0] == names:
            return known[1]
        blocks = self._shared(BlockSet.union([self.covered_by(data_file, name) for name in names]))
        with self._lock:
            self._covered[data_file] = (names, blocks)
        return blocks

    def refresh(self, at: int | None = None) -> None:
        """List the directory anew, if it changed. What an epoch has covered is there before its snapshot is: at one
        that was looked at a moment ago, nothing new is waited for.
        """
        if self._listing is None:
            return
        looked, until = self._looked
        self._now = now = time.monotonic()
        if at is not None and at <= looked and now < until:
            return
        with self._lock:
            listed = self._listing.changed()
            if listed is not None:
                self._take(listed)
            self._looked = (looked if at is None else max(at, looked), time.monotonic() + _MOMENT_SECONDS)

    def _take(self, listed: list[str]) -> None:
        names: dict[str, list[str]] = {}
        for name in listed:
            data_file = data_file_of(name)
            if data_file is not None:
                names.setdefault(data_file, []).append(name)
        self._names = {data_file: tuple(own) for data_file, own in names.items()}
        self._masked = frozenset(file for name in listed if (file := masked_file_of(name)) is not None)
        self._covered = {file: known for file, known in self._covered.items() if file in names}
        still = {name for own in names.values() for name in own}
        self._covered_by = {name: blocks for name, blocks in self._covered_by.items() if name in still}
        used = [*(blocks for _, blocks in self._covered.values()), *self._covered_by.values(), NO_BLOCKS]
        self._sets = {blocks: blocks for blocks in used}

    def files(self) -> list[tuple[str, str]]:
        """(data file, results file) pairs as last listed."""
        with self._lock:
            return [(data_file, name) for data_file, names in self._names.items() for name in names]

    def names(self, data_file: str) -> tuple[str, ...]:
        """The results files of a data file, as last listed."""
        return self._names.get(data_file, ())

    def covered_by(self, data_file: str, name: str) -> BlockSet:
        """The blocks that one results file covers; shared like those of `covered`."""
        with self._lock:
            known = self._covered_by.get(name)
        if known is not None:
            return known
        results = self._open(data_file, name)
        if results is None:
            return NO_BLOCKS
        blocks = self._shared(BlockSet(np.array(results.covered)))
        with self._lock:
            self._covered_by[name] = blocks
        return blocks

    def _shared(self, blocks: BlockSet) -> BlockSet:
        with self._lock:
            return self._sets.setdefault(blocks, blocks)

    def used(self, name: str) -> float | None:
        """When a results file was last looked up for an answer, on the monotonic clock, if that is known."""
        results = self._mapped.get(name)
        return None if results is None else results.used

    def remove(self, data_file: str, name: str) -> None:
        """Remove one results file, once others cover what it covered."""
        with self._lock:
            self._mapped.pop(name, None)
            self._forget(data_file, name)
        self._unlink(name)

    def close(self) -> None:
        """Let go of all files: nothing is covered from now on."""
        with self._lock:
            self._listing, self._names = None, {}
            self._covered, self._covered_by = {}, {}
            self._mapped.clear()

    def _forget(self, data_file: str, name: str) -> None:
        self._names[data_file] = tuple(each for each in self.names(data_file) if each != name)

    def _unlink(self, name: str) -> None:
        if self._directory is not None:
            with suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)

    def _throw_away(self, data_file: str, name: str, why: Exception) -> None:
        """A damaged file covers nothing: what was in it is computed anew."""
        _log.warning("results file %s can't be read (%s); it is thrown away", name, why)
        self.remove(data_file, name)

    def _open(self, data_file: str, name: str) -> Results | None:
        mapped = self._mapped.get(name)
        if mapped is not None:
            with suppress(KeyError):  # another thread has just let it go
                self._mapped.move_to_end(name)
            return mapped
        assert self._directory is not None  # or there would be no name
        try:
            results = Results(self._directory / name)
        except FileNotFoundError:
            with self._lock:
                self._forget(data_file, name)
            return None
        except (OSError, DamagedResults) as error:
            self._throw_away(data_file, name, error)
            return None
        with self._lock:
            self._mapped[name] = results
            if len(self._mapped) > _MAPPED_MAX:
                self._mapped.popitem(last=False)
        return results
