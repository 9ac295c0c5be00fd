"""One shape for all errors: `{"error": {code, message, hint, position}}`, and which status goes with which code."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ladle.engine.places import Places
from ladle.errors import LadleError, LimitExceeded
from ladle.formats.writing import encoded
from ladle.json_values import JsonObject
from ladle.protocols import forms

_log = logging.getLogger(__name__)

_STATUS = {
    "sql": 400,
    "type_mismatch": 400,
    "unsupported": 400,
    "bad_request": 400,
    "unauthenticated": 401,
    "denied": 403,
    "unknown_name": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "already_exists": 409,
    "in_use": 409,
    "broken_query": 409,
    "key_reused": 409,
    "gone": 410,
    "too_large": 413,
    "not_acceptable": 406,
    "unknown_format": 415,
    "evaluation": 422,
    "limit": 429,
    "inbox_full": 429,
    "busy": 503,
    "closed": 503,
    "pipeline": 503,
    "warehouse": 503,
    "warehouse_busy": 503,
    "read_only": 403,
    "timeout": 504,
    "disk_full": 507,
}
"""An error of another code is one of ours to mend, but what was asked is refused all the same."""
_DEFAULT_STATUS = 400
_RETRY_SECONDS = {429: "1", 503: "1"}


class Where(BaseModel):
    """A place in the text of a statement."""

    line: int = Field(description="counted from one")
    column: int


class ErrorDetails(BaseModel):
    """What went wrong."""

    code: str = Field(description="what went wrong, for programs")
    message: str = Field(description="the same for people")
    hint: str | None = Field(description="what to do about it")
    position: Where | None = Field(description="where in the statement's text")


class ErrorBody(BaseModel):
    """The body of every response that is an error."""

    error: ErrorDetails


class TooLarge(LimitExceeded):
    """A request's body."""

    code = "too_large"


class Busy(LadleError):
    """The server works on as many requests as it may."""

    code = "busy"


class BadRequest(LadleError):
    """The request itself makes no sense."""

    code = "bad_request"


class RequestTimeout(LadleError):
    """A client that takes too long to send its request."""

    code = "request_timeout"


class NotFound(LadleError):
    """There is nothing at this address."""

    code = "not_found"


class NotAcceptable(LadleError):
    """There is no answer in a form that the client accepts."""

    code = "not_acceptable"


class UnknownFormat(LadleError):
    """Rows were sent in a form that is not known."""

    code = "unknown_format"


def told_error(error: LadleError, places: Places) -> JsonObject:
    """An error as it is sent: nobody is told by it where the warehouse is."""
    told = forms.error_to_json(error)
    return {**told, "message": places.hidden(error.message), "hint": places.hidden_if(error.hint)}


def error_response(error: LadleError, places: Places) -> Response:
    """The response for an error: its status, its body, and when to try again."""
    status = _STATUS.get(error.code, _DEFAULT_STATUS)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status in _RETRY_SECONDS:
        headers["Retry-After"] = _RETRY_SECONDS[status]
    content = encoded({"error": told_error(error, places)})
    return Response(content, status, headers, media_type="application/json")


def unexpected_response(error: Exception, method: str, path: str) -> Response:
    """For what is ours to mend; the log has it."""
    _log.error("%s %s failed", method, path, exc_info=error)
    content = {"code": "internal", "message": f"The server failed: {type(error).__name__}.", "hint": "see its log"}
    return Response(encoded({"error": {**content, "position": None}}), 500, media_type="application/json")


def add_handlers(app: FastAPI, places: Places) -> None:
    """Let an application answer errors in their one shape."""

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, LadleError)
        return error_response(error, places)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return error_response(BadRequest(f"{place}: {first['msg']}.", hint="/docs says what is expected"), places)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            trouble: LadleError = LadleError(f"{request.url.path} does not take {request.method}.")
            trouble.code = "method_not_allowed"
        elif error.status_code == 404:
            trouble = NotFound(f"There is nothing at {request.url.path}.", hint="/docs lists what there is")
        else:
            trouble = BadRequest(str(error.detail))
        return error_response(trouble, places)

    async def unexpected(request: Request, error: Exception) -> Response:
        return unexpected_response(error, request.method, request.url.path)

    app.add_exception_handler(LadleError, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unexpected)
