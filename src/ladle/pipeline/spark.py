"""Jobs on Spark. A task gets a small description, runs a kernel, and returns one row: what it wrote.

No tuple passes through the driver: pushed files are read by the tasks, micro-batches are mapped where they are, and a
residual over a large window reads the archive's own files.
"""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import RDD, SparkContext, TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ladle.archive.levels import HASHES, HashLevel
from ladle.archive.scan import Request
from ladle.clock import to_datetime
from ladle.errors import (
    EvaluationError,
    InvocationTimeout,
    LadleError,
    PipelineError,
    SqlError,
    TypeMismatch,
    Unsupported,
)
from ladle.json_values import Json, JsonRow
from ladle.pipeline.attached import SparkSource
from ladle.pipeline.interface import Attached, BatchRunner, Relation
from ladle.pipeline.readers import streaming_frame
from ladle.pipeline.spark_reasons import reason_of, said_of_query
from ladle.pipeline.spark_session import SQL_SETTINGS, is_alive, keeping_active, let_go
from ladle.pipeline.udfs import said_by_function, vectorised
from ladle.plan import Plan
from ladle.plan.as_of import NOW, Nows
from ladle.plan.window import MAX_US, MIN_US
from ladle.schema import TIMESTAMP, quoted
from ladle.sql.ordered_aggregates import for_spark
from ladle.stem.backfill_kernel import Backfilled, BackfillTask, run_backfills
from ladle.stem.epoch_kernel import EpochTask, Manifest, run_pushed, run_task
from ladle.stem.join_kernel import JoinTask, TaskResults, run_joins

_BYTES_PER_TASK = 8 << 20

_REPLY = pa.schema([("reply", pa.string())])
_GROUP = "spark.jobGroup.id"
_VERIFY_PAGES = "parquet.page.verify-checksum.enabled"
_WORK = "ladle.work"
"""The property of a job that says what is to be done."""
_SOME_TIME_US = 1 << 50
"""What Spark is shown a query with: no answer has it."""
_LAST_BREATH_SECONDS_MAX = 2.0

Result = TypeVar("Result")
_Item = TypeVar("_Item")
Work = Callable[[int, int], Json]
"""What a task does, by the numbers of its partition and attempt; its reply is JSON."""


class _ReplyReader(Protocol):
    """What PySpark reads a task's results with."""

    def loads(self, results: bytes) -> Iterable[str]:
        """The results of one task."""
        ...


