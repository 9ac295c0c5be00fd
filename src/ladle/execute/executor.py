"""The executor: `at`, the answer at a moment, and `between`, what changes from one moment to the next.

For every plan, at(m1) + between(m1, m2) = at(m2), as bags. Where rows are picked from one stream,
both sides are read from what its window gained and lost. Any other answer is computed at both moments and compared,
column by column; and not at all while none of its scans, tables or NOW has moved.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ladle.archive.layout import Extent
from ladle.catalog import StreamState
from ladle.clock import LAST_US
from ladle.delta import OUT, Moment
from ladle.execute.difference import difference, picked
from ladle.execute.invoke import Invoker
from ladle.execute.moments import Moments, minus
from ladle.execute.recent_answers import Recent
from ladle.plan import Engine, KeyedRowsWindow, Scan

Rows = tuple[pa.Table, pa.Array | None]
"""Rows of an answer, and when each will leave by itself, if that is asked for."""


@dataclass(frozen=True)
class Changed:
    """What came and what went."""

    inserted: pa.Table
    retracted: pa.Table
    inserted_out: pa.Array | None = None


class Executor:
    """Answers for one plan, over one snapshot that the caller has pinned. With `outs` rows carry when they leave."""

    def __init__(self, moments: Moments, invoker: Invoker, recent: Recent, *, outs: bool) -> None:
        self._moments = moments
        self._plan = moments.plan
        self._invoker = invoker
        self._recent = recent
        self._outs = outs

    @property
    def picks(self) -> bool:
        """Whether rows are picked from one stream, and nothing is computed of them, nor counted by key."""
        if any(isinstance(scan.window, KeyedRowsWindow) for scan in self._plan.scans):
            return False
        return self._plan.residual.engine is Engine.PROJECTION

    @property
    def ticks(self) -> bool:
        """Whether the answer changes while time passes."""
        return self._moments.ticks

    def carry(self, before: Moment, after: Moment) -> None:
        """The answer is the same at two moments."""
        self._recent.move(before, after)

    def at(self, moment: Moment) -> Rows:
        """The answer at a moment."""
        if self.picks:
            return self._pick(self._moments.extents(moment), moment)
        table = self._recent.get(moment)
        if table is None:
            began = time.perf_counter()
            table = self._compute(self._moments.extents(moment), moment)
            self._recent.put(moment, table, time.perf_counter() - began)
        return table, self._nulls(len(table))

    def between(self, before: Moment, after: Moment) -> Changed | None:
        """The difference of the answers at two moments; None when there is none."""
        olds, news = self._moments.extents(before), self._moments.extents(after)
        came, went = list(map(minus, news, olds)), list(map(minus, olds, news))
        if self.picks:
            if self._outs and self._retention(before) != self._retention(after):
                # What was told about when rows leave holds no longer: all of them are told again.
                came, went = [news[:1]], [olds[:1]]
            return self._picked(came[0], went[0], before, after)
        if not self._moved(before, after, came) and not self._reads_any(went):
            self.carry(before, after)
            return None
        (old, _), (new, _) = self.at(before), self.at(after)
        gone, come = difference(old, new)
        if not len(gone) and not len(come):
            return None
        return Changed(picked(new, come), picked(old, gone), self._nulls(len(come)))

    def _moved(self, before: Moment, after: Moment, came: Sequence[Sequence[Extent]]) -> bool:
        if self._plan.residual.uses_now and before.now_us != after.now_us:
            return True
        return self._moments.versions(before) != self._moments.versions(after) or self._reads_any(came)

    def _reads_any(self, extents: Sequence[Sequence[Extent]]) -> bool:
        """Whether some tuple of a scan is in its extents."""
        reader = self._moments.reader
        return any(
            reader.has_rows(scan, extent) for scan, own in zip(self._plan.scans, extents, strict=True) for extent in own
        )

    def _retention(self, moment: Moment) -> list[int | None]:
        return [stream.retain_at(moment.entry) for stream in self._moments.streams.values()]

    def _picked(self, came: Sequence[Extent], went: Sequence[Extent], before: Moment, after: Moment) -> Changed | None:
        inserted, out = self._pick(came, after)
        retracted, left = self._pick(went, before)
        if left is not None and after.now_us is not None:
            # Those whose time was told are gone already for whoever was told.
            never = np.iinfo(np.int64).max
            premature = np.asarray(left.cast(pa.int64()).fill_null(never)) > after.now_us
            retracted = retracted.filter(pa.array(premature))
        if not len(inserted) and not len(retracted):
            return None
        return Changed(inserted, retracted, out)

    def _pick(self, extents: Sequence[Extent], moment: Moment) -> Rows:
        """The rows of the one scan in some extents, as the query gives them."""
        (scan,) = self._plan.scans
        stream = self._moments.streams[scan.block.stream]
        stamps = stream.schema.timestamp_column
        columns = (*scan.columns, stamps) if self._outs and stamps not in scan.columns else scan.columns
        needed, reader = replace(scan, columns=columns), self._moments.reader
        parts = [reader.read(needed, extent) for extent in extents if not extent.is_empty]
        rows = pa.concat_tables(parts).combine_chunks() if parts else reader.empty(needed)
        out = self._leaving(stream, scan, rows.column(stamps), moment) if self._outs else None
        return self._run({scan.relation: rows.select(scan.columns)}), out

    def _leaving(self, stream: StreamState, scan: Scan, times: pa.ChunkedArray, moment: Moment) -> pa.Array:
        """When tuples leave their window, or are beyond retention; null where they stay until another comes."""
        times_us = times.cast(pa.int64()).to_numpy()
        # As of another moment NOW stands still; and as of an entry nothing leaves at all.
        out_us = scan.window.leaving(times_us) if scan.as_of is None else None
        constant = scan.as_of is not None and scan.as_of.us is None
        retain_us = None if constant else stream.retain_at(moment.entry)
        if retain_us is not None:
            retained_us = times_us + retain_us
            out_us = retained_us if out_us is None else np.minimum(out_us, retained_us)
        if out_us is None:
            return pa.nulls(len(times_us), OUT)
        return pa.array(out_us, mask=out_us > LAST_US).cast(OUT)

    def _compute(self, extents: Sequence[Extent], moment: Moment) -> pa.Table:
        moments = self._moments
        tables = moments.tables(moment)
        return self._invoker.as_of(self._plan, moments.catalog, moments.reader, extents, tables, moment.now_us)

    def _run(self, relations: dict[str, pa.Table]) -> pa.Table:
        engine = self._invoker.engine(self._plan, sum(map(len, relations.values())))
        # Columns are picked, and nothing is computed of NOW.
        return self._invoker.compute(self._plan, relations, {}, engine)

    def _nulls(self, count: int) -> pa.Array | None:
        return pa.nulls(count, OUT) if self._outs else None
