"""Opening a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladle.clock import Clock
from ladle.engine import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def connect(
    path: str | Path,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    read_only: bool = False,
    clock: Clock | None = None,
    settings: dict[str, Any] | None = None,
) -> Database:
    """Open the warehouse at `path`, which is made if it is not there.

    Spark is started when it is first needed: locally, on `master` if one is named, or not at all when a session is given.
    One process at a time may write; with `read_only` any number may read beside it.
    """
    from ladle.pipeline.lazy import LazyPipeline

    return Database(
        path, pipeline=LazyPipeline(session=spark, master=master), read_only=read_only, clock=clock, settings=settings
    )
