"""A second judge: Spark itself, over the oracle's raw tuples and with the same windows as predicates.

It judges the generator (both renderings must mean the same) and samples of the engine's answers. It is given a
session; nothing here imports pyspark.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.support.months import to_us
from tests.support.oracle import Oracle, difference
from tests.support.tree import ARRIVAL_NUMBER, ARRIVAL_TIME, Query, spark_type, stream_names, to_spark


class SparkJudge:
    """Compares the oracle's answers with those of a Spark session (ANSI mode, time zone UTC)."""

    def __init__(self, spark: Any, oracle: Oracle) -> None:
        self._spark = spark
        self._oracle = oracle
        self._seen: dict[str, int] = {}

    def difference(self, query: Query, wall_us: int, now: datetime | None = None) -> str | None:
        """Where Spark disagrees with the oracle, or None."""
        for name in stream_names(query):
            self._view(name)
        expected = self._oracle.answer(query, wall_us, now)
        sql = to_spark(query, self._oracle.at(stream_names(query), wall_us, None if now is None else to_us(now)))
        found = difference(self._spark.sql(sql).toArrow(), expected)
        return None if found is None else f"{found}\nSpark:  {sql}\nDuckDB: {expected.sql}"

    def _view(self, name: str) -> None:
        stream = self._oracle.streams[name]
        if self._seen.get(name) == stream.accepted:
            return
        raw = self._oracle.raw(name)
        types = {column.name: spark_type(column.type) for column in stream.spec.columns}
        types |= {ARRIVAL_NUMBER: "BIGINT", ARRIVAL_TIME: "TIMESTAMP"}
        declared = ", ".join(f"`{column}` {type_}" for column, type_ in types.items())
        frame = self._spark.createDataFrame([], declared) if raw is None else self._spark.createDataFrame(raw)
        # Spark takes Arrow's naive timestamps for zoned ones; in UTC the cast back is exact
        frame = frame.selectExpr(*(f"CAST(`{column}` AS {type_}) AS `{column}`" for column, type_ in types.items()))
        frame.coalesce(1).createOrReplaceTempView(f"raw_{name}")
        self._seen[name] = stream.accepted
