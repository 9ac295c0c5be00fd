"""The kernel of a backfill: old data meets new queries (PSoup section 3.2). One scan serves all blocks that wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ladle.archive.files import MissingFile
from ladle.archive.segments import read_file
from ladle.eddy import Account, Policy, Router
from ladle.stem.query_stem import load_stem
from ladle.stem.results import ResultsWriter


@dataclass(frozen=True)
class BackfillTask:
    """One data file to probe with the blocks of a query set."""

    path: Path
    schema: pa.Schema
    results: Path
    query_set: tuple[Path, ...]
    factor_seconds_max: float
    late: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Blocks with functions that only joins look at, and the names of those joins' SteMs."""
    tickets: Mapping[str, Account] = field(default_factory=dict)
    """What the eddy knows of the operators."""
    policy: Policy = Policy.TICKETS


def run_backfill(task: BackfillTask) -> dict[int, tuple[str, bool]]:
    """Write the results of one data file; blocks that could not be evaluated, with the reason."""
    stem = load_stem([str(page) for page in task.query_set])
    failures: dict[int, tuple[str, bool]] = {}
    try:
        segments = read_file(task.path, sorted(stem.columns) or task.schema.names[:1], task.schema)
    except MissingFile:
        # Compacted or expired since the job was planned: nothing is left to cover.
        return failures
    results = ResultsWriter(task.results, task.path.name, stem.blocks)
    router = Router(task.policy, known=task.tickets)
    slow: set[str] = set()
    postponed = stem.to_postpone(task.late, router)
    try:
        for segment in segments:
            failed = stem.probe(
                segment, results, router, seconds_max=task.factor_seconds_max, slow=slow, postponed=postponed
            )
            failures |= {block: (failure.reason, failure.slow) for block, failure in failed.items()}
    except BaseException:
        results.abort()
        raise
    results.finish()
    return failures
