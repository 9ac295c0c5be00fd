"""A server over a database without a JVM, and plain HTTP clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ladle.config import Settings
from ladle.engine import Database
from ladle.protocols.http.process import Server
from ladle.testing import connect_inline

TICKS = "CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at"

Serve = Callable[..., tuple[Database, str]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers with settings; gives the database and the address."""
    closing: list[Callable[[], None]] = []

    def start(**settings: Any) -> tuple[Database, str]:
        db = connect_inline(tmp_path / "warehouse", settings=settings)
        closing.append(db.close)
        server = Server(db, Settings.load({"port": 0, **settings}))
        server.start()
        closing.append(server.stop)
        return db, server.url

    yield start
    for close in reversed(closing):
        close()


@pytest.fixture
def served(serve: Serve) -> tuple[Database, str]:
    db, url = serve()
    db.sql(TICKS)
    return db, url


@pytest.fixture
def http(served: tuple[Database, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served[1], trust_env=False, timeout=30) as client:
        yield client


def as_user(url: str, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30)


def code_of(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]
