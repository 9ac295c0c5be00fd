"""Faults on Spark: a Python worker dies in mid-task; executors of a standalone cluster; Spark that can't start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import ladle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def python_workers() -> list[int]:
    """The Python workers under this process's JVM: children of its pyspark daemons."""
    workers = []
    for jvm in children_of(os.getpid()):
        for daemon in children_of(jvm):
            workers += children_of(daemon)
    return workers


def test_a_python_worker_is_killed_in_mid_task(tmp_path: Path, spark: SparkSession) -> None:
    rows = 1 << 19
    table = pa.table({f"c{n}": np.arange(rows) + n for n in range(8)} | {"t": [str(n) for n in range(rows)]})
    columns = ", ".join(f"c{n} BIGINT" for n in range(8))
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql(f"CREATE STREAM s ({columns}, t STRING)")
        db.register_many({f"q{n}": f"SELECT c0 FROM s WHERE c0 % 97 = {n}" for n in range(20)})
        db.push("s", table.slice(0, 10), wait=True)
        kills = 0

        def kill_workers() -> None:
            nonlocal kills
            deadline = time.monotonic() + 20
            while kills < 2 and not done.is_set() and time.monotonic() < deadline:
                time.sleep(0.25)
                for pid in python_workers():
                    if not done.is_set():
                        try:
                            os.kill(pid, signal.SIGKILL)
                        except ProcessLookupError:
                            continue
                        kills += 1

        done = threading.Event()
        killer = threading.Thread(target=kill_workers)
        killer.start()
        db.push("s", table, wait=True)
        done.set()
        killer.join()
        assert kills > 0
        answer = db.sql("SELECT count(*) AS c, count(DISTINCT c0) AS d FROM s")
        assert answer.to_pylist() == [{"c": rows + 10, "d": rows}]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def without_our_python(directory: Path) -> dict[str, str]:
    """An environment like that of another machine: its `python3` is not ours, and no path leads to the package."""
    python = directory / "bin" / "python3"
    python.parent.mkdir(exist_ok=True)
    python.write_text("#!/bin/sh\necho this is another Python >&2\nexit 1\n")
    python.chmod(0o755)
    others = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    return others | {"PATH": f"{python.parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone Spark master and two workers, as processes of their own."""
    import pyspark

    directory = tmp_path_factory.mktemp("cluster")
    home = Path(pyspark.__file__).parent
    port = free_port()
    environment = without_our_python(directory) | {
        "SPARK_HOME": str(home),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": os.environ["SPARK_SUBMIT_OPTS"],  # for executors too
    }
    master = f"spark://127.0.0.1:{port}"
    script = str(home / "bin" / "spark-class")
    arguments = ["--host", "127.0.0.1", "--webui-port", "0"]
    kind = "org.apache.spark.deploy"
    commands = [
        [script, f"{kind}.master.Master", *arguments, "--port", str(port)],
        *(
            [script, f"{kind}.worker.Worker", *arguments, "-c", "1", "-m", "1g", "-d", str(directory / f"w{n}"), master]
            for n in range(2)
        ),
    ]
    processes = []
    try:
        for command in commands:
            processes.append(
                subprocess.Popen(
                    command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory
                )
            )
            if len(processes) == 1:
                wait_for_port(port)
        yield master
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


PROGRAM = """
import sys, ladle
from ladle.errors import InvocationTimeout
with ladle.connect(sys.argv[1], master=sys.argv[2], settings={"invoke_seconds_max": 8.0}) as db:
    db.sql("CREATE STREAM s (n INT, k STRING)")
    db.register("SELECT n FROM s WHERE n % 2 = 0 AND k = 'b'", name="even")
    for start in range(0, 3000, 1000):
        db.push("s", [{"n": n, "k": "ab"[n % 3 == 0]} for n in range(start, start + 1000)], wait=True)
    db.backfill()
    assert len(db.spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) >= 2
    status = db.status().queries[0]
    print(len(db.invoke("even")), status.coverage, db.spark.sparkContext.master)
    try:  # on both executors, for ever
        db.sql("SELECT count(*) AS c FROM s WHERE concat(repeat('a', 100), n) RLIKE '^(a|aa)+\\\\\\\\1c$'")
    except InvocationTimeout:
        db.push("s", [{"n": 3000, "k": "b"}], wait=True)
        print(len(db.invoke("even")))
"""


def test_a_standalone_cluster(tmp_path: Path, cluster: str) -> None:
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "warehouse"), cluster],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    expected = sum(n % 2 == 0 and n % 3 == 0 for n in range(3000))
    assert done.stdout.split() == [str(expected), "1.0", cluster, str(expected + 1)]
    # And from the command line: what Spark writes down of itself says where it ran.
    events = tmp_path / "events"
    events.mkdir()
    conf = ("spark.eventLog.enabled=true", f"spark.eventLog.dir={events.as_uri()}", "spark.eventLog.compress=false")
    command = [sys.executable, "-m", "ladle.cli", "sql", "-w", str(tmp_path / "warehouse"), "--master", cluster]
    command += [f"--spark-conf={each}" for each in conf]
    command += [
        "--format",
        "csv",
        "-c",
        "INSERT INTO s VALUES (0, 'b'); SELECT count(*) AS c, soundex('Rupert') AS d FROM s",
    ]
    told = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert told.returncode == 0, told.stderr
    assert '3002,"R163"' in told.stdout
    written = "".join(path.read_text(errors="replace") for path in events.rglob("*") if path.is_file())
    assert f'"spark.master":"{cluster}"' in written
    assert "SparkListenerExecutorAdded" in written


