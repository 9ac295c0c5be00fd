"""Pushes over HTTP: what becomes of bodies that are sent again, that are empty, or that don't fit."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.server.conftest import TICKS, Serve, code_of
from tests.waiting import wait_until

from ladle.archive.inbox import stored_key
from ladle.engine import Database
from ladle.ingest import epochs as ingest

ONE, TWO = ({"n": n, "at": f"2026-01-01T00:00:0{n}Z"} for n in (1, 2))
LINES = "".join(json.dumps(row) + "\n" for row in (ONE, TWO))


def push(
    http: httpx.Client,
    content: str | bytes,
    kind: str = "application/x-ndjson",
    *,
    key: str | None = None,
    wait: bool = True,
    to: str = "streams/ticks",
) -> httpx.Response:
    headers = {"Content-Type": kind, **({} if key is None else {"Idempotency-Key": key})}
    return http.post(f"/v1/{to}/rows", params={"wait": wait}, content=content, headers=headers)


def taken(reply: httpx.Response) -> tuple[int, int | None]:
    """How many rows were taken, and how many of them did not fit."""
    assert reply.status_code == 200, reply.text
    return reply.json()["rows"], reply.json()["quarantined"]


def rows(http: httpx.Client, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.post("/v1/sql", json={"sql": sql}).json()["answers"][0]["rows"]
    return found


def numbers(http: httpx.Client) -> list[int]:
    return [row["n"] for row in rows(http, "SELECT n FROM ticks ORDER BY n")]


def reasons(http: httpx.Client) -> list[str]:
    return [row["reason"] for row in rows(http, "SELECT reason FROM ticks.quarantine ORDER BY reason")]


ARROW = "application/vnd.apache.arrow.stream"


def arrow(table: pa.Table, rows: int | None = None, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, rows)
    return sink.getvalue()


# --- keys ---


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pushes wait until somebody waits for one."""
    with monkeypatch.context() as patch:
        patch.setattr(ingest.Ingest, "drain_later", lambda *_: None)
        yield


@pytest.mark.usefixtures("asleep")
@pytest.mark.parametrize("wait", [False, True])
def test_a_key_comes_with_one_body(http: httpx.Client, wait: bool) -> None:
    """Whether the first push still waits, or was taken in."""
    assert push(http, LINES, key="a", wait=wait).json()["repeated"] is False
    reused = push(http, json.dumps({**ONE, "n": 3}), key="a")
    assert code_of(reused) == (409, "key_reused")
    assert "key of its own" in reused.json()["error"]["hint"]
    again = push(http, LINES, key="a").json()
    assert again == {"rows": 0, "quarantined": None, "epoch": 1, "repeated": True}
    assert numbers(http) == [1, 2]


@pytest.mark.usefixtures("asleep")
@pytest.mark.parametrize("wait", [False, True])
def test_the_body_of_a_key_is_known_after_a_restart(serve: Serve, wait: bool) -> None:
    db, url = serve(checkpoint_entries=1)
    db.sql(TICKS)
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        assert push(http, LINES, key="a", wait=wait).status_code == 200
    db.close()
    with httpx.Client(base_url=serve()[1], trust_env=False, timeout=30) as http:
        assert code_of(push(http, LINES + "\n", key="a")) == (409, "key_reused")
        assert push(http, LINES, key="a").json()["repeated"] is True
        assert numbers(http) == [1, 2]


def test_a_key_that_was_kept_without_a_body_comes_with_any(served: tuple[Database, str], http: httpx.Client) -> None:
    """As older logs have them, and Python's pushes."""
    db, _ = served
    db.push("ticks", [ONE], key="a", wait=True)
    assert push(http, LINES, key="a").json() == {"rows": 0, "quarantined": None, "epoch": 1, "repeated": True}
    push(http, json.dumps(TWO), key="b")
    assert db.push("ticks", [ONE], key="b", wait=True) == 2
    assert numbers(http) == [1, 2]
    assert stored_key("a") == stored_key("a", b"body").partition("-")[0]


def test_arrow_may_be_written_differently_when_it_is_sent_again(http: httpx.Client) -> None:
    table = pa.table({"n": [1, 2], "at": ["2026-01-01", "2026-01-02"]})
    assert taken(push(http, arrow(table), ARROW, key="a")) == (2, 0)
    cut = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert push(http, arrow(cut), ARROW, key="a").json() == {
        "rows": 0,
        "quarantined": None,
        "epoch": 1,
        "repeated": True,
    }


@pytest.mark.parametrize(
    ("options", "after"),
    [
        ({}, b""),
        ({"rows": 7}, b""),
        ({"compression": "lz4"}, b""),
        ({"compression": "zstd", "rows": 30}, b""),
        ({"rows": 11}, b"something after the end"),
        ({"rows": 11}, None),
    ],
)
@pytest.mark.parametrize("stream", ["ticks", "arrivals"])
def test_arrow_is_kept_as_it_came(serve: Serve, stream: str, options: dict[str, Any], after: bytes | None) -> None:
    """Whoever wrote it, with and without an end; and taken in by another process than the one that got it."""
    db, url = serve()
    db.sql(TICKS)
    db.sql("CREATE STREAM arrivals (n INT, word STRING)")
    words = pa.array(["one", "two"] * 50).dictionary_encode()
    column = {"at": pa.array([datetime(2026, 1, 1)] * 100)} if stream == "ticks" else {"word": words}
    body = arrow(pa.table({"n": pa.array(range(100), pa.int64()), **column}), **options)
    body = body[:-8] if after is None else body + after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest.Ingest, "drain_later", lambda *_: None)
        with httpx.Client(base_url=url, trust_env=False) as http:
            reply = http.post(f"/v1/streams/{stream}/rows", content=body, headers={"Content-Type": ARROW})
    assert (reply.status_code, reply.json()["rows"]) == (200, 100)
    db.close()
    again, _ = serve()
    wait_until(lambda: len(again.sql(f"SELECT n FROM {stream}")) == 100)
    found = again.sql(f"SELECT * FROM {stream} ORDER BY n").to_pylist()
    assert [row["n"] for row in found] == list(range(100))
    if stream == "arrivals":
        assert [row["word"] for row in found] == words.to_pylist()


