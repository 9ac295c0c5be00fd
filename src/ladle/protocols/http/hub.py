"""Whoever waits for changes: any number of them, without a thread each.

For each query that somebody listens to, and each way to be told of it, there is one *channel*: after each commit, and
each tick of the clock where time alone changes the answer, the database is asked once what changed, and the last deltas
are kept, written down once for all. A listener is a number: how many of them it was told. As long as the next is kept
it costs nothing. One elsewhere (it comes with a position, or it is slow) reads what it missed from the database,
up to where its channel is, at its own pace and in threads of their own. So memory is bounded by the number of channels
and a little for each listener, and nobody waits for the slow.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ladle.delta import ChangeOptions, Delta, Moment
from ladle.errors import LadleError, LimitExceeded, unknown
from ladle.execute.following import DeltaLimits
from ladle.formats.deltas import json_pieces

if TYPE_CHECKING:
    from ladle.engine import Database
from ladle.engine.commands import Follow

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_KEPT_MAX = 64
_KEPT_BYTES_MAX = 4 << 20
"""Deltas that a channel keeps, as they are sent."""
_BEHIND_BYTES_MAX = 1 << 18
"""What a listener that is behind reads at once, beside one delta at least: it may take its time to send it."""
_WORK_SECONDS_MAX = 0.25
"""How long one reading of what was missed may compute, so that others get their turn."""
_LOOK_SECONDS_MAX = 15.0
"""How long a channel goes without a look: its position keeps the tuples that the answer had only while it is asked for,
and NOW moves on also where nothing else does.
"""
_TICK_SECONDS_MIN = 0.01
_THREADS = 4


@dataclass(frozen=True)
class ChannelKey:
    """What those who share a channel have in common. A query that is replaced is another."""

    name: str
    query: int
    options: ChangeOptions


@dataclass(frozen=True)
class Told:
    """A delta as it is sent: in pieces. One without any says only that somebody is still there."""

    moment: Moment
    position: str
    progress: bool
    pieces: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(map(len, self.pieces))


def written(delta: Delta) -> Told:
    """Takes a while for many rows, so not in the event loop."""
    return Told(Moment(delta.entry, delta.now_us), delta.position, delta.progress, tuple(json_pieces(delta)))


@dataclass
class _Channel:
    key: ChannelKey
    last: Told | None = None
    """Up to where it has looked, as progress is told; None before the first look."""
    ticks: bool = False
    """Whether time alone changes the answer."""
    kept: deque[Told] = field(default_factory=deque)
    number: int = 0
    """How many deltas were told; the last of them are kept."""
    first: Moment | None = None
    """Deltas after it are kept."""
    listeners: int = 0
    error: LadleError | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def tell(self, told: list[Told], last: Told, *, ticks: bool) -> None:
        """After a look. Those who wait for changes alone are not woken for what changed nothing."""
        has_moved = self.last is None or self.last.moment != last.moment
        other_time = self.last is not None and self.ticks != ticks
        self.last, self.ticks = last, ticks
        self.first = self.first or last.moment
        self.kept.extend(told)
        self.number += len(told)
        size = sum(each.size for each in self.kept)
        while self.kept and (other_time or len(self.kept) > _KEPT_MAX or size > _KEPT_BYTES_MAX):
            oldest = self.kept.popleft()
            self.first = oldest.moment
            size -= oldest.size
        for event, happened in (("changed", told), ("moved", told or has_moved), ("looked", True)):
            if happened:
                self._wake(event)

    def after(self, number: int) -> Told | None:
        """The delta after so many, if there is one; it must be among those kept."""
        return self.kept[number - self.number] if number < self.number else None

    def keeps(self, number: int) -> bool:
        """Whether all deltas after so many are kept."""
        return number >= self.number - len(self.kept)

    def number_at(self, moment: Moment) -> int | None:
        """How many deltas lead to a position; None where the channel can't tell.

        Where time changes nothing, the entry alone says it. Elsewhere the answer is known only where it was looked at.
        """
        assert self.last is not None
        assert self.first is not None
        if moment == self.last.moment:
            return self.number
        dropped = self.number - len(self.kept)
        if self.ticks:
            return next((dropped + n + 1 for n, told in enumerate(self.kept) if told.moment == moment), None)
        if not self.first.entry <= moment.entry <= self.last.moment.entry:
            return None
        return dropped + sum(told.moment.entry <= moment.entry for told in self.kept)

    def wake(self) -> None:
        for event in ("changed", "moved", "looked"):
            self._wake(event)

    def _wake(self, event: str) -> None:
        getattr(self, event).set()
        setattr(self, event, asyncio.Event())


class Hub:
    """Tells subscribers what changes; those that follow the same query in the same way share one channel."""

    def __init__(self, db: Database, subscribers_max: int) -> None:
        self._db = db
        self._most = subscribers_max
        self._channels: dict[ChannelKey, _Channel] = {}
        self._following = ThreadPoolExecutor(_THREADS, thread_name_prefix="ladle-hub")
        self._behind = ThreadPoolExecutor(_THREADS, thread_name_prefix="ladle-hub-behind")
        self._committed = asyncio.Event()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_hearing: Callable[[], None] | None = None
        self.subscribers = 0

    def start(self) -> None:
        """Called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._stop_hearing = self._db.parts.store.on_commit(lambda _: self._note_commit_soon())

    def release(self) -> None:
        """Let everybody go, so that their connections end. May be called by any thread."""
        self._stopping.set()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_all)

    async def stop(self) -> None:
        """Called in the event loop, when all requests are done."""
        self._stopping.set()
        if self._stop_hearing is not None:
            self._stop_hearing()
        for channel in list(self._channels.values()):
            if channel.task is not None:
                channel.task.cancel()
        self._wake_all()
        for threads in (self._following, self._behind):
            threads.shutdown(wait=False, cancel_futures=True)

    def _wake_all(self) -> None:
        for channel in list(self._channels.values()):
            channel.wake()

    def _note_commit_soon(self) -> None:
        """In the thread that committed."""
        if self._loop is not None and not self._stopping.is_set():
            with suppress(RuntimeError):  # it is closed just now
                self._loop.call_soon_threadsafe(self._note_commit)

    def _note_commit(self) -> None:
        self._committed.set()
        self._committed = asyncio.Event()

    async def listen(
        self,
        name: str,
        since: int | str | None,
        *,
        options: ChangeOptions,
        idle_seconds: float,
        snapshot: bool = False,
        progress: bool = False,
    ) -> AsyncGenerator[Told, None]:
        """The deltas after a position or an epoch, in order, for as long as they are taken; None is from now on.

        The first thing told comes at once: the answer as it is, what was missed, or from where on it listens. Without a
        change for so long it is told that NOW moved on, if it did; with `progress` whenever it does. Raises when the
        query is gone, or what was missed is.
        """
        if self.subscribers >= self._most:
            raise LimitExceeded(
                f"There are {self._most:,} subscribers already.",
                hint="try again later, or have the setting subscribers_max raised",
            )
        channel = self._enter(name, options)
        self.subscribers += 1
        due = time.monotonic()
        said: Moment | None = None
        try:
            listener = _Subscriber(self, channel, since, snapshot=snapshot)
            while not self._stopping.is_set():
                changed, moved, looked = channel.changed, channel.moved, channel.looked
                if channel.error is not None:
                    raise channel.error
                if channel.last is None:
                    await looked.wait()
                    continue
                told = await listener.next()
                if told is None:
                    last = listener.reached
                    left = due - time.monotonic()
                    has_moved = last is not None and last.moment != said
                    if left > 0 and not (progress and has_moved):
                        event = looked if last is None else moved if progress else changed
                        with suppress(TimeoutError):
                            await asyncio.wait_for(event.wait(), left)
                        continue
                    told = last if last is not None and has_moved else _still_there(channel.last)
                yield told
                said = told.moment if told.pieces else said
                due = time.monotonic() + idle_seconds
        finally:
            self.subscribers -= 1
            self._leave(channel)

    async def missed(
        self, key: ChannelKey, since: int | str | None, upto: Moment, *, snapshot: bool
    ) -> tuple[list[Told], Moment]:
        """What was missed, a bounded part of it, and up to where that is; for one that is not where its channel is."""

        def read() -> tuple[list[Told], Moment]:
            limits = DeltaLimits(_BEHIND_BYTES_MAX, _WORK_SECONDS_MAX)
            deltas = self._db.run(
                Follow(key.name, since, 0.0, snapshot, key.options, upto.position, limits, query_id=key.query)
            )
            last = Moment(deltas[-1].entry, deltas[-1].now_us)
            return [written(delta) for delta in deltas if not delta.progress], last

        return await self._in(self._behind, read)

    def _enter(self, name: str, options: ChangeOptions) -> _Channel:
        query = self._db.catalog.query(name)
        if query is None:
            raise unknown("query", name, [])
        key = ChannelKey(query.name, query.id, options)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(key)
            channel.task = asyncio.get_running_loop().create_task(self._follow(channel))
        channel.listeners += 1
        return channel

    def _leave(self, channel: _Channel) -> None:
        channel.listeners -= 1
        if not channel.listeners:
            if self._channels.get(channel.key) is channel:
                del self._channels[channel.key]
            if channel.task is not None:
                channel.task.cancel()

    async def _follow(self, channel: _Channel) -> None:
        """Ask after each commit, and after a while, what changed."""
        key = channel.key
        tick_seconds = min(max(self._db.settings.tick_seconds, _TICK_SECONDS_MIN), _LOOK_SECONDS_MAX)

        def look() -> tuple[list[Told], Told, bool, bool]:
            entry = self._db.catalog.seq
            since = None if channel.last is None else channel.last.position
            limits = DeltaLimits(work_seconds_max=_WORK_SECONDS_MAX)
            deltas = self._db.run(Follow(key.name, since, options=key.options, limits=limits, query_id=key.query))
            told = [written(delta) for delta in deltas if not delta.progress]
            return (
                told,
                written(_progress(deltas[-1])),
                self._db.parts.following.ticks(key.name),
                deltas[-1].entry >= entry,
            )

        while True:
            committed = self._committed
            try:
                told, last, ticks, is_all = await self._in(self._following, look)
            except Exception as error:
                if not isinstance(error, LadleError):
                    _log.exception("following %s", key.name)
                    error = LadleError(f"The changes of '{key.name}' can't be told: {type(error).__name__}: {error}.")
                channel.error = error
                self._channels.pop(key, None)
                channel.wake()
                return
            channel.tell(told, last, ticks=ticks)
            if is_all:
                with suppress(TimeoutError):
                    await asyncio.wait_for(committed.wait(), tick_seconds if ticks else _LOOK_SECONDS_MAX)

    @staticmethod
    async def _in(threads: ThreadPoolExecutor, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(threads, call)


class _Subscriber:
    """Where one is: with its channel, as a number; or elsewhere, at a position of its own."""

    def __init__(self, hub: Hub, channel: _Channel, since: int | str | None, *, snapshot: bool) -> None:
        self._hub = hub
        self._channel = channel
        self._number: int | None = None
        self._at: int | str | Moment | None = _known(since, channel.key)
        self._snapshot = snapshot
        self._missed: deque[Told] = deque()

    @property
    def reached(self) -> Told | None:
        """Up to where nothing changed for it; None while it is not where its channel is."""
        return self._channel.last if self._number is not None else None

    async def next(self) -> Told | None:
        """The next delta; None when there is none, or none before its channel has looked again."""
        channel = self._channel
        assert channel.last is not None
        while not self._missed:
            if self._number is None and isinstance(self._at, Moment):
                self._number = channel.number_at(self._at)
            elif self._at is None and not self._snapshot:
                self._number, self._at = channel.number, channel.last.moment
            if self._number is not None and channel.keeps(self._number):
                told = channel.after(self._number)
                if told is None:
                    self._at = channel.last.moment
                else:
                    self._number, self._at = self._number + 1, told.moment
                return told
            upto, number = channel.last.moment, channel.number
            if isinstance(self._at, Moment) and _order(self._at) >= _order(upto):
                self._number = None
                return None
            since = self._at.position if isinstance(self._at, Moment) else self._at
            missed, self._at = await self._hub.missed(channel.key, since, upto, snapshot=self._snapshot)
            self._snapshot = False
            self._missed.extend(missed)
            self._number = number if self._at == upto else None
        return self._missed.popleft()


def _known(since: int | str | None, key: ChannelKey) -> int | str | Moment | None:
    """A position as a moment; an epoch has to be asked for."""
    if isinstance(since, str) and not since.isdecimal():
        return Moment.of_query(since, key.name, key.query)
    return since


def _order(moment: Moment) -> tuple[int, float]:
    return moment.entry, float("-inf") if moment.now_us is None else moment.now_us


def _progress(delta: Delta) -> Delta:
    """That everything was told up to where a delta ends."""
    nothing = delta.inserted.slice(0, 0)
    return replace(delta, inserted=nothing, retracted=nothing, net=False, progress=True, inserted_out=None)


def _still_there(last: Told) -> Told:
    return Told(last.moment, last.position, True, ())
