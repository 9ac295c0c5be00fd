"""Room for what is derived. A backfill whose results can't be kept, on a full disk above all, would be begun again with
every commit, and compute the same in vain: it pauses, longer each time, and says why.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from ladle.archive.files import storage_error, temporary_path

_FIRST_PAUSE_SECONDS = 1.0
_PROBE_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class Room:
    """Used by one thread; `trouble` may be read by any."""

    def __init__(self, directory: Path, pause_seconds_max: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._pause_seconds_max = pause_seconds_max
        self._clock = clock
        self._pause_seconds = 0.0
        self._until = 0.0
        self.trouble: str | None = None
        """Why what is computed can't be kept, while that is so."""

    @property
    def pause_seconds_left(self) -> float:
        """How long nothing should be begun; 0.0 when something may."""
        return max(self._until - self._clock(), 0.0) if self._pause_seconds else 0.0

    def succeeded(self) -> None:
        """What was computed since could be kept."""
        if self.trouble is not None:
            _log.info("the backfill goes on: its results can be kept again")
        self._pause_seconds, self.trouble = 0.0, None

    def failed(self, why: str | None = None) -> None:
        """What was computed since could not be kept, or not be computed, for a reason if there is a word on it."""
        again = self._pause_seconds > 0.0
        pause = 2 * self._pause_seconds if again else _FIRST_PAUSE_SECONDS
        self._pause_seconds = min(pause, self._pause_seconds_max)
        self._until = self._clock() + self._pause_seconds
        refused = self._refusal() or why
        # Once, it may be that somebody deleted what was just written.
        if refused is not None or again:
            told = refused or f"The results of a backfill could not be kept in '{self._directory}'."
            self.trouble = f"{told} It is tried again in {self._pause_seconds:g} s; answers are right, and computed."
            _log.warning("the backfill pauses: %s", self.trouble)

    def _refusal(self) -> str | None:
        """What the file system says to a file of some size, if it refuses."""
        path = temporary_path(self._directory / "room")
        try:
            self._directory.mkdir(exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                rest = memoryview(bytes(_PROBE_BYTES))
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            return storage_error(error, self._directory / "results", "write").message
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        return None
