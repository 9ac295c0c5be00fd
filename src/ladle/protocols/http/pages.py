"""Large answers, and large responses with deltas, in pages. What they are of is kept while they are fetched, so all
pages of an answer are of one epoch, and all of a delta are of the same.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ladle.answer import Answer
from ladle.errors import Gone
from ladle.formats.deltas import Deltas

_SECONDS_MAX = 600.0
"""How long something is kept after a page of it was fetched."""
_LOOK_SECONDS = 30.0
"""How often those that nobody fetches any more are looked for."""


@dataclass
class _Paged:
    user: str
    kept: Answer | Deltas
    used_at: float


class AnswerPages:
    """Keeps large answers and deltas while their pages are fetched, within a budget of bytes."""

    def __init__(self, bytes_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_max = bytes_max
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Paged] = OrderedDict()
        """By what they are asked for; the last used at the end."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Called in the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._look())

    def stop(self) -> None:
        """Stop forgetting old pages."""
        if self._task is not None:
            self._task.cancel()

    def keep(self, paged: Answer | Deltas, user: str) -> str:
        """What to ask for further pages by."""
        key = secrets.token_urlsafe(12)
        self.forget_old()
        with self._lock:
            self._kept[key] = _Paged(user, paged, self._clock())
            while len(self._kept) > 1 and self._bytes > self._bytes_max:
                self._kept.popitem(last=False)
        return key

    def get(self, key: str, user: str) -> Answer | Deltas:
        """What is kept under a key, for the user who asked for it."""
        self.forget_old()
        with self._lock:
            known = self._kept.get(key)
            if known is None or known.user != user:
                raise Gone(
                    "The further pages are gone.",
                    hint=f"ask for it again, and for each page within {_SECONDS_MAX / 60:g} minutes of the one before",
                )
            known.used_at = self._clock()
            self._kept.move_to_end(key)
            return known.kept

    def drop(self, key: str) -> None:
        """Forget what is kept under a key."""
        with self._lock:
            self._kept.pop(key, None)

    def forget_old(self) -> None:
        """Let go of what nobody fetched for so long."""
        with self._lock:
            oldest = self._clock() - _SECONDS_MAX
            while self._kept and next(iter(self._kept.values())).used_at < oldest:
                self._kept.popitem(last=False)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.forget_old()

    @property
    def _bytes(self) -> int:
        kept = [each.kept for each in self._kept.values()]
        return sum(each.nbytes if isinstance(each, Deltas) else each.table.nbytes for each in kept)
