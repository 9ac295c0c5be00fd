"""Which database a command works on: a warehouse of this machine (`-w`), or a server (`--url`)."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ladle.config import Setting
    from ladle.connection import OpenDatabase


def add_warehouse(parser: argparse.ArgumentParser) -> None:
    """Give a command the option `-w`, the warehouse that it works on."""
    parser.add_argument(
        "-w",
        "--warehouse",
        metavar="PATH",
        help="the folder with the streams and queries (default: $LADLE_WAREHOUSE, else ./warehouse)",
    )


def add_place(parser: argparse.ArgumentParser) -> None:
    """The options of a command that works on a warehouse or through a server."""
    add_warehouse(parser)
    parser.add_argument(
        "--url", metavar="URL", help="work through a server, like http://127.0.0.1:8642 (default: $LADLE_URL)"
    )
    parser.add_argument("--token", metavar="TOKEN", help="who you are to the server (default: $LADLE_TOKEN)")
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        help="the authority to trust, if the server's certificate is not a public one's (default: $LADLE_CERTIFICATE)",
    )
    parser.set_defaults(refuse=parser.error)


def add_spark(parser: argparse.ArgumentParser) -> None:
    """The options of a command that may start Spark."""
    parser.add_argument(
        "--master",
        metavar="URL",
        help="where Spark runs, like spark://HOST:PORT (default: $LADLE_SPARK_MASTER, else on this machine)",
    )
    parser.add_argument(
        "--spark-conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of Spark's; may be given several times (default: $LADLE_SPARK_CONF)",
    )
    parser.set_defaults(refuse=parser.error)


def spark_settings(args: argparse.Namespace) -> dict[str, Setting]:
    """What was typed of where Spark runs and how, as settings."""
    given: dict[str, Setting] = {}
    if getattr(args, "master", None) is not None:
        given["spark_master"] = args.master
    conf = [text.partition("=") for text in getattr(args, "spark_conf", ())]
    for name, equals, _ in conf:
        if not equals:
            args.refuse(f"argument --spark-conf: '{name}' is not NAME=VALUE")
    if conf:
        given["spark_conf"] = {name: value for name, _, value in conf}
    return given


def warehouse_of(args: argparse.Namespace) -> str:
    """The warehouse that a command line names, or the default."""
    return args.warehouse if args.warehouse is not None else _default_warehouse()


def _default_warehouse() -> str:
    return os.environ.get("LADLE_WAREHOUSE", "warehouse")


@dataclass(frozen=True)
class ServerAddress:
    """A server, and how to reach it."""

    url: str
    token: str | None = field(repr=False)
    certificate: str | None


def server_of(args: argparse.Namespace) -> ServerAddress | None:
    """The server that is meant, or None: then it is a warehouse.

    What is typed counts more than the environment: `-w` chooses a warehouse although there is a LADLE_URL.
    """
    if args.warehouse is not None:
        for_servers = [name for name in ("url", "token", "certificate") if getattr(args, name) is not None]
        if for_servers:
            args.refuse(f"argument --{for_servers[0]}: not allowed with argument -w/--warehouse")
        return None
    url = _given(args, "url")
    if url is None:
        for name in ("token", "certificate"):
            if getattr(args, name) is not None:
                args.refuse(f"argument --{name}: it is for a server; name that with --url or LADLE_URL")
        return None
    return ServerAddress(url, _given(args, "token"), _given(args, "certificate"))


def _given(args: argparse.Namespace, name: str) -> str | None:
    typed: str | None = getattr(args, name)
    return typed if typed is not None else os.environ.get(f"LADLE_{name.upper()}") or None


def typed(args: argparse.Namespace, command: str, *arguments: str) -> str:
    """A command to type next, on the same warehouse or server. A token is never shown."""
    where: list[str] = []
    if getattr(args, "url", None) is not None:
        where += ["--url", shlex.quote(args.url)]
    elif args.warehouse is not None and args.warehouse != _default_warehouse():
        where += ["-w", shlex.quote(args.warehouse)]
    if getattr(args, "token", None) is not None:
        where += ["--token", "TOKEN"]
    if getattr(args, "certificate", None) is not None:
        where += ["--certificate", shlex.quote(args.certificate)]
    return " ".join(["ladle", command, *where, *arguments])


def place_text(args: argparse.Namespace) -> str:
    """Where a command works, for people."""
    server = server_of(args)
    return warehouse_of(args) if server is None else server.url


def opening_text(args: argparse.Namespace) -> str:
    """What is going on while it is opened."""
    return "opening the warehouse" if server_of(args) is None else "asking the server"


@contextmanager
def opened(args: argparse.Namespace, *, read_only: bool = False, create: bool = False) -> Iterator[OpenDatabase]:
    """The server's database; or the warehouse, through the process that holds it for writing, if there is one.

    Otherwise the warehouse is opened here, to read without the lock. It is not made if it is not there, unless with
    `create`.
    """
    server = server_of(args)
    if server is not None and spark_settings(args):
        args.refuse("argument --master, --spark-conf: a server has its own Spark")
    with _served(server) if server is not None else _opened_warehouse(args, read_only, create) as db:
        yield db


def _served(server: ServerAddress) -> OpenDatabase:
    from ladle.client import RemoteDatabase
    from ladle.client.over_http import HttpTransport

    return RemoteDatabase(HttpTransport(server.url, server.token, certificate=server.certificate))


def _opened_warehouse(args: argparse.Namespace, read_only: bool, create: bool) -> OpenDatabase:
    from ladle import client
    from ladle.archive.folder import local_folder
    from ladle.errors import WarehouseBusy

    path = local_folder(warehouse_of(args))
    spark = spark_settings(args)
    db = _through_writer(path) if read_only else None
    if db is None:
        if not create:
            require_warehouse(path, args)
        db = client.open_warehouse(path, read_only=read_only, settings=spark)
    if spark and isinstance(db, client.RemoteDatabase):
        db.close()
        raise WarehouseBusy(
            "Another process has the warehouse open, and answers with a Spark of its own.",
            hint="leave out --master and --spark-conf, or give them to that process",
        )
    return db


def require_warehouse(path: Path, args: argparse.Namespace) -> None:
    """Raise, and say how one is made, if there is no warehouse."""
    from ladle.archive.warehouse import Warehouse
    from ladle.errors import WarehouseError

    try:
        Warehouse.open(path, writable=False).close()
    except WarehouseError as error:
        if not path.is_file() and not os.path.lexists(path / "FORMAT"):
            create = typed(args, "sql", "-c", '"CREATE STREAM ..."')
            error.hint = f"check the path (-w, or LADLE_WAREHOUSE), or make one with its first stream: {create}"
        raise


def _through_writer(path: Path) -> OpenDatabase | None:
    """The database of the process that writes, which has warm caches and a running Spark; None if there is none."""
    from ladle.client import RemoteDatabase, SocketTransport

    try:
        return RemoteDatabase(SocketTransport(path))
    except OSError:
        return None
