"""Changes of a query as they come: in one response after a wait, as Server-Sent Events, or over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, WebSocket
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from ladle.delta import ChangeOptions, Delta, Moment
from ladle.engine.session import Session
from ladle.errors import LadleError
from ladle.formats.writing import encoded
from ladle.protocols.http.error_shape import BadRequest, ErrorBody, told_error
from ladle.protocols.http.hub import Hub, Told
from ladle.protocols.http.respond import Responder
from ladle.protocols.http.serving import Asking, Served, Serving, serving_of

_IDLE_SECONDS = 15.0
"""How often a listener that hears nothing is told so: proxies cut connections that are silent."""
_WAIT_SECONDS_MAX = 60.0
_EVENTS = "text/event-stream"
_CLOSED_BY_ERROR = 4000
_POSITION_CHARACTERS_MAX = 64

router = APIRouter(prefix="/v1", responses={"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}})

Since = Annotated[
    str | None,
    Query(
        max_length=_POSITION_CHARACTERS_MAX,
        description="a position that was told, or an epoch; without it, from now on",
    ),
]
Upto = Annotated[
    str | None,
    Query(max_length=_POSITION_CHARACTERS_MAX, description="a position told before: nothing is told beyond it"),
]
Snapshot = Annotated[bool, Query(description="begin with the answer as it is now")]
Outs = Annotated[
    str, Query(alias="expirations", description="retract; or out: rows carry when they will leave, and leave untold")
]
What = Annotated[str, Query(alias="relation", description="changes; istream, dstream, rstream as in CQL")]
Progress = Annotated[bool, Query(description="tell of each move of NOW, also where nothing changes")]


@dataclass(frozen=True)
class SubscriptionRequest:
    """What a subscriber wants to be told."""

    since: str | None
    options: ChangeOptions
    snapshot: bool
    progress: bool

    @staticmethod
    def of(
        serving: Serving, since: str | None, how: tuple[str, str], *, snapshot: bool, progress: bool
    ) -> SubscriptionRequest:
        """Raises where it can't be: before anything is told."""
        if since is not None and snapshot:
            raise BadRequest("A snapshot is the answer as it is now.", hint="leave out since or snapshot")
        _check_position(since, serving)
        return SubscriptionRequest(since, ChangeOptions.of(*how), snapshot, progress)

    def heard(self, serving: Serving, name: str) -> AsyncGenerator[Told, None]:
        """What the subscriber is told, piece by piece."""
        return serving.hub.listen(
            name,
            self.since,
            options=self.options,
            idle_seconds=_IDLE_SECONDS,
            snapshot=self.snapshot,
            progress=self.progress,
        )


@router.get(
    "/queries/{name}/changes",
    tags=["queries"],
    summary="What comes into a query's answer, and what goes",
    response_class=Response,
)
async def changes(
    name: str,
    request: Request,
    session: Asking,
    serving: Served,
    since: Since = None,
    seconds: Annotated[float, Query(ge=0, le=_WAIT_SECONDS_MAX, description="how long to wait for a change")] = 0.0,
    snapshot: Snapshot = False,
    expirations: Outs = "retract",
    relation: What = "changes",
    progress: Progress = False,
    upto: Upto = None,
) -> Response:
    """Accepting `text/event-stream`, Server-Sent Events for as long as the connection lasts: `change` with rows,
    `progress` when there were none and NOW moved on; the id of each is its position, and a reconnecting client's
    Last-Event-ID goes on from there. A large one comes in several events, all but the last of which say `more` and have
    no id. Otherwise one response, when something changed or the time is over, with the position to go on from. A large
    one comes in pages: each has about a piece, `next` names the one after it, and the last has the position. Join a
    delta that says `more` with what follows it.
    """
    known = session.query(name).name
    last = request.headers.get("last-event-id", "")
    is_stream = _EVENTS in request.headers.get("accept", "")
    if is_stream and last:
        since, snapshot = last, False
    asked = SubscriptionRequest.of(serving, since, (expirations, relation), snapshot=snapshot, progress=progress)
    if is_stream:
        _refuse_upto(upto)
        heard = asked.heard(serving, known)
        # What is wrong from the start is an error of the request, not an event.
        first = await anext(heard, None)
        events = _events(serving, request, known, first, heard)
        return StreamingResponse(events, media_type=_EVENTS, headers={"Cache-Control": "no-store"})
    _check_position(upto, serving)
    responder = Responder(request.scope, serving.pages, session.user.name, serving.settings.page_rows_max)
    found = await _waited(serving.hub, session, known, asked, seconds, upto)
    return await asyncio.to_thread(responder.changes, found, progress=progress)


