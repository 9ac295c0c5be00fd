"""The Spark session: local by default, quiet, in UTC, with task retries."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ladle.errors import PipelineError

LOCAL = "local[*,4]"
"""Plain `local[*]` gives up on a task the first time it fails."""

SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""What an expression means depends on these, so every residual runs under them."""


def start_session(master: str | None) -> tuple[SparkSession, bool]:
    """A session, and whether it was made here (and is to be stopped here)."""
    running = SparkContext._active_spark_context is not None
    if not running:
        _require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    where = master or LOCAL
    local = where.startswith("local")
    quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    builder: Any = SparkSession.builder.appName("ladle").master(where)
    settings = {
        **SQL_SETTINGS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": quiet,
        "spark.executor.extraJavaOptions": quiet,
        "spark.driver.memory": "2g",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "ladle-spark-warehouse"),
    }
    if local:
        # A newcomer's machine may not be able to resolve its own name.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings |= {"spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
    for name, value in settings.items():
        builder = builder.config(name, value)
    with tempfile.TemporaryFile() as noise:
        try:
            with _stderr_to(noise), _own_interrupts():
                session: SparkSession = builder.getOrCreate()
        except Exception as error:
            noise.seek(0)
            said = noise.read().decode(errors="replace").strip().splitlines()
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise PipelineError(
                f"Spark could not start on {where}: {said[-1] if said else first}",
                hint="check that Java 17 or newer works: java -version" if local else "check the master's address",
            ) from error
    # What goes wrong in a batch is told by its source; py4j would print the whole trace beside it.
    for noisy in ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    if not local:
        _ship_package(session)
    return session, not running


def check_session(session: Any) -> None:
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise PipelineError(
            "A Spark Connect session can't be used: epochs need a session in this process.",
            hint="use a classic SparkSession, or connect(..., master=...)",
        )
    if not str(session.sparkContext.master).startswith("local"):
        _ship_package(session)


def _ship_package(session: SparkSession) -> None:
    """Give the executors this package; the libraries it needs must be installed there."""
    root = Path(__file__).parents[1]
    archive = shutil.make_archive(
        str(Path(tempfile.mkdtemp(prefix="ladle-")) / "ladle"), "zip", root_dir=root.parent, base_dir=root.name
    )
    session.sparkContext.addPyFile(archive)


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """PySpark would let Ctrl-C cancel every job, epochs of other streams among them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _stderr_to(noise: IO[bytes]) -> Iterator[None]:
    """The JVM and its workers inherit this process's stderr; what they say there is for nobody."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(noise.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java") or (home and shutil.which(str(Path(home) / "bin" / "java")))
    if not found:
        raise PipelineError(
            "Spark needs Java 17 or newer, and none was found.",
            hint="install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME",
        )
