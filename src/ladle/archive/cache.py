"""Decoded columns of segments, kept in memory while there is room. What is read for it is verified."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ladle.archive.checks import Checks, parse_footer, telling_damage
from ladle.archive.segments import opened_file, read_group
from ladle.columns import to_numpy

_FOOTERS_MAX = 512


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class LastFile(threading.local):
    """The file that a thread read last, still open: the next segment that it reads is likely one of that file."""

    name: str | None = None
    file: pq.ParquetFile | None = None


class CachedColumn:
    """One decoded column of a segment, in one piece."""

    __slots__ = ("_ascending", "array", "nbytes", "values")

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        # Arrow's own sum takes longer: it asks what of each buffer is used, and here all is.
        self.nbytes: int = sum(buffer.size for buffer in self.array.buffers() if buffer is not None)
        self.values: npt.NDArray[Any] | None = None
        """The same memory for NumPy, when every value has the same width and none is NULL."""
        if self.array.null_count == 0:
            if pa.types.is_decimal128(self.array.type):
                count, offset = len(self.array), self.array.offset * 16
                self.values = np.frombuffer(self.array.buffers()[1] or b"", np.dtype("V16"), count, offset)
            elif pa.types.is_primitive(self.array.type) and not pa.types.is_boolean(self.array.type):
                self.values = to_numpy(self.array)
        self._ascending: bool | None = None

    @property
    def ascending(self) -> bool:
        """Whether no value is less than the one before it; for columns that have `values`."""
        if self._ascending is None:
            values = self.values
            self._ascending = values is not None and bool((values[1:] >= values[:-1]).all())
        return self._ascending


_ONCE_MAX = 1 << 16


class SegmentCache:
    """Decoded columns, kept while there is room; those not used for longest go first.

    A scan that looks at much for little (`once`) does not fill it: what such scans read is kept from the second time
    on, and until then its memory is used again for the next segment. Thread-safe. Files are known by their names, which
    are unique in a warehouse.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._columns: OrderedDict[tuple[str, int, str], CachedColumn] = OrderedDict()
        self._by_file: dict[str, set[tuple[int, str]]] = {}
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._once: OrderedDict[tuple[str, int, str], None] = OrderedDict()
        """What was read, and not kept."""
        self._asked: dict[tuple[str, int], tuple[tuple[str, ...], list[CachedColumn]]] = {}
        """By segment, what was last asked for, if all of it is kept: most ask for the same."""
        self._asked_again: dict[tuple[str, int], None] = {}
        """Segments whose columns were used since they were moved to the end, in the order of their use."""
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def columns(
        self,
        directory: str | Path,
        name: str,
        row_group: int,
        columns: tuple[str, ...],
        schema: pa.Schema,
        *,
        checks: Checks | None = None,
        once: bool = False,
        last: LastFile | None = None,
    ) -> list[CachedColumn]:
        """One segment's columns, one by one; the list is not the caller's to change."""
        segment = (name, row_group)
        with self._lock:
            asked = self._asked.get(segment)
            if asked is not None and asked[0] == columns:
                self.hits += len(columns)
                self._asked_again.pop(segment, None)
                self._asked_again[segment] = None
                return asked[1]
            self._note_uses()
            found = [self._columns.get((name, row_group, column)) for column in columns]
            missing = [column for column, known in zip(columns, found, strict=True) if known is None]
            self.hits += len(columns) - len(missing)
            self.misses += len(missing)
            for column, known in zip(columns, found, strict=True):
                if known is not None:
                    self._columns.move_to_end((name, row_group, column))
            if not missing:
                whole: list[CachedColumn] = found  # type: ignore[assignment]
                if columns:
                    self._asked[segment] = (columns, whole)
                return whole
        # Read outside the lock: two threads may read the same segment, none waits for another's disk.
        path = Path(directory) / name
        with telling_damage(path):
            table = read_group(self._open(path, name, checks, last), row_group, missing, schema, path)
        read = {column: CachedColumn(_in_one_piece(table.column(column))) for column in missing}
        with self._lock:
            for column in missing:
                if not once or self._is_known(name, row_group, column):
                    self._keep(name, row_group, column, read[column])
        return [read[column] if known is None else known for column, known in zip(columns, found, strict=True)]

    def drop(self, name: str) -> None:
        """Forget a file, because it was compacted away or its stream dropped."""
        with self._lock:
            self._footers.pop(name, None)
            for row_group, column in self._by_file.pop(name, set()):
                self.bytes -= self._columns.pop((name, row_group, column)).nbytes
                self._asked.pop((name, row_group), None)
                self._asked_again.pop((name, row_group), None)

    def _note_uses(self) -> None:
        """What was used since has its place in the order."""
        for segment in self._asked_again:
            for column in self._asked[segment][0]:
                self._columns.move_to_end((*segment, column))
        self._asked_again.clear()

    def _is_known(self, name: str, row_group: int, column: str) -> bool:
        """Whether it was read before, and not kept; if not, that is remembered."""
        key = (name, row_group, column)
        if key in self._once:
            del self._once[key]
            return True
        self._once[key] = None
        if len(self._once) > _ONCE_MAX:
            self._once.popitem(last=False)
        return False

    def _keep(self, name: str, row_group: int, column: str, values: CachedColumn) -> None:
        key = (name, row_group, column)
        if values.nbytes > self._bytes_max or key in self._columns:
            return
        self._note_uses()
        self._columns[key] = values
        self._by_file.setdefault(name, set()).add((row_group, column))
        self.bytes += values.nbytes
        while self.bytes > self._bytes_max:
            (old_name, old_group, old_column), old_values = self._columns.popitem(last=False)
            self.bytes -= old_values.nbytes
            self._asked.pop((old_name, old_group), None)
            keys = self._by_file[old_name]
            keys.discard((old_group, old_column))
            if not keys:
                del self._by_file[old_name]

    def _open(self, path: Path, name: str, checks: Checks | None, last: LastFile | None) -> pq.ParquetFile:
        if last is not None and last.name == name and last.file is not None:
            return last.file
        file = opened_file(path, self._footer(path, name, checks))
        if last is not None:
            last.name, last.file = name, file
        return file

    def _footer(self, path: Path, name: str, checks: Checks | None) -> pq.FileMetaData:
        """Verified and parsed once, though a compacted file is read segment by segment."""
        with self._lock:
            footer = self._footers.get(name)
            if footer is not None:
                self._footers.move_to_end(name)
                return footer
        footer = parse_footer(path, checks)
        with self._lock:
            self._footers[name] = footer
            while len(self._footers) > _FOOTERS_MAX:
                self._footers.popitem(last=False)
        return footer
