"""Sets of block ids as sorted arrays: a hundred thousand of them are compared, joined and taken apart in no time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

BlockIds = npt.NDArray[np.int64]


_B = TypeVar("_B", int, BlockIds)


def candidates(block: _B) -> _B:
    """What stands for a block in results where its functions were postponed: tuples that its other factors leave."""
    return ~block


class BlockSet:
    """Immutable. Equal sets have equal digests, so one may stand for the other in a dictionary."""

    def __init__(self, ids: BlockIds) -> None:
        """From ids that are sorted and distinct; `of` takes any."""
        self.ids = ids

    @staticmethod
    def of(ids: Iterable[int]) -> BlockSet:
        """The set of these blocks."""
        return BlockSet(np.unique(np.fromiter(ids, dtype=np.int64)))

    @staticmethod
    def union(sets: Sequence[BlockSet]) -> BlockSet:
        """The blocks that are in any of the sets."""
        distinct = list({id(each): each for each in sets if each}.values())
        if len(distinct) < 2:
            return distinct[0] if distinct else NO_BLOCKS
        return BlockSet(np.unique(np.concatenate([each.ids for each in distinct])))

    @cached_property
    def digest(self) -> bytes:
        """The identity of the set."""
        return hashlib.blake2b(self.ids.astype("<i8").tobytes(), digest_size=16).digest()

    def __contains__(self, block: int) -> bool:
        at = int(np.searchsorted(self.ids, block))
        return at < len(self.ids) and int(self.ids[at]) == block

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __sub__(self, other: BlockSet) -> BlockSet:
        if not len(other) or not len(self):
            return self
        lacking = ~self._among(other)
        return self if lacking.all() else BlockSet(self.ids[lacking])

    def __and__(self, other: BlockSet) -> BlockSet:
        if self is other:
            return self
        shared = self._among(other)
        return self if shared.all() else BlockSet(self.ids[shared])

    @cached_property
    def postponed(self) -> BlockSet:
        """The blocks of which these have candidates."""
        own = self.ids[self.ids < 0]
        return BlockSet(np.sort(~own)) if len(own) else NO_BLOCKS

    def isdisjoint(self, other: BlockSet) -> bool:
        """Whether the two have no block in common."""
        return not self._among(other).any()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BlockSet):
            return self is other or np.array_equal(self.ids, other.ids)
        if isinstance(other, set | frozenset):
            return set(self.ids.tolist()) == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"BlockSet({self.ids.tolist()})"

    def _among(self, other: BlockSet) -> npt.NDArray[np.bool_]:
        """Which of these are in the other too."""
        if not len(other):
            return np.zeros(len(self), dtype=np.bool_)
        at = np.searchsorted(other.ids, self.ids)
        found: npt.NDArray[np.bool_] = other.ids[np.minimum(at, len(other) - 1)] == self.ids
        return found


NO_BLOCKS = BlockSet(np.zeros(0, dtype=np.int64))
