"""AS OF: what scans read that are read at a moment of their own (docs/decisions/0032).

At a time, a scan reads what it would read if its query were invoked at that NOW. As of an entry of the log, it reads
the tuples that had been committed up to it, at the NOW that followed from it; a table, the version that it was at. What
is not there any more is Gone, and what has not been yet is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from ladle.archive.layout import Extent
from ladle.catalog import NOTHING, Catalog, Record, StreamState, TableState, now_of_clocks
from ladle.catalog.store import Store
from ladle.clock import to_datetime
from ladle.delta import Moment
from ladle.errors import Gone, TypeMismatch
from ladle.execute.browsing import refuse_gone
from ladle.execute.reader import Reader
from ladle.execute.table_rows import versions_of
from ladle.plan import AsOf, Plan, Scan, TableRead
from ladle.plan.as_of import NOW, Nows


def extents_of(plan: Plan, catalog: Catalog, reader: Reader, now_us: int | None, *, check: bool = True) -> list[Extent]:
    """What each scan reads when the answer is read at NOW. With `check` it is an error that something is gone."""
    if not plan.browses:
        return [reader.extent(scan, now_us, plan.streams) for scan in plan.scans]
    if check:
        refuse_past(plan, catalog, reader)
    return [extent_of(plan, scan, catalog, reader, now_us) for scan in plan.scans]


def extent_of(plan: Plan, scan: Scan, catalog: Catalog, reader: Reader, now_us: int | None) -> Extent:
    """What a scan of a plan reads, as far as it is there."""
    if scan.as_of is None:
        return reader.extent(scan, now_us, plan.streams)
    if scan.as_of.us is None:
        return extent_at_entry(scan, scan.as_of, catalog, reader)
    return reader.extent(scan, scan.as_of.us, plan.streams)


def extent_at_entry(scan: Scan, as_of: AsOf, catalog: Catalog, reader: Reader) -> Extent:
    """What a scan read just after an entry."""
    assert as_of.entry is not None
    streams, stream = _streams(as_of, catalog), _stream(scan, catalog)
    moment = moment_of_entry(streams, _tables(as_of, catalog), as_of.entry, reader.wall_us)
    record = stream.timeline.at(as_of.entry)
    floor_us = floor_at(stream, record, moment, timed=any(each.event_time for each in streams))
    return reader.extent_as_of(scan, moment.now_us, record.total, record.clock_us, floor_us)


def moment_of_entry(
    streams: Collection[StreamState],
    tables: Iterable[TableState],
    entry: int,
    wall_us: int,
    not_before_us: int | None = None,
) -> Moment:
    """The moment just after an entry, for what reads some streams and tables."""
    if any(stream.event_time for stream in streams):
        records = [(stream, _record_at(stream, entry)) for stream in streams]
        epoch = max((record.epoch for _, record in records), default=0)
        return Moment(entry, now_of_clocks([(stream, record.clock) for stream, record in records], epoch))
    known = _times_of((*streams, *tables), entry) + ([] if not_before_us is None else [not_before_us])
    return Moment(entry, max(known, default=wall_us))


def _times_of(read: Iterable[StreamState | TableState], entry: int) -> list[int]:
    """When what is stamped on arrival, and tables, had last changed as of an entry, as far as that is known."""
    records = [_record_at(each, entry) for each in read]
    return [us for record in records for us in (record.clock_us, record.at_us) if us]


def _record_at(state: StreamState | TableState, entry: int) -> Record:
    """A stream or table as of an entry; nothing, of one that was not there yet."""
    return state.timeline.at(entry) if _was_there(state, entry) else NOTHING


def _was_there(state: StreamState | TableState, entry: int) -> bool:
    created = state.created if isinstance(state, StreamState) else state.created.entry
    return created <= entry


def nows_of(plan: Plan, catalog: Catalog, reader: Reader, now_us: int | None) -> Nows:
    """What the parameters of a plan's texts are when its answer is read at NOW. What the entries need is there."""
    if not plan.nows:
        return {NOW: now_us}
    return {NOW: now_us} | {as_of.parameter: _now_as_of(as_of, catalog, reader.wall_us) for as_of in plan.nows}


def _now_as_of(as_of: AsOf, catalog: Catalog, wall_us: int) -> int | None:
    """NOW as of an entry: that which windows had then. None if it was undefined."""
    assert as_of.entry is not None
    streams, tables = _streams(as_of, catalog), _tables(as_of, catalog)
    if any(stream.event_time for stream in streams) or _times_of((*streams, *tables), as_of.entry):
        return moment_of_entry(streams, tables, as_of.entry, wall_us).now_us
    created = [each.created.at_us for each in tables if _was_there(each, as_of.entry) and each.created.at_us]
    if not created:
        # It was the wall clock's, and nobody wrote down where that was.
        raise TypeMismatch(
            f"NOW as of entry {as_of.entry} is not known: nothing that is read had changed by then.",
            hint="read it as of an entry after the first change, or TIMESTAMP AS OF",
        )
    return max(created)


def floor_at(stream: StreamState, record: Record, moment: Moment, *, timed: bool) -> int | None:
    """Tuples up to this time are beyond retention at a moment; `timed` is whether some stream that is read with it has
    a time of its own.
    """
    if record.clock_us is None:
        return None
    if stream.event_time:
        return stream.floor_at(moment.entry, record.clock_us)
    # Among streams with a time of their own nothing moves between entries.
    clock_us = record.clock_us if timed else moment.now_us
    return None if clock_us is None else stream.floor_at(moment.entry, clock_us)


def now_known_from(streams: Collection[StreamState]) -> int:
    """NOW of streams, as of epochs before this one, is not known any more."""
    return max((each.now_from for each in streams), default=0) if len(streams) > 1 else 0


