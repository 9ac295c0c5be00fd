"""A follower of a query that has what it was told, and nothing else: a snapshot, and deltas applied to it.

It keeps rows as plain values, and shares no code with the engine. Of rows with an `out` it drops by itself those whose
time has come, up to the last NOW it was told.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.support.oracle import rows_of

from ladle.testing.one_row import AT_ONE_ROW

if TYPE_CHECKING:
    from ladle.delta import Delta
    from ladle.engine import Database

Row = tuple[Any, ...]


class Contradiction(AssertionError):
    """A delta that does not fit what was told before it."""


class Follower:
    def __init__(self, db: Database, name: str, *, expirations: str = "retract") -> None:
        self.name = name
        self.expirations = expirations
        self.deltas = 0
        self.begin(db)

    def begin(self, db: Database) -> None:
        """Start with the answer as it is now."""
        self.rows: Counter[Row] = Counter()
        self._told: dict[Row, Row] = {}
        self._leaving: list[tuple[int, Row]] = []
        self._columns: tuple[str, ...] | None = None
        with db.query(self.name).subscribe(snapshot=True, expirations=self.expirations) as changes:
            first = changes.next(0.0)
        assert first is not None, "a snapshot is told at once"
        self.apply(first)

    def catch_up(self, db: Database) -> None:
        """Hear everything that is to be told by now."""
        changes = db.query(self.name).subscribe(since=self.position, expirations=self.expirations, progress=True)
        with changes:
            while (delta := changes.next(0.0)) is not None:
                self.apply(delta)

    def answer(self) -> list[Row]:
        """The rows that are there now, as they were told."""
        return [self._told[row] for row in self.rows.elements()]

    def apply(self, delta: Delta) -> None:
        self.position = delta.position
        self.deltas += 1
        inserted, retracted = (Counter(hashable(table)) for table in (delta.inserted, delta.retracted))
        if not delta.progress:
            names = tuple(delta.inserted.column_names)
            if self._columns not in (None, names):
                raise Contradiction(f"{self.name}: columns were {self._columns}, and are {names}")
            self._columns = names
        # Rows whose time has come are gone before what else changed: a retraction is never of one of these.
        if delta.now_us is not None:
            self.rows -= Counter(row for out, row in self._leaving if out <= delta.now_us)
            self._leaving = [each for each in self._leaving if each[0] > delta.now_us]
        self.rows += inserted
        self._told.update(zip(hashable(delta.inserted), plain(delta.inserted), strict=True))
        if delta.inserted_out is not None:
            outs = delta.inserted_out.cast(pa.int64()).to_pylist()
            rows = hashable(delta.inserted)
            self._leaving += [(out, row) for out, row in zip(outs, rows, strict=True) if out is not None]
        lacking = retracted - self.rows
        if lacking:
            raise Contradiction(
                f"{self.name}: {list(lacking)[:5]} went, and was not there; there is {list(self.rows)[:5]}"
            )
        self.rows -= retracted
        for row in retracted.elements():
            # It goes before its time, or is told anew: the first that was told of its like.
            at = next((number for number, (_, each) in enumerate(self._leaving) if each == row), None)
            if at is not None:
                del self._leaving[at]


def plain(table: pa.Table) -> list[Row]:
    return rows_of(table) if table.num_columns else [()] * len(table)


def hashable(table: pa.Table) -> list[Row]:
    """Rows by which they are counted: floating numbers bit for bit, but with nine digits where Spark computes, whose
    sums depend in their last bits on the order in which it adds up.
    """
    return [tuple(map(_hashable, row)) for row in plain(table)]


def _hashable(value: Any) -> Any:
    match value:
        case float():
            return f"{value:.9g}" if AT_ONE_ROW else value.hex()
        case dict():
            return tuple(value.items())
        case list():
            return tuple(value)
    return value