GIVEN = """
import os, sys
sys.path.insert(0, sys.argv[3])
import ladle
from ladle.errors import PipelineError
from pyspark.sql import SparkSession
spark = SparkSession.builder.master(sys.argv[2]).config("spark.ui.enabled", "false").getOrCreate()
def push(path):
    with ladle.connect(path, spark=spark) as db:
        db.sql("CREATE STREAM IF NOT EXISTS s (n INT)")
        db.register("SELECT n FROM s WHERE n % 2 = 0 AND n > 3", name="even", if_not_exists=True)
        db.push("s", [{"n": n} for n in range(10)], wait=True)
        db.backfill()
        return [row["n"] for row in db.invoke("even")]
if not sys.argv[2].startswith("local"):
    os.environ["PYSPARK_PYTHON"] = spark.sparkContext.pythonExec = "/nowhere/python3"
    try:
        push(sys.argv[1] + ".unread")
    except PipelineError as error:
        print(error)
    del os.environ["PYSPARK_PYTHON"]
    spark.sparkContext.pythonExec = "python3"
print(push(sys.argv[1]))
push(sys.argv[1] + ".other")  # one session may serve several databases
spark.stop()
"""


def run_in_a_given_session(tmp_path: Path, master: str) -> str:
    source = str(Path(ladle.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", GIVEN, str(tmp_path / "warehouse"), master, source],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=without_our_python(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_local_session_that_is_given_needs_no_words_on_python(tmp_path: Path) -> None:
    assert run_in_a_given_session(tmp_path, "local[2]") == "[4, 6, 8]\n"


def test_a_session_that_is_given_on_a_cluster_finds_the_package(tmp_path: Path, cluster: str) -> None:
    *told, answer = run_in_a_given_session(tmp_path, cluster).splitlines()
    assert answer == "[4, 6, 8]"
    assert "no Python that can run Ladle's tasks. /nowhere/python3: " in told[0]
    assert f"Python {sys.version_info.major}.{sys.version_info.minor} with the libraries" in told[-1]


def test_without_java_the_rows_are_safe_and_the_message_says_what_to_do(tmp_path: Path) -> None:
    program = """
import sys, ladle
from ladle.errors import PipelineError
with ladle.connect(sys.argv[1]) as db:
    db.sql("CREATE STREAM s (n INT)")
    try:
        db.push("s", [{"n": 1}], wait=True)
    except PipelineError as error:
        print(error)
    print("pending", db.status().streams[0].pending)
"""
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment,
    )
    assert "Spark needs Java 17" in done.stdout, done.stderr
    assert "safe in the inbox" in done.stdout
    assert "pending 1" in done.stdout
