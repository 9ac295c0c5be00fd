"""DuckDB, closed in: no files, no network, no settings, bounded time and memory.

Timestamps enter without their zone (every clock here is UTC), so that the session's time zone can't change an answer.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import Parameter, Signature

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from ladle.errors import EvaluationError, InvocationTimeout, LadleError
from ladle.evaluate.calls import Calls
from ladle.evaluate.duckdb_reasons import reason_of
from ladle.interrupt import STOP_SECONDS_MAX, run_apart
from ladle.plan import Function
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ
from ladle.sql.conformant.spark_types import duckdb_type


@dataclass(frozen=True)
class _DuckLimits:
    memory_bytes_max: int | None
    threads: int


@dataclass
class _Slot:
    """Where users' functions are called while a statement runs."""

    calls: Calls | None = None


@dataclass
class _DuckDatabase:
    """One closed-in database."""

    connection: duckdb.DuckDBPyConnection
    functions: dict[str, Function] = field(default_factory=dict)
    """The users' functions that it knows, by symbol."""
    slot: _Slot = field(default_factory=_Slot)

    def learn(self, function: Function) -> None:
        known = self.functions.get(function.symbol)
        if known == function:
            return
        if known is not None:  # of another warehouse
            self.connection.remove_function(function.symbol)
        self.connection.create_function(
            function.symbol,
            _caller(function, self.slot),
            [duckdb.sqltype(duckdb_type(parameter.type)) for parameter in function.parameters],
            duckdb.sqltype(duckdb_type(function.returns)),
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
            side_effects=False,
        )
        self.functions[function.symbol] = function


def _caller(function: Function, slot: _Slot) -> Callable[..., pa.Array]:
    # It knows no connection: one that knew what knows it would never be let go of.
    def called(*arguments: pa.ChunkedArray) -> pa.Array:
        assert slot.calls is not None
        result = slot.calls.run(function, [argument.combine_chunks() for argument in arguments])
        return result.cast(TIMESTAMP_NTZ) if result.type == TIMESTAMP else result

    # DuckDB counts the parameters.
    parameters = [Parameter(f"x{number}", Parameter.POSITIONAL_ONLY) for number in range(len(function.parameters))]
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return called


class _ThreadDatabases(threading.local):
    """One thread's databases: cursors of one database would see each other's registered tables."""

    def __init__(self) -> None:
        self.databases = _Databases()


class _Databases:
    def __init__(self) -> None:
        self.opened: dict[_DuckLimits, _DuckDatabase] = {}
        _living.add(self)

    def get(self, limits: _DuckLimits) -> _DuckDatabase:
        if limits not in self.opened:
            self.opened[limits] = _open(limits)
        return self.opened[limits]

    def close(self) -> None:
        for each in self.opened.values():
            with suppress(duckdb.Error):  # a query may be under way in another thread
                each.connection.close()
        self.opened.clear()


_living: weakref.WeakSet[_Databases] = weakref.WeakSet()
_local = _ThreadDatabases()


@atexit.register
def _close_all() -> None:
    # DuckDB's bindings complain on stderr about what is still open when the interpreter goes.
    for databases in list(_living):
        databases.close()


_THREADS = 2
_DEPTH_MAX = 2_500
"""How deep an expression may nest: one of eight thousand levels is more than the stack of a thread can hold."""
_INTERRUPT_SECONDS = 0.02


class Interrupted(InvocationTimeout):
    """The time allowed was used up."""


def run(
    sql: str,
    tables: Mapping[str, pa.Table],
    *,
    parameters: Mapping[str, object] | None = None,
    seconds_max: float | None = None,
    memory_bytes_max: int | None = None,
    in_order: bool = False,
    functions: Sequence[Function] = (),
) -> pa.Table:
    """Run one SELECT over the named tables. Raises EvaluationError with DuckDB's reason, or Interrupted.

    With `in_order`, rows come out in the order they went in: on one thread, because with several DuckDB answers a long
    IN list by a join that mixes them up, whatever `preserve_insertion_order` says.
    """
    limits = _DuckLimits(memory_bytes_max, 1 if in_order else _THREADS)
    statement = _Statement(_local.databases, limits, sql, tables, parameters, functions, seconds_max)
    try:
        return run_apart(statement.run, statement.stop, seconds_max=seconds_max)
    finally:
        if not statement.ended.is_set():  # left behind by Ctrl-C: its databases are not ours any more
            _local.databases = _Databases()


