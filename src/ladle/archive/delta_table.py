"""A stream's archive as a Delta table over the same files, so that any tool can open it.

The table is derived: it follows the log, may lag, and is rebuilt from the log when it is missing or
unreadable. Each of its commits carries the log position as the version of an application transaction.
Nothing in Ladle reads it.

Statistics are stated for the tuples' time only. It is never NULL and always has bounds; where some column of
a file has none (floats with NaN, all NULLs, binary, a column the file is older than),
`DeltaTable.to_pyarrow_dataset` compares with NULL and skips the file. Other columns are pruned by the row
groups' own statistics.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ladle.archive.files import storage_error
from ladle.archive.segments import DataFile
from ladle.clock import to_datetime, to_us
from ladle.errors import WarehouseError
from ladle.json_values import JsonObject
from ladle.schema import quoted

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction

logger = logging.getLogger(__name__)

# A commit a second would leave millions of files at Delta's default of 30 days, and Ladle deletes what it
# compacted anyway, so that travelling further back could not work.
_CONFIGURATION = {"delta.logRetentionDuration": "interval 1 hours", "delta.enableExpiredLogCleanup": "true"}
_US_MIN, _US_MAX = to_us(datetime.min), to_us(datetime.max)


class DeltaFollower:
    """Keeps one stream's Delta table. Used by the one process that writes the warehouse, from one thread."""

    def __init__(self, root: Path, app_id: str = "ladle", *, ts_column: str | None = None) -> None:
        """`ts_column` holds the tuples' time: other tools then skip files by it."""
        self._root = root
        self._app_id = app_id
        self._ts_column = ts_column
        self._table: DeltaTable | None = None
        self._columns: list[str] = []
        # The table's live files by name; None for those added by an earlier process.
        self._live: dict[str, DataFile | None] = {}
        self._position = 0
        self._followed = False

    def position(self) -> int:
        """The log position the table shows; 0 without a table.

        A position that changed no file of this stream is not committed, only remembered: after a restart an
        older one comes back, and following from there finds nothing to do.
        """
        self._look()
        return self._position

    def follow(self, seq: int, schema: pa.Schema, files: Sequence[DataFile]) -> None:
        """Make the table's files those of the log at `seq`."""
        self._look()
        # Only a call that came late is ignored; at first sight a table ahead of the log means that the log
        # was put back to a backup, and the table goes back with it.
        if self._followed and seq < self._position:
            return
        wanted = {file.name: file for file in files}
        from deltalake.exceptions import DeltaError

        try:
            if self._table is None:
                self._table = self._create(seq, schema, files)
            self._add_columns(self._table, schema)
            self._replace_files(self._table, seq, schema, wanted)
        except (DeltaError, OSError) as error:
            self._table = None
            raise self._failed(error) from error
        self._live = dict(wanted)
        self._position = seq
        self._followed = True

    def _look(self) -> None:
        """Read the table at the first look, or when somebody else deleted or changed it since the last."""
        if self._table is None:
            changed = True
        else:
            following = self._table.version() + 1
            changed = self._commit_path(following).exists() or not self._commit_path(following - 1).exists()
        if not changed:
            return
        self._table, self._columns, self._live, self._position = None, [], {}, 0
        log = self._root / "_delta_log"
        if not log.exists():
            return
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(self._root)
            names = table.get_add_actions().column("path").to_pylist()
            self._position = table.transaction_version(self._app_id) or 0
        except DeltaError as error:
            logger.warning("the Delta table at %s can't be read and is rebuilt from the log: %s", self._root, error)
            try:
                shutil.rmtree(log)
            except OSError as trouble:
                raise storage_error(trouble, log, "delete") from trouble
            return
        except OSError as error:
            raise self._failed(error) from error
        self._table = table
        self._columns = [field.name for field in table.schema().fields]
        self._live = dict.fromkeys(names)

    def _commit_path(self, version: int) -> Path:
        return self._root / "_delta_log" / f"{version:020d}.json"

    def _create(self, seq: int, schema: pa.Schema, files: Sequence[DataFile]) -> DeltaTable:
        from deltalake import DeltaTable, Schema
        from deltalake.transaction import create_table_with_add_actions

        # deltalake sees that a table needs the feature `timestampNtz` by its plain columns only. Where just a
        # nested one needs it, that column is added after the feature, and the files after the column.
        plain = [field for field in schema if not pa.types.is_nested(field.type)]
        hidden = not any(_has_ntz(field.type) for field in plain)
        fields = [field for field in schema if not (hidden and _has_ntz(field.type))]
        complete = len(fields) == len(schema)
        skipping = "" if self._ts_column is None else quoted(self._ts_column)
        self._root.mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(
            str(self._root),
            Schema.from_arrow(pa.schema(fields)),
            [self._add(file, schema, data_change=True) for file in files] if complete else [],
            configuration=_CONFIGURATION | {"delta.dataSkippingStatsColumns": skipping},
            commit_properties=self._commit_at(seq) if complete else None,
        )
        self._columns = [field.name for field in fields]
        if complete:
            self._live = {file.name: file for file in files}
            self._position = seq
        return DeltaTable(self._root)

    def _add_columns(self, table: DeltaTable, schema: pa.Schema) -> None:
        new = [field for field in schema if field.name not in self._columns]
        if not new:
            return
        from deltalake import Schema, TableFeatures

        # No position with these commits: the files that belong to it follow in the next.
        if any(_has_ntz(field.type) for field in new) and "timestampNtz" not in _features(table):
            ntz = TableFeatures.TimestampWithoutTimezone
            table.alter.add_feature(ntz, allow_protocol_versions_increase=True)
        table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
        self._columns = [*self._columns, *(field.name for field in new)]

    def _replace_files(self, table: DeltaTable, seq: int, schema: pa.Schema, wanted: dict[str, DataFile]) -> None:
        added = [file for name, file in wanted.items() if name not in self._live]
        removed = {name: file for name, file in self._live.items() if name not in wanted}
        if not added and not removed and seq >= self._position:
            return
        from deltalake.transaction import RemoveAction

        rewritten = _rewritten(added, [file for file in removed.values() if file is not None])
        actions: list[AddAction | RemoveAction] = [
            self._add(file, schema, data_change=file.name not in rewritten) for file in added
        ]
        now_ms = time.time_ns() // 1_000_000
        actions += [
            RemoveAction(name, name not in rewritten, now_ms, file.bytes if file else None, {})
            for name, file in removed.items()
        ]
        table.create_write_transaction(actions, "append", schema, commit_properties=self._commit_at(seq))

    def _add(self, file: DataFile, schema: pa.Schema, *, data_change: bool) -> AddAction:
        from deltalake.transaction import AddAction

        stats: JsonObject = {"numRecords": file.rows}
        if self._ts_column is not None:
            zone = "Z" if schema.field(self._ts_column).type.tz else ""
            stats["minValues"] = {self._ts_column: _moment(file.ts_min_us) + zone}
            stats["maxValues"] = {self._ts_column: _moment(file.ts_max_us) + zone}
            stats["nullCount"] = {self._ts_column: 0}
        now_ms = time.time_ns() // 1_000_000
        return AddAction(file.name, file.bytes, {}, now_ms, data_change, json.dumps(stats))

    def _commit_at(self, seq: int) -> CommitProperties:
        from deltalake.transaction import CommitProperties, Transaction

        return CommitProperties(app_transactions=[Transaction(self._app_id, seq)])

    def _failed(self, error: Exception) -> WarehouseError:
        return WarehouseError(
            f"The Delta table at '{self._root}' could not be rolled forward: {error}.",
            hint="commits don't depend on it; it is tried again",
        )


def _has_ntz(type_: pa.DataType) -> bool:
    """Whether a TIMESTAMP_NTZ is somewhere in a type."""
    if pa.types.is_nested(type_):
        return any(_has_ntz(type_.field(index).type) for index in range(type_.num_fields))
    return bool(pa.types.is_timestamp(type_)) and type_.tz is None


def _features(table: DeltaTable) -> list[str]:
    return table.protocol().reader_features or []


def _moment(us: int) -> str:
    """As Delta writes it, which knows the years 1 to 9999 as Spark does."""
    return to_datetime(min(max(us, _US_MIN), _US_MAX)).replace(tzinfo=None).isoformat(timespec="microseconds")


def _rewritten(added: Sequence[DataFile], removed: Sequence[DataFile]) -> set[str]:
    """The names on both sides of compactions: the same rows in other files, not a change of data."""
    names: set[str] = set()
    for file in added:
        inputs = [
            old
            for old in removed
            if file.epoch_first <= old.epoch_first and old.epoch_last <= file.epoch_last and old.level < file.level
        ]
        if inputs and sum(old.rows for old in inputs) == file.rows:
            names |= {file.name, *(old.name for old in inputs)}
    return names
