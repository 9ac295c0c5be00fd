"""The residual of a query (everything but its standing part) over the rows of its scans, in DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa

from ladle.clock import to_datetime
from ladle.evaluate import duck
from ladle.plan import Plan
from ladle.plan.answering import Folding
from ladle.plan.as_of import NOW, Nows


def run_residual(
    plan: Plan,
    relations: Mapping[str, pa.Table],
    nows: Nows,
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
    given = parameters(residual.duckdb_sql, nows, uses_now=residual.uses_now)
    return _run(plan, residual.duckdb_sql, relations, given, seconds_max, memory_bytes_max, in_order)


def run_above(
    plan: Plan,
    folding: Folding,
    relations: Mapping[str, pa.Table],
    nows: Nows,
    *,
    seconds_max: float | None = None,
    memory_bytes_max: int | None = None,
    in_order: bool = False,
) -> pa.Table:
    """Run the rest of a query over the rows of nodes that are given: the statement above them."""
    assert folding.above is not None
    given = parameters(folding.above, nows, uses_now=folding.uses_now)
    return _run(plan, folding.above, relations, given, seconds_max, memory_bytes_max, in_order)


def parameters(text: str, nows: Nows, *, uses_now: bool) -> dict[str, datetime | None]:
    """The parameters that a text of DuckDB has, and no others: NULL where NOW is undefined."""
    return {
        name: None if us is None else to_datetime(us).replace(tzinfo=None)
        for name, us in nows.items()
        if (uses_now if name == NOW else f"${name}" in text)
    }


def _run(
    plan: Plan,
    sql: str,
    relations: Mapping[str, pa.Table],
    given: Mapping[str, object],
    seconds_max: float | None,
    memory_bytes_max: int | None,
    in_order: bool,
) -> pa.Table:
    assert plan.schema is not None
    answer = duck.run(
        sql,
        relations,
        parameters=given,
        seconds_max=seconds_max,
        memory_bytes_max=memory_bytes_max,
        in_order=in_order,
        functions=plan.called,
    )
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(answer.columns, plan.schema, strict=True)],
        schema=plan.schema,
    )
