"""Streams as of one log entry: their schemas, files, segments and clocks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.segments import DataFile
from ladle.catalog.marks import Mark, Marks
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

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segments:
    """The segments of a stream in arrival order, column by column, so that windows are cut without a loop."""

    file: Int64s
    row_group: Int64s
    rows: Int64s
    ts_min_us: Int64s
    ts_max_us: Int64s

    @staticmethod
    def of(files: Iterable[DataFile], first_file: int = 0) -> Segments:
        rows = [
            (first_file + number, group, segment.rows, segment.ts_min_us, segment.ts_max_us)
            for number, file in enumerate(files)
            for group, segment in enumerate(file.segments)
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        return Segments(*columns)

    def followed_by(self, other: Segments) -> Segments:
        return Segments(
            np.concatenate([self.file, other.file]),
            np.concatenate([self.row_group, other.row_group]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.ts_min_us, other.ts_min_us]),
            np.concatenate([self.ts_max_us, other.ts_max_us]),
        )


class ClockAt(NamedTuple):
    """A stream's clock at one entry of the log, and whether the stream was idle."""

    clock_us: int
    idle_since: int
    """The epoch in which it became idle; 0: it is active."""


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

    def to_json(self) -> list[Any]:
        return [self.epoch, self.until, [[stream, *clock] for stream, clock in self.before.items()]]

    @staticmethod
    def from_json(value: list[Any]) -> Activation:
        epoch, until, before = value
        return Activation(epoch, {stream: ClockAt(*clock) for stream, *clock in before}, until)


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
    forgotten: int = 0
    """The last epoch of which retention removed a file."""
    lost_us: int | None = None
    """The latest tuple that retention removed."""
    keys: Mapping[str, int] = field(default_factory=dict)
    """The epochs of the pushes that came with keys, the last ones, oldest first."""
    lateness_us: int | None = None
    """Tuples with `ts` so far behind the clock, or further, are quarantined."""
    idle_after_us: int | None = None
    """Without tuple or heartbeat for so long it becomes idle."""
    touched_us: int | None = None
    """When its last tuple or heartbeat came, by the wall clock."""
    marks: Marks = field(default_factory=Marks)
    clocks_from: int = 0
    """Its clock as of epochs before this one is not known any more: their marks were let go."""
    activations: tuple[Activation, ...] = ()
    """Where it became active and NOW of some set of streams would have gone back, oldest first."""
    now_from: int = 0
    """NOW of this and other streams, as of epochs before this one, is not known any more."""

    @property
    def event_time(self) -> bool:
        return self.schema.timestamp is not None

    @cached_property
    def clock_at(self) -> ClockAt | None:
        """Its clock and whether it is idle; None before its first tuple or heartbeat."""
        return None if self.clock_us is None else ClockAt(self.clock_us, self.idle_since)

    @property
    def idle_since(self) -> int:
        """The epoch in which it became idle; 0: it is not idle."""
        newest = self.marks.newest
        return newest.epoch if newest is not None and newest.idle else 0

    @property
    def retained_rows(self) -> int:
        return int(self.segments.rows.sum())

    def clock(self, wall_us: int) -> int:
        """The stream's clock: the wall clock when tuples are stamped on arrival."""
        if not self.event_time:
            return wall_us
        return wall_us if self.clock_us is None else self.clock_us

    def floor_us(self, wall_us: int) -> int | None:
        """Tuples with `ts` at or before this are beyond retention, and seen by nobody.

        A stream with a clock of its own forgets nothing before that clock stands: its data may be years old.
        """
        if self.retain_us is None or (self.event_time and self.clock_us is None):
            return None
        return self.clock(wall_us) - self.retain_us

    def late_us(self) -> int | None:
        """Tuples with `ts` at or before this come too late."""
        return None if self.lateness_us is None or self.clock_us is None else self.clock_us - self.lateness_us

    def ceiling_us(self, wall_us: int) -> int | None:
        """Times after this are refused; None when tuples are stamped on arrival."""
        ahead_us = MAX_AHEAD_US if self.max_ahead_us is None else self.max_ahead_us
        return wall_us + ahead_us if self.event_time else None

    def gone_us(self, wall_us: int) -> int | None:
        """The latest tuple that is beyond retention, removed or not; None when every tuple that ever came is seen.

        Of a segment with tuples on both sides of the floor it is the floor.
        """
        floor_us = self.floor_us(wall_us)
        hidden = () if floor_us is None else self.segments.ts_max_us[self.segments.ts_min_us <= floor_us]
        latest_us = None if floor_us is None or not len(hidden) else min(int(max(hidden)), floor_us)
        return max((us for us in (self.lost_us, latest_us) if us is not None), default=None)

    def appended(self, files: tuple[DataFile, ...]) -> StreamState:
        if not files:
            return self
        latest_us = max(file.ts_max_us for file in files)
        return replace(
            self,
            files=self.files + files,
            segments=self.segments.followed_by(Segments.of(files, len(self.files))),
            clock_us=latest_us if self.clock_us is None else max(self.clock_us, latest_us),
            rows=self.rows + sum(file.rows for file in files),
        )

    def touched(self, epoch: int, wall_us: int) -> StreamState:
        """Tuples came at a time of the wall clock: it is not idle any more."""
        assert self.clock_us is not None, "it has tuples"
        changed = replace(self, touched_us=wall_us)
        return changed._marked(Mark(epoch, self.clock_us, idle=False)) if self.idle_since else changed

    def advanced(self, epoch: int, clock_us: int, wall_us: int) -> StreamState:
        """A heartbeat came."""
        return replace(self, clock_us=clock_us, touched_us=wall_us)._marked(Mark(epoch, clock_us, idle=False))

    def idled(self, epoch: int) -> StreamState:
        assert self.clock_us is not None, "only what was active becomes idle"
        return self._marked(Mark(epoch, self.clock_us, idle=True))

    def _marked(self, mark: Mark) -> StreamState:
        marks = self.marks.followed_by(mark)
        dropped = bool(self.marks.chunks) and marks.chunks[0][0] != self.marks.chunks[0][0]
        return replace(self, marks=marks, clocks_from=marks.chunks[0][0].epoch if dropped else self.clocks_from)

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

    def replaced(self, removed: set[str], added: tuple[DataFile, ...]) -> StreamState:
        """Put `added` in the place of the first of `removed` (compaction), or just drop those (retention)."""
        first = next((number for number, file in enumerate(self.files) if file.name in removed), len(self.files))
        kept = [file for file in self.files[first:] if file.name not in removed]
        files = [*self.files[:first], *(added if first < len(self.files) else ()), *kept]
        changed = replace(self, files=tuple(files), segments=Segments.of(files))
        lost = [] if added else [file for file in self.files if file.name in removed]
        return changed._without(lost) if lost else changed

    def _without(self, lost: Sequence[DataFile]) -> StreamState:
        latest_us = max(file.ts_max_us for file in lost)
        forgotten = max(self.forgotten, *(file.epoch_last for file in lost))
        return replace(
            self,
            forgotten=forgotten,
            # Nobody asks for clocks before that.
            marks=self.marks.needed_from(forgotten),
            lost_us=latest_us if self.lost_us is None else max(self.lost_us, latest_us),
        )

    def to_json(self) -> dict[str, Any]:
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
            "forgotten": self.forgotten,
            "lost_us": self.lost_us,
            "keys": dict(self.keys),
            "lateness_us": self.lateness_us,
            "idle_after_us": self.idle_after_us,
            "touched_us": self.touched_us,
            "marks": self.marks.to_json(),
            "clocks_from": self.clocks_from,
            "activations": [activation.to_json() for activation in self.activations],
            "now_from": self.now_from,
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> StreamState:
        files = tuple(DataFile.from_json(file) for file in value["files"])
        quarantine, schema = value["quarantine"], StreamSchema.from_json(value["schema"])
        return StreamState(
            **{**value, "files": files, "schema": schema}
            | {
                "segments": Segments.of(files),
                "quarantine": None if quarantine is None else StreamState.from_json(quarantine),
                "marks": Marks.from_json(value.get("marks", ())),
                "activations": tuple(map(Activation.from_json, value.get("activations", ()))),
                "lost_us": value["lost_us"] if "lost_us" in value else _lost_us(value, files),
            }
        )


def _lost_us(value: dict[str, Any], files: tuple[DataFile, ...]) -> int | None:
    """The latest tuple that retention may have removed from a stream, by a checkpoint that does not say."""
    if not value["forgotten"]:
        return None
    known: int = value["clock_us"]
    return min((file.ts_min_us - 1 for file in files), default=known)
