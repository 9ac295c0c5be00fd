"""Blocks that could not be evaluated, and when they are tried again (decision 23).

A factor that raises leaves the files where it did uncovered; one that does not come back is left out of epochs, which
somebody waits for. The backfill tries both again, one file at a time, after pauses that grow; as soon as it gets on,
the trouble is over. A function that is replaced makes other blocks, which have no trouble.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass, field

from ladle.clock import Clock
from ladle.pipeline import Failures
from ladle.stem.blocks import NO_BLOCKS, BlockSet

_log = logging.getLogger(__name__)

_PAUSE_US = 1_000_000
_PAUSE_US_MAX = 600_000_000


@dataclass
class Pause:
    """Between tries of something that failed: twice as long after each."""

    tries: int = 0
    noted_us: int = 0
    due_us: int = 0

    def rests(self, now_us: int) -> bool:
        """Whether it is not to be tried now; a clock that was set back makes no pause longer."""
        return self.noted_us <= now_us < self.due_us

    def note(self, now_us: int) -> None:
        """It failed. What fails several times in one try counts once."""
        if not self.rests(now_us):
            self.noted_us, self.due_us = now_us, now_us + min(_PAUSE_US << min(self.tries, 16), _PAUSE_US_MAX)
            self.tries += 1


@dataclass
class BlockTrouble(Pause):
    """Why one block could not be evaluated, and when it is tried again."""

    reason: str = ""
    slow: bool = False
    """Whether it did not come back in time: then it is left out of epochs."""
    files: set[str] = field(default_factory=set)
    """Data files on which it raised."""


class Troubles:
    """The blocks that could not be evaluated, why, and when each is tried again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._blocks: dict[int, BlockTrouble] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    @property
    def slow(self) -> BlockSet:
        """Blocks that are left out of epochs."""
        with self._lock:
            found = [block for block, trouble in self._blocks.items() if trouble.slow]
        return BlockSet.of(found) if found else NO_BLOCKS

    def reason(self, block: int) -> str | None:
        """Why a block could not be evaluated; None if it could."""
        trouble = self._blocks.get(block)
        return None if trouble is None else trouble.reason

    def note(self, failures: Failures, files: Collection[str]) -> None:
        """Blocks that failed on some of these data files."""
        now_us = self._clock.now_us()
        for block, (reason, slow) in failures.items():
            with self._lock:
                trouble = self._blocks.setdefault(block, BlockTrouble())
                trouble.reason, trouble.slow = reason, slow
                if not slow:
                    trouble.files.update(files)
                trouble.note(now_us)
            _log.warning("block %d can't be evaluated: %s", block, reason)

    def over(self, block: int, file: str) -> None:
        """A block got on with a data file: if it had its trouble there, that is over, and others are looked at."""
        with self._lock:
            trouble = self._blocks.get(block)
            if trouble is not None and (trouble.slow or file in trouble.files):
                del self._blocks[block]

    def resting(self, file: str, blocks: BlockSet, tried: set[int]) -> BlockSet:
        """Which of the blocks are not to be tried on a file now. `tried` are those that are on another one already."""
        now_us = self._clock.now_us()
        found = []
        with self._lock:
            for block, trouble in self._blocks.items():
                if block in blocks and (trouble.slow or file in trouble.files):
                    if trouble.rests(now_us) or block in tried:
                        found.append(block)
                    else:
                        tried.add(block)
        return BlockSet.of(found) if found else NO_BLOCKS

    def tries(self, blocks: BlockSet) -> int:
        """How often the most troublesome of some blocks was tried."""
        with self._lock:
            return max((trouble.tries for block, trouble in self._blocks.items() if block in blocks), default=0)

    def forget(self, blocks: Collection[int], files: Collection[str]) -> None:
        """Let go of all but these blocks and data files."""
        with self._lock:
            for block, trouble in list(self._blocks.items()):
                trouble.files.intersection_update(files)
                if block not in blocks or not (trouble.slow or trouble.files):
                    del self._blocks[block]
