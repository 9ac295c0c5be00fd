"""Commands in other processes while one holds the warehouse, and what reading loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Ran, loaded_by_reading, told_change
from tests.interrupts import heeding_interrupts
from tests.waiting import wait_until

from ladle.connection import serve
from ladle.engine import Database
from ladle.testing.inline import connect_inline

HEAVY = ("pyspark", "py4j", "pandas", "rich", "prompt_toolkit", "deltalake")


@pytest.fixture
def db(warehouse: Path) -> Iterator[Database]:
    with connect_inline(warehouse) as db:
        serve(db)
        db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE)")
        db.register("SELECT symbol FROM trades WHERE price > 100", name="dear")
        db.push("trades", [{"symbol": "IBM", "price": 193.5}, {"symbol": "KO", "price": 69.25}], wait=True)
        yield db


COMMANDS = """
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from ladle.cli import main
told, asked = sys.stdout, sys.stdin
for line in asked:
    argv, text = json.loads(line)
    out, err = io.StringIO(), io.StringIO()
    reading, writing = os.pipe()
    with open(writing, "w") as pipe:
        pipe.write(text)
    with redirect_stdout(out), redirect_stderr(err), open(reading) as sys.stdin:
        code = main(argv)
    print(json.dumps([code, out.getvalue(), err.getvalue()]), file=told, flush=True)
