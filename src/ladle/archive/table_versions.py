"""Older versions of a table as differences: each says what the version after it lacks, and what that has too much.

A table's newest version is a whole file. When it is replaced, what it needs to come back from the next one is computed
once and written down; a version to which rows were only added needs nothing but their number. Rows are compared column
by column, in Arrow and NumPy. Versions come back in their order, because the next difference counts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.checks import Checks
from ladle.archive.table_files import write_version
from ladle.columns import from_numpy, nested_texts, to_numpy

Int64s = npt.NDArray[np.int64]
_CODES_MAX = 1 << 62


@dataclass(frozen=True)
class Difference:
    """How a version comes back from another, in the order it had."""

    dropped: Int64s
    """The numbers of the rows that go, ascending."""
    places: Int64s
    """The numbers that the rows which come have afterwards, ascending."""
    rows: pa.Table
    """The rows that come."""

    @staticmethod
    def between(older: pa.Table, newer: pa.Table) -> Difference:
        """What leads from the newer version to the older."""
        columns = [_column_codes(column) for column in pa.concat_tables([older, newer]).columns]
        first, second = ([codes[part] for codes in columns] for part in (slice(len(older)), slice(len(older), None)))
        # An UPDATE leaves the other rows where they are; after anything else, rows are searched for.
        dropped = places = _changed_in_place(first, second)
        if dropped is None or places is None:
            codes = _row_codes(columns, len(older) + len(newer))
            kept_of_older, kept_of_newer = _kept(_numbered(codes[: len(older)]), _numbered(codes[len(older) :]))
            dropped, places = np.flatnonzero(~kept_of_newer), np.flatnonzero(~kept_of_older)
        return Difference(dropped, places, older.take(from_numpy(places)))

    @staticmethod
    def of_prefix(rows: int, newer: pa.Table) -> Difference:
        """What leads to a version whose rows are the first ones of the newer."""
        return Difference(np.arange(rows, len(newer)), np.arange(0), newer.schema.empty_table())

    def is_prefix(self, rows: int) -> bool:
        """Whether the older version, which has so many rows, has just the first ones of the newer."""
        return not len(self.rows) and bool((self.dropped >= rows).all())

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows of the version that this difference leads to."""
        kept = rows.filter(from_numpy(_without(len(rows), self.dropped)))
        own = _without(len(kept) + len(self.rows), self.places)
        numbers = np.empty(len(own), dtype=np.int64)
        numbers[own] = np.arange(len(kept))
        numbers[self.places] = np.arange(len(kept), len(own))
        return pa.concat_tables([kept, self.rows]).take(from_numpy(numbers))

    def inverse(self, rows: pa.Table) -> Difference:
        """What leads back to the rows that it is applied to."""
        return Difference(self.places, self.dropped, rows.take(from_numpy(self.dropped)))

    def write(self, path: Path) -> tuple[int, int, Checks]:
        """Write it as a file that `from_columns` understands: how many rows that has, its size, its checksums.

        Its first column says of a row that goes -1 - number, and of one that comes its place.
        """
        nothing = [pa.nulls(len(self.dropped), type_) for type_ in self.rows.schema.types]
        fields = file_schema(self.rows.schema)
        going = pa.Table.from_arrays([from_numpy(-1 - self.dropped), *nothing], schema=fields)
        coming = pa.Table.from_arrays([from_numpy(self.places), *self.rows.columns], schema=fields)
        size, checks = write_version(path, pa.concat_tables([going, coming]).combine_chunks())
        return len(self.dropped) + len(self.rows), size, checks

    @staticmethod
    def from_columns(columns: pa.Table) -> Difference:
        """From the first column of its file, and any of the others."""
        places = to_numpy(columns.column(0))
        going = int((places < 0).sum())
        rows = columns.slice(going).drop_columns(columns.column_names[:1])
        return Difference(-1 - places[:going], places[going:], rows)


def file_schema(table: pa.Schema) -> pa.Schema:
    """What the file of a difference holds: a column for places, by a name that the table has not, and the table's."""
    name = "_place"
    while name in {each.lower() for each in table.names}:
        name = f"_{name}"
    return pa.schema([pa.field(name, pa.int64()), *table])


class Versions:
    """The rows of a table in one version after the other. It goes back and forth, a difference at a time."""

    def __init__(self, newest: pa.Table, version: int, read: Callable[[int, pa.Table], Difference]) -> None:
        """`read` gives what leads to a version from the rows of the next."""
        self._rows = newest
        self._version = version
        self._read = read
        self._back: list[Difference] = []
        """What leads from here to the newest version; the nearest is last."""

    def at(self, version: int) -> pa.Table:
        """All rows of a version. Going back is cheapest one version after the other."""
        while self._version > version:
            self._version -= 1
            difference = self._read(self._version, self._rows)
            self._back.append(difference.inverse(self._rows))
            self._rows = difference.apply(self._rows)
        while self._version < version:
            self._version += 1
            self._rows = self._back.pop().apply(self._rows)
        return self._rows


def _without(count: int, numbers: Int64s) -> npt.NDArray[np.bool_]:
    kept = np.ones(count, dtype=np.bool_)
    kept[numbers] = False
    return kept


def _kept(older: Int64s, newer: Int64s) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows of two versions, without equal ones in either, are in both and in the same order."""
    _, of_older, of_newer = np.intersect1d(older, newer, assume_unique=True, return_indices=True)
    order = np.argsort(of_newer)
    of_older, of_newer = of_older[order], of_newer[order]
    # Of rows that changed places those stay that come after all that stay before them.
    ascending = of_older == np.maximum.accumulate(of_older)
    return ~_without(len(older), of_older[ascending]), ~_without(len(newer), of_newer[ascending])


def _changed_in_place(older: Sequence[Int64s], newer: Sequence[Int64s]) -> Int64s | None:
    """Which rows are not the same at the same place, if there are as many and most of them are the same."""
    if len(older[0]) != len(newer[0]):
        return None
    equal = np.logical_and.reduce([one == other for one, other in zip(older, newer, strict=True)])
    return np.flatnonzero(~equal) if int(equal.sum()) * 2 >= len(equal) else None


def _row_codes(columns: Sequence[Int64s], rows: int) -> Int64s:
    """A number below that of all rows for each row; two are equal where the rows are."""
    codes, most = np.zeros(rows, dtype=np.int64), 1
    for own in columns:
        distinct = int(own.max(initial=0)) + 1
        if most * distinct >= _CODES_MAX:
            codes, most = _renumbered(codes), rows
        codes, most = codes * distinct + own, most * distinct
    return _renumbered(codes)


def _renumbered(codes: Int64s) -> Int64s:
    return np.unique(codes, return_inverse=True)[1]


def _column_codes(column: pa.ChunkedArray) -> Int64s:
    """A number for each value; two are equal where the values are."""
    array = column.combine_chunks()
    if pa.types.is_nested(array.type):
        array = nested_texts(array)
    elif pa.types.is_floating(array.type):
        # By their bits: -0.0 is not 0.0, and NaN is NaN.
        array = array.view(pa.int64() if pa.types.is_float64(array.type) else pa.int32())
    return to_numpy(array.dictionary_encode(null_encoding="encode").indices).astype(np.int64)


def _numbered(codes: Int64s) -> Int64s:
    """Codes that say which of the equal ones each is, so that bags are compared as sets."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    numbers = np.arange(len(codes))
    begins = np.ones(len(codes), dtype=np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(begins, numbers, 0))
    found = np.empty(len(codes), dtype=np.int64)
    found[order] = ordered * (1 << 32) + numbers - first
    return found
