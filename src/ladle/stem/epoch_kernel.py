"""The kernel of an epoch: what one task does with its share of a micro-batch.

Tuples are cut into segments; each segment probes the Query SteM; data, results and quarantine go to files named by this
attempt. Nothing is real before the driver commits, so a task may be tried, repeated or abandoned at any point. The same
function runs in a Spark task and in tests without a JVM.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

import pyarrow as pa

from ladle.archive.inbox import read_pushed
from ladle.archive.segments import DataFile, SegmentWriter, WrittenFile
from ladle.eddy import Account, Policy, Router
from ladle.errors import DamagedFile
from ladle.json_values import JsonFields, JsonObject
from ladle.schema import TIMESTAMP, StreamSchema
from ladle.stem.asking import Asking, Budget
from ladle.stem.intake import Intake, Rejected, TimeBounds
from ladle.stem.join_kernel import JoinProbe, JoinTask, run_joins
from ladle.stem.masks import write_masks
from ladle.stem.query_stem import QueryStem, load_stem
from ladle.stem.results import ResultsWriter


@dataclass(frozen=True)
class EpochTask:
    """All a task has to know; small, and the same for every task of the job."""

    schema: StreamSchema
    quarantine_schema: StreamSchema
    source: str
    token: str
    """Names this attempt of the epoch; no two attempts share a file."""
    arrived_us: int
    bounds: TimeBounds
    archive: Path
    quarantine: Path
    results: Path
    query_set: tuple[Path, ...]
    """The pages of the Query SteM."""
    segment_rows_max: int
    factor_seconds_max: float
    functions_seconds_max: float
    """What dear factors may take of this task; the backfill does the rest."""
    tickets: Mapping[str, Account] = field(default_factory=dict)
    """What the eddy knows of the operators."""
    policy: Policy = Policy.TICKETS
    joins: tuple[JoinProbe, ...] = ()
    """The joins that new tuples take part in."""
    owed: tuple[JoinTask, ...] = ()
    """Pairs of older files that nobody has found yet."""
    late: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Blocks with functions that only joins look at, and the names of those joins' SteMs."""


@dataclass(frozen=True)
class Manifest:
    """What a task wrote."""

    partition: int
    files: tuple[DataFile, ...]
    quarantine: tuple[DataFile, ...]
    failures: Mapping[int, tuple[str, bool]] = field(default_factory=dict)
    """Blocks that could not be evaluated somewhere: the reason, and whether it was for slowness."""
    tickets: Mapping[str, Account] = field(default_factory=dict)
    """What the eddy learned."""
    rejected: tuple[int, ...] = ()
    """How many rows of each batch are in the quarantine."""
    damaged: tuple[str, ...] = ()
    """The pushed files that are not what was written. Each has one row in the quarantine, which says so."""
    bytes_read: int = 0
    """Of data files that were joined with those that it wrote, as they are stored."""

    def to_json(self) -> JsonObject:
        """Encode what a task wrote."""
        return {
            "partition": self.partition,
            "files": [file.to_json() for file in self.files],
            "quarantine": [file.to_json() for file in self.quarantine],
            "failures": [[block, reason, slow] for block, (reason, slow) in self.failures.items()],
            "tickets": {name: list(astuple(account)) for name, account in self.tickets.items()},
            "rejected": list(self.rejected),
            "damaged": list(self.damaged),
            "bytes_read": self.bytes_read,
        }

    @staticmethod
    def from_json(value: JsonFields) -> Manifest:
        """Decode what a task wrote."""
        return Manifest(
            value["partition"],
            tuple(DataFile.from_json(file) for file in value["files"]),
            tuple(DataFile.from_json(file) for file in value["quarantine"]),
            {block: (reason, slow) for block, reason, slow in value["failures"]},
            {name: Account(*account) for name, account in value["tickets"].items()},
            tuple(value["rejected"]),
            tuple(value["damaged"]),
            value["bytes_read"],
        )


@dataclass(frozen=True)
class DamagedPush:
    """What comes in the place of a pushed file's rows, when it is not what was written."""

    name: str
    reason: str


def run_pushed(task: EpochTask, partition: int, attempt: int, files: Sequence[Path]) -> Manifest:
    """Take in some pushed files. One that is damaged holds up no other."""
    return run_task(task, partition, attempt, map(_rows_of, files))


def _rows_of(path: Path) -> pa.Table | DamagedPush:
    try:
        return read_pushed(path)
    except DamagedFile as error:
        return DamagedPush(path.name, error.message)


