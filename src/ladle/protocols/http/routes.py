"""The HTTP interface, version 1: streams, tables, queries, one-off SQL, and what is going on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC
from typing import Annotated, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from ladle import sql as language
from ladle.access import Role
from ladle.catalog import QueryState
from ladle.clock import moment_of
from ladle.define.function_source import Definition
from ladle.engine.commands import DefineFunction, Push
from ladle.engine.session import Session
from ladle.errors import LadleError, unknown
from ladle.handles import PushBody, Stream, Table
from ladle.ingest.clocks import heartbeat_us
from ladle.json_values import JsonFields, JsonObject
from ladle.plan import Function
from ladle.protocols import forms
from ladle.protocols.http.bodies import (
    GrantBody,
    Heartbeat,
    NewFunction,
    NewStream,
    NewTable,
    Registration,
    Script,
    StatementBody,
)
from ladle.protocols.http.error_shape import BadRequest, ErrorBody, NotAcceptable
from ladle.protocols.http.express import answered
from ladle.protocols.http.pictures import plan_picture
from ladle.protocols.http.receiving import is_arrow, received
from ladle.protocols.http.respond import Responder, json_reply
from ladle.protocols.http.serving import Asking, Served
from ladle.schema import StreamSchema, TableSchema, type_name
from ladle.sql.statement_types import (
    Advance,
    CreateStream,
    CreateTable,
    DropFunction,
    DropQuery,
    DropStream,
    DropTable,
    Grant,
    InsertTableValues,
    Revoke,
)

_QUERIES_PAGE = 1_000
_ROWS = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
            "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}
"""What FastAPI can't see of a body that is read as bytes."""
_STATUS = Query(description="also say how each is: `status`, with coverage, invocations and what is kept")
_PAGE_ROWS = Query(ge=1, le=10_000_000, description="rows in one response at most")

_Read = TypeVar("_Read")
_Made = TypeVar("_Made")

