"""Changes of a query as they come: in one response after a wait, as Server-Sent Events, or over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, WebSocket
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from ladle.answer import Answer
from ladle.engine.session import Session
from ladle.errors import LadleError
from ladle.formats.writing import encoded
from ladle.server.errors import BadRequest, ErrorBody, told_error
from ladle.server.hub import Hub, Told
from ladle.server.respond import Responder
from ladle.server.serving import Asking, Served, Serving, serving_of

_IDLE_SECONDS = 15.0
"""How often a listener that hears nothing is told so: proxies cut connections that are silent."""
_WAIT_SECONDS_MAX = 60.0
_EVENTS = "text/event-stream"
_CLOSED_BY_ERROR = 4000
_PIECE_BYTES = 1 << 16

router = APIRouter(prefix="/v1", responses={"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}})

Since = Annotated[
    int | None, Query(ge=0, le=(1 << 53), description="the last epoch that the caller knows; without it, from now on")
]


@router.get(
    "/queries/{name}/changes",
    tags=["queries"],
    summary="What each epoch adds to a query's answer",
    response_class=Response,
)
async def changes(
    name: str,
    request: Request,
    session: Asking,
    serving: Served,
    since: Since = None,
    seconds: Annotated[float, Query(ge=0, le=_WAIT_SECONDS_MAX, description="how long to wait for a change")] = 0.0,
) -> Response:
    """Accepting `text/event-stream`, Server-Sent Events for as long as the connection lasts: `change` with rows,
    `epoch` when there were none; the id of each is its epoch, and a reconnecting client's Last-Event-ID goes on from
    there. Otherwise one response, when something changed or the time is over, with the epoch to go on from.
    """
    known = session.query(name).name
    _check_epoch(since, serving)
    if _EVENTS in request.headers.get("accept", ""):
        last = request.headers.get("last-event-id", "")
        if last:
            since = _epoch_of(last)
            _check_epoch(since, serving)
        heard = serving.hub.listen(known, since, idle_seconds=_IDLE_SECONDS)
        # What is wrong from the start is an error of the request, not an event.
        first = await anext(heard, None)
        events = _events(serving, request, known, first, heard)
        return StreamingResponse(events, media_type=_EVENTS, headers={"Cache-Control": "no-store"})
    found, epoch = await _waited(serving.hub, session, known, since, seconds)
    responder = Responder(request.scope, serving.pages, session.user.name, serving.settings.page_rows_max)
    return await asyncio.to_thread(responder.several, found, {"epoch": epoch}, paged=False)


def _epoch_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 17):
        raise BadRequest("Last-Event-ID is the number of an epoch.")
    return int(text)


def _check_epoch(since: int | None, serving: Serving) -> None:
    epoch = serving.db.catalog.epoch
    if since is not None and since > epoch:
        raise BadRequest(
            f"Epoch {since} has not been yet: the last one is {epoch}.", hint="was the warehouse restored?"
        )


async def _waited(hub: Hub, session: Session, name: str, since: int | None, seconds: float) -> tuple[list[Answer], int]:
    """What changed, as soon as something did."""
    found, epoch = await asyncio.to_thread(session.changes, name, since=since)
    if found or not seconds:
        return found, epoch
    deadline = time.monotonic() + seconds
    async with contextlib.aclosing(hub.listen(name, epoch, idle_seconds=seconds)) as heard:
        async for told in heard:
            if told.changed:
                return await asyncio.to_thread(session.changes, name, since=epoch)
            epoch = told.epoch
            if time.monotonic() >= deadline:
                break
    return [], epoch


async def _events(
    serving: Serving, request: Request, name: str, first: Told | None, heard: AsyncGenerator[Told, None]
) -> AsyncIterator[bytes]:
    try:
        async with contextlib.aclosing(heard):
            told = first
            while told is not None:
                for piece in _event(told):
                    yield piece
                told = await anext(heard, None)
                # The token may be gone meanwhile, or a grant revoked.
                serving.session(request.scope).query(name)
    except LadleError as error:
        yield b"event: error\ndata: " + encoded({"error": told_error(error, serving.places)}) + b"\n\n"


def _event(told: Told) -> Iterator[bytes]:
    """In pieces, the next of which is made when the last is sent: of a large change a listener who is slow has one
    piece to himself, and shares the rest with the others.
    """
    kind = b"change" if told.changed else b"epoch"
    head, size = b"id: %d\nevent: %b\ndata: " % (told.epoch, kind), len(told.json)
    for start in range(0, size, _PIECE_BYTES):
        piece = told.json[start : start + _PIECE_BYTES]
        yield b"%b%b%b" % (b"" if start else head, piece, b"" if start + _PIECE_BYTES < size else b"\n\n")


@router.websocket("/queries/{name}/changes")
async def changes_by_websocket(websocket: WebSocket, name: str, since: Since = None) -> None:
    """The same, a message each: `{"epoch": n, "now": ..., "rows": [...]}`, without rows when there were none."""
    serving = serving_of(websocket)
    offered = websocket.headers.get("sec-websocket-protocol")
    await websocket.accept(subprotocol=offered.split(",")[0].strip() if offered else None)
    try:
        known = serving.session(websocket.scope).query(name).name
        _check_epoch(since, serving)
        gone = asyncio.ensure_future(_until_gone(websocket))
        try:
            async with contextlib.aclosing(serving.hub.listen(known, since, idle_seconds=_IDLE_SECONDS)) as heard:
                while True:
                    following = asyncio.ensure_future(anext(heard, None))
                    await asyncio.wait((gone, following), return_when=asyncio.FIRST_COMPLETED)
                    told = None if gone.done() else following.result()
                    if told is None:
                        following.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await following
                        break
                    serving.session(websocket.scope).query(known)
                    await websocket.send_text(told.json.decode())
        finally:
            gone.cancel()
    except WebSocketDisconnect:
        return
    except LadleError as error:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await websocket.send_text(encoded({"error": told_error(error, serving.places)}).decode())
            await websocket.close(_CLOSED_BY_ERROR)
        return
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await websocket.close()


async def _until_gone(websocket: WebSocket) -> None:
    """Returns when the client closes; what it says is of no interest."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