def run_task(
    task: EpochTask, partition: int, attempt: int, batches: Iterable[pa.RecordBatch | pa.Table | DamagedPush]
) -> Manifest:
    """Take in one partition of an epoch."""
    name = f"{task.token}-{partition:05d}-{attempt}"
    rejected = Rejected()
    damaged: list[str] = []
    intake = Intake(task.schema, task.bounds, task.arrived_us)
    stem = load_stem([str(page) for page in task.query_set])
    router = Router(task.policy, known=task.tickets, seed=name)
    tuples = _tuples(intake, batches, rejected, damaged)
    budget = Budget(task.functions_seconds_max, task.factor_seconds_max)
    written, failures = write_probed(
        tuples, task.archive, f"{name}.parquet", task.schema, stem, router, task.results, task.segment_rows_max,
        budget, task.late,
    )  # fmt: skip
    bytes_read = _join(task, partition, written, router, budget)
    # File names are unique in a warehouse; a cache may know a file by its name alone.
    quarantined = _write_quarantine(task, f"{name}-quarantine.parquet", rejected)
    counts = tuple(rejected.of_batches)
    return Manifest(
        partition,
        as_files(written),
        as_files(quarantined),
        failures,
        router.accounts,
        counts,
        tuple(damaged),
        bytes_read,
    )


def _join(task: EpochTask, partition: int, written: WrittenFile | None, router: Router, budget: Budget) -> int:
    """Probe the other streams' SteMs; the bytes that were read. What can't be found now stays uncovered, and whoever
    comes next is told why.
    """
    bytes_read = 0
    if written is not None:
        (file,) = as_files(written)
        for probe in task.joins:
            bytes_read += probe.run(file, router, budget)
    if partition == 0:
        bytes_read += run_joins(task.owed, budget).bytes_read
    return bytes_read


def write_probed(
    tuples: Iterable[pa.Table],
    archive: Path,
    name: str,
    schema: StreamSchema,
    stem: QueryStem,
    router: Router,
    results: Path,
    segment_rows_max: int,
    budget: Budget,
    late: Mapping[int, tuple[str, ...]],
) -> tuple[WrittenFile | None, dict[int, tuple[str, bool]]]:
    """Write tuples as segments of one file, probing each with the stem, and the results beside."""
    writer = SegmentWriter(archive, name, schema.arrow, schema.timestamp_column, rows_max=segment_rows_max)
    found = ResultsWriter(results, name, stem.blocks)
    failures: dict[int, tuple[str, bool]] = {}
    asking = Asking(budget)
    postponed = stem.to_postpone(late, router)
    try:
        for segment in cut(tuples, segment_rows_max):
            failed = stem.probe(segment, found, router, asking, postponed=postponed)
            failures |= {block: (failure.reason, failure.slow) for block, failure in failed.items()}
            writer.add(segment)
        written = writer.finish()
    except BaseException:
        writer.abort()
        found.abort()
        raise
    found.finish()
    if written is not None and asking.unfinished:
        write_masks(results, name, asking.masks())
    return written, failures


def cut(tables: Iterable[pa.Table], rows_max: int) -> Iterator[pa.Table]:
    """Regroup tables into contiguous ones of exactly `rows_max` rows; the last may be shorter."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += len(table)
        while rows >= rows_max:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, rows_max).combine_chunks()
            rest = whole.slice(rows_max)
            waiting, rows = [rest], len(rest)
    if rows:
        yield pa.concat_tables(waiting).combine_chunks()


def as_files(written: WrittenFile | None) -> tuple[DataFile, ...]:
    """A written file as the log records it; the epoch's number is known when it is committed."""
    if written is None:
        return ()
    return (DataFile(written.name, written.bytes, 0, 0, 0, written.segments, written.checks),)


def _tuples(
    intake: Intake, batches: Iterable[pa.RecordBatch | pa.Table | DamagedPush], rejected: Rejected, damaged: list[str]
) -> Iterator[pa.Table]:
    for batch in batches:
        if isinstance(batch, DamagedPush):
            rejected.extend(Rejected([f"{batch.reason} It was set aside."], [json.dumps({"file": batch.name})]))
            damaged.append(batch.name)
            continue
        good, bad = intake.split(batch)
        rejected.extend(bad)
        if len(good):
            yield good


def _write_quarantine(task: EpochTask, name: str, rejected: Rejected) -> WrittenFile | None:
    if not len(rejected):
        return None
    schema = task.quarantine_schema
    table = pa.Table.from_arrays(
        [
            pa.repeat(pa.scalar(task.arrived_us, TIMESTAMP), len(rejected)),
            pa.repeat(pa.scalar(task.source), len(rejected)),
            pa.array(rejected.reasons, pa.string()),
            pa.array(rejected.rows, pa.string()),
        ],
        schema=schema.arrow,
    )
    writer = SegmentWriter(task.quarantine, name, schema.arrow, schema.timestamp_column, rows_max=task.segment_rows_max)
    writer.add(table)
    return writer.finish()
