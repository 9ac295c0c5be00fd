"""Residuals on a Spark of their own, in a process that can be ended.

Spark can't take a core back from a task that loops in compiled code: a regular expression that backtracks, a join whose
condition never holds, a constant that the optimiser is to compute. In the JVM of the epochs each would keep a core from
them until the database closes. So a database with a local Spark runs residuals in another process with another JVM,
started on first need; what does not stop when told is ended with its process, and whatever else ran there runs again.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection

import pyarrow as pa

from ladle.config import SparkStart
from ladle.errors import Closed, InvocationTimeout, PipelineError
from ladle.pipeline.interface import Relation
from ladle.plan import Plan
from ladle.plan.as_of import Nows

STOP_SECONDS_MAX = 2.0
"""What was told to stop, and has not by then, is ended with its process."""

_ATTEMPTS = 3
"""A residual runs again when its process was ended on behalf of another, but not for ever: it may be the cause."""

_log = logging.getLogger(__name__)


class Residuals:
    """Runs residuals in a process of its own, which is ended when one of them can't be stopped."""

    def __init__(self, start: SparkStart) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._closed = threading.Event()
        self.restarts = 0

    def run_residual(self, plan: Plan, relations: Mapping[str, Relation], nows: Nows, seconds_max: float) -> pa.Table:
        """Run a residual in the other process. What can't be stopped there ends that process."""
        arguments = (plan, dict(relations), nows, seconds_max)
        # The process stops it at its limit; here there is a limit only to the wait for that.
        table: pa.Table = self._ask("run_residual", arguments, seconds_max, STOP_SECONDS_MAX)
        return table

    def analyse(self, plan: Plan, relations: Mapping[str, pa.Schema], seconds_max: float) -> pa.Schema:
        """The schema that Spark gives a residual; what Spark refuses raises."""
        schema: pa.Schema = self._ask("analyse", (plan, dict(relations)), seconds_max)
        return schema

    def close(self) -> None:
        """Also while it starts; the thread that waits for that has the lock, and looks at the one after it has set the
        other.
        """
        self._closed.set()
        process = self._process
        if process is not None:
            process.end()

    def _ask(self, what: str, arguments: tuple[object, ...], seconds_max: float, grace_seconds: float = 0.0) -> object:
        for _ in range(_ATTEMPTS):
            try:
                return self._running().ask(what, arguments, seconds_max + grace_seconds)
            except TimeoutError:
                raise InvocationTimeout(f"Spark took longer than {seconds_max:g} s and was stopped.") from None
            except _ProcessEnded:
                _log.warning("the Spark that ran a residual is gone; another is started")
        raise PipelineError(
            f"Spark ended while it computed the answer, {_ATTEMPTS} times.", hint="the machine may lack memory for it"
        )

    def _running(self) -> _Process:
        with self._lock:
            if self._closed.is_set():
                raise Closed
            if self._process is None or self._process.gone:
                _log.info("starting Spark for residuals")
                self.restarts += self._process is not None
                self._process = _Process(self._start)
                try:
                    if self._closed.is_set():
                        self._process.end()
                    self._process.await_start()
                except Exception:
                    if self._closed.is_set():
                        raise Closed from None
                    raise
                _log.info("Spark for residuals is running")
            return self._process


class _ProcessEnded(Exception):
    """The process ended before it answered."""


class _Process:
    """One process, until it is ended. Any number of threads may ask it things at the same time."""

    def __init__(self, start: SparkStart) -> None:
        place = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or None
        self._scratch = tempfile.TemporaryDirectory(prefix="ladle-residuals-", dir=place, ignore_cleanup_errors=True)
        ours, theirs = socket.socketpair()
        with theirs:
            self._python = subprocess.Popen(
                [sys.executable, "-m", "ladle.pipeline.residual_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_without_gateway({**os.environ, "SPARK_LOCAL_DIRS": self._scratch.name}),
                pass_fds=[theirs.fileno()],
                process_group=0,  # out of Ctrl-C's way
            )
        self._connection = Connection(ours.detach())
        with suppress(OSError):  # it ended; that is seen when it should have started
            self._connection.send(start)  # and not as an argument, which others on the machine could read
        self._sending = threading.Lock()
        self._ending = threading.Lock()
        self._waiting: dict[int, Future[tuple[object, bool]]] = {}
        self._numbers = count()
        self._jvm: int | None = None
        self.gone = False

    def await_start(self) -> None:
        try:
            started = self._connection.recv()
            if isinstance(started, BaseException):
                raise started
        except BaseException as error:
            self.end()
            if isinstance(error, EOFError):
                raise PipelineError("Spark's process ended while it started.", hint="check free memory") from None
            raise
        self._jvm = started
        threading.Thread(target=self._listen, name="ladle-residuals", daemon=True).start()

    def ask(self, what: str, arguments: tuple[object, ...], seconds_max: float) -> object:
        """What the process answers, or raises; TimeoutError if it does neither, and it is ended."""
        number = next(self._numbers)
        future: Future[tuple[object, bool]] = Future()
        self._waiting[number] = future
        try:
            self._send(what, number, arguments)
            outcome, stuck = future.result(seconds_max)
        except TimeoutError:
            self.end()
            raise
        except KeyboardInterrupt:
            self._stop(number, future)
            raise
        finally:
            self._waiting.pop(number, None)
        if stuck:
            self.end()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def end(self) -> None:
        """Kill it, its JVM and what that started; it has no state but its scratch files."""
        with self._ending:
            self.gone = True
            if self._jvm is None:
                # It still starts. Nobody else knows its JVM yet, and it ends that when it is told to end.
                self._python.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self._python.wait(STOP_SECONDS_MAX)
            for leader in (self._python.pid, self._jvm):
                if leader is not None and (leader != self._python.pid or self._python.poll() is None):
                    with suppress(ProcessLookupError):
                        os.killpg(leader, signal.SIGKILL)
            self._python.wait()
            self._scratch.cleanup()

    def _stop(self, number: int, future: Future[tuple[object, bool]]) -> None:
        """Cancel one thing; a second Ctrl-C meanwhile ends it all at once."""
        stuck = True
        try:
            self._send("cancel", number, ())
            _, stuck = future.result(STOP_SECONDS_MAX)
        except (_ProcessEnded, TimeoutError):
            pass
        finally:
            if stuck:
                self.end()

    def _send(self, what: str, number: int, arguments: tuple[object, ...]) -> None:
        try:
            with self._sending:
                self._connection.send((what, number, arguments))
        except OSError:
            raise _ProcessEnded from None

    def _listen(self) -> None:
        try:
            while True:
                number, outcome, stuck = self._connection.recv()
                waiting = self._waiting.get(number)
                if waiting is not None:
                    waiting.set_result((outcome, stuck))
        except (EOFError, OSError):
            self.end()
            self._connection.close()
            for waiting in list(self._waiting.values()):
                if not waiting.done():
                    waiting.set_exception(_ProcessEnded())


def _without_gateway(environment: dict[str, str]) -> dict[str, str]:
    """A program that spark-submit runs is told of a JVM: not of one to be ended."""
    return {name: value for name, value in environment.items() if not name.startswith("PYSPARK_GATEWAY_")}
