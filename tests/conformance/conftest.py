"""One local Spark session for the conformance tests, with UTC and ANSI mode as the pipeline sets them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# Rules that only make plans faster: without them expressions are evaluated as they stand, and planning is faster.
_RULES = [
    f"org.apache.spark.sql.catalyst.optimizer.{name}"
    for name in (
        "InferFiltersFromConstraints", "PruneFilters", "SimplifyCasts", "CollapseProject",
        "NullPropagation", "OptimizeIn", "BooleanSimplification", "SimplifyConditionals", "SimplifyBinaryComparison",
        "LikeSimplification", "PushFoldableIntoBranches", "UnwrapCastInBinaryComparison", "ReorderAssociativeOperator",
        "ColumnPruning", "FoldablePropagation",
    )
]  # fmt: skip


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("conformance")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        # Thousands of expressions per query: interpreting them is many times faster than compiling them.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.optimizer.excludedRules", ",".join(_RULES))
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.maxMetadataStringLength", "10")
        .config("spark.sql.debug.maxToStringFields", "5")
        .getOrCreate()
    )
    yield session
    session.stop()
