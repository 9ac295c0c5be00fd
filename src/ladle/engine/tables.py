"""Tables: relations that SQL changes, read by queries as they stand (retroactive relations of the UPA paper).

The newest version is all rows of a table in one immutable file, durable before the log entry that names it; that entry
is the commit. A statement reads the newest version, computes the next, and commits it if the one it read is still the
newest. The one it replaces stays for subscribers, as its difference to the next (`archive/versions.py`).
Tables are meant to be small: dimension data, thresholds, lists of names.
"""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ladle import catalog as entries
from ladle import sql
from ladle.archive.tables import write_version
from ladle.archive.versions import Difference
from ladle.catalog import Catalog, Replaced, TableFile, TableState
from ladle.config import Settings
from ladle.engine.definitions import base_table, still_holds
from ladle.engine.handles import Table
from ladle.engine.invoke import Invoker
from ladle.engine.reader import Reader
from ladle.engine.rows import fitting_rows
from ladle.engine.store import Store
from ladle.errors import DamagedFile, LadleError, SqlError, unknown
from ladle.plan import Plan, TableScan
from ladle.schema import Column, TableSchema
from ladle.sql.statements import DeleteRows, InsertRows, UpdateRows

Change = InsertRows | UpdateRows | DeleteRows


@dataclass(frozen=True)
class _Next:
    """A table's next version."""

    rows: pa.Table
    """All of them."""
    changed: int
    """How many of them were inserted, changed or removed."""
    appended: bool = False
    """Whether rows were only added, behind those there were."""


_Following = Callable[[Catalog, TableState], _Next]


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

        def following(catalog: Catalog, table: TableState) -> _Next:
            match _current(change, text, bound_to, catalog, table, self._store.settings):
                case InsertRows(_, plan):
                    return self._with(catalog, table, self._answer(plan, catalog, table))
                case UpdateRows(_, plan):
                    answer = self._invoker.answer(plan, catalog).table
                    if len(answer) != table.rows:
                        raise SqlError("SET must give one value for each row.")
                    count = pc.sum(answer.columns[-1]).as_py() or 0
                    return _Next(_fitted(answer, table.schema), count)
                case DeleteRows(_, plan):
                    none = table.schema.arrow.empty_table()
                    kept = none if plan is None else self._answer(plan, catalog, table)
                    return _Next(kept, table.rows - len(kept))

        return self._change(change.table, following)

    def insert(self, name: str, rows: Any) -> int:
        """Add rows as people have them; all of them, or none if one does not fit."""

        def following(catalog: Catalog, table: TableState) -> _Next:
            return self._with(catalog, table, fitting_rows(rows, table.name, table.schema))

        return self._change(name, following)

    def forget(self, dropped: tuple[Catalog, TableState] | None) -> None:
        """Let go of the files of a table that was dropped."""
        if dropped is not None:
            after, table = dropped
            self._store.bury(after.seq, self._store.warehouse.table(table.id))

    def bury_orphans(self) -> None:
        """Files of versions that were never committed, or that nobody needs any more, and of dropped tables."""
        warehouse = self._store.warehouse
        with self._publishing:
            directories = [path for path in warehouse.tables.iterdir() if path.name.isdigit()]
            listed = [path for directory in directories for path in directory.iterdir()]
            catalog = self._store.catalog
        living = {warehouse.table(table.id): {file.name for file in table.files} for table in catalog.tables.values()}
        buried = self._store.buried
        for path in directories:
            if path not in living and path not in buried:
                self._store.bury(catalog.seq, path)
        for path in listed:
            if path.parent in living and path.name not in living[path.parent] and path not in buried:
                self._store.bury(catalog.seq, path)

    def _change(self, name: str, following: _Following) -> int:
        """Make a table's next version. Statements on one table take turns, so that none computes in vain."""
        with self._lock:
            turn = self._changing.setdefault(base_table(self._store.catalog, name).id, threading.Lock())
        with turn:
            while True:
                with self._store.pin() as catalog:
                    table = base_table(catalog, name)
                    version = following(catalog, table)
                    if not version.changed or self._commit(catalog, table, version):
                        return version.changed

    def _commit(self, catalog: Catalog, table: TableState, version: _Next) -> bool:
        """Whether the rows are the table's next version now; not if there is another by this time."""
        limit, rows = self._store.settings.table_bytes_max, version.rows
        if rows.nbytes > limit and len(rows) >= table.rows:
            raise LadleError(
                f"Table '{table.name}' would have {rows.nbytes:,} bytes; it may have {limit:,}. Nothing was changed.",
                hint="tables are for small relations: keep large ones as streams, or raise the setting table_bytes_max",
            )
        directory = self._store.warehouse.table(table.id)
        newest = before = None
        try:
            difference, comes_back = self._difference(catalog, table, version), True
        except DamagedFile:
            difference, comes_back = None, False
        with self._publishing:
            if len(rows):
                path = directory / f"{uuid.uuid4().hex[:16]}-v{table.version + 1}.parquet"
                newest = TableFile(path.name, len(rows), *write_version(path, rows))
            if difference is not None:
                path = directory / f"{uuid.uuid4().hex[:16]}-v{table.version}-difference.parquet"
                before = TableFile(path.name, *difference.write(path))
            replaced = Replaced(table.rows, before)
            keeps_from = self._keeps_from(table, replaced) if comes_back else table.version + 1

            def make_entry(current: Catalog) -> dict[str, object] | None:
                known = current.table(table.name)
                if known is None or (known.id, known.version) != (table.id, table.version):
                    return None
                return entries.set_table(table.name, self._store.clock.now_us(), newest, replaced, keeps_from)

            committed = self._store.commit(make_entry)
            if committed is None:
                for made in (newest, before):
                    if made is not None:
                        (directory / made.name).unlink()
                return False
        known = committed.table(table.name)
        living = set() if known is None else {file.name for file in known.files}
        for file in table.files:
            if file.name not in living:
                self._store.bury(committed.seq, directory / file.name)
        return True

    def _difference(self, catalog: Catalog, table: TableState, version: _Next) -> Difference | None:
        """What leads to the version that is replaced; None if its rows are the first ones of the next."""
        if version.appended:
            return None
        found = Difference.between(self._rows(catalog, table), version.rows)
        return None if found.is_prefix(table.rows) else found

    def _keeps_from(self, table: TableState, replaced: Replaced) -> int:
        """The oldest version that stays, by the limits on how many there are, and on their bytes."""
        settings = self._store.settings
        left, kept = settings.table_bytes_max, 0
        for each in reversed((*table.replaced, replaced)):
            left -= 0 if each.difference is None else each.difference.bytes
            if left < 0 or kept == settings.table_versions_max:
                break
            kept += 1
        return table.version + 1 - kept

    def _with(self, catalog: Catalog, table: TableState, more: pa.Table) -> _Next:
        return _Next(pa.concat_tables([self._rows(catalog, table), more]), len(more), appended=True)

    def _rows(self, catalog: Catalog, table: TableState) -> pa.Table:
        reader = Reader(self._store, catalog, self._store.clock.now_us())
        return reader.table(TableScan("", table.name, table.schema.names))

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
