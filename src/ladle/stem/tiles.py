"""The unit in which tuples meet blocks: a *tile*, up to 8,192 consecutive tuples of a segment.

Few enough that the bitmaps of its columns stay in the processor's cache while thousands of blocks pass over them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ladle.columns import AnyArray

Array: TypeAlias = AnyArray

TILE = 8_192
WORDS = TILE // 64
"""Words of 64 bits in a bitmap of a tile."""

STEP = 16
"""A column with too many cuts for a bitmap each has one per this many rows in order of value."""

SPARSE = 48
"""A block one of whose terms leaves this many rows or fewer is verified row by row."""


class Terms(NamedTuple):
    """The factors of a page's blocks. Term t is on column `source[t]`, or is predicate `-1 - source[t]`."""

    first_term: Array
    """Of each block, and one more."""
    source: Array
    or_null: Array
    """Of each term: whether NULL satisfies it."""
    first_interval: Array
    """Of each term, and one more."""
    low: Array
    """Of each interval: the cut it begins at."""
    high: Array


class Tile(NamedTuple):
    """A tile, arranged: the rows below cut g are bitmap `base[g]` and the last `fix[g]` of `order[:below[g]]`."""

    first_cut: Array
    """Of each column, and one more."""
    below: Array
    fix: Array
    base: Array
    order: Array
    """Of each column: the rows by value."""
    ranks: Array
    """Of each column and row."""
    null_bitmap: Array
    """Of each column: the number of the bitmap of its NULLs."""
    null_count: Array
    first_predicate: int
    """The number of the first predicate's bitmap, which has the rows that it holds for."""
    predicate_count: Array
    bitmaps: Array


class Scratch(NamedTuple):
    """What finding one block's rows takes."""

    operands: Array
    """Numbers of bitmaps."""
    flips: Array
    """Of each operand: ones, if it is inverted."""
    lineage: Array
    """The bitmap of a block's rows."""
    rows: Array
    """That of a term's."""
    found: Array
    """Row ids."""


def words_of(rows: int) -> int:
    """How many words of 64 bits a bitmap of so many rows takes."""
    return (rows + 63) >> 6
