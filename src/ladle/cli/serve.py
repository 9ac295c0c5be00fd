"""`ladle serve`: engine and HTTP interface in one process."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

from ladle.cli.place import add_spark, add_warehouse, spark_settings, typed, warehouse_of
from ladle.cli.terminal import Commands, command, patience
from ladle.errors import Closed, LadleError

if TYPE_CHECKING:
    from ladle.config import Setting, Settings
    from ladle.engine import Database

_MOMENT_SECONDS = 1.0
"""What requests under way have when the server is stopped."""


def add(commands: Commands) -> None:
    """Declare the command `serve`."""
    serve = command(
        commands,
        "serve",
        _serve,
        help="serve a warehouse over HTTP, with a console for the browser",
        description="""
            Serve a warehouse, which is made if it is not there, until Ctrl-C. Settings come from the options, from
            the environment (LADLE_<NAME>), and from a TOML file; docs/python.md lists them.
        """,
        examples="""
            ladle serve
            ladle serve -w /srv/ladle --host 0.0.0.0 --port 8642 --config /etc/ladle.toml
            ladle serve --master spark://10.0.0.5:7077 --spark-conf spark.executor.memory=4g
            ladle serve --set tls_certificate=cert.pem --set anonymous=nobody
        """,
    )
    add_warehouse(serve)
    add_spark(serve)
    serve.add_argument("--host", metavar="ADDRESS", help="where to listen (default 127.0.0.1)")
    serve.add_argument("--port", metavar="N", help="and at which port (default 8642; 0: one that is free)")
    serve.add_argument("--config", metavar="FILE", help="settings in a TOML file")
    serve.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="a setting; may be given several times"
    )
    serve.add_argument("--log", choices=("debug", "info", "warning"), default="info", help="what is logged (info)")


def _serve(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ladle.connection import open_database
    from ladle.protocols.http.process import Server

    logging.basicConfig(level=args.log.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("py4j", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    settings = settings_of(args)
    stopped = threading.Event()

    def stop(signum: int, frame: FrameType | None) -> None:
        stopped.set()

    with patience("opening the warehouse"):
        db = open_database(warehouse_of(args), settings=asdict(settings))
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    try:
        server = Server(db, settings)
        server.start()
        _say(args, db, server.url, settings)
        threading.Thread(target=_warm, args=(db,), name="ladle-warm", daemon=True).start()
        db.start_sources()
        try:
            stopped.wait()
            sys.stdout.write("stopping\n")
            sys.stdout.flush()
        finally:
            # Requests under way have a moment. Those that wait for more than that, a Spark that starts, are told.
            closing = threading.Timer(_MOMENT_SECONDS, db.close, kwargs={"promptly": True})
            closing.start()
            server.stop()
            closing.cancel()
            closing.join()
    finally:
        db.close(promptly=True)
    return 0


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings of a server, from its options and its file."""
    from ladle.config import Settings, parse_setting

    given: dict[str, Setting] = {}
    for text in args.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise LadleError(f"'{text}' is not a setting.", hint="--set NAME=VALUE")
        given[name] = parse_setting(name, value, "--set " + name)
    spark = spark_settings(args)
    if "spark_conf" in given and "spark_conf" in spark:
        spark["spark_conf"] = given["spark_conf"] | spark["spark_conf"]
    given |= spark
    if args.host is not None:
        given["host"] = args.host
    if args.port is not None:
        given["port"] = parse_setting("port", args.port, "--port")
    return Settings.load(given, args.config)


def _say(args: argparse.Namespace, db: Database, url: str, settings: Settings) -> None:
    sys.stdout.write(f"serving {db.path} at {url} (console: {url}/console/)\n")
    if settings.anonymous == "nobody" and not db.catalog.access.tokens:
        create = typed(args, "sql", "-c", '"CREATE TOKEN me ROLE admin"')
        sys.stdout.write(f"nobody has a token yet: {create}\n")
    sys.stdout.write("Ctrl-C stops it\n")
    sys.stdout.flush()


def _warm(db: Database) -> None:
    """Start Spark, so that the first push need not wait for it."""
    try:
        _ = db.spark
    except Closed:
        pass  # stopped while it started
    except LadleError as error:
        logging.getLogger(__name__).warning("Spark did not start: %s", error)
