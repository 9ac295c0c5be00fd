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
from ladle.archive.segments import DataFile, read_epochs
from ladle.catalog import Catalog, ClockAt, Mark, QueryState, StreamState, now_of_clocks
from ladle.clock import to_datetime
from ladle.engine.invoke import Invoker, resolved
from ladle.engine.layout import EVERYTHING, Extent
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.errors import Gone, unknown
from ladle.plan import Engine, Plan, RowsWindow, Scan

_LOOK_SECONDS = 0.1
"""How often a process that only reads looks for commits of the one that writes."""
_TOLD_MAX = 64
_TOLD_BYTES_MAX = 8 << 20
"""Changes told at once: one that was away for long is told everything in few steps, and none of them is large."""


_Step = tuple[int, Answer | None]
"""An epoch, and what it adds to the answer."""


@dataclass(frozen=True)
class _Arrivals:
    """What one epoch did to a stream: the range of its tuples in the order of arrival, and the clock before and after.

    A heartbeat, and becoming idle, is an epoch without tuples.
    """

    epoch: int
    first: int
    last: int
    before_us: int | None
    after: ClockAt

    @property
    def clock_us(self) -> int:
        return self.after.clock_us

    @property
    def moves(self) -> bool:
        """Whether there are tuples, or the clock advanced."""
        return self.first < self.last or self.before_us != self.clock_us


@dataclass(frozen=True)
class _Timeline:
    """A stream from one epoch on: how many tuples it had, what its clock was, and what came since."""

    stream: StreamState
    rows: int
    clock: ClockAt | None
    arrivals: list[_Arrivals]

    def as_of(self, epoch: int) -> tuple[int, ClockAt | None]:
        """How many tuples it had after an epoch, in the order of arrival, and its clock."""
        known = [each for each in self.arrivals if each.epoch <= epoch]
        return (known[-1].last, known[-1].after) if known else (self.rows, self.clock)


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
            _refuse_gone(stream, since, several=len(plan.streams) > 1)
            timelines[name] = self._timeline(stream, reader, since)
        if plan.residual.engine is Engine.PROJECTION:
            return self._picked(plan, reader, timelines[plan.streams[0]])
        return self._differences(plan, reader, timelines)

    def _picked(self, plan: Plan, reader: Reader, timeline: _Timeline) -> Iterator[_Step]:
        """Of a query that picks rows of one stream: what came into its window."""
        (scan,) = plan.scans
        for arrivals in timeline.arrivals:
            if not arrivals.moves:
                yield arrivals.epoch, None
                continue
            extents = _new_extents(scan, arrivals, timeline.stream.retain_us)
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
        clocks = [(timelines[name].stream, clock) for name, (_, clock) in states.items()]
        # Tuples that are stamped on arrival: the last of them is as late as it was.
        arrived_us = max((clock.clock_us for _, clock in clocks if clock is not None), default=None)
        latest_us = self._store.clock.now_us() if arrived_us is None else arrived_us
        found_us = now_of_clocks(clocks, epoch) if any(stream.event_time for stream, _ in clocks) else latest_us
        now_us = latest_us if found_us is None else found_us
        relations: dict[str, pa.Table] = {}
        windows = []
        for scan in plan.scans:
            rows, clock = states[scan.block.stream]
            extent = reader.extent_as_of(scan, found_us, rows, None if clock is None else clock.clock_us)
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
        row = rows_before = int(segments.rows[before].sum())
        # What retention let go of came before `since`, or that would be refused.
        times = [stream.lost_us, int(segments.ts_max_us[before].max()) if before.any() else None]
        # By epoch: the range of its tuples, and the latest of their times.
        found: dict[int, tuple[int, int, int]] = {}
        for number, file in enumerate(stream.files[first_file:], first_file):
            for epoch, rows, latest_us in self._spans(stream, reader, number, file):
                if epoch > since:
                    first, _, known_us = found.get(epoch, (row, row, latest_us))
                    found[epoch] = (first, row + rows, max(known_us, latest_us))
                else:
                    rows_before = row + rows
                    times.append(latest_us)
                row += rows
        mark = stream.marks.as_of(since)
        begin = _clock_after(None, max((us for us in times if us is not None), default=None), mark)
        return _Timeline(stream, rows_before, begin, _woven(found, stream, since, rows_before, begin))

    def _spans(self, stream: StreamState, reader: Reader, number: int, file: DataFile) -> list[tuple[int, int, int]]:
        """The epochs of a file, in order: how many tuples they have, and the latest of their times."""
        if file.epoch_first == file.epoch_last:
            return [(file.epoch_first, file.rows, file.ts_max_us)]
        merged = read_epochs(self._store.directory(stream) / file.name, file)
        parts = np.split(reader.times(stream, number), np.cumsum([rows for _, rows in merged])[:-1])
        return [(epoch, rows, int(of.max())) for (epoch, rows), of in zip(merged, parts, strict=True)]

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


def _refuse_gone(stream: StreamState, since: int, *, several: bool) -> None:
    """Raise Gone when what a stream's epochs after `since` add, to an answer over it or over several, is not known."""
    if since < stream.forgotten:
        raise Gone(
            f"Epochs up to {stream.forgotten} have tuples of stream '{stream.name}' that are beyond its retention.",
            hint=f"subscribe with since={stream.forgotten}, and invoke the query for what there is",
        )
    known_from = max(stream.clocks_from, stream.now_from if several else 0)
    if since < known_from:
        raise Gone(
            f"The clock of stream '{stream.name}' as of epoch {since} is not known any more: it had too many "
            "heartbeats since, or was idle too often.",
            hint=f"subscribe with since={known_from}, and invoke the query for what there is",
        )


def _clock_after(before: ClockAt | None, latest_us: int | None, mark: Mark | None) -> ClockAt | None:
    """A stream's clock after tuples up to a time came, or a mark was made, or both."""
    times = [None if before is None else before.clock_us, latest_us, None if mark is None else mark.clock_us]
    known = [us for us in times if us is not None]
    if not known:
        return None
    was_idle = 0 if before is None else before.idle_since
    return ClockAt(max(known), was_idle if mark is None else mark.epoch if mark.idle else 0)


def _woven(
    found: Mapping[int, tuple[int, int, int]], stream: StreamState, since: int, row: int, clock: ClockAt | None
) -> list[_Arrivals]:
    """The epochs of a stream that brought tuples, and those that made a mark, in order."""
    marks = {mark.epoch: mark for mark in stream.marks.after(since)}
    arrivals = []
    for epoch in sorted({*found, *marks}):
        first, last, latest_us = found.get(epoch, (row, row, None))
        after = _clock_after(clock, latest_us, marks.get(epoch))
        assert after is not None, "an epoch has tuples or a mark"
        arrivals.append(_Arrivals(epoch, first, last, None if clock is None else clock.clock_us, after))
        row, clock = last, after
    return arrivals


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
