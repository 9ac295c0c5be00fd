"""Defaults of columns: computed when the column is declared, and anew for each statement where they move."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from ladle import sql
from ladle.catalog import Catalog
from ladle.errors import LadleError, Unsupported
from ladle.execute.invoke import Invoker
from ladle.schema import Column, StreamSchema, TableSchema

_Schema = TypeVar("_Schema", StreamSchema, TableSchema)


class Defaults:
    """Computes the defaults of columns: once when they are declared, or anew for each statement."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    def declared(self, schema: _Schema, catalog: Catalog) -> _Schema:
        """A schema whose defaults are computed."""
        if all(column.default is None for column in schema.columns):
            return schema
        of_stream = isinstance(schema, StreamSchema)
        columns = tuple(self.column(column, catalog, of_stream=of_stream) for column in schema.columns)
        return replace(schema, columns=columns)

    def column(self, column: Column, catalog: Catalog, *, of_stream: bool) -> Column:
        """A column whose default is computed."""
        if column.default is None:
            return column
        plan = sql.default_plan(column, catalog)
        moves = plan.residual.uses_now
        if moves and of_stream:
            raise Unsupported(
                f"The default of column '{column.name}' changes with the time, and a stream's must not.",
                hint="a stream without TIMESTAMP BY has the time of arrival as ts",
            )
        value = self._invoker.answer(plan, catalog).table.column(0)
        default = column.default.with_value(pa.concat_arrays(value.chunks), moves=moves)
        if len(default.value or "") > _ENCODED_MAX:
            raise LadleError(f"The default of column '{column.name}' is too long.", hint="write a shorter one")
        return replace(column, default=default)

    def moving(self, rows: pa.Table, schema: TableSchema, catalog: Catalog) -> pa.Table:
        """Rows with the columns that they lack: those whose defaults move."""
        columns = []
        for column in schema.columns:
            if column.name in rows.column_names:
                columns.append(rows.column(column.name))
                continue
            value = self._invoker.answer(sql.default_plan(column, catalog), catalog).table.column(0)
            assert column.default is not None
            now = column.default.with_value(pa.concat_arrays(value.chunks), moves=True)
            columns.append(pa.chunked_array([now.array(column.type, len(rows))]))
        return pa.Table.from_arrays(columns, schema=schema.arrow)


_ENCODED_MAX = 1 << 16
