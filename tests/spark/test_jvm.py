"""The JVM dies, or Ctrl-C comes: while Spark starts, while it works, in a program and in the shell.

Each test has a process of its own: the session that the other tests share must live.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.test_shell import Terminal
from tests.interrupts import heeding_interrupts

pytestmark = pytest.mark.spark

HEAD = """
import os, signal, sys, time
import ladle
from ladle.errors import PipelineError

def wait_until(what, seconds=100):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)

def kill_jvm():
    from pyspark import SparkContext
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

def count(db, stream):
    return db.sql(f"SELECT count(*) AS c FROM {stream}").to_pylist()[0]["c"]

def rate(db):
    return db.spark.readStream.format("rate").option("rowsPerSecond", 20).load()
"""
ENDLESS = """SELECT count(*) AS c FROM s a CROSS JOIN s b CROSS JOIN s c CROSS JOIN s d CROSS JOIN s e
             WHERE soundex(a.t) <> concat(soundex(b.t), soundex(c.t), soundex(d.t), soundex(e.t))"""


def in_session(leader: int) -> dict[int, str]:
    """The processes of a session, by id, with their names; zombies don't count."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            state, _, _, session = rest.split()[:4]
            if int(session) == leader and state != "Z":
                found[int(entry.name)] = name
    return found


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    with heeding_interrupts():
        return subprocess.Popen(
            [sys.executable, "-c", HEAD + program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def wait_until(what: Callable[[], object], seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def java(process: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, name in in_session(process.pid).items() if name == "java"]


def end(process: subprocess.Popen[str], seconds: float = 200) -> tuple[str, str]:
    """What it said until it ended; nothing of it is left."""
    try:
        out, err = process.communicate(timeout=seconds)
        wait_until(lambda: not in_session(process.pid))
    finally:
        for pid in sorted(in_session(process.pid)):
            os.kill(pid, signal.SIGKILL)
    return out, err


def test_a_jvm_that_was_killed_is_replaced(tmp_path: Path) -> None:
    program = """
with ladle.connect(sys.argv[1]) as db:
    db.sql("CREATE STREAM s (t STRING)")
    db.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp")
    db.push("s", [{"t": "Robert"}], wait=True)
    codes = db.register("SELECT soundex(t) AS code FROM s", name="codes")
    source = db.attach("r", rate(db), source="rate")
    wait_until(lambda: count(db, "r") > 0)
    kill_jvm()
    wait_until(lambda: source.state == "failed")
    assert "attach it again" in source.error, source.error
    assert db.status().sources[0].state == "failed"
    db.push("s", [{"t": "Rupert"}])           # taken in by itself, by another JVM
    wait_until(lambda: count(db, "s") == 2)
    before = count(db, "r")
    assert db.attach("r", rate(db), source="rate").state == "running"
    wait_until(lambda: count(db, "r") > before)
    kill_jvm()
    wait_until(lambda: db.status().spark == "not started")
    assert [row["code"] for row in codes.invoke().to_pylist()] == ["R163", "R163"]
print("done")
"""
    out, err = end(start(program, tmp_path / "warehouse"))
    assert out == "done\n", err
    assert "Traceback" not in err


def test_a_session_that_was_given_is_not_replaced(tmp_path: Path) -> None:
    program = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with ladle.connect(sys.argv[1], spark=spark) as db:
    db.sql("CREATE STREAM s (t STRING)")
    kill_jvm()
    for _ in range(2):
        try:
            db.push("s", [{"t": "Robert"}], wait=True)
        except PipelineError as error:
            assert "that was given is gone" in error.message, error
            assert "safe in the inbox" in error.hint and "new session" in error.hint, error
        else:
            raise AssertionError("pushed without Spark")
with ladle.connect(sys.argv[1]) as db:         # the same process, a session of its own: it lets go of the dead one
    wait_until(lambda: count(db, "s") == 2)
print("done")
"""
    out, err = end(start(program, tmp_path / "warehouse"))
    assert out == "done\n", err


@pytest.mark.parametrize("seconds", [0.0, 1.0, 3.0])
def test_control_c_while_spark_starts_leaves_no_jvm(tmp_path: Path, seconds: float) -> None:
    """The moments are counted from when the first process of Spark's is seen."""
    program = """
db = ladle.connect(sys.argv[1])
db.sql("CREATE STREAM s (t STRING)")
try:
    db.push("s", [{"t": "Robert"}], wait=True)
    print("started", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.readline()
    raise
"""
    process = start(program, tmp_path / "warehouse")
    assert process.stdout is not None
    wait_until(lambda: len(in_session(process.pid)) > 1)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    # The process goes on, and has no JVM all the same.
    wait_until(lambda: len(in_session(process.pid)) == 1)
    _, err = end(process)
    assert err.rstrip().endswith("KeyboardInterrupt")
    # Python ends itself by the signal, unless a library ran code at exit: then it is an error like any other.
    assert process.returncode in (-signal.SIGINT, 1)


def test_spark_starts_after_a_start_that_was_interrupted(tmp_path: Path) -> None:
    program = """
import threading
with ladle.connect(sys.argv[1]) as db:
    db.sql("CREATE STREAM s (t STRING)")
    threading.Timer(2.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        db.push("s", [{"t": "Robert"}], wait=True)
        raise AssertionError("not interrupted")
    except KeyboardInterrupt:
        pass
    db.push("s", [{"t": "Rupert"}], wait=True)
    assert count(db, "s") == 2
print("done")
"""
    out, err = end(start(program, tmp_path / "warehouse"))
    assert out == "done\n", err


def test_control_c_stops_the_query_and_nothing_else(tmp_path: Path) -> None:
    program = f"""
with ladle.connect(sys.argv[1]) as db:
    db.sql("CREATE STREAM s (t STRING)")
    db.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp")
    db.push("s", [{{"t": f"name {{n}}"}} for n in range(2000)], wait=True)
    endless = db.register('''{ENDLESS}''', name="endless")
    source = db.attach("r", rate(db), source="rate")
    wait_until(lambda: count(db, "r") > 0)
    print("ready", flush=True)
    try:
        endless.invoke()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    tracker = db.spark.sparkContext.statusTracker()
    residual = lambda: [j for j in tracker.getActiveJobsIds() if tracker.getJobInfo(j).status == "RUNNING"]
    wait_until(lambda: not residual())
    before = count(db, "r")
    wait_until(lambda: count(db, "r") > before)
    assert (source.state, source.restarts, source.error) == ("running", 0, None)
    db.push("s", [{{"t": "one more"}}], wait=True)
    assert db.sql("SELECT soundex(t) AS c FROM s WHERE t = 'one more'").to_pylist() == [{{"c": "O556"}}]
print("done")
"""
    process = start(program, tmp_path / "warehouse")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(2)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begin < 5
    out, err = end(process)
    assert out == "done\n", err


def test_nothing_keeps_a_program_that_control_c_ends(tmp_path: Path) -> None:
    """No close, a source attached, pushes waiting, a backfill due: the process ends, and its JVM with it."""
    program = """
db = ladle.connect(sys.argv[1])
db.sql("CREATE STREAM s (t STRING)")
db.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp")
db.attach("r", rate(db), source="rate")
db.push("s", [{"t": "Robert"}], wait=True)
db.register("SELECT value FROM r WHERE value > 3", name="q")
print("ready", flush=True)
while True:
    db.push("s", [{"t": "Rupert"}])
    time.sleep(0.01)
"""
    process = start(program, tmp_path / "warehouse")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, err = end(process)
    assert process.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1, err


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
        for pid in sorted(in_session(shell.process.pid)):
            os.kill(pid, signal.SIGKILL)
