"""The residual of a query (everything but its standing part) over the rows of its scans, in DuckDB."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ladle.clock import to_datetime
from ladle.evaluate import duck
from ladle.plan import Plan


def run_residual(
    plan: Plan,
    relations: Mapping[str, pa.Table],
    now_us: int,
    *,
    seconds_max: float | None = None,
    memory_bytes_max: int | None = None,
    joined: bool = False,
) -> pa.Table:
    """The answer, with the types Spark would give it. `joined`: of the plan's statement over joins."""
    residual = plan.residual
    if joined:
        assert plan.joined is not None
        residual = plan.joined.residual
    assert plan.schema is not None
    if residual.projection is not None:
        (table,) = relations.values()
        if residual.keeps_names and table.schema.equals(plan.schema):
            return table
        columns = [table.column(source) for _, source in residual.projection]
        return pa.Table.from_arrays(columns, schema=plan.schema)
    assert residual.duckdb_sql is not None
    parameters = {"now": to_datetime(now_us).replace(tzinfo=None)} if residual.uses_now else None
    answer = duck.run(
        residual.duckdb_sql,
        relations,
        parameters=parameters,
        seconds_max=seconds_max,
        memory_bytes_max=memory_bytes_max,
        functions=plan.functions,
    )
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(answer.columns, plan.schema, strict=True)],
        schema=plan.schema,
    )
