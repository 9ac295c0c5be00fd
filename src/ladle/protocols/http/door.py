"""What every request passes: who asks, how much it sends and how fast, how many there are; and the figures.

Nothing of a body is read before its sender is known, and what is read is bounded in size and time: so whoever has no
token can't keep the server busy.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ladle.errors import LadleError
from ladle.protocols.http import express
from ladle.protocols.http.error_shape import BadRequest, Busy, RequestTimeout, TooLarge, error_response
from ladle.protocols.http.serving import Serving, connection_of

_JSON_BYTES_MAX = 4 << 20
"""A body that is JSON and no rows: it is parsed in the event loop."""
_UNWANTED_BYTES_MAX = 1 << 30
_UNWANTED_SECONDS_MAX = 5.0
_TRY_AGAIN_LATER = 1013
_ALWAYS = ("/healthz", "/readyz", "/metrics")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; style-src 'self'; frame-ancestors 'none'"),
]


class Door:
    """The outermost of the server's ASGI applications."""

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self._app = app
        self.serving = serving
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        spare = connection is not None and connection.spare
        if scope["type"] != "http":
            if spare and scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER})
            else:
                await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500
        path = ""

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        # Those who wait for changes are counted by the hub, and health is told at any time.
        headers = dict(scope["headers"])
        waits = b"text/event-stream" in headers.get(b"accept", b"") or scope["path"] in _ALWAYS
        self._inside += not waits
        try:
            if spare and scope["path"] not in _ALWAYS:
                raise Busy(
                    "All connections are taken.", hint="try again later; the setting connections_max bounds them"
                )
            if not waits and self._inside > self.serving.settings.requests_max:
                raise Busy("The server is busy.", hint="try again in a moment; the setting requests_max bounds it")
            if scope["path"].startswith("/v1/"):
                session = scope["ladle.session"] = self.serving.session(scope)
                name = express.asked_for(scope, headers)
                if name is not None:
                    path = express.PATH
                    answer = await express.safely(self.serving, session, scope, name)
                    await answer(scope, receive, sending)
                    return
                receive = await self._body(scope, headers, receive)
            await self._app(scope, receive, sending)
        except LadleError as error:
            response = error_response(error, self.serving.places)
            # What is left of the body is not waited for.
            response.headers["Connection"] = "close"
            await response(scope, receive, sending)
        finally:
            self._inside -= not waits
            path = path or getattr(scope.get("route"), "path", "other")
            self.serving.metrics.request(scope["method"], path, status, time.perf_counter() - began)

    async def _body(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """The body, read and bounded; afterwards what comes is the news that the client is gone."""
        most = self.serving.settings.request_bytes_max
        if not scope["path"].endswith("/rows"):
            most = min(most, _JSON_BYTES_MAX)
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            if headers.get(b"expect", b"").lower() != b"100-continue":
                await _let_finish(receive)
            raise _too_large(most)
        parts: list[bytes] = []
        size = 0
        more = True
        seconds, progress = self.serving.settings.progress_seconds_max, self.serving.settings.progress_bytes_min
        due = progress
        try:
            async with asyncio.timeout(seconds) as limit:
                while more and size <= most:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise BadRequest("The client left before the whole body had come.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size >= due:
                        due = size + progress
                        limit.reschedule(asyncio.get_running_loop().time() + seconds)
        except TimeoutError:
            raise RequestTimeout(
                f"Less than {progress:,} bytes of the body came in {seconds:g} s.",
                hint="the settings progress_seconds_max and progress_bytes_min say how slow a client may be",
            ) from None
        if size > most:
            parts.clear()
            if more:
                await _let_finish(receive)
            raise _too_large(most)
        whole: Message | None = {"type": "http.request", "body": b"".join(parts), "more_body": False}

        async def receiving() -> Message:
            nonlocal whole
            if whole is None:
                return await receive()
            given, whole = whole, None
            return given

        return receiving


async def _let_finish(receive: Receive) -> None:
    """Receives the rest of a body that is not wanted, within bounds: a client that is still sending would find its
    connection reset, and not read why."""
    unwanted = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_UNWANTED_SECONDS_MAX):
            while unwanted < _UNWANTED_BYTES_MAX:
                message = await receive()
                if not message.get("more_body", False):
                    return
                unwanted += len(message["body"])


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"The request's body has more than {most:,} bytes.",
        hint="send it in parts, or have the setting request_bytes_max raised",
    )
