"""Calls of users' functions during one evaluation, made in a thread of their own.

A function that does not come back in time is left behind there: the evaluation ends when its time is used up, whatever
the function does, unless it holds Python's lock and never lets go. Python code is stopped by an exception; code outside
Python is when it returns.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

import pyarrow as pa

from ladle.errors import EvaluationError
from ladle.evaluate import user_functions as functions
from ladle.plan import Function
from ladle.thread_stop import ThreadStop

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.02


class _FunctionStop(BaseException):
    """Ends a function that is late; not an Exception, so that few functions catch it."""


class _FunctionCall:
    def __init__(self, function: Function, arguments: Sequence[pa.Array]) -> None:
        self.function = function
        self.arguments = arguments
        self.done = threading.Event()
        self.result: pa.Array | None = None
        self.error: EvaluationError | None = None

    def run(self) -> None:
        try:
            self.result = functions.call(self.function, self.arguments)
        except EvaluationError as error:
            self.error = error
        except _FunctionStop:
            raise
        except BaseException as error:  # exit() ends the function, not the process
            self.error = functions.raised(self.function, error)
        finally:
            self.done.set()


class Calls:
    """What one evaluation has called, and until when it may."""

    def __init__(self, seconds_max: float | None) -> None:
        self._deadline = None if seconds_max is None else time.monotonic() + seconds_max
        self._waiting: queue.SimpleQueue[_FunctionCall | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stopper = ThreadStop(_FunctionStop)
        self._stopped = False
        self._asked: set[_FunctionCall] = set()
        self.late: str | None = None
        """The function that was still running when time was up."""
        self.error: EvaluationError | None = None
        """The first thing that went wrong."""

    def run(self, function: Function, arguments: Sequence[pa.Array]) -> pa.Array:
        """Call a function, in the thread for calls, until its time is up."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._stopper.run, args=(self._serve,), name="ladle-function", daemon=True
                )
                self._thread.start()
        call = _FunctionCall(function, arguments)
        self._asked.add(call)
        self._waiting.put(call)
        left = None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)
        if not call.done.wait(0.0 if self.late or self._stopped else left):
            self.late = self.late or function.name
            self._stop()
        self._asked.discard(call)
        if call.error is not None:
            self.error = self.error or call.error
            raise call.error
        if call.result is None:
            raise TimeoutError(f"function {function.name} is late")
        return call.result

    def stop(self) -> None:
        """End the wait for a function that runs, and for any that is called after it."""
        self._stopped = True
        waited_for = [call for call in list(self._asked) if not call.done.is_set()]
        for call in waited_for:
            self.late = self.late or call.function.name
            call.done.set()
        if waited_for:
            self._stop()

    def close(self) -> None:
        """Let the thread end when its call is done."""
        self._waiting.put(None)

    def _serve(self) -> None:
        while (call := self._waiting.get()) is not None:
            call.run()

    def _stop(self) -> None:
        thread = self._thread
        assert thread is not None
        for _ in range(_ATTEMPTS):  # a function may catch one
            if not self._stopper.send(thread):
                return
            thread.join(_PAUSE_SECONDS)
