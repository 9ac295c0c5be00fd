"""Following a query: what changes in its answer, delta by delta, for whoever says up to which position it knows.

Nothing is kept for a subscriber: what came since its position is read like any answer, from a snapshot, in its own
thread. So a slow one slows nobody, and one that was away, or whose engine was, goes on where it stopped. A position
that was asked for lately keeps the tuples that its answer had, also when a clock jumps beyond their retention.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from ladle.catalog import Catalog, QueryState, StreamState
from ladle.catalog.store import Store
from ladle.delta import ChangeOptions, Delta, Expirations, Moment, ToStream
from ladle.errors import EvaluationError, Gone, TypeMismatch, unknown
from ladle.execute.executor import Changed, Executor
from ladle.execute.held_positions import HeldPositions
from ladle.execute.invoke import Invoker
from ladle.execute.moments import Moments, MomentStep
from ladle.execute.recent_answers import RecentAnswers
from ladle.plan import Plan

_LOOK_SECONDS = 0.1
"""How often a process that only reads looks for commits of the one that writes."""
_DELTAS_MAX = 64
_BYTES_MAX = 8 << 20
"""Deltas told at once: one that was away for long is told everything in few calls, and none of them is large."""
_EPOCH_DIGITS_MAX = 18


@dataclass(frozen=True)
class DeltaLimits:
    """How much is told at once: deltas of so many bytes, or that were found in so many seconds of work."""

    bytes_max: int = _BYTES_MAX
    work_seconds_max: float | None = None


class Following:
    """Tells what changes in answers, from any position that is still kept."""

    def __init__(self, store: Store, invoker: Invoker) -> None:
        self._store = store
        self._invoker = invoker
        self._recent = RecentAnswers(store.derived)
        self._held = HeldPositions(store.settings.positions_seconds_max, store.warehouse.positions)

    def after(
        self,
        name: str,
        since: int | str | None,
        seconds_max: float,
        *,
        snapshot: bool = False,
        options: ChangeOptions | None = None,
        limits: DeltaLimits | None = None,
        query_id: int | None = None,
        upto: str | None = None,
    ) -> list[Delta]:
        """What changes after a position, or an epoch; None is now. The last delta says where to go on, with rows or
        without.

        Without a change within the time there is one without rows. With `snapshot` the first delta is the answer as it
        is now. With `query_id` it is an error that another query has the name by now. With `upto`, a position that was
        told, nothing is told beyond it, and nothing waited for: so those who share what is told meet at one position.
        """
        if snapshot and since is not None:
            raise TypeMismatch("A snapshot is the answer as it is now.", hint="leave out since= or snapshot=True")
        options, limits = options or ChangeOptions(), limits or DeltaLimits()
        deadline = time.monotonic() + (seconds_max if upto is None else 0.0)
        moment: Moment | None = None
        last: Moment | None = None
        while True:
            with self._store.pin() as catalog:
                query = _standing(catalog, name, query_id)
                moments = Moments(self._store, query.plan, catalog)
                query_id = query.id
                if moment is None:
                    last = None if upto is None else _moment(moments, query, upto)
                    moment = _moment(moments, query, since) if since is not None or last is None else last
                self._hold(moments, moment.entry, moment.now_us)
                found = self._told(query, moments, moment, last, options, limits, snapshot=snapshot)
                self._hold(moments, found[-1].entry, found[-1].now_us)
            left = deadline - time.monotonic()
            if not found[0].progress or left <= 0:
                return found
            moment = Moment.parse(found[-1].position)
            self._await(catalog.seq, min(left, self._store.settings.tick_seconds) if moments.ticks else left)

    def ticks(self, name: str) -> bool:
        """Whether a query's answer changes while time passes, without an entry."""
        with self._store.pin() as catalog:
            return Moments(self._store, _standing(catalog, name, None).plan, catalog).ticks

    def _hold(self, moments: Moments, entry: int, now_us: int | None) -> None:
        # A position may say any NOW, and nothing is held for longer because of one that is ahead.
        told_us = None if moments.timed or now_us is None else min(now_us, moments.reader.wall_us)
        self._held.note(moments.plan.streams, entry, now_us=told_us)

    def hold_for_readers(self) -> None:
        """Processes that only read do not say what their followers ask for: while there is one, positions of the last
        minute are held.
        """
        catalog = self._store.catalog
        names = tuple(stream.name for stream in catalog.all_streams() if stream.retain_us is not None)
        if names and self._store.is_read_elsewhere:
            self._held.note(names, catalog.seq, promised=False)

    def note_held(self) -> None:
        """Say on disk which positions need no tuples any more."""
        self._held.save(lambda: [stream.name for stream in self._store.catalog.all_streams()])

    def held_us(self, stream: StreamState) -> int | None:
        """Tuples of a stream after this time are needed by positions that somebody asked for lately."""
        return self._held.floor_us(stream, self._store.clock.now_us())

    def _told(
        self,
        query: QueryState,
        moments: Moments,
        since: Moment,
        upto: Moment | None,
        options: ChangeOptions,
        limits: DeltaLimits,
        *,
        snapshot: bool,
    ) -> list[Delta]:
        outs = options.expirations is Expirations.OUT
        executor = Executor(moments, self._invoker, self._recent.of(query, moments.catalog), outs=outs)
        if snapshot:
            table, out = executor.at(since)
            epoch = moments.catalog.epoch if upto is None else moments.epoch_at(since)
            nothing = table.slice(0, 0)
            return [Delta(table, nothing, since.entry, epoch, since.now_us, inserted_out=out, query_id=query.id)]
        found: list[Delta] = []
        size, began = 0, time.monotonic()
        nothing = _nothing(query.plan)
        before, steps = since, moments.steps(since, upto)
        for each in steps:
            step, changed = _told_step(executor, before, each, steps, options.relation)
            before, (entry, now_us) = step.moment, step.moment
            last = Delta(nothing, nothing, entry, step.epoch, now_us, step.net, progress=True, query_id=query.id)
            if changed is not None:
                inserted, retracted, out = changed.inserted, changed.retracted, changed.inserted_out
                last = replace(last, inserted=inserted, retracted=retracted, inserted_out=out, progress=False)
                found.append(last)
                size += inserted.nbytes + retracted.nbytes
            late = limits.work_seconds_max is not None and time.monotonic() - began > limits.work_seconds_max
            if late or len(found) == _DELTAS_MAX or size > limits.bytes_max:
                break
        carries = last.progress and not (found and found[-1].position == last.position)
        return [*found, last] if carries else found

    def _await(self, seen: int, seconds_max: float) -> None:
        """Until another entry than the one seen is the last, or the time is over."""
        if not self._store.warehouse.writable:
            time.sleep(min(_LOOK_SECONDS, seconds_max))
            return
        with self._store.committed:
            self._store.committed.wait_for(lambda: self._store.catalog.seq != seen, seconds_max)


