"""Attached sources: a StreamingQuery each, watched by a thread that starts it again when it fails.

Spark ends a query whose foreachBatch raises. What the query had not committed comes again under the same batch number,
so starting it again loses and repeats nothing. The pause before that grows while it keeps failing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ladle.errors import PipelineError
from ladle.pipeline.interface import BatchRunner
from ladle.pipeline.spark_reasons import reason_of

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.5
_SETTINGS = {
    # A warehouse is on a local file system, where a rename is atomic and one process writes. The usual manager runs
    # `chmod` as a process for each of its files, five per batch, which takes a third of a small epoch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # A file source lists its directory each time it looks: every 10 ms, unless told otherwise, that takes a core.
    "spark.sql.streaming.pollingDelay": "100ms",
}
"""Of our queries, and no others of the session."""
_SOURCES_SECONDS_MAX = 5.0
_starting = threading.Lock()
_GONE = "Spark's JVM is gone, and the DataFrame with it; attach it again"


@contextmanager
def _settings(session: SparkSession) -> Iterator[None]:
    """While a query is started, which takes the session's settings with it."""
    with _starting:
        before = {name: session.conf.get(name, None) for name in _SETTINGS}
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        try:
            yield
        finally:
            for name, known in before.items():
                session.conf.unset(name)
                if known is not None and session.conf.get(name, None) != known:
                    session.conf.set(name, known)


def _await_sources(query: StreamingQuery) -> None:
    """Wait until a query has made its sources, which look at the session's settings too."""
    deadline = time.monotonic() + _SOURCES_SECONDS_MAX
    while query.isActive and query.status["message"] == "Initializing sources" and time.monotonic() < deadline:
        time.sleep(0.005)


class SparkSource:
    """A streaming DataFrame that flows into a stream; one that fails is started again."""

    def __init__(
        self,
        stream: str,
        source: str,
        batches: DataFrame,
        checkpoint: Path,
        run: BatchRunner,
        available_now: bool,
        retry_seconds_max: float,
        lost: Callable[[BaseException], bool],
    ) -> None:
        self.stream = stream
        self.source = source
        self.state = "running"
        self.error: str | None = None
        self.restarts = 0
        self._batches = batches
        self._checkpoint = checkpoint
        self._run = run
        self._available_now = available_now
        self._retry_seconds_max = retry_seconds_max
        self._lost = lost
        self._batch_error: Exception | None = None
        self._progressed = False
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name=f"ladle-source-{stream}-{source}", daemon=True)

    def start(self) -> None:
        """Begin, in a thread."""
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether it has ended for good."""
        return self._ended.is_set() and not self._thread.is_alive()

    def await_drained(self, seconds: float | None = None) -> None:
        """Wait until it has ended; what it failed of raises."""
        self._ended.wait(seconds)
        if self.error is not None:
            raise PipelineError(f"Source '{self.source}' of stream '{self.stream}' failed: {self.error}")

    def stop(self) -> None:
        """Stop it, and wait for the batch that is under way."""
        self._stopping.set()
        with self._lock:
            query = self._query
        if query is not None:
            try:
                query.stop()
            except (PySparkException, Py4JError, OSError) as error:
                _log.debug("stopping %s: %s", self.source, error)
        self._thread.join(timeout=30)

    def fail(self) -> None:
        """The JVM is gone, and no DataFrame of it can be started again."""
        if self._ended.is_set():
            return
        self.state, self.error = "failed", _GONE
        _log.warning("source %s of %s failed: %s", self.source, self.stream, _GONE)
        self._stopping.set()
        self._ended.set()

    def _watch(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            self._progressed, self._batch_error = False, None
            error = self._run_query()
            if self._stopping.is_set():
                break
            if error is not None and self._lost(error):
                self.fail()
                break
            if error is None:
                self.state = "drained" if self._available_now else "stopped"
                self._ended.set()
                return
            self.error = reason = reason_of(self._batch_error or error)
            if self._available_now:
                self.state = "failed"
                self._ended.set()
                return
            pause = _FIRST_PAUSE_SECONDS if self._progressed else min(pause * 2, self._retry_seconds_max)
            self.state = "restarting"
            _log.warning("source %s of %s failed (%s); again in %g s", self.source, self.stream, reason, pause)
            self._stopping.wait(pause)
            self.restarts += 1
        if self.state != "failed":
            self.state = "stopped"
        self._ended.set()

    def _run_query(self) -> Exception | None:
        """Run the query until it ends; why it failed, if it did."""
        try:
            writer = self._batches.writeStream.foreachBatch(self._on_batch)
            writer = writer.option("checkpointLocation", str(self._checkpoint))
            writer = writer.queryName(f"ladle-{self.stream}-{self.source}")
            if self._available_now:
                writer = writer.trigger(availableNow=True)
            with _settings(self._batches.sparkSession):
                query = writer.start()
                _await_sources(query)
            with self._lock:
                self._query = query
            self.state = "running"
            if self._stopping.is_set():
                query.stop()
            query.awaitTermination()
        except Exception as error:  # a JVM that dies shows in many ways, and nobody else watches this query
            return error
        return None

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        try:
            self._run(batch, number)
        except Exception as error:
            self._batch_error = error
            raise
        self._batch_error = None
        self._progressed = True
        self.error = None
