"""Tables as of one log entry: relations whose rows change, each version a file of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ladle.archive.checks import Checks
from ladle.catalog.timeline import Record, Timeline
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
    timeline: Timeline = field(default_factory=Timeline)
    """Which version it was at after each entry."""

    def recorded(self, entry: int, epoch: int, at_us: int) -> TableState:
        """With a record of the version that an entry made."""
        return replace(self, timeline=self.timeline.appended(Record(entry, epoch, self.version, None, at_us)))

    def promising_from(self, entry: int) -> TableState:
        """Without what only positions before an entry need."""
        timeline = self.timeline.pruned(entry)
        return self if timeline is self.timeline else replace(self, timeline=timeline)

    def to_json(self) -> list[Any]:
        checks = None if self.checks is None else self.checks.to_json()
        version = [self.version, self.file, self.rows, self.bytes, checks]
        return [self.id, self.name, self.schema.to_json(), *version, self.timeline.to_json()]

    @staticmethod
    def from_json(value: list[Any], entry: int, epoch: int) -> TableState:
        """From a checkpoint of that entry."""
        number, name, schema, version, file, rows, size, *later = value
        # Older versions wrote neither checksums nor a timeline, which begins with their checkpoint then.
        checks = later[0] if later else None
        begun = Timeline(Record(entry, epoch, version, None, 0))
        return TableState(
            number,
            name,
            TableSchema.from_json(schema),
            version,
            file,
            rows,
            size,
            Checks.from_json(checks),
            Timeline.from_json(later[1]) if len(later) > 1 else begun,
        )