def table_at(scan: TableRead, catalog: Catalog, reader: Reader, store: Store) -> pa.Table:
    """The rows of a table as of the moment that it is read at."""
    table = _table(scan, catalog)
    if scan.as_of is None:
        return reader.table(scan)
    version = version_at(table, scan.as_of, catalog.seq)
    return reader.table(scan) if version == table.version else versions_of(store, table, scan.columns).at(version)


def table_rows_at(scan: TableRead, catalog: Catalog) -> int:
    """How many rows that is, without reading any."""
    table = _table(scan, catalog)
    version = table.version if scan.as_of is None else version_at(table, scan.as_of, catalog.seq)
    return table.rows if version == table.version else table.replaced[version - table.oldest].rows


def version_at(table: TableState, as_of: AsOf, last: int) -> int:
    """Which version a table is read at, among those up to an entry."""
    base, created = table.timeline.base, table.created
    if as_of.us is None:
        assert as_of.entry is not None
        if as_of.entry < created.entry:
            raise _not_there(f"Table '{table.name}'", f"entry {as_of.entry}", f"entry {created.entry}")
        if as_of.entry < base.entry:
            raise _versions_gone(table, f"entry {as_of.entry}", f"entry {base.entry}")
        return table.timeline.at(as_of.entry).total
    records = [record for record in table.timeline if record.entry <= last and record.at_us <= as_of.us]
    if records:
        return records[-1].total
    if as_of.us < created.at_us:
        raise _not_there(f"Table '{table.name}'", _text(as_of.us), _text(created.at_us))
    if as_of.us < base.at_us:
        raise _versions_gone(table, _text(as_of.us), _text(base.at_us))
    return base.total


def refuse_past(plan: Plan, catalog: Catalog, reader: Reader) -> None:
    """Raise if some moment has not been yet, or what a scan of a stream had then is gone."""
    moments = [*(scan.as_of for scan in plan.scans), *(table.as_of for table in plan.tables), *plan.nows]
    for as_of in dict.fromkeys(each for each in moments if each is not None):
        scans = [scan for scan in plan.scans if scan.as_of == as_of]
        if as_of.us is not None:
            refuse_gone(scans, as_of.streams, catalog, reader, as_of.us)
            continue
        assert as_of.entry is not None
        if as_of.entry > catalog.seq:
            raise not_yet(
                f"Entry {as_of.entry}",
                f"the last one is {catalog.seq}",
                "answers say which entry they reflect: answer.entry",
            )
        _refuse_forgotten(scans, as_of, as_of.entry, catalog, reader)


def _refuse_forgotten(scans: list[Scan], as_of: AsOf, entry: int, catalog: Catalog, reader: Reader) -> None:
    """Raise if NOW is not known as of an entry, or if tuples that streams had then are removed."""
    for stream in (_stream(scan, catalog) for scan in scans):
        if entry < stream.created:
            raise _not_there(f"Stream '{stream.name}'", f"entry {entry}", f"entry {stream.created}")
    streams = _streams(as_of, catalog)
    for stream in streams:
        if _was_there(stream, entry) and entry < stream.timeline.base.entry:
            first = max(each.timeline.base.entry for each in streams)
            raise Gone(
                f"Entry {entry} is beyond what is kept of the past of stream '{stream.name}'.",
                hint=f"it can be read from entry {first} on",
            )
    timed = any(stream.event_time for stream in streams)
    for table in () if timed else _tables(as_of, catalog):
        if _was_there(table, entry) and entry < table.timeline.base.entry:
            raise _versions_gone(table, f"entry {entry}", f"entry {table.timeline.base.entry}")
    epoch = max((_record_at(stream, entry).epoch for stream in streams), default=0)
    if epoch < now_known_from(streams):
        raise Gone(f"NOW as of entry {entry} is not known any more: these streams were idle so often.")
    for scan in scans:
        stream, extent = _stream(scan, catalog), extent_at_entry(scan, as_of, catalog, reader)
        if lacks(stream, extent, entry):
            raise Gone(
                f"As of entry {entry} there were tuples of stream '{stream.name}' that are beyond its retention by now."
            )


def lacks(stream: StreamState, extent: Extent, entry: int) -> bool:
    """Whether an extent as of an entry reaches back to tuples that retention removed later."""
    if stream.lost_us is None or entry >= stream.lost_at:
        return False
    return not extent.is_empty and extent.begin_us < stream.lost_us


def not_yet(what: str, last: str, hint: str) -> TypeMismatch:
    """The error for a moment that lies in the future."""
    return TypeMismatch(f"{what} has not been yet: {last}.", hint=hint)


def _not_there(what: str, then: str, since: str) -> TypeMismatch:
    return TypeMismatch(f"{what} was not there yet as of {then}.", hint=f"it is there from {since} on")


def _versions_gone(table: TableState, then: str, since: str) -> Gone:
    message = f"The version that table '{table.name}' had as of {then} is no longer kept."
    return Gone(message, hint=f"versions are kept from {since} on")


def _streams(as_of: AsOf, catalog: Catalog) -> list[StreamState]:
    return [stream for name in as_of.streams if (stream := catalog.stream(name)) is not None]


def _tables(as_of: AsOf, catalog: Catalog) -> list[TableState]:
    return [table for name in as_of.tables if (table := catalog.table(name)) is not None]


def _stream(scan: Scan, catalog: Catalog) -> StreamState:
    stream = catalog.stream(scan.block.stream)
    assert stream is not None, f"stream {scan.block.stream} of a bound plan"
    return stream


def _table(scan: TableRead, catalog: Catalog) -> TableState:
    table = catalog.table(scan.table)
    assert table is not None, f"table {scan.table} of a bound plan"
    return table


def _text(us: int) -> str:
    return to_datetime(us).isoformat(" ")
