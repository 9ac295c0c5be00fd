"""Compaction: neighbouring data files become one, with the same tuples in the same order."""

from __future__ import annotations

from collections.abc import Sequence

from ladle.archive.scan import ArchiveSource, Counts, Request, scan
from ladle.archive.segments import DataFile, SegmentWriter, verify_file


def compact(
    source: ArchiveSource, inputs: Sequence[DataFile], name: str, rows_max: int, *, counts: Counts | None = None
) -> DataFile:
    """Concatenate neighbouring files, in order, into one of the next level; the inputs stay. One that is damaged is not
    passed on: it raises.
    """
    for file in inputs:
        verify_file(source.path(file), file)
    with SegmentWriter(source.directory, name, source.schema, source.time, rows_max=rows_max) as writer:
        for batch in scan(Request(source, tuple(inputs), tuple(source.schema.names)), counts=counts):
            writer.add(batch.table)
        written = writer.finish()
    assert written is not None, "there is nothing to compact"
    return DataFile(
        name=written.name,
        bytes=written.bytes,
        level=max(file.level for file in inputs) + 1,
        epoch_first=min(file.epoch_first for file in inputs),
        epoch_last=max(file.epoch_last for file in inputs),
        segments=written.segments,
        checks=written.checks,
        first_id=inputs[0].first_id,
    )
