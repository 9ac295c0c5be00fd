"""Whole files, read as all of history is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from ladle.archive.scan import ArchiveSource, Request, scan
from ladle.archive.segments import DataFile


def read_file(directory: Path, file: DataFile, columns: Iterable[str], schema: pa.Schema) -> list[pa.Table]:
    """The segments of a file."""
    return [batch.table for batch in scan(Request(ArchiveSource(directory, schema, "at"), (file,), tuple(columns)))]
