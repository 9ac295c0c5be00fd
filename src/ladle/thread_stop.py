"""An exception that ends Python code in another thread: a user's function that is late, a statement too large to bind.

CPython notes for the whole process that such an exception is on its way, and forgets it only when one is raised. An
exception that is taken back (set to None) leaves that note for good, and Python 3.11 then never comes out of the next
function that is entered under a debugger, a profiler or `sys.settrace`. So what is on its way is let through.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress


class ThreadStop:
    """Ends the work of one thread: the thread runs it here, and others may send for its end."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error
        self._lock = threading.Lock()
        self._sent = False
        self._over = False

    def run(self, work: Callable[[], None]) -> None:
        """Do the work in the calling thread until it is done or ended. Afterwards no error comes or is on its way."""
        with suppress(self._error):
            with suppress(self._error):
                work()
            self._end()
        self._end()  # again: the error may have come just before

    def send(self, thread: threading.Thread) -> bool:
        """Raise the error in the thread when it is next in Python code; False when its work is over. What runs there
        may catch it, so it may have to be sent again.
        """
        with self._lock:
            if self._over or thread.ident is None:
                return False
            self._sent = True
            self._raise_in(thread.ident)
            return True

    def _end(self) -> None:
        is_last = False
        while True:
            try:
                with self._lock:
                    self._over = True
                if not self._sent:
                    return
                # It takes the place of one that was not raised yet.
                is_last = True
                self._raise_in(threading.get_ident())
                while True:
                    time.sleep(0)
            except self._error:
                if is_last:
                    return

    def _raise_in(self, ident: int) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(self._error))
