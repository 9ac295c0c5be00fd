"""The run's Spark session for the conformance tests, set to evaluate thousands of expressions quickly."""

from __future__ import annotations

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


_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # Thousands of expressions per query: interpreting them is many times faster than compiling them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.optimizer.excludedRules": ",".join(_RULES),
    "spark.sql.maxMetadataStringLength": "10",
    "spark.sql.debug.maxToStringFields": "5",
}


@pytest.fixture(scope="package")
def spark(spark: Any) -> Any:
    """A session of its own beside the run's: settings of one don't reach the other."""
    session = spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session
