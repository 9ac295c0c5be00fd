"""The HTTP interface with a plain client, as curl would use it."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from tests.server.conftest import Serve, code_of
from tests.waiting import wait_until

import ladle
from ladle.answer import Answer
from ladle.config import Settings
from ladle.engine import Database
from ladle.engine.watched import figures
from ladle.errors import Gone
from ladle.protocols.http.connections import Connections
from ladle.protocols.http.metrics import Metrics
from ladle.protocols.http.pages import AnswerPages
from ladle.status import SourceStatus

LINES = '{"n": 1, "at": "2026-01-01T00:00:01Z"}\n{"n": 2, "at": "2026-01-01T00:00:02Z"}\n'
NDJSON = {"Content-Type": "application/x-ndjson"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


def push(http: httpx.Client, content: str | bytes = LINES, kind: str = "application/x-ndjson", **how: str) -> int:
    headers = {"Content-Type": kind, **({"Idempotency-Key": how["key"]} if "key" in how else {})}
    reply = http.post("/v1/streams/ticks/rows?wait=true", content=content, headers=headers)
    assert reply.status_code == 200, reply.text
    return int(reply.json()["epoch"])


def _arrow(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_health_and_metrics(http: httpx.Client) -> None:
    push(http)
    assert http.get("/healthz").json() == {"status": "alive"}
    assert http.get("/readyz").json() == {"status": "ready", "epoch": 1, "problems": []}
    text = http.get("/metrics").text
    assert 'ladle_stream_rows_total{stream="ticks"} 2.0' in text
    assert 'ladle_requests_total{method="POST",path="/v1/streams/{name}/rows",status="200"} 1.0' in text


def test_sources_that_fail_are_seen_by_those_who_watch(served: tuple[Database, str], http: httpx.Client) -> None:
    db, _ = served
    db.create_source("files", stream="ticks", format="json", options={"path": "/hush"})
    wait_until(lambda: db.status().sources[0].restarts)
    ready = http.get("/readyz")
    assert ready.json()["problems"] == ["source files of stream ticks is restarting"]
    assert "Spark" not in ready.text
    text = http.get("/metrics").text
    assert 'ladle_source_running{source="files",stream="ticks"} 0.0' in text
    restarts = re.search(r'ladle_source_restarts_total{source="files",stream="ticks"} (\S+)', text)
    assert restarts is not None
    assert float(restarts[1]) >= 1
    db.drop_source("files")
    assert http.get("/readyz").json()["problems"] == []
    assert "ladle_source_running{" not in http.get("/metrics").text


def test_of_two_sources_with_one_name_the_failing_one_is_counted(served: tuple[Database, str]) -> None:
    db, _ = served
    sources = tuple(SourceStatus("ticks", "files", state, None, 2, None) for state in ("failed", "running"))
    text = (
        Metrics(
            lambda: replace(db.pulse(), sources=sources), lambda: figures(db.parts), lambda: 0, Connections(Settings())
        )
        .text(str)
        .decode()
    )
    assert text.count("ladle_source_running{") == 1
    assert 'ladle_source_running{source="files",stream="ticks"} 0.0' in text


def test_a_query_from_registration_to_its_end(http: httpx.Client) -> None:
    push(http)
    body = {"name": "big", "sql": "SELECT n FROM ticks WHERE n > 1 BEGIN NOW - INTERVAL 1 HOUR END NOW"}
    made = http.post("/v1/queries", json=body)
    assert made.status_code == 201
    assert made.json()["queries"][0]["window"] == "sliding"
    assert code_of(http.post("/v1/queries", json=body)) == (409, "already_exists")
    answer = http.get("/v1/queries/big/answer").json()
    assert answer["rows"] == [{"n": 2}]
    assert answer["columns"] == [{"name": "n", "type": "INT"}]
    assert (answer["epoch"], answer["next"], answer["rows_total"]) == (1, None, 1)
    assert http.get("/v1/queries/big/answer", params={"now": "2026-01-01 00:00:01"}).json()["rows"] == []
    assert code_of(http.get("/v1/queries/big/answer", params={"now": "noon"})) == (400, "type_mismatch")
    assert http.post("/v1/sql", json={"sql": "ALTER STREAM ticks SET RETAIN INTERVAL 1 SECOND"}).is_success
    assert code_of(http.get("/v1/queries/big/answer", params={"now": "2026-01-01 00:00:01"})) == (410, "gone")
    assert http.get("/v1/queries/big").json()["sql"] == body["sql"]
    assert "standing query big" in http.post("/v1/explain", json={"text": "big"}).json()["text"]
    assert [query["name"] for query in http.get("/v1/queries").json()["queries"]] == ["big"]
    assert http.delete("/v1/queries/big").status_code == 200
    assert code_of(http.get("/v1/queries/big/answer")) == (404, "unknown_name")


def test_a_query_without_a_name_gets_one(http: httpx.Client) -> None:
    push(http)
    made = http.post("/v1/queries", json={"sql": "SELECT n FROM ticks WHERE n > 1"})
    assert made.status_code == 201
    name = made.json()["queries"][0]["name"]
    assert http.get(f"/v1/queries/{name}/answer").json()["rows"] == [{"n": 2}]
    for wrong in ({"sql": "SELECT 1 AS x", "replace": True}, {"name": "q"}, {"name": "q", "queries": {}}, {}):
        assert http.post("/v1/queries", json=wrong).status_code == 400


def test_answers_in_all_forms(http: httpx.Client) -> None:
    push(http)
    http.post("/v1/queries", json={"name": "all", "sql": "SELECT n, at FROM ticks"})
    arrow = http.get("/v1/queries/all/answer", headers={"Accept": "application/vnd.apache.arrow.stream"})
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.column("n").to_pylist() == [1, 2]
    assert json.loads(arrow.headers["ladle-answer"])["epoch"] == 1
    text = http.get("/v1/queries/all/answer", headers={"Accept": "text/csv"})
    assert [row["n"] for row in csv.DictReader(io.StringIO(text.text))] == ["1", "2"]
    refused = http.get("/v1/queries/all/answer", headers={"Accept": "image/png"})
    assert code_of(refused) == (406, "not_acceptable")


def test_a_large_answer_comes_in_pages_of_one_epoch(http: httpx.Client) -> None:
    rows = "".join(f'{{"n": {n}, "at": "2026-01-01T00:00:00Z"}}\n' for n in range(25))
    push(http, rows)
    http.post("/v1/queries", json={"name": "all", "sql": "SELECT n FROM ticks"})
    page = http.get("/v1/queries/all/answer?limit=10").json()
    push(http)
    seen = [row["n"] for row in page["rows"]]
    while page["next"]:
        page = http.get(page["next"]).json()
        assert page["epoch"] == 1
        seen += [row["n"] for row in page["rows"]]
    assert seen == list(range(25))
    assert code_of(http.get("/v1/pages/nothing")) == (410, "gone")


def test_one_off_answers_come_in_pages_too(serve: Serve) -> None:
    db, url = serve(page_rows_max=10)
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    with httpx.Client(base_url=url, trust_env=False) as http:
        push(http, "".join(f'{{"n": {n}, "at": "2026-01-01T00:00:00Z"}}\n' for n in range(25)))
        (answer,) = http.post("/v1/sql", json={"sql": "SELECT n FROM ticks ORDER BY n"}).json()["answers"]
        assert (len(answer["rows"]), answer["rows_total"]) == (10, 25)
        assert [row["n"] for row in http.get(answer["next"]).json()["rows"]] == list(range(10, 20))
    with ladle.connect(url) as remote:
        whole = remote.sql("SELECT n FROM ticks ORDER BY n")
        assert whole.table.column("n").to_pylist() == list(range(25))
        first, second = remote.execute("SELECT n FROM ticks; SELECT n FROM ticks WHERE n < 12")
        assert (len(first), len(second)) == (25, 12)


def test_pages_that_nobody_fetched_for_too_long_are_gone(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    push(http, "".join(f'{{"n": {n}, "at": "2026-01-01T00:00:00Z"}}\n' for n in range(25)))
    http.post("/v1/queries", json={"name": "all", "sql": "SELECT n FROM ticks"})
    page = http.get("/v1/queries/all/answer?limit=5").json()
    page = http.get(page["next"]).json()
    assert len(page["rows"]) == 5
    monkeypatch.setattr("ladle.protocols.http.pages._SECONDS_MAX", 0.0)
    late = http.get(page["next"])
    assert code_of(late) == (410, "gone")
    assert "ask for it again" in late.json()["error"]["hint"]


def test_old_pages_go_though_nobody_asks() -> None:
    now = 0.0
    pages = AnswerPages(1 << 20, lambda: now)
    answer = Answer(pa.table({"n": [1]}), 1, datetime(2026, 1, 1, tzinfo=UTC))
    first, second = pages.keep(answer, "me"), pages.keep(answer, "me")
    now = 599.0
    assert pages.get(first, "me") is answer
    now = 601.0
    pages.forget_old()
    assert list(pages._kept) == [first]
    with pytest.raises(Gone):
        pages.get(second, "me")
    with pytest.raises(Gone):
        pages.get(first, "somebody else")


BOMB = """
import sys
import numpy as np
import pyarrow as pa
zeros = pa.py_buffer(np.zeros(1 << 27, np.int64))
column = pa.Array.from_buffers(pa.int64(), 1 << 27, [None, zeros])
if sys.argv[2] == "dictionary":
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), column)
options = pa.ipc.IpcWriteOptions(compression=sys.argv[1])
with pa.ipc.new_stream(sys.stdout.buffer, pa.schema([("n", column.type)]), options=options) as writer:
    writer.write_table(pa.table({"n": column}))
