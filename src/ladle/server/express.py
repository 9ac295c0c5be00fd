"""The request that comes thousands of times: an answer of a standing query, as it is now.

FastAPI finds routes and parameters with a millisecond of Python. So this one, when it has no parameters, goes past it;
with parameters it goes FastAPI's way, to the same function.
"""

from __future__ import annotations

from datetime import datetime
from urllib.parse import unquote

from starlette.requests import HTTPConnection
from starlette.responses import Response

from ladle.engine.session import Session
from ladle.server.origin import Scope
from ladle.server.respond import Responder
from ladle.server.serving import Serving

PATH = "/v1/queries/{name}/answer"
_BEGIN, _END = PATH.split("{name}")


def asked_for(scope: Scope) -> str | None:
    """The query whose answer is asked for, without parameters."""
    path: str = scope["path"]
    if scope["method"] != "GET" or scope["query_string"] or not (path.startswith(_BEGIN) and path.endswith(_END)):
        return None
    name = scope.get("raw_path", path.encode()).decode("latin-1")[len(_BEGIN) : -len(_END)]
    return unquote(name) if name and "/" not in name else None


async def answered(
    serving: Serving,
    session: Session,
    connection: HTTPConnection,
    name: str,
    now: datetime | None = None,
    limit: int | None = None,
    *,
    keep: bool = True,
) -> Response:
    responder = Responder(connection, serving.pages, session.user.name, serving.settings.page_rows_max)
    return await serving.answering(
        session.query(name).plan, lambda: responder.one(session.invoke(name, now=now), limit, keep=keep)
    )
