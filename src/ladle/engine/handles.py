"""What a database hands out: streams and tables as they were when asked for, and the handles of standing queries."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ladle.answer import Answer
from ladle.errors import Unreachable
from ladle.schema import StreamSchema, TableSchema
from ladle.sql.statements import Materialize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 0.5
_RETRY_SECONDS = 0.5
_ABSENCE_SECONDS_MAX = 60.0
"""How long a server may be away before a subscriber is told."""
"""How long one look for changes takes at most; after it a subscription sees whether it was closed."""


@dataclass(frozen=True)
class Stream:
    """A stream, as it was when asked for."""

    name: str
    schema: StreamSchema
    retain_us: int | None
    rows: int
    epochs: int
    lateness_us: int | None
    idle_after_us: int | None
    idle: bool
    clock: datetime | None
    """The highest time of its tuples and heartbeats."""


@dataclass(frozen=True)
class Table:
    """A table, as it was when asked for."""

    name: str
    schema: TableSchema
    rows: int
    version: int
    """How often its rows changed."""


@dataclass(frozen=True)
class Body:
    """What the rows of a push were sent as."""

    content: bytes
    arrow: bool
    """Whether it is an Arrow stream: it is kept as it came. Sent again it may be cut and packed differently."""

    @property
    def compared(self) -> bytes | None:
        """What must be the same when it is sent again with the same key."""
        return None if self.arrow else self.content

    @property
    def kept(self) -> memoryview | None:
        return memoryview(self.content) if self.arrow else None


@dataclass(frozen=True)
class HandedOver:
    """What became of a push."""

    epoch: int | None
    """In which its rows are visible, if that was waited for."""
    repeated: bool = False
    """Whether it was sent before, with the same key: it counts once."""
    quarantined: int | None = None
    """How many of its rows did not fit, if it was waited for and not sent before."""


class Asked(Protocol):
    """What answers for a query: a database here, or one reached through another process."""

    def invoke(self, name: str, *, now: datetime | str | None = None) -> Answer: ...

    def changes(self, name: str, *, since: int | None = None, seconds: float = 0.0) -> tuple[list[Answer], int]: ...

    def explain(self, text: str, *, analyze: bool = False) -> str: ...

    def explain_tree(self, text: str) -> dict[str, Any] | None: ...

    def unregister(self, name: str) -> None: ...


class Subscription:
    """The rows that each epoch adds to a query's answer: an Answer for each epoch that adds any, in order.

    Iterating waits for the next one, until `close`. `epoch` is how far it has told: subscribing again since then, in
    this process or another, misses nothing and repeats nothing. It holds nothing in the database.
    """

    def __init__(self, database: Asked, name: str, since: int | None) -> None:
        self._database = database
        self.name = name
        self._heard: deque[Answer] = deque()
        """Changes that were told at once, and not handed out yet."""
        self._until = database.changes(name)[1] if since is None else since
        """Up to where everything was told when the last of them is handed out."""
        self.epoch = self._until
        self._closed = threading.Event()
        self._away_since: float | None = None
        """Since when no server answers, on the monotonic clock."""

    def next(self, seconds: float | None = None) -> Answer | None:
        """The next change; None when there is none for so long, or the subscription is closed. A server that is away is
        waited for, a minute at most.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._closed.is_set():
            if self._heard:
                answer = self._heard.popleft()
                self.epoch = answer.epoch
                return answer
            left = _PATIENCE_SECONDS if deadline is None else deadline - time.monotonic()
            patience = max(min(left, _PATIENCE_SECONDS), 0.0)
            try:
                told, self._until = self._database.changes(self.name, since=self._until, seconds=patience)
            except Unreachable:
                now = time.monotonic()
                self._away_since = self._away_since or now
                if now - self._away_since > _ABSENCE_SECONDS_MAX:
                    raise
                if left <= 0:
                    return None
                self._closed.wait(min(left, _RETRY_SECONDS))
                continue
            self._away_since = None
            self._heard.extend(told)
            if not told:
                self.epoch = self._until
                if left <= 0:
                    return None
        return None

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """Let whoever waits for the next change go."""
        self._closed.set()

    def call(self, callback: Callable[[Answer], object]) -> Listener:
        """Call back with each change, in a thread of its own, until the subscription is closed.

        A change counts as told when the call returns, and the listener's `epoch` moves on then: one that raised is told
        again to whoever subscribes since that.
        """
        return Listener(self, callback)

    def to_spark(self, session: SparkSession, write: Callable[[DataFrame, int], object]) -> Listener:
        """Call back with each change as a Spark DataFrame and its epoch, as foreachBatch does with its batches.

        After a crash the last change may come again, with the same epoch: a sink that is to have it once looks at that.
        """
        from ladle.pipeline.spark import frame_of

        return self.call(lambda answer: write(frame_of(session, answer.table), answer.epoch))

    def __iter__(self) -> Iterator[Answer]:
        while (answer := self.next()) is not None:
            yield answer

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Listener:
    """A subscription that calls back."""

    def __init__(self, subscription: Subscription, callback: Callable[[Answer], object]) -> None:
        self._subscription = subscription
        self._callback = callback
        self.epoch = subscription.epoch
        """Up to where everything was told."""
        self.error: BaseException | None = None
        """What ended it, if something did."""
        self._thread = threading.Thread(target=self._run, name=f"ladle-listener-{subscription.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when no call is under way, and none will come; raises what a call raised."""
        self._subscription.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._subscription.closed:
                answer = self._subscription.next(_PATIENCE_SECONDS)
                if answer is not None:
                    self._callback(answer)
                self.epoch = self._subscription.epoch
        except Exception as error:
            _log.warning("a listener of %s is ended: %s", self._subscription.name, error)
            self.error = error

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Query:
    """The handle of a standing query. It stays good while the client is away, also in another process."""

    def __init__(self, database: Asked, name: str, sql_text: str, materialize: Materialize) -> None:
        self._database = database
        self.name = name
        self.sql = sql_text
        self.materialize = materialize.value

    def invoke(self, *, now: datetime | str | None = None) -> Answer:
        """The answer over the current window, or over the window as it would be at another NOW."""
        return self._database.invoke(self.name, now=now)

    def subscribe(self, *, since: int | None = None) -> Subscription:
        """The new rows of each epoch after `since`, in order; without it, of those to come."""
        return Subscription(self._database, self.name, since)

    def explain(self, *, analyze: bool = False) -> str:
        """How it is answered; with `analyze` it is invoked too, to say what that takes."""
        return self._database.explain(self.name, analyze=analyze)

    def explain_tree(self) -> dict[str, Any] | None:
        """The tree of its plan: nodes with what `explain` says of them, and their children. None if it is made of
        queries that the caller does not see.
        """
        return self._database.explain_tree(self.name)

    def unregister(self) -> None:
        self._database.unregister(self.name)

    def __repr__(self) -> str:
        return f"Query({self.name!r}, {self.sql!r})"
