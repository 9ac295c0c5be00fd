"""The Results Structure (PSoup section 4.3): per data file, which tuples satisfy which block.

A results file belongs to one immutable data file and is named after it, so it is valid exactly as long as that file is;
nothing else has to be written down. It is query-major (all segments of one block together), mapped, never parsed whole.
Row ids or bits, whichever is smaller. The header lists the blocks that were evaluated: a block that is listed but has
no entry matched nothing; a block that is not listed is simply uncovered.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.files import fsync_file, temporary_path
from ladle.columns import to_numpy

_log = logging.getLogger(__name__)

RowIds = npt.NDArray[np.uint32]

SUFFIX = ".results"
_COVERED = b"ladle.covered"
_ALL, _BITS, _IDS = 0, 1, 2
_SCHEMA = pa.schema(
    [
        ("block", pa.int64()),
        ("segment", pa.int32()),
        ("kind", pa.int8()),
        ("rows", pa.int32()),
        ("count", pa.int32()),
        ("payload", pa.binary()),
    ]
)


class ResultsBuilder:
    """Collects the matches of one data file, segment by segment."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int, int, int, bytes]] = []
        self._covered: set[int] | None = None

    def add(self, segment: int, rows: int, matches: Mapping[int, RowIds | None]) -> None:
        """`matches` has an entry for each block that could be evaluated: its row ids, or None for all rows."""
        covered = set(matches)
        self._covered = covered if self._covered is None else self._covered & covered
        for block, ids in matches.items():
            count = rows if ids is None else len(ids)
            if count == 0:
                continue
            kind, payload = _encode(ids, rows)
            self._entries.append((block, segment, kind, rows, count, payload))

    def write(self, directory: Path, data_file: str) -> Path | None:
        """The results file's path, or None when no block is covered.

        Results are derived: when they can't be written (a full disk, a directory deleted just now), the file stays
        uncovered and whatever wrote it goes on.
        """
        covered = sorted(self._covered or ())
        if not covered:
            return None
        keep = set(covered)
        entries = sorted(entry for entry in self._entries if entry[0] in keep)
        columns = list(zip(*entries, strict=True)) if entries else [()] * len(_SCHEMA)
        metadata = {_COVERED: np.asarray(covered, dtype="<i8").tobytes()}
        schema = _SCHEMA.with_metadata(metadata)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        path = directory / f"{data_file}.{uuid.uuid4().hex[:12]}{SUFFIX}"
        partial = temporary_path(path)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            # It may be lost in a power cut, but never be there with other bytes: nothing else would notice.
            fsync_file(partial)
            os.replace(partial, path)
        except OSError as error:
            _log.info("results of %s are not kept: %s", data_file, error)
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            return None
        return path


class Results:
    """One mapped results file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all().combine_chunks()
        self.covered: npt.NDArray[np.int64] = np.frombuffer(table.schema.metadata[_COVERED], dtype="<i8")
        self._blocks = _numpy(table, "block")
        self._segments = _numpy(table, "segment")
        self._kinds = _numpy(table, "kind")
        self._rows = _numpy(table, "rows")
        self._counts = _numpy(table, "count")
        self._payload = table.column("payload")

    def covers(self, block: int) -> bool:
        at = int(np.searchsorted(self.covered, block))
        return at < len(self.covered) and int(self.covered[at]) == block

    def rows(self, block: int, segment: int) -> RowIds | None:
        """Row ids of the block's matches in the segment (sorted), or None for all rows."""
        start, stop = np.searchsorted(self._blocks, [block, block + 1])
        at = start + int(np.searchsorted(self._segments[start:stop], segment))
        if at >= stop or self._segments[at] != segment:
            return np.empty(0, dtype=np.uint32)
        return _decode(int(self._kinds[at]), self._payload[int(at)].as_buffer(), int(self._rows[at]))

    def count(self, block: int) -> int:
        start, stop = np.searchsorted(self._blocks, [block, block + 1])
        return int(self._counts[start:stop].sum())


def data_file_of(name: str) -> str | None:
    """The data file that a results file's name belongs to; None for other files."""
    if not name.endswith(SUFFIX):
        return None
    return name.removesuffix(SUFFIX).rpartition(".")[0] or None


def file_names(directory: Path) -> Iterable[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except FileNotFoundError:
        return []


def _encode(ids: RowIds | None, rows: int) -> tuple[int, bytes]:
    if ids is None or len(ids) == rows:
        return _ALL, b""
    narrow = np.uint16 if rows <= 1 << 16 else np.uint32
    if len(ids) * np.dtype(narrow).itemsize * 8 <= rows:
        return _IDS, ids.astype(narrow).tobytes()
    mask = np.zeros(rows, dtype=np.bool_)
    mask[ids] = True
    return _BITS, np.packbits(mask, bitorder="little").tobytes()


def _decode(kind: int, payload: pa.Buffer, rows: int) -> RowIds | None:
    match kind:
        case 0:
            return None
        case 1:
            bits = np.unpackbits(np.frombuffer(payload, dtype=np.uint8), count=rows, bitorder="little")
            return np.flatnonzero(bits).astype(np.uint32)
        case _:
            narrow = np.uint16 if rows <= 1 << 16 else np.uint32
            return np.frombuffer(payload, dtype=narrow).astype(np.uint32)


def _numpy(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    return to_numpy(table.column(name))
