"""A database without a JVM: real files, a clock that moves when told, no housekeeping unless asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline

Open = Callable[..., Database]

QUIET = {"maintenance_seconds": 3_600.0}
"""Housekeeping only when a test asks for it."""


@pytest.fixture
def clock() -> ManualClock:
    """Stands at 2023-11-14 22:13:20 until moved."""
    return ManualClock()


@pytest.fixture
def open_db(tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Opens the test's warehouse; what is still open at the end is closed."""
    with ExitStack() as opened:

        def open_warehouse(*, read_only: bool = False, **settings: Any) -> Database:
            db = connect_inline(
                tmp_path / "warehouse", clock=clock, settings={**QUIET, **settings}, read_only=read_only
            )
            opened.callback(db.close)
            return db

        yield open_warehouse


@pytest.fixture
def db(open_db: Open) -> Database:
    return open_db()
