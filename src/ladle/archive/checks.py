"""Checksums of Parquet files, so that what is read is what was written.

Pages have checksums of their own, in their heads, which Arrow and Spark verify while they read. The footer has none:
the log has it, and it is verified before the footer is parsed. The log also has a checksum of the whole file, heads of
pages and all, for those who read the file from end to end: `ladle verify`, and compaction, which must not pass damaged
rows on as good ones. All are CRC-32, which finds every flip of up to three bits in a page. (Decision 19.)
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from zlib_ng.zlib_ng import crc32

from ladle.archive.files import storage_error
from ladle.errors import DamagedFile

_TAIL = 8
"""At the end of a Parquet file: the length of what is before, and a mark."""
_PIECE = 1 << 22
RESTORE = "restore it from a backup of the warehouse; all else can be read, and `ladle verify` lists what can't"


@dataclass(frozen=True)
class Checks:
    """What the log says of a Parquet file's bytes."""

    footer_bytes: int
    footer: int
    whole: int

    def to_json(self) -> list[int]:
        """Encode the checksums of a file."""
        return [self.footer_bytes, self.footer, self.whole]

    @staticmethod
    def from_json(value: Sequence[int] | None) -> Checks | None:
        """Decode the checksums of a file; None if an older version wrote it without."""
        return None if value is None else Checks(*value)


def checks_of(path: Path) -> Checks:
    """The checksums of a file that was just written."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        footer_bytes = int.from_bytes(data[-_TAIL:-4], "little") + _TAIL
        return Checks(footer_bytes, crc32(data[-footer_bytes:]), crc32(data))


def check_footer(path: Path, checks: Checks) -> bytes:
    """A file's footer, as it was written."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - checks.footer_bytes, 0))
            footer = file.read()
    except OSError as error:
        raise storage_error(error, path, "read") from error
    if crc32(footer) != checks.footer:
        raise damaged(path, "the checksum of its footer does not match")
    return footer


def parse_footer(path: Path, checks: Checks | None) -> pq.FileMetaData:
    """A file's metadata; verified, unless it is of a version that wrote no checksums."""
    if checks is None:
        with pq.ParquetFile(str(path)) as file:
            return file.metadata
    return pq.read_metadata(pa.BufferReader(check_footer(path, checks)))


def check_whole(path: Path, size: int, checks: Checks) -> None:
    """Read a file from end to end; raises DamagedFile if it is not what was written."""
    try:
        with path.open("rb") as file:
            found = checksum = 0
            while piece := file.read(_PIECE):
                found += len(piece)
                checksum = crc32(piece, checksum)
    except OSError as error:
        raise storage_error(error, path, "read") from error
    if found != size:
        raise damaged(path, f"it has {found:,} bytes instead of {size:,}")
    if checksum != checks.whole:
        raise damaged(path, "its checksum does not match")


def check_pages(path: Path) -> int:
    """Decode a whole file, which verifies its pages; how many rows it has."""
    with telling_damage(path), pq.ParquetFile(str(path), page_checksum_verification=True) as file:
        return sum(len(file.read_row_group(group, use_threads=False)) for group in range(file.num_row_groups))


@contextlib.contextmanager
def telling_damage(path: Path) -> Iterator[None]:
    """Say of errors while a file is read which file it is, and that it is damaged if that is the reason."""
    try:
        yield
    except OSError as error:
        # What Arrow can't decode is an OSError too, but none of the system's.
        if error.errno is None:
            raise damaged(path, _first_line(error)) from error
        raise storage_error(error, path, "read") from error
    except (pa.ArrowException, ValueError) as error:
        raise damaged(path, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def damaged(path: Path, why: str) -> DamagedFile:
    """The error for a file that is not what was written, with advice on what to do."""
    return DamagedFile(
        f"The file '{path}' is broken: {why}.",
        hint=RESTORE,
    )
