"""Who changed what, and who was refused: one JSON object a line, in the warehouse's `audit.log`.

There is one of it for a database, so that all doors of its process, the server's and the socket's, write to one file.
"""

from __future__ import annotations

import logging
import os
import time
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from ladle.formats.writing import encoded

_BYTES_MAX = 16 << 20
_FILES_MAX = 4
_STRANGER_SECONDS = 60.0
_STRANGERS_MAX = 1_000


class Audit:
    """The file is made with the first line."""

    def __init__(self, path: Path) -> None:
        self._handler = _Private(path, maxBytes=_BYTES_MAX, backupCount=_FILES_MAX, encoding="utf-8", delay=True)
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        self._strangers: dict[str, float] = {}
        """When those without a token were last noted, by address."""

    def note(self, user: str, address: str, action: str, target: str, outcome: str = "done") -> None:
        """Write who did what to what, and what came of it."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"at": at, "user": user, "from": address, "action": action, "target": target, "outcome": outcome}
        self._handler.handle(logging.LogRecord("ladle.audit", logging.INFO, "", 0, encoded(line).decode(), None, None))

    def note_stranger(self, address: str, path: str) -> None:
        """Who has no token; not each time, so that nobody can wash the rest away."""
        now = time.monotonic()
        if now - self._strangers.get(address, -_STRANGER_SECONDS) >= _STRANGER_SECONDS:
            if len(self._strangers) >= _STRANGERS_MAX:
                self._strangers.clear()
            self._strangers[address] = now
            self.note("?", address, "connect", path, "denied")

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


class _Private(RotatingFileHandler):
    """Each of its files is the owner's alone to read."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=lambda path, how: os.open(path, how, 0o600))
