"""Tables: relations that SQL changes, read by queries as they stand (retroactive relations of the UPA paper).

The newest version is all rows of a table in one immutable file, durable before the log entry that names it; that entry
is the commit. A statement reads the newest version, computes the next, and commits it if the one it read is still the
newest. The one it replaces stays for subscribers, as its difference to the next (`archive/table_versions.py`).
Tables are meant to be small: dimension data, thresholds, lists of names.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ladle import catalog as entries
from ladle import sql
from ladle.archive.table_files import write_version
from ladle.archive.table_versions import Difference
from ladle.catalog import Catalog, Replaced, TableFile, TableState
from ladle.catalog.entry_types import Entry
from ladle.catalog.store import Store
from ladle.columns import to_numpy
from ladle.config import Settings
from ladle.define.column_defaults import Defaults
from ladle.define.definitions import base_table, check_name, refuse_taken, still_holds
from ladle.define.given import fitting_rows
from ladle.errors import DamagedFile, EvaluationError, LadleError, SqlError, unknown
from ladle.execute.invoke import Invoker
from ladle.execute.reader import Reader
from ladle.handles import Table
from ladle.plan import Plan, TableRead
from ladle.schema import Column, TableSchema
from ladle.sql.statement_types import DeleteRows, InsertRows, MergeAction, MergeRows, UpdateRows
from ladle.stem.convert import with_default

Change = InsertRows | UpdateRows | DeleteRows | MergeRows


@dataclass(frozen=True)
class _Next:
    """A table's next version."""

    rows: pa.Table
    """All of them."""
    changed: int
    """How many of them were inserted, changed or removed."""
    appended: bool = False
    """Whether rows were only added, behind those there were."""
    column: Column | None = None
    """One that the table gets with them."""


_Following = Callable[[Catalog, TableState], _Next]


