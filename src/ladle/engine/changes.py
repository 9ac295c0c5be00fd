"""What an epoch adds to an answer, for subscribers: tuples of a stream, or the next version of a table.

Nothing is kept for a subscriber: it says up to which epoch it knows, and the rows that came since are read like those
of any answer, from a snapshot, in its own thread. So a slow one slows nobody, and one that was away, or whose engine
was, goes on where it stopped. The timeline (`catalog/timeline.py`) says how many tuples a stream had after each entry,
its clock, and at which version a table was; so the answer *as of* an entry is that over the tuples with ids below that
number, and over the rows of that version. Where rows are picked from one stream, what an epoch adds is read from its
own tuples; of any other query it is what the answer as of its entry has and the one before has not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from ladle.answer import Answer
from ladle.archive.versions import Versions
from ladle.catalog import Catalog, QueryState, StreamState, Timeline, now_of_clocks
from ladle.clock import to_datetime
from ladle.engine.invoke import Invoker, resolved
from ladle.engine.layout import EVERYTHING, Extent
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.engine.versions import versions_of
from ladle.errors import Gone, unknown
from ladle.plan import Engine, Plan, RowsWindow, Scan, TableScan

_LOOK_SECONDS = 0.1
"""How often a process that only reads looks for commits of the one that writes."""
_TOLD_MAX = 64
_TOLD_BYTES_MAX = 8 << 20
"""Changes told at once: one that was away for long is told everything in few steps, and none of them is large."""


_Step = tuple[int, Answer | None]
"""An epoch, and what it adds to the answer."""


@dataclass(frozen=True)
class _Arrivals:
    """What an entry did to a stream: the places of its tuples among those retained, and the clock before and after.

    A heartbeat, and becoming idle, is an epoch without tuples.
    """

    epoch: int
    first: int
    last: int
    before_us: int | None
    clock_us: int

    @property
    def moves(self) -> bool:
        """Whether there are tuples, or the clock advanced."""
        return self.first < self.last or self.before_us != self.clock_us


class _Past:
    """What a plan reads, as of any entry that positions are promised for."""

    def __init__(self, store: Store, plan: Plan, catalog: Catalog) -> None:
        self.reader = Reader(store, catalog, store.clock.now_us())
        self.streams = {name: stream for name in plan.streams if (stream := catalog.stream(name)) is not None}
        self._tables = {scan: table for scan in plan.tables if (table := catalog.table(scan.table)) is not None}
        self._store = store

    def refuse_forgotten(self, since: int) -> None:
        """Raises if what was told up to an epoch can't be known any more."""
        first = max((timeline.base.epoch for timeline in self._timelines), default=0)
        for stream in self.streams.values():
            if since < stream.forgotten:
                first = max(first, *(each.forgotten for each in self.streams.values()))
                raise _gone(f"have tuples of stream '{stream.name}' that are beyond its retention", first)
            if since < stream.timeline.base.epoch:
                raise _gone(f"of stream '{stream.name}' are beyond what positions are promised for", first)
            if since < stream.now_from and len(self.streams) > 1:
                first = max(first, *(each.now_from for each in self.streams.values()))
                raise _gone(f"have a NOW that is not known any more: '{stream.name}' was idle so often since", first)
        for table in self._tables.values():
            if since < table.timeline.base.epoch:
                raise _gone(f"need versions of table '{table.name}' that are no longer kept", first)

    def steps(self, since: int) -> Iterator[tuple[int, int]]:
        """The entries that changed something after an epoch, in order, and their epochs."""
        records = merge(*(timeline.after_epoch(since) for timeline in self._timelines), key=itemgetter(0))
        return (step for step, _ in groupby(records, key=itemgetter(0, 1)))

    def now_us(self, entry: int, epoch: int) -> tuple[int | None, int]:
        """NOW, which is None while it is undefined, and the latest time that is known, as of an entry."""
        clocks = [(stream, stream.timeline.at(entry).clock) for stream in self.streams.values()]
        changed = [table.timeline.at(entry).at_us for table in self._tables.values()]
        # Where tuples are stamped on arrival, NOW is that of the last one, or of a later change of a table.
        known = [*(clock.clock_us for _, clock in clocks if clock is not None), *(us for us in changed if us)]
        latest_us = max(known, default=self.reader.wall_us)
        timed = any(stream.event_time for stream, _ in clocks)
        return now_of_clocks(clocks, epoch) if timed else latest_us, latest_us

    def tables_at(self, entry: int) -> dict[str, pa.Table]:
        """The tables' rows by relation."""
        return {
            scan.relation: self._versions[scan].at(table.timeline.at(entry).total)
            for scan, table in self._tables.items()
        }

    @cached_property
    def _versions(self) -> Mapping[TableScan, Versions]:
        return {scan: versions_of(self._store, table, scan.columns) for scan, table in self._tables.items()}

    @property
    def _timelines(self) -> list[Timeline]:
        return [each.timeline for each in self.streams.values()] + [each.timeline for each in self._tables.values()]


