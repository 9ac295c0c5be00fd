"""The compiled loops of the probe, over tiles that are arranged (`stem/arranging.py`).

A block is a list of bitmaps, some of them inverted, whose AND is its lineage; up to four are read at a time, so that
what they have in common stays in registers. Importing this takes half a second, so whoever may do without it imports it
on first need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ladle.stem.arranging import FLAGS, INTS, INTS_OUT, LONG, LONGS, ROWS_OUT, WORDS_OUT, clear, compiled, set_
from ladle.stem.tiles import SPARSE, STEP, TILE, Array, Scratch, Terms, Tile

Intrinsic: TypeAlias = tuple[types.Type, Callable[..., ir.Value]]
"""What Numba wants of one of ours: its signature, and what writes its instructions."""


@intrinsic  # type: ignore[untyped-decorator]
def _population(typing_context: object, word: types.Type) -> Intrinsic:
    def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]) -> ir.Value:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _lowest_bit(typing_context: object, word: types.Type) -> Intrinsic:
    def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]) -> ir.Value:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


def _record(of: type, fields: list[types.Type]) -> types.NamedTuple:
    return types.NamedTuple(fields, of)


_TERMS = _record(Terms, [INTS, INTS, FLAGS, INTS, INTS, INTS])
_TILE = _record(
    Tile,
    [
        INTS_OUT, INTS_OUT, INTS_OUT, INTS_OUT, types.uint16[:, ::1], types.int32[:, ::1], INTS_OUT, INTS_OUT,
        LONG, INTS_OUT, types.uint64[:, ::1],
    ],
)  # fmt: skip
_SCRATCH = _record(Scratch, [types.int64[::1], WORDS_OUT, WORDS_OUT, WORDS_OUT, ROWS_OUT])


@compiled()
def _is_plain(terms: Terms, tile: Tile, t: int, column: int) -> bool:
    """Whether a term on a column is one interval, and nothing else in this tile."""
    if terms.first_interval[t + 1] - terms.first_interval[t] != 1:
        return False
    return not (terms.or_null[t] and tile.null_count[column] > 0)


@compiled()
def _list_operands(
    terms: Terms, tile: Tile, visited: Array, b: int, rows: int, scratch: Scratch
) -> tuple[int, int, int, bool, bool]:
    """Which bitmaps a block is the AND of; an inverted one has a flip of ones. Also how many rows the narrowest of its
    terms leaves (rows + 1: there is no term), which one that is, whether rows must be cleared afterwards, and whether
    terms are left that are not one interval. Nothing of the tile's rows is looked at for all that. Only visited
    operators count: `visited` has one entry per column, and after them one per predicate."""
    operands, flips = scratch.operands, scratch.flips
    least, narrowest, ragged, others = rows + 1, -1, False, False
    n = 0
    for t in range(terms.first_term[b], terms.first_term[b + 1]):
        column = terms.source[t]
        if column < 0:
            if not visited[tile.null_count.size - 1 - column]:
                continue
            matched = tile.predicate_count[-1 - column]
            if matched < rows:
                operands[n], flips[n] = tile.first_predicate - 1 - column, 0
                n += 1
        elif not visited[column]:
            continue
        elif _is_plain(terms, tile, t, column):
            i = terms.first_interval[t]
            low, high = terms.low[i], terms.high[i]
            start, stop = tile.below[low], tile.below[high]
            matched = stop - start
            if start > 0:
                operands[n], flips[n] = tile.base[low], ~np.uint64(0)
                n += 1
                ragged |= tile.fix[low] > 0
            if stop < rows:
                operands[n], flips[n] = tile.base[high] + (tile.fix[high] > 0), 0
                n += 1
                ragged |= tile.fix[high] > 0
        else:
            matched = tile.null_count[column] if terms.or_null[t] else 0
            for i in range(terms.first_interval[t], terms.first_interval[t + 1]):
                matched += tile.below[terms.high[i]] - tile.below[terms.low[i]]
            others |= matched < rows
        if matched < least:
            least, narrowest = matched, t
            if matched == 0:
                break
    return n, least, narrowest, ragged, others


@compiled()
def _begin(bitmaps: Array, operands: Array, flips: Array, n: int, lineage: Array, words: int) -> int:
    """The AND of the first bitmaps, up to four; how many that were."""
    if n == 0:
        lineage[:words] = ~np.uint64(0)
        return 0
    a, f = bitmaps[operands[0]], flips[0]
    if n == 1:
        for w in range(words):
            lineage[w] = a[w] ^ f
        return 1
    b, g = bitmaps[operands[1]], flips[1]
    if n == 2:
        for w in range(words):
            lineage[w] = (a[w] ^ f) & (b[w] ^ g)
        return 2
    c, h = bitmaps[operands[2]], flips[2]
    if n == 3:
        for w in range(words):
            lineage[w] = (a[w] ^ f) & (b[w] ^ g) & (c[w] ^ h)
        return 3
    d, i = bitmaps[operands[3]], flips[3]
    for w in range(words):
        lineage[w] = (a[w] ^ f) & (b[w] ^ g) & (c[w] ^ h) & (d[w] ^ i)
    return 4


@compiled()
def _go_on(bitmaps: Array, operands: Array, flips: Array, at: int, n: int, lineage: Array, words: int) -> None:
    """The AND with the other bitmaps."""
    while n - at >= 4:
        a, b, f, g = bitmaps[operands[at]], bitmaps[operands[at + 1]], flips[at], flips[at + 1]
        c, d, h, i = bitmaps[operands[at + 2]], bitmaps[operands[at + 3]], flips[at + 2], flips[at + 3]
        for w in range(words):
            lineage[w] &= (a[w] ^ f) & (b[w] ^ g) & (c[w] ^ h) & (d[w] ^ i)
        at += 4
    if n - at >= 2:
        a, b = bitmaps[operands[at]], bitmaps[operands[at + 1]]
        f, g = flips[at], flips[at + 1]
        for w in range(words):
            lineage[w] &= (a[w] ^ f) & (b[w] ^ g)
        at += 2
    if n > at:
        a, f = bitmaps[operands[at]], flips[at]
        for w in range(words):
            lineage[w] &= a[w] ^ f


@compiled()
def _trim(terms: Terms, tile: Tile, visited: Array, b: int, lineage: Array) -> None:
    """Clear what bitmaps by step have too much: an upper end takes the next larger one, a lower end the smaller."""
    for t in range(terms.first_term[b], terms.first_term[b + 1]):
        column = terms.source[t]
        if column < 0 or not visited[column] or not _is_plain(terms, tile, t, column):
            continue
        i = terms.first_interval[t]
        low, high = terms.low[i], terms.high[i]
        for at in range(tile.below[low] - tile.fix[low], tile.below[low]):
            clear(lineage, tile.order[column, at])
        if tile.fix[high] > 0:
            total = tile.below[tile.first_cut[column + 1] - 1]
            for at in range(tile.below[high], min(tile.below[high] - tile.fix[high] + STEP, total)):
                clear(lineage, tile.order[column, at])


@compiled()
def _rows_of_term(terms: Terms, tile: Tile, t: int, rows: Array, words: int) -> None:
    """The rows that satisfy a term of several intervals, or of NULL too. Rows are added only: what one interval has too
    much may be another's."""
    column = terms.source[t]
    rows[:words] = 0
    for i in range(terms.first_interval[t], terms.first_interval[t + 1]):
        low, high = terms.low[i], terms.high[i]
        start, stop = tile.below[low], tile.below[high]
        inner, outer = start, stop - tile.fix[high]
        if tile.fix[low] > 0:
            inner += STEP - tile.fix[low]
        if inner < outer:
            within, without = tile.bitmaps[tile.base[high]], tile.bitmaps[tile.base[low] + (tile.fix[low] > 0)]
            for w in range(words):
                rows[w] |= within[w] & ~without[w]
        else:
            inner = outer = stop
        for at in range(start, inner):
            set_(rows, tile.order[column, at])
        for at in range(outer, stop):
            set_(rows, tile.order[column, at])
    if terms.or_null[t] and tile.null_count[column] > 0:
        nulls = tile.bitmaps[tile.null_bitmap[column]]
        for w in range(words):
            rows[w] |= nulls[w]


