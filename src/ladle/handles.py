"""What a database hands out: streams and tables as they were when asked for, and the handles of standing queries."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypedDict

from ladle.answer import Answer
from ladle.delta import ChangeOptions, Delta
from ladle.errors import TypeMismatch, Unreachable
from ladle.json_values import JsonFields
from ladle.schema import StreamSchema, TableSchema
from ladle.sql.statement_types import Materialize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5
_PATIENCE_SECONDS = 0.5
"""How long one look for changes takes at most; after it a subscription sees whether it was closed."""
_ABSENCE_SECONDS_MAX = 60.0
"""How long a server may be away before a subscriber is told."""


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
class PushBody:
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
        """The bytes that may be kept as they are; None unless they are an Arrow stream."""
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


class PlanTree(TypedDict):
    """A node of the tree that EXPLAIN shows, and all below it."""

    node: str
    detail: str
    columns: list[str]
    digest: str
    pattern: str
    """Its update pattern."""
    premature: bool
    answered: str
    """What answers it."""
    shared: int
    """By how many other queries."""
    shared_exactly: bool
    coverage: JsonFields | None
    kept: JsonFields | None
    in_memory: JsonFields | None
    measured: JsonFields | None
    again: bool
    """Whether it stood in the tree before: its children are not told again."""
    children: list[PlanTree]


class Answering(Protocol):
    """What answers for a query: a database here, or one reached through another process."""

    def invoke(self, name: str, *, now: datetime | str | None = None) -> Answer:
        """The answer of a standing query."""
        ...

    def changes(
        self,
        name: str,
        *,
        since: int | str | None = None,
        seconds: float = 0.0,
        snapshot: bool = False,
        options: ChangeOptions | None = None,
    ) -> list[Delta]:
        """What changed in an answer since a position."""
        ...

    def explain(self, text: str, *, analyze: bool = False) -> str:
        """How a query is answered, as text."""
        ...

    def explain_tree(self, text: str, *, analyze: bool = False) -> PlanTree | None:
        """How a query is answered, as nested dictionaries."""
        ...

    def unregister(self, name: str) -> None:
        """Drop a standing query."""
        ...


class Subscription:
    """What changes in a query's answer: a Delta for each entry of the log, and each tick of the clock, that changes it.

    Iterating waits for the next one, until `close`. `position` is how far it has told: subscribing again since then, in
    this process or another, misses nothing and repeats nothing. With `progress` deltas without rows are handed out too:
    they say that nothing changed up to a NOW.
    """

    def __init__(
        self,
        database: Answering,
        name: str,
        *,
        since: int | str | None = None,
        snapshot: bool = False,
        options: ChangeOptions | None = None,
        progress: bool = False,
    ) -> None:
        self._database = database
        self.name = name
        self._options = options or ChangeOptions()
        self._progress = progress
        self._heard: deque[Delta] = deque()
        """Deltas that were told at once, and not handed out yet."""
        self._until: int | str
        """Up to where everything was told when the last of them is handed out."""
        self.position: int | str | None
        """Up to where everything was handed out: a text, or the epoch it was begun with. None before the snapshot."""
        self.epoch = 0
        """The last epoch up to there."""
        if since is None:
            (first,) = database.changes(name, snapshot=snapshot, options=self._options)
            self._heard.extend([first] if snapshot else [])
            self._until, self.epoch = first.position, first.epoch
            self.position = None if snapshot else self._until
        else:
            if snapshot:
                raise TypeMismatch("A snapshot is the answer as it is now.", hint="leave out since= or snapshot=True")
            self._until = self.position = since
            self.epoch = since if isinstance(since, int) else 0
        self._closed = threading.Event()
        self._away_since: float | None = None
        """Since when no server answers, on the monotonic clock."""

    def __repr__(self) -> str:
        return f"<Subscription to '{self.name}', position {self.position}{', closed' if self.closed else ''}>"

    def next(self, seconds: float | None = None) -> Delta | None:
        """The next delta; None when there is none for so long, or the subscription is closed. A server that is away is
        waited for, a minute at most.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._closed.is_set():
            while self._heard:
                delta = self._heard.popleft()
                self.position, self.epoch = delta.position, delta.epoch
                if self._progress or not delta.progress:
                    return delta
            left = _PATIENCE_SECONDS if deadline is None else deadline - time.monotonic()
            patience = max(min(left, _PATIENCE_SECONDS), 0.0)
            try:
                told = self._database.changes(self.name, since=self._until, seconds=patience, options=self._options)
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
            moved = told[-1].position != self._until
            self._until = told[-1].position
            self._heard.extend(each for each in told if not each.progress or moved)
            if told[-1].progress and len(told) == 1:
                if not moved or not self._progress:
                    self._heard.clear()
                    self.position, self.epoch = told[-1].position, told[-1].epoch
                if left <= 0 and not self._heard:
                    return None
        return None

    @property
    def closed(self) -> bool:
        """Whether it was ended."""
        return self._closed.is_set()

    def close(self) -> None:
        """Let whoever waits for the next delta go."""
        self._closed.set()

    def call(self, callback: Callable[[Delta], object]) -> Listener:
        """Call back with each delta, in a thread of its own, until the subscription is closed.

        A delta counts as told when the call returns, and the listener's `position` moves on then: one that raised is
        told again to whoever subscribes since that.
        """
        return Listener(self, callback)

    def to_spark(self, session: SparkSession, write: Callable[[DataFrame, int], object]) -> Listener:
        """Call back with the rows that each delta inserts, as a Spark DataFrame, and its epoch, as foreachBatch does
        with its batches. Rows that went are not told: subscribe with `call` to hear of them.

        After a crash the last delta may come again, with the same epoch: a sink that is to have it once looks at that.
        """
        from ladle.pipeline.spark import frame_of

        def told(delta: Delta) -> None:
            if len(delta.inserted):
                write(frame_of(session, delta.inserted), delta.epoch)

        return self.call(told)

    def __iter__(self) -> Iterator[Delta]:
        while (delta := self.next()) is not None:
            yield delta

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Listener:
    """A subscription that calls back."""

    def __init__(self, subscription: Subscription, callback: Callable[[Delta], object]) -> None:
        self._subscription = subscription
        self._callback = callback
        self.position = subscription.position
        """Up to where everything was told."""
        self.epoch = subscription.epoch
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
                delta = self._subscription.next(_PATIENCE_SECONDS)
                if delta is not None:
                    self._callback(delta)
                self.position, self.epoch = self._subscription.position, self._subscription.epoch
        except Exception as error:
            _log.warning("a listener of %s is ended: %s", self._subscription.name, error)
            self.error = error

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Query:
    """The handle of a standing query. It stays good while the client is away, also in another process."""

    def __init__(self, database: Answering, name: str, sql_text: str, materialize: Materialize) -> None:
        self._database = database
        self.name = name
        self.sql = sql_text
        self.materialize = materialize.value

    def invoke(self, *, now: datetime | str | None = None) -> Answer:
        """The answer over the current window, or over the window as it would be at another NOW."""
        return self._database.invoke(self.name, now=now)

    def subscribe(
        self,
        since: int | str | None = None,
        *,
        snapshot: bool = False,
        expirations: str = "retract",
        relation: str = "changes",
        progress: bool = False,
    ) -> Subscription:
        """What changes after a position (`delta.position`, or the number of an epoch), delta by delta; without it, from
        now on.

        With `snapshot` the first delta is the answer as it is now. With expirations="out" rows carry when they will
        leave, in `delta.inserted_out`, and those that do leave then are not told again. `relation` is "changes",
        "istream" (insertions alone), "dstream" (deletions alone) or "rstream" (the whole answer each time).
        """
        options = ChangeOptions.of(expirations, relation)
        return Subscription(
            self._database, self.name, since=since, snapshot=snapshot, options=options, progress=progress
        )

    def explain(self, *, analyze: bool = False) -> str:
        """How it is answered; with `analyze` it is invoked too, to say what that takes."""
        return self._database.explain(self.name, analyze=analyze)

    def explain_tree(self, *, analyze: bool = False) -> PlanTree | None:
        """The tree of its plan: nodes with what `explain` says of them, and their children. None if it is broken, or
        made of queries that the caller does not see. With `analyze` each node is run and measured.
        """
        return self._database.explain_tree(self.name, analyze=analyze)

    def unregister(self) -> None:
        """Drop the query."""
        self._database.unregister(self.name)

    def __repr__(self) -> str:
        return f"Query({self.name!r}, {self.sql!r})"
