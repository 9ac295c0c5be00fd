"""Changes of a query as they come: in one response after a wait, as Server-Sent Events, or over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, WebSocket
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from ladle.answer import Answer
from ladle.engine.session import Session
from ladle.errors import LadleError
from ladle.formats.writing import encoded
from ladle.remote import forms
from ladle.server.errors import BadRequest, ErrorBody
from ladle.server.hub import Hub, Told
from ladle.server.respond import Responder
from ladle.server.serving import Asking, Served, serving_of

_IDLE_SECONDS = 15.0
"""How often a listener that hears nothing is told so: proxies cut connections that are silent."""
_WAIT_SECONDS_MAX = 60.0
_EVENTS = "text/event-stream"
_CLOSED_BY_ERROR = 4000

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
    if _EVENTS in request.headers.get("accept", ""):
        last = request.headers.get("last-event-id", "")
        if last:
            if not last.isdigit():
                raise BadRequest("Last-Event-ID is the number of an epoch.")
            since = int(last)
        events = _events(serving.hub, session, known, since)
        # What is wrong from the start is an error of the request, not an event.
        first = await anext(events)
        return StreamingResponse(_after(first, events), media_type=_EVENTS, headers={"Cache-Control": "no-store"})
    responder = Responder(request, serving.pages, session.user.name, serving.settings.page_rows_max)
    found, epoch = await _waited(serving.hub, session, known, since, seconds)
    return responder.several(found, {"epoch": epoch})


async def _waited(hub: Hub, session: Session, name: str, since: int | None, seconds: float) -> tuple[list[Answer], int]:
    """What changed, as soon as something did."""
    found, epoch = await asyncio.to_thread(session.changes, name, since=since)
    if found or not seconds:
        return found, epoch
    async with contextlib.aclosing(hub.listen(name, epoch, idle_seconds=seconds)) as told:
        first = await anext(told)
    if first.answer is None:
        return [], first.epoch
    return await asyncio.to_thread(session.changes, name, since=epoch)


async def _events(hub: Hub, session: Session, name: str, since: int | None) -> AsyncIterator[bytes]:
    yield b": changes of a standing query\n\n"
    try:
        async with contextlib.aclosing(hub.listen(name, since, idle_seconds=_IDLE_SECONDS)) as heard:
            async for told in heard:
                # A grant may have been revoked meanwhile.
                session.query(name)
                yield _event(told)
    except LadleError as error:
        yield b"event: error\ndata: " + encoded({"error": forms.error_to_json(error)}) + b"\n\n"


async def _after(first: bytes, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for event in events:
        yield event


def _event(told: Told) -> bytes:
    kind = b"epoch" if told.answer is None else b"change"
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (told.epoch, kind, told.json)


@router.websocket("/queries/{name}/changes")
async def changes_by_websocket(websocket: WebSocket, name: str, since: Since = None) -> None:
    """The same, a message each: `{"epoch": n, "now": ..., "rows": [...]}`, without rows when there were none."""
    serving = serving_of(websocket)
    offered = websocket.headers.get("sec-websocket-protocol")
    await websocket.accept(subprotocol=offered.split(",")[0].strip() if offered else None)
    try:
        session = serving.session(websocket)
        known = session.query(name).name
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
                    session.query(known)
                    await websocket.send_text(told.json.decode())
        finally:
            gone.cancel()
    except WebSocketDisconnect:
        return
    except LadleError as error:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await websocket.send_text(encoded({"error": forms.error_to_json(error)}).decode())
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
