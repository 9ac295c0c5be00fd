"""What partial aggregates are kept: trees of blocks, and the columns and matches of segments at windows' edges.

All of it is derived and bounded: what was not used for longest goes first, and what belongs to a segment or block that
is gone goes at once. Whoever uses something holds on to it; eviction only forgets where it was.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container
from typing import Generic, TypeVar

from ladle.engine.layout import Layout, SegmentKey
from ladle.stem.aggregates import Number, RankedTree, Vector
from ladle.stem.groups import Groups
from ladle.stem.matches import Matches
from ladle.stem.order import Times

_SMALL_BYTES = 128
"""What a leaf of a tree, or anything else that has no arrays, takes."""

_NUMBER_BYTES = 40
"""What a number in a list takes."""

T = TypeVar("T", Number, Groups)


class Tree(Generic[T]):
    """A ranked tree that follows its stream: leaves are known by file and row group, and move with them."""

    def __init__(self, combine: Callable[[list[T]], T], layout: Layout) -> None:
        self._tree: RankedTree[T] = RankedTree(combine)
        self._lineage = layout.lineage
        self._keys = layout.keys
        self.nbytes = _SMALL_BYTES

    def align(self, layout: Layout) -> RankedTree[T]:
        tree = self._tree
        if self._lineage is not layout.lineage:
            self._move(layout)
        elif len(tree) < len(layout.keys):
            tree.extend(len(layout.keys) - len(tree))
            self._keys = layout.keys
        return tree

    def knows(self, layout: Layout, at: int) -> bool:
        return self.align(layout)[at] is not None

    def put(self, layout: Layout, at: int, value: T) -> None:
        tree = self.align(layout)
        if tree[at] is not None:  # a segment's fold is what it is
            return
        tree.put(at, value)
        self.nbytes += value.nbytes if isinstance(value, Groups) else _SMALL_BYTES

    def _move(self, layout: Layout) -> None:
        """Build it anew from the first difference on, with the leaves of segments that are still there."""
        tree, old, new = self._tree, self._keys[: len(self._tree)], layout.keys
        same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        moved = {old[at]: tree[at] for at in range(same, len(old))}
        tree.truncate(same)
        tree.extend(len(new) - same)
        for at in range(same, len(new)):
            value = moved.get(new[at])
            if value is not None:
                tree.put(at, value)
        self._lineage, self._keys = layout.lineage, new


class Columns:
    """The columns of one segment that edges need, shared by all blocks."""

    __slots__ = ("times", "vectors")

    def __init__(self, known: Columns | None = None) -> None:
        self.times: Times | None = None if known is None else known.times
        self.vectors: dict[str, Vector] = {} if known is None else dict(known.vectors)

    @property
    def nbytes(self) -> int:
        times = 0 if self.times is None else self.times.nbytes
        return _SMALL_BYTES + times + sum(vector.nbytes for vector in self.vectors.values())


Tiles = dict[str, list[Number]]
"""The folds of each tile of a segment, by the fold's name."""


class Leaf:
    """A block's matches in one segment, and their folds by tile."""

    __slots__ = ("matches", "tiles")

    def __init__(self, matches: Matches, tiles: Tiles) -> None:
        self.matches = matches
        self.tiles = tiles

    @property
    def nbytes(self) -> int:
        return _SMALL_BYTES + self.matches.nbytes + _NUMBER_BYTES * sum(map(len, self.tiles.values()))


Kind = Tree[Number] | Tree[Groups] | Columns | Leaf


class Kept:
    """Everything that is kept, in the order of its last use. Not thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[object, tuple[Kind, int]] = OrderedDict()
        self.bytes = 0

    def get(self, key: object) -> Kind | None:
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: object, entry: Kind) -> None:
        """Keep it, or what it has grown to."""
        self._pop(key)
        size = entry.nbytes
        self._entries[key] = (entry, size)
        self.bytes += size
        while self.bytes > self._bytes_max and self._entries:
            _, (_, size) = self._entries.popitem(last=False)
            self.bytes -= size

    def drop_segments(self, gone: Container[object]) -> None:
        """Let go of what belongs to segments that were replaced or have expired. A tree drops its leaves itself."""
        for key in [key for key in self._entries if _segment_of(key) in gone]:
            self._pop(key)

    def keep_blocks(self, living: Container[object]) -> None:
        """Let go of what belongs to other blocks."""
        for key, (entry, _) in list(self._entries.items()):
            if not isinstance(entry, Columns) and isinstance(key, tuple) and key[0] not in living:
                self._pop(key)

    def _pop(self, key: object) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self.bytes -= found[1]


def leaf_key(block_id: int, segment: SegmentKey) -> object:
    return (block_id, *segment)


def _segment_of(key: object) -> object:
    match key:
        case (str(), int()):
            return key
        case (int(), str(file), int(group)):
            return (file, group)
        case _:
            return None
