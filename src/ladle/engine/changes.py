"""What an epoch adds to an answer, for subscribers.

Nothing is kept for a subscriber: it says up to which epoch it knows, and the rows that came since are read like those
of any answer, from a snapshot, in its own thread. So a slow one slows nobody, and one that was away, or whose engine
was, goes on where it stopped. The tuples of an epoch are a range in the order of arrival, also after compaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ladle.answer import Answer
from ladle.archive.segments import read_epochs
from ladle.catalog import Catalog, QueryState, StreamState
from ladle.clock import to_datetime
from ladle.engine.invoke import resolved
from ladle.engine.layout import Extent
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.errors import Gone, Unsupported, unknown
from ladle.evaluate import run_residual
from ladle.plan import Engine, Plan, RowsWindow, Scan, TimeWindow

_LOOK_SECONDS = 0.1
"""How often a process that only reads looks for commits of the one that writes."""


@dataclass(frozen=True)
class _Arrivals:
    """The tuples of one epoch: their range in the order of arrival, and the stream's clock before and after them."""

    epoch: int
    first: int
    last: int
    before_us: int | None
    clock_us: int


class Changes:
    def __init__(self, store: Store) -> None:
        self._store = store

    def next(self, name: str, since: int | None, seconds_max: float) -> tuple[Answer | None, int]:
        """The rows that the first epoch after `since` adds to the query's answer, and up to which epoch that tells all.

        Without a change within the time there is no answer, and a later epoch to go on from. `since` None is now.
        """
        deadline = time.monotonic() + seconds_max
        while True:
            with self._store.pin() as catalog:
                seen = catalog.seq
                query = catalog.query(name)
                if query is None:
                    raise unknown("query", name, catalog.query_names())
                _check(query.plan)
                since = catalog.epoch if since is None else since
                for answer in self._since(query, catalog, since):
                    return answer, answer.epoch
                since = max(since, catalog.epoch)
            left = deadline - time.monotonic()
            if left <= 0:
                return None, since
            self._await_commit(seen, left)

    def _since(self, query: QueryState, catalog: Catalog, since: int) -> Iterator[Answer]:
        """The changes of each epoch that has any."""
        (scan,) = query.plan.scans
        stream = catalog.stream(scan.block.stream)
        assert stream is not None, "the stream of a bound plan"
        if since < stream.forgotten:
            raise Gone(
                f"Epochs up to {stream.forgotten} have tuples of stream '{stream.name}' that are beyond its retention.",
                hint=f"subscribe with since={stream.forgotten}, and invoke the query for what there is",
            )
        reader = Reader(self._store, catalog, self._store.clock.now_us())
        settings = self._store.settings
        for arrivals in self._arrivals(stream, reader, since):
            extents = _new_extents(scan, arrivals)
            parts = [reader.read_arrivals(scan, extent, last_row) for extent, last_row in extents]
            rows = pa.concat_tables([part for part in parts if len(part)] or parts[:1]).combine_chunks()
            if not len(rows):
                continue
            table = run_residual(
                query.plan,
                {scan.relation: rows},
                arrivals.clock_us,
                seconds_max=settings.invoke_seconds_max,
                memory_bytes_max=settings.residual_memory_bytes_max,
            )
            window = resolved(scan, extents[-1][0])
            yield Answer(table, arrivals.epoch, to_datetime(arrivals.clock_us), (window,))

    def _arrivals(self, stream: StreamState, reader: Reader, since: int) -> list[_Arrivals]:
        """The epochs after `since`, in order."""
        first_file = len(stream.files)
        while first_file and stream.files[first_file - 1].epoch_last > since:
            first_file -= 1
        segments = stream.segments
        before = segments.file < first_file
        row = int(segments.rows[before].sum())
        clock_us = int(segments.ts_max_us[before].max()) if before.any() else None
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
                row += rows
                clock_us = newest_us
        return found

    def _await_commit(self, seen: int, seconds_max: float) -> None:
        if not self._store.warehouse.writable:
            time.sleep(min(_LOOK_SECONDS, seconds_max))
            return
        with self._store.committed:
            self._store.committed.wait_for(lambda: self._store.catalog.seq != seen, seconds_max)


def _check(plan: Plan) -> None:
    if plan.residual.engine is not Engine.PROJECTION:
        raise Unsupported(
            "Only queries that select rows and columns of one stream can be subscribed to yet.",
            hint="invoke this one, or subscribe to one without expressions, aggregates and joins",
        )


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
