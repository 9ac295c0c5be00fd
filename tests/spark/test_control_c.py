"""Ctrl-C while Spark starts, while it works, in a program and in the shell: what it stops, and what it leaves alone.

Each test has a process of its own: the session that the other tests share must live.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.test_shell import Terminal
from tests.interrupts import heeding_interrupts
from tests.spark.programs import ENDLESS, end, in_session, kill_all, start
from tests.waiting import wait_until

from ladle.testing import connect_inline

pytestmark = pytest.mark.spark

ENDED = (-signal.SIGINT, 1)
"""Python ends itself by the signal, unless a library ran code at exit: then it is an error like any other."""

STARTING = """
db = ladle.connect(sys.argv[1])
db.sql("CREATE STREAM s (t STRING)")
while True:
    try:
        db.push("s", [{"t": "Robert"}], wait=True)
        break
    except KeyboardInterrupt:
        print("interrupted", "after" if db._pipeline.started else "while", "Spark started", flush=True)
        if sys.stdin.readline() != "again\\n":
            raise
print(count(db, "s"), flush=True)
db.close()
"""


def interrupt_start(process: subprocess.Popen[str], seconds: float) -> bool:
    """Ctrl-C that long after the first process of Spark's is seen. The program goes on, and has no JVM all the same,
    unless Spark had started by then: whether it had not.
    """
    assert process.stdout is not None
    wait_until(lambda: len(in_session(process.pid)) > 1)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    said = process.stdout.readline()
    assert said in ("interrupted while Spark started\n", "interrupted after Spark started\n")
    in_time = "while" in said
    if in_time:
        try:
            wait_until(lambda: len(in_session(process.pid)) == 1)
        except AssertionError:
            pytest.fail(f"left behind: {in_session(process.pid)}")
    return in_time


def test_spark_starts_after_starts_that_were_interrupted(tmp_path: Path) -> None:
    process = start(STARTING, tmp_path / "warehouse")
    assert process.stdin is not None
    for seconds in (0.0, 1.0):
        assert interrupt_start(process, seconds) or seconds
        process.stdin.write("again\n")
        process.stdin.flush()
    out, err = end(process)
    assert out == "3\n", err  # what was pushed before is not lost


def test_a_program_that_ends_while_spark_starts_leaves_no_jvm(tmp_path: Path) -> None:
    for seconds in (2.0, 1.0, 0.5, 0.0):  # as late as this machine lets it be
        process = start(STARTING, tmp_path / f"warehouse-{seconds}")
        in_time = interrupt_start(process, seconds)
        _, err = end(process)
        if in_time:
            break
    assert in_time
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode in ENDED


def test_control_c_stops_the_query_or_the_program(tmp_path: Path) -> None:
    """While a query is asked, that query and nothing else. Otherwise the program: no close, a source attached, pushes
    waiting, a backfill due, and the process ends, and its JVM with it.
    """
    program = f"""
db = ladle.connect(sys.argv[1])
db.sql("CREATE STREAM s (t STRING)")
db.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp")
db.push("s", [{{"t": f"name {{n}}"}} for n in range(2000)], wait=True)
endless = db.register('''{ENDLESS}''', name="endless")
source = db.attach("r", rate(db), source="rate")
wait_until(lambda: count(db, "r") > 0)
print("asking", flush=True)
try:
    endless.invoke()
except KeyboardInterrupt:
    print("interrupted", flush=True)
before = count(db, "r")
wait_until(lambda: count(db, "r") > before)
assert (source.state, source.restarts, source.error) == ("running", 0, None)
db.push("s", [{{"t": "one more"}}], wait=True)
assert db.sql("SELECT soundex(t) AS c FROM s WHERE t = 'one more'").to_pylist() == [{{"c": "O556"}}]
db.register("SELECT value FROM r WHERE value > 3", name="q")
print("pushing", flush=True)
while True:
    db.push("s", [{{"t": "Rupert"}}])
    time.sleep(0.01)
"""
    process = start(program, tmp_path / "warehouse")
    assert process.stdout is not None
    assert process.stdout.readline() == "asking\n"
    time.sleep(2)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begin < 5
    said = process.stdout.readline()
    if said == "pushing\n":
        time.sleep(1)
        process.send_signal(signal.SIGINT)
    _, err = end(process)
    assert said == "pushing\n", err
    assert process.returncode in ENDED, err
    # One error, whatever Python was in the midst of.
    assert err.count("Traceback") - err.count("During handling of the above exception") == 1, err


def test_who_leaves_the_shell_while_work_goes_on_hears_nothing_of_it(tmp_path: Path) -> None:
    """The backfill that is under way is ended, and not told as a failure; also when Ctrl-C hurries the leaving."""
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM s (n BIGINT)")
        for _ in range(2):
            db.push("s", pa.table({"n": list(range(400_000))}), wait=True)
    argv = [sys.executable, "-m", "ladle.cli", "sql", "-w", str(tmp_path / "warehouse")]
    for hurried in (False, True):
        with heeding_interrupts():
            shell = Terminal(argv, {"XDG_STATE_HOME": str(tmp_path)})
        try:
            shell.wait_for("ladle>")
            shell.type("INSERT INTO s VALUES (1);\r")
            shell.wait_for("1 row inserted", 200)
            name = f"q{int(hurried)}"
            shell.type(f"CREATE QUERY {name} AS SELECT n FROM s WHERE length(md5(repeat(n, 900))) < {30 + hurried};\r")
            shell.wait_for(f"{name} stands")
            time.sleep(1)
            begin = time.monotonic()
            shell.type("exit\r")
            if hurried:
                time.sleep(0.2)
                shell.process.send_signal(signal.SIGINT)
            with pytest.raises(AssertionError, match="the shell ended"):
                shell.wait_for("job failed")
            assert shell.close() in (0, 130)
            assert time.monotonic() - begin < 20
            assert "background" not in shell.seen
            assert "Traceback" not in shell.seen
        finally:
            kill_all(shell.process.pid)


def test_control_c_in_the_shell_gives_the_prompt_back(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "ladle.cli", "sql", "-w", str(tmp_path / "warehouse")]
    with heeding_interrupts():
        shell = Terminal(argv, {"XDG_STATE_HOME": str(tmp_path)})
    try:
        shell.wait_for("ladle>")
        shell.type("CREATE STREAM s (t STRING);\r")
        shell.wait_for("stream s created")
        shell.wait_for("ladle>")
        shell.type("INSERT INTO s SELECT concat('name ', n) FROM (SELECT explode(sequence(1, 300)) AS n);\r")
        shell.wait_for("300 rows inserted", 200)
        for presses in (1, 2):
            shell.type(f"{' '.join(ENDLESS.split())};\r")
            shell.wait_for("running")
            time.sleep(2)
            begin = time.monotonic()
            for _ in range(presses):
                shell.process.send_signal(signal.SIGINT)
                time.sleep(0.3)
            shown = shell.wait_for("ladle>")
            assert time.monotonic() - begin < 6
            assert "Traceback" not in shown
        shell.type("SELECT soundex(max(t)) AS code FROM s;\r")
        shell.wait_for("N500")
        shell.type("\\q\r")
        assert shell.close() == 0
    finally:
        kill_all(shell.process.pid)
