"""Spark on first need: opening a warehouse and reading from it start no JVM."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ladle.errors import Closed, PipelineError
from ladle.pipeline.protocol import Attached, BatchRunner, Failures, Relation
from ladle.plan import Plan
from ladle.stem.backfill import BackfillTask
from ladle.stem.epoch import EpochTask, Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ladle.pipeline.spark import SparkPipeline

_log = logging.getLogger(__name__)


@contextmanager
def _jvm() -> Iterator[None]:
    """Calls into a JVM that was killed fail with whatever the socket says; people are told what it means."""
    try:
        yield
    except ConnectionError as error:
        raise PipelineError(
            f"Spark's JVM is gone ({error}).",
            hint="restart this process; what was received is safe, and is taken in then",
        ) from error


class LazyPipeline:
    def __init__(self, *, session: SparkSession | None, master: str | None) -> None:
        self._given = session
        self._master = master
        self._lock = threading.Lock()
        self._pipeline: SparkPipeline | None = None
        self._closed = False

    @property
    def started(self) -> bool:
        return self._pipeline is not None

    @property
    def session(self) -> SparkSession:
        return self._spark().session

    def run_pushed(self, task: EpochTask, files: Sequence[Path]) -> list[Manifest]:
        with _jvm():
            return self._spark().run_pushed(task, files)

    def run_batch(self, task: EpochTask, batch: Any) -> list[Manifest]:
        with _jvm():
            return self._spark().run_batch(task, batch)

    def run_backfill(self, tasks: Sequence[BackfillTask]) -> Failures:
        with _jvm():
            return self._spark().run_backfill(tasks)

    def run_residual(self, plan: Plan, relations: Mapping[str, Relation], now_us: int, seconds_max: float) -> pa.Table:
        with _jvm():
            return self._spark().run_residual(plan, relations, now_us, seconds_max)

    def batch_schema(self, batches: Any) -> pa.Schema:
        with _jvm():
            return self._spark(of=batches).batch_schema(batches)

    def attach(
        self,
        stream: str,
        source: str,
        batches: Any,
        checkpoint: Path,
        run: BatchRunner,
        *,
        available_now: bool,
        retry_seconds_max: float,
    ) -> Attached:
        with _jvm():
            return self._spark(of=batches).attach(
                stream,
                source,
                batches,
                checkpoint,
                run,
                available_now=available_now,
                retry_seconds_max=retry_seconds_max,
            )

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._pipeline is not None:
                self._pipeline.close()
                self._pipeline = None

    def _spark(self, of: Any = None) -> SparkPipeline:
        """The pipeline; with a DataFrame whose session is there already, that session is taken."""
        with self._lock:
            if self._closed:
                raise Closed
            if self._pipeline is None:
                _log.info("starting Spark")
                from ladle.pipeline.session import check_session, start_session
                from ladle.pipeline.spark import SparkPipeline

                given = self._given if self._given is not None else getattr(of, "sparkSession", None)
                if given is not None:
                    check_session(given)
                    self._pipeline = SparkPipeline(given, owned=False)
                else:
                    session, owned = start_session(self._master)
                    self._pipeline = SparkPipeline(session, owned=owned)
                _log.info("Spark is running")
            return self._pipeline