class Tables:
    """Changes tables: each statement makes a new version, with one log entry."""

    def __init__(self, store: Store, invoker: Invoker) -> None:
        self._store = store
        self._invoker = invoker
        self._defaults = Defaults(invoker)
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
                case MergeRows() as merge:
                    return _merged(merge, self._invoker.answer(merge.plan, catalog).table, table)

        return self._change(change.table, following)

    def create_as(self, name: str, plan: Plan, bound_to: Catalog, *, if_not_exists: bool) -> int | None:
        """Make a table of an answer's columns and rows, in one commit; how many rows, or None if it was there."""
        check_name("table", name)
        while True:
            with self._store.pin() as catalog:
                if catalog.table(name) is not None and if_not_exists:
                    return None
                refuse_taken(catalog, name, "table")
                current = (
                    plan if still_holds(plan, bound_to, catalog) else sql.rebind(plan.sql, bound_to.renewed(catalog))
                )
                answer = self._invoker.answer(current, catalog).table
                schema = TableSchema(tuple(Column(field.name, field.type) for field in answer.schema))
                if self._create(catalog, name, _fitted(answer, schema), schema):
                    return len(answer)

    def _create(self, catalog: Catalog, name: str, rows: pa.Table, schema: TableSchema) -> bool:
        """Whether the table is there now; not if another got the id that its files need."""
        self._refuse_large(name, rows)
        directory = self._store.warehouse.table(catalog.next_id)
        newest: TableFile | None = None
        with self._publishing:
            if len(rows):
                path = directory / f"{uuid.uuid4().hex[:16]}-v1.parquet"
                newest = TableFile(path.name, len(rows), *write_version(path, rows))

            def make_entry(current: Catalog) -> Entry | None:
                if current.next_id != catalog.next_id or current.table(name) is not None:
                    return None
                refuse_taken(current, name, "table")
                at_us = self._store.clock.now_us()
                if newest is None:
                    return entries.create_table(name, schema, at_us)
                return entries.create_table_as(name, schema, at_us, newest)

            committed = self._store.commit(make_entry) is not None
            if not committed and newest is not None:
                (directory / newest.name).unlink()
        return committed

    def _refuse_large(self, name: str, rows: pa.Table) -> None:
        limit = self._store.settings.table_bytes_max
        if rows.nbytes > limit:
            raise LadleError(
                f"Table '{name}' would have {rows.nbytes:,} bytes; it may have {limit:,}. Nothing was changed.",
                hint="tables are for small relations: keep large ones as streams, or raise the setting table_bytes_max",
            )

    def insert(self, name: str, rows: object) -> int:
        """Add rows as people have them; all of them, or none if one does not fit."""

        def following(catalog: Catalog, table: TableState) -> _Next:
            fitting = fitting_rows(rows, table.name, table.schema)
            return self._with(catalog, table, self._defaults.moving(fitting, table.schema, catalog))

        return self._change(name, following)

    def add_column(self, name: str, column: Column) -> None:
        """Give a table one more column; rows that are there have its default, or NULL."""
        if column.name.startswith("_") and column.name.lower().lstrip("_") == "place":
            raise LadleError(f"A table can't get a column '{column.name}' later.", hint="choose another name")

        def following(catalog: Catalog, table: TableState) -> _Next:
            own = self._defaults.column(column, catalog, of_stream=False)
            schema = table.schema.with_column(own)
            rows = self._rows(catalog, table)
            lacking = pa.nulls(len(rows), own.type)
            added = with_default(lacking, range(len(rows)), own)
            return _Next(pa.table([*rows.columns, added], schema=schema.arrow), 0, appended=True, column=own)

        self._change(name, following)

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
        # The next table's: a file of one that was never made may be there.
        living.setdefault(warehouse.table(catalog.next_id), set())
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
                    unchanged = not version.changed and version.column is None
                    if unchanged or self._commit(catalog, table, version):
                        return version.changed

    def _commit(self, catalog: Catalog, table: TableState, version: _Next) -> bool:
        """Whether the rows are the table's next version now; not if there is another by this time."""
        rows = version.rows
        if len(rows) >= table.rows:
            self._refuse_large(table.name, rows)
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

            def make_entry(current: Catalog) -> Entry | None:
                known = current.table(table.name)
                if known is None or (known.id, known.version) != (table.id, table.version):
                    return None
                entry = entries.set_table(table.name, self._store.clock.now_us(), newest, replaced, keeps_from)
                return entry if version.column is None else entries.add_table_column(version.column, entry)

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
        return reader.table(TableRead("", table.name, table.schema.names))

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
    if not isinstance(again, InsertRows | UpdateRows | DeleteRows | MergeRows):
        raise unknown("table", change.table, catalog.table_names())
    return again


def _merged(merge: MergeRows, answer: pa.Table, table: TableState) -> _Next:
    """The rows that were there in their order, as they are now, and behind them those that come."""
    actions = to_numpy(answer.column(answer.num_columns - 2).cast(pa.int64()))
    numbers = to_numpy(answer.column(answer.num_columns - 1).fill_null(-1).cast(pa.int64()))
    old, first = np.unique(numbers[numbers >= 0], return_index=True)
    places = np.flatnonzero(numbers >= 0)
    if merge.once and len(old) != len(places):
        raise EvaluationError(
            "[MERGE_CARDINALITY_VIOLATION] The ON search condition of the MERGE statement matched a single row from "
            "the target table with multiple rows of the source table. Nothing was changed.",
            hint="let the source have one row for each: GROUP BY what ON compares",
        )
    places = places[first]
    does = np.array([None, *merge.actions], dtype=object)[actions]
    stays = places[does[places] != MergeAction.DELETE]
    comes = np.flatnonzero((numbers < 0) & (actions > 0))
    changed = int(np.count_nonzero(actions[places] > 0)) + len(comes)
    rows = answer.take(pa.array(np.concatenate([stays, comes])))
    return _Next(_fitted(rows, table.schema), changed)


def _fitted(answer: pa.Table, schema: TableSchema) -> pa.Table:
    """An answer's first columns as the table's: what Spark computes has other names for parts of nested types."""
    columns = zip(answer.columns, schema.arrow, strict=False)
    return pa.Table.from_arrays([column.cast(field.type) for column, field in columns], schema=schema.arrow)


def handle_of(table: TableState) -> Table:
    """A table of a snapshot as users see it."""
    return Table(table.name, table.schema, table.rows, table.version)
