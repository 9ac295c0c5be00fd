"""The timeline of an object: what each log entry made of it, for as long as positions are promised.

A record says how many tuples a stream had after an entry, its clock and whether it was idle, or which version a table
was at. Records are
appended, one per entry that changed the object, and found by entry or epoch. All is immutable: the last records are a
tuple, and those before are in *chunks*, each compressed once, when it is full, into the text that checkpoints write. So
an append copies a few hundred references at most, a checkpoint encodes nothing twice, and opening decodes nothing.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ladle.json_values import Json, JsonRow

CHUNK_RECORDS = 512


class ClockAt(NamedTuple):
    """A stream's clock at one entry of the log, and whether the stream was idle."""

    clock_us: int
    idle_since: int
    """The epoch in which it became idle; 0: it is active."""


class Record(NamedTuple):
    """An object after an entry."""

    entry: int
    epoch: int
    total: int
    """Tuples ever accepted, or the version."""
    clock_us: int | None
    """The stream's clock; None for a table, and for a stream without tuples."""
    at_us: int
    """The wall clock when the entry was made; 0 for entries of versions that did not say."""
    idle_since: int = 0
    """The epoch in which the stream became idle; 0: it is active."""

    @property
    def clock(self) -> ClockAt | None:
        """The stream's clock then, and since when it was idle; None if it had no clock."""
        return None if self.clock_us is None else ClockAt(self.clock_us, self.idle_since)


NOTHING = Record(0, 0, 0, None, 0)
"""Every object before its first record."""

_NO_CLOCK = np.iinfo(np.int64).min
_ENTRY, _EPOCH = 0, 1
"""The columns that records are found by; both ascend."""


@dataclass(frozen=True)
class RecordChunk:
    """Records that are kept together, as text: zlib of the differences, column by column."""

    first: tuple[int, int]
    """Entry and epoch of the first of them."""
    text: str

    @staticmethod
    def of(records: Sequence[Record]) -> RecordChunk:
        """Pack records: numbers that grow slowly take little room as differences."""
        rows = [[_NO_CLOCK if value is None else value for value in record] for record in records]
        columns = np.array(rows, dtype="<i8").T
        columns[:, 1:] -= columns[:, :-1].copy()
        text = base64.b64encode(zlib.compress(columns.tobytes())).decode()
        return RecordChunk(records[0][:2], text)

    @cached_property
    def _columns(self) -> npt.NDArray[np.int64]:
        flat = np.frombuffer(zlib.decompress(base64.b64decode(self.text)), dtype="<i8")
        return flat.reshape(len(Record._fields), -1).cumsum(axis=1)

    def after(self, column: int, value: int) -> list[Record]:
        """The records in which a column that ascends is above a value."""
        columns = self._columns
        rows = columns[:, columns[column].searchsorted(value, side="right") :].T.tolist()
        return [_record(row) for row in rows]

    def last(self, column: int, value: int) -> Record:
        """The last record in which a column that ascends is not above a value; the first one is not."""
        columns = self._columns
        return _record(columns[:, columns[column].searchsorted(value, side="right") - 1].tolist())


def _record(row: Sequence[int]) -> Record:
    entry, epoch, total, clock_us, at_us, idle_since = row
    return Record(entry, epoch, total, None if clock_us == _NO_CLOCK else clock_us, at_us, idle_since)


@dataclass(frozen=True)
class Timeline:
    """The records of one object in the order of the log."""

    base: Record = NOTHING
    """The object as of the first position that is promised; nothing is known of entries before it."""
    chunks: tuple[RecordChunk, ...] = ()
    tail: tuple[Record, ...] = ()

    def appended(self, record: Record) -> Timeline:
        """The same timeline with one more record."""
        tail = (*self.tail, record)
        if len(tail) < CHUNK_RECORDS:
            return Timeline(self.base, self.chunks, tail)
        return Timeline(self.base, (*self.chunks, RecordChunk.of(tail)))

    def at(self, entry: int) -> Record:
        """The object as of an entry; of one before the base, which is not known, the base."""
        return self._last(_ENTRY, entry)

    def at_epoch(self, epoch: int) -> Record:
        """The object as of an epoch."""
        return self._last(_EPOCH, epoch)

    def __iter__(self) -> Iterator[Record]:
        return self.after(-1)

    def after(self, entry: int) -> Iterator[Record]:
        """The records of the entries after one, in order."""
        for chunk in self.chunks[max(self._chunk(_ENTRY, entry), 0) :]:
            yield from chunk.after(_ENTRY, entry)
        yield from self.tail[bisect_right(self.tail, entry, key=itemgetter(_ENTRY)) :]

    def pruned(self, entry: int) -> Timeline:
        """Without the records before the one that a position at an entry needs."""
        base = self.at(entry)
        if base.entry <= self.base.entry:
            return self
        number = self._chunk(_ENTRY, entry)
        cut = self.chunks[number].after(_ENTRY, entry) if number >= 0 else []
        chunks = (*([RecordChunk.of(cut)] if cut else []), *self.chunks[number + 1 :])
        return Timeline(base, chunks, self.tail[bisect_right(self.tail, entry, key=itemgetter(_ENTRY)) :])

    def _last(self, column: int, value: int) -> Record:
        found = bisect_right(self.tail, value, key=itemgetter(column))
        if found:
            return self.tail[found - 1]
        number = self._chunk(column, value)
        return self.chunks[number].last(column, value) if number >= 0 else self.base

    def _chunk(self, column: int, value: int) -> int:
        """The number of the last chunk that begins at or before a value; -1 when there is none."""
        return bisect_right(self.chunks, value, key=lambda chunk: chunk.first[column]) - 1

    def to_json(self) -> list[Json]:
        """Encode a timeline for a checkpoint."""
        chunks: list[Json] = [[*chunk.first, chunk.text] for chunk in self.chunks]
        return [list(self.base), chunks, [list(record) for record in self.tail]]

    @staticmethod
    def from_json(value: JsonRow) -> Timeline:
        """Decode a timeline from a checkpoint."""
        base, chunks, tail = value
        kept = tuple(RecordChunk((entry, epoch), text) for entry, epoch, text in chunks)
        return Timeline(Record(*base), kept, tuple(Record(*each) for each in tail))
