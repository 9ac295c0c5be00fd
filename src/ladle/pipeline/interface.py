"""What the engine asks of a pipeline. Spark is the one people use; tests have one that runs in the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from ladle.archive.scan import Request
from ladle.plan import Plan
from ladle.plan.as_of import Nows
from ladle.stem.backfill_kernel import Backfilled, BackfillTask
from ladle.stem.epoch_kernel import EpochTask, Manifest
from ladle.stem.join_kernel import JoinTask, TaskResults

Failures = Mapping[int, tuple[str, bool]]


@dataclass(frozen=True)
class FileRelation:
    """A scan left to Spark: the request for history, and the block's factors in Spark's SQL."""

    request: Request
    factors: tuple[str, ...]


Relation: TypeAlias = FileRelation | pa.Table
"""What a residual reads under a name: files, or an Arrow table."""

OwnBatch: TypeAlias = Any
"""A micro-batch, or what delivers them, as a pipeline has it. Any: each takes its own alone, and gets it from whoever
attached it; Spark's are DataFrames.
"""

BatchRunner = Callable[[OwnBatch, int], None]
"""Takes a micro-batch in: the batch, and its number in the source."""


class Batches(Protocol):
    """What is attached without Spark: a source that hands its micro-batches over by itself (`ladle.testing`)."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that the batches have."""
        ...

    def deliver(self, checkpoint: Path, run: BatchRunner) -> bool:
        """Have the batches taken in that the checkpoint does not have; whether those were all."""
        ...


class Attached(Protocol):
    """A running source."""

    stream: str
    source: str

    @property
    def state(self) -> str:
        """How it is: running, restarting, drained, stopped, failed."""
        ...

    @property
    def error(self) -> str | None:
        """What went wrong last, or None."""
        ...

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        ...

    def await_drained(self, seconds: float | None = None) -> None:
        """Wait until an `available_now` source has delivered everything; raises its error."""
        ...

    def stop(self) -> None:
        """Stop it. Attached again under its name it goes on where it was."""
        ...


class Pipeline(Protocol):
    """What runs tasks over data: epochs, backfills, joins and residuals."""

    @property
    def started(self) -> bool:
        """Whether work can begin without starting anything first."""
        ...

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often a JVM that was gone was replaced, by what runs there."""
        ...

    def run_pushed(self, task: EpochTask, files: Sequence[Path]) -> list[Manifest]:
        """One job over pushed files, in their order."""
        ...

    def run_batch(self, task: EpochTask, batch: OwnBatch) -> list[Manifest]:
        """One job over a micro-batch."""
        ...

    def run_backfill(self, tasks: Sequence[BackfillTask]) -> Backfilled:
        """Cover old data for new queries."""
        ...

    def run_joins(self, tasks: Sequence[JoinTask]) -> TaskResults:
        """Find the pairs of joins in data files."""
        ...

    def cancel_backfills(self) -> None:
        """End the jobs of backfills, which raise, and those to come: what they would keep is only derived."""
        ...

    def run_residual(self, plan: Plan, relations: Mapping[str, Relation], nows: Nows, seconds_max: float) -> pa.Table:
        """Run a residual over its relations. What takes longer than `seconds_max` is stopped and raises."""
        ...

    def analyse(self, plan: Plan, relations: Mapping[str, pa.Schema], seconds_max: float) -> pa.Schema | None:
        """The schema of the answer of a plan over relations with these schemas, or why it can't run; without a job.

        None if this pipeline can't tell.
        """
        ...

    def attach(
        self,
        stream: str,
        source: str,
        batches: OwnBatch,
        checkpoint: Path,
        run: BatchRunner,
        *,
        available_now: bool,
        retry_seconds_max: float,
    ) -> Attached:
        """Let batches flow into a stream, each by a call of `run`; `checkpoint` says how far it is."""
        ...

    def read(self, form: str, options: Mapping[str, str], schema: pa.Schema) -> OwnBatch:
        """What a source that is defined in SQL delivers, to be attached; `schema` has the stream's columns."""
        ...

    def batch_schema(self, batches: OwnBatch) -> pa.Schema:
        """The columns of what is to be attached; refuses what can't be."""
        ...

    def give_up_start(self) -> None:
        """Start nothing any more, and end what is starting. Raises Closed in whoever waits for it."""
        ...

    def close(self) -> None:
        """Let go of what was started."""
        ...
