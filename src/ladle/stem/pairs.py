"""What joins have found: for pairs of data files, which tuples are pairs (DESIGN section 8).

A pairs file belongs to one data file, the later of each pair, and is named after it; it is an Arrow file that is
mapped when it is read. Each *entry* is one pair of data files with its coverage: how far apart in time its tuples may
be, and of which blocks on either side; a pair of files without an entry is simply uncovered. Tuples are known by their
numbers in their files. Where a block's functions were postponed (`stem/joining.py`), an entry also has that block's
*lineage*: which of the tuples that have partners here are in it. Like results these files are derived: deleted or
damaged ones are computed anew.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.files import temporary_path
from ladle.plan import Reach
from ladle.stem.data_stem import Pairs
from ladle.stem.listing import Listing

_log = logging.getLogger(__name__)

SUFFIX = ".pairs"
_ENTRIES = b"ladle.entries"
_LINEAGES = b"ladle.lineages"
_SCHEMA = pa.schema([("left", pa.uint32()), ("right", pa.uint32())])

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
        return (
            self.reach.covers(reach) and _has(self.left_blocks, left_blocks) and _has(self.right_blocks, right_blocks)
        )

    def to_json(self) -> list[Any]:
        blocks = [None if each is None else sorted(each) for each in (self.left_blocks, self.right_blocks)]
        return [self.left, self.right, *self.reach, *blocks]

    @staticmethod
    def from_json(value: Sequence[Any]) -> Cover:
        left, right, low, high, *blocks = value
        return Cover(left, right, Reach(low, high), *(None if each is None else frozenset(each) for each in blocks))


def _has(known: Blocks, wanted: Blocks) -> bool:
    return known is None or (wanted is not None and wanted <= known)


@dataclass(frozen=True)
class Found:
    """What was found of one pair of data files."""

    cover: Cover
    pairs: Pairs
    lineages: Mapping[tuple[int, int], npt.NDArray[np.int64]] = field(default_factory=dict)
    """By side (0: left) and block, numbers of tuples in order."""


def write_pairs(directory: Path, owner: str, found: Sequence[Found]) -> Path | None:
    """The file with all that was found for one data file; None when it can't be written: then it stays uncovered."""
    path = directory / f"{owner}.{uuid.uuid4().hex[:12]}{SUFFIX}"
    partial = temporary_path(path)
    ends = np.cumsum([len(each.pairs.left) for each in found]).tolist()
    entries = [[*each.cover.to_json(), end] for each, end in zip(found, ends, strict=True)]
    lineages = [(number, *key, rows) for number, each in enumerate(found) for key, rows in each.lineages.items()]
    columns = [np.concatenate([each.pairs[side] for each in found]) for side in (0, 1)]
    # Behind the pairs, in the first column: the numbers of all lineages.
    columns[0] = np.concatenate([columns[0], *(rows for *_, rows in lineages)])
    columns[1] = np.concatenate([columns[1], np.zeros(len(columns[0]) - len(columns[1]), dtype=np.int64)])
    metadata = {_ENTRIES: json.dumps(entries)}
    if lineages:
        metadata[_LINEAGES] = json.dumps([[number, side, block, len(rows)] for number, side, block, rows in lineages])
    arrays = [pa.array(column.astype(np.uint32)) for column in columns]
    schema = _SCHEMA.with_metadata(metadata)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(arrays, schema=schema))
        os.replace(partial, path)
    except OSError as error:
        _log.info("pairs of %s are not kept: %s", owner, error)
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        return None
    return path


class Entry:
    """One pair of data files in a mapped file."""

    __slots__ = ("_file", "_lineages", "_start", "_stop", "cover")

    def __init__(self, file: PairsFile, cover: Cover, start: int, stop: int) -> None:
        self._file = file
        self.cover = cover
        self._start = start
        self._stop = stop
        self._lineages: dict[tuple[int, int], slice] = {}

    @property
    def left(self) -> Rows:
        """Numbers in the left file, in order."""
        return self._file.left[self._start : self._stop]

    @property
    def right(self) -> Rows:
        return self._file.right[self._start : self._stop]

    def lineage(self, side: int, block: int | None) -> Rows | None:
        """Which tuples of one side (0: left) that have partners here are in a block; None: it is not known."""
        at = None if block is None else self._lineages.get((side, block))
        return None if at is None else self._file.left[at]

    def add_lineage(self, side: int, block: int, where: slice) -> None:
        self._lineages[side, block] = where


class PairsFile:
    def __init__(self, path: Path) -> None:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            batch = reader.get_batch(0)
            entries = json.loads(reader.schema.metadata[_ENTRIES])
            lineages = json.loads(reader.schema.metadata.get(_LINEAGES, b"[]"))
        self.name = path.name
        self.left: Rows = batch.column(0).to_numpy()
        self.right: Rows = batch.column(1).to_numpy()
        self.entries: list[Entry] = []
        start = 0
        for *cover, stop in entries:
            self.entries.append(Entry(self, Cover.from_json(cover), start, stop))
            start = stop
        for number, side, block, rows in lineages:
            self.entries[number].add_lineage(side, block, slice(start, start + rows))
            start += rows


class JoinCoverage:
    """The pairs files of one join: an index over a directory, which may be emptied under us at any moment."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory nothing is covered."""
        self._directory = directory
        self._lock = threading.Lock()
        self._files: dict[str, PairsFile] = {}
        self._entries: dict[tuple[str, str], list[Entry]] = {}
        self._listing = None if directory is None else Listing(directory)

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
                except (OSError, pa.ArrowException, ValueError, KeyError) as error:
                    _log.warning("pairs file %s can't be read (%s); it is thrown away", name, error)
                    self._unlink(name)
            entries: dict[tuple[str, str], list[Entry]] = {}
            for file in files.values():
                for entry in file.entries:
                    entries.setdefault((entry.cover.left, entry.cover.right), []).append(entry)
            self._files, self._entries = files, entries

    def find(self, left: str, right: str, reach: Reach, left_blocks: Blocks, right_blocks: Blocks) -> Entry | None:
        """What covers these blocks on a pair of data files, as last listed."""
        for entry in self._entries.get((left, right), ()):
            if entry.cover.covers(reach, left_blocks, right_blocks):
                return entry
        return None

    def files(self) -> list[PairsFile]:
        """As last listed."""
        with self._lock:
            return list(self._files.values())

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._unlink(name)

    def _unlink(self, name: str) -> None:
        if self._directory is not None:
            with suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)


def owner_of(name: str) -> str | None:
    """The data file that a pairs file's name belongs to; None for other files."""
    return name.removesuffix(SUFFIX).rpartition(".")[0] or None if name.endswith(SUFFIX) else None
