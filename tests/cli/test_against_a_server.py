"""The commands through a server: with a token and without, and when it is not there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run, loaded_by_reading, told_change
from tests.cli.test_shell import Terminal
from tests.interrupts import heeding_interrupts

from ladle.config import Settings
from ladle.engine import Database
from ladle.protocols.http.process import Server
from ladle.testing import connect_inline

Serve = Callable[..., tuple[Database, Server]]
# httpx itself loads rich, if it is there.
NOT_FOR_HTTP = ("pyspark", "py4j", "pandas", "prompt_toolkit", "deltalake", "fastapi", "uvicorn", "numba")


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    for name in ("LADLE_URL", "LADLE_TOKEN", "LADLE_CERTIFICATE", "LADLE_WAREHOUSE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    closing: list[Callable[[], None]] = []

    def start(**settings: Any) -> tuple[Database, Server]:
        db = connect_inline(tmp_path / "served", settings=settings)
        closing.append(db.close)
        server = Server(db, Settings.load({"port": 0, **settings}))
        server.start()
        closing.append(server.stop)
        db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE)")
        db.register("SELECT symbol FROM trades WHERE price > 100", name="dear")
        db.push("trades", [{"symbol": "IBM", "price": 193.5}, {"symbol": "KO", "price": 69.25}], wait=True)
        return db, server

    yield start
    for close in reversed(closing):
        close()


@pytest.fixture
def url(serve: Serve) -> str:
    return serve()[1].url


@pytest.fixture
def gone(tmp_path: Path) -> str:
    """The address of a server that was here, and is no more."""
    with connect_inline(tmp_path / "gone") as db:
        server = Server(db, Settings.load({"port": 0}))
        server.start()
        server.stop()
    return server.url


@pytest.mark.parametrize("secured", [False, True])
def test_every_command_works_through_a_server(
    serve: Serve, ran: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secured: bool
) -> None:
    db, server = serve(anonymous="nobody" if secured else "loopback")
    secret = db.sql("CREATE TOKEN me ROLE admin").to_pylist()[0]["token"] if secured else ""
    at = ["--url", server.url, *(["--token", secret] if secured else [])]
    again = f"--url {server.url}" + (" --token TOKEN" if secured else "")

    assert "IBM" in ran("invoke", *at, "dear").out
    registered = ran("register", *at, "cheap", "SELECT symbol FROM trades WHERE price < 100")
    assert registered.out == f"registered cheap; its answer: ladle invoke {again} cheap\n", registered.err
    taken = ran("register", *at, "cheap", "SELECT 1 AS x")
    assert (taken.code, "--if-not-exists" in taken.err) == (1, True)
    file = tmp_path / "more.csv"
    file.write_text("symbol,price\nT,21.5\nX,dear\n")
    pushed = ran("push", *at, "trades", str(file))
    assert pushed.out == (
        "pushed 2 rows to trades, visible in epoch 2\n"
        f'1 of them did not fit; the reasons: ladle sql {again} -c "SELECT reason, row FROM trades.quarantine"\n'
    ), pushed.err
    assert ran("push", *at, "trades", str(file), "--no-wait").code == 0
    lines = ran("queries", *at, "--format", "json").out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["dear", "cheap"]
    assert "T" in ran("sql", *at, "-c", "SELECT symbol FROM cheap", "--format", "csv").out
    assert "1 rows in" in ran("explain", *at, "--analyze", "dear").out
    status = json.loads(ran("status", *at, "--json").out)
    assert [query["name"] for query in status["queries"]] == ["dear", "cheap"]
    wrong = ran("sql", *at, "-c", "SELECT nope\nFROM trades")
    assert (wrong.code, "  SELECT nope\n         ^" in wrong.err) == (1, True)
    assert "trades" in ran("top", *at, "--once").out
    assert "cheap" in ran("sql", *at, "-c", "DROP QUERY cheap").out

    # The environment does as well, and then need not be typed again.
    monkeypatch.setenv("LADLE_URL", server.url)
    monkeypatch.setenv("LADLE_TOKEN", secret)
    assert ran("register", "cheap", "SELECT 1 AS x").out == "registered cheap; its answer: ladle invoke cheap\n"
    for each in (registered, taken, pushed, wrong):
        assert not secured or secret not in each.out + each.err


def test_who_has_no_token_or_a_wrong_one_is_told_so_in_one_message(serve: Serve, ran: Run) -> None:
    db, server = serve(anonymous="nobody")
    reader = db.sql("CREATE TOKEN guest ROLE reader").to_pylist()[0]["token"]
    none = ran("queries", "--url", server.url)
    assert (none.code, none.out) == (1, "")
    assert none.err.startswith("error: A token is needed")
    wrong = ran("queries", "--url", server.url, "--token", "ladle_wrong")
    assert wrong.code == 1
    assert wrong.err.startswith("error: That token is not known.")
    unfit = ran("queries", "--url", server.url, "--token", "two\nlines")
    assert (unfit.code, "two" in unfit.err) == (1, False)
    denied = ran("register", "--url", server.url, "--token", reader, "q", "SELECT 1 AS x")
    assert denied.code == 1
    assert "Traceback" not in denied.err
    for each in (none, wrong, unfit, denied):
        assert each.err.count("error: ") == 1
        assert "ladle_wrong" not in each.err
        assert reader not in each.err


@pytest.mark.parametrize(
    "argv",
    [
        ["sql", "-c", "SELECT 1 AS x"],
        ["push", "trades", "-", "--format", "csv"],
        ["register", "q", "SELECT 1 AS x"],
        ["invoke", "dear"],
        ["queries"],
        ["explain", "dear"],
        ["status"],
        ["status", "--watch"],
        ["top", "--once"],
    ],
    ids=" ".join,
)
def test_a_server_that_is_gone_is_one_clear_message(ran: Run, gone: str, argv: list[str]) -> None:
    told = ran(argv[0], "--url", gone, *argv[1:])
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith(f"error: The server at {gone} does not answer")
    assert told.err.count("\n") == 2, told.err


def test_what_answers_and_is_no_server_of_ours_is_told(ran: Run, url: str) -> None:
    elsewhere = ran("queries", "--url", f"{url}/elsewhere")
    assert elsewhere.code == 1
    assert elsewhere.err.startswith("error: There is nothing at /elsewhere/v1/sql")
    for wrong in ("here", "ftp://127.0.0.1", "http://", "http://127.0.0.1:port"):
        said = ran("queries", "--url", wrong)
        assert (said.code, "is not the address of a server" in said.err) == (1, True), said.err
    secret = ran("queries", "--url", "http://me:secret@127.0.0.1")
    assert (secret.code, "secret" in secret.err) == (1, False)
    absent = ran("queries", "--url", url, "--certificate", "/nowhere.pem")
    assert absent.code == 1
    assert absent.err == "error: The certificate '/nowhere.pem' can't be used: No such file or directory.\n"


def test_a_warehouse_and_a_server_are_not_meant_at_once(
    ran: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ran("queries", "-w", str(tmp_path), "--url", url)
    assert both.code == 2
    assert "--url: not allowed with argument -w" in both.err
    assert ran("queries", "--token", "x").code == 2
    # The default of a warehouse is no choice of one; and what is typed counts more than the environment.
    monkeypatch.setenv("LADLE_WAREHOUSE", str(tmp_path / "nowhere"))
    assert "dear" in ran("queries", "--url", url).out
    monkeypatch.setenv("LADLE_URL", url)
    assert "dear" in ran("queries").out
    local = ran("queries", "-w", str(tmp_path / "nowhere"))
    assert "There is no warehouse at" in local.err
    for command in ("demo", "serve"):
        assert ran(command, "--url", url).code == 2


def test_reading_through_a_server_loads_nothing_heavy(url: str) -> None:
    assert loaded_by_reading(["--url", url], NOT_FOR_HTTP) == []


def test_a_subscription_through_a_server_shows_rows_as_they_come(serve: Serve) -> None:
    db, server = serve()
    argv = [sys.executable, "-m", "ladle.cli", "sql", "--url", server.url, "--format", "json"]
    pipe = subprocess.PIPE
    with heeding_interrupts():
        process = subprocess.Popen([*argv, "-c", "SUBSCRIBE dear SINCE 0"], stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        assert told_change(process) == {"_change": 1, "_out": None, "symbol": "IBM"}
        db.push("trades", [{"symbol": "GS", "price": 498.0}], wait=True)
        assert told_change(process) == {"_change": 1, "_out": None, "symbol": "GS"}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, "Traceback" in err) == (130, "", False)
    finally:
        process.kill()
        process.wait()


def test_the_shell_through_a_server(serve: Serve, tmp_path: Path) -> None:
    db, server = serve(anonymous="nobody")
    secret = db.sql("CREATE TOKEN me ROLE admin").to_pylist()[0]["token"]
    argv = [sys.executable, "-m", "ladle.cli", "sql", "--url", server.url]
    with heeding_interrupts():
        shell = Terminal(argv, {"XDG_STATE_HOME": str(tmp_path), "LADLE_TOKEN": secret})
    try:
        shell.wait_for(f"Ladle SQL on {server.url}.")
        shell.wait_for("ladle>")
        shell.type("SELECT sym\t")
        shell.wait_for("symbol")
        shell.type(" FROM de\t")
        shell.wait_for("dear")
        shell.type(";\r")
        assert "IBM" in shell.wait_for(" ms")
        shell.wait_for("ladle>")
        # Ctrl-C ends the statement and not the shell, and what comes after it is answered.
        shell.type("SUBSCRIBE dear SINCE 0;\r")
        shell.wait_for("IBM")
        shell.process.send_signal(signal.SIGINT)
        shell.wait_for("stopped")
        shell.wait_for("ladle>")
        shell.type("SELECT count(*) AS n FROM trades;\r")
        assert "2" in shell.wait_for(" ms")
        shell.type("\\status\r")
        shell.wait_for("quarantined")
        shell.type("\\q\r")
        assert shell.close() == 0
    finally:
        shell.process.kill()
        shell.process.wait()


def test_a_shell_does_not_begin_where_no_server_is(gone: str) -> None:
    shell = Terminal([sys.executable, "-m", "ladle.cli", "sql", "--url", gone], {})
    shell.wait_for("does not answer")
    assert shell.close() == 1
