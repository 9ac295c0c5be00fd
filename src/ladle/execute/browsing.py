"""Browsing the past: whether what an answer at another NOW is made of is still there.

A window that moves with NOW must lie behind everything that retention let go of, and [ROWS n] must find its n tuples. A
window without a beginning that moves (none at all, a landmark), or one as long as the stream's RETAIN, never promised
more than what is retained: it needs some of that. Decision 16 says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

import numpy as np

from ladle.archive.layout import Extent
from ladle.catalog import Catalog, StreamState
from ladle.clock import FIRST_US, LAST_US, to_datetime
from ladle.errors import Gone
from ladle.execute.reader import Reader
from ladle.plan import KeyedRowsWindow, RowsWindow, Scan, TimeWindow
from ladle.plan.window import MAX_US, MIN_US, Bound


def refuse_gone(scans: Iterable[Scan], streams: Sequence[str], catalog: Catalog, reader: Reader, now_us: int) -> None:
    """Raise Gone when an answer at this NOW, before the present one of some streams, would lack tuples that retention
    let go of.
    """
    wall_us = reader.wall_us
    present_us = catalog.now_us(streams, wall_us)
    present_us = wall_us if present_us is None else present_us
    if now_us >= present_us:
        return
    lacking: list[tuple[int, StreamState, int]] = []
    for scan in scans:
        stream = catalog.stream(scan.block.stream)
        assert stream is not None, f"stream {scan.block.stream} of a bound plan"
        gone_us = stream.gone_us(reader.floor_us(stream, streams))
        first_us = None
        if gone_us is not None and isinstance(scan.window, RowsWindow):
            nth_us = _nth_time(reader, stream, scan.window.rows, reader.floor_us(stream, streams))
            first_us = max(gone_us + 1, present_us if nth_us is None else nth_us)
        elif gone_us is not None and isinstance(scan.window, KeyedRowsWindow):
            first_us = present_us  # what is gone may have been the last of its key
        elif gone_us is not None and isinstance(scan.window, TimeWindow):
            first_us = _first_whole(scan.window, stream, gone_us, now_us)
        if gone_us is not None and first_us is not None and now_us < first_us:
            lacking.append((min(first_us, present_us), stream, gone_us))
    if lacking:
        first_us, stream, gone_us = max(lacking, key=itemgetter(0))
        raise Gone(
            f"An answer as of {_text(now_us)} would lack tuples: those of stream '{stream.name}' up to "
            f"{_text(gone_us)} are beyond its retention.",
            hint=f"there are answers from {_text(first_us)} on",
        )


def _first_whole(window: TimeWindow, stream: StreamState, gone_us: int, now_us: int) -> int | None:
    """The first NOW at which a window lacks nothing of what it promises; None when it does not depend on NOW."""
    begin, end = window.begin, window.end or Bound(0, relative=True)
    if not end.relative:
        return None
    begin_us, _ = window.resolve(now_us)
    if begin_us >= gone_us:
        return now_us
    shorter = stream.retain_us is None or now_us - begin_us < stream.retain_us
    if begin is not None and begin.relative and shorter:
        return _reached(begin, gone_us)
    return _reached(end, gone_us + 1)


def _reached(bound: Bound, moment_us: int) -> int:
    """The first NOW at which a bound that moves is no earlier than a moment."""
    return min(int(bound.reached(np.array([moment_us]))[0]), LAST_US)


def _nth_time(reader: Reader, stream: StreamState, count: int, floor_us: int | None) -> int | None:
    """The time up to which a stream has so many tuples that are not beyond retention; None when it has fewer."""
    segments = stream.segments
    begin_us = MIN_US if floor_us is None else floor_us
    # So many lie before the end of the first segments that are seen whole: later ones need not be looked at.
    whole = np.flatnonzero(segments.ts_min_us > begin_us)
    ordered = whole[np.argsort(segments.ts_max_us[whole])]
    at = int(np.searchsorted(np.cumsum(segments.rows[ordered]), count))
    end_us = int(segments.ts_max_us[ordered[at]]) if at < len(ordered) else MAX_US
    times = reader.times_in(stream, Extent(begin_us, end_us))
    return int(np.partition(times, count - 1)[count - 1]) if count <= len(times) else None


def _text(us: int) -> str:
    return to_datetime(min(max(us, FIRST_US), LAST_US)).isoformat(" ")
