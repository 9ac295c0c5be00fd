"""`ladle serve`: opens the warehouse, listens, and closes both in order."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ladle.config import Settings
from ladle.engine import Database
from ladle.errors import LadleError
from ladle.server.app import create_app

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 5
"""How long requests under way have when the server is stopped."""
_SWITCH_SECONDS = 0.0001
"""How long a thread that computes may keep others from running: a request goes from thread to thread, and waits so long
at each step beside an epoch. Python's own is 5 ms.
"""
_BODY_BYTES_AT_ONCE = 1 << 20
"""How much of a body is read before the request it belongs to gets its turn."""


class Server:
    """Serves a database from a thread of its own, until it is stopped."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._listening = _listen(settings)
        tls = {}
        if settings.tls_certificate:
            tls = {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": settings.tls_key or None}
        app = create_app(db, settings)
        self._hub = app.serving.hub
        config = uvicorn.Config(
            app,
            http=_Protocol,
            log_config=None,
            access_log=False,
            # Who is on this machine is not for a header to say.
            proxy_headers=False,
            lifespan="on",
            timeout_graceful_shutdown=_GRACE_SECONDS,
            **tls,  # type: ignore[arg-type]
        )
        try:
            config.load()
        except (OSError, ValueError) as error:
            self._listening.close()
            raise LadleError(f"The certificate can't be used: {error}.", hint="see tls_certificate, tls_key") from None
        host, port = self._listening.getsockname()[:2]
        scheme = "https" if settings.tls_certificate else "http"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        self._server = _Quiet(config)
        self._thread = threading.Thread(target=self._run, name="ladle-http", daemon=True)

    def start(self) -> None:
        """Returns when it answers."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._thread.start()
        self._server.up.wait()
        if not self._server.started:
            raise LadleError("The server could not start; its log says why.")

    def stop(self) -> None:
        """Takes no more requests, lets subscribers go, and waits a moment for other requests that are under way."""
        self._hub.release()
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        finally:
            self._server.up.set()


class _Protocol(HttpToolsProtocol):
    """Takes more of a body at once, from those who are known: uvicorn stops to read after 64 KiB until they are taken,
    and other requests come in between.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._sending = _HeadWithBody(transport, self.loop)
        super().connection_made(self._sending)  # type: ignore[arg-type]

    def eof_received(self) -> None:
        # The connection is closed after this; a response may be waiting for what follows its head.
        self._sending.send_head()
        super().eof_received()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if len(self.cycle.body) < _BODY_BYTES_AT_ONCE and "ladle.session" in self.cycle.scope:
            self.flow.resume_reading()


class _HeadWithBody:
    """A connection that sends the head of a response with what follows it. uvicorn sends them one after the other: two
    calls of the system, each of which wakes the other side.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.writelines([head, data])
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self.send_head)  # what follows may take its time
        else:
            self._transport.write(data)

    def close(self) -> None:
        self.send_head()
        self._transport.close()

    def send_head(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            if not self._transport.is_closing():  # the other side may be gone
                self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Quiet(uvicorn.Server):
    """Leaves signals to whoever runs it, and says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.up.set()


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(2048)
    except (OSError, OverflowError) as error:
        listening.close()
        raise LadleError(
            f"Can't listen on {settings.host}:{settings.port}: {error}.",
            hint="is another server running there? --port chooses another",
        ) from None
    return listening