@compiled()
def _restrict(terms: Terms, tile: Tile, visited: Array, b: int, lineage: Array, scratch: Array, words: int) -> None:
    """The AND with those terms that are not one interval."""
    for t in range(terms.first_term[b], terms.first_term[b + 1]):
        column = terms.source[t]
        if column >= 0 and visited[column] and not _is_plain(terms, tile, t, column):
            _rows_of_term(terms, tile, t, scratch, words)
            for w in range(words):
                lineage[w] &= scratch[w]


@compiled()
def _narrow(
    terms: Terms,
    tile: Tile,
    visited: Array,
    b: int,
    n: int,
    ragged: bool,
    others: bool,
    rows: int,
    scratch: Scratch,
) -> None:
    """The lineage of a block, whose first n operands are listed."""
    words = (rows + 63) >> 6
    lineage = scratch.lineage
    at = _begin(tile.bitmaps, scratch.operands, scratch.flips, n, lineage, words)
    if at < n:
        _go_on(tile.bitmaps, scratch.operands, scratch.flips, at, n, lineage, words)
    if rows & 63:
        lineage[words - 1] &= (np.uint64(1) << np.uint64(rows & 63)) - np.uint64(1)
    if ragged:
        _trim(terms, tile, visited, b, lineage)
    if others:
        _restrict(terms, tile, visited, b, lineage, scratch.rows, words)


