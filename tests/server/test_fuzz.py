"""Whatever is sent, the server answers with an error of the caller's and goes on: requests that Schemathesis makes from
the OpenAPI document, and bodies that no client would send.
"""

from __future__ import annotations

import random
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from tests.server.conftest import TICKS

from ladle.config import Settings
from ladle.engine import Database
from ladle.protocols.http.process import Server
from ladle.testing import connect_inline

_SELECT = "SELECT n FROM ticks"
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One for all: what one request does is what the next finds."""
    path = tmp_path_factory.mktemp("fuzz") / "warehouse"
    limits = {"port": 0, "request_bytes_max": 1 << 20, "invoke_seconds_max": 2.0}
    with connect_inline(path, settings=limits) as db:
        db.sql(TICKS)
        db.register(_SELECT, name="q")
        own = Server(db, Settings.load(limits))
        own.start()
        try:
            yield db, own.url
        finally:
            own.stop()


def test_requests_made_from_the_document(server: tuple[Database, str]) -> None:
    _, url = server
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) > 25
    for operation in operations:

        @settings(
            max_examples=12,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def run(case: Any) -> None:
            reply = case.call(timeout=30)
            assert reply.status_code < 500, f"{case.method} {case.path}: {reply.status_code} {reply.text[:300]}"
            case.validate_response(reply, checks=(not_a_server_error,))

        run()
    assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


_TYPES = ("application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream", "application/json", "x", "")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.binary(max_size=2_000), kind=st.sampled_from(_TYPES), path=st.sampled_from(("streams/ticks", "tables/t"))
)
def test_bodies_of_nonsense(server: tuple[Database, str], body: bytes, kind: str, path: str) -> None:
    reply = httpx.post(f"{server[1]}/v1/{path}/rows", content=body, headers={"Content-Type": kind}, trust_env=False)
    assert reply.status_code < 500, reply.text
    if reply.status_code >= 400:
        assert set(reply.json()["error"]) == {"code", "message", "hint", "position"}


def test_huge_and_crooked_requests(server: tuple[Database, str]) -> None:
    _, url = server
    rng = random.Random(1)
    nested = "SELECT " + "(" * 5_000 + "1" + ")" * 5_000
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        replies = [
            http.post("/v1/sql", json={"sql": nested}),
            http.post("/v1/sql", json={"sql": "SELECT 1; " * 500}),
            http.post("/v1/sql", json={"sql": "x" * ((1 << 20) - 100)}),
            http.post("/v1/sql", json={"sql": "SELECT '\x01\ud7ff'"}),
            http.post("/v1/sql", content=b"\xff\xfe"),
            http.post("/v1/sql", content=b"[" * 100_000, headers={"Content-Type": "application/json"}),
            http.post("/v1/queries", json={"queries": {f"q{n}": "SELECT" for n in range(1_000)}}),
            http.get("/v1/queries/" + "x" * 5_000),
            http.get("/v1/queries/%2e%2e%2f%2e%2e/answer"),
            http.get("/v1/queries/q/answer", params={"now": "9" * 60}),
            http.get("/v1/queries/q/changes", params={"since": 1 << 53}),
            http.get("/v1/history", params={"since": "nan"}),
            http.get("/console/../../../../etc/passwd"),
            http.get("/console/%2e%2e/%2e%2e/app.py"),
            http.request("BREW", "/v1/sql"),
            http.get("/v1/streams", headers={"Host": "[::1"}),
            http.get("/v1/streams", headers={"Origin": "http://[x"}),
            http.get("/v1/queries/q/answer", params={"now": "9999-12-31T23:59:59-14:00"}),
            http.get("/v1/queries/q/changes", headers={"Accept": "text/event-stream", "Last-Event-ID": "5" * 5_000}),
            http.post("/v1/streams/ticks/rows", content=b'{"n": ' + b"[" * 200_000, headers=NDJSON),
            http.post("/v1/streams/ticks/rows", content=rng.randbytes(900_000), headers={"Content-Type": "text/csv"}),
        ]
        for reply in replies:
            assert reply.status_code < 500, f"{reply.request.url}: {reply.text[:200]}"
        assert not any(b"root:" in reply.content for reply in replies)
        assert http.get("/v1/queries/q/answer").status_code == 200
