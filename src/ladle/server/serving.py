"""What all requests share, and what each of them is given: a database as its user may use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import Response

from ladle.access import LOCAL, Role, User, secret_digest
from ladle.config import Settings
from ladle.engine import Database
from ladle.engine.session import Session
from ladle.plan import Engine, Plan
from ladle.server.audit import Audit
from ladle.server.history import History
from ladle.server.hub import Hub
from ladle.server.metrics import Metrics
from ladle.server.origin import Scope, Unauthenticated, is_local
from ladle.server.pages import Pages

_QUICK_THREADS = 2
_LOCAL = User(LOCAL, Role.ADMIN, local=True)


@dataclass
class Serving:
    db: Database
    settings: Settings
    hub: Hub
    pages: Pages
    history: History
    metrics: Metrics
    audit: Audit
    _quick: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_QUICK_THREADS, thread_name_prefix="ladle-answer")
    )

    async def answering(self, plan: Plan, call: Callable[[], Response]) -> Response:
        """In a thread: of few, if it takes a millisecond or so of Python. More of those at a time would only wait for
        each other, and cost all of them by it. What DuckDB or Spark run is none of these.
        """
        residual = plan.residual
        if residual.engine is Engine.PROJECTION or residual.aggregate is not None:
            return await asyncio.get_running_loop().run_in_executor(self._quick, call)
        return await run_in_threadpool(call)

    def close(self) -> None:
        self._quick.shutdown(wait=False, cancel_futures=True)
        self.audit.close()

    def user(self, connection: HTTPConnection) -> User:
        """Whose request this is. Raises Denied."""
        secret = _token(connection)
        if secret is not None:
            token = self.db.catalog.access.token(secret_digest(secret))
            if token is not None:
                return token.user
            error = Unauthenticated(
                "That token is not known.",
                hint="it was dropped or replaced, or belongs to another server; an admin can make a new one",
            )
        else:
            local = is_local(connection.scope)
            if local and self.settings.anonymous == "loopback":
                return _LOCAL
            why = "everybody needs one here" if local else "only programs on the server's own machine need none"
            error = Unauthenticated(
                f"A token is needed: {why}.",
                hint="send it as 'Authorization: Bearer TOKEN'; an admin makes one with CREATE TOKEN name ROLE reader",
            )
        self.audit.note_stranger(address_of(connection.scope), connection.url.path)
        raise error

    def session(self, connection: HTTPConnection) -> Session:
        user = self.user(connection)
        address = address_of(connection.scope)
        return self.db.session(
            user,
            note=lambda action, target, outcome: self.audit.note(user.name, address, action, target, outcome),
        )


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _token(connection: HTTPConnection) -> str | None:
    """From the header; a browser's WebSocket, which can't set one, sends `ladle.TOKEN` as a protocol."""
    kind, _, secret = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and secret.strip():
        return secret.strip()
    offered = connection.headers.get("sec-websocket-protocol", "").split(",")
    return next((each.strip()[6:] for each in offered if each.strip().startswith("ladle.")), None)


def serving_of(connection: HTTPConnection) -> Serving:
    serving: Serving = connection.app.state.serving
    return serving


async def _serving(request: Request) -> Serving:
    return serving_of(request)


async def _session(request: Request) -> Session:
    """As the door has found it."""
    session: Session = request.scope["ladle.session"]
    return session


Served = Annotated[Serving, Depends(_serving)]
Asking = Annotated[Session, Depends(_session)]
