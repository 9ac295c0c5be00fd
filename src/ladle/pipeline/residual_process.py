"""The process that residuals run in (see `ladle.pipeline.residuals`): requests come through a socket, replies go back.

A request is what to do, a number and arguments; a reply is the number, the outcome or its error, and whether tasks of
it run on that Spark can't stop. The process ends when the other side does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection

from pyspark import SparkContext

from ladle.errors import LadleError, PipelineError
from ladle.pipeline.spark import SparkPipeline
from ladle.pipeline.spark_reasons import reason_of
from ladle.pipeline.spark_session import start_session

_STOP_SECONDS_MAX = 1.0


class _ResidualServer:
    def __init__(self, connection: Connection, pipeline: SparkPipeline) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._sending = threading.Lock()

    def serve(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                what, number, arguments = self._connection.recv()
                if what == "cancel":
                    self._pipeline.cancel(_group(number))
                else:
                    threading.Thread(target=self._do, args=(what, number, arguments), daemon=True).start()

    def _do(self, what: str, number: int, arguments: tuple[object, ...]) -> None:
        outcome: object
        try:
            outcome = self._pipeline.in_group(_group(number), lambda spark: getattr(spark, what)(*arguments))
            stuck = False
        except BaseException as error:
            if self._pipeline.lost(error):
                os._exit(1)
            outcome = error if isinstance(error, LadleError) else PipelineError(f"Spark failed: {reason_of(error)}")
            stuck = not self._stopped()
        with self._sending, suppress(OSError):
            self._connection.send((number, outcome, stuck))

    def _stopped(self) -> bool:
        """Wait until no task runs but those of jobs that go on, for as long as that may take."""
        deadline = time.monotonic() + _STOP_SECONDS_MAX
        while (running := self._pipeline.stray_tasks()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return not running


def _group(number: int) -> str:
    return f"ladle-residual-{number}"


def main() -> None:
    """Start a Spark session, then run residuals for the process that started this one."""
    connection = Connection(int(sys.argv[1]))
    # A start that is interrupted leaves no JVM behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        session, _ = start_session(connection.recv())
    except PipelineError as error:
        connection.send(error)
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    jvm = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
    connection.send(jvm)
    _ResidualServer(connection, SparkPipeline(session, owned=True)).serve()
    with suppress(ProcessLookupError):
        os.killpg(jvm, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
