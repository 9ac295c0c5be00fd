"""Spark on first need: opening a warehouse and reading from it start no JVM.

A JVM that died is let go of, and another is started when there is need of one again. What was under way fails; whoever
has work that can be done again (pushes, backfills) does it again. Ctrl-C stops the jobs of the call it interrupts.

Residuals have a process of their own where Spark is local, and the given session or cluster otherwise.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ladle.config import SparkStart
from ladle.errors import Closed, LadleError, PipelineError
from ladle.interrupt import in_main_thread, run_apart
from ladle.pipeline.interface import Attached, BatchRunner, OwnBatch, Relation
from ladle.pipeline.residuals import Residuals
from ladle.pipeline.spark_reasons import reason_of
from ladle.plan import Plan
from ladle.plan.as_of import Nows
from ladle.stem.backfill_kernel import Backfilled, BackfillTask
from ladle.stem.epoch_kernel import EpochTask, Manifest
from ladle.stem.join_kernel import JoinTask, TaskResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ladle.pipeline.spark import SparkPipeline
    from ladle.pipeline.spark_session import Start

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class LazyPipeline:
    """A Spark pipeline that starts its session when it is first needed, and replaces one that died."""

    def __init__(self, *, session: SparkSession | None, start: SparkStart) -> None:
        self._given = session
        self._start_with = start
        self._lock = threading.Lock()
        self._pipeline: SparkPipeline | None = None
        self._starting: Start | None = None
        self._starts = True
        """Whether there is a Spark when one is needed."""
        self._closed = False
        self._restarts = 0
        self._backfills = f"ladle-backfills-{uuid.uuid4().hex}"
        self._residuals = Residuals(start) if session is None and start.local else None

    @property
    def started(self) -> bool:
        """Whether Spark runs, and its JVM lives."""
        pipeline = self._pipeline
        return pipeline is not None and pipeline.alive

    @property
    def restarts(self) -> dict[str, int]:
        """How often a JVM that was gone was replaced, by what runs there."""
        residuals = {} if self._residuals is None else {"residuals": self._residuals.restarts}
        return {"epochs": self._restarts, **residuals}

    @property
    def session(self) -> SparkSession:
        """The Spark session, started now if there is none."""
        return self._spark().session

    def run_pushed(self, task: EpochTask, files: Sequence[Path]) -> list[Manifest]:
        """Take in pushed files."""
        return self._run(lambda spark: spark.run_pushed(task, files))

    def run_batch(self, task: EpochTask, batch: OwnBatch) -> list[Manifest]:
        """Take in a micro-batch of a source."""
        return self._run(lambda spark: spark.run_batch(task, batch))

    def run_backfill(self, tasks: Sequence[BackfillTask]) -> Backfilled:
        """Cover old data for new queries."""
        return self._run(lambda spark: spark.run_backfill(tasks), group=self._backfills)

    def run_joins(self, tasks: Sequence[JoinTask]) -> TaskResults:
        """Find the pairs of joins in data files."""
        return self._run(lambda spark: spark.run_joins(tasks), group=self._backfills)

    def cancel_backfills(self) -> None:
        """Stop the backfills that are under way."""
        pipeline = self._pipeline
        if pipeline is not None:
            run_apart(partial(pipeline.cancel, self._backfills), lambda: None)

    def run_residual(self, plan: Plan, relations: Mapping[str, Relation], nows: Nows, seconds_max: float) -> pa.Table:
        """Run a residual, in a process of its own where Spark is local."""
        if self._residuals is not None:
            return self._residuals.run_residual(plan, relations, nows, seconds_max)
        return self._run(lambda spark: spark.run_residual(plan, relations, nows, seconds_max))

    def analyse(self, plan: Plan, relations: Mapping[str, pa.Schema], seconds_max: float) -> pa.Schema | None:
        """The schema that Spark gives a residual; what Spark refuses raises."""
        if self._residuals is not None:
            return self._residuals.analyse(plan, relations, seconds_max)
        return self._run(lambda spark: spark.analyse(plan, relations))

    def read(self, form: str, options: Mapping[str, str], schema: pa.Schema) -> OwnBatch:
        """The streaming DataFrame of a source that is defined in SQL."""
        return self._run(lambda spark: spark.read(form, options, schema))

    def batch_schema(self, batches: OwnBatch) -> pa.Schema:
        """The schema of a streaming DataFrame."""
        return self._run(lambda spark: spark.batch_schema(batches), of=batches)

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
        """Let a streaming DataFrame flow in."""
        return self._run(
            lambda spark: spark.attach(
                stream,
                source,
                batches,
                checkpoint,
                run,
                available_now=available_now,
                retry_seconds_max=retry_seconds_max,
            ),
            of=batches,
        )

    def give_up_start(self) -> None:
        """End a start that is under way; there is none after it."""
        # The thread that starts it has the lock. It looks at the one after it has set the other.
        self._starts = False
        starting = self._starting
        if starting is not None:
            starting.cancel()
        if self._residuals is not None:
            self._residuals.close()

    def close(self) -> None:
        """Stop Spark, if this pipeline started it."""
        if self._residuals is not None:
            self._residuals.close()
        with self._lock:
            self._closed = True
            if self._pipeline is not None:
                # Interrupted, it goes on: a thread that stops Spark keeps nobody.
                run_apart(self._pipeline.close, lambda: None)
                self._pipeline = None

    def _run(self, work: Callable[[SparkPipeline], Result], of: object = None, *, group: str | None = None) -> Result:
        """Have Spark do something, by the calling thread or, where Ctrl-C may come, by another. Jobs that somebody may
        want to end all at once are in a `group`.
        """
        pipeline = self._spark(of)
        try:
            if not in_main_thread():
                if group is None:
                    return work(pipeline)
                return run_apart(partial(pipeline.in_group, group, work), lambda: None)  # a thread keeps its group
            own = f"ladle-{uuid.uuid4().hex}"
            return run_apart(partial(pipeline.in_group, own, work), partial(pipeline.cancel, own))
        except Exception as error:
            if pipeline.lost(error):
                raise self._gone() from error
            if isinstance(error, LadleError):
                raise
            from ladle.pipeline.spark import is_broken_connection

            if of is not None and is_broken_connection(error):
                raise PipelineError(
                    "The DataFrame is of a Spark session that is gone.", hint="make it again, of the session db.spark"
                ) from error
            raise PipelineError(f"Spark failed: {reason_of(error)}") from error

    def _gone(self) -> PipelineError:
        if self._given is not None:
            return PipelineError(
                "The JVM of the Spark session that was given is gone.",
                hint="close the database and connect again with a new session; what was received is safe",
            )
        return PipelineError(
            "Spark's JVM is gone.",
            hint="try again: another is started; what was received is safe; attach sources again",
        )

    def _spark(self, of: object = None) -> SparkPipeline:
        """The pipeline; with a DataFrame whose session is there already, that session is taken."""
        with self._lock:
            if self._closed:
                raise Closed
            if self._pipeline is not None and not self._pipeline.alive:
                if self._given is not None:
                    self._pipeline.fail_sources()
                    raise self._gone()
                _log.warning("Spark's JVM is gone; another is started")
                self._restarts += 1
                self._pipeline.let_go()
                self._pipeline = None
            if self._pipeline is None:
                try:
                    self._pipeline = self._start(of)
                except Exception:
                    if not self._starts:
                        raise Closed from None
                    raise
            return self._pipeline

    def _start(self, of: object) -> SparkPipeline:
        _log.info("starting Spark")
        from ladle.pipeline.spark import SparkPipeline
        from ladle.pipeline.spark_session import Start, check_session, session_of

        given = self._given if self._given is not None else session_of(of)
        if given is not None:
            check_session(given)
            pipeline = SparkPipeline(given, owned=False)
        else:
            self._starting = Start(self._start_with)
            try:
                if not self._starts:
                    raise Closed
                session, owned = self._starting.session()
            finally:
                self._starting = None
            pipeline = SparkPipeline(session, owned=owned)
        _log.info("Spark is running")
        return pipeline
