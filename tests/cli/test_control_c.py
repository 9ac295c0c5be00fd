"""Ctrl-C while DuckDB runs: it stops the statement, and is never told as an error of DuckDB's or Python's."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.test_shell import Terminal
from tests.interrupts import heeding_interrupts

from ladle.cli import EXIT_INTERRUPTED
from ladle.connection import serve
from ladle.testing.inline import connect_inline

SLOW = "SELECT count(*) AS c FROM s a CROSS JOIN s b CROSS JOIN s c WHERE a.n * b.n % 7 + c.n = 3"
SAYING_WHEN = """
import sys, ladle.client
from ladle.evaluate import duck
from ladle.testing.inline import connect_inline
run = duck.run
def say_and_run(*given, **how):
    print("asked", flush=True)
    return run(*given, **how)
duck.run = say_and_run
"""
COMMAND = """
ladle.client.open_warehouse = lambda path, **_: connect_inline(path)
from ladle.cli import main
sys.exit(main(sys.argv[1:]))
"""
PROGRAM = """
db = connect_inline(sys.argv[1])
for _ in range(int(sys.argv[2])):
    try:
        db.sql(sys.argv[3])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(db.sql("SELECT count(*) AS c FROM s a JOIN s b ON a.n = b.n").to_pylist(), flush=True)
db.close()
"""
TIMES = 10
SOON_SECONDS = 0.3
STOPPED_SECONDS_MAX = 10


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM s (n BIGINT)")
        db.push("s", pa.table({"n": list(range(3_000))}), wait=True)
        db.register(SLOW, name="slow")
    return tmp_path / "warehouse"


@contextmanager
def shell_on(warehouse: Path, *program: str) -> Iterator[Terminal]:
    argv = [sys.executable, *program, "sql", "-w", str(warehouse)]
    with heeding_interrupts():
        terminal = Terminal(argv, {"XDG_STATE_HOME": str(warehouse.parent)})
    try:
        yield terminal
        terminal.type("SELECT sum(n) + 1 AS c FROM s;\r")
        terminal.wait_for("4498501")
        terminal.type("\\q\r")
        assert terminal.close() == 0
        assert "Traceback" not in terminal.seen
        assert "rror" not in terminal.seen
    finally:
        terminal.process.kill()
        terminal.process.wait()


def interrupt(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    time.sleep(random.random() * SOON_SECONDS)
    process.send_signal(signal.SIGINT)


def test_the_shell_stops_the_statement_and_goes_on(warehouse: Path) -> None:
    with shell_on(warehouse, "-c", SAYING_WHEN + COMMAND) as shell:
        for number in range(TIMES):
            shell.wait_for("ladle>")
            shell.type(f"{SLOW};\r")
            shell.wait_for("asked")
            begin = time.monotonic()
            interrupt(shell.process)
            shell.wait_for("stopped")
            assert time.monotonic() - begin < STOPPED_SECONDS_MAX
            shell.type(f"\\mark{number}\r")
            shell.wait_for(f"There is no command \\mark{number}")


def test_a_shell_beside_the_process_that_writes(warehouse: Path) -> None:
    with connect_inline(warehouse, settings={"invoke_seconds_max": 2.0}) as db:
        serve(db)
        with shell_on(warehouse, "-m", "ladle.cli") as shell:
            for number in range(3):
                shell.wait_for("ladle>")
                shell.type(f"{SLOW};\r")
                shell.wait_for("= 3;")
                interrupt(shell.process)
                shell.type(f"\r\\mark{number}\r")
                shell.wait_for(f"There is no command \\mark{number}")


@pytest.mark.parametrize("command", [["sql", "-c", SLOW], ["invoke", "slow"]])
def test_a_command_ends_with_130(warehouse: Path, command: list[str]) -> None:
    name, *rest = command
    argv = [sys.executable, "-c", SAYING_WHEN + COMMAND, name, "-w", str(warehouse), *rest]
    with heeding_interrupts():
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    interrupt(process)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("", EXIT_INTERRUPTED)
    assert "Traceback" not in err
    assert "rror" not in err


def test_a_program_is_told_by_a_keyboard_interrupt(warehouse: Path) -> None:
    argv = [sys.executable, "-c", SAYING_WHEN + PROGRAM, str(warehouse), str(TIMES), SLOW]
    with heeding_interrupts():
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(TIMES):
        assert process.stdout.readline() == "asked\n"
        interrupt(process)
        assert process.stdout.readline() == "interrupted\n"
    out, err = process.communicate(timeout=60)
    assert (out, err) == ("asked\n[{'c': 3000}]\n", "")


def test_a_function_that_sleeps_is_not_waited_for(warehouse: Path) -> None:
    with connect_inline(warehouse) as db:
        nap = "def nap(n):\n    import time\n    time.sleep(30)\n    return n\n"
        db.create_function(nap, arguments=["BIGINT"], returns="BIGINT")
    argv = [sys.executable, "-c", SAYING_WHEN + PROGRAM, str(warehouse), "1", "SELECT nap(n) AS x FROM s LIMIT 1"]
    with heeding_interrupts():
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    begin = time.monotonic()
    interrupt(process)
    out, err = process.communicate(timeout=60)
    assert (out, err) == ("interrupted\nasked\n[{'c': 3000}]\n", "")
    assert time.monotonic() - begin < STOPPED_SECONDS_MAX


def test_control_c_while_the_program_exits_is_not_heard() -> None:
    """Python takes its own handler away in the end: the signal would kill the program."""
    program = (
        "import atexit, os, signal, ladle.cli\n"
        "class Late:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "ladle.cli.late = Late()  # let go of when modules are\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "ladle.cli.main = lambda: 0\n"
        "ladle.cli.program()\n"
    )
    with heeding_interrupts():
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
