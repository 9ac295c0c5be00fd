"""Immutable columnar segments: row groups of Parquet files that other tools can open.

A file is one task's share of an epoch, cut into segments of `rows_max` tuples; compaction concatenates
neighbouring files and keeps the epochs' boundaries in the footer. A file gets its name only when it is whole
and on disk, and counts only once the log names it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ladle.archive.files import fsync_file, publish, storage_error, temporary_path
from ladle.columns import to_numpy
from ladle.errors import TypeMismatch, WarehouseError

EPOCHS_KEY = "ladle.epochs"
"""Footer key of a compacted file: JSON [[epoch, rows], ...] in the order of the rows."""

# Measured on groups of 65,536 rows (ints, doubles, strings): lz4 11 ms and 2.8 MB, snappy 13 and 2.8, zstd
# 17 and 2.0; dictionaries on every column 27 and 3.3, so only repetitive strings get one.
_CODEC = "lz4"
_DICTIONARY_SAMPLE_ROWS = 2_048
_DICTIONARY_DISTINCT_MAX = 0.3
_FOOTERS_MAX = 512

_T = TypeVar("_T")


@dataclass(frozen=True)
class Segment:
    """One row group."""

    rows: int
    ts_min_us: int
    ts_max_us: int


@dataclass(frozen=True)
class WrittenFile:
    """What a task hands back; the commit makes a `DataFile` of it."""

    name: str
    bytes: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class DataFile:
    """A committed file of a stream's archive."""

    name: str
    bytes: int
    level: int
    epoch_first: int
    epoch_last: int
    segments: tuple[Segment, ...]

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    @property
    def ts_min_us(self) -> int:
        return min(segment.ts_min_us for segment in self.segments)

    @property
    def ts_max_us(self) -> int:
        return max(segment.ts_max_us for segment in self.segments)

    def to_json(self) -> list[Any]:
        segments = [[segment.rows, segment.ts_min_us, segment.ts_max_us] for segment in self.segments]
        return [self.name, self.bytes, self.level, self.epoch_first, self.epoch_last, segments]

    @staticmethod
    def from_json(value: Sequence[Any]) -> DataFile:
        name, size, level, epoch_first, epoch_last, segments = value
        return DataFile(name, size, level, epoch_first, epoch_last, tuple(Segment(*segment) for segment in segments))


