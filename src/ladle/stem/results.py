"""The Results Structure (PSoup section 4.3): per data file, which tuples satisfy which block.

A results file belongs to one immutable data file and is named after it, so it is valid exactly as long as that file is;
nothing else has to be written down. Per tile and block there is a count, and, unless it is none or all, the row ids or
the bits of the tile, whichever is smaller; one block's are read without touching another's. The file is mapped, never
parsed whole. Its foot says which blocks were evaluated: a block that is not listed is simply uncovered. Where a block's
functions were postponed until its tuples have partners in a join, its candidates are listed, under a number of theirs.

    payload of each tile, in words of 8 bytes
    blocks int64[b] | rows of each segment int32[s] | offsets uint32[b, t] | counts uint16[b, t]
    checksums of each page of the payload uint32[p] | lengths and checksum of the foot

The foot is verified when the file is mapped. An answer reads one block's rows, which lie here and there in the payload:
so that has a checksum for each 4 KB, and those that a block has rows in are verified when it is first looked up.
"""

from __future__ import annotations

import logging
import os
import struct
import uuid
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from ladle.archive.files import temporary_path
from ladle.stem.arrays import mapped
from ladle.stem.blocks import candidates
from ladle.stem.matches import Ids, Matches
from ladle.stem.tiles import TILE, WORDS, Array, words_of

_log = logging.getLogger(__name__)

Counts = npt.NDArray[np.uint16]
Offsets = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint64]

SUFFIX = ".results"
_END = struct.Struct("<8sQQQQ")
_SUM = struct.Struct("<Q")
_FOOT = _END.size + _SUM.size
_MAGIC = b"LADLERS3"
PAGE = 1 << 9
"""Words of the payload that have one checksum."""
_ALL = np.uint64((1 << 64) - 1)
_WORDS_MAX = (1 << 32) - 1
"""Offsets are 32 bits wide."""
_FEW = 32
"""Up to so many rows of a segment, Python puts their numbers together sooner than NumPy."""


class DamagedResults(ValueError):
    """A results file that is not what was written."""


class ResultsWriter:
    """Takes the results of one data file, tile by tile.

    Results are derived: when they can't be written (a full disk, a directory deleted just now), the file stays
    uncovered and whatever wrote it goes on.
    """

    def __init__(self, directory: Path, data_file: str, blocks: npt.NDArray[np.int64]) -> None:
        self._path = directory / f"{data_file}.{uuid.uuid4().hex[:12]}{SUFFIX}"
        self._partial = temporary_path(self._path)
        self._data_file = data_file
        self._blocks = blocks
        self._failed: set[int] = set()
        self._postponed: set[int] = set()
        self._segments: list[int] = []
        self._counts: list[Counts] = []
        self._offsets: list[Offsets] = []
        self._sink: IO[bytes] | None = None
        self._words = 0
        self._sums = PageSums()
        self._broken = not len(blocks)
        if self._broken:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._sink = self._partial.open("wb")
        except OSError as error:
            self._give_up(error)

    def segment(self, rows: int) -> None:
        """A segment begins."""
        self._segments.append(rows)

    def tile(self, counts: Counts, offsets: Offsets) -> None:
        """The next tile's counts, and where each block's rows begin, as `write` said."""
        self._counts.append(counts)
        self._offsets.append(offsets)

    @property
    def end(self) -> int:
        """Where the next payload will begin, in words."""
        return self._words

    def write(self, payload: Words) -> None:
        """Write words. A file that becomes too large is given up: what is not there is computed when it is asked."""
        if self._broken or self._sink is None:
            return
        self._words += len(payload)
        if self._words > _WORDS_MAX:
            self._give_up("they are more than a file can hold")
            return
        self._sums.add(payload)
        try:
            self._sink.write(payload.data)
        except OSError as error:
            self._give_up(error)

    def fail(self, blocks: Collection[int]) -> None:
        """Blocks that could not be evaluated somewhere: the whole file stays uncovered for them."""
        self._failed.update(blocks)

    @property
    def hopeful(self) -> bool:
        """Whether some block may still be covered."""
        return len(self._failed) < len(self._blocks)

    def postpone(self, blocks: Collection[int]) -> None:
        """Blocks of which the file has candidates alone."""
        self._postponed.update(blocks)

    def finish(self) -> Path | None:
        """The results file's path, or None when no block is covered."""
        kept = ~np.isin(self._blocks, np.fromiter(self._failed, dtype=np.int64))
        if self._broken or not kept.any() or not self._counts:
            self.abort()
            return None
        blocks = self._blocks
        which: npt.NDArray[np.intp] | None = None if kept.all() else np.flatnonzero(kept)
        if self._postponed:
            waiting = np.isin(blocks, np.fromiter(self._postponed, dtype=np.int64))
            blocks = np.where(waiting, candidates(blocks), blocks)
            which = np.argsort(blocks)
            which = which[kept[which]]
        parts = [
            (blocks if which is None else blocks[which]).astype("<i8", copy=False),
            np.asarray(self._segments, dtype="<i4"),
            _by_block(self._offsets, which).astype("<u4", copy=False),
            _by_block(self._counts, which).astype("<u2", copy=False),
            np.asarray(self._sums.finish(), dtype="<u4"),
        ]
        checksum = 0
        try:
            assert self._sink is not None
            for part in parts:
                checksum = crc32(part.data, checksum)
                self._sink.write(part.data)
            end = _END.pack(_MAGIC, len(parts[0]), len(self._segments), len(self._counts), len(parts[4]))
            self._sink.write(end + _SUM.pack(crc32(end, checksum)))
            self._sink.close()
            os.replace(self._partial, self._path)
        except OSError as error:
            self._give_up(error)
            return None
        return self._path

    def abort(self) -> None:
        """Leave no file behind."""
        if self._sink is not None:
            with suppress(OSError):
                self._sink.close()
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)

    def _give_up(self, why: OSError | str) -> None:
        _log.info("results of %s are not kept: %s", self._data_file, why)
        self._broken = True
        self._words = 0
        self.abort()


