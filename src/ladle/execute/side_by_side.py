"""Segments read on all cores: they are read and decoded outside Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_SEGMENTS_MIN = 4
"""Fewer are mostly cached, and then read sooner than another thread begins."""

_RUN_MAX = 8
"""Longer runs would leave a core with nothing to do at the end."""

_R = TypeVar("_R")
_readers: ThreadPoolExecutor | None = None


def side_by_side(call: Callable[..., _R], *arguments: Sequence[object]) -> list[_R]:
    """Call with each argument, on all cores. Neighbours are called on one, as they mostly lie in one file."""
    count, cores = len(arguments[0]), os.cpu_count() or 2
    if count < _SEGMENTS_MIN:
        return [call(*each) for each in zip(*arguments, strict=True)]
    global _readers  # noqa: PLW0603 -- made on first need, and then for good
    if _readers is None:
        _readers = ThreadPoolExecutor(cores, thread_name_prefix="ladle-read")
    length = min(-(-count // cores), _RUN_MAX)

    def run(start: int) -> list[_R]:
        return [call(*each) for each in zip(*(each[start : start + length] for each in arguments), strict=True)]

    return [found for run in _readers.map(run, range(0, count, length)) for found in run]
