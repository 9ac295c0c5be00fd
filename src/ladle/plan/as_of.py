"""AS OF: the moment of the past at which one mention of a stream or table is read.

A time is that scan's NOW, and of a table the version that was committed by then. An entry of the log is what had been
committed up to it, at the NOW that followed from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ladle.clock import to_datetime
from ladle.json_values import Json, JsonRow

NOW = "now"
"""The parameter of a bound text that is the NOW of its answer."""

_AS_OF = "as_of_"

Nows = Mapping[str, int | None]
"""What the parameters of a bound text are: NOW, and NOW as of entries. None: NOW is, or was, undefined."""


@dataclass(frozen=True)
class AsOf:
    """Either a time or an entry of the log."""

    us: int | None = None
    entry: int | None = None
    streams: tuple[str, ...] = ()
    """NOW as of an entry is that of these streams: all that the query reads which is read as of it."""
    tables: tuple[str, ...] = ()
    """While no stream has a time of its own, NOW is when the last entry of any of these was made, or of a stream."""

    @cached_property
    def parameter(self) -> str:
        """What stands in bound texts for NOW as of this entry: whoever means the same NOW has the same name for it."""
        names = [sorted(name.lower() for name in each) for each in (self.streams, self.tables)]
        digest = hashlib.blake2b(json.dumps(names).encode(), digest_size=8).hexdigest()
        return f"{_AS_OF}{self.entry}_{digest}"

    @property
    def of_tables(self) -> AsOf:
        """What counts of it for a table, which has no NOW."""
        return AsOf(self.us, self.entry)

    def __str__(self) -> str:
        if self.us is None:
            return f"VERSION AS OF {self.entry}"
        return f"TIMESTAMP AS OF '{to_datetime(self.us).isoformat(' ').removesuffix('+00:00')}'"


def is_parameter(name: str) -> bool:
    """Whether a parameter of a bound text is NOW, or NOW as of an entry: the binder makes no others."""
    return name == NOW or name.startswith(_AS_OF)


def as_of_to_json(as_of: AsOf) -> list[Json]:
    """Encode the moment at which a relation is read."""
    return [as_of.us, as_of.entry, list(as_of.streams), list(as_of.tables)]


def as_of_from_json(value: JsonRow | None) -> AsOf | None:
    """None for plans that have none, and for those of versions that knew of none."""
    if value is None:
        return None
    us, entry, streams, tables = value
    return AsOf(us, entry, tuple(streams), tuple(tables))
