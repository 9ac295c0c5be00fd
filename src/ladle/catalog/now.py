"""NOW of a set of streams: the highest, over all entries of the log so far, of the lowest clock of its active streams.

Clocks only ascend, so the lowest of them falls only where one more stream gets its first tuple and is behind the
others. Each stream remembers that entry, its *activation*: who was ahead of it then, and by which clocks. So NOW of any
set of streams, also of a query that is registered later, follows from the catalog alone, and never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable

from ladle.catalog.streams import Activation, StreamState

Clocked = tuple[StreamState, int | None]
"""A stream, and its clock at the entry that is looked at."""


def now_of_clocks(streams: Iterable[Clocked]) -> int | None:
    """NOW by the streams that have a time of their own; None while none of them is active."""
    active = [
        (stream.id, clock_us, stream.activation or Activation())
        for stream, clock_us in streams
        if stream.event_time and clock_us is not None
    ]
    if not active:
        return None
    found = min(clock_us for _, clock_us, _ in active)
    for _, _, activation in active:
        before = [id_ for id_, _, other in active if other.epoch < activation.epoch]
        # A stream that was active and is not among those ahead was behind: then nothing fell.
        if before and all(id_ in activation.ahead for id_ in before):
            found = max(found, min(activation.ahead[id_] for id_ in before))
    return found


def activated(before: Iterable[StreamState], stream: StreamState, epoch: int) -> StreamState:
    """A stream after an epoch; if its first tuple came in it, with its activation.

    `before` are all streams, also of quarantined rows, before that epoch.
    """
    if stream.activation is not None or stream.clock_us is None or not stream.event_time:
        return stream
    ahead = {
        other.id: other.clock_us
        for other in before
        if other.event_time and other.clock_us is not None and other.clock_us > stream.clock_us
    }
    return stream.with_activation(Activation(epoch, ahead))
