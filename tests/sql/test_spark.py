"""Spark accepts every text that the binder makes: those of `fixtures/plans.txt` are analysed, not run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.sql.names import Catalog

from ladle.schema import type_name
from ladle.sql import bind
from ladle.sql.ordered_aggregates import for_spark

pytestmark = pytest.mark.spark

_TEXT = (Path(__file__).parent / "fixtures" / "plans.txt").read_text(encoding="utf-8")
_QUERIES = [block.strip().split("\n")[0] for block in _TEXT.split("\n\n") if block.strip() and block[0] != "#"]


def test_spark_reads_every_plan(spark: Any) -> None:
    catalog = Catalog()
    for query in _QUERIES:
        plan = bind(query, catalog)
        if plan.functions:
            continue  # Spark knows a user's function when a residual with it is run: tests/spark/test_functions.py
        for scan in plan.scans:
            schema = catalog.streams[scan.block.stream].arrow
            columns = ", ".join(f"CAST(NULL AS {type_name(field.type)}) AS `{field.name}`" for field in schema)
            spark.sql(f"SELECT {columns}").createOrReplaceTempView("everything")
            where = " AND ".join(f"({factor.sql})" for factor in scan.block.factors) or "true"
            names = ", ".join(f"`{name}`" for name in scan.columns)
            rows = spark.sql(f"SELECT {names} FROM everything WHERE {where}")
            rows.createOrReplaceTempView(scan.relation)
        for table in plan.tables:
            found = catalog.table_schema(table.table)
            assert found is not None
            types = {column.name: type_name(column.type) for column in found[1].columns}
            columns = ", ".join(f"CAST(NULL AS {types[name]}) AS `{name}`" for name in table.columns)
            spark.sql(f"SELECT {columns}").createOrReplaceTempView(table.relation)
        arguments = {"now": datetime(2024, 1, 1, tzinfo=UTC)} if plan.residual.uses_now else None
        answer = spark.sql(for_spark(plan.residual.spark_sql), args=arguments)
        if plan.schema is not None:
            assert answer.columns == plan.schema.names, query
            spelled = [field.dataType.simpleString().upper() for field in answer.schema]
            expected = [type_name(field.type).replace(" ", "").upper() for field in plan.schema]
            assert spelled == expected, query
