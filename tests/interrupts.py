"""Ctrl-C for the children of tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """A run that was started in the background ignores Ctrl-C, and so would the programs it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
