"""The Spark format `ladle`: a server's queries and streams, read and written by other Spark programs.

A batch read invokes a query. A streaming read subscribes to it: its offsets are epochs, and what an epoch added can be
asked for again, so a program that goes on from its checkpoint gets every change once. A write pushes to a stream; each
partition of a micro-batch is sent under a key that is the same when the batch is run again, so it counts once.

How a server is reached is told by whoever registers the format (`ladle.spark_format`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ladle.errors import LadleError, WarehouseError, unknown
from ladle.pipeline.session import make_active
from ladle.pipeline.workers import prepare_local
from ladle.schema import quoted, type_name

FORMAT = "ladle"
_URL = "http://127.0.0.1:8642"
_LATEST = "latest"
_PUSH_BYTES_MAX = 32 << 20
"""What is sent at once; a server takes requests of up to 64 MB, unless it was told otherwise."""
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Where Spark tells a task of a streaming query's micro-batch whose it is. The id is in the query's checkpoint."""


class Server(Protocol):
    """What is asked of a server: `ladle.remote.client.RemoteDatabase`."""

    def sql(self, text: str) -> Any: ...

    def invoke(self, name: str, *, now: str | None = None) -> Any: ...

    def changes(self, name: str, *, since: int | None = None, seconds: float = 0.0) -> tuple[list[Any], int]: ...

    def columns(self, query: str) -> list[tuple[str, str]] | None: ...

    def streams(self) -> list[Any]: ...

    def push(self, stream: str, rows: Any, *, wait: bool = False, key: str | None = None) -> int | None: ...

    def close(self) -> None: ...


Reach = Callable[[str, str | None], Server]
"""A server by its address and a token."""


@dataclass(frozen=True)
class _Options:
    """What a program asked for. It travels to the tasks."""

    reach: Reach
    url: str
    token: str | None
    query: str | None
    stream: str | None
    now: str | None
    starting_epoch: str
    source: str | None

    @staticmethod
    def of(options: MutableMapping[str, str], reach: Reach) -> _Options:
        given = {name.lower(): value for name, value in options.items()}
        return _Options(
            reach,
            given.get("url", _URL),
            given.get("token"),
            given.get("query"),
            given.get("stream"),
            given.get("now"),
            given.get("startingepoch", _LATEST),
            given.get("source"),
        )

    def server(self) -> Server:
        return self.reach(self.url, self.token)

    def needed(self, option: str) -> str:
        value: str | None = getattr(self, option)
        if value is None:
            raise LadleError(f"The format {FORMAT} needs the option '{option}' here.", hint=f'.option("{option}", ...)')
        return value