class _Statement:
    """A SELECT that runs in a thread of its own: the one that waits for it can stop it."""

    def __init__(
        self,
        databases: _Databases,
        limits: _DuckLimits,
        sql: str,
        tables: Mapping[str, pa.Table],
        parameters: Mapping[str, object] | None,
        functions: Sequence[Function],
        seconds_max: float | None,
    ) -> None:
        self._databases = databases
        self._limits = limits
        self._sql = sql
        self._tables = tables
        self._parameters = dict(parameters) if parameters else None
        self._functions = functions
        self._seconds_max = seconds_max
        self._calls = Calls(seconds_max) if functions else None
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._stopped = False
        self.ended = threading.Event()

    def run(self) -> pa.Table:
        try:
            return self._run(self._databases.get(self._limits))
        except duckdb.Error as error:
            raise _told(error, self._calls, self._seconds_max, late=self._stopped) from None
        finally:
            if self._calls is not None:
                self._calls.close()
            self.ended.set()

    def _run(self, opened: _DuckDatabase) -> pa.Table:
        for function in self._functions:
            opened.learn(function)
        opened.slot.calls = self._calls
        self._cursor = cursor = opened.connection.cursor()
        try:
            for name, table in self._tables.items():
                cursor.register(name, without_zones(table))
            return cursor.sql(self._sql, params=self._parameters).to_arrow_table()
        finally:
            cursor.close()
            opened.slot.calls = None

    def stop(self) -> None:
        """Make it end soon. Asked again and again: DuckDB forgets an interrupt that comes while a statement begins."""
        self._stopped = True
        if self._calls is not None:
            self._calls.stop()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._cursor is not None:
                with suppress(duckdb.ConnectionException):  # it ended at this very moment
                    self._cursor.interrupt()
            if self.ended.wait(_INTERRUPT_SECONDS):
                return


def _told(error: duckdb.Error, calls: Calls | None, seconds_max: float | None, *, late: bool) -> LadleError:
    """What went wrong, for people: what a function did comes before what DuckDB says of it."""
    if calls is not None and calls.late is not None:
        return Interrupted(f"Function '{calls.late}' took longer than {seconds_max:g} s and was stopped.")
    if calls is not None and calls.error is not None:
        # Made anew: the one that was raised holds on to all that was in sight there.
        return EvaluationError(calls.error.message, hint=calls.error.hint)
    if late or isinstance(error, duckdb.InterruptException):
        return Interrupted(f"Evaluation took longer than {seconds_max:g} s and was stopped.")
    if isinstance(error, duckdb.OutOfMemoryException):
        return EvaluationError("Evaluation needed more memory than allowed.", hint="narrow the window or the query")
    return EvaluationError(reason_of(str(error)))


def _open(limits: _DuckLimits) -> _DuckDatabase:
    """One closed-in database: no files, no network, no settings to change."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": limits.threads,
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
        "preserve_insertion_order": True,
        "max_expression_depth": _DEPTH_MAX,
    }
    if limits.memory_bytes_max is not None:
        config["memory_limit"] = f"{max(limits.memory_bytes_max >> 20, 64)}MiB"
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return _DuckDatabase(connection)


def without_zones(table: pa.Table) -> pa.Table:
    """The same table with TIMESTAMP columns as plain UTC timestamps."""
    fields = [pa.field(field.name, _without_zone(field.type)) for field in table.schema]
    if all(made.type == field.type for made, field in zip(fields, table.schema, strict=True)):
        return table
    return table.cast(pa.schema(fields))


def _without_zone(type_: pa.DataType) -> pa.DataType:
    """Also of the moments in a struct of moments alone, as time windows are."""
    if type_ == TIMESTAMP:
        return TIMESTAMP_NTZ
    if pa.types.is_struct(type_) and all(field.type == TIMESTAMP for field in type_):
        return pa.struct([pa.field(field.name, TIMESTAMP_NTZ) for field in type_])
    return type_
