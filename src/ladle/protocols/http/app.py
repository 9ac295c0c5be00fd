"""The application: routes, the door in front of them, the console behind them, and their beginning and end."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

import ladle
from ladle.config import Settings
from ladle.engine import Database
from ladle.engine.places import Places
from ladle.engine.watched import figures
from ladle.protocols.http import routes
from ladle.protocols.http import streaming as following
from ladle.protocols.http.connections import Connections
from ladle.protocols.http.door import Door
from ladle.protocols.http.error_shape import add_handlers
from ladle.protocols.http.history import History
from ladle.protocols.http.hub import Hub
from ladle.protocols.http.metrics import Metrics
from ladle.protocols.http.pages import AnswerPages
from ladle.protocols.http.respond import json_reply
from ladle.protocols.http.serving import Served, Serving

CONSOLE = Path(__file__).parent / "console"
_DESCRIPTION = """Standing SQL queries over streams. Send `Authorization: Bearer TOKEN`; programs on the server's own
machine need none, unless it is set up otherwise. Errors: `{"error": {code, message, hint, position}}`."""


def create_app(db: Database, settings: Settings) -> Door:
    """What a server runs: the routes, behind their door."""
    hub = Hub(db, settings.subscribers_max)
    connections = Connections(settings)
    metrics = Metrics(db.pulse, lambda: figures(db.parts), lambda: hub.subscribers, connections)
    places = Places(db.path)
    history = History(lambda: places.hidden_in(db.pulse()), lambda: hub.subscribers)
    pages = AnswerPages(settings.pages_bytes_max)
    serving = Serving(db, settings, hub, pages, history, metrics, places, connections)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        hub.start()
        history.start()
        pages.start()
        try:
            yield
        finally:
            pages.stop()
            history.stop()
            await hub.stop()
            serving.stop()

    app = FastAPI(
        title="Ladle",
        version=ladle.__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        # FastAPI's own pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    app.state.serving = serving
    app.include_router(following.router)
    app.include_router(routes.router)
    _add_own(app)
    add_handlers(app, places)
    app.mount("/console", _Console(directory=CONSOLE, html=True), name="console")
    return Door(app, serving)


class _Console(StaticFiles):
    """Files that a browser asks for again each time: after an upgrade they are others."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = "no-cache"
        return response


def _add_own(app: FastAPI) -> None:
    @app.get("/healthz", tags=["status"], summary="Whether the process lives")
    async def healthz() -> Response:
        return json_reply({"status": "alive"})

    @app.get("/readyz", tags=["status"], summary="Whether it answers queries")
    def readyz(serving: Served) -> Response:
        pulse = serving.db.pulse()
        # Whoever asks is told no more: why something fails may have paths and addresses in it.
        problems = [f"pushes to stream {each.name} wait" for each in pulse.streams if each.error]
        failing = [source for source in pulse.sources if source.state in ("restarting", "failed")]
        problems += [f"source {each.name} of stream {each.stream} is {each.state}" for each in failing]
        return json_reply({"status": "ready", "epoch": serving.db.catalog.epoch, "problems": problems})

    @app.get("/metrics", tags=["status"], summary="Figures in Prometheus' form")
    def metrics(request: Request, serving: Served) -> Response:
        seen = serving.session(request.scope).catalog
        text = serving.metrics.text(lambda query: seen.query(query) is not None)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return RedirectResponse("/console/")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return RedirectResponse("/console/docs.html")
