"""SIGTERM while Spark starts: the server does not wait for it, and leaves nothing of it behind.

Each test has a process of its own: the session that the other tests share must live.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from tests.spark.programs import end, in_session, start
from tests.waiting import wait_until

import ladle

pytestmark = pytest.mark.spark

SECONDS_MAX = 4.0
"""A start takes longer, and so does one that is waited for."""


def terminated(process: subprocess.Popen[str]) -> float:
    """How long it took to end, with all that it started."""
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    wait_until(lambda: not in_session(process.pid), 30)
    return time.monotonic() - began


@pytest.mark.parametrize("seconds", [0.0, 0.7])
def test_a_server_is_stopped_while_spark_starts(tmp_path: Path, seconds: float) -> None:
    """That long after the first process of Spark's is seen."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ladle.cli", "serve", "-w", str(tmp_path / "warehouse"), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: len(in_session(process.pid)) > 1)
    time.sleep(seconds)
    took = terminated(process)
    out, err = end(process)
    assert process.returncode == 0, err
    assert out.endswith("stopping\n")
    assert "did not start" not in err
    assert "Traceback" not in err
    assert took < SECONDS_MAX


def test_a_push_that_waits_for_spark_is_told_that_it_is_safe(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    with ladle.connect(warehouse) as db:
        db.sql("CREATE STREAM s (t STRING)")
    process = subprocess.Popen(
        [sys.executable, "-m", "ladle.cli", "serve", "-w", str(warehouse), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().partition(" at ")[2].split()[0]
    wait_until(lambda: len(in_session(process.pid)) > 1)
    replies: list[httpx.Response] = []

    def push() -> None:
        headers = {"Content-Type": "application/x-ndjson"}
        where = f"{url}/v1/streams/s/rows?wait=true"
        replies.append(httpx.post(where, content='{"t": "x"}\n', headers=headers, trust_env=False, timeout=60))

    pushing = threading.Thread(target=push)
    pushing.start()
    wait_until(lambda: any(warehouse.glob("streams/*/inbox/*")))
    took = terminated(process)
    pushing.join()
    _, err = end(process)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert replies[0].status_code == 503
    assert "safe in the inbox" in replies[0].json()["error"]["hint"]
    assert took < SECONDS_MAX


CLOSING = """
import threading
from ladle.errors import Closed
db = ladle.connect(sys.argv[1])
db.sql("CREATE STREAM s (t STRING)")
db.push("s", [{"t": "Robert"}])
told = []

def ask():
    try:
        told.append(db.sql("SELECT soundex('Robert') AS code"))
    except Closed:
        told.append("closed")

asking = threading.Thread(target=ask)
asking.start()
sys.stdin.readline()
began = time.monotonic()
db.close(promptly=True)
print(f"{time.monotonic() - began:.1f}", flush=True)
asking.join()
print(told[0], flush=True)
"""


def test_both_sparks_that_start_are_given_up(tmp_path: Path) -> None:
    """That of the epochs and that of the residuals; what was pushed is taken in by the next process."""
    process = start(CLOSING, tmp_path / "warehouse")
    assert process.stdin is not None
    wait_until(lambda: sum("java" in name or "spark" in name for name in in_session(process.pid).values()) > 1)
    process.stdin.write("now\n")
    process.stdin.flush()
    out, err = end(process, 30)
    assert "Traceback" not in err
    took, told = out.split()
    assert float(took) < SECONDS_MAX
    assert told == "closed"
    with ladle.connect(tmp_path / "warehouse", read_only=True) as db:
        assert db.status().streams[0].pending == 1