"""


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("kind", ["plain", "dictionary"])
def test_arrow_that_unpacks_to_a_gigabyte_is_refused_before(http: httpx.Client, codec: str, kind: str) -> None:
    made = subprocess.run([sys.executable, "-c", BOMB, codec, kind], stdout=subprocess.PIPE, check=True)
    assert len(made.stdout) < 8 << 20
    before = pa.default_memory_pool().max_memory()
    reply = http.post("/v1/streams/ticks/rows", content=made.stdout, headers=ARROW)
    assert code_of(reply) == (413, "too_large")
    assert "request_bytes_max" in reply.json()["error"]["hint"]
    assert pa.default_memory_pool().max_memory() - before < 64 << 20


def test_arrow_with_more_rows_than_bytes_is_refused(http: httpx.Client) -> None:
    """Of NULLs, which have no buffers."""
    content = _arrow(pa.table({"n": pa.Array.from_buffers(pa.null(), 1 << 30, [None])}))
    assert len(content) < 1_000
    assert code_of(http.post("/v1/streams/ticks/rows", content=content, headers=ARROW)) == (413, "too_large")


@pytest.mark.parametrize("views", [False, True])
def test_arrow_whose_values_are_too_much_when_they_are_written_out_is_refused(
    http: httpx.Client, *, views: bool
) -> None:
    """A megabyte of text that stands in a hundred thousand rows."""
    http.post("/v1/sql", json={"sql": "CREATE STREAM texts (t STRING)"})
    text, rows = "x" * (1 << 20), 100_000
    if views:
        _, view, values = pa.array([text], pa.string_view()).buffers()
        column = pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(view.to_pybytes() * rows), values])
    else:
        column = pa.DictionaryArray.from_arrays([0] * rows, [text])
    content = _arrow(pa.table({"t": column}))
    assert len(content) < 4 << 20
    assert code_of(http.post("/v1/streams/texts/rows", content=content, headers=ARROW)) == (413, "too_large")


def test_arrow_that_points_outside_of_itself_is_refused(http: httpx.Client) -> None:
    """It would end the process, and again whenever the push is taken in."""
    http.post("/v1/sql", json={"sql": "CREATE STREAM texts (t STRING)"})
    content = _arrow(pa.table({"t": ["first", "", "third text"]}))
    offsets = np.array([0, 5, 5, 15], dtype=np.int32).tobytes()
    assert offsets in content
    broken = content.replace(offsets, np.array([0, 3_000_000, 5, 15], dtype=np.int32).tobytes())
    assert code_of(http.post("/v1/streams/texts/rows", content=broken, headers=ARROW)) == (400, "bad_request")
    assert http.post("/v1/streams/texts/rows?wait=true", content=content, headers=ARROW).status_code == 200


@pytest.mark.parametrize("kind", ["application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"])
def test_rows_come_in_all_forms(http: httpx.Client, kind: str) -> None:
    content: dict[str, str | bytes] = {"application/x-ndjson": LINES, "text/csv": "n,at\n1,2026-01-01 00:00:01\n2,\n"}
    table = pa.table({"n": [1, 2], "at": pa.array([1, 2], pa.timestamp("us", "UTC"))})
    content["application/vnd.apache.arrow.stream"] = _arrow(table, compression="zstd")
    push(http, content[kind], kind)
    found = http.post("/v1/sql", json={"sql": "SELECT count(*) AS c FROM ticks"}).json()["answers"][0]["rows"]
    assert found == [{"c": 1 if kind == "text/csv" else 2}]  # a row without its time is quarantined


def test_bad_rows_are_quarantined_with_their_line(http: httpx.Client) -> None:
    push(http, LINES + '{"n": "x", "at": "2026-01-01T00:00:03Z"}\nnonsense\n')
    reasons = http.post("/v1/sql", json={"sql": "SELECT reason FROM ticks.quarantine"}).json()["answers"][0]["rows"]
    assert [row["reason"].partition(":")[0] for row in reasons] == ["body", "body"]
    assert {row["reason"].split(":")[1] for row in reasons} == {"3", "4"}


def test_a_push_that_is_sent_again_counts_once(http: httpx.Client) -> None:
    first = push(http, key="a")
    assert push(http, key="a") == first
    for key, wait, repeated in (("a", "true", True), ("a", "false", True), ("c", "false", False), ("c", "true", True)):
        headers = {**NDJSON, "Idempotency-Key": key}
        reply = http.post(f"/v1/streams/ticks/rows?wait={wait}", content=LINES, headers=headers)
        assert reply.json()["repeated"] is repeated
    assert http.post("/v1/streams/ticks/rows?wait=true", content="", headers=NDJSON).json()["repeated"] is False
    assert push(http, key="b") > first
    rows = http.post("/v1/sql", json={"sql": "SELECT count(*) AS c FROM ticks"}).json()["answers"][0]["rows"]
    assert rows == [{"c": 6}]


def test_streams_tables_and_scripts(http: httpx.Client) -> None:
    made = {"name": "s", "columns": {"a": "INT", "t": "TIMESTAMP"}, "timestamp_by": "t", "retain_seconds": 60}
    assert http.post("/v1/streams", json=made).status_code == 201
    assert code_of(http.post("/v1/streams", json={**made, "columns": {"a": "INTT"}})) == (400, "sql")
    assert [each["name"] for each in http.get("/v1/streams").json()["streams"]] == ["ticks", "s"]
    assert http.get("/v1/streams/s").json()["columns"][1] == {"name": "t", "type": "TIMESTAMP"}
    timed = {**made, "name": "timed", "lateness_seconds": 2, "idle_after_seconds": 90}
    assert http.post("/v1/streams", json=timed).status_code == 201
    beat = {"at": "2024-01-01T10:00:00Z"}
    before = http.get("/v1/status").json()["status"]["epoch"]
    assert http.post("/v1/streams/timed/heartbeat", json=beat).json() == {"epoch": before + 1}
    assert http.post("/v1/streams/timed/heartbeat", json=beat).json() == {"epoch": None}
    assert code_of(http.post("/v1/streams/timed/heartbeat", json={"at": "noon"})) == (400, "type_mismatch")
    assert code_of(http.post("/v1/streams/nothing/heartbeat", json=beat)) == (404, "unknown_name")
    shown = http.get("/v1/streams/timed").json()
    assert (shown["clock"], shown["idle"], shown["lateness_us"], shown["idle_after_us"]) == (
        "2024-01-01T10:00:00+00:00",
        False,
        2_000_000,
        90_000_000,
    )
    assert http.delete("/v1/streams/timed").status_code == 200
    arrival = {"name": "a", "columns": {"a": "INT"}, "lateness_seconds": 1}
    assert code_of(http.post("/v1/streams", json=arrival)) == (400, "unsupported")
    assert http.delete("/v1/streams/s").status_code == 200
    assert http.post("/v1/tables", json={"name": "t", "columns": {"a": "INT"}}).status_code == 201
    assert http.post("/v1/tables/t/rows", content='{"a": 1}\n', headers=NDJSON).json() == {"rows": 1}
    assert code_of(http.post("/v1/tables/t/rows", content='{"a": "x"}\n', headers=NDJSON)) == (400, "type_mismatch")
    answers = http.post("/v1/sql", json={"sql": "SHOW TABLES; SELECT a FROM t; DROP TABLE t"}).json()["answers"]
    assert [len(each["rows"]) for each in answers] == [1, 1, 0]
    assert answers[2]["message"] == "table t dropped"


def test_errors_have_one_shape_and_a_position(http: httpx.Client) -> None:
    reply = http.post("/v1/sql", json={"sql": "SELECT n,\n  m FROM ticks"})
    assert reply.status_code == 404
    error = reply.json()["error"]
    assert error["position"] == {"line": 2, "column": 3}
    assert "Columns: at, n" in error["message"]
    for bad in (
        http.get("/v1/nothing"),
        http.put("/v1/sql"),
        http.post("/v1/sql", content="{"),
        http.post("/v1/sql", json={"sql": 1}),
        http.post("/v1/streams/ticks/rows", content="x"),
        http.post("/v1/streams/none/rows", content="", headers=NDJSON),
        http.post(
            "/v1/streams/ticks/rows", content="x", headers={"Content-Type": "application/vnd.apache.arrow.stream"}
        ),
    ):
        assert 400 <= bad.status_code < 500
        assert set(bad.json()["error"]) == {"code", "message", "hint", "position"}


def test_limits_are_refused_clearly(serve: Serve) -> None:
    db, url = serve(request_bytes_max=1_000, queries_per_owner_max=1, push_bytes_max=2_000)
    db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    with httpx.Client(base_url=url, trust_env=False) as http:
        large = http.post("/v1/streams/ticks/rows", content=b"x" * 1_001, headers=NDJSON)
        assert code_of(large) == (413, "too_large")
        assert "request_bytes_max" in large.json()["error"]["hint"]

        def chunks() -> object:
            for _ in range(11):
                yield b"x" * 100

        assert code_of(http.post("/v1/streams/ticks/rows", content=chunks(), headers=NDJSON)) == (413, "too_large")  # type: ignore[arg-type]


def test_a_plan_is_a_graph(http: httpx.Client) -> None:
    http.post("/v1/queries", json={"name": "q", "sql": "SELECT max(n) AS m FROM ticks [RANGE 1 MINUTE] WHERE n > 1"})
    picture = http.post("/v1/plan", json={"text": "q"}).json()
    assert [node["kind"] for node in picture["nodes"]] == ["streamscan", "groupby", "answer"]
    assert picture["edges"] == [["n0", "n1"], ["n1", "n2"]]
    scan, groups, answer = picture["nodes"]
    assert (scan["title"], scan["pattern"], scan["shared"]) == ("index", "weakest", "")
    assert "ticks | BEGIN NOW - INTERVAL 1 MINUTE END NOW | `n` > 1" in scan["detail"]
    assert (groups["title"], groups["pattern"], groups["detail"]) == (
        "tree of aggregates",
        "weak, premature",
        "- | MAX(n)",
    )
    assert (answer["title"], answer["pattern"]) == ("q", "")


def test_what_a_plan_reads_twice_is_drawn_once(http: httpx.Client) -> None:
    text = "WITH c AS (SELECT n, count(*) AS k FROM ticks GROUP BY n) SELECT a.n FROM c a JOIN c b ON a.k < b.k"
    picture = http.post("/v1/plan", json={"text": text}).json()
    assert [node["kind"] for node in picture["nodes"]] == ["streamscan", "groupby", "join", "project", "answer"]
    assert picture["edges"].count(["n1", "n2"]) == 2


def test_explain_says_why_a_query_is_broken(served: tuple[Database, str], http: httpx.Client) -> None:
    http.post("/v1/queries", json={"name": "q", "sql": "SELECT n FROM ticks"})
    served[0].catalog.queries["q"].take("This version has no such operator.")
    for analyze in (False, True):
        told = http.post("/v1/explain", json={"text": "q", "analyze": analyze}).json()
        assert "  broken    This version has no such operator." in told["text"].splitlines()
        assert told["tree"] is None
        broken, answer = http.post("/v1/plan", json={"text": "q", "analyze": analyze}).json()["nodes"]
        assert (broken["title"], broken["detail"]) == ("broken", "This version has no such operator.")
        assert answer["title"] == "q"


def test_explain_has_the_tree_beside_the_text(http: httpx.Client) -> None:
    text = "SELECT DISTINCT n FROM ticks [RANGE 1 MINUTE] WHERE n > 1"
    http.post("/v1/queries", json={"name": "q", "sql": text})
    http.post("/v1/queries", json={"name": "other", "sql": "SELECT n FROM ticks [RANGE 1 MINUTE] WHERE n > 1"})
    told = http.post("/v1/explain", json={"text": "q"}).json()
    tree = told["tree"]
    assert (tree["node"], tree["pattern"], tree["premature"], tree["shared"]) == ("Distinct", "weak", False, 0)
    (project,) = tree["children"]
    assert (project["node"], project["columns"], project["shared"]) == ("Project", ["n"], 1)
    assert project["answered"] == "residual on DuckDB"
    (scan,) = project["children"]
    assert (scan["node"], scan["answered"], scan["children"]) == ("StreamScan", "index", [])
    assert "Distinct  [weak; residual on DuckDB]" in told["text"]
    assert "    Project n  [weakest; residual on DuckDB; shared with 1 other standing query]" in told["text"]


def test_the_openapi_document_names_every_route(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert {"/v1/sql", "/v1/queries/{name}/answer", "/v1/streams/{name}/rows", "/healthz"} <= set(document["paths"])
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation.get("summary"), f"{method} {path}"


def test_history_has_samples(served: tuple[Database, str], http: httpx.Client) -> None:
    push(http)
    samples = http.get("/v1/history").json()["samples"]
    assert samples
    assert set(samples[-1]) == {"at", "epoch", "queries", "invocations", "subscribers", "streams", "tickets"}


def test_a_script_that_has_no_room_in_the_form_is_not_run(http: httpx.Client) -> None:
    script = {"sql": "CREATE TABLE t (n INT); SELECT 2"}
    for accept in ("text/csv", "application/vnd.apache.arrow.stream"):
        assert code_of(http.post("/v1/sql", json=script, headers={"Accept": accept})) == (406, "not_acceptable")
        assert http.post("/v1/sql", json={"sql": " "}, headers={"Accept": accept}).status_code == 406
    assert http.get("/v1/tables").json()["tables"] == []


def test_of_several_queries_the_one_that_is_wrong_is_named(http: httpx.Client) -> None:
    queries = {"right": "SELECT n FROM ticks", "wrong": "SELECT m FROM ticks"}
    error = http.post("/v1/queries", json={"queries": queries}).json()["error"]
    assert error["message"].startswith("In query 'wrong': ")
    assert http.get("/v1/queries").json()["queries"] == []
