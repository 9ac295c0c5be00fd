"""The residual of a query (everything but its standing part) over the rows of its scans, in DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa

from ladle.clock import to_datetime
from ladle.evaluate import duck
from ladle.plan import Plan
from ladle.plan.answering import Folding


def run_residual(
    plan: Plan,
    relations: Mapping[str, pa.Table],
    now_us: int | None,
    *,
    seconds_max: float | None = None,
    memory_bytes_max: int | None = None,
    joined: bool = False,
    in_order: bool = False,
) -> pa.Table:
    """The answer, with the types Spark would give it. `joined`: of the plan's statement over joins. `in_order`: on one
    thread, so that the same rows give the same answer bit for bit.
    """
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
    now = now_parameter(now_us) if residual.uses_now else None
    return _run(plan, residual.duckdb_sql, relations, now, seconds_max, memory_bytes_max, in_order)


def run_above(
    plan: Plan,
    folding: Folding,
    relations: Mapping[str, pa.Table],
    now_us: int | None,
    *,
    seconds_max: float | None = None,
    memory_bytes_max: int | None = None,
    in_order: bool = False,
) -> pa.Table:
    """Run the rest of a query over the rows of nodes that are given: the statement above them."""
    assert folding.above is not None
    now = now_parameter(now_us) if folding.uses_now else None
    return _run(plan, folding.above, relations, now, seconds_max, memory_bytes_max, in_order)


def now_parameter(now_us: int | None) -> dict[str, datetime | None]:
    """NOW as DuckDB is given it: NULL while it is undefined."""
    return {"now": None if now_us is None else to_datetime(now_us).replace(tzinfo=None)}


def _run(
    plan: Plan,
    sql: str,
    relations: Mapping[str, pa.Table],
    parameters: Mapping[str, object] | None,
    seconds_max: float | None,
    memory_bytes_max: int | None,
    in_order: bool,
) -> pa.Table:
    assert plan.schema is not None
    answer = duck.run(
        sql,
        relations,
        parameters=parameters,
        seconds_max=seconds_max,
        memory_bytes_max=memory_bytes_max,
        in_order=in_order,
        functions=plan.called,
    )
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(answer.columns, plan.schema, strict=True)],
        schema=plan.schema,
    )
