"""The compiled loops that arrange a column of a tile by the cuts of a grouped filter.

Cut number g splits the values into those below and the rest; `below[g]` says how many are below, `order` lists the rows
by value, and the rows below are bitmap `base[g]` and, by that order, the `fix[g]` rows after it. Plain functions on
NumPy arrays; Numba compiles them once and keeps the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numba import njit, types

from ladle.stem.tiles import STEP, Array

_F = TypeVar("_F", bound=Callable[..., object])

# Signatures are given, so that a process loads what is compiled and never compiles for one more combination of types.
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
FLAGS = types.Array(types.boolean, 1, "C", readonly=True)
INTS = types.Array(types.int32, 1, "C", readonly=True)
LONGS = types.Array(types.int64, 1, "C", readonly=True)
ROWS = types.Array(types.uint16, 1, "C", readonly=True)
INTS_OUT, LONGS_OUT, ROWS_OUT, WORDS_OUT = types.int32[::1], types.int64[::1], types.uint16[::1], types.uint64[::1]
LONG = types.int64


def compiled(*signatures: types.Type) -> Callable[[_F], _F]:
    """Compile a function for these types, or, without any, into those that call it.

    These loops allocate nothing, so Numba need not count references: every access to a field of a record would pay for
    that, and the probe would take twice as long.
    """

    def compile_it(function: _F) -> _F:
        how = {"cache": True, "nogil": True, "_nrt": False, "forceinline": not signatures}
        made: _F = njit(list(signatures) or None, **how)(function)
        return made

    return compile_it


@compiled(types.void(LONGS, INTS, LONG, INTS_OUT))
def rank_by_table(keys: Array, table: Array, first: int, ranks: Array) -> None:
    """How many cuts each key has reached, looked up: `table[i]` is the rank of key `first + i`; the ends stand for
    everything beyond them."""
    last = table.size - 1
    top = first + last
    for i in range(keys.size):
        key = keys[i]
        if key <= first:
            ranks[i] = table[0]
        elif key >= top:
            ranks[i] = table[last]
        else:
            ranks[i] = table[key - first]


@compiled(types.void(LONGS, LONGS, INTS_OUT))
def rank_by_search(keys: Array, cuts: Array, ranks: Array) -> None:
    """How many cuts each key has reached, by binary search."""
    for i in range(keys.size):
        key = keys[i]
        low, left = 0, cuts.size
        while left > 0:
            half = left >> 1
            if cuts[low + half] <= key:
                low += half + 1
                left -= half + 1
            else:
                left = half
        ranks[i] = low


@compiled(
    types.void(INTS, BYTES, LONG, LONGS, BYTES, INTS_OUT),
    types.void(LONGS, BYTES, LONG, LONGS, BYTES, INTS_OUT),
)
def rank_bytes(offsets: Array, data: Array, first: int, cut_offsets: Array, cut_data: Array, ranks: Array) -> None:
    """Rank keys that are bytes: key i is `data[offsets[first + i]:offsets[first + i + 1]]`."""
    for i in range(ranks.size):
        start, stop = offsets[first + i], offsets[first + i + 1]
        low, left = 0, cut_offsets.size - 1
        while left > 0:
            half = left >> 1
            at, end = cut_offsets[low + half], cut_offsets[low + half + 1]
            key = start
            while at < end and key < stop and cut_data[at] == data[key]:
                at += 1
                key += 1
            if at == end or (key < stop and cut_data[at] < data[key]):
                low += half + 1
                left -= half + 1
            else:
                left = half
        ranks[i] = low


@compiled(types.void(INTS_OUT, FLAGS, INTS_OUT, ROWS_OUT))
def sort(ranks: Array, present: Array, below: Array, order: Array) -> None:
    """Count rows below each cut and list the rows by value. `below` has two entries more than there are cuts: the first
    is 0, the last all rows. Rows that are not present (no entry: all are) get a rank beyond every interval."""
    some_absent = present.size > 0
    cuts = below.size - 2
    below[:] = 0
    for i in range(ranks.size):
        if some_absent and not present[i]:
            ranks[i] = cuts + 2
        else:
            below[ranks[i] + 1] += 1
    for g in range(1, cuts + 2):
        below[g] += below[g - 1]
    # below[r] is now where rank r starts; filling moves it to where rank r + 1 does.
    for i in range(ranks.size):
        rank = ranks[i]
        if rank <= cuts:
            order[below[rank]] = i
            below[rank] += 1
    for g in range(cuts + 1, 0, -1):
        below[g] = below[g - 1]
    below[0] = 0


@compiled()
def set_(bitmap: Array, row: int) -> None:
    """Set the bit of a row."""
    bitmap[row >> 6] |= np.uint64(1) << np.uint64(row & 63)


@compiled()
def clear(bitmap: Array, row: int) -> None:
    """Clear the bit of a row."""
    bitmap[row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))


@compiled()
def _follow(bitmaps: Array, s: int, order: Array, start: int, stop: int, words: int) -> None:
    """Bitmap s: the one before it, and some rows."""
    before, bitmap = bitmaps[s - 1], bitmaps[s]
    for w in range(words):
        bitmap[w] = before[w]
    for at in range(start, stop):
        set_(bitmap, order[at])


@compiled(types.void(INTS_OUT, ROWS_OUT, types.uint64[:, ::1], LONG, LONG, INTS_OUT, INTS_OUT, LONG))
def prefixes(
    below: Array, order: Array, bitmaps: Array, most: int, first: int, base: Array, fix: Array, words: int
) -> None:
    """Bitmaps of the rows below cuts: one for each cut that has other rows below it than the one before, or, if those
    are more than `most`, one per STEP rows in order of value. `first` is the number of the first bitmap among all."""
    distinct = 1
    for g in range(1, below.size):
        distinct += below[g] != below[g - 1]
    bitmaps[0, :words] = 0
    base[0], fix[0] = first, 0
    s = 0
    if distinct <= most:
        for g in range(1, below.size):
            if below[g] != below[g - 1]:
                s += 1
                _follow(bitmaps, s, order, below[g - 1], below[g], words)
            base[g], fix[g] = first + s, 0
        return
    total = below[below.size - 1]
    for start in range(0, total, STEP):
        s += 1
        _follow(bitmaps, s, order, start, min(start + STEP, total), words)
    for g in range(1, below.size):
        base[g], fix[g] = first + below[g] // STEP, below[g] % STEP
