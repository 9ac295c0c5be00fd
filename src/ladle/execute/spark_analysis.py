"""What only Spark runs is shown to Spark before it stands: bad SQL fails at register, not at three in the morning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from ladle import catalog as entries
from ladle import sql
from ladle.catalog import Catalog, NewQuery, QueryState
from ladle.catalog.queries import told_schema
from ladle.errors import LadleError
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


def readers_wanted(catalog: Catalog, names: Iterable[str], created_us: int) -> list[NewQuery]:
    """Queries as they follow what they read, each after those that it reads."""
    found: list[NewQuery] = []
    for query in sorted((catalog.queries[name.lower()] for name in names), key=lambda query: (query.level, query.id)):
        wanted = renewed(query, catalog)
        catalog = catalog.apply(catalog.seq + 1, entries.register([wanted], created_us, replacing=True))
        found.append(wanted)
    return found


def renewed(query: QueryState, catalog: Catalog) -> NewQuery:
    """A query as it follows what it reads, of which a catalog has something new. Its text and the columns of streams
    stay what they were.
    """
    meaning = query.meaning.renewed(catalog)
    wanted = NewQuery(query.name, query.sql, meaning, query.materialize, query.told)
    try:
        plan = sql.rebind(query.sql, meaning)
    except LadleError:
        if query.broken is None:
            raise
        return wanted  # it stays what it is: broken
    return wanted._replace(plan=plan if plan.schema is not None else replace(plan, schema=told_schema(query.told)))
