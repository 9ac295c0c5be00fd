"""The kernel of a backfill: old data meets new queries (PSoup section 3.2). One scan serves all blocks that wait."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

from ladle.archive.files import MissingFile
from ladle.archive.scan import ArchiveSource, Counts, Request, scan
from ladle.archive.segments import DataFile
from ladle.eddy import Account, Policy, Router
from ladle.eddy.routing import added
from ladle.errors import DamagedFile
from ladle.json_values import Json, JsonRow
from ladle.stem.asking import Asking, Budget
from ladle.stem.masks import read_masks, write_masks
from ladle.stem.query_stem import load_stem
from ladle.stem.results import ResultsWriter

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BackfillTask:
    """One data file to probe with the blocks of a query set."""

    source: ArchiveSource
    file: DataFile
    results: Path
    query_set: tuple[Path, ...]
    factor_seconds_max: float
    functions_seconds_max: float
    """What dear factors may take; another job does the rest."""
    late: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Blocks with functions that only joins look at, and the names of those joins' SteMs."""
    tickets: Mapping[str, Account] = field(default_factory=dict)
    """What the eddy knows of the operators."""
    policy: Policy = Policy.TICKETS


@dataclass(frozen=True)
class Backfilled:
    """What became of some backfill tasks."""

    failures: Mapping[int, tuple[str, bool]] = field(default_factory=dict)
    """Blocks that could not be evaluated somewhere: the reason, and whether it was for slowness."""
    tickets: Mapping[str, Account] = field(default_factory=dict)
    """What the eddy learned."""
    said: int = 0
    """Tuples that dear factors were asked about, where that is kept."""
    said_seconds: float = 0.0
    bytes_read: int = 0
    """Of data files, as they are stored."""

    def plus(self, other: Backfilled) -> Backfilled:
        """What two jobs found, together."""
        return Backfilled(
            {**self.failures, **other.failures},
            added(self.tickets, [other.tickets]),
            self.said + other.said,
            self.said_seconds + other.said_seconds,
            self.bytes_read + other.bytes_read,
        )

    def to_json(self) -> list[Json]:
        """Encode what a job found."""
        failures: list[Json] = [[block, reason, slow] for block, (reason, slow) in self.failures.items()]
        tickets = {name: list(astuple(account)) for name, account in self.tickets.items()}
        return [failures, tickets, self.said, self.said_seconds, self.bytes_read]

    @staticmethod
    def from_json(value: JsonRow) -> Backfilled:
        """Decode what a job found."""
        failures, tickets, said, seconds, bytes_read = value
        return Backfilled(
            {block: (reason, slow) for block, reason, slow in failures},
            {name: Account(*account) for name, account in tickets.items()},
            said,
            seconds,
            bytes_read,
        )


def run_backfills(tasks: Sequence[BackfillTask]) -> Backfilled:
    """Run some tasks one after the other; dear factors have as much time in all as the longest of them allows."""
    longest = max(task.factor_seconds_max for task in tasks)
    budget = Budget(max(task.functions_seconds_max for task in tasks), longest, patient=True)
    found = Backfilled()
    for task in tasks:
        found = found.plus(run_backfill(task, budget))
    return found


def run_backfill(task: BackfillTask, budget: Budget) -> Backfilled:
    """Write the results of one data file, as far as the time goes."""
    stem = load_stem([str(page) for page in task.query_set])
    counts = Counts()
    try:
        columns = sorted(stem.columns) or task.source.schema.names[:1]
        batches = list(scan(Request(task.source, (task.file,), tuple(columns)), counts=counts))
    except MissingFile:
        # Compacted or expired since the job was planned: nothing is left to cover.
        return Backfilled()
    except DamagedFile as error:
        # Whoever planned the job sees that nothing came of it, and looks for the reason.
        _log.error("nothing is covered of %s: %s", task.file.name, error.message)
        return Backfilled()
    name = task.file.name
    failures: dict[int, tuple[str, bool]] = {}
    results = ResultsWriter(task.results, name, stem.blocks)
    router = Router(task.policy, known=task.tickets)
    asking = Asking(budget, read_masks(task.results, name))
    before = budget.seconds
    postponed = stem.to_postpone(task.late, router)
    try:
        for batch in batches:
            failed = stem.probe(batch.table, results, router, asking, postponed=postponed)
            failures |= {block: (failure.reason, failure.slow) for block, failure in failed.items()}
            if not results.hopeful:
                break
    except BaseException:
        results.abort()
        raise
    # What is in the results need not be kept twice; where these could not be written, masks stay as they are.
    done = results.finish() is not None or not results.hopeful
    kept = done and (not (asking.unfinished or asking.known) or write_masks(task.results, name, asking.masks()))
    accounts = {sql: account for sql, account in router.accounts.items() if sql in asking.asked}
    return Backfilled(failures, accounts, asking.said if kept else 0, before - budget.seconds, counts.bytes_read)
