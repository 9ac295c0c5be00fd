"""Whoever waits for changes: any number of them, without a thread each.

For each query that somebody listens to there is one *channel*: after each commit it is asked once what the epoch added,
and the last changes are kept, written down once for all. A listener is a position. As long as that is within what its
channel keeps it costs nothing; one that is behind (it was away, or it is slow) reads what it missed from the database,
as `Query.subscribe` does, at its own pace. So memory is bounded by the number of channels, and nobody waits for the
slow.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from ladle.answer import Answer
from ladle.errors import LadleError, LimitExceeded
from ladle.formats.writing import encoded, json_rows

if TYPE_CHECKING:
    from ladle.engine import Database

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_KEPT_MAX = 64
_KEPT_BYTES_MAX = 4 << 20
"""Changes that a channel keeps."""
_LOOK_SECONDS = 0.5
"""After so long without a commit the watcher sees whether it was stopped."""
_THREADS = 4


@dataclass(frozen=True)
class Told:
    """A change, or the news that there was none up to an epoch."""

    epoch: int
    answer: Answer | None = None

    @cached_property
    def json(self) -> bytes:
        """Written down once for all who hear it."""
        if self.answer is None:
            return encoded({"epoch": self.epoch})
        return encoded({"epoch": self.epoch, "now": self.answer.now.isoformat(), "rows": json_rows(self.answer.table)})


@dataclass
class _Channel:
    name: str
    first: int
    """Changes after this epoch are kept."""
    epoch: int
    """Up to here everything was told."""
    kept: deque[Told] = field(default_factory=deque)
    listeners: int = 0
    error: LadleError | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def tell(self, answers: list[Answer], epoch: int) -> None:
        self.kept.extend(Told(answer.epoch, answer) for answer in answers)
        self.epoch = epoch
        size = sum(told.answer.table.nbytes for told in self.kept if told.answer is not None)
        while self.kept and (len(self.kept) > _KEPT_MAX or size > _KEPT_BYTES_MAX):
            oldest = self.kept.popleft()
            self.first = oldest.epoch
            size -= oldest.answer.table.nbytes if oldest.answer is not None else 0
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Hub:
    def __init__(self, db: Database, subscribers_max: int) -> None:
        self._db = db
        self._most = subscribers_max
        self._channels: dict[str, _Channel] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ladle-hub")
        self._committed = asyncio.Event()
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.subscribers = 0

    def start(self) -> None:
        """Called in the event loop."""
        self._loop = loop = asyncio.get_running_loop()

        def watch() -> None:
            seen = -1
            while not self._stopping.is_set():
                try:
                    newest = self._db.await_commit(seen, _LOOK_SECONDS)
                except LadleError:
                    return
                if newest != seen:
                    seen = newest
                    loop.call_soon_threadsafe(self._note_commit)

        self._watcher = threading.Thread(target=watch, name="ladle-hub-watch", daemon=True)
        self._watcher.start()

    def release(self) -> None:
        """Let everybody go, so that their connections end. May be called by any thread."""
        self._stopping.set()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for channel in list(self._channels.values()):
            channel.wake()

    async def stop(self) -> None:
        """Called in the event loop, when all requests are done."""
        self._stopping.set()
        for channel in list(self._channels.values()):
            if channel.task is not None:
                channel.task.cancel()
            channel.wake()
        if self._watcher is not None:
            await asyncio.to_thread(self._watcher.join)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _note_commit(self) -> None:
        self._committed.set()
        self._committed = asyncio.Event()

    async def listen(self, name: str, since: int | None, *, idle_seconds: float) -> AsyncGenerator[Told, None]:
        """The changes after an epoch, in order, for as long as they are taken; None is from now on.

        Without a change for so long it is told up to where there was none. Raises when the query is gone.
        """
        if self.subscribers >= self._most:
            raise LimitExceeded(
                f"There are {self._most:,} subscribers already.",
                hint="try again later, or have the setting subscribers_max raised",
            )
        self.subscribers += 1
        channel = self._enter(name)
        try:
            epoch = channel.epoch if since is None else since
            while not self._stopping.is_set():
                if channel.error is not None:
                    raise channel.error
                if epoch < channel.first:
                    answers, upto = await self._in_thread(
                        lambda behind=epoch: self._db.changes(name, since=behind)  # type: ignore[misc]
                    )
                    for answer in answers:
                        yield Told(answer.epoch, answer)
                    epoch = upto
                    continue
                changed = channel.changed
                for told in [told for told in channel.kept if told.epoch > epoch]:
                    yield told
                    epoch = told.epoch
                if epoch >= channel.first and (not channel.kept or epoch >= channel.kept[-1].epoch):
                    epoch = max(epoch, channel.epoch)
                    try:
                        await asyncio.wait_for(changed.wait(), idle_seconds)
                    except TimeoutError:
                        yield Told(epoch)
        finally:
            self.subscribers -= 1
            self._leave(channel)

    def _enter(self, name: str) -> _Channel:
        channel = self._channels.get(name)
        if channel is None:
            epoch = self._db.catalog.epoch
            channel = self._channels[name] = _Channel(name, epoch, epoch)
            channel.task = asyncio.get_running_loop().create_task(self._follow(channel))
        channel.listeners += 1
        return channel

    def _leave(self, channel: _Channel) -> None:
        channel.listeners -= 1
        if not channel.listeners:
            if self._channels.get(channel.name) is channel:
                del self._channels[channel.name]
            if channel.task is not None:
                channel.task.cancel()

    async def _follow(self, channel: _Channel) -> None:
        """Ask after each commit what it added."""
        while True:
            committed = self._committed
            try:
                answers, epoch = await self._in_thread(lambda: self._db.changes(channel.name, since=channel.epoch))
            except LadleError as error:
                channel.error = error
                self._channels.pop(channel.name, None)
                channel.wake()
                return
            if answers or epoch != channel.epoch:
                channel.tell(answers, epoch)
            if not answers:
                await committed.wait()

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