def _standing(catalog: Catalog, name: str, query_id: int | None) -> QueryState:
    query = catalog.query(name)
    if query is None:
        raise unknown("query", name, catalog.query_names())
    if query_id is not None and query.id != query_id:
        raise Gone(f"Query '{query.name}' was replaced.", hint="subscribe to it again")
    return query


def _moment(moments: Moments, query: QueryState, since: int | str | None) -> Moment:
    """A position as people give it."""
    if since is None:
        return moments.present()
    if isinstance(since, int) and not isinstance(since, bool) and since >= 0:
        return moments.of_epoch(since)
    if isinstance(since, str) and since.isascii() and since.isdigit() and len(since) <= _EPOCH_DIGITS_MAX:
        return moments.of_epoch(int(since))
    return Moment.of_query(since, query.name, query.id)


def _told_step(
    executor: Executor, before: Moment, step: MomentStep, following: Iterator[MomentStep], relation: ToStream
) -> tuple[MomentStep, Changed | None]:
    """What is told of a step; of all that are left, where there is no answer after this one. A tuple that a query fails
    at would stop its followers for good otherwise, also when it has left.
    """
    try:
        return step, _changed(executor, before, step, relation)
    except EvaluationError:
        last = deque(following, maxlen=1)
        if not last:
            raise
    step = last[0]._replace(net=True, tick=False)
    return step, _changed(executor, before, step, relation)


def _changed(executor: Executor, before: Moment, step: MomentStep, relation: ToStream) -> Changed | None:
    """What is told of a step."""
    after = step.moment
    if step.tick and (before.now_us == after.now_us or not executor.ticks):
        executor.carry(before, after)
        return None
    if relation is ToStream.RSTREAM:
        table, out = executor.at(after)
        return Changed(table, table.slice(0, 0), out)
    changed = executor.between(before, after)
    if changed is None or relation is ToStream.CHANGES:
        return changed
    if relation is ToStream.ISTREAM:
        told = Changed(changed.inserted, changed.retracted.slice(0, 0), changed.inserted_out)
    else:
        told = Changed(changed.inserted.slice(0, 0), changed.retracted)
    return told if len(told.inserted) or len(told.retracted) else None


def _nothing(plan: Plan) -> pa.Table:
    """No rows; also no columns, where only Spark can tell which there would be."""
    return (pa.schema([]) if plan.schema is None else plan.schema).empty_table()
