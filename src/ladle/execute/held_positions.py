"""Positions that were told or asked for, and keep the tuples that their answers had for as long as they are promised.

The process that writes knows of each of them. Of every stream the oldest is on disk too, before it is told: after a
restart all positions since then count as told, for nobody knows better. So what is on disk may be too old, and never
too new; it is brought up to date now and then.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ladle.archive.files import write_durably
from ladle.catalog import Record, StreamState
from ladle.errors import WarehouseError
from ladle.plan.window import MIN_US

HOLD_SECONDS = 60.0
"""For so long after it was asked for, by the wall clock, a position keeps the tuples that its answer had at least."""
_SAVE_SECONDS = 60.0
"""What is on disk is this old at most, or says more than it need."""
_HELD_MAX = 4_096

_log = logging.getLogger(__name__)


class _Held(NamedTuple):
    """How long a position is held."""

    until: float
    """So long in any case, on the monotonic clock."""
    promised: bool
    """Whether it is promised beyond that."""
    now_us: int
    """The last NOW at that entry by the wall clock, which is the clock of what is stamped on arrival."""


_NOT_HELD = _Held(0.0, promised=False, now_us=MIN_US)


class HeldPositions:
    """Positions that were told or asked for, and that are promised still: the entries, by stream, in order.

    A position is promised while its stream's clock is no further than so much time ahead of it, and a minute at least.
    """

    def __init__(self, promised_seconds: float, path: Path | None) -> None:
        """`path` is where the oldest are on disk; None for a process that only reads."""
        self._promised_us = int(promised_seconds * 1e6)
        self._path = path
        self._lock = threading.Lock()
        self._entries: dict[str, dict[int, _Held]] = {}
        self._saved = _read(path)
        """The oldest promised entry of each stream, as the file has it."""
        self._before = dict(self._saved)
        """Of these streams nobody asked yet how far what was told before the restart reaches back."""
        self._saved_at = time.monotonic()

    def note(self, streams: tuple[str, ...], entry: int, *, now_us: int | None = None, promised: bool = True) -> None:
        """Hold what followers at an entry need of these streams, for a while; `now_us` is where they are, if that is by
        the wall clock.
        """
        until = time.monotonic() + HOLD_SECONDS
        with self._lock:
            for stream in streams:
                self._note(stream.lower(), entry, until, now_us, promised=promised)
            known = [self._saved.get(stream.lower()) for stream in streams]
            if promised and any(oldest is None or entry < oldest for oldest in known):
                self._save()

    def _note(self, stream: str, entry: int, until: float, now_us: int | None, *, promised: bool) -> None:
        entries = self._entries.setdefault(stream, {})
        known = entries.get(entry, _NOT_HELD)
        last_us = known.now_us if now_us is None else max(known.now_us, now_us)
        entries[entry] = _Held(until, promised or known.promised, last_us)
        if len(entries) > _HELD_MAX:
            # An older one mostly holds all that a later one needs.
            self._entries[stream] = dict(sorted(entries.items())[::2])

    def floor_us(self, stream: StreamState, wall_us: int) -> int | None:
        """Tuples up to this time had left at all of the positions."""
        now = time.monotonic()
        clock_us = stream.clock(wall_us)
        lowest: int | None = None
        with self._lock:
            oldest = self._before.pop(stream.name.lower(), None)
            if oldest is not None:
                for entry, now_us in _told_since(stream, oldest, wall_us):
                    self._note(stream.name.lower(), entry, now + HOLD_SECONDS, now_us, promised=True)
            entries = self._entries.get(stream.name.lower(), {})
            for entry, held in sorted(entries.items()):
                record = stream.timeline.at(entry)
                known = entry >= stream.timeline.base.entry
                if not known or not (held.until > now or self._promises(stream, record, held, clock_us)):
                    del entries[entry]
                    continue
                # Before the first tuple, none had left.
                floor_us = None if record.clock_us is None else stream.floor_at(entry, record.clock_us)
                floor_us = MIN_US if floor_us is None else floor_us
                lowest = floor_us if lowest is None else min(lowest, floor_us)
                if all(each.until <= entry for each in stream.retained_before):
                    break  # a later one needs no more, unless retention became longer
        return lowest

    def _promises(self, stream: StreamState, record: Record, held: _Held, clock_us: int) -> bool:
        if record.clock_us is None or not held.promised:
            return False
        at_us = record.clock_us if stream.event_time else max(record.clock_us, record.at_us, held.now_us)
        return clock_us - at_us <= (self._promised_us or stream.retain_us or 0)

    def save(self, streams: Callable[[], Iterable[str]]) -> None:
        """Forget streams that are there no more, and bring what is on disk up to date, if it was not for a while."""
        with self._lock:
            # Asked under the lock: whoever notes a position of a stream found that it is there.
            there = {stream.lower() for stream in streams()}
            for dropped in (self._entries.keys() | self._before.keys()) - there:
                self._entries.pop(dropped, None)
                self._before.pop(dropped, None)
            if time.monotonic() - self._saved_at >= _SAVE_SECONDS and self._oldest() != self._saved:
                self._save()

    def _oldest(self) -> dict[str, int]:
        promised = {
            stream: min((entry for entry, held in entries.items() if held.promised), default=None)
            for stream, entries in self._entries.items()
        }
        found = {stream: entry for stream, entry in promised.items() if entry is not None}
        return found | {stream: min(entry, found.get(stream, entry)) for stream, entry in self._before.items()}

    def _save(self) -> None:
        if self._path is None:
            return
        oldest = self._oldest()
        try:
            write_durably(self._path, json.dumps(oldest).encode())
        except WarehouseError as error:
            # Who is told something is told it all the same; the next one tries again.
            _log.warning("positions are not held over a restart: %s", error)
            return
        self._saved, self._saved_at = oldest, time.monotonic()


def _told_since(stream: StreamState, oldest: int, wall_us: int) -> Iterator[tuple[int, int]]:
    """The positions that may have been told since an entry: entries, and the last NOW by the wall clock at each."""
    following = list(stream.timeline.after(oldest))
    ends = [*(record.at_us for record in following), wall_us]
    return zip([oldest, *(record.entry for record in following)], ends, strict=True)


def _read(path: Path | None) -> dict[str, int]:
    """What is on disk; nothing, if there is no such file, or none that can be read."""
    try:
        known = {} if path is None else json.loads(path.read_bytes())
        return {str(stream): int(entry) for stream, entry in known.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        _log.warning("positions told before the restart are not held: %s", error)
        return {}
