"""The Spark session: local by default, quiet, in UTC, with task retries. One JVM serves the whole process.

The JVM is launched here and not by the first SparkContext, so that a start that fails or is interrupted can end it, and
so that one that died can be let go of: pyspark would keep it in mind for as long as the process runs.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from py4j.java_gateway import JavaClass, JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ladle.config import SparkStart
from ladle.errors import PipelineError
from ladle.interrupt import run_apart
from ladle.pipeline.classes import archive_options
from ladle.pipeline.workers import prepare_workers

SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""What an expression means depends on these, so every residual runs under them."""

_ADDED_TO = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
"""Settings that have words of ours and of the user's."""
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Names of settings that Spark itself does not show."""
_REACH_SECONDS_MAX = 5.0

_lock = threading.Lock()
"""One start at a time: there is one JVM."""
_forgetting = threading.Lock()


def start_session(start: SparkStart) -> tuple[SparkSession, bool]:
    """A session, and whether it was made here (and is to be stopped here); interrupted, it leaves no JVM behind."""
    return Start(start).session()


def make_active(session: SparkSession) -> None:
    """The session that Spark and PySpark take in the calling thread where none is said."""
    SparkSession._activeSession = session
    _sessions(session).setActiveSession(session._jsparkSession)


@contextmanager
def keeping_active(session: SparkSession) -> Iterator[None]:
    """PySpark makes a session active that makes a DataFrame of rows; afterwards it is again the one that was."""
    before, before_in_jvm = SparkSession._activeSession, _sessions(session).getActiveSession()
    try:
        yield
    finally:
        SparkSession._activeSession = before
        with suppress(OSError, Py4JError):  # the JVM may be gone
            if before_in_jvm.isDefined():
                _sessions(session).setActiveSession(before_in_jvm.get())
            else:
                _sessions(session).clearActiveSession()


def _sessions(session: SparkSession) -> JavaClass:
    return SparkSession._get_j_spark_session_class(session._jvm)


def is_alive(gateway: JavaGateway) -> bool:
    """Whether a JVM runs; one that was not launched by this process is taken at its word."""
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process is None or process.poll() is None


def let_go(gateway: JavaGateway) -> None:
    """End a JVM if it still runs, and make pyspark forget it, so that another can be started."""
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        _end(process)
    with _forgetting:
        if SparkContext._gateway is gateway:
            context = SparkContext._active_spark_context
            if context is not None:
                context._jsc = None  # nothing there to be told that it stops
                context.stop()
            SparkSession._instantiatedSession = SparkSession._activeSession = None
            SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):  # its threads here end; the other side is gone already
        gateway.shutdown()


def _end(process: subprocess.Popen[bytes]) -> None:
    """A JVM and what it started: it leads a process group of its own, if it was launched here."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
    process.wait()


def _spawn(conf: SparkConf, address: Path, noise: IO[bytes]) -> subprocess.Popen[bytes]:
    """A JVM that will write where it is to be reached. It ends by itself when its stdin does, with this process.

    pyspark's own way runs Python between fork and exec, which crashes in a process of many threads. In a group of its
    own the JVM needs none of that to be spared Ctrl-C, and can be ended with all that it started.
    """
    # A command line is for all users of the machine to read; the session is told the rest when it is made.
    shown = [(name, value) for name, value in conf.getAll() if not _SECRET.search(name)]
    settings = [part for name, value in shown for part in ("--conf", f"{name}={value}")]
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return subprocess.Popen(
        [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *settings, *arguments],
        stdin=subprocess.PIPE,
        stderr=noise,
        env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)},
        process_group=0,
    )


def _dial(address: bytes, process: subprocess.Popen[bytes]) -> JavaGateway:
    """pyspark's way to a JVM that runs: its port, and a secret after its length, in the environment."""
    port, length = struct.unpack(">ii", address[:8])
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": address[8 : 8 + length].decode()}
    try:
        gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            del os.environ[name]
    gateway.proc = process
    return gateway


