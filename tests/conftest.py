"""One Spark session for the whole run: starting one takes longer than most tests.

With LADLE_RESIDUAL_ROWS_MAX=1 every test that computes answers does so through it (`make onspark`).
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from ladle.testing.one_row import AT_ONE_ROW, ResidualCounts, at_one_row, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The machine may be busy; a slow example is not a wrong one.
settings.register_profile(
    "ladle", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=at_one_row(10, 100)
)
settings.load_profile("ladle")

# Warehouses of tests are small and soon gone: in memory, where there is room, their thousands of fsyncs cost nothing.
# What is killed here is a process, never the machine.
MEMORY = "/dev/shm"
if "TMPDIR" not in os.environ and os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free >= 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

# JVMs of tests live for seconds or minutes: what is compiled best and collected in parallel is compiled in vain.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for jvms in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(jvms, QUICK_START)

RESIDUALS = ResidualCounts()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ladle.config import SparkStart
    from ladle.pipeline.spark_session import let_go, start_session

    session, _ = start_session(SparkStart())
    gateway = session.sparkContext._gateway
    yield session
    # Stopped in order it would wait, for a minute and more, for what tests of endless queries left behind.
    let_go(gateway)


@pytest.fixture(scope="session", autouse=AT_ONE_ROW)
def residuals_on_spark(spark: SparkSession) -> Iterator[None]:
    """The session is there before the first residual, and each is counted."""
    with counted(RESIDUALS):
        yield


LONGEST = (
    "tests/oracle/test_machine.py",
    "tests/spark/test_residuals.py",
    "tests/spark/test_control_c.py",
    "tests/spark/test_faults.py",
    "tests/spark/test_jvm.py",
    "tests/demo/test_run.py",
    "tests/server/test_console.py",
    "tests/conformance/test_list.py",
    "tests/faults/test_kill.py",
    "tests/oracle/test_joins.py",
    "tests/sql/test_ranges.py",
    "tests/engine/test_trouble.py",
    "tests/oracle/test_derived.py",
    "tests/faults/test_backup.py",
    "tests/engine/test_as_of.py",
    "tests/spark/test_functions.py",
    "tests/oracle/test_aggregates.py",
    "tests/bench/test_quick.py",
)
"""Files that are begun first, so that no run ends with one process waiting for another."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {file: number for number, file in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))
    for item in items:
        marker = item.get_closest_marker("not_at_one_row")
        if AT_ONE_ROW and marker is not None:
            item.add_marker(pytest.mark.skip(reason=marker.args[0]))


def pytest_collection_finish() -> None:
    """What is there now stays to the end: the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of several processes of this run has ended: what it counted is added to what the others did."""
    if AT_ONE_ROW:
        RESIDUALS.add(ResidualCounts(**getattr(node, "workeroutput", {}).get("residuals", {})))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    gc.unfreeze()  # extension modules complain at exit about what is never let go of
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["residuals"] = asdict(RESIDUALS)
    elif AT_ONE_ROW and RESIDUALS.problem and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if AT_ONE_ROW:
        terminalreporter.write_line(str(RESIDUALS))
        if RESIDUALS.problem:
            terminalreporter.write_line(f"FAILED: {RESIDUALS.problem}", red=True)