class SegmentWriter:
    """Cuts what it is given into segments of exactly `rows_max` tuples; the last one may be shorter."""

    def __init__(
        self,
        directory: Path,
        name: str,
        schema: pa.Schema,
        ts_column: str,
        *,
        rows_max: int = 65_536,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._path = directory / name
        self._temporary = temporary_path(self._path)
        self._schema = schema
        self._ts_column = ts_column
        self._rows_max = rows_max
        self._metadata = dict(metadata or {})
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._segments: list[Segment] = []

    def add(self, table: pa.Table | pa.RecordBatch) -> None:
        """Columns are matched by name; those the table lacks are NULL."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if table.num_rows == 0:
            return
        self._waiting.append(conform(table, self._schema))
        self._waiting_rows += table.num_rows
        if self._waiting_rows >= self._rows_max:
            self._write_full_segments()

    def finish(self) -> WrittenFile | None:
        """Make the file durable under its name; None, and no file, when there were no rows."""
        if self._waiting_rows:
            self._write(pa.concat_tables(self._waiting))
            self._waiting, self._waiting_rows = [], 0
        writer, self._writer = self._writer, None
        if writer is None:
            return None
        with self._all_or_nothing():
            if self._metadata:
                writer.add_key_value_metadata(self._metadata)
            writer.close()
            fsync_file(self._temporary)
            size = self._temporary.stat().st_size
            publish(self._temporary, self._path)
        return WrittenFile(self._path.name, size, tuple(self._segments))

    def abort(self) -> None:
        """Leave nothing behind; may be called again."""
        writer, self._writer = self._writer, None
        self._waiting, self._waiting_rows = [], 0
        with contextlib.suppress(OSError, pa.ArrowException):
            if writer is not None:
                writer.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def _write_full_segments(self) -> None:
        rows = pa.concat_tables(self._waiting)
        full = rows.num_rows - rows.num_rows % self._rows_max
        for start in range(0, full, self._rows_max):
            self._write(rows.slice(start, self._rows_max))
        rest = rows.slice(full)
        self._waiting, self._waiting_rows = ([rest] if rest.num_rows else []), rest.num_rows

    def _write(self, rows: pa.Table) -> None:
        with self._all_or_nothing():
            ts = rows.column(self._ts_column)
            if ts.null_count:
                raise TypeMismatch(f"Column '{self._ts_column}' holds the tuples' time and can't be NULL.")
            bounds = pc.min_max(ts.cast(pa.int64())).as_py()
            if self._writer is None:
                self._writer = self._open(rows)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._segments.append(Segment(rows.num_rows, bounds["min"], bounds["max"]))

    def _open(self, rows: pa.Table) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            str(self._temporary),
            self._schema,
            version="2.6",
            compression=_CODEC,
            use_dictionary=_repetitive_columns(rows),
            # Times mostly ascend: their differences take a fraction of the space, and of the time to write and to read.
            column_encoding={self._ts_column: "DELTA_BINARY_PACKED"},
            write_statistics=True,
            store_schema=True,
        )

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Any:
        try:
            yield
        except OSError as error:
            self.abort()
            raise storage_error(error, self._path, "write") from error
        except BaseException:
            self.abort()
            raise


def _repetitive_columns(rows: pa.Table) -> list[str]:
    """The string columns whose first rows repeat themselves enough for a dictionary to pay."""
    sample = rows.slice(0, _DICTIONARY_SAMPLE_ROWS)
    return [
        field.name
        for field in rows.schema
        if field.type in (pa.string(), pa.binary())
        and pc.count_distinct(sample.column(field.name)).as_py() <= sample.num_rows * _DICTIONARY_DISTINCT_MAX
    ]


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, in its order and of its types; NULLs for those that are missing."""
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        if field.name in table.column_names:
            column = table.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def read_segment(path: Path, row_group: int, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    """One segment's columns, in the order asked; a column the file is older than comes back as NULLs."""
    return _with_file(path, lambda file: _read_group(file, row_group, columns, schema))


def read_file(path: Path, columns: Sequence[str], schema: pa.Schema) -> list[pa.Table]:
    """All segments of a file, with one open."""

    def read(file: pq.ParquetFile) -> list[pa.Table]:
        return [_read_group(file, group, columns, schema) for group in range(file.num_row_groups)]

    return _with_file(path, read)


def read_footer(path: Path) -> pq.FileMetaData:
    return _with_file(path, lambda file: file.metadata)


def _read_group(file: pq.ParquetFile, group: int, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    rows = file.metadata.row_group(group).num_rows
    stored = set(file.schema_arrow.names)
    present = [name for name in columns if name in stored]
    table = file.read_row_group(group, columns=present, use_threads=False) if present else None
    arrays = []
    for name in columns:
        type_ = schema.field(name).type
        if table is None or name not in stored:
            arrays.append(pa.chunked_array([pa.nulls(rows, type_)]))
        else:
            column = table.column(name)
            arrays.append(column if column.type == type_ else column.cast(type_))
    if not arrays:
        # A table without columns still knows how many rows it has.
        return pa.table({"": pa.nulls(rows)}).select([])
    return pa.Table.from_arrays(arrays, schema=pa.schema([schema.field(name) for name in columns]))


def _with_file(path: Path, read: Callable[[pq.ParquetFile], _T]) -> _T:
    with _telling_errors(path), pq.ParquetFile(str(path)) as file:
        return read(file)


@contextlib.contextmanager
def _telling_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(error, path, "read") from error
    except pa.ArrowInvalid as error:
        raise WarehouseError(
            f"The segment file '{path}' is broken: {error}.", hint="restore it from a backup of the warehouse"
        ) from error


def read_epochs(path: Path, file: DataFile) -> list[tuple[int, int]]:
    """The epochs in a file with their numbers of rows, in the order of the rows."""
    stored = (read_footer(path).metadata or {}).get(EPOCHS_KEY.encode())
    if stored is None:
        return [(file.epoch_first, file.rows)]
    return [(epoch, rows) for epoch, rows in json.loads(stored)]


def compact(
    directory: Path, inputs: Sequence[DataFile], name: str, schema: pa.Schema, ts_column: str, rows_max: int
) -> DataFile:
    """Concatenate neighbouring files, in order, into one of the next level; the inputs stay."""
    epochs: list[list[int]] = []
    for file in inputs:
        for epoch, rows in read_epochs(directory / file.name, file):
            if epochs and epochs[-1][0] == epoch:
                epochs[-1][1] += rows
            else:
                epochs.append([epoch, rows])
    metadata = {EPOCHS_KEY: json.dumps(epochs, separators=(",", ":"))}
    with SegmentWriter(directory, name, schema, ts_column, rows_max=rows_max, metadata=metadata) as writer:
        for file in inputs:
            for group in range(len(file.segments)):
                writer.add(read_segment(directory / file.name, group, schema.names, schema))
        written = writer.finish()
    assert written is not None, "there is nothing to compact"
    return DataFile(
        name=written.name,
        bytes=written.bytes,
        level=max(file.level for file in inputs) + 1,
        epoch_first=min(file.epoch_first for file in inputs),
        epoch_last=max(file.epoch_last for file in inputs),
        segments=written.segments,
    )


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
        with _telling_errors(path):
            table = _read_group(self._open(path, name, last), row_group, missing, schema)
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

    def _open(self, path: Path, name: str, last: LastFile | None) -> pq.ParquetFile:
        if last is not None and last.name == name and last.file is not None:
            return last.file
        file = pq.ParquetFile(str(path), metadata=self._footer(path, name))
        if last is not None:
            last.name, last.file = name, file
        return file

    def _footer(self, path: Path, name: str) -> pq.FileMetaData:
        """Parsed once, though a compacted file is read segment by segment."""
        with self._lock:
            footer = self._footers.get(name)
            if footer is not None:
                self._footers.move_to_end(name)
                return footer
        footer = read_footer(path)
        with self._lock:
            self._footers[name] = footer
            while len(self._footers) > _FOOTERS_MAX:
                self._footers.popitem(last=False)
        return footer
