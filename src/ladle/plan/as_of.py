"""AS OF: the moment of the past at which one mention of a stream or table is read.

A time is that scan's NOW, and of a table the version that was committed by then. An entry of the log is what had been
committed up to it, at the NOW that followed from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ladle.clock import to_datetime
from ladle.json_values import Json, JsonRow


@dataclass(frozen=True)
class AsOf:
    """Either a time or an entry of the log."""

    us: int | None = None
    entry: int | None = None
    streams: tuple[str, ...] = ()
    """NOW as of an entry is that of these streams: all that the query has which is read as of it."""
    tables: tuple[str, ...] = ()
    """While no stream has a time of its own, NOW is when the last entry of any of these was made, or of a stream."""

    def __str__(self) -> str:
        if self.us is None:
            return f"VERSION AS OF {self.entry}"
        return f"TIMESTAMP AS OF '{to_datetime(self.us).isoformat(' ').removesuffix('+00:00')}'"


def as_of_to_json(as_of: AsOf) -> list[Json]:
    """Encode the moment at which a relation is read."""
    return [as_of.us, as_of.entry, list(as_of.streams), list(as_of.tables)]


def as_of_from_json(value: JsonRow | None) -> AsOf | None:
    """None for plans that have none, and for those of versions that knew of none."""
    if value is None:
        return None
    us, entry, streams, tables = value
    return AsOf(us, entry, tuple(streams), tuple(tables))
