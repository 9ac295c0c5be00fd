"""The JVM dies: one of ours is replaced, one that was given is not.

Each test has a process of its own: the session that the other tests share must live.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.programs import end, start

pytestmark = pytest.mark.spark


def test_a_jvm_that_was_killed_is_replaced(tmp_path: Path) -> None:
    """Amid pushes, with a source attached, and again before an invocation."""
    program = """
import threading
with ladle.connect(sys.argv[1]) as db:
    db.sql("CREATE STREAM s (t STRING)")
    db.sql("CREATE STREAM n (n INT)")
    db.sql("CREATE STREAM r (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp")
    db.push("s", [{"t": "Robert"}], wait=True)
    codes = db.register("SELECT soundex(t) AS code FROM s", name="codes")
    source = db.attach("r", rate(db), source="rate")
    wait_until(lambda: count(db, "r") > 0)
    threading.Timer(1.0, kill_jvm).start()
    pushed = 0
    while source.state != "failed":
        try:
            db.push("n", [{"n": pushed}], wait=True)
        except PipelineError as error:
            assert "Spark's JVM is gone" in error.message, error
            assert "safe in the inbox" in error.hint, error
        pushed += 1
    assert "attach it again" in source.error, source.error
    assert db.status().sources[0].state == "failed"
    db.push("s", [{"t": "Rupert"}])           # taken in by itself, by another JVM
    wait_until(lambda: count(db, "s") == 2)
    db.push("n", [{"n": pushed}], wait=True)
    numbers = [row["n"] for row in db.sql("SELECT n FROM n").to_pylist()]
    assert numbers == list(range(pushed + 1)), numbers   # each is there once
    assert watched.figures(db.parts).spark_restarts["epochs"] == 1
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
