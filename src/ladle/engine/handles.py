"""What a database hands out: streams as they were when asked for, and the handles of standing queries."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ladle.answer import Answer
from ladle.schema import StreamSchema
from ladle.sql.statements import Materialize

_PATIENCE_SECONDS = 0.5
"""How long one look for changes takes at most; after it a subscription sees whether it was closed."""


@dataclass(frozen=True)
class Stream:
    """A stream, as it was when asked for."""

    name: str
    schema: StreamSchema
    retain_us: int | None
    rows: int
    epochs: int


class Asked(Protocol):
    """What answers for a query: a database here, or one reached through another process."""

    def invoke(self, name: str, *, now: datetime | str | None = None) -> Answer: ...

    def changes(self, name: str, *, since: int | None = None, seconds: float = 0.0) -> tuple[Answer | None, int]: ...

    def explain(self, text: str) -> str: ...

    def unregister(self, name: str) -> None: ...


class Subscription:
    """The rows that each epoch adds to a query's answer: an Answer for each epoch that adds any, in order.

    Iterating waits for the next one, until `close`. `epoch` is how far it has told: subscribing again since then, in
    this process or another, misses nothing and repeats nothing. It holds nothing in the database.
    """

    def __init__(self, database: Asked, name: str, since: int | None) -> None:
        self._database = database
        self.name = name
        _, self.epoch = database.changes(name, since=since) if since is None else (None, since)
        self._closed = threading.Event()

    def next(self, seconds: float | None = None) -> Answer | None:
        """The next change; None when there is none for so long, or the subscription is closed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._closed.is_set():
            left = _PATIENCE_SECONDS if deadline is None else deadline - time.monotonic()
            answer, self.epoch = self._database.changes(
                self.name, since=self.epoch, seconds=max(min(left, _PATIENCE_SECONDS), 0.0)
            )
            if answer is not None or left <= 0:
                return answer
        return None

    def close(self) -> None:
        """Let whoever waits for the next change go."""
        self._closed.set()

    def __iter__(self) -> Iterator[Answer]:
        while (answer := self.next()) is not None:
            yield answer

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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

    def explain(self) -> str:
        return self._database.explain(self.name)

    def unregister(self) -> None:
        self._database.unregister(self.name)

    def __repr__(self) -> str:
        return f"Query({self.name!r}, {self.sql!r})"
