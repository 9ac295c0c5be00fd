"""One Spark session for the whole run: starting one takes longer than most tests.

With LADLE_RESIDUAL_ROWS_MAX=1 every test that computes answers does so through it (`make onspark`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from ladle.testing.one_row import AT_ONE_ROW, Residuals, at_one_row, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The machine may be busy; a slow example is not a wrong one.
settings.register_profile(
    "ladle", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=at_one_row(10, 100)
)
settings.load_profile("ladle")

RESIDUALS = Residuals()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ladle.pipeline.session import start_session

    session, _ = start_session(None)
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=AT_ONE_ROW)
def residuals_on_spark(spark: SparkSession) -> Iterator[None]:
    """The session is there before the first residual, and each is counted."""
    with counted(RESIDUALS):
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("not_at_one_row")
        if AT_ONE_ROW and marker is not None:
            item.add_marker(pytest.mark.skip(reason=marker.args[0]))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if AT_ONE_ROW and RESIDUALS.problem and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if AT_ONE_ROW:
        terminalreporter.write_line(str(RESIDUALS))
        if RESIDUALS.problem:
            terminalreporter.write_line(f"FAILED: {RESIDUALS.problem}", red=True)
