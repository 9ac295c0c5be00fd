"""The rows of tables, through the cache: the newest version, and those before it that are kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ladle.archive.table_files import groups_of
from ladle.archive.table_versions import Difference, Versions, file_schema
from ladle.catalog import TableFile, TableState
from ladle.catalog.store import Store
from ladle.plan.query import ROW


def newest_rows(store: Store, table: TableState, columns: tuple[str, ...]) -> pa.Table:
    """Some columns of a table's newest version; ROW numbers the rows."""
    if ROW in columns:
        others = newest_rows(store, table, tuple(name for name in columns if name != ROW) or table.schema.names[:1])
        numbers = pa.array(np.arange(len(others)))
        own = {name: numbers if name == ROW else others.column(name) for name in columns}
        return pa.table(own)
    schema = table.schema.arrow
    if table.file is None:
        return _fields(schema, columns).empty_table()
    return _read(store, table, TableFile(table.file, table.rows, table.bytes, table.checks), schema, columns)


def versions_of(store: Store, table: TableState, columns: tuple[str, ...]) -> Versions:
    """Some columns of all versions of a table that are kept."""
    schema = file_schema(table.schema.fields)  # rows from before a column was added have its default

    def read(version: int, following: pa.Table) -> Difference:
        replaced = table.replaced[version - table.oldest]
        if replaced.difference is None:
            return Difference.of_prefix(replaced.rows, following)
        names = (schema.names[0], *columns)
        return Difference.from_columns(_read(store, table, replaced.difference, schema, names))

    return Versions(newest_rows(store, table, columns), table.version, read)


def _read(store: Store, table: TableState, file: TableFile, schema: pa.Schema, names: tuple[str, ...]) -> pa.Table:
    directory, read = store.warehouse.table(table.id), store.cache.columns
    groups = [read(directory, file.name, group, names, schema, checks=file.checks) for group in groups_of(file.rows)]
    columns = [pa.chunked_array([column.array for column in parts]) for parts in zip(*groups, strict=True)]
    return pa.Table.from_arrays(columns, schema=_fields(schema, names))


def _fields(schema: pa.Schema, names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])
