"""HTTP and WebSockets on one connection: uvicorn's, with limits of time and size on what a client sends."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ladle.errors import LadleError
from ladle.formats.writing import encoded
from ladle.protocols import forms
from ladle.protocols.http.connections import CONNECTION, Connection, Ended
from ladle.protocols.http.error_shape import RequestTimeout, TooLarge

_BODY_BYTES_AT_ONCE = 1 << 20
"""How much of a body is read before the request it belongs to gets its turn."""
_HEAD_BYTES_MAX = 1 << 16
_CHUNK_COST = 9
"""A chunk of one byte takes six, or a few more: so many bytes beside each byte of a body are no part of the head."""
_CLOSING_SECONDS_MAX = 5.0
"""How long an end that was told to the client may take, before it comes unasked."""


class Protocol(HttpToolsProtocol):
    """Takes more of a body at once, from those who are known: uvicorn stops to read after 64 KiB until they are taken,
    and other requests come in between. And waits for the head of a request only so long.
    """

    def __init__(self, *, connection: Connection, app_state: dict[str, object], **uvicorns: Any) -> None:
        # Any: the others are uvicorn's own
        super().__init__(app_state={**app_state, CONNECTION: connection}, **uvicorns)
        self._connection = connection
        self._limits = connection.table.settings
        self._in_head = False
        self._has_begun = False
        """Whether anything came since it waits for a request."""
        self._beside_body = 0
        """Bytes of the request that are not its body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: the connection's deadlines count from here."""
        self._connection.transport = transport
        self._connection.end = transport.abort
        self._connection.expire = self._expire
        self._sending = HeadWithBody(transport, self.loop, self._connection)
        super().connection_made(self._sending)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed; it is not counted any more."""
        self._connection.lost()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """The client sends no more."""
        # The connection is closed after this; a response may be waiting for what follows its head.
        self._sending.send_head()
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Bytes have come: they may begin a request, and they show that the client gets on."""
        connection = self._connection
        if not self._has_begun and connection.deadline is not None:
            self._has_begun = True
            if connection.idle_since is not None:
                connection.idle_since = None
                connection.deadline = self.loop.time() + self._limits.head_seconds_max
        self._beside_body += len(data)
        super().data_received(data)
        if self._beside_body > _HEAD_BYTES_MAX and not self.transport.is_closing():
            self._refuse(TooLarge(f"The request's head has more than {_HEAD_BYTES_MAX:,} bytes."), 431)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        self._beside_body = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head of a request is there; from now on its body has to get on."""
        self._in_head = False
        self._connection.deadline = self._connection.idle_since = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body is there."""
        self._beside_body -= _CHUNK_COST * len(body)
        super().on_body(body)
        if len(self.cycle.body) < _BODY_BYTES_AT_ONCE and "ladle.session" in self.cycle.scope:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """A response was sent; the connection waits for its next request."""
        super().on_response_complete()
        self._unset_keepalive_if_required()  # it ends with any byte that comes
        if self.pipeline or self.transport.is_closing():
            return
        connection, now = self._connection, self.loop.time()
        if self._in_head:  # the next request has begun already
            connection.deadline = now + self._limits.head_seconds_max
        else:
            # Also while some of the body is still to come: nobody waits for that any more.
            self._has_begun = False
            connection.idle_since = now
            connection.deadline = now + self._limits.idle_seconds_max

    def _expire(self) -> Ended | None:
        why = Ended.IDLE if self._connection.idle_since is not None else Ended.HEAD
        if self.transport.get_write_buffer_size():  # the client still reads
            self._connection.deadline = self.loop.time() + self._limits.idle_seconds_max
            return None
        if self.transport.is_closing():
            self._connection.end()
            return None
        if self._in_head:
            seconds = self._limits.head_seconds_max
            self._refuse(RequestTimeout(f"The request's head took longer than {seconds:g} s to come."), 408)
        else:
            self.transport.close()
        self._connection.deadline = self.loop.time() + _CLOSING_SECONDS_MAX
        return why

    def _refuse(self, error: LadleError, status: int) -> None:
        """Answer a request whose head nobody has seen whole."""
        body = encoded({"error": forms.error_to_json(error)})
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A connection that HTTP has handed over. The client's pings and pongs keep it, and `websockets` waits for them."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed; it is not counted any more."""
        super().connection_lost(exc)
        connection: Connection = self.app_state[CONNECTION]
        connection.lost()


class HeadWithBody:
    """A connection that sends the head of a response with what follows it. uvicorn sends them one after the other: two
    calls of the system, each of which wakes the other side.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        self._transport = transport
        self._loop = loop
        self._connection = connection
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Send bytes. The head of a response waits for the first of its body, and goes with it."""
        self._connection.written += len(data)
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.writelines([head, data])
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self.send_head)  # what follows may take its time
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Send what waits, and close."""
        self.send_head()
        self._transport.close()

    def send_head(self) -> None:
        """Send the head that waits, without its body."""
        if self._head is not None:
            head, self._head = self._head, None
            if not self._transport.is_closing():  # the other side may be gone
                self._transport.write(head)

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)
