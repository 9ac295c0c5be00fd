"""What joins have found: for pairs of data files, which tuples are pairs.

A pairs file belongs to one data file, the later of each pair, and is named after it; it is a file of arrays
(`stem/arrays.py`) that is mapped, and each part of it is verified when it is first read. Each *entry* is one pair of
data files with its coverage: how far apart in time its tuples may be, and of which blocks on either side; a pair of
files without an entry is simply uncovered. Tuples are known by their numbers in their files. Where a block's functions
were postponed (`stem/join_kernel.py`), an entry also has that block's *lineage*: which of the tuples that have partners
here are in it. Like results these files are derived: deleted or damaged ones are computed anew.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ladle.json_values import Json, JsonRow
from ladle.plan import Reach
from ladle.stem.arrays import DamagedArrays, checksum, map_arrays, save_arrays
from ladle.stem.data_stem import Pairs
from ladle.stem.listed_directory import Listing

_log = logging.getLogger(__name__)

SUFFIX = ".pairs"

Blocks = frozenset[int] | None
"""Blocks on one side of a join; None: whatever the block, because all tuples were looked at."""
Rows = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Cover:
    """What is known of one pair of data files."""

    left: str
    right: str
    reach: Reach
    left_blocks: Blocks
    right_blocks: Blocks

    def covers(self, reach: Reach, left_blocks: Blocks, right_blocks: Blocks) -> bool:
        """Whether pairs that far apart in time, of these blocks, are all there."""
        return (
            self.reach.covers(reach) and _has(self.left_blocks, left_blocks) and _has(self.right_blocks, right_blocks)
        )

    def to_json(self) -> list[Json]:
        """Encode the cover."""
        blocks = [None if each is None else sorted(each) for each in (self.left_blocks, self.right_blocks)]
        return [self.left, self.right, *self.reach, *blocks]

    @staticmethod
    def from_json(value: JsonRow) -> Cover:
        """Decode the cover."""
        left, right, low, high, *blocks = value
        return Cover(left, right, Reach(low, high), *(None if each is None else frozenset(each) for each in blocks))


def _has(known: Blocks, wanted: Blocks) -> bool:
    return known is None or (wanted is not None and wanted <= known)


@dataclass(frozen=True)
class FoundPairs:
    """What was found of one pair of data files."""

    cover: Cover
    pairs: Pairs
    lineages: Mapping[tuple[int, int], npt.NDArray[np.int64]] = field(default_factory=dict)
    """By side (0: left) and block, numbers of tuples in order."""


def write_pairs(directory: Path, owner: str, found: Sequence[FoundPairs]) -> Path | None:
    """The file with all that was found for one data file; None when it can't be written: then it stays uncovered."""
    path = directory / f"{owner}.{uuid.uuid4().hex[:12]}{SUFFIX}"
    entries: list[Json] = []
    lineages: list[Json] = []
    parts: list[Rows] = []
    for each in found:
        left, right = (rows.astype(np.uint32) for rows in each.pairs)
        entries.append([*each.cover.to_json(), len(left), checksum(left), checksum(right)])
        parts += [left, right]
    for number, each in enumerate(found):
        for (side, block), rows in each.lineages.items():
            own = rows.astype(np.uint32)
            lineages.append([number, side, block, len(own), checksum(own)])
            parts.append(own)
    try:
        save_arrays(path, {"entries": entries, "lineages": lineages}, {"rows": np.concatenate(parts)})
    except OSError as error:
        _log.info("pairs of %s are not kept: %s", owner, error)
        return None
    return path


class _MappedNumbers(NamedTuple):
    """Numbers of tuples in a mapped file, and their checksum."""

    rows: Rows
    checksum: int


class MappedPair:
    """One pair of data files in a mapped file. It is to be checked before it is read."""

    __slots__ = ("_checked", "_left", "_lineages", "_right", "cover", "file")

    def __init__(self, file: str, cover: Cover, left: _MappedNumbers, right: _MappedNumbers) -> None:
        self.file = file
        """The name of the pairs file."""
        self.cover = cover
        self._left = left
        self._right = right
        self._lineages: dict[tuple[int, int], _MappedNumbers] = {}
        self._checked = False

    def check(self) -> None:
        """Raises Damaged if it is not what was written; looks once."""
        if self._checked:
            return
        for part in (self._left, self._right, *self._lineages.values()):
            if checksum(part.rows) != part.checksum:
                raise DamagedArrays(f"the checksum of pairs in {self.file} does not match")
        self._checked = True

    @property
    def left(self) -> Rows:
        """Numbers in the left file, in order."""
        return self._left.rows

    @property
    def right(self) -> Rows:
        """The rows on the right side of its pairs."""
        return self._right.rows

    def lineage(self, side: int, block: int | None) -> Rows | None:
        """Which tuples of one side (0: left) that have partners here are in a block; None: it is not known."""
        return None if block is None or (side, block) not in self._lineages else self.lineage_of(side, block)

    @property
    def lineages(self) -> Set[tuple[int, int]]:
        """The sides and blocks whose lineages are known."""
        return self._lineages.keys()

    def lineage_of(self, side: int, block: int) -> Rows:
        """The lineage of a block that has one."""
        return self._lineages[side, block].rows

    def add_lineage(self, side: int, block: int, part: _MappedNumbers) -> None:
        """Add which rows on one side satisfy a block."""
        self._lineages[side, block] = part


