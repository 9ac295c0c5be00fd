"""Waiting for another thread or process; never for a clock. And how long work takes, on a machine that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], what: str = "waited too long", seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def cpu_seconds(work: Callable[[], object], enough: float, tries: int = 5) -> float:
    """Return the least processor time that this process needs for the work; stop trying once that is below `enough`.

    Elapsed time counts the wait for a busy machine too, and a single try may meet a slow moment.
    """
    least = float("inf")
    for _ in range(tries):
        before = time.process_time()
        work()
        least = min(least, time.process_time() - before)
        if least < enough:
            break
    return least
