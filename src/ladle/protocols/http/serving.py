"""What all requests share, and what each of them is given: a database as its user may use it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from ladle import sql
from ladle.access import LOCAL_USER, User, secret_digest
from ladle.catalog import QueryState
from ladle.config import Settings
from ladle.engine import Database
from ladle.engine.places import Places
from ladle.engine.session import Session
from ladle.errors import Unauthenticated
from ladle.plan import Engine
from ladle.protocols.http.connections import CONNECTION, Connection, Connections
from ladle.protocols.http.history import History
from ladle.protocols.http.hub import Hub
from ladle.protocols.http.metrics import Metrics
from ladle.protocols.http.origin import is_local
from ladle.protocols.http.pages import AnswerPages

_QUICK_SECONDS_MAX = 0.005
_THREADS_ASIDE = 40
"""As many requests as may wait for disk and Spark; more wait for one of them."""
_ROUNDS = 3
"""Of the event loop, until a request that was worked on aside is answered."""

_R = TypeVar("_R")


@dataclass
class Serving:
    """What all requests of a server share."""

    db: Database
    settings: Settings
    hub: Hub
    pages: AnswerPages
    history: History
    metrics: Metrics
    places: Places
    connections: Connections
    _quick: set[int] = field(default_factory=set)
    """Queries, by id, that were answered quickly the last time."""
    _plain: dict[int, bool] = field(default_factory=dict)
    """Of queries by id: whether neither DuckDB nor Spark runs them."""
    _few: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    """Threads for those that may turn out to be quick."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One of them is answered in each round of the event loop, so that what others send is read in between."""
    _give_way: int = 0
    """For how many rounds nothing of the kind is answered, because one who has waited longer is about to be."""
    _aside: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_THREADS_ASIDE, thread_name_prefix="ladle-aside")
    )
    _warm: int = -1
    """The epoch that one of them was answered at: the first that is reads new files, and leaves them in the cache."""

    def _is_plain(self, query: QueryState) -> bool:
        """Whether an answer needs neither DuckDB nor Spark: columns are picked, or partial aggregates give it."""
        known = self._plain.get(query.id)
        if known is None:
            plan = query.plan
            folding = sql.folding_of(plan, self.db.catalog)
            known = plan.residual.engine is Engine.PROJECTION or (folding is not None and folding.above is None)
            if len(self._plain) > len(self.db.catalog.queries):  # some of them stand no more
                self._plain.clear()
            self._plain[query.id] = known
        return known

    async def answering(self, query: QueryState, call: Callable[[], Response]) -> Response:
        """Here and now, if it takes a millisecond or so of Python, and did the last time: threads that take turns at
        Python cost more than that. In a thread otherwise, or when DuckDB or Spark run it.
        """
        if not self._is_plain(query):
            return await run_in_threadpool(call)

        def timed() -> Response:
            # The thread's own time: how long it waits for others says nothing about the query.
            began = time.thread_time()
            response = call()
            keep = self._quick.add if time.thread_time() - began <= _QUICK_SECONDS_MAX else self._quick.discard
            keep(query.id)
            if len(self._quick) > len(self.db.catalog.queries):  # some of them stand no more
                self._quick.clear()
            return response

        if query.id not in self._quick:
            return await to_thread.run_sync(timed, limiter=self._few)
        async with self._turn:
            rounds, self._give_way = self._give_way, 0
            for _ in range(rounds):  # no more of them for one answer, however many push
                await asyncio.sleep(0)
            epoch = self.db.catalog.epoch
            if epoch == self._warm:
                return timed()
            response = await run_in_threadpool(timed)
            self._warm = epoch
            return response

    async def aside(self, call: Callable[[], _R]) -> _R:
        """Work that waits for disk or Spark, in a thread. Begun and answered before quick answers are, each of which
        would hold it up by its own time.
        """

        def run() -> _R:
            try:
                return call()
            finally:
                self._give_way = _ROUNDS

        return await asyncio.get_running_loop().run_in_executor(self._aside, run)

    def stop(self) -> None:
        """Let go of the threads for slow requests."""
        self._aside.shutdown(wait=False, cancel_futures=True)

    def user(self, scope: Scope) -> User:
        """Whose request this is. Raises Denied."""
        user = self._user(scope)
        connection = connection_of(scope)
        if connection is not None:
            connection.recognise()
        return user

    def _user(self, scope: Scope) -> User:
        headers = dict(reversed(scope["headers"]))  # the first of a name
        secret = _token(scope, headers)
        if secret is not None:
            token = self.db.catalog.access.token(secret_digest(secret)) if secret else None
            if token is not None:
                return token.user
            error = Unauthenticated(
                "That token is not known." if secret else "The header Authorization has no token.",
                hint="it was dropped or replaced, or belongs to another server; an admin can make a new one"
                if secret
                else "send it as 'Authorization: Bearer TOKEN'",
            )
        else:
            local = is_local(scope, headers)
            if local and self.settings.anonymous == "loopback":
                return LOCAL_USER
            why = "everybody needs one here" if local else "only programs on the server's own machine need none"
            error = Unauthenticated(
                f"A token is needed: {why}.",
                hint="send it as 'Authorization: Bearer TOKEN'; an admin makes one with CREATE TOKEN name ROLE reader",
            )
        self.db.parts.rights.audit.note_stranger(address_of(scope), scope["path"])
        raise error

    def session(self, scope: Scope) -> Session:
        """The database as the caller may use it."""
        return self.db.session(self.user(scope), address_of(scope))


def connection_of(scope: Scope) -> Connection | None:
    """What a request came over; None if it did not come through a server's listener."""
    connection: Connection | None = scope.get("state", {}).get(CONNECTION)
    return connection


def address_of(scope: Scope) -> str:
    """The address of the client; empty if it is not known."""
    client = scope.get("client")
    return client[0] if client else ""


def _token(scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
    """From the header; a browser's WebSocket, which can't set one, sends `ladle.TOKEN` as a protocol. A header of
    another form gives an empty one: whoever sends it means to be somebody.
    """
    header = headers.get(b"authorization")
    if header is not None:
        kind, _, secret = header.decode("latin-1").partition(" ")
        return secret.strip() if kind.lower() == "bearer" else ""
    if b"sec-websocket-protocol" not in headers:
        return None
    offered = b",".join(value for name, value in scope["headers"] if name == b"sec-websocket-protocol")
    protocols = [each.strip() for each in offered.decode("latin-1").split(",")]
    return next((each.removeprefix("ladle.") for each in protocols if each.startswith("ladle.")), None)


def serving_of(connection: HTTPConnection) -> Serving:
    """What the application of a connection shares."""
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
