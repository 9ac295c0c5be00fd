"""A directory of derived files, listed anew only when it changed: every invocation looks."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ladle.stem.results import file_names

_SETTLED_NS = 100_000_000


class Listing:
    """The names of the files in a directory, looked up again only when it changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listed_ns = -1

    def changed(self) -> list[str] | None:
        """The files' names, or None when they are what they were at the last look."""
        try:
            changed_ns = os.stat(self._directory).st_mtime_ns
        except FileNotFoundError:
            changed_ns = 0
        if changed_ns == self._listed_ns:
            return None
        names = list(file_names(self._directory))
        # A file system's clock ticks in milliseconds: what comes in the same tick leaves the time as it was, so a
        # directory that has just changed is listed again at the next look.
        self._listed_ns = changed_ns if time.time_ns() - changed_ns > _SETTLED_NS else -1
        return names