class Start:
    """One start of a session, which another thread may cancel."""

    def __init__(self, start: SparkStart) -> None:
        self._master = start.master
        self._conf = start.conf
        self._local = start.local
        self._launched: subprocess.Popen[bytes] | None = None
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """End the start: the JVM that was launched goes."""
        self._cancelled.set()
        launched = self._launched
        if launched is not None:
            _end(launched)

    def session(self) -> tuple[SparkSession, bool]:
        """The session that was started, and whether it is this program's own, as `start_session` gives them."""
        # pyspark's handler of Ctrl-C would cancel every job, epochs of other streams among them; off the main thread it
        # sets none.
        return run_apart(self._run, self.cancel)

    def _run(self) -> tuple[SparkSession, bool]:
        with _lock, tempfile.TemporaryFile() as noise:
            gateway = SparkContext._gateway
            if gateway is not None and not is_alive(gateway):
                let_go(gateway)
            running = SparkContext._active_spark_context is not None
            _hush()
            try:
                self._check_master()
                self._launch(noise)
                session: SparkSession = self._builder().getOrCreate()
                self._heed_cancel()
                server = session.sparkContext._accumulatorServer
                server.handle_error = lambda *_: None  # type: ignore[method-assign]
                if not self._local:
                    prepare_workers(session.sparkContext)
            except Exception as error:
                self._undo()
                if isinstance(error, PipelineError) or self._cancelled.is_set():
                    raise
                raise self._failure(error, noise) from error
        return session, not running

    def _check_master(self) -> None:
        """Spark itself would try for a minute, or take the session that is there."""
        running = SparkContext._active_spark_context
        if running is None:
            check_reachable(self._master)
        elif not self._local and running.master != self._master:
            raise PipelineError(
                f"Spark runs on {running.master} in this process already, and not on {self._master}.",
                hint="stop that session first, or give it: connect(..., spark=session)",
            )

    def _launch(self, noise: IO[bytes]) -> None:
        """A JVM, if there is none. What it and its workers say on stderr is for nobody, unless it does not start."""
        if SparkContext._gateway is not None:
            return
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            _require_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = SparkConf()
        for name, value in self._settings().items():
            conf.set(name, value)
        self._heed_cancel()
        if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit runs this program, in a JVM that is there
            SparkContext._ensure_initialized(conf=conf)
            return
        with tempfile.TemporaryDirectory() as directory:
            address = Path(directory) / "address"
            self._launched = _spawn(conf, address, noise)
            while not address.exists():
                if self._launched.poll() is not None:
                    raise RuntimeError(f"Java ended with code {self._launched.returncode}")
                self._heed_cancel()
                time.sleep(0.02)
            SparkContext._ensure_initialized(gateway=_dial(address.read_bytes(), self._launched), conf=conf)
        self._heed_cancel()

    def _heed_cancel(self) -> None:
        if self._cancelled.is_set():
            raise PipelineError("The start of Spark was interrupted.")

    def _undo(self) -> None:
        if self._launched is not None:
            _end(self._launched)
            if SparkContext._gateway is not None:
                let_go(SparkContext._gateway)

    def _builder(self) -> SparkSession.Builder:
        builder: SparkSession.Builder = SparkSession.builder
        for name, value in self._settings().items():
            builder = builder.config(name, value)
        return builder

    def _settings(self) -> dict[str, str]:
        quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        settings = {
            **SQL_SETTINGS,
            "spark.app.name": "ladle",
            "spark.master": self._master,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.extraJavaOptions": f"{quiet} {archive_options()}".strip(),
            "spark.executor.extraJavaOptions": quiet,
            "spark.driver.memory": "2g",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
            "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "ladle-spark-warehouse"),
        }
        if self._local:
            # A newcomer's machine may not be able to resolve its own name.
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            settings |= {"spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
            settings |= {"spark.python.daemon.module": "ladle.pipeline.daemon"}
            # Over TCP the two sides of a task wait 40 ms for each other's acknowledgements.
            settings |= {"spark.python.unix.domain.socket.enabled": "true"}
        else:
            # An executor with a task that can't be stopped is replaced.
            settings |= {"spark.task.reaper.enabled": "true", "spark.task.reaper.killTimeout": "10s"}
        added = {name: f"{settings[name]} {self._conf.get(name, '')}".strip() for name in _ADDED_TO}
        return {**settings, **self._conf, **added}

    def _failure(self, error: Exception, noise: IO[bytes]) -> PipelineError:
        noise.seek(0)
        said = noise.read().decode(errors="replace").strip().splitlines()
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return PipelineError(
            f"Spark could not start on {self._master}: {said[-1] if said else first}",
            hint="check that Java 17 or newer works: java -version" if self._local else "check the master's address",
        )


def check_reachable(master: str) -> None:
    """Raise if nobody listens at a master's address, or at any of several."""
    kind, _, rest = master.partition("://")
    if kind not in ("spark", "k8s"):
        return
    reason = ""
    for address in rest.rpartition("://")[2].split(","):
        parts = urlsplit(f"//{address}")
        try:
            socket.create_connection((parts.hostname or "", parts.port or 443), _REACH_SECONDS_MAX).close()
            return
        except (OSError, ValueError) as error:
            reason = str(error)
    raise PipelineError(
        f"The Spark master {master} can't be reached: {reason}.",
        hint="is it running, and is the address right? (--master, or the setting spark_master)",
    )


def session_of(batches: object) -> SparkSession | None:
    """A DataFrame's session, unless it was stopped or its JVM is gone."""
    session = getattr(batches, "sparkSession", None)
    context = getattr(session, "sparkContext", None)
    stopped = isinstance(context, SparkContext) and (context._jsc is None or not is_alive(context._gateway))
    return None if stopped else session


def check_session(session: SparkSession) -> None:
    """Refuse a session that a user gave and that can't run epochs."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise PipelineError(
            "A Spark Connect session can't be used: epochs need a session in this process.",
            hint="use a classic SparkSession, or connect(..., master=...)",
        )
    prepare_workers(session.sparkContext)


def _hush() -> None:
    """What goes wrong in a batch is told by its source, and a JVM's death by who needs it: no traces beside that, also
    while one starts.
    """
    for noisy in ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j logs calls that a dead JVM does not answer under no name but the root's."""
    return Path(record.pathname).parent.name != "py4j"


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java") or (home and shutil.which(str(Path(home) / "bin" / "java")))
    if not found:
        raise PipelineError(
            "Spark needs Java 17 or newer, and none was found.",
            hint="install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME",
        )
