"""Streams as of one log entry: their schemas, files, segments and clocks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from ladle.archive.layout import Segments
from ladle.archive.segments import DataFile
from ladle.catalog.timeline import ClockAt, Record, Timeline
from ladle.json_values import Json, JsonFields, JsonObject, JsonRow
from ladle.schema import Column, StreamSchema

QUARANTINE = StreamSchema(
    (
        Column("arrived", pa.timestamp("us", tz="UTC")),
        Column("source", pa.string()),
        Column("reason", pa.string()),
        Column("row", pa.string()),
    ),
    timestamp="arrived",
)

KEYS_MAX = 4_096
"""Keys of pushes that are remembered for each stream: a push that is sent again comes soon after the first."""

MAX_AHEAD_US = 3_600_000_000
"""How far ahead of the wall clock a time may be, where the stream does not say."""


@dataclass(frozen=True)
class Activation:
    """A stream became active, behind others: all clocks just before, by stream id (see `ladle.catalog.now`)."""

    epoch: int
    before: Mapping[int, ClockAt]
    until: int | None = None
    """The epoch from which on later clocks say as much, so that it is needed for earlier moments only."""

    def counts(self, epoch: int) -> bool:
        """Whether it is needed for NOW as of an epoch."""
        return self.epoch <= epoch and (self.until is None or epoch < self.until)

    def to_json(self) -> list[Json]:
        """Encode an activation for a checkpoint."""
        return [self.epoch, self.until, [[stream, *clock] for stream, clock in self.before.items()]]

    @staticmethod
    def from_json(value: JsonRow) -> Activation:
        """Decode an activation from a checkpoint."""
        epoch, until, before = value
        return Activation(epoch, {stream: ClockAt(*clock) for stream, *clock in before}, until)


class Retention(NamedTuple):
    """The retention of a stream up to an entry that changed it."""

    until: int
    """That entry."""
    retain_us: int | None


@dataclass(frozen=True)
class StreamState:
    """A stream as of one log entry. The quarantine of a stream has the same form."""

    id: int
    name: str
    schema: StreamSchema
    retain_us: int | None = None
    max_ahead_us: int | None = None
    files: tuple[DataFile, ...] = ()
    segments: Segments = field(default_factory=lambda: Segments.of(()))
    clock_us: int | None = None
    """The highest `ts`, or heartbeat, committed."""
    rows: int = 0
    """Tuples ever accepted."""
    epochs: int = 0
    batches: Mapping[str, int] = field(default_factory=dict)
    """The last batch of each source that was committed."""
    quarantine: StreamState | None = None
    lost_us: int | None = None
    """The latest tuple that retention removed."""
    lost_at: int = 0
    """The last entry that removed some: answers as of it, and later ones, are without them."""
    keys: Mapping[str, int] = field(default_factory=dict)
    """The epochs of the pushes that came with keys, the last ones, oldest first."""
    lateness_us: int | None = None
    """Tuples with `ts` so far behind the clock, or further, are quarantined."""
    idle_after_us: int | None = None
    """Without tuple or heartbeat for so long it becomes idle."""
    touched_us: int | None = None
    """When its last tuple or heartbeat came, by the wall clock."""
    idle_since: int = 0
    """The epoch in which it became idle; 0: it is not idle."""
    activations: tuple[Activation, ...] = ()
    """Where it became active and NOW of some set of streams would have gone back, oldest first."""
    now_from: int = 0
    """NOW of this and other streams, as of epochs before this one, is not known any more."""
    timeline: Timeline = field(default_factory=Timeline)
    """How many tuples it had, its clock, and whether it was idle, after each entry."""
    retained_before: tuple[Retention, ...] = ()
    """What was retained before each entry that changed `retain_us`, oldest first."""
    created: int = 0
    """The entry that made it; 0: a version that did not write that down made it."""

    @property
    def event_time(self) -> bool:
        """Whether its tuples carry their own time."""
        return self.schema.timestamp is not None

    @cached_property
    def clock_at(self) -> ClockAt | None:
        """Its clock and whether it is idle; None before its first tuple or heartbeat."""
        return None if self.clock_us is None else ClockAt(self.clock_us, self.idle_since)

    @property
    def retained_rows(self) -> int:
        """How many tuples it has on disk."""
        return int(self.segments.rows.sum())

    def clock(self, wall_us: int) -> int:
        """The stream's clock. When stamped on arrival it is the wall clock, never before the last stamp."""
        if self.clock_us is None:
            return wall_us
        return self.clock_us if self.event_time else max(wall_us, self.clock_us)

    def floor_us(self, wall_us: int) -> int | None:
        """Tuples with `ts` at or before this are beyond retention, and seen by nobody.

        A stream with a clock of its own forgets nothing before that clock stands: its data may be years old.
        """
        if self.retain_us is None or (self.event_time and self.clock_us is None):
            return None
        return self.clock(wall_us) - self.retain_us

    @property
    def logged_floor_us(self) -> int | None:
        """Tuples with `ts` at or before this are beyond retention by the clock in the log, not the wall clock.
        Housekeeping removes by it, and queries whose NOW follows from the log see by it.
        """
        return None if self.retain_us is None or self.clock_us is None else self.clock_us - self.retain_us

    @property
    def is_stamped(self) -> bool:
        """Whether its times are those of arrival, as a quarantine's are: then they pass also while nothing comes."""
        return not self.event_time or "." in self.name

    def retain_at(self, entry: int) -> int | None:
        """How long tuples were kept as of an entry; None: for ever."""
        return next((each.retain_us for each in self.retained_before if entry < each.until), self.retain_us)

    def floor_at(self, entry: int, clock_us: int) -> int | None:
        """Up to which time tuples were let go of as of an entry, at that clock of the stream; None: nothing was."""
        retain_us = self.retain_at(entry)
        return None if retain_us is None else clock_us - retain_us

    def retaining(self, retain_us: int | None, entry: int, epoch: int, at_us: int) -> StreamState:
        """The stream after an entry, made at that time, that changes its retention, and its quarantine's."""
        before = Retention(entry, self.retain_us)
        quarantine = self.quarantine and self.quarantine.retaining(retain_us, entry, epoch, at_us)
        changed = replace(self, retain_us=retain_us, retained_before=(*self.retained_before, before))
        return replace(changed, quarantine=quarantine).recorded(entry, epoch, at_us)

    def late_us(self) -> int | None:
        """Tuples with `ts` at or before this come too late."""
        return None if self.lateness_us is None or self.clock_us is None else self.clock_us - self.lateness_us

    def ceiling_us(self, wall_us: int) -> int | None:
        """Times after this are refused; None when tuples are stamped on arrival."""
        ahead_us = MAX_AHEAD_US if self.max_ahead_us is None else self.max_ahead_us
        return wall_us + ahead_us if self.event_time else None

    def gone_us(self, floor_us: int | None) -> int | None:
        """The latest tuple up to a floor of retention, removed or not; None when every tuple that ever came is seen.

        Of a segment with tuples on both sides of the floor it is the floor.
        """
        hidden = () if floor_us is None else self.segments.ts_max_us[self.segments.ts_min_us <= floor_us]
        latest_us = None if floor_us is None or not len(hidden) else min(int(max(hidden)), floor_us)
        return max((us for us in (self.lost_us, latest_us) if us is not None), default=None)

    def appended(self, files: Sequence[DataFile], entry: int, epoch: int, at_us: int) -> StreamState:
        """After an entry, made at that time, that adds an epoch's files."""
        if not files:
            return self
        latest_us = max(file.ts_max_us for file in files)
        clock_us = latest_us if self.clock_us is None else max(self.clock_us, latest_us)
        rows, numbered = self.rows, []
        for file in files:
            numbered.append(replace(file, epoch_first=epoch, epoch_last=epoch, first_id=rows))
            rows += file.rows
        return replace(
            self,
            files=(*self.files, *numbered),
            segments=self.segments.followed_by(Segments.of(files, len(self.files))),
            clock_us=clock_us,
            rows=rows,
            touched_us=at_us,
            idle_since=0,
        ).recorded(entry, epoch, at_us)

    def recorded(self, entry: int, epoch: int, at_us: int) -> StreamState:
        """With a record of what an entry made of it."""
        record = Record(entry, epoch, self.rows, self.clock_us, at_us, self.idle_since)
        return replace(self, timeline=self.timeline.appended(record))

    def promising_from(self, entry: int) -> StreamState:
        """Without what only positions before an entry need."""
        quarantine = None if self.quarantine is None else self.quarantine.promising_from(entry)
        timeline = self.timeline.pruned(entry)
        same = timeline is self.timeline and quarantine is self.quarantine
        return self if same else replace(self, timeline=timeline, quarantine=quarantine)

    def advanced(self, clock_us: int, wall_us: int) -> StreamState:
        """A heartbeat came."""
        return replace(self, clock_us=clock_us, touched_us=wall_us, idle_since=0)

    def idled(self, epoch: int) -> StreamState:
        """The same stream, idle since an epoch."""
        assert self.clock_us is not None, "only what was active becomes idle"
        return replace(self, idle_since=epoch)

    def without_clocks(self, dropped: Container[int]) -> StreamState:
        """Its activations, and its quarantine's, remember nothing of streams that are dropped."""
        quarantine = self.quarantine and self.quarantine.without_clocks(dropped)
        if quarantine is self.quarantine and not any(
            stream in dropped for each in self.activations for stream in each.before
        ):
            return self
        activations = tuple(
            replace(each, before={stream: clock for stream, clock in each.before.items() if stream not in dropped})
            for each in self.activations
        )
        return replace(self, activations=activations, quarantine=quarantine)

    def with_keys(self, keys: Iterable[str], epoch: int) -> StreamState:
        """Pushes with these keys were taken in."""
        known = {**self.keys, **dict.fromkeys(keys, epoch)}
        for key in list(known)[: max(len(known) - KEYS_MAX, 0)]:
            del known[key]
        return replace(self, keys=known)

    def replaced(self, removed: set[str], added: tuple[DataFile, ...], entry: int) -> StreamState:
        """Put `added` in the place of the first of `removed` (compaction), or just drop those (retention)."""
        first = next((number for number, file in enumerate(self.files) if file.name in removed), len(self.files))
        gone = [file for file in self.files[first:] if file.name in removed]
        kept = [file for file in self.files[first:] if file.name not in removed]
        files = [*self.files[:first], *(_numbered(added, gone[-1].next_id) if gone else ()), *kept]
        changed = replace(self, files=tuple(files), segments=Segments.of(files))
        return changed._without(gone, entry) if gone and not added else changed

    def _without(self, lost: Sequence[DataFile], entry: int) -> StreamState:
        """Without tuples, and without the positions that need them: those whose retention reaches back to them."""
        latest_us = max(file.ts_max_us for file in lost)
        lost_us = latest_us if self.lost_us is None else max(self.lost_us, latest_us)
        changed = replace(self, lost_us=lost_us, lost_at=entry)
        first = next((each for each in self.timeline if changed._is_whole(each)), None)
        return changed.promising_from(first.entry) if first is not None else changed

    def _is_whole(self, record: Record) -> bool:
        """Whether no tuple that was retained as of a record is lost."""
        if record.clock_us is None or self.lost_us is None:
            return False
        clock_us = record.clock_us if self.event_time else max(record.clock_us, record.at_us)
        floor_us = self.floor_at(record.entry, clock_us)
        return floor_us is not None and floor_us >= self.lost_us

    def to_json(self) -> JsonObject:
        """Encode a stream for a checkpoint."""
        return {
            "id": self.id,
            "name": self.name,
            "schema": self.schema.to_json(),
            "retain_us": self.retain_us,
            "max_ahead_us": self.max_ahead_us,
            "files": [file.to_json() for file in self.files],
            "clock_us": self.clock_us,
            "rows": self.rows,
            "epochs": self.epochs,
            "batches": dict(self.batches),
            "quarantine": None if self.quarantine is None else self.quarantine.to_json(),
            "lost_us": self.lost_us,
            "lost_at": self.lost_at,
            "keys": dict(self.keys),
            "lateness_us": self.lateness_us,
            "idle_after_us": self.idle_after_us,
            "touched_us": self.touched_us,
            "idle_since": self.idle_since,
            "activations": [activation.to_json() for activation in self.activations],
            "now_from": self.now_from,
            "timeline": self.timeline.to_json(),
            "retained_before": [list(each) for each in self.retained_before],
            "created": self.created,
        }

    @staticmethod
    def from_json(value: JsonFields, entry: int, epoch: int) -> StreamState:
        """From a checkpoint of that entry."""
        files = tuple(DataFile.from_json(file) for file in value["files"])
        if files and not DataFile.is_numbered(value["files"][0]):
            # The checkpoint was written before files knew their ids: the newest file has the newest tuples.
            files = _numbered(files, value["rows"])
        quarantine, schema = value["quarantine"], StreamSchema.from_json(value["schema"])
        known = {name: part for name, part in value.items() if name != "forgotten"}
        if quarantine is not None:
            # Before quarantines were retained as their streams are, theirs was not written down.
            quarantine = StreamState.from_json({**quarantine, "retain_us": value["retain_us"]}, entry, epoch)
        lost_us = value["lost_us"] if "lost_us" in value else _lost_us(value, files)
        return StreamState(
            **{**known, "files": files, "schema": schema}
            | {
                "segments": Segments.of(files),
                "quarantine": quarantine,
                "activations": tuple(map(Activation.from_json, value.get("activations", ()))),
                "timeline": _timeline(value, entry, epoch),
                "retained_before": tuple(Retention(*each[:2]) for each in value.get("retained_before", ())),
                "lost_us": lost_us,
                "lost_at": value.get("lost_at", 0 if lost_us is None else entry),
            }
        )


def _numbered(files: Sequence[DataFile], next_id: int) -> tuple[DataFile, ...]:
    """Files whose tuples have the ids before `next_id`, one after the other."""
    found = []
    for file in reversed(files):
        next_id -= file.rows
        found.append(replace(file, first_id=next_id))
    return tuple(reversed(found))


def _timeline(value: JsonFields, entry: int, epoch: int) -> Timeline:
    """A stream's timeline; by a checkpoint from before it was kept, it begins there, unless no tuple came before."""
    if "timeline" in value:
        return Timeline.from_json(value["timeline"])
    return Timeline(Record(entry, epoch, value["rows"], value["clock_us"], 0)) if value["rows"] else Timeline()


def _lost_us(value: JsonFields, files: tuple[DataFile, ...]) -> int | None:
    """The latest tuple that retention may have removed from a stream, by a checkpoint that does not say."""
    if not value.get("forgotten"):
        return None
    known: int = value["clock_us"]
    return min((file.ts_min_us - 1 for file in files), default=known)
