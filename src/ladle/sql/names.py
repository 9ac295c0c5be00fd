"""What the binder asks of the catalog: which names exist, and what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ladle.errors import LISTED_MAX, Position, UnknownName, did_you_mean, nearest
from ladle.plan import Function
from ladle.schema import StreamSchema, TableSchema

QUARANTINE = "quarantine"


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


def mentioned_stream(names: Names, parts: Sequence[str]) -> tuple[str, StreamSchema] | None:
    """The stream, or its quarantine, that a name in FROM means; or None."""
    if len(parts) == 1 or (len(parts) == 2 and parts[1].lower() == QUARANTINE):
        return names.stream_schema(".".join(parts))
    return None


def _counted(number: int, kind: str) -> str:
    one = kind.removesuffix("ies") + "y" if kind.endswith("ies") else kind.removesuffix("s")
    return f"{number:,} {kind if number != 1 else one}"


def unknown_relation(
    what: str, name: str, kinds: Mapping[str, Iterable[str]], position: Position | None
) -> UnknownName:
    """What there is instead, by kind, with the likeliest meant one as the hint; of many, the nearest."""
    known = {kind: sorted(names) for kind, names in kinds.items()}
    every = [each for names in known.values() for each in names]
    near = nearest(name, every)
    hint = did_you_mean(near)
    if len(every) <= LISTED_MAX:
        listed = " ".join(f"{kind}: {', '.join(names)}." for kind, names in known.items() if names)
        hint = hint or (None if every else "make a stream with CREATE STREAM")
    elif near:
        listed = f"Near ones: {', '.join(near)}."
    else:
        counts = [_counted(len(names), kind.lower()) for kind, names in known.items() if names]
        listed = f"There are {' and '.join([', '.join(counts[:-1]), counts[-1]] if counts[1:] else counts)}."
        hint = " and ".join(f"SHOW {kind.upper()}" for kind, names in known.items() if names) + " list them"
    return UnknownName(f"There is no {what} '{name}'. {listed or 'There are none yet.'}", hint=hint, position=position)
