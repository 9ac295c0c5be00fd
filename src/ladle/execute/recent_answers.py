"""Recent answers of queries that somebody follows, by the moments they are of.

Who was told what changed up to a moment asks next what changed since: the answer at that moment is at hand then. It is
derived (`ladle.derived`): without it the answer is computed again.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from ladle.catalog import Catalog, QueryState
from ladle.delta import Moment
from ladle.derived import Derived, Shelf

_MOMENTS_MAX = 4
"""Moments of one query whose answers are kept: most followers are at the last one."""

_SWEEP_MIN = 64
"""When so many queries are known for the first time, those that stand no more are let go."""

_Key = tuple[int, Moment]
"""A query's id, and a moment."""


class RecentAnswers:
    """The answers of all queries that are followed."""

    def __init__(self, derived: Derived) -> None:
        self._kept: Shelf[_Key, pa.Table] = Shelf("recent", derived, rebuilt="computed again when asked")
        self._lock = threading.Lock()
        self._moments: dict[int, deque[Moment]] = {}
        self._names: dict[int, str] = {}
        """What those that are known are called."""
        self._sweep_at = _SWEEP_MIN

    def of(self, query: QueryState, catalog: Catalog) -> Recent:
        """The recent answers of one query. When there are twice as many as there were, others that do not stand in the
        catalog any more are let go.
        """
        with self._lock:
            self._names[query.id] = query.name
            if len(self._names) >= self._sweep_at:
                for known, name in list(self._names.items()):
                    standing = catalog.query(name)
                    if standing is None or standing.id != known:
                        self._forget(known)
                self._sweep_at = max(2 * len(self._names), _SWEEP_MIN)
        return Recent(self, query.id)

    def _forget(self, query: int) -> None:
        del self._names[query]
        for moment in self._moments.pop(query, ()):
            self._kept.pop((query, moment))

    def get(self, key: _Key) -> pa.Table | None:
        """The answer of a query at a moment, if it is kept."""
        return self._kept.get(key)

    def put(self, key: _Key, table: pa.Table, seconds: float) -> None:
        """Keep the answer of a query at a moment; the oldest of that query go."""
        query, moment = key
        with self._lock:
            if query not in self._names:  # it was dropped meanwhile
                return
            moments = self._moments.setdefault(query, deque())
            if moment not in moments:
                moments.append(moment)
            while len(moments) > _MOMENTS_MAX:
                self._kept.pop((query, moments.popleft()))
            self._kept.put(key, table, table.nbytes, seconds, settle=False)
        self._kept.settle()

    def move(self, key: _Key, moment: Moment) -> None:
        """Keep an answer under a later moment, at which it is the same."""
        held = self._kept.find(key)
        if held is not None and key[1] != moment:
            self.put((key[0], moment), held.value, held.seconds)


@dataclass(frozen=True)
class Recent:
    """The answers of one query."""

    _all: RecentAnswers
    _query: int

    def get(self, moment: Moment) -> pa.Table | None:
        """The answer at a moment, if it is kept."""
        return self._all.get((self._query, moment))

    def put(self, moment: Moment, table: pa.Table, seconds: float) -> None:
        """Keep an answer that it took so long to compute."""
        self._all.put((self._query, moment), table, seconds)

    def move(self, before: Moment, after: Moment) -> None:
        """The answer did not change from one moment to another."""
        self._all.move((self._query, before), after)
