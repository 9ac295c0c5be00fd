"""`ladle serve`: opens the warehouse, listens, and closes both in order."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from ladle.config import Settings
from ladle.engine import Database
from ladle.errors import LadleError
from ladle.protocols.http.app import create_app
from ladle.protocols.http.connections import Connection, Connections
from ladle.protocols.http.guarded import Protocol, WebSocketProtocol
from ladle.protocols.http.listening import Acceptor, listen

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 5
"""How long requests under way have when the server is stopped."""
_SWITCH_SECONDS = 0.0001
"""How long a thread that computes may keep others from running: a request goes from thread to thread, and waits so long
at each step beside an epoch. Python's own is 5 ms.
"""
_MESSAGE_BYTES_MAX = 1 << 12
"""What subscribers say over a WebSocket is of no interest."""


class Server:
    """Serves a database from a thread of its own, until it is stopped."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._listening = listen(settings)
        tls = {}
        if settings.tls_certificate:
            tls = {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": settings.tls_key or None}
        app = create_app(db, settings)
        self._hub = app.serving.hub
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws=WebSocketProtocol,
            ws_max_size=_MESSAGE_BYTES_MAX,
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
        self._server = _Quiet(config, app.serving.connections)
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


class _Quiet(uvicorn.Server):
    """Leaves signals to whoever runs it, says when it is up, and has connections accepted by the listener."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections
        self.up = threading.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        (listening,) = sockets or []
        listener = Acceptor(listening, self._connections, self._protocol, self.config.ssl)
        listener.start()
        self.servers = [listener]  # type: ignore[list-item]
        self.started = True
        self.up.set()

    def _protocol(self, connection: Connection) -> Protocol:
        return Protocol(
            connection=connection,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
