"""What an epoch adds to an answer, for subscribers.

Nothing is kept for a subscriber: it says up to which epoch it knows, and the rows that came since are read like those
of any answer, from a snapshot, in its own thread. So a slow one slows nobody, and one that was away, or whose engine
was, goes on where it stopped. The tuples of an epoch are a range in the order of arrival, also after compaction; so the
answer *as of* an epoch is that over the tuples up to the end of its range. Where rows are picked from one stream, what
an epoch adds is read from its own range; of any other query it is what the answer as of the epoch has and the one
before has not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ladle.answer import Answer
from ladle.archive.segments import read_epochs
from ladle.catalog import Catalog, QueryState, StreamState, now_of_clocks
from ladle.clock import to_datetime
from ladle.engine.invoke import Invoker, resolved
from ladle.engine.layout import Extent
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.errors import Gone, unknown
from ladle.plan import Engine, Plan, RowsWindow, Scan, TimeWindow

_LOOK_SECONDS = 0.1
"""How often a process that only reads looks for commits of the one that writes."""
_TOLD_MAX = 64
_TOLD_BYTES_MAX = 8 << 20
"""Changes told at once: one that was away for long is told everything in few steps, and none of them is large."""


_Step = tuple[int, Answer | None]
"""An epoch, and what it adds to the answer."""


@dataclass(frozen=True)
class _Arrivals:
    """The tuples of one epoch: their range in the order of arrival, and the stream's clock before and after them."""

    epoch: int
    first: int
    last: int
    before_us: int | None
    clock_us: int


