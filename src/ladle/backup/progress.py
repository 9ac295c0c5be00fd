"""How far something is that goes through many files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ByteProgress:
    """How far a copy or a check is, in bytes."""

    done: int
    total: int


Told = Callable[[ByteProgress], None]
