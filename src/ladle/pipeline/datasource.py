"""The Spark format `ladle`: a server's queries and streams, read and written by other Spark programs.

A batch read invokes a query. A streaming read subscribes to it: its offsets are positions, and what changed from one to
the other can be asked for again, so a program that goes on from its checkpoint gets every change once. It gets the rows
that came; with the option `changes` also those that went, and what became of each. A write pushes to a stream; each
partition of a micro-batch is sent under a key that is the same when the batch is run again, so it counts once.

How a server is reached is told by whoever registers the format (`ladle.spark_format`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

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

from ladle.delta import ChangeOptions, Delta, Expirations, Moment, ToStream, change_names, change_rows
from ladle.errors import LadleError, WarehouseError, unknown
from ladle.json_values import JsonFields
from ladle.pipeline.spark_session import make_active
from ladle.pipeline.workers import prepare_local
from ladle.schema import StreamSchema, quoted, type_name

FORMAT = "ladle"
_URL = "http://127.0.0.1:8642"
_LATEST = "latest"
_PUSH_BYTES_MAX = 32 << 20
"""What is sent at once; a server takes requests of up to 64 MB, unless it was told otherwise."""
_CHANGE_COLUMNS = (("_change", "INT"), ("_now", "TIMESTAMP"), ("_out", "TIMESTAMP"))
"""Before a query's columns with the option `changes`: +1 or -1, NOW of the answer after it, when the row will leave."""
_STILL_SECONDS = 15.0
"""How long an offset stays where it is though NOW moves on: an older one may be beyond what is known some day."""
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Where Spark tells a task of a streaming query's micro-batch whose it is. The id is in the query's checkpoint."""


class ServedAnswer(Protocol):
    """What is looked at of an answer."""

    @property
    def table(self) -> pa.Table:
        """Its rows."""
        ...


class ServedStream(Protocol):
    """What is looked at of a stream."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def schema(self) -> StreamSchema:
        """Its columns."""
        ...