@compiled()
def _satisfies(terms: Terms, tile: Tile, t: int, row: int) -> bool:
    column = terms.source[t]
    if column < 0:
        word = tile.bitmaps[tile.first_predicate - 1 - column, row >> 6]
        return bool((word >> np.uint64(row & 63)) & np.uint64(1))
    rank = tile.ranks[column, row] + tile.first_cut[column]
    if rank >= tile.first_cut[column + 1]:  # NULL
        return bool(terms.or_null[t])
    for i in range(terms.first_interval[t], terms.first_interval[t + 1]):
        if terms.low[i] <= rank and rank < terms.high[i]:
            return True
    return False


@compiled()
def _verify(terms: Terms, tile: Tile, b: int, narrowest: int, found: Array) -> int:
    """The rows of a block in order, by trying each of the few that its narrowest term leaves; how many they are."""
    column = terms.source[narrowest]
    n = 0
    for i in range(terms.first_interval[narrowest], terms.first_interval[narrowest + 1]):
        for at in range(tile.below[terms.low[i]], tile.below[terms.high[i]]):
            row = tile.order[column, at]
            wanted = True
            for t in range(terms.first_term[b], terms.first_term[b + 1]):
                if t != narrowest and not _satisfies(terms, tile, t, row):
                    wanted = False
                    break
            if wanted:
                place = n
                while place > 0 and found[place - 1] > row:
                    found[place] = found[place - 1]
                    place -= 1
                found[place] = row
                n += 1
    return n


def _writing_ids(at_once: int) -> Callable[[Array, int, Array, int], int]:
    """Row ids from a bitmap, of which few words have more than so many: those are written without asking, and counted
    afterwards. What a word has can't be foreseen, and asking costs more than writing."""

    @compiled()
    def write(lineage: Array, words: int, ids: Array, at: int) -> int:
        place = np.uint64(at)
        for w in range(words):
            word, here = lineage[w], np.uint64(w << 6)
            following = place + _population(word)
            for _ in range(at_once):
                ids[place] = here + _lowest_bit(word)
                word &= word - np.uint64(1)
                place += np.uint64(1)
            while word:
                ids[place] = here + _lowest_bit(word)
                word &= word - np.uint64(1)
                place += np.uint64(1)
            place = following
        return int(place)

    return write


