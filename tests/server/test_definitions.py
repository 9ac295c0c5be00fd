"""Statements that define and change tables, functions and views, over HTTP and through a client; and who may."""

from __future__ import annotations

import httpx
import pytest
from tests.server.conftest import as_user, code_of

import ladle
from ladle.engine import Database
from ladle.errors import TypeMismatch

SCRIPT = """
CREATE TABLE t (n INT, name STRING DEFAULT 'none');
INSERT INTO t (n) VALUES (1), (2);
ALTER TABLE t ADD COLUMN more INT DEFAULT 5;
CREATE FUNCTION next_one(x INT) RETURNS INT RETURN x + 1;
CREATE TABLE u AS SELECT next_one(n) AS n, 'u' AS name, 0 AS more FROM t;
MERGE INTO t USING u ON t.n = u.n WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
CREATE VIEW v AS SELECT * FROM t WHERE n > 1;
TRUNCATE TABLE u;
"""
ROWS = [{"n": 2, "name": "u", "more": 0}, {"n": 3, "name": "u", "more": 0}]
CHANGES = ("TRUNCATE TABLE t", "MERGE INTO t USING u ON t.n = u.n WHEN MATCHED THEN DELETE")
DEFINITIONS = (
    "CREATE TABLE w AS SELECT 1 AS a",
    "ALTER TABLE t ADD COLUMN w INT",
    "CREATE FUNCTION w(x INT) RETURNS INT RETURN x",
)


def test_a_client_has_all_of_them(served: tuple[Database, str], http: httpx.Client) -> None:
    db, url = served
    with ladle.connect(url) as client:
        assert len(client.execute(SCRIPT)) == 8
        assert client.sql("SELECT * FROM v ORDER BY n").to_pylist() == ROWS
        assert client.create_table("w", {"a": "INT", "b": "STRING DEFAULT upper('x')"})
        client.insert("w", [{"a": 1}, {"a": 2, "b": None}])
        assert client.sql("SELECT * FROM w ORDER BY a").to_pylist() == [{"a": 1, "b": "X"}, {"a": 2, "b": None}]
        with pytest.raises(TypeMismatch, match="INTERVAL"):
            client.sql("CREATE TABLE x (a INTERVAL)")
        (shown,) = client.sql("SHOW CREATE FUNCTION next_one").to_pylist()
        assert shown["statement"] == "CREATE FUNCTION `next_one`(`x` INT) RETURNS INT RETURN x + 1"
    reply = http.post("/v1/sql", json={"sql": "SELECT next_one(n) AS a FROM v ORDER BY n"})
    assert reply.status_code == 200
    assert "4" in reply.text
    made = http.post("/v1/tables", json={"name": "y", "columns": {"a": "INT DEFAULT 3", "b": "INT"}})
    assert made.status_code == 201
    db.sql("INSERT INTO y (b) VALUES (1)")
    assert db.sql("SELECT a FROM y").to_pylist() == [{"a": 3}]


def test_roles_hold_for_all_of_them(served: tuple[Database, str]) -> None:
    db, url = served
    db.execute(SCRIPT)
    reader, writer = (
        db.sql(f"CREATE TOKEN {role}_one ROLE {role}").to_pylist()[0]["token"] for role in ("reader", "writer")
    )
    before = db.catalog.seq
    with as_user(url, reader) as http:
        for text in (*CHANGES, *DEFINITIONS):
            assert code_of(http.post("/v1/sql", json={"sql": text}))[0] == 403, text
    with as_user(url, writer) as http:
        for text in DEFINITIONS:
            assert code_of(http.post("/v1/sql", json={"sql": text}))[0] == 403, text
        assert db.catalog.seq == before
        for text in CHANGES:
            assert http.post("/v1/sql", json={"sql": text}).status_code == 200, text
