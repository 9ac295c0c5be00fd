"""Programs in a process and a session of their own: what they started is known, and ended with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.interrupts import heeding_interrupts
from tests.waiting import wait_until

HEAD = """
import os, signal, sys, time
import ladle
from ladle.engine import watched
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


def end(process: subprocess.Popen[str], seconds: float = 200) -> tuple[str, str]:
    """What it said until it ended; nothing of it is left."""
    try:
        out, err = process.communicate(timeout=seconds)
        wait_until(lambda: not in_session(process.pid))
    finally:
        kill_all(process.pid)
    return out, err


def kill_all(leader: int) -> None:
    for pid in sorted(in_session(leader)):
        with suppress(ProcessLookupError):  # it may end by itself meanwhile
            os.kill(pid, signal.SIGKILL)
