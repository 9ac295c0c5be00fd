"""Background work that does nothing for a while, so that a test sees what it has not done yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from ladle.engine import Database


@contextmanager
def backfill_stopped(db: Database) -> Iterator[None]:
    """While the background backfills nothing; `db.backfill()` still does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db._background, "_backfill", SimpleNamespace(round=lambda _: 0))
        yield
