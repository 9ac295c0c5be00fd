"""The kernel of a backfill: old data meets new queries (PSoup section 3.2). One scan serves all blocks that wait."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ladle.archive.files import MissingFile
from ladle.archive.segments import read_file
from ladle.stem.query_stem import load_stem
from ladle.stem.results import ResultsBuilder


@dataclass(frozen=True)
class BackfillTask:
    """One data file to probe with the blocks of a query set."""

    path: Path
    schema: pa.Schema
    results: Path
    query_set: Path
    factor_seconds_max: float


def run_backfill(task: BackfillTask) -> dict[int, tuple[str, bool]]:
    """Write the results of one data file; blocks that could not be evaluated, with the reason."""
    stem = load_stem(str(task.query_set))
    columns = sorted({name for block in stem.blocks.values() for name in block.columns})
    failures: dict[int, tuple[str, bool]] = {}
    builder = ResultsBuilder()
    try:
        segments = read_file(task.path, columns or task.schema.names[:1], task.schema)
    except MissingFile:
        # Compacted or expired since the job was planned: nothing is left to cover.
        return failures
    for number, segment in enumerate(segments):
        probe = stem.probe(segment, seconds_max=task.factor_seconds_max)
        failures |= {block: (failure.reason, failure.slow) for block, failure in probe.failures.items()}
        slow = [block for block, failure in probe.failures.items() if failure.slow]
        if slow:
            stem = stem.without(slow)
        builder.add(number, len(segment), probe.matches)
    builder.write(task.results, task.path.name)
    return failures