"""

Command = Callable[..., Ran]


@pytest.fixture(scope="module")
def command() -> Iterator[Command]:
    """Runs commands, one after the other, in a process that is not this one."""
    pipe = subprocess.PIPE
    environment = {**os.environ, "COLUMNS": "120"}
    argv = [sys.executable, "-c", COMMANDS]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=environment) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        asked, told = other.stdin, other.stdout

        def run(warehouse: Path, name: str, *argv: str, text: str = "") -> Ran:
            asked.write(json.dumps([[name, "-w", str(warehouse), *argv], text]) + "\n")
            asked.flush()
            return Ran(*json.loads(told.readline()))

        yield run
        asked.close()
    assert other.returncode == 0


def test_a_subscription_shows_rows_as_they_come(db: Database, warehouse: Path, command: Command) -> None:
    argv = [sys.executable, "-m", "ladle.cli", "sql", "-w", str(warehouse), "--format", "json"]
    with heeding_interrupts():
        process = subprocess.Popen([*argv, "-c", "SUBSCRIBE dear SINCE 0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert told_change(process) == {"_change": 1, "_out": None, "symbol": "IBM"}
        db.push("trades", [{"symbol": "T", "price": 21.5}], wait=True)
        db.push("trades", [{"symbol": "GS", "price": 498.0}], wait=True)
        assert told_change(process) == {"_change": 1, "_out": None, "symbol": "GS"}
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
    wrong = command(warehouse, "sql", "-c", "SUBSCRIBE dear SINCE yesterday")
    assert wrong.code == 1
    assert "the number of an epoch" in wrong.err


def test_a_subscription_shows_what_goes(db: Database, warehouse: Path, command: Command) -> None:
    """As rows with a sign; with a snapshot first, when rows will leave, and NOW where nothing changes."""
    db.sql("CREATE TABLE wanted (symbol STRING)")
    db.register("SELECT symbol FROM wanted", name="listed")
    db.sql("INSERT INTO wanted VALUES ('IBM'), ('T')")
    argv = [sys.executable, "-m", "ladle.cli", "sql", "-w", str(warehouse), "--format", "csv"]
    statement = "SUBSCRIBE listed WITH (snapshot = true, expirations = 'out', progress = true)"
    with heeding_interrupts():
        process = subprocess.Popen([*argv, "-c", statement], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        heard: list[list[str]] = []

        def hear(count: int) -> list[tuple[str, str]]:
            """The next rows that are no progress."""
            assert process.stdout is not None
            found: list[tuple[str, str]] = []
            while len(found) < count:
                line = process.stdout.readline().strip().split(",")
                heard.append(line)
                found += [(line[0], line[3])] if line[0] != "0" else []
            return found

        assert process.stdout.readline() == '"_change","_now","_out","symbol"\n', "once, before all changes"
        assert hear(2) == [("1", '"IBM"'), ("1", '"T"')]
        db.sql("UPDATE wanted SET symbol = 'GS' WHERE symbol = 'IBM'")
        assert hear(2) == [("-1", '"IBM"'), ("1", '"GS"')]
        db.push("trades", [{"symbol": "T", "price": 21.5}], wait=True)
        while heard[-1][0] != "0":
            heard.append(process.stdout.readline().strip().split(","))
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.wait()
    wrong = command(warehouse, "sql", "-c", "SUBSCRIBE listed WITH (snapshots = true)")
    assert wrong.code == 1
    assert "did you mean 'SNAPSHOT'?" in wrong.err


def test_commands_work_through_the_process_that_writes(db: Database, warehouse: Path, command: Command) -> None:
    registered = command(warehouse, "register", "cheap", "SELECT symbol FROM trades WHERE price < 100")
    assert registered.code == 0, registered.err
    assert [query.name for query in db.queries()] == ["dear", "cheap"]

    pushed = command(warehouse, "push", "trades", "-", "--format", "csv", text="symbol,price\nT,21.5\nX,dear\n")
    assert pushed.code == 0, pushed.err
    assert pushed.out == (
        "pushed 2 rows to trades, visible in epoch 2\n"
        "1 of them did not fit; the reasons: "
        f'ladle sql -w {warehouse} -c "SELECT reason, row FROM trades.quarantine"\n'
    )
    assert db.sql("SELECT reason FROM trades.quarantine").to_pylist() == [
        {"reason": "stdin:3: price: 'dear' is not a DOUBLE"}
    ]
    again = command(warehouse, "register", "CHEAP", "SELECT 1 AS x", "--if-not-exists")
    assert again.out == f"cheap stands already, unchanged; its answer: ladle invoke -w {warehouse} cheap\n"
    assert {row["symbol"] for row in db.query("cheap").invoke().to_pylist()} == {"KO", "T"}

    inserted = command(warehouse, "sql", "-c", "INSERT INTO trades VALUES ('GS', 498.0); SELECT * FROM dear")
    assert inserted.code == 0, inserted.err
    assert "GS" in inserted.out

    wrong = command(warehouse, "sql", "-c", "SELECT nope\nFROM trades")
    assert wrong.code == 1
    assert "  SELECT nope\n         ^" in wrong.err

    status = json.loads(command(warehouse, "status", "--json").out)
    assert status["streams"][0]["quarantined"] == 1


@pytest.mark.parametrize("writer", [True, False])
def test_reading_loads_nothing_heavy(db: Database, warehouse: Path, writer: bool) -> None:
    if not writer:
        db.close()
    assert loaded_by_reading(["-w", str(warehouse)], HEAVY) == []


def test_reading_makes_no_warehouse(tmp_path: Path, command: Command) -> None:
    ran = command(tmp_path / "nowhere", "queries")
    assert ran.code == 1
    assert "There is no warehouse at" in ran.err
    assert not (tmp_path / "nowhere").exists()


def test_control_c_ends_a_command_with_130(db: Database, warehouse: Path) -> None:
    argv = [sys.executable, "-m", "ladle.cli", "push", "-w", str(warehouse), "trades", "-", "--format", "json"]
    pipe = subprocess.PIPE
    with heeding_interrupts():
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=0)
    assert process.stdin is not None
    process.stdin.write('{"symbol": "LIVE", "price": 1000}\n')
    # What is piped in arrives while the pipe is open.
    wait_until(lambda: len(db.query("dear").invoke()) == 2)
    assert {row["symbol"] for row in db.query("dear").invoke().to_pylist()} == {"IBM", "LIVE"}
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_the_output_may_be_cut_off(db: Database, warehouse: Path) -> None:
    argv = f"{sys.executable} -m ladle.cli sql -w {warehouse} -c 'SELECT * FROM trades' --format json | true"
    ran = subprocess.run(["sh", "-c", argv], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in ran.stderr
    assert "Broken" not in ran.stderr
