"""What a database hands out: streams as they were when asked for, and the handles of standing queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ladle.answer import Answer
from ladle.schema import StreamSchema
from ladle.sql.statements import Materialize


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

    def explain(self, text: str) -> str: ...

    def unregister(self, name: str) -> None: ...


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

    def explain(self) -> str:
        return self._database.explain(self.name)

    def unregister(self) -> None:
        self._database.unregister(self.name)

    def __repr__(self) -> str:
        return f"Query({self.name!r}, {self.sql!r})"
