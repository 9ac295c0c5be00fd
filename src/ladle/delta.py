"""What changes in an answer between two moments, and the texts by which clients keep moments.

A *moment* is an entry of the log and a NOW: entries move an answer, and so does the passing of time. A *position* is a
moment as a text: who subscribes again since it misses nothing and is told nothing twice. A *delta* is columnar: the
rows that came and the rows that went, each an Arrow table with the query's columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import NamedTuple, TypeVar

import pyarrow as pa

from ladle.clock import FIRST_US, LAST_US, to_datetime
from ladle.errors import Gone, TypeMismatch
from ladle.schema import unique_names

_E = TypeVar("_E", bound=Enum)

_POSITION = re.compile(r"e(\d{1,18})(?:n(-?\d{1,19}))?(?:q(\d{1,18}))?", re.ASCII)
_SHOWN_MAX = 100

OUT = pa.timestamp("us", tz="UTC")
"""The type of the moments at which rows will leave."""


class Moment(NamedTuple):
    """What an answer reflects: all entries of the log up to one, at a NOW (None while that is undefined)."""

    entry: int
    now_us: int | None

    @property
    def position(self) -> str:
        """The moment as a text."""
        return f"e{self.entry}" if self.now_us is None else f"e{self.entry}n{self.now_us}"

    @staticmethod
    def parse(text: object) -> Moment:
        """The moment of a position; whatever people give for one is checked."""
        found = _POSITION.fullmatch(text) if isinstance(text, str) else None
        entry, now = (None, None) if found is None else found.group(1, 2)
        now_us = None if now is None else int(now)
        if entry is None or not (now_us is None or FIRST_US <= now_us <= LAST_US):
            raise TypeMismatch(
                f"{str(text)[:_SHOWN_MAX]!r} is no position.",
                hint="since is delta.position as it was told, or the number of an epoch",
            )
        return Moment(int(entry), now_us)

    @staticmethod
    def of_query(position: object, name: str, query_id: int) -> Moment:
        """The moment of a position that was told of this query. One of another query is refused: who kept it has the
        answer of that. Positions of older versions do not say of which query they are, and are taken.
        """
        moment, found = Moment.parse(position), _POSITION.fullmatch(str(position))
        if found is not None and found[3] not in (None, str(query_id)):
            raise Gone(
                f"Position {position} is of another query: '{name}' was replaced, or made anew, since.",
                hint="subscribe with snapshot=True, which begins with the answer as it is now",
            )
        return moment


class Expirations(Enum):
    """How a subscriber learns that rows leave because time passes."""

    RETRACT = "retract"
    """They are retracted like all others."""
    OUT = "out"
    """Rows carry the moment at which they will leave, where it is known, and are not told again then."""


class ToStream(Enum):
    """What of a query is told (CQL's relation-to-stream operators)."""

    CHANGES = "changes"
    ISTREAM = "istream"
    """Insertions alone."""
    DSTREAM = "dstream"
    """Deletions alone."""
    RSTREAM = "rstream"
    """The whole answer, as insertions, at each entry and tick."""


@dataclass(frozen=True)
class ChangeOptions:
    """How a subscriber is told of changes."""

    expirations: Expirations = Expirations.RETRACT
    relation: ToStream = ToStream.CHANGES

    def __post_init__(self) -> None:
        if self.relation is ToStream.DSTREAM and self.expirations is Expirations.OUT:
            raise TypeMismatch(
                "DSTREAM tells rows when they leave, and expirations = 'out' when they come.",
                hint="leave one of them out",
            )

    @staticmethod
    def of(expirations: str | Expirations = "retract", relation: str | ToStream = "changes") -> ChangeOptions:
        """From the words that people write."""
        return ChangeOptions(_member(Expirations, "expirations", expirations), _member(ToStream, "relation", relation))


def _member(kind: type[_E], name: str, value: str | _E) -> _E:
    try:
        return kind(value.lower() if isinstance(value, str) else value)
    except ValueError:
        words = ", ".join(f"'{each.value}'" for each in kind)
        raise TypeMismatch(f"{name} = {value!r} is not known.", hint=f"it is one of {words}") from None


@dataclass(frozen=True)
class Delta:
    """What changes in a query's answer between the position told before and this one."""

    inserted: pa.Table
    retracted: pa.Table
    entry: int
    """The log entry that the answer reflects after it."""
    epoch: int
    """The last epoch up to that entry."""
    now_us: int | None
    net: bool = False
    """Whether steps between the two positions were left out: only the difference between them is told."""
    progress: bool = False
    """Whether it tells nothing but that NOW went on."""
    inserted_out: pa.Array | None = None
    """With expirations="out": when each inserted row will leave by itself; null where that is not known."""
    query_id: int | None = None
    """The query whose answer it is: one that is replaced, or dropped and made anew, is another."""

    @property
    def now(self) -> datetime | None:
        """NOW of the answer after it."""
        return None if self.now_us is None else to_datetime(self.now_us)

    @property
    def position(self) -> str:
        """A text to keep, and to give as `since=`: the moment, and of which query."""
        moment = Moment(self.entry, self.now_us).position
        return moment if self.query_id is None else f"{moment}q{self.query_id}"

    def __len__(self) -> int:
        """How many rows it tells."""
        return len(self.inserted) + len(self.retracted)

    def __repr__(self) -> str:
        now = None if self.now is None else self.now.isoformat()
        rows = f"{len(self.inserted):,} inserted, {len(self.retracted):,} retracted"
        return f"<Delta: {rows}, epoch {self.epoch}, now {now}, position {self.position}>"

    def __bool__(self) -> bool:
        """Always true: one without rows still carries NOW on."""
        return True


CHANGE_FIELDS = (pa.field("_change", pa.int32()), pa.field("_now", OUT), pa.field("_out", OUT))
"""What stands before a query's columns: +1 or -1, NOW of the answer after it, and when the row will leave by itself."""


def change_names(columns: Sequence[str]) -> list[str]:
    """The names of what is told, before a query's columns and with them: a column `_now` of the query is `_now_1`."""
    return unique_names([*(field.name for field in CHANGE_FIELDS), *columns])


def change_rows(delta: Delta) -> pa.Table:
    """The rows of a delta: first those that went, then those that came. One that only carries NOW on has one row, with
    0 and the time.
    """
    if delta.progress:
        empty = change_rows(replace(delta, progress=False))
        values = [0, delta.now, *[None] * (len(empty.schema) - 2)]
        arrays = [pa.array([value], field.type) for value, field in zip(values, empty.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=empty.schema)
    gone, come = delta.retracted, delta.inserted
    rows = pa.concat_tables([gone, come]) if len(gone) and len(come) else gone if len(gone) else come
    signs = [-1] * len(gone) + [1] * len(come)
    outs = pa.nulls(len(come), OUT) if delta.inserted_out is None else delta.inserted_out.cast(OUT)
    before = [
        pa.array(signs, pa.int32()),
        pa.repeat(pa.scalar(delta.now_us, pa.int64()), len(delta)).cast(OUT),
        pa.concat_arrays([pa.nulls(len(gone), OUT), outs]),
    ]
    fields, names = [*CHANGE_FIELDS, *rows.schema], change_names(rows.column_names)
    schema = pa.schema([field.with_name(name) for field, name in zip(fields, names, strict=True)])
    return pa.Table.from_arrays([*before, *rows.columns], schema=schema)
