"""Large answers in pages. The answer is kept while its pages are fetched, so all of them are of one epoch."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict

from ladle.answer import Answer
from ladle.errors import Gone


class Pages:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[str, Answer]] = OrderedDict()

    def keep(self, answer: Answer, user: str) -> str:
        """What to ask for further pages by."""
        key = secrets.token_urlsafe(12)
        with self._lock:
            self._kept[key] = (user, answer)
            while len(self._kept) > 1 and sum(each.table.nbytes for _, each in self._kept.values()) > self._bytes_max:
                self._kept.popitem(last=False)
        return key

    def get(self, key: str, user: str) -> Answer:
        with self._lock:
            known = self._kept.get(key)
            if known is None or known[0] != user:
                raise Gone("The answer's further pages are gone.", hint="ask for it again, and fetch them sooner")
            self._kept.move_to_end(key)
            return known[1]

    def drop(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)
