"""Large and deep statements over HTTP: answers, or errors with a name; and health is told meanwhile."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from tests.server.conftest import Serve, code_of

LONG = "SELECT n FROM ticks WHERE " + " OR ".join(f"n = {number}" for number in range(0, 6_000, 2))


def test_a_thousand_unions_are_answered(http: httpx.Client) -> None:
    reply = http.post("/v1/sql", json={"sql": " UNION ALL ".join(["SELECT n FROM ticks"] * 1_000)})
    assert reply.status_code == 200, reply.text


def test_what_is_too_deep_or_too_long_is_a_bad_request(http: httpx.Client) -> None:
    deep = "SELECT " + "(" * 5_000 + "n" + ")" * 5_000 + " AS x FROM ticks"
    long = "SELECT n FROM ticks WHERE n IN (" + ", ".join(["1"] * 150_000) + ")"
    for statement in (deep, long, "SELECT '" + "x" * (1 << 20) + "'"):
        reply = http.post("/v1/sql", json={"sql": statement})
        assert code_of(reply) == (400, "sql"), reply.text
        assert "statement_" in reply.text
        reply = http.post("/v1/queries", json={"name": "q", "sql": statement})
        assert code_of(reply) == (400, "sql"), reply.text


def test_health_is_told_while_a_long_statement_is_parsed(http: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(http.post, "/v1/sql", json={"sql": LONG})
        took = []
        while not asked.done():
            begun = time.monotonic()
            assert http.get("/healthz").status_code == 200
            took.append(time.monotonic() - begun)
    assert asked.result().status_code == 200
    assert statistics.median(took) < 0.5, took


def test_parsing_counts_as_time_of_the_statement(serve: Serve) -> None:
    db, url = serve(invoke_seconds_max=0.05)
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    reply = httpx.post(f"{url}/v1/sql", json={"sql": LONG}, trust_env=False, timeout=30)
    assert reply.status_code == 504, reply.text
    assert "took longer than 0.05 s" in reply.text