def _refuse_upto(upto: str | None) -> None:
    if upto is not None:
        raise BadRequest("Events go on until the connection ends.", hint="leave out upto, or ask for one response")


def _check_position(text: str | None, serving: Serving) -> None:
    """Raises for what is no position, and for one that has not been yet."""
    if text is None:
        return
    if len(text) > _POSITION_CHARACTERS_MAX:
        raise BadRequest("That is no position: it is too long.")
    catalog = serving.db.catalog
    if text.isascii() and text.isdigit():
        if int(text) > catalog.epoch:
            raise _not_yet(f"Epoch {text}", catalog.epoch)
        return
    entry = Moment.parse(text).entry
    if entry > catalog.seq:
        raise _not_yet(f"Entry {entry}", catalog.seq)


def _not_yet(what: str, last: int) -> BadRequest:
    return BadRequest(f"{what} has not been yet: the last one is {last}.", hint="was the warehouse restored?")


async def _waited(
    hub: Hub, session: Session, name: str, asked: SubscriptionRequest, seconds: float, upto: str | None
) -> list[Delta]:
    """What changed, as soon as something did."""
    read = partial(session.changes, name, options=asked.options)
    found = await asyncio.to_thread(partial(read, since=asked.since, snapshot=asked.snapshot, upto=upto))
    if not found[0].progress or not seconds or upto is not None:
        return found
    deadline = time.monotonic() + seconds
    position = found[-1].position
    listening = hub.listen(name, position, options=asked.options, idle_seconds=seconds)
    async with contextlib.aclosing(listening) as heard:
        async for told in heard:
            if not told.progress:
                return await asyncio.to_thread(partial(read, since=position))
            position = told.position if told.pieces else position
            if time.monotonic() >= deadline:
                break
    # Nothing changed up to there.
    return await asyncio.to_thread(partial(read, since=position))


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
    """An event for each piece, made when the one before is sent: of a large delta a listener who is slow has one piece
    to himself, and shares the rest with the others. The id comes with the last: it is where the delta ends.
    """
    kind = b"progress" if told.progress else b"change"
    for number, piece in enumerate(told.pieces, 1):
        place = b"id: %b\n" % told.position.encode() if number == len(told.pieces) else b""
        yield b"%bevent: %b\ndata: %b\n\n" % (place, kind, piece)
    if not told.pieces:
        yield b":\n\n"


@router.websocket("/queries/{name}/changes")
async def changes_by_websocket(
    websocket: WebSocket,
    name: str,
    since: Since = None,
    snapshot: Snapshot = False,
    expirations: Outs = "retract",
    relation: What = "changes",
    progress: Progress = False,
    upto: Upto = None,
) -> None:
    """Tell what changes over a WebSocket, a message for each event."""
    serving = serving_of(websocket)
    offered = websocket.headers.get("sec-websocket-protocol")
    await websocket.accept(subprotocol=offered.split(",")[0].strip() if offered else None)
    try:
        known = serving.session(websocket.scope).query(name).name
        _refuse_upto(upto)
        asked = SubscriptionRequest.of(serving, since, (expirations, relation), snapshot=snapshot, progress=progress)
        gone = asyncio.ensure_future(_until_gone(websocket))
        try:
            async with contextlib.aclosing(asked.heard(serving, known)) as heard:
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
                    for piece in told.pieces:
                        await websocket.send_text(piece.decode())
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
