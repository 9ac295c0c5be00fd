"""What the binder asks of the catalog: which names exist, and what they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ladle.plan import Function
from ladle.schema import StreamSchema, TableSchema


class Names(Protocol):
    """Lookups ignore case and return None for what is not there. What one object answers never changes."""

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        """The declared name and schema; `trades.quarantine` is a stream too."""
        ...

    def table_schema(self, name: str) -> tuple[str, TableSchema] | None:
        """The declared name and schema of a table."""
        ...

    def query_sql(self, name: str) -> tuple[str, str] | None:
        """The declared name and the text of a standing query."""
        ...

    def inside(self, query: str) -> Names:
        """What the text of a standing query was bound to, as far as that differs: its owner may see more, or less."""
        ...

    def function(self, name: str) -> Function | None:
        """A user's function, as it is now."""
        ...

    def stream_names(self) -> Iterable[str]:
        """The names of the streams; inside of a standing query, of those that it reads."""
        ...

    def table_names(self) -> Iterable[str]:
        """The names of the tables; inside of a standing query, of those that it reads."""
        ...

    def query_names(self) -> Iterable[str]:
        """The names of the standing queries, for errors."""
        ...

    def function_names(self) -> Iterable[str]:
        """The names of the functions, for errors."""
        ...
