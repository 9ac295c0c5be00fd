"""Commands in other processes while one holds the warehouse, and what reading loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import loaded_by_reading
from tests.interrupts import heeding_interrupts

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


def command(warehouse: Path, *argv: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ladle.cli", argv[0], "-w", str(warehouse), *argv[1:]],
        input=text,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_subscription_shows_rows_as_they_come(db: Database, warehouse: Path) -> None:
    argv = [sys.executable, "-m", "ladle.cli", "sql", "-w", str(warehouse), "--format", "json"]
    with heeding_interrupts():
        process = subprocess.Popen([*argv, "-c", "SUBSCRIBE dear SINCE 0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"symbol": "IBM"}
        db.push("trades", [{"symbol": "T", "price": 21.5}], wait=True)
        db.push("trades", [{"symbol": "GS", "price": 498.0}], wait=True)
        assert json.loads(process.stdout.readline()) == {"symbol": "GS"}
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
    wrong = command(warehouse, "sql", "-c", "SUBSCRIBE dear SINCE yesterday")
    assert wrong.returncode == 1
    assert "the number of an epoch" in wrong.stderr


def test_commands_work_through_the_process_that_writes(db: Database, warehouse: Path) -> None:
    registered = command(warehouse, "register", "cheap", "SELECT symbol FROM trades WHERE price < 100")
    assert registered.returncode == 0, registered.stderr
    assert [query.name for query in db.queries()] == ["dear", "cheap"]

    pushed = command(warehouse, "push", "trades", "-", "--format", "csv", text="symbol,price\nT,21.5\nX,dear\n")
    assert pushed.returncode == 0, pushed.stderr
    assert pushed.stdout == (
        "pushed 2 rows to trades, visible in epoch 2\n"
        "1 of them did not fit; the reasons: "
        f'ladle sql -w {warehouse} -c "SELECT reason, row FROM trades.quarantine"\n'
    )
    assert db.sql("SELECT reason FROM trades.quarantine").to_pylist() == [
        {"reason": "stdin:3: price: 'dear' is not a DOUBLE"}
    ]
    again = command(warehouse, "register", "CHEAP", "SELECT 1 AS x", "--if-not-exists")
    assert again.stdout == f"cheap stands already, unchanged; its answer: ladle invoke -w {warehouse} cheap\n"
    assert {row["symbol"] for row in db.query("cheap").invoke().to_pylist()} == {"KO", "T"}

    inserted = command(warehouse, "sql", "-c", "INSERT INTO trades VALUES ('GS', 498.0); SELECT * FROM dear")
    assert inserted.returncode == 0, inserted.stderr
    assert "GS" in inserted.stdout

    wrong = command(warehouse, "sql", "-c", "SELECT nope\nFROM trades")
    assert wrong.returncode == 1
    assert "  SELECT nope\n         ^" in wrong.stderr

    status = json.loads(command(warehouse, "status", "--json").stdout)
    assert status["streams"][0]["quarantined"] == 1


@pytest.mark.parametrize("writer", [True, False])
def test_reading_loads_nothing_heavy(db: Database, warehouse: Path, writer: bool) -> None:
    if not writer:
        db.close()
    assert loaded_by_reading(["-w", str(warehouse)], HEAVY) == []


def test_reading_makes_no_warehouse(tmp_path: Path) -> None:
    ran = command(tmp_path / "nowhere", "queries")
    assert ran.returncode == 1
    assert "There is no warehouse at" in ran.stderr
    assert not (tmp_path / "nowhere").exists()


def test_control_c_ends_a_command_with_130(db: Database, warehouse: Path) -> None:
    argv = [sys.executable, "-m", "ladle.cli", "push", "-w", str(warehouse), "trades", "-", "--format", "json"]
    pipe = subprocess.PIPE
    with heeding_interrupts():
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=0)
    assert process.stdin is not None
    process.stdin.write('{"symbol": "LIVE", "price": 1000}\n')
    # What is piped in arrives while the pipe is open.
    deadline = time.monotonic() + 60
    while len(db.query("dear").invoke()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
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