class SparkServer(Protocol):
    """What is asked of a server: `ladle.client.remote_database.RemoteDatabase`."""

    def sql(self, text: str) -> ServedAnswer:
        """Run one statement."""
        ...

    def invoke(self, name: str, *, now: str | None = None) -> ServedAnswer:
        """The answer of a standing query."""
        ...

    def changes(
        self,
        name: str,
        *,
        since: int | str | None = None,
        options: ChangeOptions | None = None,
        upto: str | None = None,
    ) -> list[Delta]:
        """What changed in an answer since a position."""
        ...

    def columns(self, query: str) -> list[tuple[str, str]] | None:
        """The names and types of a query's columns; None if they are not known."""
        ...

    def streams(self) -> Sequence[ServedStream]:
        """The streams of the server."""
        ...

    def push(self, stream: str, rows: object, *, wait: bool = False, key: str | None = None) -> int | None:
        """Push rows into a stream."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


Reach = Callable[[str, str | None], SparkServer]
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
    starting_position: str | None
    source: str | None
    changes: bool
    expirations: str

    @staticmethod
    def of(options: MutableMapping[str, str], reach: Reach) -> _Options:
        given = {name.lower(): value for name, value in options.items()}
        if "startingepoch" in given and "startingposition" in given:
            raise LadleError("The options 'startingEpoch' and 'startingPosition' exclude each other.")
        if "expirations" in given and not _flag("changes", given.get("changes", "false")):
            raise LadleError(
                "The option 'expirations' is about rows that leave: without 'changes' only those that come are told.",
                hint='add .option("changes", "true")',
            )
        return _Options(
            reach,
            given.get("url", _URL),
            given.get("token"),
            given.get("query"),
            given.get("stream"),
            given.get("now"),
            given.get("startingepoch", _LATEST),
            given.get("startingposition"),
            given.get("source"),
            _flag("changes", given.get("changes", "false")),
            given.get("expirations", Expirations.RETRACT.value),
        )

    def server(self) -> SparkServer:
        return self.reach(self.url, self.token)

    @property
    def told(self) -> ChangeOptions:
        """What a streaming read is told of."""
        return ChangeOptions.of(self.expirations, ToStream.CHANGES if self.changes else ToStream.ISTREAM)

    def needed(self, option: str) -> str:
        value: str | None = getattr(self, option)
        if value is None:
            raise LadleError(f"The format {FORMAT} needs the option '{option}' here.", hint=f'.option("{option}", ...)')
        return value


class LadleSource(DataSource):
    """The format `ladle` as Spark knows it."""

    reach: ClassVar[Reach]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = _Options.of(options, type(self).reach)

    @classmethod
    def name(cls) -> str:
        """What Spark calls the format."""
        return FORMAT

    def schema(self) -> str:
        """The columns of the query or stream, as Spark writes them."""
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
        if options.changes:
            names = change_names([name for name, _ in columns])
            columns = [(name, kind) for name, (_, kind) in zip(names, (*_CHANGE_COLUMNS, *columns), strict=True)]
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What `spark.read` reads with."""
        if self._options.changes:
            raise LadleError("The option 'changes' is for streaming reads.", hint="spark.readStream.format('ladle')")
        return _AnswerReader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What `spark.readStream` reads with."""
        return _StreamReader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """What `df.write` writes with."""
        _check_stream(self._options, overwrite)
        return _Writer(self._options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """What `df.writeStream` writes with."""
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


class _AnswerReader(DataSourceReader):
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


Offset: TypeAlias = JsonFields
"""Where a stream of Spark's is, as Spark keeps it: `{"position": text}`; of older checkpoints, and where a program says
so, `{"epoch": number}`.
"""


@dataclass
class _Between(InputPartition):
    """What changed after one position, or epoch, up to another."""

    after: int | str
    upto: str


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: _Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._query = options.needed("query")
        self._told = options.told
        self._last: str | None = None
        """The position to end with, if it is to end."""
        self._still_since: float | None = None
        """Since when nothing but NOW moved."""
        self._server: SparkServer | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_server": None}

    def initialOffset(self) -> Offset:
        if self._options.starting_position is not None:
            Moment.parse(self._options.starting_position)  # raises for what is none
            return {"position": self._options.starting_position}
        starting = self._options.starting_epoch
        if starting == _LATEST:
            return {"position": self._newest()}
        if not starting.isdecimal():
            raise LadleError(
                f"Option 'startingEpoch' can't be '{starting}'.", hint="it is the number of an epoch, or latest"
            )
        return {"epoch": int(starting)}

    def latestOffset(self, start: Offset, limit: object) -> Offset:
        """The newest position, or the one before while nothing changed since: NOW alone makes no batch."""
        newest = self._newest() if self._last is None else self._last
        after = _since(start)
        if isinstance(after, int):
            return {"position": newest}
        if _order(newest) <= _order(after):
            return start
        if Moment.parse(newest).entry == Moment.parse(after).entry and self._is_still(after, newest):
            return start
        self._still_since = None
        return {"position": newest}

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._newest()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        upto = _since(end)
        if isinstance(upto, int):
            upto = self._ask().changes(self._query, since=upto, upto=str(upto))[-1].position
        return [_Between(_since(start), upto)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Between)
        server = self._options.server()
        try:
            yield from _in_spark_types(self._changes(server, partition), self._schema)
        finally:
            server.close()

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def _ask(self) -> SparkServer:
        if self._server is None:
            self._server = self._options.server()
        return self._server

    def _newest(self) -> str:
        return self._ask().changes(self._query)[-1].position

    def _is_still(self, after: str, newest: str) -> bool:
        """Whether nothing changed while no entry came; for a while, then the offset moves on all the same."""
        now = time.monotonic()
        self._still_since = self._still_since or now
        if now - self._still_since > _STILL_SECONDS:
            return False
        found = self._ask().changes(self._query, since=after, upto=newest, options=self._told)
        return all(each.progress for each in found)

    def _changes(self, server: SparkServer, wanted: _Between) -> Iterator[pa.Table]:
        since = wanted.after
        if isinstance(since, str) and _order(since) >= _order(wanted.upto):
            return
        while True:
            found = server.changes(self._query, since=since, upto=wanted.upto, options=self._told)
            rows = change_rows if self._options.changes else _inserted
            yield from (rows(each) for each in found if not each.progress)
            position = found[-1].position
            if _order(position) >= _order(wanted.upto):
                return
            if position == since:
                raise WarehouseError(
                    f"The server is at {position}, and the checkpoint of this program at {wanted.upto}.",
                    hint="is it another warehouse, or an older copy? Begin with a new checkpoint",
                )
            since = position


def _since(offset: Offset) -> int | str:
    """A position, or the epoch of an older checkpoint."""
    return str(offset["position"]) if "position" in offset else int(offset["epoch"])


def _order(position: str) -> tuple[int, float]:
    entry, now_us = Moment.parse(position)
    return entry, float("-inf") if now_us is None else now_us


def _inserted(delta: Delta) -> pa.Table:
    return delta.inserted


def _flag(option: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise LadleError(f"Option '{option}' can't be '{text}'.", hint="it is true or false")
    return text.lower() == "true"


def _in_spark_types(tables: Iterable[pa.Table], schema: StructType) -> Iterator[pa.RecordBatch]:
    wanted = to_arrow_schema(schema, timezone="UTC")
    for table in tables:
        by_name = table.select(wanted.names) if set(wanted.names) <= set(table.column_names) else table
        yield from by_name.cast(wanted).to_batches()


def _stream_columns(server: SparkServer, options: _Options) -> list[tuple[str, str]]:
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
