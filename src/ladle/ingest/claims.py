"""Data files that somebody works on. What a backfill finds out of a file that compaction replaces meanwhile is lost."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class Claims:
    """The data files that somebody works on, so that a backfill and a compaction don't take the same ones."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._held: set[str] = set()

    @property
    def held(self) -> frozenset[str]:
        """The files that somebody works on now."""
        with self._lock:
            return frozenset(self._held)

    @contextmanager
    def claiming(self, files: Collection[str], seconds_max: float = 0.0) -> Iterator[bool]:
        """Work on files alone, after waiting for so long; False: somebody else works on one of them, and they are to be
        left for another time.
        """
        with self._lock:
            free = self._lock.wait_for(lambda: self._held.isdisjoint(files), seconds_max)
            if free:
                self._held.update(files)
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._held.difference_update(files)
                    self._lock.notify_all()