# --- how many did not fit ---


def test_the_reply_says_how_many_did_not_fit(http: httpx.Client) -> None:
    assert taken(push(http, LINES)) == (2, 0)
    assert taken(push(http, LINES + 'nonsense\n{"n": 3}\n')) == (4, 2)
    assert taken(push(http, LINES, wait=False)) == (2, None)
    assert taken(push(http, "")) == (0, 0)


@pytest.mark.usefixtures("asleep")
def test_each_push_of_an_epoch_has_its_own_count(served: tuple[Database, str], http: httpx.Client) -> None:
    push(http, LINES + "nonsense\n" * 3, wait=False)
    assert taken(push(http, "nonsense\n" + LINES)) == (3, 1)
    replies: list[tuple[int, int | None]] = []

    def send(count: int) -> None:
        with httpx.Client(base_url=served[1], trust_env=False, timeout=30) as client:
            replies.append(taken(push(client, LINES + "nonsense\n" * count)))

    threads = [threading.Thread(target=send, args=(count,)) for count in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(replies) == [(count + 2, count) for count in range(8)]


# --- JSON ---


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_objects_is_rows(http: httpx.Client, indent: int | None) -> None:
    text = f" {json.dumps([ONE, {'n': 'x', 'at': ONE['at']}, 5, TWO], indent=indent)}\r\n"
    assert taken(push(http, text, "application/json; charset=utf-8")) == (4, 2)
    assert numbers(http) == [1, 2]
    assert [reason.partition(": ")[0] for reason in reasons(http)] == ["body:2", "body:3"]
    assert taken(push(http, "[ ]", "application/json")) == (0, 0)


@pytest.mark.parametrize("text", [json.dumps(ONE), json.dumps(ONE, indent=2), json.dumps(ONE) + "\n\n"])
def test_an_object_is_a_row(http: httpx.Client, text: str) -> None:
    assert taken(push(http, text, "application/json")) == (1, 0)
    assert numbers(http) == [1]


def test_lines_may_come_as_json_too(http: httpx.Client) -> None:
    assert taken(push(http, LINES + "nonsense\n", "application/json")) == (3, 1)
    assert numbers(http) == [1, 2]


@pytest.mark.parametrize(
    "text", ["5", '"x"', "null", "nonsense", "[", "[1", '[{"n": 1},]', "[{}] []", "[{} {}]", "[" * 9_999]
)
def test_json_that_is_no_rows_is_refused(http: httpx.Client, text: str) -> None:
    assert code_of(push(http, text, "application/json")) == (400, "bad_request")
    assert reasons(http) == []


def test_an_array_for_a_table(http: httpx.Client) -> None:
    http.post("/v1/tables", json={"name": "t", "columns": {"a": "INT"}})
    assert push(http, '[{"a": 1}, {"a": 2}]', "application/json", to="tables/t").json() == {"rows": 2}
    refused = push(http, '[{"a": 1}, {"b": 2}]', "application/json", to="tables/t")
    assert code_of(refused) == (400, "type_mismatch")
    assert "Line 2: unknown column 'b'" in refused.json()["error"]["message"]


def test_a_line_with_an_unknown_field_goes_to_the_quarantine(http: httpx.Client) -> None:
    assert taken(push(http, LINES + json.dumps({**ONE, "m": 1}))) == (3, 1)
    assert numbers(http) == [1, 2]
    assert reasons(http) == ["body:3: unknown column 'm'; columns: n, at"]
    assert taken(push(http, json.dumps({"N": 3, "AT": ONE["at"]}))) == (1, 0)
    assert numbers(http) == [1, 2, 3]


def test_half_of_a_character_is_refused(http: httpx.Client) -> None:
    refused = push(http, '{"n": "\\ud800", "at": "2026-01-01"}\n')
    assert code_of(refused) == (400, "bad_request")


# --- CSV ---


@pytest.mark.parametrize("text", ["n,at1,2026-01-01", "n,at,m", "n,at,m\n1,2026-01-01,2\n", "m\n"])
def test_a_header_with_unknown_columns_is_refused(http: httpx.Client, text: str) -> None:
    http.post("/v1/tables", json={"name": "t", "columns": {"n": "INT", "at": "STRING"}})
    for to in ("streams/ticks", "tables/t"):
        refused = push(http, text, "text/csv", to=to)
        assert code_of(refused) == (400, "type_mismatch")
        assert "Columns: n, at" in refused.json()["error"]["message"]
        assert "--data-binary" in refused.json()["error"]["hint"]


def test_a_header_without_the_time_is_refused(http: httpx.Client) -> None:
    assert code_of(push(http, "n\n", "text/csv")) == (400, "type_mismatch")


@pytest.mark.parametrize("text", ["n,N,at\n", "at,n,n\n2026-01-01,1,2\n"])
def test_a_header_that_names_a_column_twice_is_refused(http: httpx.Client, text: str) -> None:
    refused = push(http, text, "text/csv")
    assert code_of(refused) == (400, "type_mismatch")
    assert "twice" in refused.json()["error"]["message"]


def test_a_header_alone_is_no_rows(http: httpx.Client) -> None:
    for text in ("N,at", "at\n", ""):
        assert taken(push(http, text, "text/csv")) == (0, 0)
