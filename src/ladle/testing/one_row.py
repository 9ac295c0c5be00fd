"""The suite with `residual_rows_max` at one row: what DuckDB runs otherwise goes to Spark, and both are counted.

    LADLE_RESIDUAL_ROWS_MAX=1 pytest tests/engine tests/oracle

A pipeline of tests that has no Spark of its own borrows this process's session. Answers cost many times what they do
otherwise, so tests that ask thousands of random questions ask fewer here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar
from unittest.mock import patch

import pyarrow as pa

from ladle.config import Settings, SparkStart
from ladle.evaluate import run_residual
from ladle.pipeline import Pipeline
from ladle.plan import Engine, Plan

T = TypeVar("T")

AT_ONE_ROW = Settings.load().residual_rows_max == 1


def at_one_row(few: T, otherwise: T) -> T:
    """How much of something a test does: `few` where every answer costs a Spark job."""
    return few if AT_ONE_ROW else otherwise


@cache
def borrowed_spark() -> Pipeline:
    """This process's Spark session for residuals, where they can be counted; started if there is none."""
    from ladle.pipeline.lazy import LazyPipeline
    from ladle.pipeline.spark_session import start_session

    session, _ = start_session(SparkStart())
    return LazyPipeline(session=session, start=SparkStart())


@dataclass
class ResidualCounts:
    """What ran the residuals of a run."""

    on_spark: int = 0
    in_duckdb: int = 0
    strays: list[str] = field(default_factory=list)
    """Queries whose residual DuckDB ran over more than one row, against the setting."""

    @property
    def problem(self) -> str | None:
        """What speaks against the run: residuals that did not run on Spark; None if nothing does."""
        if self.strays:
            return f"DuckDB ran residuals over more than one row: {'; '.join(sorted(set(self.strays))[:5])}"
        return None if self.on_spark else "no residual ran on Spark, so this run shows nothing about it"

    def add(self, other: ResidualCounts) -> None:
        """What another process ran of the same tests."""
        self.on_spark += other.on_spark
        self.in_duckdb += other.in_duckdb
        self.strays += other.strays

    def __str__(self) -> str:
        return f"residuals: {self.on_spark} on Spark, {self.in_duckdb} over at most one row in DuckDB"


@contextmanager
def counted(residuals: ResidualCounts) -> Iterator[None]:
    """Count the residuals of every database in this process, whatever its pipeline."""
    from ladle.pipeline.spark import SparkPipeline

    lock = threading.Lock()
    run_in_duckdb: Callable[..., pa.Table] = run_residual
    run_on_spark: Callable[..., pa.Table] = SparkPipeline.run_residual

    def on_spark(pipeline: SparkPipeline, plan: Plan, *args: object) -> pa.Table:
        if plan.residual.engine is Engine.DUCKDB:  # what only Spark can run goes there with any setting
            with lock:
                residuals.on_spark += 1
        return run_on_spark(pipeline, plan, *args)

    def in_duckdb(plan: Plan, relations: Mapping[str, pa.Table], *args: object, **options: object) -> pa.Table:
        if plan.residual.engine is Engine.DUCKDB:
            with lock:
                residuals.in_duckdb += 1
                if sum(map(len, relations.values())) > 1:
                    residuals.strays.append(plan.sql)
        return run_in_duckdb(plan, relations, *args, **options)

    spark = patch.object(SparkPipeline, "run_residual", on_spark)
    with spark, patch("ladle.execute.invoke.run_residual", in_duckdb):
        yield
