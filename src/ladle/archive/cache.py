"""Decoded columns of segments, kept in memory while there is room. What is read for it is verified."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ladle.archive.checks import Checks, parse_footer, telling_damage
from ladle.archive.footers import Footer
from ladle.archive.segments import opened_file, read_group
from ladle.columns import AnyArray, to_numpy
from ladle.derived import Derived, Shelf, ShelfThing

_FOOTERS_MAX = 512


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class LastFile(threading.local):
    """The file that a thread read last, still open: the next segment that it reads is likely one of that file."""

    name: str | None = None
    file: pq.ParquetFile | None = None

    def close(self) -> None:
        """Close the file that is open, if there is one."""
        file, self.name, self.file = self.file, None, None
        if file is not None:
            file.close()


class Counts:
    """What was read by somebody. It is counted under the lock of the cache that was read through."""

    __slots__ = ("bytes_cached", "bytes_read", "segments", "segments_skipped")

    def __init__(self) -> None:
        self.bytes_read = 0
        """From files, as they are stored."""
        self.bytes_cached = 0
        """Decoded, from memory."""
        self.segments: set[tuple[str, int]] = set()
        """Those that something was read of from files."""
        self.segments_skipped = 0
        """Those that hold nothing that is wanted, by their least and greatest values."""


class CachedColumn:
    """One decoded column of a segment, in one piece."""

    __slots__ = ("_ascending", "array", "nbytes", "values")

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        # Arrow's own sum takes longer: it asks what of each buffer is used, and here all is.
        self.nbytes: int = sum(buffer.size for buffer in self.array.buffers() if buffer is not None)
        self.values: AnyArray | None = None
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

_Key = tuple[str, int, str]
"""A file's name, a row group, a column."""


class _LastColumns(NamedTuple):
    """What was last asked for of a segment, all of it kept."""

    names: tuple[str, ...]
    columns: list[CachedColumn]
    held: list[ShelfThing[CachedColumn]]
    bytes: int


