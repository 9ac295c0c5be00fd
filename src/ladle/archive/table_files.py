"""The rows of a table's version: one immutable Parquet file, durable before the log names it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ladle.archive.checks import Checks, check_pages, check_whole, checks_of, damaged
from ladle.archive.files import fsync_directory, fsync_file, publish, storage_error, temporary_path

GROUP_ROWS = 1 << 20
"""Rows in each of the file's row groups but the last."""


def write_version(path: Path, rows: pa.Table) -> tuple[int, Checks]:
    """Write all rows; the file's size, and its checksums. When it raises, there is no file of that name."""
    temporary = temporary_path(path)
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            fsync_directory(path.parent.parent)
        pq.write_table(
            rows,
            str(temporary),
            row_group_size=GROUP_ROWS,
            compression="lz4",
            write_page_checksum=True,
            store_schema=True,
        )
        fsync_file(temporary)
        size = temporary.stat().st_size
        checks = checks_of(temporary)
        publish(temporary, path)
        return size, checks
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise storage_error(error, path, "write") from error
        raise


def verify_version(path: Path, size: int, rows: int, checks: Checks | None) -> None:
    """Raises DamagedFile if a version's file is not what was written."""
    if checks is not None:
        check_whole(path, size, checks)
    elif check_pages(path) != rows:
        raise damaged(path, f"it has not {rows:,} rows")


def groups_of(rows: int) -> range:
    """The row groups of a file with so many rows."""
    return range(-(-rows // GROUP_ROWS))
