"""Mode `auto`: what is demanded for a query follows how it is asked (PSoup sections 3.4 and 7).

Demands (`ladle.derived.demand`) are raised and lowered here. A query begins with results per segment. One that nobody
has asked for a while is swapped out: nothing more is computed for it until somebody does, and that answer is right as
every uncovered one is. One that is asked several times between changes of its data has its current answer kept, while
that is small. What is chosen here is derived, like everything that is only about speed: it is not in the log, and a new
process starts to learn anew. What is demanded is asked of `Demands` (`execute/demands.py`), which also knows the
queries with fixed modes.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from ladle.catalog import Catalog, QueryState
from ladle.catalog.store import Store
from ladle.clock import to_datetime
from ladle.derived import Demand, Level
from ladle.sql.statement_types import Materialize
from ladle.stem.blocks import NO_BLOCKS, BlockSet

_HALF_LIFE_US = 60_000_000
"""After this time an invocation counts half."""
_COMPLETE_ABOVE = 4.0
"""Asked so many times per change of its data, a query has its answer kept current; below the next it no longer has."""
_COMPLETE_BELOW = 1.0
_FORGOTTEN = 0.01
_SHARE_OF_MEMORY = 64
"""An answer may have this part of the memory for derived state at most."""


@dataclass
class _Fading:
    """A count in which the past fades."""

    value: float
    at_us: int

    def add(self, amount: float, now_us: int) -> None:
        self.value = self.now(now_us) + amount
        self.at_us = now_us

    def now(self, now_us: int) -> float:
        return self.value * 0.5 ** (max(now_us - self.at_us, 0) / _HALF_LIFE_US)


@dataclass
class _Usage:
    query: QueryState
    touched_us: int
    """When it was registered, first seen here, or last asked."""
    asked: _Fading
    demand: Demand
    answer_rows: int = -1
    answer_bytes: int = 0

    @staticmethod
    def new(query: QueryState, now_us: int) -> _Usage:
        return _Usage(query, now_us, _Fading(0.0, now_us), Demand(query.id, Level.RESULTS))


class Auto:
    """Decides how much is kept of queries in mode `auto`, by how often each is asked and what its answers cost."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._awake: OrderedDict[int, _Usage] = OrderedDict()
        """By query id; those touched longest ago come first."""
        self._idle: dict[int, _Usage] = {}
        self._active: set[int] = set()
        """Those that were asked lately."""
        self._epochs: dict[str, tuple[int, _Fading]] = {}
        self._idle_blocks = NO_BLOCKS
        self._queries: object = None
        """The standing queries of the catalog that was last looked at."""

    @property
    def idle_blocks(self) -> BlockSet:
        """Blocks for which nothing is computed, because only queries that are swapped out have them."""
        return self._idle_blocks

    def level(self, query: QueryState) -> Level:
        """How much is demanded for a query in mode auto."""
        account = self._account(query)
        return Level.RESULTS if account is None else account.demand.level

    def why(self, query: QueryState) -> str:
        """The reason for what was chosen."""
        now_us = self._store.clock.now_us()
        account = self._account(query)
        if account is None:
            return "it is new"
        if account.demand.level is Level.NOTHING:
            return f"nobody asked for it since {to_datetime(account.touched_us):%Y-%m-%d %H:%M:%S} UTC"
        with self._lock:
            asked, changes = account.asked.now(now_us), self._changes(query, now_us)
        if asked < _FORGOTTEN:
            return "it was not asked lately"
        if asked < _COMPLETE_BELOW and changes < _COMPLETE_BELOW:
            return "it was asked once or so lately"
        return f"it is asked {asked / max(changes, 0.5):.1f} times per change of its data"

    def with_answers(self) -> list[QueryState]:
        """The queries whose answers are demanded."""
        with self._lock:
            accounts = [self._awake[query] for query in self._active if query in self._awake]
            return [account.query for account in accounts if account.demand.level is Level.ANSWER]

    def asked(self, query: QueryState, answer: pa.Table) -> bool:
        """Note an invocation. A query that was swapped out is swapped in again, and then there is work to do."""
        if query.materialize is not Materialize.AUTO:
            return False
        now_us = self._store.clock.now_us()
        with self._lock:
            woken = self._idle.pop(query.id, None)
            account = woken or self._awake.get(query.id) or _Usage.new(query, now_us)
            if woken is not None:
                account.demand.level = Level.RESULTS
            account.touched_us = now_us
            if account.answer_rows != answer.num_rows:  # Arrow takes its time to say how large a table is
                account.answer_rows, account.answer_bytes = answer.num_rows, answer.nbytes
            account.asked.add(1.0, now_us)
            self._awake[query.id] = account
            self._awake.move_to_end(query.id)
            self._active.add(query.id)
        if woken is not None:
            self._exclude(self._store.catalog)
        return woken is not None

    def look(self) -> bool:
        """Choose anew, on a beat; whether a demand changed."""
        catalog = self._store.catalog
        now_us = self._store.clock.now_us()
        with self._lock:
            self._take_in(catalog, now_us)
            self._count_changes(catalog, now_us)
            deadline_us = now_us - int(self._store.settings.auto_idle_seconds * 1e6)
            late: list[int] = []
            for query, account in self._awake.items():
                if account.touched_us >= deadline_us:
                    break
                late.append(query)
            self._swap_out(late)
            changed = bool(late) | self._choose(now_us)
        if late:
            self._exclude(catalog)
        return changed

    def lower(self, share: float) -> int:
        """Swap out a share of the queries, those asked longest ago first; how many that were."""
        with self._lock:
            count = min(int(len(self._awake) * share) + 1, len(self._awake))
            victims = [query for query, _ in zip(self._awake, range(count), strict=False)]
            self._swap_out(victims)
        self._exclude(self._store.catalog)
        return len(victims)

    def _account(self, query: QueryState) -> _Usage | None:
        with self._lock:
            return self._awake.get(query.id) or self._idle.get(query.id)

    def _take_in(self, catalog: Catalog, now_us: int) -> None:
        """Make accounts for queries that are new, and forget those that are gone."""
        if catalog.queries is self._queries:
            return
        self._queries = catalog.queries
        standing = {q.id: q for q in catalog.queries.by_name.values() if q.materialize is Materialize.AUTO}
        for accounts in (self._awake, self._idle):
            for gone in [query_id for query_id in accounts if query_id not in standing]:
                del accounts[gone]
                self._active.discard(gone)
        for query_id, query in standing.items():
            if query_id not in self._awake and query_id not in self._idle:
                self._awake[query_id] = _Usage.new(query, now_us)

    def _count_changes(self, catalog: Catalog, now_us: int) -> None:
        """Note what streams took in, and how often tables changed, since the last beat."""
        counts = {name: stream.epochs for name, stream in catalog.streams.items()}
        counts |= {name: table.version for name, table in catalog.tables.items()}
        for name, count in counts.items():
            seen, changes = self._epochs.get(name, (count, _Fading(0.0, now_us)))
            if count != seen:
                changes.add(max(count - seen, 0), now_us)
            self._epochs[name] = (count, changes)

    def _changes(self, query: QueryState, now_us: int) -> float:
        names = {stream.partition(".")[0] for stream in query.meaning.streams} | set(query.meaning.tables)
        return sum(self._epochs[name][1].now(now_us) for name in names if name in self._epochs)

    def _swap_out(self, queries: Iterable[int]) -> None:
        for query in queries:
            account = self._idle[query] = self._awake.pop(query)
            account.demand.level = Level.NOTHING
            self._active.discard(query)

    def _choose(self, now_us: int) -> bool:
        """Between partial and complete, for queries that were asked lately."""
        changed = False
        room = self._store.settings.derived_memory_bytes_max // _SHARE_OF_MEMORY
        for query in list(self._active):
            account = self._awake[query]
            asked = account.asked.now(now_us)
            per_change = asked / max(self._changes(account.query, now_us), 0.5)
            before = account.demand.level
            if account.answer_bytes > room or per_change < _COMPLETE_BELOW:
                account.demand.level = Level.RESULTS
            elif per_change >= _COMPLETE_ABOVE:
                account.demand.level = Level.ANSWER
            if asked < _FORGOTTEN:
                self._active.discard(query)
            changed |= account.demand.level is not before
        return changed

    def _exclude(self, catalog: Catalog) -> None:
        """Find the blocks that no query wants that is not swapped out."""
        with self._lock:
            idle = [account.query for account in self._idle.values()]
        users = Counter(block for query in idle if query.broken is None for block in set(query.blocks))
        kept = catalog.queries.users
        self._idle_blocks = BlockSet.of(block for block, count in users.items() if count >= kept.get(block, 0))