class SegmentCache:
    """Decoded columns, kept while the budget of memory lets them (`ladle.derived`): each column is a thing.

    A scan that looks at much for little (`once`) does not fill it: what such scans read is kept from the second time
    on, and until then its memory is used again for the next segment. Thread-safe. Files are known by their names, which
    are unique in a warehouse.
    """

    def __init__(self, derived: Derived) -> None:
        self._clock = derived.clock
        self._lock = threading.Lock()
        self._columns: Shelf[_Key, CachedColumn] = Shelf(
            "cache", derived, rebuilt="read again when asked", dropped=self._forget
        )
        self._by_file: dict[str, set[tuple[int, str]]] = {}
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self._once: OrderedDict[_Key, None] = OrderedDict()
        """What was read, and not kept."""
        self._asked: dict[tuple[str, int], _LastColumns] = {}
        """By segment: most ask for the same as the one before. Looked up without the lock, so what is there is
        replaced, and never changed.
        """
        self.hits = 0
        self.misses = 0
        self.bytes_read = 0
        """From files, by all."""
        self.bytes_served = 0
        """From memory, to all."""
        self.segments_skipped = 0

    @property
    def bytes(self) -> int:
        """How many bytes the cached columns take."""
        return self._columns.bytes

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
        counts: Counts | None = None,
    ) -> list[CachedColumn]:
        """One segment's columns, one by one; the list is not the caller's to change."""
        asked = self._asked.get((name, row_group))
        if asked is not None and asked.names == columns:
            self.hits += len(columns)
            self.bytes_served += asked.bytes
            if counts is not None:
                counts.bytes_cached += asked.bytes
            now = self._columns.used = self._clock()
            for held in asked.held:
                held.used = now
            return asked.columns
        found = self._find(name, row_group, columns, counts)
        missing = [column for column, known in zip(columns, found, strict=True) if known is None]
        if not missing:
            return found  # type: ignore[return-value]
        # Read outside the lock: two threads may read the same segment, none waits for another's disk.
        began = self._clock()
        path = Path(directory) / name
        with telling_damage(path):
            footer = self._footer(path, name, checks)
            file = self._open(path, name, footer, last)
            table = read_group(file, footer.names, row_group, missing, schema, path)
            size = footer.bytes_of(row_group, missing)
        read = {column: CachedColumn(_in_one_piece(table.column(column))) for column in missing}
        seconds = (self._clock() - began) / max(sum(column.nbytes for column in read.values()), 1)
        with self._lock:
            self.bytes_read += size
            if counts is not None:
                counts.bytes_read += size
                counts.segments.add((name, row_group))
            for column, values in read.items():
                if not once or self._is_known(name, row_group, column):
                    self._keep((name, row_group, column), values, seconds * values.nbytes)
        self._columns.settle()
        return [read[column] if known is None else known for column, known in zip(columns, found, strict=True)]

    def footer(
        self, directory: str | Path, name: str, row_group: int, columns: tuple[str, ...], checks: Checks | None
    ) -> Footer | None:
        """A file's footer; None when it would have to be read, and these columns of a segment need not be."""
        with self._lock:
            known = self._footers.get(name)
            if known is not None:
                return known
            if all(self._columns.find((name, row_group, column)) is not None for column in columns):
                return None
        path = Path(directory) / name
        with telling_damage(path):
            return self._footer(path, name, checks)

    def stored_bytes(
        self, directory: str | Path, name: str, row_group: int, columns: tuple[str, ...], checks: Checks | None
    ) -> int:
        """What columns of a segment take in its file, which is not read but for its footer."""
        path = Path(directory) / name
        with telling_damage(path):
            return self._footer(path, name, checks).bytes_of(row_group, columns)

    def count_skipped(self, counts: Counts) -> None:
        """Count a segment that was not read because its least and greatest values ruled it out."""
        with self._lock:
            self.segments_skipped += 1
            counts.segments_skipped += 1

    def drop(self, name: str) -> None:
        """Forget a file, because it was compacted away or its stream dropped."""
        with self._lock:
            self._footers.pop(name, None)
            for row_group, column in self._by_file.pop(name, set()):
                self._columns.pop((name, row_group, column))
                self._asked.pop((name, row_group), None)

    def _find(
        self, name: str, row_group: int, columns: tuple[str, ...], counts: Counts | None
    ) -> list[CachedColumn | None]:
        """The columns that are kept, in the order of their names."""
        with self._lock:
            held = [self._columns.find((name, row_group, column)) for column in columns]
            kept = [each for each in held if each is not None]
            self.hits += len(kept)
            self.misses += len(columns) - len(kept)
            now = self._columns.used = self._clock()
            for each in kept:
                each.used = now
            served = sum(each.value.nbytes for each in kept)
            self.bytes_served += served
            if counts is not None:
                counts.bytes_cached += served
            if kept and len(kept) == len(columns):
                asked = self._asked[name, row_group] = _LastColumns(
                    columns, [each.value for each in kept], kept, served
                )
                return list(asked.columns)
        return [None if each is None else each.value for each in held]

    def _forget(self, key: _Key) -> None:
        """A column was dropped for want of room: nothing here may hold on to it."""
        name, row_group, column = key
        with self._lock:
            self._asked.pop((name, row_group), None)
            keys = self._by_file.get(name)
            # Another thread may have read and kept it again since.
            if keys is not None and self._columns.find(key) is None:
                keys.discard((row_group, column))
                if not keys:
                    del self._by_file[name]

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

    def _keep(self, key: _Key, values: CachedColumn, seconds: float) -> None:
        if self._columns.find(key) is None and self._columns.put(key, values, values.nbytes, seconds, settle=False):
            name, row_group, column = key
            self._by_file.setdefault(name, set()).add((row_group, column))

    def _open(self, path: Path, name: str, footer: Footer, last: LastFile | None) -> pq.ParquetFile:
        if last is not None and last.name == name and last.file is not None:
            return last.file
        file = opened_file(path, footer.metadata)
        if last is not None:
            last.name, last.file = name, file
        return file

    def _footer(self, path: Path, name: str, checks: Checks | None) -> Footer:
        """Verified and parsed once, though a compacted file is read segment by segment."""
        with self._lock:
            footer = self._footers.get(name)
            if footer is not None:
                self._footers.move_to_end(name)
                return footer
        footer = Footer(parse_footer(path, checks))
        with self._lock:
            self._footers[name] = footer
            while len(self._footers) > _FOOTERS_MAX:
                self._footers.popitem(last=False)
        return footer
