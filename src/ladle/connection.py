"""Opening a database."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, overload

from ladle.archive.folder import local_folder
from ladle.client.remote_database import RemoteDatabase
from ladle.clock import Clock
from ladle.config import Settings
from ladle.engine import Database
from ladle.errors import LadleError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_open: set[Database] = set()

OpenDatabase: TypeAlias = Database | RemoteDatabase
"""A database, wherever it is."""


@overload
def connect(
    where: Path,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    read_only: bool = False,
    clock: Clock | None = None,
    settings: Mapping[str, object] | None = None,
) -> Database: ...


@overload
def connect(where: str, *, token: str, certificate: str | None = None) -> RemoteDatabase: ...


@overload
def connect(
    where: str,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    read_only: bool = False,
    clock: Clock | None = None,
    settings: Mapping[str, object] | None = None,
    token: str | None = None,
    certificate: str | None = None,
) -> OpenDatabase: ...


def connect(
    where: str | Path,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    read_only: bool = False,
    clock: Clock | None = None,
    settings: Mapping[str, object] | None = None,
    token: str | None = None,
    certificate: str | None = None,
) -> OpenDatabase:
    """Open the warehouse in a folder, which is made if it is not there; or reach a server, `http://...`.

    For a folder: Spark is started when it is first needed, locally, on `master` if one is named, not at all when a
    session is given as `spark`. One process at a time may write; with `read_only` any number may read beside it.
    `settings` count more than those of the environment; `clock` is what tells the time of arrival, for tests.

    For a server: it is told who asks by the `token` (by default, LADLE_TOKEN of the environment); `certificate` is a
    file with the authority to trust, if the server's certificate is not from a public one.
    """
    for_folders = {
        "spark": spark,
        "master": master,
        "read_only": read_only or None,
        "clock": clock,
        "settings": settings,
    }
    if isinstance(where, str) and where.lower().startswith(("http://", "https://")):
        chosen = [name for name, value in for_folders.items() if value is not None]
        if chosen:
            raise LadleError(f"{', '.join(chosen)} can't be chosen for a server: that is the server's affair.")
        return _reached(where, token, certificate)
    folder = local_folder(where)
    if token is not None or certificate is not None:
        raise LadleError("A token and a certificate are for servers, not for a folder.")
    return open_database(folder, spark=spark, master=master, read_only=read_only, clock=clock, settings=settings)


def spark_format(spark: SparkSession) -> None:
    """Let a Spark session read from servers and write to them: format "ladle", with the options url and token, and
    query or stream.
    """
    from ladle.pipeline.datasource import register

    register(spark, _reached)


def _reached(url: str, token: str | None, certificate: str | None = None) -> RemoteDatabase:
    from ladle.client.over_http import HttpTransport

    token = token if token is not None else os.environ.get("LADLE_TOKEN")
    return RemoteDatabase(HttpTransport(url, token, certificate=certificate))


def open_database(
    path: str | Path,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    read_only: bool = False,
    clock: Clock | None = None,
    settings: Mapping[str, object] | None = None,
) -> Database:
    """Open the warehouse at `path`, which is made if it is not there.

    Spark is started when it is first needed: on `master` if one is named, otherwise where the setting `spark_master`
    says (locally), not at all when a session is given. The setting `spark_conf` has Spark's own settings.
    One process at a time may write; with `read_only` any number may read beside it.
    """
    from ladle.pipeline.lazy import LazyPipeline

    chosen = Settings.load({**(settings or {}), **({} if master is None else {"spark_master": master})})
    pipeline = LazyPipeline(session=spark, start=chosen.spark)
    database = Database(path, pipeline=pipeline, read_only=read_only, clock=clock, settings=asdict(chosen))
    if not read_only:
        _open.add(database)
        database.parts.on_close.append(partial(_open.discard, database))
        serve(database)
    return database


@atexit.register
def _close_all() -> None:
    """A program that ends without closing: threads that work on while the interpreter goes would crash it."""
    for database in list(_open):
        with contextlib.suppress(Exception):
            database.close()


def serve(database: Database) -> None:
    """Let other processes of this machine reach the database while it is open."""
    from ladle.protocols.socket import SocketServer

    try:
        server = SocketServer(database, database.path / "ladle.sock")
    except OSError as error:
        _log.warning("no socket in %s (%s): other processes can only read", database.path, error)
    else:
        database.parts.on_close.append(server.stop)
