"""What a plan reads at a moment: the one place that knows clocks, windows and versions of the past.

The timeline (`catalog/timeline.py`) says how many tuples a stream had after each entry of the log, its clock, and at
which version a table was. So what a scan reads at a moment is an *extent*: tuples with ids in a range, and times in an
interval. What comes and what goes between two moments is the difference of two extents. NOW of streams with a time of
their own follows from the entry alone; where all are stamped on arrival it is the wall clock, which passes between
entries too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa

from ladle.archive.layout import Extent
from ladle.archive.table_versions import Versions
from ladle.catalog import Catalog, Timeline
from ladle.catalog.store import Store
from ladle.delta import Moment
from ladle.errors import Gone
from ladle.execute.past import (
    extent_at_entry,
    floor_at,
    lacks,
    moment_of_entry,
    not_yet,
    now_known_from,
    refuse_past,
    version_at,
)
from ladle.execute.reader import Reader
from ladle.execute.table_rows import versions_of
from ladle.plan import Plan, Scan, TableRead
from ladle.plan.window import WindowKind

_NO_ID = 1 << 62
"""After every tuple id."""


def minus(one: Extent, other: Extent) -> list[Extent]:
    """What of an extent is not in another of the same scan, in extents that do not overlap, in the order of arrival. Of
    extents with keys that is what of all tuples, because those of a key count each other, in the sample or not.
    """
    one = one if one.keyed is None else one._replace(keyed=None, level=None)
    if one.is_empty:
        return []
    first, following = max(one.first_id, other.first_id), min(_next_id(one), _next_id(other))
    begin, end = max(one.begin_us, other.begin_us), min(one.end_us, other.end_us)
    if first >= following or begin >= end:
        return [one]
    parts = [
        one._replace(next_id=first),
        one._replace(end_us=begin, first_id=first, next_id=following),
        one._replace(begin_us=end, first_id=first, next_id=following),
        one._replace(first_id=following),
    ]
    return [part for part in parts if not part.is_empty]


def _next_id(extent: Extent) -> int:
    return _NO_ID if extent.next_id is None else extent.next_id


class MomentStep(NamedTuple):
    """A moment after another, and the last epoch up to it."""

    moment: Moment
    epoch: int
    net: bool = False
    """Whether what happened in between can only be told in all."""
    tick: bool = False
    """Whether nothing but time can have changed the answer."""


class Moments:
    """What a plan reads, at the moments that positions are promised for; as one snapshot knows them."""

    def __init__(self, store: Store, plan: Plan, catalog: Catalog) -> None:
        self.plan = plan
        self.catalog = catalog
        self.reader = Reader(store, catalog, store.clock.now_us())
        self.streams = {name: stream for name in plan.streams if (stream := catalog.stream(name)) is not None}
        self._tables = {scan: table for scan in plan.tables if (table := catalog.table(scan.table)) is not None}
        self._store = store
        self._past_is_there = False

    # -- time --

    @cached_property
    def timed(self) -> bool:
        """Whether some stream has a time of its own: NOW follows from the log then."""
        return any(stream.event_time for stream in self.streams.values())

    @cached_property
    def ticks(self) -> bool:
        """Whether the answer changes while time passes, without an entry."""
        if self.timed:
            return False
        own = [scan.window.kind for scan in self.plan.scans if scan.as_of is None]
        moving = any(kind in (WindowKind.SLIDING, WindowKind.LANDMARK) for kind in own)
        retained = any(stream.retain_us is not None for stream in self.streams.values())
        return moving or retained or self.plan.residual.uses_now

    def present(self, since: Moment | None = None) -> Moment:
        """The newest moment; NOW is never before that of the moment it is resumed from."""
        now_us = self.catalog.now_us(self.plan.streams, self.reader.wall_us)
        if since is not None and since.now_us is not None and not self.timed:
            now_us = since.now_us if now_us is None else max(now_us, since.now_us)
        return Moment(self.catalog.seq, now_us)

    def of_epoch(self, epoch: int) -> Moment:
        """The moment after the last entry up to an epoch that changed what the plan reads."""
        if epoch > self.catalog.epoch:
            raise not_yet(f"Epoch {epoch}", f"the last one is {self.catalog.epoch}", _RESTORED)
        known_from = [(timeline.base.epoch, why) for why, timeline in self._named_timelines]
        if self._known_from:
            idle = next(each.name for each in self.streams.values() if each.now_from == self._known_from)
            why = f"have a NOW that is not known any more: '{idle}' was idle so often since"
            known_from.append((self._known_from, why))
        first = max((known for known, _ in known_from), default=0)
        for known, why in known_from:
            if epoch < known:
                hint = f"subscribe with since={first}, or {_AGAIN.removeprefix('subscribe ')}"
                raise Gone(f"Epochs up to {first} {why}.", hint=hint)
        entry = max((timeline.at_epoch(epoch).entry for _, timeline in self._named_timelines), default=0)
        # Before anything came there was no NOW: that of the present would be carried into all that came since.
        return self.of_entry(entry) if entry else Moment(0, None)

    def of_entry(self, entry: int, not_before_us: int | None = None) -> Moment:
        """The moment just after an entry."""
        if entry > self.catalog.seq:
            raise not_yet(f"Entry {entry}", f"the last one is {self.catalog.seq}", _RESTORED)
        streams, tables = self.streams.values(), self._tables.values()
        return moment_of_entry(streams, tables, entry, self.reader.wall_us, not_before_us)

    def steps(self, since: Moment, upto: Moment | None = None) -> Iterator[MomentStep]:
        """The moments after one: after each entry that changed something, and the present one; or up to another, which
        is the last then. NOW does not go back in either case.
        """
        for each in (since,) if upto is None else (since, upto):
            if each.entry > self.catalog.seq:
                raise not_yet(f"Entry {each.entry}", f"the last one is {self.catalog.seq}", _RESTORED)
        self._refuse_forgotten(since)
        records = merge(*(timeline.after(since.entry) for _, timeline in self._named_timelines), key=itemgetter(0))
        now_us, net = since.now_us, False
        last = self.catalog.seq if upto is None else max(upto.entry, since.entry)
        for (entry, epoch), _ in groupby(records, key=itemgetter(0, 1)):
            if entry > last:
                break
            if epoch < self._known_from:
                net = True
                continue
            moment = self.of_entry(entry, now_us)
            yield MomentStep(moment, epoch, net)
            now_us, net = moment.now_us, False
        if upto is None:
            yield MomentStep(self.present(Moment(last, now_us)), self.catalog.epoch, net, tick=not net)
        else:
            moment = upto if self.timed else Moment(last, _later(now_us, upto.now_us))
            moment = since if upto.entry < since.entry else moment
            yield MomentStep(moment, self.epoch_at(moment), net, tick=not net)

    def epoch_at(self, moment: Moment) -> int:
        """The last epoch up to a moment that changed what the plan reads."""
        return max((timeline.at(moment.entry).epoch for _, timeline in self._named_timelines), default=0)

    # -- what is read --

    def extents(self, moment: Moment) -> list[Extent]:
        """What each scan reads at a moment."""
        self._refuse_past()
        return [self.extent(scan, moment) for scan in self.plan.scans]

    def extent(self, scan: Scan, moment: Moment) -> Extent:
        """Which tuples a scan reads at a moment."""
        as_of = scan.as_of
        if as_of is not None and as_of.us is None:
            return extent_at_entry(scan, as_of, self.catalog, self.reader)
        stream = self.streams[scan.block.stream]
        record = stream.timeline.at(moment.entry)
        floor_us = floor_at(stream, record, moment, timed=self.timed)
        now_us = moment.now_us if as_of is None else as_of.us
        return self.reader.extent_as_of(scan, now_us, record.total, record.clock_us, floor_us)

    def versions(self, moment: Moment) -> tuple[int, ...]:
        """At which version each table is at a moment."""
        return tuple(self._version(scan, moment) for scan in self._tables)

    def tables(self, moment: Moment) -> dict[str, pa.Table]:
        """The tables' rows at a moment, by relation."""
        return {scan.relation: self._versions[scan].at(self._version(scan, moment)) for scan in self._tables}

    def _version(self, scan: TableRead, moment: Moment) -> int:
        table = self._tables[scan]
        if scan.as_of is not None:
            return version_at(table, scan.as_of, moment.entry)
        return table.timeline.at(moment.entry).total

    @cached_property
    def _versions(self) -> Mapping[TableRead, Versions]:
        return {scan: versions_of(self._store, table, scan.columns) for scan, table in self._tables.items()}

    @cached_property
    def _named_timelines(self) -> list[tuple[str, Timeline]]:
        """The timelines of what is read, and what is said of epochs that they do not reach back to."""
        promised, kept = "are beyond what positions are promised for", "that are no longer kept"
        streams = [(f"of stream '{each.name}' {promised}", each.timeline) for each in self.streams.values()]
        return streams + [
            (f"need versions of table '{each.name}' {kept}", each.timeline) for each in self._tables.values()
        ]

    @cached_property
    def _known_from(self) -> int:
        """NOW as of epochs before this one is not known any more."""
        return now_known_from(self.streams.values())

    def _refuse_past(self) -> None:
        """Raises if what some scan reads at a moment of its own is not there any more."""
        if not self._past_is_there:
            refuse_past(self.plan, self.catalog, self.reader)
            self._past_is_there = True

    def _refuse_forgotten(self, since: Moment) -> None:
        """Raises if the answer at a moment can't be computed any more."""
        for why, timeline in self._named_timelines:
            if since.entry < timeline.base.entry:
                raise Gone(f"Positions before entry {timeline.base.entry} {why}.", hint=_AGAIN)
        for scan in self.plan.scans:
            stream, extent = self.streams[scan.block.stream], self.extent(scan, since)
            if lacks(stream, extent, since.entry):
                what = f"the answer then had tuples of stream '{stream.name}' that are beyond its retention"
                raise Gone(f"Position {since.position} can't be gone on from: {what}.", hint=_AGAIN)


def _later(one_us: int | None, other_us: int | None) -> int | None:
    known = [us for us in (one_us, other_us) if us is not None]
    return max(known, default=None)


_AGAIN = "subscribe with snapshot=True, which begins with the answer as it is now"
_RESTORED = "was the warehouse restored?"
