"""A pipeline that runs every task in the calling thread: the same kernels and the same log, without a JVM.

Residuals for Spark are refused, but for a database whose `residual_rows_max` is one row: there they are what is tested,
and go to this process's Spark session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from ladle.clock import Clock
from ladle.config import Settings
from ladle.engine import Database
from ladle.errors import PipelineError
from ladle.pipeline import Attached, BatchRunner, Pipeline, Relation
from ladle.pipeline.interface import OwnBatch
from ladle.plan import Plan
from ladle.plan.as_of import Nows
from ladle.stem.backfill_kernel import Backfilled, BackfillTask, run_backfills
from ladle.stem.epoch_kernel import EpochTask, Manifest, run_pushed, run_task
from ladle.stem.join_kernel import JoinTask, TaskResults, run_joins
from ladle.testing.one_row import borrowed_spark
from ladle.testing.scripted import ScriptedRun, ScriptedSource

_NO_SPARK = "A DataFrame needs Spark, and this database has none."


class InlinePipeline:
    """Runs tasks in the calling thread. What only Spark computes is refused, unless `residuals` gives a Spark."""

    started = True
    restarts: Mapping[str, int] = {"epochs": 0}

    def __init__(self, residuals: Callable[[], Pipeline] | None = None) -> None:
        self._residuals = residuals

    def run_pushed(self, task: EpochTask, files: Sequence[Path]) -> list[Manifest]:
        """Take in pushed files."""
        return [run_pushed(task, 0, 0, files)]

    def run_batch(self, task: EpochTask, batch: OwnBatch) -> list[Manifest]:
        """A micro-batch is a list of tables, one per partition."""
        return [run_task(task, partition, 0, [table]) for partition, table in enumerate(batch)]

    def run_backfill(self, tasks: Sequence[BackfillTask]) -> Backfilled:
        """Cover old data for new queries."""
        return run_backfills(tasks)

    def run_joins(self, tasks: Sequence[JoinTask]) -> TaskResults:
        """Find the pairs of joins in data files."""
        return run_joins(tasks)

    def cancel_backfills(self) -> None:
        """They are calls, which end soon."""

    def run_residual(self, plan: Plan, relations: Mapping[str, Relation], nows: Nows, seconds_max: float) -> pa.Table:
        """Refuse what only Spark runs, unless a Spark was given for it."""
        if self._residuals is not None:
            return self._residuals().run_residual(plan, relations, nows, seconds_max)
        raise PipelineError(
            f"This residual needs Spark: {plan.residual.why_spark}.",
            hint="this database was opened without Spark: ladle.connect starts one when it must",
        )

    def analyse(self, plan: Plan, relations: Mapping[str, pa.Schema], seconds_max: float) -> pa.Schema | None:
        """None: nobody knows the schema that Spark would give, unless a Spark was given for it."""
        return None if self._residuals is None else self._residuals().analyse(plan, relations, seconds_max)

    def read(self, form: str, options: Mapping[str, str], schema: pa.Schema) -> OwnBatch:
        """Refused: such sources need Spark."""
        raise PipelineError("Sources of this format need Spark.")

    def batch_schema(self, batches: OwnBatch) -> pa.Schema:
        """The schema of a scripted source; anything else needs Spark."""
        if isinstance(batches, ScriptedSource):
            return batches.schema
        raise PipelineError(_NO_SPARK, hint="attach a ladle.testing.ScriptedSource, or open the warehouse with Spark")

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
        """Take in all batches of a scripted source, now."""
        attached = ScriptedRun(stream, source)
        attached.run(batches, checkpoint, run)
        return attached

    def give_up_start(self) -> None:
        """Nothing is ever started."""

    def close(self) -> None:
        """Take nothing in any more."""
        self.started = False


def connect_inline(
    path: str | Path,
    *,
    clock: Clock | None = None,
    settings: Mapping[str, object] | None = None,
    read_only: bool = False,
) -> Database:
    """`ladle.connect` without Spark: for tests. Each task runs in the thread that asks for it, with the same kernels.

    What only Spark can compute is refused when it is asked for. (With `residual_rows_max=1` residuals go to the Spark
    session of this process: Ladle's own tests use that.)
    """
    one_row = Settings.load(settings).residual_rows_max == 1
    pipeline = InlinePipeline(borrowed_spark if one_row else None)
    return Database(path, pipeline=pipeline, read_only=read_only, clock=clock, settings=settings)