class LadleSource(DataSource):
    reach: ClassVar[Reach]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = _Options.of(options, type(self).reach)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        options = self._options
        server = options.server()
        try:
            columns = server.columns(options.query) if options.query is not None else _stream_columns(server, options)
        finally:
            server.close()
        if columns is None:
            raise LadleError(
                f"The columns of query '{options.query}' are known only when it runs.", hint="say them: .schema(...)"
            )
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        _check_stream(self._options, overwrite)
        return _Writer(self._options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        _check_stream(self._options, overwrite)
        return _StreamWriter(self._options)


def register(session: SparkSession, reach: Reach) -> None:
    """Let a session know the format, and be the calling thread's active one."""
    if isinstance(session, SparkSession):
        prepare_local(session.sparkContext)
    session.dataSource.register(type("LadleSource", (LadleSource,), {"reach": staticmethod(reach)}))
    if isinstance(session, SparkSession):
        # A sink's format is looked up in the calling thread's active session, which may be none, or another.
        make_active(session)


# -- reading --


class _Reader(DataSourceReader):
    """One task asks for the answer."""

    def __init__(self, options: _Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        server = options.server()
        try:
            if options.query is not None:
                answer = server.invoke(options.query, now=options.now)
            else:
                answer = server.sql(f"SELECT * FROM {quoted(options.needed('stream'))}")
        finally:
            server.close()
        return _in_spark_types([answer.table], self._schema)


@dataclass
class _Epochs(InputPartition):
    """What came after one epoch, up to another."""

    after: int
    upto: int


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: _Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._query = options.needed("query")
        self._last: int | None = None
        """The epoch to end with, if it is to end."""
        self._server: Server | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_server": None}

    def initialOffset(self) -> dict[str, int]:
        starting = self._options.starting_epoch
        if starting == _LATEST:
            return {"epoch": self._newest()}
        if not starting.isdecimal():
            raise LadleError(
                f"Option 'startingEpoch' can't be '{starting}'.", hint="it is the number of an epoch, or latest"
            )
        return {"epoch": int(starting)}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        newest = self._newest() if self._last is None else self._last
        return {"epoch": max(start["epoch"], newest)}

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._newest()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [_Epochs(start["epoch"], end["epoch"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Epochs)
        server = self._options.server()
        try:
            yield from _in_spark_types(self._changes(server, partition), self._schema)
        finally:
            server.close()

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def _newest(self) -> int:
        if self._server is None:
            self._server = self._options.server()
        _, epoch = self._server.changes(self._query)
        return epoch

    def _changes(self, server: Server, wanted: _Epochs) -> Iterator[pa.Table]:
        since = wanted.after
        while since < wanted.upto:
            found, told = server.changes(self._query, since=since)
            yield from (each.table for each in found if each.epoch <= wanted.upto)
            if told <= since:
                raise WarehouseError(
                    f"The server is at epoch {told}, and the checkpoint of this program at {wanted.upto}.",
                    hint="is it another warehouse, or an older copy? Begin with a new checkpoint",
                )
            since = told


def _in_spark_types(tables: Iterable[pa.Table], schema: StructType) -> Iterator[pa.RecordBatch]:
    wanted = to_arrow_schema(schema, timezone="UTC")
    for table in tables:
        by_name = table.select(wanted.names) if set(wanted.names) <= set(table.column_names) else table
        yield from by_name.cast(wanted).to_batches()


def _stream_columns(server: Server, options: _Options) -> list[tuple[str, str]]:
    if options.stream is None:
        raise LadleError(f"The format {FORMAT} needs an option: query, or stream.")
    streams = server.streams()
    found = next((each for each in streams if each.name.lower() == options.stream.lower()), None)
    if found is None:
        raise unknown("stream", options.stream, [each.name for each in streams])
    return [(column.name, type_name(column.type)) for column in found.schema.columns]


# -- writing --


class _Writer(DataSourceArrowWriter):
    def __init__(self, options: _Options) -> None:
        self._options = options
        # The job's own: a task that is run again has it too.
        self._job = options.source or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _push(self._options, iterator, f"{self._job}/{_task().partitionId()}")


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: _Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        source = self._options.source or task.getLocalProperty(_QUERY_ID)
        batch = task.getLocalProperty(_BATCH_ID)
        if source is None or batch is None:
            raise LadleError("Spark does not say which micro-batch this is, so it can't be pushed once.")
        return _push(self._options, iterator, f"{source}/{batch}/{task.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every push is a commit of its own."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was pushed has its key: the batch, run again, does not push it again."""


def _push(options: _Options, batches: Iterator[pa.RecordBatch], key: str) -> WriterCommitMessage:
    """A partition's rows in one push, or in several if they are many, under keys that follow from its own."""
    server = options.server()
    try:
        for number, table in enumerate(_gathered(batches)):
            server.push(options.needed("stream"), table, key=f"{key}/{number}")
    finally:
        server.close()
    return WriterCommitMessage()


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        if gathered and sum(each.nbytes for each in gathered) + batch.nbytes > _PUSH_BYTES_MAX:
            yield pa.Table.from_batches(gathered)
            gathered = []
        if batch.num_rows:
            gathered.append(batch)
    if gathered:
        yield pa.Table.from_batches(gathered)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "writers run in tasks"
    return task


def _check_stream(options: _Options, overwrite: bool) -> None:
    """Before any task runs: what is wrong for all of them is said once."""
    if overwrite:
        raise LadleError("A stream can't be overwritten: tuples are added to it.", hint='mode("append")')
    options.needed("stream")
    server = options.server()
    try:
        _stream_columns(server, options)
    finally:
        server.close()
