"""Figures of this process for those who watch it: how long epochs and invocations take, and what state they keep.

Noting one costs a microsecond: a lock, a bisection and an addition. What adds up over a directory or a catalog is added
up when somebody asks.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nlargest

EPOCH_BOUNDS_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
QUERY_BOUNDS_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SHOWN_MAX = 100
"""Queries that have figures of their own. The others share theirs: watching costs the same however many stand."""

_CHOOSE_SECONDS = 10.0
"""How often the busiest queries are chosen anew."""
_FADE = 0.5
"""What an invocation counts for, each time that they are chosen."""


@dataclass
class Durations:
    """How many took how long: a histogram. Not thread-safe."""

    bounds_seconds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    """Those of each bucket alone; the last is for what took longer than all bounds."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds_seconds) + 1)

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(self.bounds_seconds, seconds)] += 1
        self.seconds += seconds

    def merge(self, other: Durations) -> None:
        """Count all durations of another."""
        self.counts = [own + others for own, others in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds

    def copy(self) -> Durations:
        """The same durations, which nobody else changes."""
        return Durations(self.bounds_seconds, list(self.counts), self.seconds)


@dataclass
class EpochFigures:
    """The epochs of one stream in this process."""

    durations: Durations = field(default_factory=lambda: Durations(EPOCH_BOUNDS_SECONDS))
    """From the beginning of an epoch's job to its commit."""
    bytes: int = 0
    """Of the data files that they wrote."""

    def add(self, seconds: float, written_bytes: int) -> None:
        """Count an epoch."""
        self.durations.add(seconds)
        self.bytes += written_bytes


class Invocations:
    """Invocations of standing queries. The busiest have figures of their own.

    Of one that is no more among them the others take over what it had: so their figure only grows, and all figures
    together count every invocation.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._shown: dict[str, Durations] = {}
        self._others = Durations(QUERY_BOUNDS_SECONDS)
        self._recent: Counter[str] = Counter()
        self._busy: dict[str, float] = {}
        self._chosen = time.monotonic()
        self.total = 0

    def note(self, name: str, seconds: float) -> None:
        """Count an invocation of a query."""
        with self._lock:
            self.total += 1
            self._counts[name] += 1
            self._recent[name] += 1
            durations = self._shown.get(name)
            if durations is None:
                if len(self._shown) < SHOWN_MAX:
                    durations = self._shown[name] = Durations(QUERY_BOUNDS_SECONDS)
                else:
                    durations = self._others
            durations.add(seconds)

    def count(self, name: str) -> int:
        """How often a query was invoked."""
        return self._counts[name]

    def busiest(self) -> tuple[dict[str, Durations], Durations]:
        """Those of the busiest queries by name, and those of all others together."""
        with self._lock:
            if time.monotonic() - self._chosen >= _CHOOSE_SECONDS:
                self.choose()
            return {name: each.copy() for name, each in self._shown.items()}, self._others.copy()

    def choose(self) -> None:
        """Give figures of their own to the queries that were asked most lately."""
        self._chosen = time.monotonic()
        busy = {name: self._busy.get(name, 0.0) * _FADE + self._recent[name] for name in {*self._busy, *self._recent}}
        self._recent.clear()
        # One that is shown stays, unless another was asked more.
        first = nlargest(SHOWN_MAX, busy, key=lambda name: (busy[name], name in self._shown))
        self._busy = {name: score for name, score in busy.items() if score > _FADE**10}
        before, self._shown = self._shown, {}
        for name in first:
            self._shown[name] = before.pop(name) if name in before else Durations(QUERY_BOUNDS_SECONDS)
        for durations in before.values():
            self._others.merge(durations)


@dataclass(frozen=True)
class Figures:
    """What `/metrics` tells beside the pulse."""

    lag_seconds: Mapping[str, float]
    """By event-time stream that has a clock: how far it is behind the wall clock."""
    epochs: Mapping[str, EpochFigures]
    """By stream."""
    busiest: Mapping[str, Durations]
    """Invocations of the busiest queries, by name."""
    others: Durations
    """Those of all other queries together."""
    read_bytes: Mapping[str, int]
    """Of history and tables: from `files` and from `memory` for answers, and from files for `compaction`, `backfill`,
    `joins` and `spark`.
    """
    segments_skipped: int
    """Those that answers did not read because their least and greatest values ruled them out."""
    spark_running: bool
    spark_restarts: Mapping[str, int]
    """By what its JVM runs: epochs, or residuals."""