@dataclass(frozen=True)
class _Timeline:
    """A stream from one epoch on: how many tuples it had, what its clock was, and what came since."""

    stream: StreamState
    rows: int
    clock_us: int | None
    arrivals: list[_Arrivals]

    def as_of(self, epoch: int) -> tuple[int, int | None]:
        """How many tuples it had after an epoch, in the order of arrival, and its clock."""
        known = [each for each in self.arrivals if each.epoch <= epoch]
        return (known[-1].last, known[-1].clock_us) if known else (self.rows, self.clock_us)


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
        reader = Reader(self._store, catalog, self._store.clock.now_us())
        timelines: dict[str, _Timeline] = {}
        for name in plan.streams:
            stream = catalog.stream(name)
            assert stream is not None, "the stream of a bound plan"
            if since < stream.forgotten:
                raise Gone(
                    f"Epochs up to {stream.forgotten} have tuples of stream '{stream.name}' that are beyond its "
                    "retention.",
                    hint=f"subscribe with since={stream.forgotten}, and invoke the query for what there is",
                )
            timelines[name] = self._timeline(stream, reader, since)
        if plan.residual.engine is Engine.PROJECTION:
            return self._picked(plan, reader, timelines[plan.streams[0]])
        return self._differences(plan, reader, timelines)

    def _picked(self, plan: Plan, reader: Reader, timeline: _Timeline) -> Iterator[_Step]:
        """Of a query that picks rows of one stream: what came into its window."""
        (scan,) = plan.scans
        for arrivals in timeline.arrivals:
            extents = _new_extents(scan, arrivals)
            parts = [reader.read_arrivals(scan, extent, last_row) for extent, last_row in extents]
            rows = pa.concat_tables([part for part in parts if len(part)] or parts[:1]).combine_chunks()
            if not len(rows):
                yield arrivals.epoch, None
                continue
            table = self._run(plan, {scan.relation: rows}, arrivals.clock_us)
            window = resolved(scan, extents[-1][0])
            yield arrivals.epoch, Answer(table, arrivals.epoch, to_datetime(arrivals.clock_us), (window,))

    def _differences(self, plan: Plan, reader: Reader, timelines: Mapping[str, _Timeline]) -> Iterator[_Step]:
        """Of any query: what its answer has after an epoch and had not before it."""
        epochs = sorted({arrivals.epoch for timeline in timelines.values() for arrivals in timeline.arrivals})
        before: Answer | None = None
        for epoch in epochs:
            if before is None:
                before = self._as_of(plan, reader, timelines, epoch - 1)
            after = self._as_of(plan, reader, timelines, epoch)
            table = added(after.table, before.table)
            yield epoch, Answer(table, epoch, after.now, after.windows) if len(table) else None
            before = after

    def _as_of(self, plan: Plan, reader: Reader, timelines: Mapping[str, _Timeline], epoch: int) -> Answer:
        """The answer over the tuples that had arrived after an epoch."""
        states = {name: timeline.as_of(epoch) for name, timeline in timelines.items()}
        clocks = [(timelines[name].stream, clock_us) for name, (_, clock_us) in states.items()]
        # Tuples that are stamped on arrival: the last of them is as late as it was.
        arrived_us = max((clock_us for _, clock_us in clocks if clock_us is not None), default=None)
        latest_us = self._store.clock.now_us() if arrived_us is None else arrived_us
        found_us = now_of_clocks(clocks) if any(stream.event_time for stream, _ in clocks) else latest_us
        now_us = latest_us if found_us is None else found_us
        relations: dict[str, pa.Table] = {}
        windows = []
        for scan in plan.scans:
            rows, clock_us = states[scan.block.stream]
            extent = reader.extent_as_of(scan, found_us, rows, clock_us)
            relations[scan.relation] = reader.read_arrivals(scan, extent, rows)
            windows.append(resolved(scan, extent))
        relations |= {each.relation: reader.table(each) for each in plan.tables}
        return Answer(self._run(plan, relations, now_us), epoch, to_datetime(now_us), tuple(windows))

    def _run(self, plan: Plan, relations: Mapping[str, pa.Table], now_us: int) -> pa.Table:
        engine = self._invoker.engine(plan, sum(map(len, relations.values())))
        return self._invoker.compute(plan, relations, now_us, engine)

    def _timeline(self, stream: StreamState, reader: Reader, since: int) -> _Timeline:
        """The epochs after `since`, in order."""
        first_file = len(stream.files)
        while first_file and stream.files[first_file - 1].epoch_last > since:
            first_file -= 1
        segments = stream.segments
        before = segments.file < first_file
        row = int(segments.rows[before].sum())
        clock_us = int(segments.ts_max_us[before].max()) if before.any() else None
        begin = (row, clock_us)
        found: list[_Arrivals] = []
        directory = self._store.directory(stream)
        for number, file in enumerate(stream.files[first_file:], first_file):
            if file.epoch_first == file.epoch_last:
                spans = [(file.epoch_first, file.rows, file.ts_max_us)]
            else:
                merged = read_epochs(directory / file.name, file)
                parts = np.split(reader.times(stream, number), np.cumsum([rows for _, rows in merged])[:-1])
                spans = [(epoch, rows, int(of.max())) for (epoch, rows), of in zip(merged, parts, strict=True)]
            for epoch, rows, latest_us in spans:
                newest_us = latest_us if clock_us is None else max(clock_us, latest_us)
                if epoch > since:
                    if found and found[-1].epoch == epoch:
                        known = found.pop()
                        found.append(_Arrivals(epoch, known.first, row + rows, known.before_us, newest_us))
                    else:
                        found.append(_Arrivals(epoch, row, row + rows, clock_us, newest_us))
                else:
                    begin = (row + rows, newest_us)
                row += rows
                clock_us = newest_us
        return _Timeline(stream, *begin, found)

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


def _new_extents(scan: Scan, arrivals: _Arrivals) -> list[tuple[Extent, int]]:
    """What is in the window after the epoch and was not before it: of older tuples, and of the epoch's own."""
    window = scan.window
    if isinstance(window, RowsWindow):
        first = max(arrivals.first, arrivals.last - window.rows)
        return [(Extent(*TimeWindow().resolve(arrivals.clock_us), first), arrivals.last)]
    begin_us, end_us = window.resolve(arrivals.clock_us)
    own = (Extent(begin_us, end_us, arrivals.first), arrivals.last)
    if arrivals.before_us is None:
        return [own]
    _, ended_us = window.resolve(arrivals.before_us)
    older = (Extent(max(begin_us, ended_us), end_us), arrivals.first)
    return [older, own] if ended_us < end_us else [own]
