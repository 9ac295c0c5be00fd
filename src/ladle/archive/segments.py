"""Immutable columnar segments: row groups of Parquet files that other tools can open.

A file is one task's share of an epoch, cut into segments of `rows_max` tuples; compaction concatenates
neighbouring files. A file gets its name only when it is whole and on disk, and counts only once the log names it. What
is read is verified (`ladle.archive.checks`); who wants to read history does it through `ladle.archive.scan`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ladle.archive.checks import Checks, check_pages, check_whole, checks_of, damaged
from ladle.archive.files import fsync_file, publish, storage_error, temporary_path
from ladle.errors import TypeMismatch
from ladle.json_values import Json, JsonRow
from ladle.schema import Column

# Measured on groups of 65,536 rows (ints, doubles, strings): lz4 11 ms and 2.8 MB, snappy 13 and 2.8, zstd
# 17 and 2.0; dictionaries on every column 27 and 3.3, so only repetitive strings get one.
_CODEC = "lz4"
_DICTIONARY_SAMPLE_ROWS = 2_048
_DICTIONARY_DISTINCT_MAX = 0.3


@dataclass(frozen=True, slots=True)
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
    checks: Checks


@dataclass(frozen=True, slots=True)
class DataFile:
    """A committed file of a stream's archive."""

    name: str
    bytes: int
    level: int
    epoch_first: int
    epoch_last: int
    segments: tuple[Segment, ...]
    checks: Checks | None = None
    """None: it was written by a version that kept none."""
    first_id: int = 0
    """The id of its first tuple: how many its stream had accepted before. The others follow without a gap."""

    @property
    def next_id(self) -> int:
        """The id after that of its last tuple."""
        return self.first_id + self.rows

    @property
    def rows(self) -> int:
        """How many tuples it has."""
        return sum(segment.rows for segment in self.segments)

    @property
    def ts_min_us(self) -> int:
        """The least time of its tuples."""
        return min(segment.ts_min_us for segment in self.segments)

    @property
    def ts_max_us(self) -> int:
        """The greatest time of its tuples."""
        return max(segment.ts_max_us for segment in self.segments)

    def to_json(self) -> list[Json]:
        """Encode a data file for the log."""
        segments = [[segment.rows, segment.ts_min_us, segment.ts_max_us] for segment in self.segments]
        checks = None if self.checks is None else self.checks.to_json()
        return [self.name, self.bytes, self.level, self.epoch_first, self.epoch_last, segments, checks, self.first_id]

    @staticmethod
    def is_numbered(value: JsonRow) -> bool:
        """Whether the JSON of a file has its first id: older versions wrote none."""
        return len(value) == 8

    @staticmethod
    def from_json(value: JsonRow) -> DataFile:
        """Decode a data file from the log, also as older versions wrote it."""
        # Older versions wrote neither checksums nor ids.
        name, size, level, epoch_first, epoch_last, segments, checks, first_id = (
            value if len(value) == 8 else (*value, *(None, 0)[len(value) - 6 :])
        )
        cut = tuple([Segment(*segment) for segment in segments])
        return DataFile(name, size, level, epoch_first, epoch_last, cut, Checks.from_json(checks), first_id)


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
    ) -> None:
        self._path = directory / name
        self._temporary = temporary_path(self._path)
        self._schema = schema
        self._ts_column = ts_column
        self._rows_max = rows_max
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
            writer.close()
            fsync_file(self._temporary)
            size = self._temporary.stat().st_size
            checks = checks_of(self._temporary)
            publish(self._temporary, self._path)
        return WrittenFile(self._path.name, size, tuple(self._segments), checks)

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
            write_page_checksum=True,
            store_schema=True,
        )

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
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


def opened_file(path: Path, footer: pq.FileMetaData) -> pq.ParquetFile:
    """A file whose pages are verified as they are read."""
    # Not read ahead by other threads: to wake them takes longer than to read columns of a local file.
    return pq.ParquetFile(str(path), metadata=footer, pre_buffer=False, page_checksum_verification=True)


def read_group(
    file: pq.ParquetFile, stored: Collection[str], group: int, columns: Sequence[str], schema: pa.Schema, path: Path
) -> pa.Table:
    """A segment of an open file, which has the `stored` columns."""
    rows = file.metadata.row_group(group).num_rows
    present = [name for name in columns if name in stored]
    table = file.read_row_group(group, columns=present, use_threads=False) if present else None
    if table is not None and len(table) != rows:
        raise damaged(path, f"a segment has {len(table):,} rows instead of {rows:,}")
    arrays = []
    for name in columns:
        type_ = schema.field(name).type
        if table is None or name not in stored:
            default = Column.of(schema.field(name)).default
            lacking = pa.nulls(rows, type_) if default is None else default.array(type_, rows)
            arrays.append(pa.chunked_array([lacking]))
        else:
            column = table.column(name)
            arrays.append(column if column.type == type_ else column.cast(type_))
    if not arrays:
        # A table without columns still knows how many rows it has.
        return pa.table({"": pa.nulls(rows)}).select([])
    return pa.Table.from_arrays(arrays, schema=pa.schema([schema.field(name) for name in columns]))


def verify_file(path: Path, file: DataFile) -> None:
    """Raises DamagedFile if a file is not what was written. All is read, and decoded if there is no checksum of it."""
    if file.checks is not None:
        check_whole(path, file.bytes, file.checks)
        return
    rows = check_pages(path)
    if rows != file.rows:
        raise damaged(path, f"it has {rows:,} rows instead of {file.rows:,}")
