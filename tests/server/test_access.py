"""Who may do what: tokens, roles, owners and grants, over HTTP and in SQL."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import TICKS, Serve, as_user, code_of

import ladle
from ladle.access import LOCAL_USER, Role, User
from ladle.engine import Database
from ladle.engine.commands import carry_out
from ladle.errors import AlreadyExists, Denied, LadleError, UnknownName
from ladle.sql.statement_types import DropQuery, Grant
from ladle.testing import connect_inline

ROWS = '{"n": 1, "at": "2026-01-01T00:00:01Z"}\n'
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def people(served: tuple[Database, str]) -> dict[str, httpx.Client]:
    db, url = served
    roles = {"alice": "writer", "bob": "writer", "carol": "reader", "root": "admin"}
    return {name: as_user(url, db.create_token(name, role)) for name, role in roles.items()}


def test_a_query_is_its_owners_until_it_is_shared(people: dict[str, httpx.Client]) -> None:
    alice, bob, carol, root = (people[name] for name in ("alice", "bob", "carol", "root"))
    assert alice.post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks"}).status_code == 201
    unseen = bob.get("/v1/queries/mine/answer")
    assert code_of(unseen) == (404, "unknown_name")
    other = bob.get("/v1/queries/yours/answer").json()["error"]["message"]
    assert unseen.json()["error"]["message"] == other.replace("yours", "mine"), "as if it did not exist"
    for text in ("SELECT * FROM mine", "EXPLAIN QUERY mine", "DESCRIBE mine", "DROP QUERY mine"):
        assert code_of(bob.post("/v1/sql", json={"sql": text})) == (404, "unknown_name"), text
    assert "mine" not in bob.post("/v1/sql", json={"sql": "SHOW QUERIES"}).text
    assert "mine" not in bob.get("/v1/queries").text
    assert "mine" not in bob.get("/v1/status").text
    assert code_of(bob.get("/v1/queries/mine/changes")) == (404, "unknown_name")
    assert root.get("/v1/queries/mine/answer").status_code == 200
    assert alice.post("/v1/sql", json={"sql": "GRANT SELECT ON QUERY mine TO bob"}).status_code == 200
    assert bob.get("/v1/queries/mine/answer").status_code == 200
    assert code_of(bob.delete("/v1/queries/mine")) == (403, "denied")
    assert code_of(bob.post("/v1/queries/mine/grants", json={"to": "carol"})) == (403, "denied")
    assert code_of(carol.get("/v1/queries/mine/answer")) == (404, "unknown_name")
    assert alice.post("/v1/queries/mine/grants", json={"to": "public"}).status_code == 200
    assert carol.get("/v1/queries/mine/answer").status_code == 200
    assert alice.delete("/v1/queries/mine/grants/public").status_code == 200
    assert code_of(carol.get("/v1/queries/mine/answer")) == (404, "unknown_name")


def test_work_that_is_shared_is_told_as_far_as_it_is_seen(people: dict[str, httpx.Client]) -> None:
    alice, bob, root = (people[name] for name in ("alice", "bob", "root"))
    pair = "SELECT l.n FROM ticks [RANGE 1 MINUTE] AS l JOIN ticks [RANGE 1 MINUTE] AS r ON l.n = r.n"
    for user, name in (alice, "hers"), (bob, "his"):
        for number, sql in enumerate(("SELECT n FROM ticks WHERE n > 7", pair)):
            assert user.post("/v1/queries", json={"name": f"{name}{number}", "sql": sql}).status_code == 201

    def told(user: httpx.Client, text: str) -> bool:
        said = user.post("/v1/explain", json={"text": text}).json()
        counted = [part for part in json.dumps(said["tree"]).split('"shared": ')[1:] if not part.startswith("0")]
        assert bool(counted) == ("; shared with" in said["text"])
        return "shared " in said["text"]

    texts = ("his0", "his1", "SELECT n FROM ticks WHERE n > 7", pair)
    assert [told(root, text) for text in texts] == [True, True, True, True]
    assert [told(bob, text) for text in texts] == [False, False, True, True], "one-off queries share with his own"
    for number in range(2):
        assert alice.post(f"/v1/queries/hers{number}/grants", json={"to": "bob"}).status_code == 200
    assert [told(bob, text) for text in texts] == [True, True, True, True]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM {}",
        "SELECT * FROM open JOIN {} USING (n)",
        "CREATE QUERY his AS SELECT * FROM {}",
        "EXPLAIN QUERY {}",
        "EXPLAIN SELECT * FROM {}",
        "DESCRIBE {}",
        "DROP QUERY {}",
        "DROP QUERY {} CASCADE",
        "DROP QUERY IF EXISTS {}",
        "GRANT SELECT ON QUERY {} TO bob",
        "GRANT SELECT ON QUERY {} TO nobody",
        "REVOKE SELECT ON QUERY {} FROM bob",
        "SUBSCRIBE {}",
        "INSERT INTO {} VALUES (1)",
    ],
)
def test_a_hidden_name_answers_as_an_unknown_one(people: dict[str, httpx.Client], text: str) -> None:
    alice, bob = people["alice"], people["bob"]
    for name in ("mine", "open"):
        alice.post("/v1/queries", json={"name": name, "sql": "SELECT n FROM ticks"})
    alice.post("/v1/queries/open/grants", json={"to": "bob"})
    hidden, unknown = (bob.post("/v1/sql", json={"sql": text.format(name)}) for name in ("mine", "yurt"))
    told = [reply.json().get("error") or reply.json()["answers"][0]["message"] for reply in (hidden, unknown)]
    assert hidden.status_code == unknown.status_code
    assert json.dumps(told[0]) == json.dumps(told[1]).replace("yurt", "mine")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/queries/{}", None),
        ("GET", "/v1/queries/{}/answer", None),
        ("GET", "/v1/queries/{}/answer?limit=1", None),
        ("GET", "/v1/queries/{}/changes", None),
        ("DELETE", "/v1/queries/{}", None),
        ("DELETE", "/v1/queries/{}?if_exists=true", None),
        ("POST", "/v1/queries/{}/grants", {"to": "bob"}),
        ("DELETE", "/v1/queries/{}/grants/bob", None),
        ("POST", "/v1/explain", {"text": "{}"}),
        ("POST", "/v1/plan", {"text": "{}"}),
    ],
)
def test_a_hidden_name_answers_as_an_unknown_one_over_http(
    people: dict[str, httpx.Client], method: str, path: str, body: dict[str, str] | None
) -> None:
    people["alice"].post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks"})
    hidden, unknown = (
        people["bob"].request(
            method, path.format(name), json=body and {key: value.format(name) for key, value in body.items()}
        )
        for name in ("mine", "yurt")
    )
    assert (hidden.status_code, hidden.text) == (unknown.status_code, unknown.text.replace("yurt", "mine"))


@pytest.mark.parametrize("how", [{}, {"if_not_exists": True}, {"replace": True}], ids=["new", "kept", "replaced"])
def test_of_a_name_that_a_hidden_query_has_only_that_it_is_not_free_is_said(
    people: dict[str, httpx.Client], how: dict[str, bool]
) -> None:
    alice, bob = people["alice"], people["bob"]
    alice.post("/v1/queries", json={"name": "Mine", "sql": "SELECT n FROM ticks WHERE n < 5"})
    refused = bob.post("/v1/queries", json={"name": "mINE", "sql": "SELECT n FROM ticks", **how})
    assert code_of(refused) == (409, "already_exists")
    assert refused.json()["error"]["message"] == "The name 'mINE' is not free."
    assert refused.json()["error"]["hint"] == "choose another name"
    assert alice.get("/v1/queries/mine").json()["sql"] == "SELECT n FROM ticks WHERE n < 5"


def test_hidden_queries_that_read_a_query_are_counted_and_not_named(people: dict[str, httpx.Client]) -> None:
    alice, bob = people["alice"], people["bob"]
    alice.post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks"})
    alice.post("/v1/queries/mine/grants", json={"to": "bob"})
    bob.post("/v1/queries", json={"name": "bobs", "sql": "SELECT n FROM mine"})
    other = {"name": "mine", "sql": "SELECT at FROM ticks", "replace": True}
    for refused in (alice.delete("/v1/queries/mine"), alice.post("/v1/queries", json=other)):
        assert code_of(refused) == (409, "in_use")
        assert "1 of other users" in refused.text
        assert "bobs" not in refused.text


def test_with_whom_a_query_is_shared_is_for_its_owner_and_admins_to_know(people: dict[str, httpx.Client]) -> None:
    people["alice"].post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks"})
    for name in ("bob", "carol"):
        people["alice"].post("/v1/queries/mine/grants", json={"to": name})
    for name, told in {"alice": ["bob", "carol"], "root": ["bob", "carol"], "bob": None, "carol": None}.items():
        listed = people[name].get("/v1/queries").json()["queries"][0]
        assert people[name].get("/v1/queries/mine").json()["shared_with"] == listed["shared_with"] == told
        shown = people[name].post("/v1/sql", json={"sql": "SHOW GRANTS"}).json()["answers"][0]["rows"]
        assert shown == [{"query": "mine", "owner": "alice", "shared_with": told and ", ".join(told)}]


def test_roles(people: dict[str, httpx.Client]) -> None:
    carol, alice, root = (people[name] for name in ("carol", "alice", "root"))
    assert carol.post("/v1/sql", json={"sql": "SELECT * FROM ticks"}).status_code == 200
    assert code_of(carol.post("/v1/streams/ticks/rows", content=ROWS, headers=NDJSON)) == (403, "denied")
    beat = {"at": "2026-01-01T00:00:00Z"}
    assert code_of(carol.post("/v1/streams/ticks/heartbeat", json=beat)) == (403, "denied")
    assert alice.post("/v1/streams/ticks/heartbeat", json=beat).status_code == 200
    assert code_of(carol.post("/v1/queries", json={"name": "q", "sql": "SELECT 1 AS x"})) == (403, "denied")
    for text in ("CREATE QUERY q AS SELECT 1 AS x", "INSERT INTO ticks VALUES (1, TIMESTAMP '2026-01-01 00:00:00')"):
        assert code_of(carol.post("/v1/sql", json={"sql": text})) == (403, "denied"), text
    assert alice.post("/v1/streams/ticks/rows", content=ROWS, headers=NDJSON).status_code == 200
    forbidden = (
        "CREATE STREAM s (n INT)",
        "DROP STREAM ticks",
        "ALTER STREAM ticks ADD COLUMN x INT",
        "ALTER STREAM ticks SET RETAIN FOREVER",
        "ALTER STREAM ticks SET LATENESS UNBOUNDED",
        "ALTER STREAM ticks SET IDLE NEVER",
        "CREATE TABLE t (n INT)",
        "CREATE FUNCTION f(n INT) RETURNS INT LANGUAGE PYTHON AS $$ n $$",
        "CREATE TOKEN eve ROLE admin",
        "CREATE OR REPLACE TOKEN root ROLE reader",
        "DROP TOKEN root",
        "SHOW TOKENS",
    )
    for text in forbidden:
        assert code_of(alice.post("/v1/sql", json={"sql": text})) == (403, "denied"), text
    for text in forbidden[2:6]:
        assert root.post("/v1/sql", json={"sql": text}).status_code == 200, text
    assert alice.get("/v1/me").json() == {"name": "alice", "role": "writer"}


def test_tokens_are_kept_as_digests_and_end(served: tuple[Database, str]) -> None:
    db, url = served
    secret = db.create_token("alice", "reader")
    log = b"".join(file.read_bytes() for file in Path(db.path).rglob("*") if file.is_file())
    assert secret.encode() not in log
    with as_user(url, secret) as alice:
        assert alice.get("/v1/streams").status_code == 200
        with pytest.raises(AlreadyExists):
            db.create_token("Alice", "reader")
        again = db.create_token("alice", "writer", replace=True)
        assert code_of(alice.get("/v1/streams")) == (401, "unauthenticated")
    with as_user(url, again) as alice:
        assert alice.get("/v1/me").json()["role"] == "writer"
        db.drop_token("alice")
        assert code_of(alice.get("/v1/streams")) == (401, "unauthenticated")
    with pytest.raises(UnknownName):
        db.drop_token("alice")
    db.drop_token("alice", if_exists=True)


def test_nobody_without_a_token_from_elsewhere(serve: Serve) -> None:
    db, url = serve(anonymous="nobody")
    with httpx.Client(base_url=url, trust_env=False) as http:
        reply = http.get("/v1/streams")
        assert code_of(reply) == (401, "unauthenticated")
        assert reply.headers["www-authenticate"] == "Bearer"
        assert http.get("/healthz").status_code == 200
    with pytest.raises(Denied, match="A token is needed"):
        ladle.connect(url).sql("SHOW STREAMS")
    assert ladle.connect(url, token=db.create_token("me", "admin")).sql("SHOW STREAMS").columns[0] == "name"


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}],
    ids=["another name", "another site", "a page without one"],
)
def test_a_web_site_in_a_browser_here_is_a_stranger(http: httpx.Client, headers: dict[str, str]) -> None:
    assert code_of(http.get("/v1/streams", headers=headers)) == (401, "unauthenticated")


def test_the_audit_log_has_registrations_and_denials(
    people: dict[str, httpx.Client], served: tuple[Database, str]
) -> None:
    people["alice"].post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks"})
    people["carol"].post("/v1/queries", json={"name": "hers", "sql": "SELECT n FROM ticks"})
    people["alice"].post("/v1/queries/mine/grants", json={"to": "bob"})
    people["bob"].post("/v1/queries", json={"name": "mine", "sql": "SELECT 1 AS x", "replace": True})
    lines = [json.loads(line) for line in (served[0].path / "audit.log").read_text().splitlines()]
    told = [(line["user"], line["action"], line["target"], line["outcome"]) for line in lines]
    assert told == [
        ("alice", "register", "mine", "done"),
        ("carol", "register queries", "", "denied"),
        ("alice", "grant", "mine to bob", "done"),
        ("bob", "register", "mine", "denied"),
    ]


def test_limits_per_owner(serve: Serve) -> None:
    db, url = serve(queries_per_owner_max=2)
    db.sql(TICKS)
    with as_user(url, db.create_token("alice", "writer")) as alice:
        queries = {"a": "SELECT n FROM ticks", "b": "SELECT n FROM ticks"}
        assert alice.post("/v1/queries", json={"queries": queries}).status_code == 201
        refused = alice.post("/v1/queries", json={"name": "c", "sql": "SELECT n FROM ticks"})
        assert code_of(refused) == (429, "limit")
        assert (
            alice.post("/v1/queries", json={"name": "a", "sql": "SELECT n FROM ticks", "replace": True}).status_code
            == 201
        )
        assert alice.delete("/v1/queries/b").status_code == 200
        assert alice.post("/v1/queries", json={"name": "c", "sql": "SELECT n FROM ticks"}).status_code == 201


def test_owners_and_grants_survive(tmp_path: Path) -> None:
    path = tmp_path / "warehouse"
    alice = User("alice", Role.WRITER)
    for checkpoint in (1, 1_000):
        with connect_inline(path, settings={"checkpoint_entries": checkpoint}) as db:
            if not db.streams():
                db.sql(TICKS)
                db.create_token("alice", "writer")
                db.session(alice).register_many({"mine": "SELECT n FROM ticks"})
                db.grant("mine", "public")
            assert db.catalog.access.owner("MINE") == "alice"
            assert db.catalog.access.owned["alice"] == 1
            assert db.session(User("bob", Role.READER)).query("mine").name == "mine"
            with pytest.raises(Denied):
                db.session(User("bob", Role.WRITER)).run(DropQuery("mine"))
    with connect_inline(path) as db:
        db.session(alice).run(DropQuery("mine"))
        db.register("SELECT n FROM ticks", name="mine")
        assert db.catalog.access.owner("mine") is None
        assert not db.catalog.access.grants


def test_nonsense_is_refused(served: tuple[Database, str]) -> None:
    db, _ = served
    with pytest.raises(LadleError, match="There is no role 'king'"):
        db.create_token("x", "king")
    with pytest.raises(LadleError, match="stands for everybody"):
        db.create_token("Public", "reader")
    db.register("SELECT n FROM ticks", name="q")
    with pytest.raises(UnknownName, match="Token 'eve' not found"):
        db.grant("q", "eve")
    with pytest.raises(LadleError, match="a role: reader, writer or admin"):
        db.sql("CREATE TOKEN x ROLE king")


def test_what_was_made_of_a_query_ends_with_its_grant(people: dict[str, httpx.Client]) -> None:
    alice, bob, carol = (people[name] for name in ("alice", "bob", "carol"))
    alice.post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks"})
    alice.post("/v1/queries/mine/grants", json={"to": "bob"})
    assert bob.post("/v1/queries", json={"name": "copy", "sql": "SELECT * FROM mine"}).status_code == 201
    bob.post("/v1/queries/copy/grants", json={"to": "public"})
    assert carol.get("/v1/queries/copy/answer").status_code == 200
    in_use = alice.delete("/v1/queries/mine")
    assert code_of(in_use) == (409, "in_use")
    alice.delete("/v1/queries/mine/grants/bob")
    for user in (bob, carol):
        assert code_of(user.get("/v1/queries/copy/answer")) == (403, "denied")
        assert user.post("/v1/sql", json={"sql": "SELECT * FROM copy"}).status_code == 404
    assert alice.delete("/v1/queries/mine?cascade=true").status_code == 200
    assert code_of(bob.get("/v1/queries/copy/answer")) == (404, "unknown_name")


def test_a_shared_query_may_be_read_though_what_it_reads_is_hidden(people: dict[str, httpx.Client]) -> None:
    alice, bob = people["alice"], people["bob"]
    alice.post("/v1/streams/ticks/rows?wait=true", content=ROWS, headers=NDJSON)
    alice.post("/v1/queries", json={"name": "secret", "sql": "SELECT n FROM ticks WHERE n < 5"})
    alice.post("/v1/queries", json={"name": "open", "sql": "SELECT n FROM secret WHERE n > 0"})
    alice.post("/v1/queries/open/grants", json={"to": "bob"})
    rows = bob.post("/v1/sql", json={"sql": "SELECT max(n) AS m FROM open"}).json()["answers"][0]["rows"]
    assert rows == [{"m": 1}]
    assert code_of(bob.post("/v1/sql", json={"sql": "SELECT * FROM secret"})) == (404, "unknown_name")


def test_what_a_hidden_query_is_made_of_is_not_explained(people: dict[str, httpx.Client]) -> None:
    """Nor through a shared query that reads one that reads it, nor in what is asked once."""
    alice, bob = people["alice"], people["bob"]
    alice.post("/v1/streams/ticks/rows?wait=true", content=ROWS, headers=NDJSON)
    alice.post("/v1/queries", json={"name": "secret", "sql": "SELECT n, n % 7 AS m FROM ticks WHERE n % 5 = 1"})
    alice.post("/v1/queries", json={"name": "middle", "sql": "SELECT n FROM secret"})
    alice.post("/v1/queries", json={"name": "open", "sql": "SELECT n FROM middle WHERE n > 0"})
    alice.post("/v1/queries/open/grants", json={"to": "bob"})

    def told(user: httpx.Client) -> Iterator[str]:
        for text in ("open", "SELECT n + 1 AS m FROM open"):
            for analyze in (False, True):
                yield user.post("/v1/explain", json={"text": text, "analyze": analyze}).text
            yield user.post("/v1/plan", json={"text": text}).text
        for text in ("EXPLAIN QUERY open", "EXPLAIN ANALYZE QUERY open", "EXPLAIN SELECT n FROM open"):
            yield user.post("/v1/sql", json={"sql": text}).text

    assert all("% 5" in text for text in told(alice))
    assert all("it reads queries that you may not see" in text for text in told(bob))
    assert not any(part in text for text in told(bob) for part in ("% 5", "% 7", "ticks"))
    alice.post("/v1/queries/middle/grants", json={"to": "bob"})
    assert not any("% 5" in text for text in told(bob))
    alice.post("/v1/queries/secret/grants", json={"to": "bob"})
    assert all("% 5" in text for text in told(bob))


def test_what_the_eddy_knows_tells_nobody_what_others_ask(people: dict[str, httpx.Client]) -> None:
    alice, bob = people["alice"], people["bob"]
    alice.post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks WHERE n % 7 = 3 AND n > 0"})
    for _ in range(2):
        alice.post("/v1/streams/ticks/rows?wait=true", content=ROWS, headers=NDJSON)
    for path in ("/metrics", "/v1/history", "/v1/pulse"):
        assert "% 7" not in bob.get(path).text
    assert "predicate " in bob.get("/v1/pulse").text
    bob.post("/v1/queries", json={"name": "his", "sql": "SELECT n FROM ticks"})
    assert "% 7" not in bob.post("/v1/explain", json={"text": "his", "analyze": True}).json()["text"]
    assert "% 7" in alice.post("/v1/explain", json={"text": "mine", "analyze": True}).json()["text"]


def test_keys_of_pushes_are_a_users_own(people: dict[str, httpx.Client]) -> None:
    for number, name in enumerate(("alice", "bob", "alice")):
        reply = people[name].post(
            "/v1/streams/ticks/rows?wait=true", content=ROWS, headers={**NDJSON, "Idempotency-Key": "batch-1"}
        )
        assert reply.json()["epoch"] == (1, 2, 1)[number]
    empty = people["bob"].post("/v1/streams/ticks/rows", content=ROWS, headers={**NDJSON, "Idempotency-Key": ""})
    assert code_of(empty) == (400, "bad_request")


def test_a_new_user_of_an_old_name_has_no_grants(served: tuple[Database, str], people: dict[str, httpx.Client]) -> None:
    db, url = served
    people["alice"].post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks"})
    people["alice"].post("/v1/queries/mine/grants", json={"to": "bob"})
    db.drop_token("bob")
    with as_user(url, db.create_token("bob", "writer")) as bob:
        assert code_of(bob.get("/v1/queries/mine/answer")) == (404, "unknown_name")


def test_a_body_is_not_waited_for_from_strangers(serve: Serve) -> None:
    _, url = serve(anonymous="nobody", requests_max=1)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        stranger.sendall(b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        assert stranger.recv(100).startswith(b"HTTP/1.1 401")
    assert httpx.get(f"{url}/v1/me", trust_env=False).status_code == 401


@pytest.mark.parametrize("header", ["ladle_x", "Token abc", "Bearer", "Basic d2ltOnB3", ""])
def test_a_header_that_is_no_token_makes_nobody_local(served: tuple[Database, str], header: str) -> None:
    """Whoever sends one means to be somebody, also on this machine."""
    reply = httpx.get(f"{served[1]}/v1/me", headers={"Authorization": header}, trust_env=False)
    assert code_of(reply) == (401, "unauthenticated")
    assert "Bearer TOKEN" in reply.json()["error"]["hint"]


def test_a_writer_is_not_told_that_there_are_no_tokens(people: dict[str, httpx.Client]) -> None:
    people["alice"].post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks"})
    reply = people["alice"].post("/v1/sql", json={"sql": "GRANT SELECT ON QUERY mine TO bobb"})
    assert reply.status_code in (400, 404), reply.text
    assert "none" not in reply.text


GETS = (
    "/v1/status",
    "/v1/pulse",
    "/v1/history",
    "/v1/me",
    "/v1/streams",
    "/v1/streams/ticks",
    "/v1/tables",
    "/v1/functions",
    "/v1/queries?status=true",
    "/v1/queries/q?status=true",
    "/v1/queries/q/answer",
    "/v1/queries/q/answer?now=2026-01-01T00:00:02",
    "/v1/queries/q/changes?since=1",
    "/v1/queries/nothing/answer",
    "/readyz",
    "/metrics",
    "/openapi.json",
)
STATEMENTS = (
    "SHOW STREAMS",
    "SHOW TABLES",
    "SHOW QUERIES",
    "SHOW SOURCES",
    "SHOW FUNCTIONS",
    "SHOW GRANTS",
    "SHOW DERIVED",
    "DESCRIBE ticks",
    "DESCRIBE q",
    "EXPLAIN QUERY q",
    "EXPLAIN ANALYZE QUERY q",
    "EXPLAIN SELECT n FROM ticks",
    "SELECT n FROM ticks",
    "SELECT * FROM ticks.quarantine",
    "SELECT k FROM t",
    "BACKUP TO '/somewhere'",
)


def test_nobody_but_admins_is_told_where_the_warehouse_is(serve: Serve, tmp_path: Path) -> None:
    """Neither in good times nor when files are missing, can't be written, and housekeeping fails."""
    db, url = serve(maintenance_seconds=3_600.0, retry_seconds_max=0.1)
    db.execute(f"{TICKS}; CREATE TABLE t (k INT); INSERT INTO t VALUES (1)")
    db.push("ticks", [{"n": 1, "at": "2026-01-01T00:00:01Z"}], wait=True)
    db.register("SELECT n FROM ticks WHERE n > 0", name="q", materialize="none")
    carry_out(db.parts, Grant("q", "public"), LOCAL_USER)
    reader, writer, root = (as_user(url, db.create_token(role, role)) for role in ("reader", "writer", "admin"))

    def told() -> list[str]:
        replies = [reader.get(path) for path in GETS]
        replies += [reader.post("/v1/sql", json={"sql": text}) for text in STATEMENTS]
        replies += [writer.post("/v1/streams/ticks/rows", content=ROWS, headers=NDJSON, params={"wait": "true"})]
        replies += [writer.post("/v1/sql", json={"sql": "INSERT INTO t VALUES (2)"})]
        return [f"{reply.status_code} {reply.url.path} {reply.text}" for reply in replies]

    places = {str(tmp_path), os.path.realpath(tmp_path)}
    assert not [text for text in told() if any(place in text for place in places)]
    assert root.get("/v1/status").json()["status"]["path"] == str(tmp_path / "warehouse")
    warehouse = tmp_path / "warehouse"
    for part in ("streams/1/archive", "streams/1/inbox", "tables/3"):
        shutil.rmtree(warehouse / part)
        (warehouse / part).write_text("no directory any more")
    db.maintain()
    troubled = told()
    assert any("Can't" in text for text in troubled)
    assert any("warehouse/streams/1/archive" in text for text in troubled), "what it is about is told"
    assert not [text for text in troubled if any(place in text for place in places)]
    assert str(warehouse) in root.get("/v1/status").text, "admins are told"
