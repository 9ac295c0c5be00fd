"""How long a statement may still take: what parsing and binding took is its own time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ladle.config import Settings
from ladle.errors import InvocationTimeout

_NEGLIGIBLE = 0.05
"""A share of the time that is not worth counting: errors then say the whole time, which is the setting's."""

_began: ContextVar[float | None] = ContextVar("statement_began", default=None)


@contextmanager
def statement_time() -> Iterator[None]:
    """While a statement is carried out, from its text on."""
    token = _began.set(time.monotonic())
    try:
        yield
    finally:
        _began.reset(token)


def seconds_left(settings: Settings) -> float:
    """What is left of the time of the statement that is carried out, or of a call that has no text."""
    began, whole = _began.get(), settings.invoke_seconds_max
    spent = 0.0 if began is None else time.monotonic() - began
    if spent < whole * _NEGLIGIBLE:
        return whole
    left = whole - spent
    if left <= 0:
        raise InvocationTimeout(
            f"The statement took longer than {whole:g} s.",
            hint="make it smaller, or raise invoke_seconds_max",
        )
    return left
