"""Whoever waits for changes: any number of them, without a thread each.

For each query that somebody listens to there is one *channel*: after each commit it is asked once what the epoch added,
and the last changes are kept, written down once for all. A listener is a position. As long as that is within what its
channel keeps it costs nothing; one that is behind (it was away, or it is slow) reads what it missed from the database,
as `Query.subscribe` does, at its own pace and in threads of their own. So memory is bounded by the number of channels
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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ladle.answer import Answer
from ladle.errors import LadleError, LimitExceeded, unknown
from ladle.formats.writing import encoded, json_rows

if TYPE_CHECKING:
    from ladle.engine import Database

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_KEPT_MAX = 64
_KEPT_BYTES_MAX = 4 << 20
"""Changes that a channel keeps, as they are sent."""
_BEHIND_BYTES_MAX = 1 << 18
"""What a listener that is behind reads at once, beside one change at least: it may take its time to send it."""
_WORK_SECONDS_MAX = 0.25
"""How long one reading of missed epochs may compute, so that others get their turn."""
_THREADS = 4

Key = tuple[str, int]
"""A query's name in lower case, and its id: one that is replaced is another."""


@dataclass(frozen=True)
class Told:
    """A change, or the news that there was none up to an epoch; as it is sent."""

    epoch: int
    changed: bool
    json: bytes


def quiet(epoch: int) -> Told:
    return Told(epoch, False, encoded({"epoch": epoch}))


def written(answer: Answer) -> Told:
    """Takes a while for many rows, so not in the event loop."""
    value = {"epoch": answer.epoch, "now": answer.now.isoformat(), "rows": json_rows(answer.table)}
    return Told(answer.epoch, True, encoded(value))


@dataclass
class _Channel:
    key: Key
    first: int
    """Changes after this epoch are kept."""
    epoch: int
    """Up to here everything was told."""
    kept: deque[Told] = field(default_factory=deque)
    listeners: int = 0
    error: LadleError | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def tell(self, told: list[Told], epoch: int) -> None:
        """Nobody is woken for an epoch that changed nothing."""
        self.kept.extend(told)
        self.epoch = epoch
        size = sum(len(each.json) for each in self.kept)
        while self.kept and (len(self.kept) > _KEPT_MAX or size > _KEPT_BYTES_MAX):
            oldest = self.kept.popleft()
            self.first = oldest.epoch
            size -= len(oldest.json)
        if told:
            self.wake()

    def after(self, epoch: int) -> Told | None:
        """The first change after an epoch that is not before those kept."""
        return next((told for told in self.kept if told.epoch > epoch), None)

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Hub:
    def __init__(self, db: Database, subscribers_max: int) -> None:
        self._db = db
        self._most = subscribers_max
        self._channels: dict[Key, _Channel] = {}
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
        self._stop_hearing = self._db.on_commit(self._note_commit_soon)

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

    async def listen(self, name: str, since: int | None, *, idle_seconds: float) -> AsyncGenerator[Told, None]:
        """The changes after an epoch, in order, for as long as they are taken; None is from now on.

        The first thing told comes at once: what was missed, or from where on it listens. Without a change for so long
        it is told up to where there was none. Raises when the query is gone, or what was missed is.
        """
        if self.subscribers >= self._most:
            raise LimitExceeded(
                f"There are {self._most:,} subscribers already.",
                hint="try again later, or have the setting subscribers_max raised",
            )
        channel = self._enter(name)
        self.subscribers += 1
        try:
            epoch = channel.epoch if since is None else since
            due = time.monotonic()
            while not self._stopping.is_set():
                if channel.error is not None:
                    raise channel.error
                if epoch < channel.first:
                    missed, epoch = await self._missed(channel, epoch)
                    for told in missed:
                        yield told
                        due = time.monotonic() + idle_seconds
                    continue
                changed = channel.changed
                following = channel.after(epoch)
                if following is not None:
                    epoch = following.epoch
                    yield following
                    due = time.monotonic() + idle_seconds
                    continue
                epoch = max(epoch, channel.epoch)
                left = due - time.monotonic()
                if left <= 0:
                    yield quiet(epoch)
                    due = time.monotonic() + idle_seconds
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), left)
                except TimeoutError:
                    continue
        finally:
            self.subscribers -= 1
            self._leave(channel)

    async def _missed(self, channel: _Channel, epoch: int) -> tuple[list[Told], int]:
        name, query_id = channel.key

        def read() -> tuple[list[Told], int]:
            answers, upto = self._db.changes(
                name, since=epoch, query_id=query_id, bytes_max=_BEHIND_BYTES_MAX, work_seconds_max=_WORK_SECONDS_MAX
            )
            return [written(answer) for answer in answers], upto

        return await self._in(self._behind, read)

    def _enter(self, name: str) -> _Channel:
        catalog = self._db.catalog
        query = catalog.query(name)
        if query is None:
            raise unknown("query", name, [])
        key = (query.name.lower(), query.id)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(key, catalog.epoch, catalog.epoch)
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
        """Ask after each commit what it added."""
        name, query_id = channel.key

        def look() -> tuple[list[Told], int]:
            answers, upto = self._db.changes(
                name, since=channel.epoch, query_id=query_id, work_seconds_max=_WORK_SECONDS_MAX
            )
            return [written(answer) for answer in answers], upto

        while True:
            committed = self._committed
            before = channel.epoch
            try:
                told, epoch = await self._in(self._following, look)
            except Exception as error:
                if not isinstance(error, LadleError):
                    _log.exception("following %s", name)
                    error = LadleError(f"The changes of '{name}' can't be told: {type(error).__name__}: {error}.")
                channel.error = error
                self._channels.pop(channel.key, None)
                channel.wake()
                return
            channel.tell(told, epoch)
            if epoch == before:
                await committed.wait()

    @staticmethod
    async def _in(threads: ThreadPoolExecutor, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(threads, call)