_write_few = _writing_ids(1)
_write_one_a_word = _writing_ids(2)
_write_two_a_word = _writing_ids(4)
_write_four_a_word = _writing_ids(6)


@compiled()
def _write_ids(lineage: Array, words: int, matched: int, ids: Array, at: int) -> int:
    if matched <= words >> 2:
        return int(_write_few(lineage, words, ids, at))
    if matched <= words:
        return int(_write_one_a_word(lineage, words, ids, at))
    if matched <= words << 1:
        return int(_write_two_a_word(lineage, words, ids, at))
    return int(_write_four_a_word(lineage, words, ids, at))


@compiled(types.void(INTS, _TERMS, _TILE, FLAGS, LONG, _SCRATCH, WORDS_OUT))
def wanted(blocks: Array, terms: Terms, tile: Tile, visited: Array, rows: int, scratch: Scratch, bitmap: Array) -> None:
    """The rows that at least one of these blocks still wants, after some operators were visited."""
    words = (rows + 63) >> 6
    bitmap[:words] = 0
    for b in blocks:
        n, least, _, ragged, others = _list_operands(terms, tile, visited, b, rows, scratch)
        if least == 0:
            continue
        _narrow(terms, tile, visited, b, n, ragged, others, rows, scratch)
        for w in range(words):
            bitmap[w] |= scratch.lineage[w]


@compiled(
    types.UniTuple(LONG, 2)(
        INTS, LONG, _TERMS, _TILE, FLAGS, LONG, _SCRATCH, ROWS_OUT, types.uint32[::1], LONG, WORDS_OUT
    )
)
def probe(
    blocks: Array,
    first: int,
    terms: Terms,
    tile: Tile,
    visited: Array,
    rows: int,
    scratch: Scratch,
    counts: Array,
    offsets: Array,
    begin: int,
    payload: Array,
) -> tuple[int, int]:
    """Which rows of a tile satisfy which block, when all operators were visited: from number `first` of the blocks on,
    until the payload is full. `counts` says how many; unless those are none or all, their ids or their bits, the
    smaller, are put into the payload; `offsets` says where, in words, when the payload begins at `begin`. Returned are
    the number of the next block and the length of the payload."""
    words = (rows + 63) >> 6
    lineage = scratch.lineage
    ids = payload.view(np.uint16)
    end = 0
    for number in range(first, blocks.size):
        if end + words + 4 > payload.size:
            return number, end
        b = blocks[number]
        offsets[b] = begin + end
        n, least, narrowest, ragged, others = _list_operands(terms, tile, visited, b, rows, scratch)
        if least == 0 or (n == 0 and not others):
            counts[b] = 0 if least == 0 else rows
            continue
        column = terms.source[narrowest]
        if least <= SPARSE and column >= 0 and not (terms.or_null[narrowest] and tile.null_count[column] > 0):
            matched = _verify(terms, tile, b, narrowest, scratch.found)
            counts[b] = matched
            if matched << 4 <= rows:
                for i in range(matched):
                    ids[(end << 2) + i] = scratch.found[i]
                end += (matched + 3) >> 2
                continue
            lineage[:words] = 0
            for i in range(matched):
                set_(lineage, scratch.found[i])
        else:
            _narrow(terms, tile, visited, b, n, ragged, others, rows, scratch)
            matched = 0
            for w in range(words):
                matched += _population(lineage[w])
            counts[b] = matched
        if matched == 0 or matched == rows:  # noqa: PLR1714 -- compiled
            continue
        if matched << 4 > rows:
            for w in range(words):
                payload[end + w] = lineage[w]
            end += words
        else:
            end = (_write_ids(lineage, words, matched, ids, end << 2) + 3) >> 2
    return blocks.size, end


