"""Tables as of one log entry: relations whose rows change, each version a file of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ladle.archive.checks import Checks
from ladle.schema import TableSchema


@dataclass(frozen=True)
class TableState:
    """A table as of one log entry."""

    id: int
    name: str
    schema: TableSchema
    version: int = 0
    """How often its rows changed."""
    file: str | None = None
    """The file that holds all rows of this version; None when there are none."""
    rows: int = 0
    bytes: int = 0
    """The size of that file."""
    checks: Checks | None = None
    """Its checksums; None: it was written by a version that kept none."""

    def to_json(self) -> list[Any]:
        checks = [] if self.checks is None else [self.checks.to_json()]
        return [self.id, self.name, self.schema.to_json(), self.version, self.file, self.rows, self.bytes, *checks]

    @staticmethod
    def from_json(value: list[Any]) -> TableState:
        number, name, schema, version, file, rows, size, *checks = value
        known = Checks.from_json(checks[0] if checks else None)
        return TableState(number, name, TableSchema.from_json(schema), version, file, rows, size, known)
