"""What SHOW shows: small tables of what there is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ladle.access import Token
from ladle.catalog import Catalog
from ladle.catalog.dependents import queries_calling, queries_over
from ladle.clock import interval_text, to_datetime
from ladle.columns import Value, from_numpy, from_strings
from ladle.define.source_definitions import ListedSource
from ladle.ingest.clocks import idle_text, lateness_text
from ladle.schema import type_name


def streams(catalog: Catalog) -> pa.Table:
    """What SHOW STREAMS shows."""
    streams = list(catalog.streams.values())
    return columns(
        name=[stream.name for stream in streams],
        columns=[", ".join(f"{c.name} {type_name(c.type)}" for c in stream.schema.columns) for stream in streams],
        timestamp=[stream.schema.timestamp or "on arrival" for stream in streams],
        retain=["forever" if s.retain_us is None else interval_text(s.retain_us) for s in streams],
        lateness=[lateness_text(stream) if stream.event_time else "" for stream in streams],
        idle=[idle_text(stream) if stream.event_time else "" for stream in streams],
        rows=[stream.rows for stream in streams],
        epochs=[stream.epochs for stream in streams],
        quarantined=[stream.quarantine.rows if stream.quarantine else 0 for stream in streams],
    )


def tables(catalog: Catalog) -> pa.Table:
    """What SHOW TABLES shows."""
    tables = list(catalog.tables.values())
    return columns(
        name=[table.name for table in tables],
        columns=[", ".join(f"{c.name} {type_name(c.type)}" for c in table.schema.columns) for table in tables],
        rows=[table.rows for table in tables],
        bytes=[table.bytes for table in tables],
        version=[table.version for table in tables],
        queries=[len(queries_over(catalog, table.name)) for table in tables],
    )


def queries(catalog: Catalog) -> pa.Table:
    """What SHOW QUERIES shows."""
    queries = catalog.standing()
    catalog.queries.index  # noqa: B018 (binds them all at once)
    return columns(
        name=[query.name for query in queries],
        materialize=[query.materialize.value for query in queries],
        window=["broken" if query.broken is not None else query.shape.window_kinds for query in queries],
        streams=[", ".join(query.meaning.stream_list) for query in queries],
        sql=[query.sql for query in queries],
        broken=[catalog.why_broken(query) for query in queries],
    )


def sources(sources: Sequence[ListedSource]) -> pa.Table:
    """What SHOW SOURCES shows."""
    return columns(
        name=[source.name for source in sources],
        stream=[source.stream for source in sources],
        format=[source.format for source in sources],
        state=[source.state for source in sources],
        restarts=[source.restarts for source in sources],
        error=[source.error or "" for source in sources],
        options=[", ".join(f"{name} '{value}'" for name, value in source.options.items()) for source in sources],
    )


def tokens(tokens: Sequence[Token], catalog: Catalog) -> pa.Table:
    """What SHOW TOKENS shows."""
    return columns(
        name=[token.name for token in tokens],
        role=[token.role.value for token in tokens],
        created=[f"{to_datetime(token.created_us):%Y-%m-%d %H:%M:%S}" for token in tokens],
        queries=[catalog.access.owned.get(token.name.lower(), 0) for token in tokens],
    )


def grants(catalog: Catalog) -> pa.Table:
    """Queries that have an owner, and with whom they are shared; for others than their owners NULL."""
    owned = [(query, catalog.access.owner(query.name)) for query in catalog.standing()]
    shown = [(query, owner) for query, owner in owned if owner is not None]
    shared = [catalog.shared_with(query.name) for query, _ in shown]
    return columns(
        query=[query.name for query, _ in shown],
        owner=[owner for _, owner in shown],
        shared_with=[None if names is None else ", ".join(names) for names in shared],
    )


def functions(catalog: Catalog) -> pa.Table:
    """What SHOW FUNCTIONS shows."""
    functions = list(catalog.functions.values())
    return columns(
        name=[function.name for function in functions],
        arguments=[", ".join(function.arguments) for function in functions],
        returns=[type_name(function.returns) for function in functions],
        queries=[len(queries_calling(catalog, function.name)) for function in functions],
    )


def columns(**columns: list[Value]) -> pa.Table:
    """A table of lists: texts, or whole numbers."""
    arrays = [
        from_numpy(np.array(values, dtype=np.int64)) if values and isinstance(values[0], int) else from_strings(values)
        for values in columns.values()
    ]
    return pa.Table.from_arrays(arrays, names=list(columns))