class SparkPipeline:
    """Runs tasks as jobs of a Spark session."""

    started = True

    def __init__(self, session: SparkSession, *, owned: bool) -> None:
        self.session = session
        self._owned = owned
        self._gateway = SparkContext._gateway
        self._clock: Callable[[], int] | None = None
        """Something that a JVM which lives answers at once; found when it is first asked."""
        self._sources: list[SparkSource] = []
        self._pushed: dict[int, RDD[str]] = {}
        """By the number of tasks, the job of pushed rows: made once, because each call to the JVM takes its time."""

    @property
    def alive(self) -> bool:
        """Whether the JVM lives."""
        return is_alive(self._gateway)

    def lost(self, error: BaseException) -> bool:
        """Whether the JVM is gone, after an error that may come of that."""
        if not self.alive:
            return True
        if not is_broken_connection(error):
            return False
        process: subprocess.Popen[bytes] | None = getattr(self._gateway, "proc", None)
        if process is None:
            return False
        # One that is killed closes its sockets a little before it is gone.
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_BREATH_SECONDS_MAX)
        return not self.alive

    def let_go(self) -> None:
        """Give up a JVM that is gone, and what hung on it."""
        self.fail_sources()
        let_go(self._gateway)

    def fail_sources(self) -> None:
        """Tell attached sources that their JVM is gone."""
        for source in self._sources:
            source.fail()

    def in_group(self, group: str, work: Callable[[SparkPipeline], Result]) -> Result:
        """Run something whose jobs `cancel` can stop, in a thread that does nothing else."""
        self.session.sparkContext.setJobGroup(group, "ladle", interruptOnCancel=True)
        return work(self)

    def cancel(self, group: str) -> None:
        """Stop a group's jobs, and those it has yet to begin."""
        with suppress(OSError, Py4JError):  # a JVM that is gone runs no jobs
            self.session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)

    def stray_tasks(self) -> int:
        """How many tasks run of jobs that were cancelled or failed: Spark asks tasks to end, and waits for none."""
        tracker: JavaObject = self.session.sparkContext._jsc.sc().statusTracker()
        running = sum(executor.numRunningTasks() for executor in tracker.getExecutorInfos())
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        # Not read at one moment: a job that just began may have more tasks than there were before.
        return max(running - sum(stage.get().numActiveTasks() for stage in stages if stage.isDefined()), 0)

    def run_pushed(self, task: EpochTask, files: Sequence[Path]) -> list[Manifest]:
        """Take in pushed files, with as many tasks as their size is worth."""
        total = sum(path.stat().st_size for path in files)
        wanted = min(len(files), 1 + total // _BYTES_PER_TASK)
        context = self.session.sparkContext
        groups = _split(files, wanted if wanted == 1 else min(wanted, context.defaultParallelism))
        if len(groups) not in self._pushed:
            self._pushed[len(groups)] = self._told(len(groups))
        context.setLocalProperty(_WORK, base64.b64encode(pickle.dumps((task, groups))).decode())
        try:
            replies = self._gathered(self._pushed[len(groups)], len(groups))
        finally:
            with suppress(OSError, Py4JError):  # the JVM may be gone
                context.setLocalProperty(_WORK, None)  # type: ignore[arg-type]
        return [Manifest.from_json(json.loads(reply)) for reply in replies]

    def _told(self, tasks: int) -> RDD[str]:
        """A job of so many tasks, which are told what to do when it is run."""

        def work(partition: int, attempt: int) -> Json:
            task, groups = pickle.loads(base64.b64decode(_context().getLocalProperty(_WORK) or ""))
            return run_pushed(task, partition, attempt, groups[partition]).to_json()

        return self._job(tasks, work)

    def run_batch(self, task: EpochTask, batch: DataFrame) -> list[Manifest]:
        """Take in a micro-batch, a task to a partition."""

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = _context()
            manifest = run_task(task, context.partitionId(), context.taskAttemptId(), batches)
            yield pa.RecordBatch.from_arrays([pa.array([json.dumps(manifest.to_json())])], schema=_REPLY)

        with _failing_clearly():
            rows = batch.mapInArrow(work, "reply string").collect()
            # A JVM that dies while it hands rows over closes the connection, which PySpark takes for their end. One
            # that still answers has handed over all of them.
            if self._clock is None:
                assert self._gateway is not None
                self._clock = self._gateway.jvm.java.lang.System.nanoTime
            self._clock()
        return [Manifest.from_json(json.loads(row.reply)) for row in rows]

    def run_backfill(self, tasks: Sequence[BackfillTask]) -> Backfilled:
        """Cover old data for new queries. One core is left for epochs."""
        # A task is never interrupted: an epoch that found all cores taken would wait for one of ours to end.
        cores = max(self.session.sparkContext.defaultParallelism - 1, 1)
        groups = _split(tasks, min(cores, len(tasks)))

        def work(partition: int, attempt: int) -> Json:
            return run_backfills(groups[partition]).to_json()

        return reduce(Backfilled.plus, map(Backfilled.from_json, self._run(len(groups), work)))

    def run_joins(self, tasks: Sequence[JoinTask]) -> TaskResults:
        """Find the pairs of joins in data files. One core is left for epochs."""
        cores = max(self.session.sparkContext.defaultParallelism - 1, 1)
        groups = _split(tasks, min(cores, len(tasks)))

        def work(partition: int, attempt: int) -> Json:
            joined = run_joins(groups[partition])
            return [dict(joined.failures), joined.unfinished, joined.bytes_read]

        replies = self._run(len(groups), work)
        failures = {owner: reason for reply, _, _ in replies for owner, reason in reply.items()}
        unfinished = any(reply[1] for reply in replies)
        return TaskResults(failures, unfinished, sum(bytes_read for _, _, bytes_read in replies))

    def run_residual(self, plan: Plan, relations: Mapping[str, Relation], nows: Nows, seconds_max: float) -> pa.Table:
        """Run a residual in a session of its own."""
        with self._residual_session(plan) as session:
            for name, relation in relations.items():
                _frame(session, relation).createOrReplaceTempView(name)
            context = session.sparkContext
            around = context.getLocalProperty(_GROUP)
            group = around or f"ladle-{uuid.uuid4().hex}"
            late = threading.Event()

            def stop_late() -> None:
                late.set()
                self.cancel(group)

            watchdog = threading.Timer(seconds_max, stop_late)
            watchdog.daemon = True
            watchdog.start()
            context.setJobGroup(group, "ladle residual", interruptOnCancel=True)
            try:
                answer = session.sql(for_spark(plan.residual.spark_sql), args=_arguments(plan, nows)).toArrow()
            except (PySparkException, Py4JError) as error:
                if late.is_set():
                    raise InvocationTimeout(f"Spark took longer than {seconds_max:g} s and was stopped.") from None
                if is_broken_connection(error):
                    raise
                raise said_by_function(error) or _refused(error, relations) from None
            finally:
                watchdog.cancel()
                with suppress(OSError, Py4JError):
                    context.setLocalProperty(_GROUP, around)  # type: ignore[arg-type]
            return _in_our_types(answer, plan.schema)

    def analyse(self, plan: Plan, relations: Mapping[str, pa.Schema]) -> pa.Schema:
        """The schema that Spark gives a residual; what Spark refuses raises."""
        with self._residual_session(plan) as session:
            for name, schema in relations.items():
                # Over an RDD: what is known to be empty is optimised away, and the mistakes in it too.
                nothing = session.sparkContext.emptyRDD()
                session.createDataFrame(nothing, schema=_spark_schema(schema)).createOrReplaceTempView(name)
            try:
                some = dict.fromkeys((NOW, *(each.parameter for each in plan.nows)), _SOME_TIME_US)
                answer = session.sql(for_spark(plan.residual.spark_sql), args=_arguments(plan, some))
                schema = to_arrow_schema(answer.schema, timezone="UTC")
                # The optimiser computes what is constant, so a literal that can't be cast shows here.
                answer._jdf.queryExecution().optimizedPlan()
            except (PySparkException, Py4JError) as error:
                if is_broken_connection(error):
                    raise
                raise _refused(error, relations, while_binding=True) from None
            return pa.schema([pa.field(field.name, _in_utc(field.type)) for field in schema])

    @contextmanager
    def _residual_session(self, plan: Plan) -> Iterator[SparkSession]:
        """One of its own, for a while: the calling thread's is then what it was."""
        with keeping_active(self.session):
            session = self.session.newSession()
            for name, value in SQL_SETTINGS.items():
                session.conf.set(name, value)
            for function in plan.called:
                session.udf.register(function.symbol, vectorised(function))
            yield session

    def read(self, form: str, options: Mapping[str, str], schema: pa.Schema) -> DataFrame:
        """The streaming DataFrame of a source that is defined in SQL."""
        return streaming_frame(self.session, form, options, _spark_schema(schema))

    def batch_schema(self, batches: object) -> pa.Schema:
        """The schema of a streaming DataFrame; anything else is refused."""
        if type(batches).__module__.startswith("pyspark.sql.connect"):
            raise Unsupported("A Spark Connect DataFrame can't be attached.", hint="use a classic SparkSession")
        if not isinstance(batches, DataFrame):
            raise TypeMismatch(f"attach takes a Spark streaming DataFrame, not a {type(batches).__name__}.")
        if not batches.isStreaming:
            raise Unsupported(
                "attach takes a streaming DataFrame; this one is not.", hint="use spark.readStream, or push its rows"
            )
        try:
            return to_arrow_schema(batches.schema, timezone="UTC")
        except PySparkException as error:
            raise TypeMismatch(f"A column of the DataFrame has a type no stream can hold: {reason_of(error)}") from None

    def attach(
        self,
        stream: str,
        source: str,
        batches: DataFrame,
        checkpoint: Path,
        run: BatchRunner,
        *,
        available_now: bool,
        retry_seconds_max: float,
    ) -> Attached:
        """Let a streaming DataFrame flow in."""
        attached = SparkSource(stream, source, batches, checkpoint, run, available_now, retry_seconds_max, self.lost)
        self._sources = [*(source for source in self._sources if not source.ended), attached]
        attached.start()
        return attached

    def close(self) -> None:
        """Stop the sources, and the session if this pipeline owns it."""
        for source in self._sources:
            source.stop()
        if not self.alive:
            self.let_go()
        elif self._owned:
            with suppress(OSError, Py4JError):  # it may go meanwhile
                self.session.stop()

    def _run(self, tasks: int, work: Work) -> list[JsonRow]:
        return [json.loads(reply) for reply in self._gathered(self._job(tasks, work), tasks)]

    def _job(self, tasks: int, work: Work) -> RDD[str]:
        """So many tasks, which have nothing but their numbers: an RDD, because a DataFrame would be planned each time
        it is run.
        """

        def run(partition: int, _: Iterable[int]) -> Iterator[str]:
            yield json.dumps(work(partition, _context().taskAttemptId()))

        return self.session.sparkContext.parallelize(range(tasks), tasks).mapPartitionsWithIndex(run)

    def _gathered(self, job: RDD[str], tasks: int) -> list[str]:
        """The tasks' replies, a list of one from each. Handed over by call: PySpark's `collect` does it through a
        socket that takes eight calls more, and one that closes early looks like the end.
        """
        # inside of the one of batches
        read: _ReplyReader = job._jrdd_deserializer.serializer  # type: ignore[attr-defined]
        with _failing_clearly():
            gathered = job._jrdd.collect()
            return [reply for number in range(tasks) for reply in read.loads(gathered.get(number))]


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


@contextmanager
def _failing_clearly() -> Iterator[None]:
    """An error of a job as one of ours; not that of the way to the JVM."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if is_broken_connection(error):
            raise
        raise PipelineError(f"A Spark job failed: {reason_of(error)}", hint="it is tried again") from error


def is_broken_connection(error: BaseException | None) -> bool:
    """Whether an error is of the way to the JVM, not of what it did."""
    while error is not None:
        if isinstance(error, ConnectionError | EOFError) or (
            isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _refused(error: BaseException, relations: Iterable[str], *, while_binding: bool = False) -> LadleError:
    """What Spark makes of a query, as an error of the text (it was analysed) or of the values (it ran)."""
    told = _unqualified(said_of_query(error), relations)
    if isinstance(error, AnalysisException):
        return SqlError(f"Spark refuses the query: {told}")
    if while_binding:
        return EvaluationError(f"Spark refuses the query: {told}")
    return EvaluationError(told if told.startswith("[") else f"Spark can't compute this: {told}")


def _arguments(plan: Plan, nows: Nows) -> dict[str, datetime | None] | None:
    used = {*([NOW] if plan.residual.uses_now else []), *(each.parameter for each in plan.nows)}
    return {name: None if us is None else to_datetime(us) for name, us in nows.items() if name in used} or None


def _unqualified(text: str, relations: Iterable[str]) -> str:
    """Spark's words with columns as the query names them, not as those of a scan."""
    for name in relations:
        for qualifier in (f"`{name}`.", f"{name}."):
            text = text.replace(qualifier, "")
    return text


def frame_of(session: SparkSession, table: pa.Table) -> DataFrame:
    """A table of ours, with Spark's types for it."""
    return session.createDataFrame(table, schema=_spark_schema(table.schema))


def _frame(session: SparkSession, relation: Relation) -> DataFrame:
    if isinstance(relation, pa.Table):
        return frame_of(session, relation)
    request: Request = relation.request
    source, extent = request.source, request.extent
    schema = _spark_schema(source.schema)
    if not request.files:
        return session.createDataFrame([], schema=schema).select(*map(quoted, request.columns))
    reading = session.read.schema(schema).option(_VERIFY_PAGES, "true")
    frame = reading.parquet(*(str(source.path(file)) for file in request.files))
    time = F.col(quoted(source.time))
    kind = "timestamp" if source.schema.field(source.time).type == TIMESTAMP else "timestamp_ntz"
    conditions = [F.expr(factor) for factor in relation.factors]
    if extent.begin_us > MIN_US:
        conditions.append(time > F.timestamp_micros(F.lit(extent.begin_us)).cast(kind))
    if extent.end_us < MAX_US:
        conditions.append(time <= F.timestamp_micros(F.lit(extent.end_us)).cast(kind))
    for name, (first, last) in request.cut_files.items():
        # Ids follow each other in a file, so a bound on them is one on Spark's own numbers of rows.
        place = frame.metadataColumn("_metadata")
        row = place.getField("row_index")
        conditions.append((place.getField("file_name") != name) | ((row >= first) & (row < last)))
    if extent.level is not None:
        conditions.append(_in_level(frame, request, extent.level))
    # The extent first: a factor may raise on tuples outside it.
    return reduce(DataFrame.where, reversed(conditions), frame).select(*map(quoted, request.columns))


def _in_level(frame: DataFrame, request: Request, level: HashLevel) -> Column:
    """Which rows of data files are in a level: Spark has the hash that levels are cut by."""
    place = frame.metadataColumn("_metadata")
    first_ids = json.dumps({file.name: file.first_id for file in request.files})
    # One constant, however many files there are.
    first_id = F.from_json(F.lit(first_ids), "map<string,bigint>")[place.getField("file_name")]
    whole = [F.lit(number).cast("bigint") for number in (level.stream, level.seed)]
    hashed = F.xxhash64(*whole, first_id + place.getField("row_index"))
    # Its numbers have a sign: the lowest of them is the least of all hashes.
    lowest = F.lit(-(HASHES // 2)).cast("bigint")
    return hashed.bitwiseXOR(lowest) < F.lit(level.below - HASHES // 2).cast("bigint")


def _spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _in_our_types(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """Spark's Arrow with zones as UTC, without its marks of nullability."""
    if schema is None:
        schema = pa.schema([pa.field(field.name, _in_utc(field.type)) for field in table.schema])
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(table.columns, schema, strict=True)], schema=schema
    )


def _in_utc(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return TIMESTAMP
    return type_


def _split(items: Sequence[_Item], count: int) -> list[list[_Item]]:
    """Neighbouring items in `count` groups of about the same size, in order."""
    bounds = [len(items) * number // count for number in range(count + 1)]
    return [list(items[start:stop]) for start, stop in pairwise(bounds)]
