"""Calls of users' functions during one evaluation, made in a thread of their own.

A function that does not come back in time is left behind there: the evaluation ends when its time is used up, whatever
the function does, unless it holds Python's lock and never lets go. Python code is stopped by an exception; code outside
Python is when it returns.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from ladle.errors import EvaluationError
from ladle.evaluate import functions
from ladle.plan import Function

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.02


class _Stop(BaseException):
    """Ends a function that is late; not an Exception, so that few functions catch it."""


class _Call:
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
        except _Stop:
            raise
        except BaseException as error:  # exit() ends the function, not the process
            self.error = functions.raised(self.function, error)
        finally:
            self.done.set()


class Calls:
    """What one evaluation has called, and until when it may."""

    def __init__(self, seconds_max: float | None) -> None:
        self._deadline = None if seconds_max is None else time.monotonic() + seconds_max
        self._waiting: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._over = False
        self._stopped = False
        self._asked: set[_Call] = set()
        self.late: str | None = None
        """The function that was still running when time was up."""
        self.error: EvaluationError | None = None
        """The first thing that went wrong."""

    def run(self, function: Function, arguments: Sequence[pa.Array]) -> pa.Array:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="ladle-function", daemon=True)
                self._thread.start()
        call = _Call(function, arguments)
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
        self._waiting.put(None)

    def _serve(self) -> None:
        with suppress(_Stop):
            while (call := self._waiting.get()) is not None:
                call.run()
        while not self._over:
            with suppress(_Stop), self._lock:
                self._over = True
                _raise_in(threading.get_ident(), None)  # one that is still on its way would end the thread loudly

    def _stop(self) -> None:
        thread = self._thread
        assert thread is not None
        assert thread.ident is not None
        for _ in range(_ATTEMPTS):  # a function may catch one
            with self._lock:
                if self._over:
                    return
                _raise_in(thread.ident, _Stop)
            thread.join(_PAUSE_SECONDS)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an exception in a thread when it is next in Python code; None takes back one that is not raised yet."""
    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
