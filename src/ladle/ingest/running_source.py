"""A defined source that runs: started by a thread of its own, and again whenever it can't be or has ended.

What is tried again here is the start, with a pause that grows: a directory that is not there yet, a broker that does
not answer, a JVM that is gone. A Spark query that fails is started again by who attached it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ladle.catalog import SourceState
from ladle.errors import Closed
from ladle.pipeline import Attached
from ladle.pipeline.spark_reasons import reason_of

_log = logging.getLogger(__name__)

AT_WORK = ("running", "restarting")
_FIRST_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 0.2
_STEADY_SECONDS = 10.0
"""One that ran for so long is started again as if it had never failed."""
_STOP_SECONDS_MAX = 30.0


class Defined:
    """An `Attached` that outlives what it attaches."""

    def __init__(
        self,
        source: SourceState,
        start: Callable[[], tuple[Attached, object]],
        version: Callable[[], object],
        *,
        settle_seconds: float,
        retry_seconds_max: float,
    ) -> None:
        """`start` also gives the version of what it is for; when that is another one it is started anew.

        It waits for `settle_seconds` first: a process that ends at once should not have started Spark.
        """
        self.definition = source
        self._start = start
        self._version = version
        self._settle_seconds = settle_seconds
        self._retry_seconds_max = retry_seconds_max
        self._attached: Attached | None = None
        self._state = "starting"
        self._error: str | None = None
        self._restarts = 0
        self._stopping = threading.Event()
        name = f"ladle-source-{source.stream}-{source.name}"
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    @property
    def state(self) -> str:
        """How the source is: running, restarting, and so on."""
        attached = self._attached
        return self._state if attached is None else attached.state

    @property
    def error(self) -> str | None:
        """What went wrong last, or None."""
        attached = self._attached
        return self._error if attached is None else attached.error

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        attached = self._attached
        return self._restarts + (0 if attached is None else attached.restarts)

    def stop(self) -> None:
        """Stop it, and wait a while for that."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS_MAX)

    def _watch(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        self._stopping.wait(self._settle_seconds)
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                again = self._run()
            except Closed:
                break
            if self._stopping.is_set():
                break
            if again:
                continue
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            self._state = "restarting"
            name, stream = self.definition.name, self.definition.stream
            _log.warning("source %s of %s failed (%s); again in %g s", name, stream, self._error, pause)
            self._stopping.wait(pause)
            self._restarts += 1
            pause = min(pause * 2, self._retry_seconds_max)
        self._state = "stopped"

    def _run(self) -> bool:
        """Start it, and wait until it ended; whether that is because it must be started anew."""
        try:
            attached, version = self._start()
        except Closed:
            raise
        except Exception as error:  # of Spark, of a broker, of a package: nobody else watches this source
            self._error = reason_of(error)
            return False
        self._attached, self._state = attached, "running"
        try:
            while attached.state in AT_WORK and not self._stopping.wait(_LOOK_SECONDS):
                if self._version() != version:
                    self._error = None
                    return True
            self._error = attached.error or "it ended"
            return False
        finally:
            attached.stop()
            self._restarts += attached.restarts
            self._attached = None