class PairsFile:
    """A mapped pairs file. Its head is verified, each entry when it is checked."""

    def __init__(self, path: Path) -> None:
        header, arrays = map_arrays(path, whole=False)
        rows = arrays["rows"]
        self.name = path.name
        self.entries: list[MappedPair] = []
        at = 0
        for *cover, count, of_left, of_right in header["entries"]:
            left, right = rows[at : at + count], rows[at + count : at + 2 * count]
            self.entries.append(
                MappedPair(
                    self.name, Cover.from_json(cover), _MappedNumbers(left, of_left), _MappedNumbers(right, of_right)
                )
            )
            at += 2 * count
        for number, side, block, count, of_rows in header["lineages"]:
            self.entries[number].add_lineage(side, block, _MappedNumbers(rows[at : at + count], of_rows))
            at += count


def is_older(path: Path) -> bool:
    """Whether a pairs file is of a version that wrote Arrow's files, without checksums."""
    with path.open("rb") as file:
        return file.read(6) == b"ARROW1"


class JoinCoverage:
    """The pairs files of one join: an index over a directory, which may be emptied under us at any moment."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory nothing is covered."""
        self._directory = directory
        self._lock = threading.Lock()
        self._files: dict[str, PairsFile] = {}
        self._entries: dict[tuple[str, str], list[MappedPair]] = {}
        self._listing = None if directory is None else Listing(directory)
        self._used: dict[str, float] = {}

    def refresh(self) -> None:
        """List the directory anew, if it changed."""
        if self._directory is None or self._listing is None:
            return
        with self._lock:
            names = self._listing.changed()
            if names is None:
                return
            listed = {name for name in names if name.endswith(SUFFIX)}
            files = {name: file for name, file in self._files.items() if name in listed}
            for name in listed - files.keys():
                try:
                    files[name] = PairsFile(self._directory / name)
                except FileNotFoundError:
                    continue
                except (OSError, ValueError, KeyError) as error:
                    _log.warning("pairs file %s can't be read (%s); it is thrown away", name, error)
                    self._unlink(name)
            entries: dict[tuple[str, str], list[MappedPair]] = {}
            for file in files.values():
                for entry in file.entries:
                    entries.setdefault((entry.cover.left, entry.cover.right), []).append(entry)
            self._files, self._entries = files, entries
            self._used = {name: used for name, used in self._used.items() if name in files}

    def find(self, left: str, right: str, reach: Reach, left_blocks: Blocks, right_blocks: Blocks) -> MappedPair | None:
        """What covers these blocks on a pair of data files, as last listed."""
        for entry in self._entries.get((left, right), ()):
            if entry.cover.covers(reach, left_blocks, right_blocks):
                try:
                    entry.check()
                    return entry
                except DamagedArrays as error:
                    self._throw_away(entry.file, error)
        return None

    def note_use(self, entry: MappedPair, now: float) -> None:
        """An answer is made of an entry, at a time of the monotonic clock."""
        self._used[entry.file] = now

    def used(self, name: str) -> float | None:
        """When a pairs file was last used for an answer, if it was in this process."""
        return self._used.get(name)

    def _throw_away(self, name: str, why: Exception) -> None:
        """A damaged file covers nothing: what was in it is found anew."""
        _log.warning("pairs file %s can't be read (%s); it is thrown away", name, why)
        self._unlink(name)
        with self._lock:
            self._files = {each: file for each, file in self._files.items() if each != name}
            self._entries = {
                files: left
                for files, entries in self._entries.items()
                if (left := [entry for entry in entries if entry.file != name])
            }

    def files(self) -> list[PairsFile]:
        """The files there were at the last look."""
        with self._lock:
            return list(self._files.values())

    def remove(self, names: Iterable[str]) -> None:
        """Forget the pairs of data files."""
        for name in names:
            self._unlink(name)

    def close(self) -> None:
        """Let go of all files: nothing is covered from now on."""
        with self._lock:
            for file in self._files.values():
                file.entries.clear()  # they refer to each other, and would wait for the garbage collector
            self._listing, self._files, self._entries = None, {}, {}

    def _unlink(self, name: str) -> None:
        if self._directory is not None:
            with suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)


def owner_of(name: str) -> str | None:
    """The data file that a pairs file's name belongs to; None for other files."""
    return name.removesuffix(SUFFIX).rpartition(".")[0] or None if name.endswith(SUFFIX) else None
