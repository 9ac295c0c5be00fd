"""What every request passes: limits on its size and on how many there are, who may ask from where, and the figures."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from ladle.config import Settings
from ladle.errors import Denied, LadleError, LimitExceeded
from ladle.server.errors import error_response
from ladle.server.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; style-src 'self'; frame-ancestors 'none'"),
]


class TooLarge(LimitExceeded):
    """A request's body."""

    code = "too_large"


class Busy(LadleError):
    """As many requests are worked on as may be."""

    code = "busy"


class Door:
    """ASGI middleware."""

    def __init__(self, app: Any, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._inside = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        # Those who wait for changes are counted by the hub, and health is told at any time.
        waits = scope["path"].endswith("/changes") or scope["path"] in ("/healthz", "/readyz", "/metrics")
        try:
            if not waits and self._inside >= self._settings.requests_max:
                busy = Busy("The server is busy.", hint="try again in a moment; the setting requests_max bounds it")
                await error_response(busy)(scope, receive, sending)
                return
            self._inside += not waits
            try:
                await self._app(scope, self._limited(scope, receive), sending)
            except TooLarge as error:
                await error_response(error)(scope, receive, sending)
            finally:
                self._inside -= not waits
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self._metrics.request(scope["method"], path, status, time.perf_counter() - began)

    def _limited(self, scope: MutableMapping[str, Any], receive: Receive) -> Receive:
        most = self._settings.request_bytes_max
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most)
        seen = 0

        async def receiving() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise _too_large(most)
            return message

        return receiving


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"The request's body has more than {most:,} bytes.",
        hint="send it in parts, or have the setting request_bytes_max raised",
    )


def is_local(scope: MutableMapping[str, Any]) -> bool:
    """Whether a request comes from a program on this machine, and not from a page of some web site that a browser
    here has open: such a page may send requests to this address, but not under this name, nor from this origin.
    """
    client = scope.get("client")
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1")
    name = urlsplit(f"//{host}").hostname or ""
    origin = headers.get(b"origin")
    same = origin is None or urlsplit(origin.decode("latin-1")).netloc == host
    return client is not None and client[0] in _LOOPBACK and name in _LOOPBACK and same


def refuse_strangers(local: bool) -> Denied:
    where = "this server asks everybody for a token" if local else "only programs on the server's machine need no token"
    return Unauthenticated(
        f"A token is needed: {where}.",
        hint="send it as 'Authorization: Bearer TOKEN'; an admin makes one with CREATE TOKEN name ROLE reader",
    )


class Unauthenticated(Denied):
    code = "unauthenticated"
