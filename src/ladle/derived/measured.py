"""What it takes to make things anew, by what it took before: seconds for each unit of work, old measurements fading."""

from __future__ import annotations

import json
import threading
from zlib import crc32

_FADE = 0.8
"""What a measurement is worth after the next."""

_KEPT_MAX = 4_096
"""Rates that outlive a process; streams and joins come and go."""

Of = str | int | None
"""What a rate was measured on; None: on anything."""


class Rates:
    """Seconds per unit (a tuple, a pair of files, a byte), by kind and by what it was measured on. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, Of], tuple[float, float]] = {}

    def note(self, kind: str, of: Of, units: float, seconds: float) -> None:
        """Note that making so many units took so long."""
        if units <= 0:
            return
        with self._lock:
            keys: set[tuple[str, Of]] = {(kind, of), (kind, None)}
            for key in keys:
                before, took = self._known.get(key, (0.0, 0.0))
                self._known[key] = (_FADE * before + units, _FADE * took + seconds)

    def seconds(self, kind: str, of: Of, units: float) -> float | None:
        """What so many units take: as measured there, else as measured elsewhere; None if nothing was measured."""
        found = self._known.get((kind, of)) or self._known.get((kind, None))
        return None if found is None else found[1] / found[0] * units

    def encoded(self) -> bytes:
        """All of them, for the next process."""
        with self._lock:
            known = list(self._known.items())
        in_all = [each for each in known if each[0][1] is None]
        special = [each for each in known if each[0][1] is not None]
        told = [[kind, of, *found] for (kind, of), found in in_all + special[-_KEPT_MAX:]]
        data = json.dumps(told).encode()
        return b"%08x %s" % (crc32(data), data)

    def decode(self, data: bytes) -> None:
        """Take what another process measured; what is damaged is not."""
        checksum, _, told = data.partition(b" ")
        if checksum != b"%08x" % crc32(told):
            return
        with self._lock:
            self._known = {(kind, of): (units, seconds) for kind, of, units, seconds in json.loads(told)} | self._known
