"""Ctrl-C beside Spark. Python raises KeyboardInterrupt in the main thread, wherever that is.

In the midst of a call to the JVM that leaves the connection with half an answer, and in the midst of a start a JVM that
nobody knows. So the main thread makes no such call itself: another thread does, and the main thread waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")

_STOP_SECONDS_MAX = 5.0


def run_apart(work: Callable[[], Result], cancel: Callable[[], None]) -> Result:
    """Run `work` where no signal reaches it. When the wait for it is interrupted, `cancel` makes it end."""
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # raised again where it is waited for
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="ladle-spark-call", daemon=True)
    try:
        thread.start()
        return outcome.result()
    except KeyboardInterrupt:
        # In a thread as well: a second Ctrl-C ends the wait for it, and not the cancelling itself.
        cancelling = threading.Thread(target=cancel, name="ladle-spark-cancel", daemon=True)
        cancelling.start()
        cancelling.join()
        if thread.ident is not None:
            thread.join(_STOP_SECONDS_MAX)
        raise


def in_main_thread() -> bool:
    """Whether Ctrl-C would be raised here."""
    return threading.current_thread() is threading.main_thread()
