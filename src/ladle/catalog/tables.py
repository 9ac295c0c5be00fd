"""Tables as of one log entry: relations whose rows change, the newest version a file of its own.

Versions before it are kept for as long as a position may need them, each as what leads to it from the next
(`ladle.archive.table_versions`). The timeline begins with the oldest of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from ladle.archive.checks import Checks
from ladle.catalog.entry_types import VersionFields
from ladle.catalog.timeline import Record, Timeline
from ladle.json_values import Json, JsonRow
from ladle.schema import TableSchema


class TableFile(NamedTuple):
    """A file of a table, as the log names it."""

    name: str
    rows: int
    bytes: int
    checks: Checks | None
    """None: it was written by a version that kept none."""

    def to_json(self) -> list[Json]:
        """Encode a table's file for the log."""
        return [self.name, self.rows, self.bytes, None if self.checks is None else self.checks.to_json()]

    @staticmethod
    def from_json(value: JsonRow) -> TableFile:
        """Decode a table's file from the log."""
        name, rows, size, checks = value
        return TableFile(name, rows, size, Checks.from_json(checks))


class Replaced(NamedTuple):
    """A version that is not the newest any more."""

    rows: int
    difference: TableFile | None
    """What leads to it from the next version; None: its rows are the first ones of that."""

    def to_json(self) -> list[Json]:
        """Encode a version that was replaced."""
        return [self.rows, None if self.difference is None else self.difference.to_json()]

    @staticmethod
    def from_json(value: JsonRow) -> Replaced:
        """Decode a version that was replaced."""
        rows, difference = value
        return Replaced(rows, None if difference is None else TableFile.from_json(difference))


class Created(NamedTuple):
    """When a table was made; of one that a version made which did not write that down, nothing is known."""

    entry: int = 0
    at_us: int = 0


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
    replaced: tuple[Replaced, ...] = ()
    """The versions before it that are kept, oldest first: from the one that the timeline begins with."""
    created: Created = field(default_factory=Created)

    @property
    def files(self) -> Iterator[TableFile]:
        """All files that it needs."""
        if self.file is not None:
            yield TableFile(self.file, self.rows, self.bytes, self.checks)
        yield from (each.difference for each in self.replaced if each.difference is not None)

    @property
    def oldest(self) -> int:
        """The oldest version that is kept."""
        return self.version - len(self.replaced)

    def following(self, seq: int, epoch: int, entry: VersionFields) -> TableState:
        """After an entry that has its next version."""
        version = self.version + 1
        replaced = entry.get("replaced")
        kept = () if replaced is None else (*self.replaced, Replaced.from_json(replaced))
        record = Record(seq, epoch, version, None, entry.get("at_us", 0))
        changed = replace(
            self,
            version=version,
            file=entry["file"],
            rows=entry["rows"],
            bytes=entry["bytes"],
            checks=Checks.from_json(entry.get("checks")),
            timeline=self.timeline.appended(record),
            replaced=kept,
        )
        return changed.without(max(entry.get("keeps_from", version), changed.oldest))

    def without(self, oldest: int) -> TableState:
        """Without the versions before one, and without the positions that need them."""
        begin = next(record for record in chain([self.timeline.base], self.timeline) if record.total >= oldest)
        return self.promising_from(begin.entry)

    def promising_from(self, entry: int) -> TableState:
        """Without what only positions before an entry need."""
        timeline = self.timeline.pruned(entry)
        kept = self.version - timeline.base.total
        replaced = self.replaced[len(self.replaced) - kept :] if kept else ()
        return replace(self, timeline=timeline, replaced=replaced)

    def to_json(self) -> list[Json]:
        """Encode a table for a checkpoint."""
        checks = None if self.checks is None else self.checks.to_json()
        version: list[Json] = [self.version, self.file, self.rows, self.bytes, checks]
        replaced = [each.to_json() for each in self.replaced]
        past: list[Json] = [self.timeline.to_json(), replaced, list(self.created)]
        return [self.id, self.name, self.schema.to_json(), *version, *past]

    @staticmethod
    def from_json(value: JsonRow, entry: int, epoch: int) -> TableState:
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
            tuple(Replaced.from_json(each) for each in later[2]) if len(later) > 2 else (),
            Created(*later[3]) if len(later) > 3 else Created(),
        )
