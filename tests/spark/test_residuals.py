"""Residuals that never end on some row: they are stopped, and no epoch and no other query is harmed.

Each test has a process of its own, because only a Spark that Ladle started has a process for residuals.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.programs import end, start

pytestmark = pytest.mark.spark

HEAD = r"""
import threading
from ladle.errors import InvocationTimeout, LadleError

BACKTRACKS = r"RLIKE '^(a|aa)+\\1c$'"      # more ways to match a hundred a's than anybody can try

def stopped(what):
    begin = time.monotonic()
    try:
        what()
    except InvocationTimeout as error:
        assert "took longer than 6 s and was stopped" in error.message, error
        return time.monotonic() - begin
    raise AssertionError("it ended")

def codes(db):
    return [row["c"] for row in db.sql("SELECT soundex(t) AS c FROM s WHERE t LIKE 'R%'").to_pylist()]

def java():
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_java(pid)]

def is_java(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
        return name == "java" and int(rest.split()[3]) == os.getsid(0) and rest.split()[0] != "Z"
    except OSError:
        return False
"""


def test_what_never_ends_harms_nobody(tmp_path: Path) -> None:
    """On a row, and in a constant that Spark computes before there are rows; epochs and other residuals go on."""
    program = r"""
with ladle.connect(sys.argv[1], settings={"invoke_seconds_max": 6.0}) as db:
    db.sql("CREATE STREAM s (t STRING)")
    db.push("s", [{"t": "a" * 100 + "b"}, {"t": "Robert"}, {"t": "Rupert"}], wait=True)
    assert codes(db) == ["R163", "R163"]
    asked, pushes, problems = [], [], []
    done = threading.Event()

    def go_on(what, seconds):
        try:
            while not done.is_set():
                begin = time.monotonic()
                what()
                seconds.append(time.monotonic() - begin)
                time.sleep(0.2)
        except BaseException as error:
            problems.append(error)

    def ask():
        assert codes(db) == ["R163", "R163"]

    threads = [
        threading.Thread(target=go_on, args=(ask, asked)),
        threading.Thread(target=go_on, args=(lambda: db.push("s", [{"t": "x"}], wait=True), pushes)),
    ]
    for thread in threads:
        thread.start()
    stopped(lambda: db.sql(f"SELECT count(*) AS c FROM s WHERE t {BACKTRACKS}"))
    stopped(lambda: db.register(f"SELECT t, repeat('a', 100) {BACKTRACKS} AS x FROM s", name="q"))
    done.set()
    for thread in threads:
        thread.join()
    assert not problems, problems
    assert db.queries() == []
    assert codes(db) == ["R163", "R163"]
    wait_until(lambda: len(java()) == 2)  # one that was killed is seen for a moment
    print(len(asked) > 5, len(pushes) > 5, max(pushes) < 5, len(java()))
wait_until(lambda: len(java()) == 1)
print(len(java()))  # the epochs' serves the whole process
"""
    out, err = end(start(HEAD + program, tmp_path / "warehouse"))
    assert out.split() == ["True", "True", "True", "2", "1"], (out, err)
    assert "Traceback" not in err


def test_its_jvm_dies(tmp_path: Path) -> None:
    """A reader needs no other JVM than that of residuals, and gets another when it is killed."""
    program = r"""
with ladle.connect(sys.argv[1]) as db:
    db.sql("CREATE STREAM s (t STRING)")
    db.push("s", [{"t": "Robert"}], wait=True)
epochs = set(java())

def residuals():
    wait_until(lambda: len(set(java()) - epochs) == 1)
    pid, = set(java()) - epochs
    return pid

with ladle.connect(sys.argv[1], read_only=True) as db:
    assert codes(db) == ["R163"]
    first = residuals()
    os.kill(first, signal.SIGKILL)
    assert codes(db) == ["R163"]
    second = residuals()
    threading.Timer(1.0, lambda: os.kill(second, signal.SIGKILL)).start()
    deadline = time.monotonic() + 20
    while second in java() and time.monotonic() < deadline:
        assert codes(db) == ["R163"]
    assert codes(db) == ["R163"]
    assert second not in java()
    assert watched.figures(db.parts).spark_restarts == {"epochs": 0, "residuals": 2}
    try:
        db.sql("SELECT soundex(t) / 0 AS c FROM s")
    except LadleError as error:
        print(error.code)
    residuals()
try:
    codes(db)
except LadleError as error:
    wait_until(lambda: set(java()) == epochs)
    print(error.code, set(java()) == epochs)
os.environ.pop("JAVA_HOME", None)
os.environ["PATH"] = "/nowhere"
with ladle.connect(sys.argv[1], read_only=True) as db:
    try:
        codes(db)
    except PipelineError as error:
        print(error.message)
"""
    out, err = end(start(HEAD + program, tmp_path / "warehouse"))
    no_java = "Spark needs Java 17 or newer, and none was found."
    assert out.splitlines() == ["evaluation", "closed True", no_java], (out, err)
    assert "Traceback" not in err
