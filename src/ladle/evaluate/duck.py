"""DuckDB, closed in: no files, no network, no settings, bounded time and memory.

Timestamps enter without their zone (every clock here is UTC), so that the session's time zone can't change an answer.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from ladle.errors import EvaluationError, InvocationTimeout
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ


@dataclass(frozen=True)
class _Limits:
    memory_bytes_max: int | None
    threads: int


class _Connections(threading.local):
    """One thread's databases."""

    def __init__(self) -> None:
        self.databases = _Databases()


class _Databases:
    def __init__(self) -> None:
        self.opened: dict[_Limits, duckdb.DuckDBPyConnection] = {}
        _living.add(self)

    def close(self) -> None:
        for connection in self.opened.values():
            with suppress(duckdb.Error):  # a query may be under way in another thread
                connection.close()
        self.opened.clear()


_living: weakref.WeakSet[_Databases] = weakref.WeakSet()
_local = _Connections()


@atexit.register
def _close_all() -> None:
    # DuckDB's bindings complain on stderr about what is still open when the interpreter goes.
    for databases in list(_living):
        databases.close()


_THREADS = 2


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
) -> pa.Table:
    """Run one SELECT over the named tables. Raises EvaluationError with DuckDB's reason, or Interrupted.

    With `in_order`, rows come out in the order they went in: on one thread, because with several DuckDB answers a long
    IN list by a join that mixes them up, whatever `preserve_insertion_order` says.
    """
    connection = _connection(_Limits(memory_bytes_max, 1 if in_order else _THREADS))
    cursor = connection.cursor()
    done = threading.Event()
    timed_out = threading.Event()

    def stop_late() -> None:
        if not done.wait(seconds_max):
            timed_out.set()
            cursor.interrupt()

    watchdog = threading.Thread(target=stop_late, daemon=True) if seconds_max is not None else None
    try:
        for name, table in tables.items():
            cursor.register(name, without_zones(table))
        if watchdog is not None:
            watchdog.start()
        relation = cursor.sql(sql, params=dict(parameters) if parameters else None)
        return relation.to_arrow_table()
    except duckdb.InterruptException:
        raise Interrupted(f"Evaluation took longer than {seconds_max:g} s and was stopped.") from None
    except duckdb.OutOfMemoryException as error:
        raise EvaluationError(
            f"Evaluation needed more memory than allowed: {error}", hint="narrow the window or the query"
        ) from None
    except duckdb.Error as error:
        if timed_out.is_set():
            raise Interrupted(f"Evaluation took longer than {seconds_max:g} s and was stopped.") from None
        raise EvaluationError(_reason(error)) from None
    finally:
        done.set()
        cursor.close()


def _connection(limits: _Limits) -> duckdb.DuckDBPyConnection:
    """One closed-in database per thread: cursors of one database would see each other's registered tables."""
    cached = _local.databases.opened
    if limits not in cached:
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": limits.threads,
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
            "preserve_insertion_order": True,
        }
        if limits.memory_bytes_max is not None:
            config["memory_limit"] = f"{max(limits.memory_bytes_max >> 20, 64)}MiB"
        connection = duckdb.connect(":memory:", config=config)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET lock_configuration = true")
        cached[limits] = connection
    return cached[limits]


def without_zones(table: pa.Table) -> pa.Table:
    """The same table with TIMESTAMP columns as plain UTC timestamps."""
    if not any(field.type == TIMESTAMP for field in table.schema):
        return table
    fields = [pa.field(f.name, TIMESTAMP_NTZ) if f.type == TIMESTAMP else f for f in table.schema]
    return table.cast(pa.schema(fields))


def _reason(error: duckdb.Error) -> str:
    """DuckDB's message without its class prefix and its excerpt of our rendered SQL."""
    text = str(error).split("\n\nLINE ")[0].strip()
    return text.removeprefix("Invalid Input Error: ")
