"""Ctrl-C beside Spark and DuckDB. Python raises KeyboardInterrupt in the main thread, wherever that is.

In the midst of a call to the JVM that leaves the connection with half an answer, and in the midst of a start a JVM that
nobody knows. DuckDB looks for signals by itself, late, and makes another error of them. So the main thread makes no
such call itself: another thread does, and the main thread waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_TURN_SECONDS = 0.1
STOP_SECONDS_MAX = 5.0
"""How long Ctrl-C waits for what it stops."""


def run_apart(work: Callable[[], Result], cancel: Callable[[], object], *, seconds_max: float | None = None) -> Result:
    """Run `work` where no signal reaches it. `cancel` makes it end, when the wait for it is interrupted or too long.

    After `seconds_max` what `work` then returns or raises is the outcome; after an interrupt that is KeyboardInterrupt.
    """
    ended = threading.Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again where it is waited for
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name="ladle-apart", daemon=True)
    try:
        thread.start()
        if not _wait(ended, seconds_max):
            cancel()
            _wait(ended, None)
    except KeyboardInterrupt:
        # In a thread as well: a second Ctrl-C ends the wait for it, and not the cancelling itself.
        cancelling = threading.Thread(target=cancel, name="ladle-cancel", daemon=True)
        cancelling.start()
        cancelling.join()
        if thread.ident is not None:
            thread.join(STOP_SECONDS_MAX)
        raise
    if errors:
        raise errors.pop()  # taken out: an error that its own frames can see is never let go of
    return results.pop()


def _wait(ended: threading.Event, seconds_max: float | None) -> bool:
    """Wait in short turns: a signal that comes just before a wait begins does not end it, and is seen after a turn."""
    deadline = None if seconds_max is None else time.monotonic() + seconds_max
    while True:
        turn = _TURN_SECONDS if deadline is None else min(_TURN_SECONDS, deadline - time.monotonic())
        if turn <= 0 or ended.wait(turn):
            return ended.is_set()


def in_main_thread() -> bool:
    """Whether Ctrl-C would be raised here."""
    return threading.current_thread() is threading.main_thread()
