"""What partial aggregates are kept: trees of blocks, and the columns and matches of segments at windows' edges.

All of it is derived, and held to the budget of memory with everything else (`ladle.derived`); what belongs to a segment
or block that is gone goes at once. Whoever uses something holds on to it; eviction only forgets where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from ladle.archive.layout import Layout, SegmentKey
from ladle.derived import Derived, Shelf
from ladle.operators.aggregates import Number, RankedTree, Vector
from ladle.operators.groups import Dictionary, Groups, RowKeys
from ladle.operators.window_edges import Times
from ladle.plan.aggregate import Panes
from ladle.stem.matches import Matches

_SMALL_BYTES = 128
"""What a leaf of a tree, or anything else that has no arrays, takes."""

_NUMBER_BYTES = 40
"""What a number in a list takes."""

T = TypeVar("T", Number, Groups)


TreeNode: TypeAlias = Any
"""A node of a tree: a number, or groups. Any: trees of both are kept in one place, and their keys say which it is."""


class Tree(Generic[T]):
    """A ranked tree that follows its stream: leaves are known by file and row group, and move with them."""

    def __init__(self, combine: Callable[[list[T]], T], layout: Layout, dictionary: Dictionary | None = None) -> None:
        self._tree: RankedTree[T] = RankedTree(combine)
        self._lineage = layout.lineage
        self._keys = layout.keys
        self._leaves_bytes = _SMALL_BYTES
        self.dictionary = dictionary
        """That numbers the keys of groups; other trees may use it too."""

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return self._leaves_bytes + (0 if self.dictionary is None else self.dictionary.nbytes)

    def align(self, layout: Layout) -> RankedTree[T]:
        """The ranked tree over the segments of a layout. What is known of segments that moved moves too."""
        tree = self._tree
        if self._lineage is not layout.lineage:
            self._move(layout)
        elif len(tree) < len(layout.keys):
            tree.extend(len(layout.keys) - len(tree))
            self._keys = layout.keys
        return tree

    def knows(self, layout: Layout, at: int) -> bool:
        """Whether the partial aggregate of a segment is known."""
        return self.align(layout)[at] is not None

    def put(self, layout: Layout, at: int, value: T) -> None:
        """Keep the partial aggregate of a segment."""
        tree = self.align(layout)
        if tree[at] is not None:  # a segment's fold is what it is
            return
        tree.put(at, value)
        self._leaves_bytes += value.nbytes if isinstance(value, Groups) else _SMALL_BYTES

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


KeyColumns = tuple[tuple[str, ...], Panes | None]
"""What rows are grouped by: columns, and panes of time."""


class Columns:
    """The columns of one segment that edges need, shared by all blocks."""

    __slots__ = ("keys", "times", "vectors")

    def __init__(self, known: Columns | None = None) -> None:
        self.keys: dict[KeyColumns, RowKeys] = {} if known is None else dict(known.keys)
        """The numbers of rows' groups, by what they are grouped by."""
        self.times: Times | None = None if known is None else known.times
        self.vectors: dict[str, Vector] = {} if known is None else dict(known.vectors)

    @property
    def nbytes(self) -> int:
        """How many bytes they take."""
        times = 0 if self.times is None else self.times.nbytes
        keys = sum(each.nbytes for each in self.keys.values())
        return _SMALL_BYTES + times + keys + sum(vector.nbytes for vector in self.vectors.values())


Strips = dict[str, Sequence[Number]]
"""The folds of each strip of a segment, by the fold's name."""


class Leaf:
    """A block's matches in one segment, and their folds by strip."""

    __slots__ = ("matches", "strips")

    def __init__(self, matches: Matches, strips: Strips) -> None:
        self.matches = matches
        self.strips = strips

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return _SMALL_BYTES + self.matches.nbytes + _NUMBER_BYTES * sum(map(len, self.strips.values()))


Kind = Tree[Number] | Tree[Groups] | Columns | Leaf


class KeptPartials:
    """Everything that is kept: each tree, and the columns and matches of each segment at an edge, is a thing."""

    def __init__(self, derived: Derived) -> None:
        self._shelf: Shelf[tuple[object, ...], Kind] = Shelf("aggregates", derived, rebuilt="folded again when asked")
        self.get = self._shelf.get
        self.settle = self._shelf.settle

    @property
    def bytes(self) -> int:
        """How many bytes all of it takes."""
        return self._shelf.bytes

    def peek(self, key: tuple[object, ...]) -> Kind | None:
        """What is kept under a key, without using it."""
        found = self._shelf.find(key)
        return None if found is None else found.value

    def put(self, key: tuple[object, ...], entry: Kind, seconds: float = 0.0) -> None:
        """Keep it, or what it has grown to in so many seconds. Who puts things settles when it holds no lock."""
        self._shelf.grow(key, entry, entry.nbytes, seconds, settle=False)

    def drop_segments(self, gone: Container[object]) -> None:
        """Let go of what belongs to segments that were replaced or have expired. A tree drops its leaves itself."""
        for key, _ in self._shelf.items():
            if _segment_of(key) in gone:
                self._shelf.pop(key)

    def keep_blocks(self, living: Container[object]) -> None:
        """Let go of what belongs to other blocks."""
        for key, entry in self._shelf.items():
            if not isinstance(entry, Columns) and key[0] not in living:
                self._shelf.pop(key)

    def drop(self, key: tuple[object, ...]) -> None:
        """Forget what is kept under a key."""
        self._shelf.pop(key)


def leaf_key(block_id: int, segment: SegmentKey) -> tuple[object, ...]:
    """The key under which the partial aggregate of a block over one segment is kept."""
    return (block_id, *segment)


def _segment_of(key: tuple[object, ...]) -> object:
    match key:
        case (str(), int()):
            return key
        case (int(), str(file), int(group)):
            return (file, group)
        case _:
            return None