def _gone(why: str, first: int) -> Gone:
    hint = f"subscribe with since={first}, and invoke the query for what there is"
    return Gone(f"Epochs up to {first} {why}.", hint=hint)


class Changes:
    def __init__(self, store: Store, invoker: Invoker) -> None:
        self._store = store
        self._invoker = invoker

    def after(
        self,
        name: str,
        since: int | None,
        seconds_max: float,
        *,
        bytes_max: int = _TOLD_BYTES_MAX,
        work_seconds_max: float | None = None,
        query_id: int | None = None,
    ) -> tuple[list[Answer], int]:
        """What the first epochs after `since` add to the query's answer, one Answer for each that adds rows, and up to
        which epoch that tells all.

        Without a change within the time there is none, and a later epoch to go on from. `since` None is now. It tells
        no more than so many bytes at once, or than it found in so many seconds of work. With `query_id` it is an error
        that another query has the name by now.
        """
        deadline = time.monotonic() + seconds_max
        while True:
            with self._store.pin() as catalog:
                seen = catalog.seq
                query = catalog.query(name)
                if query is None:
                    raise unknown("query", name, catalog.query_names())
                if query_id is not None and query.id != query_id:
                    raise Gone(f"Query '{query.name}' was replaced.", hint="subscribe to it again")
                since = catalog.epoch if since is None else since
                told: list[Answer] = []
                size = 0
                began = time.monotonic()
                for epoch, answer in self._since(query, catalog, since):
                    if answer is not None:
                        told.append(answer)
                        size += answer.table.nbytes
                    late = work_seconds_max is not None and time.monotonic() - began > work_seconds_max
                    if late or len(told) == _TOLD_MAX or size > bytes_max:
                        return told, epoch
                since = max(since, catalog.epoch)
            left = deadline - time.monotonic()
            if told or left <= 0:
                return told, since
            self._await_commit(seen, left)

    def _since(self, query: QueryState, catalog: Catalog, since: int) -> Iterator[_Step]:
        """Epoch by epoch: what it adds."""
        plan = query.plan
        past = _Past(self._store, plan, catalog)
        past.refuse_forgotten(since)
        if plan.residual.engine is Engine.PROJECTION:
            return self._picked(plan, past.reader, past.streams[plan.streams[0]], since)
        return self._differences(plan, past, since)

    def _picked(self, plan: Plan, reader: Reader, stream: StreamState, since: int) -> Iterator[_Step]:
        """Of a query that picks rows of one stream: what came into its window."""
        (scan,) = plan.scans
        before = stream.timeline.at_epoch(since)
        for record in stream.timeline.after_epoch(since):
            assert record.clock_us is not None, "the stream has tuples, or had a heartbeat"
            first, last = (reader.place(stream, each.total) for each in (before, record))
            arrivals = _Arrivals(record.epoch, first, last, before.clock_us, record.clock_us)
            before = record
            if not arrivals.moves:
                yield arrivals.epoch, None
                continue
            extents = _new_extents(scan, arrivals, stream.retain_us)
            parts = [reader.read_arrivals(scan, extent, last_row) for extent, last_row in extents]
            rows = pa.concat_tables([part for part in parts if len(part)] or parts[:1]).combine_chunks()
            if not len(rows):
                yield arrivals.epoch, None
                continue
            table = self._run(plan, {scan.relation: rows}, arrivals.clock_us)
            window = resolved(scan, extents[-1][0])
            yield arrivals.epoch, Answer(table, arrivals.epoch, to_datetime(arrivals.clock_us), (window,))

    def _differences(self, plan: Plan, past: _Past, since: int) -> Iterator[_Step]:
        """Of any query: what its answer has after an entry and had not before it."""
        before: Answer | None = None
        for entry, epoch in past.steps(since):
            if before is None:
                before = self._as_of(plan, past, entry - 1, epoch - 1)
            after = self._as_of(plan, past, entry, epoch)
            table = added(after.table, before.table)
            yield epoch, Answer(table, epoch, after.now, after.windows) if len(table) else None
            before = after

    def _as_of(self, plan: Plan, past: _Past, entry: int, epoch: int) -> Answer:
        """The answer over the tuples that had arrived after an entry, and the tables as they stood."""
        records = {name: stream.timeline.at(entry) for name, stream in past.streams.items()}
        found_us, latest_us = past.now_us(entry, epoch)
        now_us = latest_us if found_us is None else found_us
        relations: dict[str, pa.Table] = {}
        windows = []
        for scan in plan.scans:
            record = records[scan.block.stream]
            last_row = past.reader.place(past.streams[scan.block.stream], record.total)
            extent = past.reader.extent_as_of(scan, found_us, last_row, record.clock_us)
            relations[scan.relation] = past.reader.read_arrivals(scan, extent, last_row)
            windows.append(resolved(scan, extent))
        relations |= past.tables_at(entry)
        return Answer(self._run(plan, relations, now_us), epoch, to_datetime(now_us), tuple(windows))

    def _run(self, plan: Plan, relations: Mapping[str, pa.Table], now_us: int) -> pa.Table:
        engine = self._invoker.engine(plan, sum(map(len, relations.values())))
        return self._invoker.compute(plan, relations, now_us, engine)

    def _await_commit(self, seen: int, seconds_max: float) -> None:
        if not self._store.warehouse.writable:
            time.sleep(min(_LOOK_SECONDS, seconds_max))
            return
        with self._store.committed:
            self._store.committed.wait_for(lambda: self._store.catalog.seq != seen, seconds_max)