@compiled()
def _put_bits(words: Array, offset: int, first: int, last: int, shift: int, lineage: Array) -> None:
    """Set the bits from `first` to before `last` of a bitmap in another, `shift` places further up."""
    at = first
    while at < last:
        taken = min(64 - (at & 63), 64 - ((at + shift) & 63), last - at)
        word = words[offset + (at >> 6)] >> np.uint64(at & 63)
        if taken < 64:
            word &= (np.uint64(1) << np.uint64(taken)) - np.uint64(1)
        lineage[(at + shift) >> 6] |= word << np.uint64((at + shift) & 63)
        at += taken


@compiled()
def _put_all(first: int, last: int, lineage: Array) -> None:
    """Set a range of bits."""
    at = first
    while at < last:
        taken = min(64 - (at & 63), last - at)
        word = ~np.uint64(0) if taken == 64 else (np.uint64(1) << np.uint64(taken)) - np.uint64(1)
        lineage[at >> 6] |= word << np.uint64(at & 63)
        at += taken


@compiled(
    types.UniTuple(LONG, 2)(
        LONG, types.Array(types.uint64, 1, "C", readonly=True), LONGS, types.uint16[:, ::1], types.int64[:, ::1],
        LONGS, LONGS, WORDS_OUT, types.uint16[:, ::1], types.uint32[:, ::1], LONG, WORDS_OUT,
    )
)  # fmt: skip
def move(
    first: int,
    words: Array,
    bounds: Array,
    counts: Array,
    offsets: Array,
    starts: Array,
    stops: Array,
    lineage: Array,
    new_counts: Array,
    new_offsets: Array,
    begin: int,
    payload: Array,
) -> tuple[int, int]:
    """Lay out the rows of blocks, known by some tiles, by others over the same tuples: from block `first` on, until
    the payload is full. Tile i of the old ones has the tuples from `bounds[i]` to before `bounds[i + 1]`, tile t of the
    new ones those from `starts[t]` to before `stops[t]`. What is returned, and how rows are written, is as in `probe`.
    """
    source, ids = words.view(np.uint16), payload.view(np.uint16)
    end = 0
    for b in range(first, counts.shape[0]):
        if end + starts.size * (TILE // 64 + 4) > payload.size:
            return b, end
        i = 0
        for t in range(starts.size):
            rows = stops[t] - starts[t]
            span = (rows + 63) >> 6
            lineage[:span] = 0
            while bounds[i + 1] <= starts[t]:
                i += 1
            matched, j = 0, i
            while j < bounds.size - 1 and bounds[j] < stops[t]:
                low, high = max(bounds[j], starts[t]), min(bounds[j + 1], stops[t])
                size, count, offset = bounds[j + 1] - bounds[j], int(counts[b, j]), offsets[b, j]
                if count == size:
                    _put_all(low - starts[t], high - starts[t], lineage)
                elif count << 4 > size:
                    _put_bits(words, offset, low - bounds[j], high - bounds[j], bounds[j] - starts[t], lineage)
                else:
                    for at in range(offset << 2, (offset << 2) + count):
                        row = bounds[j] + int(source[at])
                        if low <= row and row < high:
                            set_(lineage, row - starts[t])
                j += 1
            for w in range(span):
                matched += _population(lineage[w])
            new_counts[b, t], new_offsets[b, t] = matched, begin + end
            if matched == 0 or matched == rows:  # noqa: PLR1714 -- compiled
                continue
            if matched << 4 > rows:
                for w in range(span):
                    payload[end + w] = lineage[w]
                end += span
            else:
                end = (_write_ids(lineage, span, matched, ids, end << 2) + 3) >> 2
    return counts.shape[0], end
