"""The compiled loops of the Query SteM. Plain functions on NumPy arrays; Numba compiles them once and keeps the result.

A column of a tile is *arranged*: cut number g of a grouped filter splits its values into those below and the rest;
`below[g]` says how many are below, `order` lists the rows by value, and the rows below are bitmap `base[g]` plus
`order[fix[g]:below[g]]`. Importing this takes half a second, so whoever may do without it imports it on first need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ladle.stem.tiles import SPARSE, STEP, WORDS, Array, Terms, Tile

_F = TypeVar("_F", bound=Callable[..., Any])

# Signatures are given, so that a process loads what is compiled and never compiles for one more combination of types.
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)
_INTS = types.Array(types.int32, 1, "C", readonly=True)
_LONGS = types.Array(types.int64, 1, "C", readonly=True)
_ROWS = types.Array(types.uint16, 1, "C", readonly=True)
_INTS_OUT, _ROWS_OUT = types.int32[::1], types.uint16[::1]
_LONG = types.int64


def compiled(*signatures: Any) -> Callable[[_F], _F]:
    def compile_it(function: _F) -> _F:
        made: _F = njit(list(signatures) or None, cache=True, nogil=True)(function)
        return made

    return compile_it


def _record(of: type, fields: list[Any]) -> Any:
    return types.NamedTuple(fields, of)


@intrinsic  # type: ignore[untyped-decorator]
def _population(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _lowest_bit(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@compiled(types.void(_LONGS, _INTS, _LONG, _INTS_OUT))
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


@compiled(types.void(_LONGS, _LONGS, _INTS_OUT))
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
    types.void(_INTS, _BYTES, _LONG, _LONGS, _BYTES, _INTS_OUT),
    types.void(_LONGS, _BYTES, _LONG, _LONGS, _BYTES, _INTS_OUT),
)
def rank_bytes(offsets: Array, data: Array, first: int, cut_offsets: Array, cut_data: Array, ranks: Array) -> None:
    """The same for keys that are bytes: key i is `data[offsets[first + i]:offsets[first + i + 1]]`."""
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


@compiled(types.void(_INTS_OUT, _FLAGS, _LONG, _INTS_OUT, _ROWS_OUT))
def arrange(ranks: Array, present: Array, cuts: int, below: Array, order: Array) -> None:
    """Counts rows below each cut and lists the rows by value. `below` has cuts + 2 entries: the first is 0, the last
    all rows. Rows that are not present (no entry: all are) get a rank beyond every interval."""
    some_absent = present.size > 0
    rows = ranks.size
    for g in range(cuts + 2):
        below[g] = 0
    for i in range(rows):
        if some_absent and not present[i]:
            ranks[i] = cuts + 2
        else:
            below[ranks[i] + 1] += 1
    for g in range(1, cuts + 2):
        below[g] += below[g - 1]
    # below[r] is now where rank r starts; filling moves it to where rank r + 1 does.
    for i in range(rows):
        rank = ranks[i]
        if rank <= cuts:
            order[below[rank]] = i
            below[rank] += 1
    for g in range(cuts + 1, 0, -1):
        below[g] = below[g - 1]
    below[0] = 0


@compiled(types.void(_INTS, _ROWS, types.uint64[:, ::1], _LONG))
def prefixes_by_cut(below: Array, order: Array, bitmaps: Array, words: int) -> None:
    """One bitmap per cut: the rows below it."""
    for w in range(words):
        bitmaps[0, w] = 0
    for g in range(1, below.size):
        for w in range(words):
            bitmaps[g, w] = bitmaps[g - 1, w]
        for i in range(below[g - 1], below[g]):
            row = order[i]
            bitmaps[g, row >> 6] |= np.uint64(1) << np.uint64(row & 63)


@compiled(types.void(_INTS, _ROWS, types.uint64[:, ::1], _LONG))
def prefixes_by_step(below: Array, order: Array, bitmaps: Array, words: int) -> None:
    """One bitmap per STEP rows in order of value."""
    for w in range(words):
        bitmaps[0, w] = 0
    steps = below[below.size - 1] // STEP
    for s in range(1, steps + 1):
        for w in range(words):
            bitmaps[s, w] = bitmaps[s - 1, w]
        for i in range((s - 1) * STEP, s * STEP):
            row = order[i]
            bitmaps[s, row >> 6] |= np.uint64(1) << np.uint64(row & 63)


_TERMS = _record(Terms, [_INTS, _INTS, _FLAGS, _INTS, _INTS, _INTS])
_TILE = _record(
    Tile,
    [
        _INTS_OUT, _INTS_OUT, _INTS_OUT, _INTS_OUT, types.uint16[:, ::1], types.int32[:, ::1], _INTS_OUT, _INTS_OUT,
        types.uint64[:, ::1], types.uint64[:, ::1], _INTS_OUT,
    ],
)  # fmt: skip


@compiled()
def _set(bitmap: Array, row: int) -> None:
    bitmap[row >> 6] |= np.uint64(1) << np.uint64(row & 63)


@compiled()
def _clear(bitmap: Array, row: int) -> None:
    bitmap[row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))


@compiled()
def _matched(terms: Terms, tile: Tile, t: int) -> int:
    """How many rows of the tile satisfy a term; nothing has to be looked at for that."""
    column = terms.source[t]
    if column < 0:
        return int(tile.predicate_count[-1 - column])
    matched = 0
    for i in range(terms.first_interval[t], terms.first_interval[t + 1]):
        matched += tile.below[terms.high[i]] - tile.below[terms.low[i]]
    if terms.or_null[t]:
        matched += tile.null_count[column]
    return matched


@compiled()
def _satisfies(terms: Terms, tile: Tile, t: int, row: int) -> bool:
    column = terms.source[t]
    if column < 0:
        word = tile.predicates[-1 - column, row >> 6]
        return bool((word >> np.uint64(row & 63)) & np.uint64(1))
    first = tile.first_cut[column]
    rank = tile.ranks[column, row] + first
    if rank >= tile.first_cut[column + 1]:  # NULL
        return bool(terms.or_null[t])
    for i in range(terms.first_interval[t], terms.first_interval[t + 1]):
        if terms.low[i] <= rank and rank < terms.high[i]:
            return True
    return False


@compiled()
def _verify(terms: Terms, tile: Tile, b: int, narrowest: int, lineage: Array, words: int) -> None:
    """The rows of a block, by trying each row that its narrowest term leaves."""
    column = terms.source[narrowest]
    for w in range(words):
        lineage[w] = 0
    for i in range(terms.first_interval[narrowest], terms.first_interval[narrowest + 1]):
        for at in range(tile.below[terms.low[i]], tile.below[terms.high[i]]):
            row = tile.order[column, at]
            wanted = True
            for t in range(terms.first_term[b], terms.first_term[b + 1]):
                if t != narrowest and not _satisfies(terms, tile, t, row):
                    wanted = False
                    break
            if wanted:
                _set(lineage, row)


@compiled()
def _rows_of_term(terms: Terms, tile: Tile, t: int, rows: Array, words: int) -> None:
    """The rows that satisfy a term of any form."""
    column = terms.source[t]
    for w in range(words):
        rows[w] = 0
    for i in range(terms.first_interval[t], terms.first_interval[t + 1]):
        low, high = terms.low[i], terms.high[i]
        if tile.below[high] - tile.below[low] <= STEP:
            for at in range(tile.below[low], tile.below[high]):
                _set(rows, tile.order[column, at])
            continue
        without, within = tile.base[low], tile.base[high]
        for w in range(words):
            rows[w] |= tile.bitmaps[within, w] & ~tile.bitmaps[without, w]
        for at in range(tile.fix[low], tile.below[low]):
            _clear(rows, tile.order[column, at])
        for at in range(tile.fix[high], tile.below[high]):
            _set(rows, tile.order[column, at])
    if terms.or_null[t] and tile.null_count[column] > 0:
        nulls = tile.null_bitmap[column]
        for w in range(words):
            rows[w] |= tile.bitmaps[nulls, w]


@compiled()
def _restrict(lineage: Array, started: bool, rows: Array, words: int) -> None:
    """Leave those of the rows; the first term begins with them."""
    if started:
        for w in range(words):
            lineage[w] &= rows[w]
    else:
        for w in range(words):
            lineage[w] = rows[w]


@compiled()
def _narrow(
    terms: Terms, tile: Tile, b: int, visited: Array, rows: int, lineage: Array, scratch: Array, words: int
) -> bool:
    """The rows of a block, as the AND of its terms' bitmaps; whether there was one. Only visited operators count:
    `visited` has one entry per column, and after them one per predicate."""
    started = False
    for t in range(terms.first_term[b], terms.first_term[b + 1]):
        column = terms.source[t]
        if not visited[column if column >= 0 else tile.null_count.size - 1 - column]:
            continue
        if column < 0:
            _restrict(lineage, started, tile.predicates[-1 - column], words)
            started = True
            continue
        i = terms.first_interval[t]
        if terms.first_interval[t + 1] - i == 1 and not (terms.or_null[t] and tile.null_count[column] > 0):
            low, high = terms.low[i], terms.high[i]
            if started and tile.below[high] - tile.below[low] == rows:
                continue
            if tile.fix[low] == tile.below[low] and tile.fix[high] == tile.below[high]:
                within, without = tile.bitmaps[tile.base[high]], tile.bitmaps[tile.base[low]]
                if started:
                    for w in range(words):
                        lineage[w] &= within[w] & ~without[w]
                else:
                    for w in range(words):
                        lineage[w] = within[w] & ~without[w]
                started = True
                continue
        _rows_of_term(terms, tile, t, scratch, words)
        _restrict(lineage, started, scratch, words)
        started = True
    return started


@compiled()
def _write_ids(lineage: Array, words: int, ids: Array, at: int) -> int:
    """Row ids from a bitmap. Most words have few: four are written without asking, and counted afterwards."""
    for w in range(words):
        word = lineage[w]
        here = w << 6
        following = at + _population(word)
        for _ in range(4):
            ids[at] = here + _lowest_bit(word)
            word &= word - np.uint64(1)
            at += 1
        while word:
            ids[at] = here + _lowest_bit(word)
            word &= word - np.uint64(1)
            at += 1
        at = following
    return int(at)


@compiled(types.void(_INTS, _TERMS, _TILE, _FLAGS, _LONG, types.uint64[::1]))
def wanted(blocks: Array, terms: Terms, tile: Tile, visited: Array, rows: int, bitmap: Array) -> None:
    """The rows that at least one of these blocks still wants, after some operators were visited."""
    words = (rows + 63) >> 6
    lineage = np.empty(WORDS, np.uint64)
    scratch = np.empty(WORDS, np.uint64)
    for w in range(words):
        bitmap[w] = 0
    for b in blocks:
        if not _narrow(terms, tile, b, visited, rows, lineage, scratch, words):
            for row in range(rows):
                _set(bitmap, row)
            return
        for w in range(words):
            bitmap[w] |= lineage[w]


@compiled(_LONG(_INTS, _TERMS, _TILE, _FLAGS, _LONG, types.uint16[::1], types.uint32[::1], types.uint64[::1]))
def probe(
    blocks: Array,
    terms: Terms,
    tile: Tile,
    visited: Array,
    rows: int,
    counts: Array,
    offsets: Array,
    payload: Array,
) -> int:
    """Which rows of a tile satisfy which block, when all operators were visited. `counts` says how many; unless those
    are none or all, their ids or their bits, the smaller, are put into the payload at `offsets`, in words. The length
    of the payload is returned."""
    words = (rows + 63) >> 6
    lineage = np.empty(WORDS, np.uint64)
    scratch = np.empty(WORDS, np.uint64)
    ids = payload.view(np.uint16)
    end = 0
    for b in blocks:
        least, narrowest, narrowing = rows + 1, -1, False
        for t in range(terms.first_term[b], terms.first_term[b + 1]):
            matched = _matched(terms, tile, t)
            if matched < least:
                least, narrowest = matched, t
            narrowing |= matched < rows
            if matched == 0:
                break
        offsets[b] = end
        if least == 0 or not narrowing:
            counts[b] = 0 if least == 0 else rows
            continue
        column = terms.source[narrowest]
        if least <= SPARSE and column >= 0 and not (terms.or_null[narrowest] and tile.null_count[column] > 0):
            _verify(terms, tile, b, narrowest, lineage, words)
        else:
            _narrow(terms, tile, b, visited, rows, lineage, scratch, words)
        matched = 0
        for w in range(words):
            matched += _population(lineage[w])
        counts[b] = matched
        if matched == 0 or matched == rows:  # noqa: PLR1714 -- compiled
            continue
        if matched << 4 <= rows:
            end = (_write_ids(lineage, words, ids, end << 2) + 3) >> 2
        else:
            for w in range(words):
                payload[end + w] = lineage[w]
            end += words
    return end