def added(after: pa.Table, before: pa.Table) -> pa.Table:
    """The rows of one table that another has not, as bags, in their order."""
    if not len(before) or not len(after):
        return after
    left = Counter(_rows(before))
    kept = []
    for number, row in enumerate(_rows(after)):
        if left[row]:
            left[row] -= 1
        else:
            kept.append(number)
    return after.take(pa.array(kept, pa.int64()))


def _rows(table: pa.Table) -> Iterator[str]:
    """Each row as text: equal where the rows are, NaN and nested values included."""
    return map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True))


def _new_extents(scan: Scan, arrivals: _Arrivals, retain_us: int | None) -> list[tuple[Extent, int]]:
    """What is in the window after the epoch and was not before it: of older tuples, and of the epoch's own."""
    window = scan.window
    if isinstance(window, RowsWindow):
        first = max(arrivals.first, arrivals.last - window.rows)
        return [(EVERYTHING._replace(first_row=first), arrivals.last)]
    begin_us, end_us = window.resolve(arrivals.clock_us)
    begin_us = begin_us if retain_us is None else max(begin_us, arrivals.clock_us - retain_us)
    own = (Extent(begin_us, end_us, arrivals.first), arrivals.last)
    if arrivals.before_us is None:
        return [own]
    _, ended_us = window.resolve(arrivals.before_us)
    older = (Extent(max(begin_us, ended_us), end_us), arrivals.first)
    return [older, own] if ended_us < end_us else [own]
