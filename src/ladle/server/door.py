"""What every request passes: who asks, how much it sends and how fast, how many there are; and the figures.

Nothing of a body is read before its sender is known, and what is read is bounded in size and time: so whoever has no
token can't keep the server busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from ladle.errors import Denied, LadleError, LimitExceeded
from ladle.server.errors import BadRequest, error_response

if TYPE_CHECKING:
    from ladle.server.serving import Serving

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_JSON_BYTES_MAX = 4 << 20
"""A body that is JSON and no rows: it is parsed in the event loop."""
_BODY_SECONDS_MAX = 60.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
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


class Unauthenticated(Denied):
    code = "unauthenticated"


class Door:
    """ASGI middleware."""

    def __init__(self, app: Any, serving: Serving) -> None:
        self._app = app
        self._serving = serving
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        accepted = dict(scope["headers"]).get(b"accept", b"")
        waits = b"text/event-stream" in accepted or scope["path"] in ("/healthz", "/readyz", "/metrics")
        self._inside += not waits
        try:
            if not waits and self._inside > self._serving.settings.requests_max:
                raise Busy("The server is busy.", hint="try again in a moment; the setting requests_max bounds it")
            if scope["path"].startswith("/v1/"):
                scope["ladle.session"] = self._serving.session(HTTPConnection(scope))
                receive = await self._body(scope, receive)
            await self._app(scope, receive, sending)
        except LadleError as error:
            response = error_response(error)
            # What is left of the body is not waited for.
            response.headers["Connection"] = "close"
            await response(scope, receive, sending)
        finally:
            self._inside -= not waits
            path = getattr(scope.get("route"), "path", "other")
            self._serving.metrics.request(scope["method"], path, status, time.perf_counter() - began)

    async def _body(self, scope: Scope, receive: Receive) -> Receive:
        """The body, read and bounded; afterwards what comes is the news that the client is gone."""
        most = self._serving.settings.request_bytes_max
        if not scope["path"].endswith("/rows"):
            most = min(most, _JSON_BYTES_MAX)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size = 0
        deadline = time.monotonic() + _BODY_SECONDS_MAX
        while True:
            try:
                message = await asyncio.wait_for(receive(), max(deadline - time.monotonic(), 0.0))
            except TimeoutError:
                raise BadRequest(f"The body took longer than {_BODY_SECONDS_MAX:g} s to come.") from None
            if message["type"] != "http.request":
                break
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most)
            if not message.get("more_body", False):
                break
        whole: Message | None = {"type": "http.request", "body": b"".join(parts), "more_body": False}

        async def receiving() -> Message:
            nonlocal whole
            if whole is None:
                return await receive()
            given, whole = whole, None
            return given

        return receiving


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"The request's body has more than {most:,} bytes.",
        hint="send it in parts, or have the setting request_bytes_max raised",
    )


def is_local(scope: Scope) -> bool:
    """Whether a request comes from a program on this machine; not from a page of some web site that a browser here has
    open (such a page may send requests to this address, but not under this name, nor from this origin), and not from
    elsewhere through a proxy here.
    """
    client = scope.get("client")
    headers = dict(scope["headers"])
    if client is None or client[0] not in _LOOPBACK or any(name in headers for name in _FORWARDED):
        return False
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        return False
    host = headers.get(b"host", b"").decode("latin-1")
    origin = headers.get(b"origin")
    try:
        name = urlsplit(f"//{host}").hostname or ""
        same = origin is None or urlsplit(origin.decode("latin-1")).netloc == host
    except ValueError:
        return False
    return name in _LOOPBACK and same
