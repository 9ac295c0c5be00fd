"""One Spark session for the whole run: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The machine may be busy; a slow example is not a wrong one.
settings.register_profile("ladle", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ladle")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ladle.pipeline.session import start_session

    session, _ = start_session(None)
    yield session
    session.stop()