class PageSums:
    """The checksums of the payload's pages, while it is written."""

    def __init__(self) -> None:
        self._sums: list[int] = []
        self._sum = 0
        self._words = 0
        """Of the page that is not full yet."""

    def add(self, payload: Words) -> None:
        """Add words to the checksums of their pages."""
        at = 0
        while at < len(payload):
            part = payload[at : at + PAGE - self._words]
            self._sum = crc32(part.data, self._sum)
            self._words += len(part)
            at += len(part)
            if self._words == PAGE:
                self._sums.append(self._sum)
                self._sum = self._words = 0

    def finish(self) -> list[int]:
        """The checksums of all pages, the last of which may be short."""
        return [*self._sums, self._sum] if self._words else self._sums


class Results:
    """One mapped results file. A block is to be checked before its rows are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.used: float | None = None
        """When it was last looked up for an answer, on the monotonic clock."""
        if path.stat().st_size < _FOOT:
            raise DamagedResults(f"{path.name} is cut off")
        content = mapped(path)
        magic, blocks, segments, tiles, pages = _END.unpack(content[-_FOOT : -_SUM.size].tobytes())
        (checksum,) = _SUM.unpack(content[-_SUM.size :].tobytes())
        if magic != _MAGIC:
            raise DamagedResults(f"{path.name} is not what was written, or not by this version")
        at = len(content) - _FOOT - (8 * blocks + 4 * segments + 6 * tiles * blocks + 4 * pages)
        if at < 0 or at > pages * PAGE * 8 or crc32(content[at : -_SUM.size].data) != checksum:
            raise DamagedResults(f"the checksum of the foot of {path.name} does not match")
        self._words: Words = np.frombuffer(content, "<u8", at // 8)
        self._ids = self._words.view(np.uint16)
        self.covered: npt.NDArray[np.int64] = np.frombuffer(content, "<i8", blocks, at)
        self.segment_rows: npt.NDArray[np.int32] = np.frombuffer(content, "<i4", segments, at + 8 * blocks)
        self._covered = _integers(self.covered, "q")
        self._few_ids = _integers(self._words, "H")
        at += 8 * blocks + 4 * segments
        self._tiles = tiles
        self._offsets = _integers(np.frombuffer(content, "<u4", blocks * tiles, at), "I")
        self._counts = np.frombuffer(content, "<u2", blocks * tiles, at + 4 * blocks * tiles)
        self._few_counts = _integers(self._counts, "H")
        self._sums = np.frombuffer(content, "<u4", pages, len(content) - _FOOT - 4 * pages)
        self._page_checked = bytearray(pages)
        self._block_checked = bytearray(blocks)
        self._first_tile: list[int] = [0, *np.cumsum(-(-self.segment_rows // TILE)).tolist()]
        self._rows: list[int] = self.segment_rows.tolist()

    def covers(self, block: int) -> bool:
        """Whether it is known which tuples satisfy a block."""
        return self._place(block) is not None

    def has(self, block: int) -> bool:
        """Whether it covers a block, whose rows are verified the first time: raises DamagedResults."""
        place = self._place(block)
        if place is None:
            return False
        if not self._block_checked[place]:
            self._check(place)
        return True

    def check(self) -> None:
        """Raises DamagedResults if anything in the file is not what was written."""
        self._check_pages(range(len(self._sums)))

    def _check(self, place: int) -> None:
        tiles = slice(place * self._tiles, (place + 1) * self._tiles)
        counts, sizes = self._counts[tiles].astype(np.int64), self.tile_rows
        some = (counts > 0) & (counts < sizes)
        first = np.frombuffer(self._offsets, np.uint32)[tiles].astype(np.int64)[some]
        # As bits where there are many, as ids of two bytes where there are few.
        words = np.where(counts << 4 > sizes, -(-sizes // 64), -(-counts // 4))[some]
        begins, ends = first // PAGE, (first + words - 1) // PAGE
        pages = set(begins.tolist())
        if (ends != begins).any():
            pages.update(page for begin, end in zip(begins, ends, strict=True) for page in range(begin, end + 1))
        self._check_pages(pages)
        self._block_checked[place] = True

    def _check_pages(self, pages: Iterable[int]) -> None:
        for page in pages:
            if not self._page_checked[page]:
                if crc32(self._words[page * PAGE : (page + 1) * PAGE].data) != self._sums[page]:
                    raise DamagedResults(f"a checksum in {self.path.name} does not match")
                self._page_checked[page] = True

    def rows(self, block: int, segment: int) -> Ids | None:
        """Row ids of the block's matches in the segment (sorted), or None for all rows."""
        found = self.matches(block, segment)
        if found.numbers is not None:
            return found.numbers
        mask = found.mask
        return None if mask is None else mask.nonzero()[0]

    def matches(self, block: int, segment: int) -> Matches:
        """The block's matches in the segment."""
        place = self._place(block)
        if place is None:
            raise KeyError(block)
        before = place * self._tiles
        first, last = before + self._first_tile[segment], before + self._first_tile[segment + 1]
        counts = self._few_counts[first:last].tolist()
        rows = self._rows[segment]
        matched = sum(counts)
        if matched == rows:
            return Matches(rows)
        offsets = self._offsets[first:last].tolist()
        last_size = rows - TILE * (len(counts) - 1)
        if _all_sparse(counts, last_size):
            return Matches(rows, numbers=self._from_ids(counts, offsets, matched))
        sizes = [TILE] * (len(counts) - 1) + [last_size]
        return Matches(rows, bits=self._from_bits(counts, offsets, sizes, rows))

    def mask(self, block: int) -> npt.NDArray[np.bool_]:
        """Which tuples of the data file match."""
        parts = [self.matches(block, segment).mask for segment in range(len(self._rows))]
        whole = [
            np.ones(rows, dtype=np.bool_) if part is None else part
            for part, rows in zip(parts, self._rows, strict=True)
        ]
        return np.concatenate(whole)

    def counts(self, block: int) -> npt.NDArray[np.int64]:
        """How many rows of each segment match."""
        place = self._place(block)
        if place is None:
            raise KeyError(block)
        counts = self._counts[place * self._tiles : (place + 1) * self._tiles].astype(np.int64)
        return np.add.reduceat(counts, self._first_tile[:-1]) if len(counts) else counts

    @property
    def tile_rows(self) -> npt.NDArray[np.int64]:
        """How many tuples each tile has, all segments' one after the other."""
        sizes = [min(TILE, rows - start) for rows in self._rows for start in range(0, rows, TILE)]
        return np.array(sizes, dtype=np.int64)

    @property
    def payload(self) -> Words:
        """Row ids and bits of all blocks and tiles."""
        return self._words

    def layout(self, blocks: npt.NDArray[np.int64]) -> tuple[Counts, npt.NDArray[np.int64]]:
        """The counts of some covered blocks in all tiles, and where in the payload their rows begin."""
        places = np.searchsorted(self.covered, blocks)
        offsets = np.frombuffer(self._offsets, np.uint32).reshape(-1, self._tiles)
        return self._counts.reshape(-1, self._tiles)[places], offsets[places].astype(np.int64)

    def _from_ids(self, counts: list[int], offsets: list[int], matched: int) -> Ids:
        """The rows of tiles that all have row ids."""
        if matched <= _FEW:
            few: list[int] = []
            first = 0
            for count, at in zip(counts, offsets, strict=True):
                if count == 1:
                    few.append(first + self._few_ids[at << 2])
                elif count:
                    few += [first + row for row in self._few_ids[at << 2 : (at << 2) + count]]
                first += TILE
            return np.array(few, dtype=np.intp)
        ids = np.empty(matched, dtype=np.intp)
        parts = [self._ids[at << 2 : (at << 2) + count] for count, at in zip(counts, offsets, strict=True) if count]
        np.concatenate(parts, out=ids, casting="unsafe")
        ids += np.arange(0, len(counts) * TILE, TILE).repeat(counts)
        return ids

    def _from_bits(self, counts: list[int], offsets: list[int], sizes: list[int], rows: int) -> npt.NDArray[np.uint8]:
        """The bits of a segment, of whose tiles some have bits."""
        words = np.zeros(words_of(rows), dtype=np.uint64)
        sparse = []
        for number, (count, offset, size) in enumerate(zip(counts, offsets, sizes, strict=True)):
            at = number * WORDS
            if count == size:
                words[at : at + WORDS] = _ALL
            elif count << 4 > size:
                words[at : at + WORDS] = self._words[offset : offset + words_of(size)]
            elif count:
                sparse.append((number, self._ids[offset << 2 : (offset << 2) + count]))
        bits = words.view(np.uint8)
        for number, ids in sparse:
            tile = bits[number * TILE // 8 :][: TILE // 8]
            mask = np.zeros(len(tile) * 8, dtype=np.bool_)
            mask[ids] = True
            tile[:] = np.packbits(mask, bitorder="little")
        return bits

    def _place(self, block: int) -> int | None:
        at = bisect_left(self._covered, block)
        return at if at < len(self._covered) and self._covered[at] == block else None


def _by_block(parts: Sequence[Array], which: npt.NDArray[np.intp] | None) -> Array:
    """What tiles have for each block, block by block: an answer reads one block's."""
    return np.stack(parts if which is None else [part[which] for part in parts], axis=1)


def _integers(values: Array, form: str) -> memoryview:
    """The same memory as Python's integers, which a few are found sooner in than in NumPy's."""
    return memoryview(values.data).cast("B").cast(form)  # type: ignore[call-overload]


def _all_sparse(counts: list[int], last_size: int) -> bool:
    """Whether all tiles of a segment have row ids, not bits."""
    *whole, last = counts
    return max(whole, default=0) << 4 <= TILE and last << 4 <= last_size


def is_older(path: Path) -> bool:
    """Whether a results file is of a version that had no checksums of rows."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 40, 0))
        return file.read(8) == b"LADLERS2"


def data_file_of(name: str) -> str | None:
    """The data file that a results file's name belongs to; None for other files."""
    if not name.endswith(SUFFIX):
        return None
    return name.removesuffix(SUFFIX).rpartition(".")[0] or None


def file_names(directory: Path) -> Iterable[str]:
    """The names in a directory; none if it is not there."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except FileNotFoundError:
        return []
