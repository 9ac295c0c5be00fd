"""What only Spark runs is shown to Spark before it stands: bad SQL fails at register, not at three in the morning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from ladle import sql
from ladle.catalog import Catalog
from ladle.pipeline import Pipeline
from ladle.plan import Engine, Plan


def analysed(plan: Plan, catalog: Catalog, pipeline: Callable[[], Pipeline], seconds_max: float) -> Plan:
    """The plan with its answer's schema, which Spark tells of a plan that it alone runs; or Spark's error."""
    if plan.schema is not None or plan.residual.engine is not Engine.SPARK:
        return plan
    relations = {}
    for scan in plan.scans:
        stream = catalog.stream(scan.block.stream)
        assert stream is not None, f"stream {scan.block.stream} of a bound plan"
        relations[scan.relation] = pa.schema([stream.schema.arrow.field(name) for name in scan.columns])
    for each in plan.tables:
        table = catalog.table(each.table)
        assert table is not None, f"table {each.table} of a bound plan"
        relations[each.relation] = pa.schema([table.schema.arrow.field(name) for name in each.columns])
    return replace(plan, schema=pipeline().analyse(plan, relations, seconds_max))


def bound_again(plan: Plan, catalog: Catalog) -> Plan:
    """The plan over queries that were replaced by others with the same columns, so that its own are the same too."""
    bound = sql.rebind(plan.sql, catalog)
    return bound if bound.schema is not None else replace(bound, schema=plan.schema)
