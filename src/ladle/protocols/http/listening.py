"""Accepting connections: each is counted, with its address, before its TLS handshake begins.

asyncio's own servers tell of a connection when its handshake is done, and limit nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ladle.config import Settings
from ladle.errors import LadleError
from ladle.protocols.http.connections import Connection, Connections, Ended
from ladle.protocols.http.guarded import Protocol

_log = logging.getLogger(__name__)

_BACKLOG = 2048
_ACCEPTED_AT_ONCE = 64
"""In one round of the event loop, so that others get their turn."""
_UNSENT_BYTES_MAX = 1 << 17
"""What the system keeps of a response beside what is on its way: more would hide whether a client still reads."""
_PAUSE_SECONDS = 0.1
_CLOSING_SECONDS_MAX = 5.0
"""How long a client may take to agree to the end of TLS."""


class Acceptor:
    """Accepts connections for as long as it is not closed. To uvicorn it is a server of asyncio's."""

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        protocol: Callable[[Connection], Protocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listening = listening
        self._connections = connections
        self._protocol = protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to accept connections."""
        self._listening.setblocking(False)
        self._connections.start()
        self._resume()

    def close(self) -> None:
        """Accept no more connections."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._connections.stop()

    async def wait_closed(self) -> None:
        """Wait for connections that were just being opened."""
        if self._opening:
            await asyncio.wait(self._opening)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._wait_for_room(error)
                return
            connection = self._connections.admit(peer[0])
            if connection is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            connection.deadline = self._loop.time() + self._connections.settings.head_seconds_max
            task = self._loop.create_task(self._open(accepted, connection))
            connection.end = partial(_cut, accepted)
            connection.expire = partial(_give_up, accepted)
            self._opening.add(task)
            task.add_done_callback(partial(self._opened, accepted, connection))

    def _wait_for_room(self, error: OSError) -> None:
        """The system has no more files or memory to give. Those who wait would wake this at once again."""
        _log.warning("can't accept a connection: %s", error)
        self._connections.make_room()
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(_PAUSE_SECONDS, self._resume)

    async def _open(self, accepted: socket.socket, connection: Connection) -> None:
        with suppress(OSError):  # it left, or what it speaks is not TLS
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(connection),
                accepted,
                ssl=self._tls,
                ssl_shutdown_timeout=None if self._tls is None else _CLOSING_SECONDS_MAX,
            )

    def _opened(self, accepted: socket.socket, connection: Connection, opening: asyncio.Task[None]) -> None:
        self._opening.discard(opening)
        if connection.transport is None:
            connection.lost()
            accepted.close()


def _cut(accepted: socket.socket) -> None:
    """End a connection that is being opened: whoever opens it finds that nothing more will come."""
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)


def _give_up(accepted: socket.socket) -> Ended:
    _cut(accepted)
    return Ended.HEAD


def listen(settings: Settings) -> socket.socket:
    """A socket that listens where the settings say."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # Connections inherit it.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES_MAX)
        listening.bind((settings.host, settings.port))
        listening.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        raise LadleError(
            f"Can't listen on {settings.host}:{settings.port}: {error}.",
            hint="is another server running there? --port chooses another",
        ) from None
    return listening