router = APIRouter(prefix="/v1", responses={"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}})


# -- SQL --


@router.post("/sql", tags=["sql"], summary="Run one statement or a script")
def sql(body: Script, request: Request, session: Asking, serving: Served) -> Response:
    """The answer of a single statement in any form; of a script, several answers in JSON."""
    responder = Responder(request.scope, serving.pages, session.user.name, serving.settings.page_rows_max)
    if not responder.holds_several and len(list(language.split_script(body.sql, serving.settings))) != 1:
        raise NotAcceptable("Arrow and CSV have room for one answer.", hint="accept application/json; nothing was run")
    answers = session.execute(body.sql)
    if len(answers) == 1 and not responder.lists_answers:
        return responder.one(answers[0])
    return responder.several(answers, {})


@router.post("/explain", tags=["sql"], summary="How a query is answered")
def explain(body: StatementBody, session: Asking) -> Response:
    """Say how a standing query or a SELECT is answered, as text and as a tree."""
    said = session.explain(body.text, analyze=body.analyze)
    return json_reply({"text": said, "tree": session.explain_tree(body.text, analyze=body.analyze)})


@router.post("/plan", tags=["sql"], summary="The same as a graph: nodes, and edges between them")
def plan(body: StatementBody, session: Asking) -> Response:
    """The plan of a standing query or a SELECT as nodes and edges, for drawing."""
    return json_reply(plan_picture(session, body.text, analyze=body.analyze))


# -- queries --


@router.get("/queries", tags=["queries"], summary="The standing queries that the caller sees")
def queries(
    session: Asking,
    after: Annotated[int, Query(ge=0, description="how many to pass over: see `next` of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = _QUERIES_PAGE,
    like: Annotated[str, Query(max_length=255, description="a part of the name")] = "",
    owned: Annotated[bool, Query(description="only those that belong to somebody")] = False,
    status: Annotated[bool, _STATUS] = False,
) -> Response:
    """The standing queries that the caller may see, a page at a time."""
    catalog = session.catalog
    found = [state for state in catalog.standing() if like.lower() in state.name.lower()]
    if owned:
        found = [state for state in found if catalog.access.owner(state.name) is not None]
    shown = [_query(session, state) for state in found[after : after + limit]]
    if status:
        _add_statuses(session, shown)
    asked = f"&like={quote(like, safe='')}" if like else ""
    asked += ("&owned=true" if owned else "") + ("&status=true" if status else "")
    more = f"/v1/queries?after={after + limit}&limit={limit}{asked}" if after + limit < len(found) else None
    return json_reply({"queries": shown, "total": len(found), "next": more})


@router.post("/queries", tags=["queries"], status_code=201, summary="Register standing queries")
def register(body: Registration, session: Asking) -> Response:
    """Register standing queries: one, with or without a name, or several in one commit."""
    if (body.sql is None) == (body.queries is None) or (body.sql is None and body.name is not None):
        raise BadRequest("Give either sql, with or without a name, or queries.")
    if body.sql is not None and body.name is None:
        if body.if_not_exists or body.replace:
            raise BadRequest("if_not_exists and replace are about a query's name: give one.")
        names = [session.register_unnamed(body.sql, materialize=body.materialize)]
    else:
        texts = {body.name: body.sql} if body.name is not None and body.sql is not None else dict(body.queries or {})
        how = {"if_not_exists": body.if_not_exists, "replace": body.replace}
        session.register_many(texts, materialize=body.materialize, **how)
        names = list(texts)
    if len(names) > _QUERIES_PAGE:
        return json_reply({"registered": len(names)}, 201)
    catalog = session.catalog
    states = [state for name in names if (state := catalog.query(name)) is not None]
    return json_reply({"registered": len(names), "queries": [_query(session, state) for state in states]}, 201)


@router.get("/queries/{name}", tags=["queries"], summary="One standing query")
def query(name: str, session: Asking, status: Annotated[bool, _STATUS] = False) -> Response:
    """One standing query, with its columns and the streams that it reads."""
    state = session.query(name)
    schema = None if state.broken is not None else state.plan.schema
    columns = None if schema is None else [{"name": f.name, "type": type_name(f.type)} for f in schema]
    streams = list(state.meaning.stream_list)
    shown = {**_query(session, state), "columns": columns, "streams": streams}
    if status:
        _add_statuses(session, [shown])
    return json_reply(shown)


@router.delete("/queries/{name}", tags=["queries"], summary="Unregister a query")
def unregister(name: str, session: Asking, cascade: bool = False, if_exists: bool = False) -> Response:
    """Drop a standing query."""
    session.run(DropQuery(name, cascade, if_exists))
    return json_reply({"unregistered": name})


@router.get("/queries/{name}/answer", tags=["queries"], summary="Invoke a standing query")
async def answer(
    name: str,
    request: Request,
    session: Asking,
    serving: Served,
    now: Annotated[str | None, Query(max_length=64, description="another NOW, in ISO form; UTC unless it says")] = None,
    limit: Annotated[int | None, _PAGE_ROWS] = None,
    keep: Annotated[bool, Query(description="keep the rest for further pages; without it there are none")] = True,
) -> Response:
    """The answer of a standing query, as JSON, Arrow or CSV, whichever is accepted; large ones come in pages."""
    try:
        moment = None if now is None else moment_of(now).astimezone(UTC)
    except OverflowError:
        raise BadRequest(f"now: {now!r} is no time that there is.") from None
    return await answered(serving, session, request.scope, name, moment, limit, keep=keep)


@router.get("/pages/{key}", tags=["queries"], summary="A further page of an answer, or of changes")
def page(
    key: str,
    request: Request,
    session: Asking,
    serving: Served,
    start: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, _PAGE_ROWS] = _QUERIES_PAGE,
) -> Response:
    """A further page of an answer, or of changes, that were asked before: the address that a response named as `next`,
    or in its header `Link`. A page of changes is about a piece, whatever the `limit`; the last one has the position.
    """
    responder = Responder(request.scope, serving.pages, session.user.name, serving.settings.page_rows_max)
    return responder.page(key, start, limit)


@router.post("/queries/{name}/grants", tags=["access"], summary="Let somebody read a query")
def grant(name: str, body: GrantBody, session: Asking) -> Response:
    """Let somebody read a query."""
    session.run(Grant(name, body.to))
    return json_reply({"granted": name, "to": body.to})


@router.delete("/queries/{name}/grants/{to}", tags=["access"], summary="Take that back")
def revoke(name: str, to: str, session: Asking) -> Response:
    """Take back what was granted."""
    session.run(Revoke(name, to))
    return json_reply({"revoked": name, "from": to})


def _query(session: Session, state: QueryState) -> JsonFields:
    catalog = session.catalog
    return {
        "name": state.name,
        "sql": state.sql,
        "materialize": state.materialize.value,
        "window": "broken" if state.broken is not None else state.shape.window_kinds,
        "broken": catalog.why_broken(state),
        "owner": catalog.access.owner(state.name),
        "shared_with": catalog.shared_with(state.name),
        "created_us": state.created_us,
    }


def _add_statuses(session: Session, shown: list[JsonFields]) -> None:
    """One that was dropped meanwhile has none."""
    statuses = {each.name: asdict(each) for each in session.status([each["name"] for each in shown]).queries}
    for each in shown:
        each["status"] = statuses.get(each["name"])


# -- streams --


@router.get("/streams", tags=["streams"], summary="The streams")
def streams(session: Asking) -> Response:
    """The streams."""
    return json_reply({"streams": [_stream(each) for each in session.streams()]})


@router.post("/streams", tags=["streams"], status_code=201, summary="Create a stream")
def create_stream(body: NewStream, session: Asking) -> Response:
    """Make a stream."""
    columns = tuple(language.parse_column(name, kind) for name, kind in body.columns.items())
    if body.timestamp_by is not None and body.timestamp_by.lower() not in {column.name.lower() for column in columns}:
        raise unknown("column", body.timestamp_by, list(body.columns))
    create = CreateStream(
        body.name,
        StreamSchema(columns, body.timestamp_by),
        retain_us=_microseconds(body.retain_seconds),
        max_ahead_us=_microseconds(body.max_ahead_seconds),
        lateness_us=_microseconds(body.lateness_seconds),
        idle_after_us=_microseconds(body.idle_after_seconds),
        if_not_exists=body.if_not_exists,
    )
    new = session.run(create)
    return json_reply({"new": new}, 201)


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


@router.get("/streams/{name}", tags=["streams"], summary="One stream")
def stream(name: str, session: Asking) -> Response:
    """One stream, with its clock and its limits."""
    known = session.streams()
    found = next((each for each in known if each.name.lower() == name.lower()), None)
    if found is None:
        raise unknown("stream", name, [each.name for each in known])
    return json_reply(_stream(found))


@router.delete("/streams/{name}", tags=["streams"], summary="Drop a stream")
def drop_stream(name: str, session: Asking, cascade: bool = False, if_exists: bool = False) -> Response:
    """Drop a stream; with `cascade` also the queries that read it."""
    session.run(DropStream(name, cascade, if_exists))
    return json_reply({"dropped": name})


@router.post(
    "/streams/{name}/rows",
    tags=["streams"],
    summary="Push rows",
    openapi_extra=_ROWS,
)
async def push(
    name: str,
    request: Request,
    session: Asking,
    serving: Served,
    wait: Annotated[bool, Query(description="answer when the rows are visible, with their epoch")] = False,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """JSON lines, a JSON array, an Arrow stream or CSV with a header. The rows are durable when the response comes. A
    push that is sent again with the same Idempotency-Key counts once: the response says that it was `repeated`, and
    added 0 `rows`. Rows that don't fit go to the stream's quarantine; with `wait` the response says how many.
    """
    session.need(Role.WRITER, "push rows")
    if idempotency_key is not None and not idempotency_key.strip():
        raise BadRequest("Idempotency-Key is empty.", hint="leave it out, or give each push one of its own")
    body = await request.body()
    kind = request.headers.get("content-type", "")

    def take() -> JsonObject:
        schema = next((s.schema for s in session.streams() if s.name.lower() == name.lower()), None)
        if schema is None:
            raise unknown("stream", name, [s.name for s in session.streams()])
        table = received(body, kind, schema, serving.settings.request_bytes_max)
        handed = session.run(Push(name, table, wait, idempotency_key, PushBody(body, is_arrow(kind))))
        rows = 0 if handed.repeated else len(table)
        return {
            "rows": rows,
            "quarantined": handed.quarantined,
            "epoch": handed.epoch,
            "repeated": handed.repeated,
        }

    return json_reply(await serving.aside(take))


@router.post("/streams/{name}/heartbeat", tags=["streams"], summary="Advance a stream's clock")
def heartbeat(name: str, body: Heartbeat, session: Asking) -> Response:
    """Say that a stream with a time column has reached a time, though no tuple says so. The response has the epoch of
    that; none when the clock was there already.
    """
    return json_reply({"epoch": session.run(Advance(name, heartbeat_us(body.at)))})


def _stream(each: Stream) -> JsonFields:
    return {**forms.stream_to_json(each), "columns": _columns(each.schema)}


def _columns(schema: StreamSchema | TableSchema) -> list[dict[str, str]]:
    """As people read them; the schema beside it is for programs of ours."""
    return [{"name": column.name, "type": type_name(column.type)} for column in schema.columns]


# -- tables --


@router.get("/tables", tags=["tables"], summary="The tables")
def tables(session: Asking) -> Response:
    """The tables."""
    return json_reply({"tables": [_table(each) for each in session.tables()]})


@router.post("/tables", tags=["tables"], status_code=201, summary="Create a table")
def create_table(body: NewTable, session: Asking) -> Response:
    """Make a table."""
    if body.columns is not None:
        schema = TableSchema(tuple(language.parse_column(name, kind) for name, kind in body.columns.items()))
    else:
        schema = _read(TableSchema.from_json, body.table_schema, "schema")
    return json_reply({"new": session.run(CreateTable(body.name, schema, body.if_not_exists))}, 201)


@router.delete("/tables/{name}", tags=["tables"], summary="Drop a table")
def drop_table(name: str, session: Asking, cascade: bool = False, if_exists: bool = False) -> Response:
    """Drop a table; with `cascade` also the queries that read it."""
    session.run(DropTable(name, cascade, if_exists))
    return json_reply({"dropped": name})


@router.post("/tables/{name}/rows", tags=["tables"], summary="Insert rows: all of them, or none", openapi_extra=_ROWS)
async def insert(name: str, request: Request, session: Asking, serving: Served) -> Response:
    """Add rows to a table: all of them, or an error and none."""
    session.need(Role.WRITER, "insert rows")
    body = await request.body()
    kind = request.headers.get("content-type", "")

    def take() -> JsonObject:
        known = next((t for t in session.tables() if t.name.lower() == name.lower()), None)
        if known is None:
            raise unknown("table", name, [t.name for t in session.tables()])
        rows = received(body, kind, known.schema, serving.settings.request_bytes_max, plain=True)
        return {"rows": session.run(InsertTableValues(name, rows))}

    return json_reply(await serving.aside(take))


def _table(each: Table) -> JsonFields:
    return {**forms.table_to_json(each), "columns": _columns(each.schema)}


# -- functions --


@router.get("/functions", tags=["functions"], summary="The users' functions")
def functions(session: Asking) -> Response:
    """The functions that queries may call."""
    return json_reply({"functions": [{**each.to_json(), "signature": each.signature} for each in session.functions()]})


@router.post("/functions", tags=["functions"], status_code=201, summary="Create a function; for admins")
def create_function(body: NewFunction, session: Asking) -> Response:
    """Make or replace a function."""
    definition = Definition.of(_read(Function.from_json, body.function, "function"))
    made = session.run(DefineFunction(definition, body.replace, body.if_not_exists))
    return json_reply({"function": made.to_json()}, 201)


@router.delete("/functions/{name}", tags=["functions"], summary="Drop a function; for admins")
def drop_function(name: str, session: Asking, cascade: bool = False, if_exists: bool = False) -> Response:
    """Drop a function; with `cascade` also the queries that call it."""
    session.run(DropFunction(name, cascade, if_exists))
    return json_reply({"dropped": name})


def _read(read: Callable[[_Read], _Made], value: _Read, what: str) -> _Made:
    try:
        return read(value)
    except LadleError:
        raise
    except Exception:
        raise BadRequest(f"{what} is not in the form that Ladle's client writes.") from None


# -- what is going on --


@router.get("/status", tags=["status"], summary="Streams, sources and queries: rates, coverage, errors")
def status(session: Asking) -> Response:
    """Everything that is going on."""
    return json_reply({"status": forms.status_to_json(session.status())})


@router.get("/pulse", tags=["status"], summary="What changes all the time, without a look at each query")
def pulse(session: Asking, serving: Served) -> Response:
    """What changes all the time: rates, epochs, coverage, budgets."""
    told = replace(session.pulse(), subscribers=serving.hub.subscribers)
    return json_reply({"pulse": forms.status_to_json(told)})


@router.get("/history", tags=["status"], summary="The last quarter of an hour, a sample a second")
def history(
    session: Asking, serving: Served, since: Annotated[float, Query(description="seconds since 1970")] = 0.0
) -> Response:
    """Samples of the last minutes, one a second."""
    return json_reply({"samples": serving.history.since(since)})


@router.get("/me", tags=["access"], summary="Who the caller is")
def me(session: Asking) -> Response:
    """Who the caller is, and what they may do."""
    return json_reply({"name": session.user.name, "role": session.user.role.value})
