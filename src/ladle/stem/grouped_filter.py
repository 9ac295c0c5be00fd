"""Grouped filters (CACQ section 3.2): the predicate index of one column, for all blocks of a page.

The ends of all intervals that blocks have on the column, sorted, are its *cuts*. A tile of tuples is arranged by them
once; after that every interval is two cuts, and the tuples inside it are known by two bitmaps, whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ladle.plan.keys import INT64_MIN, Key
from ladle.plan.ranges import Ranges
from ladle.stem.column_keys import BytesKeys, Keys
from ladle.stem.tiles import STEP, TILE, WORDS, Array, Tile, words_of

_BITMAPS_MAX = TILE // STEP + 1
"""A tile with more cuts that tell its tuples apart keeps a bitmap per step instead of one per cut."""

_TABLE_MAX = 1 << 16
"""Cuts that lie this close together are looked up instead of searched."""


def cuts_of(ranges: Iterable[Ranges]) -> list[Key]:
    """All ends of intervals, sorted."""
    return sorted({key for each in ranges for interval in each.intervals for key in interval if key is not None})


@dataclass(frozen=True)
class Cuts:
    """Sorted keys: int64, or bytes one after the other."""

    keys: Array
    offsets: Array | None = None
    """Where each key of bytes begins, and where the last ends."""

    @staticmethod
    def of(cuts: list[Key]) -> Cuts:
        """Cuts from ascending keys."""
        if cuts and isinstance(cuts[0], bytes):
            joined = b"".join(cut for cut in cuts if isinstance(cut, bytes))
            lengths = np.array([0, *(len(cut) for cut in cuts if isinstance(cut, bytes))], dtype=np.int64)
            return Cuts(np.frombuffer(joined, dtype=np.uint8), np.cumsum(lengths))
        return Cuts(np.array(cuts, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.keys) if self.offsets is None else len(self.offsets) - 1


class GroupedFilter:
    """The cuts of one column."""

    def __init__(self, column: str, cuts: Cuts) -> None:
        self.column = column
        self.cuts = cuts
        self._first, self._table = 0, np.zeros(0, dtype=np.int32)
        if cuts.offsets is None and len(cuts):
            first, last = int(cuts.keys[0]) - 1, int(cuts.keys[-1])
            if last - first < _TABLE_MAX and first >= INT64_MIN:
                self._first = first
                # `first` is added to small numbers: a range that ends with the greatest int64 has no end in int64.
                keys = np.arange(last - first + 1, dtype=np.int64) + first
                self._table = np.searchsorted(cuts.keys, keys, side="right").astype(np.int32)

    @property
    def bitmaps(self) -> int:
        """How many a tile has; the last is that of NULLs."""
        cuts = len(self.cuts) + 2
        return (cuts if cuts <= _BITMAPS_MAX else TILE // STEP + 1) + 1

    def rank(self, keys: Keys, start: int, ranks: Array) -> None:
        """How many cuts each of the keys from `start` on has reached."""
        from ladle.stem import arranging

        if not len(self.cuts):
            ranks[:] = 0
        elif isinstance(keys, BytesKeys):
            assert self.cuts.offsets is not None
            arranging.rank_bytes(keys.offsets, keys.data, start, self.cuts.offsets, self.cuts.keys, ranks)
        elif len(self._table):
            arranging.rank_by_table(keys.keys[start : start + len(ranks)], self._table, self._first, ranks)
        else:
            arranging.rank_by_search(keys.keys[start : start + len(ranks)], self.cuts.keys, ranks)


_ALL_PRESENT = np.zeros(0, dtype=np.bool_)


class Arrangement:
    """A tile, arranged by grouped filters: what the kernel of the probe reads. Used again and again."""

    def __init__(self, filters: list[GroupedFilter], predicates: int) -> None:
        self._filters = filters
        columns = len(filters)
        first_cut = np.cumsum([0, *(len(each.cuts) + 2 for each in filters)]).astype(np.int32)
        first_bitmap = np.cumsum([0, *(each.bitmaps for each in filters)]).astype(np.int32)
        self.tile = tile = Tile(
            first_cut=first_cut,
            below=np.zeros(first_cut[-1], dtype=np.int32),
            fix=np.zeros(first_cut[-1], dtype=np.int32),
            base=np.zeros(first_cut[-1], dtype=np.int32),
            order=np.zeros((columns, TILE), dtype=np.uint16),
            ranks=np.zeros((columns, TILE), dtype=np.int32),
            null_bitmap=first_bitmap[1:] - np.int32(1),
            null_count=np.zeros(columns, dtype=np.int32),
            first_predicate=int(first_bitmap[-1]),
            predicate_count=np.zeros(predicates, dtype=np.int32),
            bitmaps=np.zeros((first_bitmap[-1] + predicates, WORDS), dtype=np.uint64),
        )
        self._columns = [
            (tile.ranks[number], tile.order[number], tile.below[cuts], tile.base[cuts], tile.fix[cuts],
             tile.bitmaps[first_bitmap[number] : first_bitmap[number + 1] - 1], int(first_bitmap[number]))
            for number, cuts in enumerate(slice(*ends) for ends in pairwise(first_cut))
        ]  # fmt: skip

    def arrange(
        self, number: int, keys: Keys, start: int, rows: int, wanted: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Arrange one column's share of a tile: `rows` tuples from `start` on, or those of them that are wanted."""
        from ladle.stem import arranging

        ranks, order, below, base, fix, bitmaps, first_bitmap = self._columns[number]
        ranks = ranks[:rows]
        self._filters[number].rank(keys, start, ranks)
        valid = None if keys.valid is None else keys.valid[start : start + rows]
        present = valid if wanted is None else wanted if valid is None else valid & wanted
        arranging.sort(ranks, _ALL_PRESENT if present is None else present, below, order)
        arranging.prefixes(below, order, bitmaps, _BITMAPS_MAX, first_bitmap, base, fix, words_of(rows))
        nulls = None if valid is None else ~valid
        self.tile.null_count[number] = 0 if nulls is None else np.count_nonzero(nulls)
        if nulls is not None:
            self.tile.bitmaps[self.tile.null_bitmap[number], : words_of(rows)] = packed(nulls)

    def predicate(self, number: int, mask: npt.NDArray[np.bool_] | None) -> None:
        """Take one predicate's rows; None when it could not be evaluated, and its blocks don't count."""
        self.tile.predicate_count[number] = 0 if mask is None else np.count_nonzero(mask)
        if mask is not None:
            self.tile.bitmaps[self.tile.first_predicate + number, : words_of(len(mask))] = packed(mask)


def packed(mask: Array) -> Array:
    """A mask as words of 64 bits."""
    words = np.zeros(words_of(len(mask)), dtype=np.uint64)
    octets = np.packbits(mask, bitorder="little")
    words.view(np.uint8)[: len(octets)] = octets
    return words
