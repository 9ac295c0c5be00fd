"""Clocks of streams with a time column: heartbeats move them while no tuples come, and NOW does not wait for idle ones.

Both are entries of the log with an epoch of their own, so that NOW follows from the log alone, and subscribers are
told what they bring into an answer (decision 24).
"""

from __future__ import annotations

from datetime import datetime

from ladle import catalog as entries
from ladle.catalog import Catalog, StreamState, may_become_idle
from ladle.catalog.entry_types import Entry
from ladle.catalog.store import Store
from ladle.clock import FIRST_US, LAST_US, interval_text, moment_of, to_datetime, to_us
from ladle.define.definitions import base_stream
from ladle.errors import LadleError, TypeMismatch
from ladle.handles import Stream
from ladle.ingest.epochs import Ingest
from ladle.schema import require_time_column


def heartbeat_us(at: datetime | str) -> int:
    """The time of a heartbeat, which may be ISO text; refused if it is in no year that there is."""
    clock_us = to_us(moment_of(at))
    if not FIRST_US <= clock_us <= LAST_US:
        raise TypeMismatch(f"A heartbeat at {at} is not in the years 1 to 9999.")
    return clock_us


def heartbeat(store: Store, stream: str, clock_us: int) -> int | None:
    """Say that a stream has reached a time. The epoch of it; None when its clock was there already."""
    wall_us = store.clock.now_us()

    def make_entry(catalog: Catalog) -> Entry | None:
        state = base_stream(catalog, stream)
        require_time_column(state.name, state.schema, "heartbeat")
        ceiling_us = state.ceiling_us(wall_us)
        if ceiling_us is not None and clock_us > ceiling_us:
            raise LadleError(
                f"Stream '{state.name}' can't advance to {to_datetime(clock_us)}: that is after "
                f"{to_datetime(ceiling_us)}, the wall clock plus MAX AHEAD.",
                hint="a clock never goes back, so a time in the future would make later tuples old",
            )
        if state.clock_us is not None and clock_us <= state.clock_us:
            return None
        return entries.heartbeat(state.name, clock_us, wall_us)

    committed = store.commit(make_entry)
    return None if committed is None else committed.epoch


class Idleness:
    """Makes streams idle that had neither tuple nor heartbeat for as long as they say."""

    def __init__(self, store: Store, ingest: Ingest) -> None:
        self._store = store
        self._ingest = ingest
        self._opened_us = store.clock.now_us()
        """What did not come while the database was closed could not come."""

    def look(self) -> None:
        """Let streams become idle that have been silent for long enough."""
        held = []
        for stream in self._store.catalog.streams.values():
            if not self._is_due(stream) or self._ingest.pending(stream):
                continue
            if not may_become_idle(stream):
                held.append(stream.name)
                continue

            def make_entry(catalog: Catalog, known: StreamState = stream) -> Entry | None:
                current = catalog.streams.get(known.name.lower())
                due = current is not None and current.id == known.id and self._is_due(current)
                return entries.idle(known.name, self._store.clock.now_us()) if due else None

            self._store.commit(make_entry)
        if held:
            raise LadleError(
                f"These streams stay active: {', '.join(held)}. They were idle so often, while other streams were "
                "ahead, that NOW of all sets of streams could not be told if they became idle again.",
                hint="raise their IDLE AFTER, or send them heartbeats",
            )

    def _is_due(self, stream: StreamState) -> bool:
        if stream.idle_after_us is None or stream.clock_us is None or stream.idle_since:
            return False
        touched_us = self._opened_us if stream.touched_us is None else max(stream.touched_us, self._opened_us)
        return self._store.clock.now_us() - touched_us >= stream.idle_after_us


def stream_handle(stream: StreamState) -> Stream:
    """A stream of a snapshot as users see it."""
    return Stream(
        stream.name,
        stream.schema,
        stream.retain_us,
        stream.rows,
        stream.epochs,
        stream.lateness_us,
        stream.idle_after_us,
        stream.idle_since > 0,
        None if stream.clock_us is None else to_datetime(stream.clock_us),
    )


def lateness_text(stream: StreamState) -> str:
    """How far behind the clock tuples may come."""
    return "unbounded" if stream.lateness_us is None else interval_text(stream.lateness_us)


def idle_text(stream: StreamState) -> str:
    """When a stream becomes idle, and whether it is."""
    after = "never" if stream.idle_after_us is None else f"after {interval_text(stream.idle_after_us)}"
    return f"{after}; idle since epoch {stream.idle_since}" if stream.idle_since else after


def clock_text(stream: StreamState) -> str:
    """The clock of a stream with a time column, and what is said of its time."""
    clock = "not begun" if stream.clock_us is None else to_datetime(stream.clock_us).isoformat(" ")
    return f"clock: {clock}; lateness: {lateness_text(stream)}; idle: {idle_text(stream)}"
