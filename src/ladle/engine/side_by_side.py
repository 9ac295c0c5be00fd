"""Segments read on all cores: they are read and decoded outside Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_SEGMENTS_MIN = 4
"""Fewer are mostly cached, and then read sooner than another thread begins."""

_R = TypeVar("_R")
_readers: ThreadPoolExecutor | None = None


def side_by_side(call: Callable[..., _R], *arguments: Sequence[Any]) -> list[_R]:
    """Call with each argument, on all cores."""
    if len(arguments[0]) < _SEGMENTS_MIN:
        return [call(*each) for each in zip(*arguments, strict=True)]
    global _readers  # noqa: PLW0603 -- made on first need, and then for good
    if _readers is None:
        _readers = ThreadPoolExecutor(os.cpu_count() or 2, thread_name_prefix="ladle-read")
    return list(_readers.map(call, *arguments))
