"""Tables: relations that SQL changes, read by queries as they stand (retroactive relations of the UPA paper).

A version is all rows of a table in one immutable file, durable before the log entry that names it; that entry is the
commit. A statement reads the newest version, computes the next, and commits it if the one it read is still the newest.
Tables are meant to be small: dimension data, thresholds, lists of names.
"""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ladle import catalog as entries
from ladle import sql
from ladle.archive.tables import write_version
from ladle.catalog import Catalog, TableState
from ladle.config import Settings
from ladle.engine.definitions import base_table, still_holds
from ladle.engine.handles import Table
from ladle.engine.invoke import Invoker
from ladle.engine.reader import Reader
from ladle.engine.rows import fitting_rows
from ladle.engine.store import Store
from ladle.errors import LadleError, SqlError, unknown
from ladle.plan import Plan, TableScan
from ladle.schema import Column, TableSchema
from ladle.sql.statements import DeleteRows, InsertRows, UpdateRows

Change = InsertRows | UpdateRows | DeleteRows

_Next = Callable[[Catalog, TableState], tuple[pa.Table, int]]
"""All rows of a table's next version, and how many of them were inserted, changed or removed."""


class Tables:
    def __init__(self, store: Store, invoker: Invoker) -> None:
        self._store = store
        self._invoker = invoker
        self._lock = threading.Lock()
        self._changing: dict[int, threading.Lock] = {}
        self._publishing = threading.Lock()
        """Held from the moment a version's file is begun until it is committed: no other file is an orphan."""

    def run(self, change: Change, text: str, bound_to: Catalog) -> int:
        """Carry out a statement that was bound to a catalog; how many rows it inserted, changed or removed."""

        def following(catalog: Catalog, table: TableState) -> tuple[pa.Table, int]:
            match _current(change, text, bound_to, catalog, table, self._store.settings):
                case InsertRows(_, plan):
                    return self._with(catalog, table, self._answer(plan, catalog, table))
                case UpdateRows(_, plan):
                    answer = self._invoker.answer(plan, catalog).table
                    if len(answer) != table.rows:
                        raise SqlError("SET must give one value for each row.")
                    count = pc.sum(answer.columns[-1]).as_py() or 0
                    return _fitted(answer, table.schema), count
                case DeleteRows(_, plan):
                    none = table.schema.arrow.empty_table()
                    kept = none if plan is None else self._answer(plan, catalog, table)
                    return kept, table.rows - len(kept)

        return self._change(change.table, following)

    def insert(self, name: str, rows: Any) -> int:
        """Add rows as people have them; all of them, or none if one does not fit."""

        def following(catalog: Catalog, table: TableState) -> tuple[pa.Table, int]:
            return self._with(catalog, table, fitting_rows(rows, table.name, table.schema))

        return self._change(name, following)

    def forget(self, dropped: tuple[Catalog, TableState] | None) -> None:
        """Let go of the files of a table that was dropped."""
        if dropped is not None:
            after, table = dropped
            self._store.bury(after.seq, self._store.warehouse.table(table.id))

    def bury_orphans(self) -> None:
        """Files of versions that were never committed, or were replaced before a restart, and of dropped tables."""
        warehouse = self._store.warehouse
        with self._publishing:
            directories = [path for path in warehouse.tables.iterdir() if path.name.isdigit()]
            listed = [path for directory in directories for path in directory.iterdir()]
            catalog = self._store.catalog
        living = {warehouse.table(table.id): table.file for table in catalog.tables.values()}
        buried = self._store.buried
        for path in directories:
            if path not in living and path not in buried:
                self._store.bury(catalog.seq, path)
        for path in listed:
            if path.parent in living and path.name != living[path.parent] and path not in buried:
                self._store.bury(catalog.seq, path)

    def _change(self, name: str, following: _Next) -> int:
        """Make a table's next version. Statements on one table take turns, so that none computes in vain."""
        with self._lock:
            turn = self._changing.setdefault(base_table(self._store.catalog, name).id, threading.Lock())
        with turn:
            while True:
                with self._store.pin() as catalog:
                    table = base_table(catalog, name)
                    rows, count = following(catalog, table)
                    if not count or self._commit(table, rows):
                        return count

    def _commit(self, table: TableState, rows: pa.Table) -> bool:
        """Whether the rows are the table's next version now; not if there is another by this time."""
        limit = self._store.settings.table_bytes_max
        if rows.nbytes > limit and len(rows) >= table.rows:
            raise LadleError(
                f"Table '{table.name}' would have {rows.nbytes:,} bytes; it may have {limit:,}. Nothing was changed.",
                hint="tables are for small relations: keep large ones as streams, or raise the setting table_bytes_max",
            )

        def make_entry(catalog: Catalog) -> dict[str, object] | None:
            newest = catalog.table(table.name)
            if newest is None or (newest.id, newest.version) != (table.id, table.version):
                return None
            return entries.set_table(table.name, self._store.clock.now_us(), file, len(rows), size, checks)

        directory = self._store.warehouse.table(table.id)
        file, size, checks = None, 0, None
        with self._publishing:
            if len(rows):
                file = f"{uuid.uuid4().hex[:16]}-v{table.version + 1}.parquet"
                size, checks = write_version(directory / file, rows)
            committed = self._store.commit(make_entry)
            if committed is None and file is not None:
                (directory / file).unlink()
        if committed is not None and table.file is not None:
            self._store.bury(committed.seq, directory / table.file)
        return committed is not None

    def _with(self, catalog: Catalog, table: TableState, more: pa.Table) -> tuple[pa.Table, int]:
        reader = Reader(self._store, catalog, self._store.clock.now_us())
        rows = reader.table(TableScan("", table.name, table.schema.names))
        return pa.concat_tables([rows, more]), len(more)

    def _answer(self, plan: Plan, catalog: Catalog, table: TableState) -> pa.Table:
        return _fitted(self._invoker.answer(plan, catalog).table, table.schema)


def _current(
    change: Change, text: str, bound_to: Catalog, catalog: Catalog, table: TableState, settings: Settings
) -> Change:
    """The statement as it is bound to what there is now."""
    before = bound_to.table(change.table)
    same = before is not None and before.id == table.id
    if same and (change.plan is None or still_holds(change.plan, bound_to, catalog)):
        return change
    again = sql.parse_one(text, bound_to.renewed(catalog), settings)
    if not isinstance(again, InsertRows | UpdateRows | DeleteRows):
        raise unknown("table", change.table, catalog.table_names())
    return again


def _fitted(answer: pa.Table, schema: TableSchema) -> pa.Table:
    """An answer's first columns as the table's: what Spark computes has other names for parts of nested types."""
    columns = zip(answer.columns, schema.arrow, strict=False)
    return pa.Table.from_arrays([column.cast(field.type) for column, field in columns], schema=schema.arrow)


def handle_of(table: TableState) -> Table:
    return Table(table.name, table.schema, table.rows, table.version)


class TableMaker(ABC):
    """`create_table` as people call it, on a database here or through the process that holds it."""

    def create_table(self, name: str, columns: Mapping[str, str], *, if_not_exists: bool = False) -> bool:
        """Make a table with columns of these types, as SQL writes them. Whether it is new."""
        schema = TableSchema(tuple(Column(column, sql.parse_type(type_)) for column, type_ in columns.items()))
        return self.define_table(name, schema, if_not_exists=if_not_exists)

    @abstractmethod
    def define_table(self, name: str, schema: TableSchema, *, if_not_exists: bool) -> bool: ...
