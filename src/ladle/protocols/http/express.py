"""The request that comes thousands of times: an answer of a standing query, as it is now.

FastAPI finds routes and parameters with a millisecond of Python. So this one, when it has no parameters and no body,
goes past it; with parameters it goes FastAPI's way, to the same function.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Scope

from ladle.engine.session import Session
from ladle.errors import LadleError
from ladle.protocols.http.error_shape import error_response, unexpected_response
from ladle.protocols.http.respond import Responder
from ladle.protocols.http.serving import Serving

PATH = "/v1/queries/{name}/answer"
_BEGIN, _END = PATH.split("{name}")


def asked_for(scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
    """The query whose answer is asked for, without parameters."""
    path: str = scope["path"]
    if scope["method"] != "GET" or scope["query_string"] or not (path.startswith(_BEGIN) and path.endswith(_END)):
        return None
    if b"content-length" in headers or b"transfer-encoding" in headers:
        return None
    name = scope.get("raw_path", path.encode()).decode("latin-1")[len(_BEGIN) : -len(_END)]
    return unquote(name) if name and "/" not in name else None


async def safely(serving: Serving, session: Session, scope: Scope, name: str) -> Response:
    """The answer, or what went wrong: here nobody else would say it."""
    try:
        return await answered(serving, session, scope, name)
    except LadleError as error:
        return error_response(error, serving.places)
    except Exception as error:
        return unexpected_response(error, "GET", scope["path"])


async def answered(
    serving: Serving,
    session: Session,
    scope: Scope,
    name: str,
    now: datetime | None = None,
    limit: int | None = None,
    *,
    keep: bool = True,
) -> Response:
    """The answer of a standing query, as of now or of another time, in the form that was asked for."""
    responder = Responder(scope, serving.pages, session.user.name, serving.settings.page_rows_max)
    query = session.query(name)

    def answer() -> Response:
        return responder.one(session.invoke(name, now=now), limit, keep=keep)

    # The past may be far away on the disk.
    return await (serving.answering(query, answer) if now is None else run_in_threadpool(answer))
