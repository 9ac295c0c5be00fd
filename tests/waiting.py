"""Waiting for another thread or process; never for a clock."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], what: str = "waited too long", seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
