"""NOW of a set of streams: the highest, over all entries of the log so far, of the lowest clock of its active streams.

Clocks only ascend, and that of an idle stream stands still. A set whose streams are all idle keeps the clock of the
one that became idle last. So the lowest clock of a set falls only where a stream becomes active, for the first time or
again, and is behind others. That stream remembers all clocks just before, its *activation*. So NOW of any set, also of
a query that is registered later, follows from the catalog alone, and never goes back. An activation that later clocks
dominate for every set counts no more, and is let go in time (decision 24).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ladle.catalog.streams import Activation, StreamState
from ladle.catalog.timeline import ClockAt
from ladle.clock import FIRST_US
from ladle.json_values import JsonFields, JsonRow

Clocked = tuple[StreamState, ClockAt | None]
"""A stream, and its clock at the entry that is looked at."""

ACTIVATIONS_MAX = 64
"""Activations that a stream remembers; of these, those that only earlier moments need are let go first."""
COUNTING_MAX = 32
"""A stream with so many activations that still count is not made idle again: that bounds them."""


def now_of_clocks(streams: Iterable[Clocked], epoch: int) -> int | None:
    """NOW, as of an epoch, by the streams that have a time of their own; None while none of them was ever active."""
    known = [(stream, clock) for stream, clock in streams if clock is not None and stream.event_time]
    if len(known) == 1:
        return known[0][1].clock_us
    clocks = {stream.id: clock for stream, clock in known}
    lowest = [_lowest(clocks, clocks)]
    for stream, _ in known:
        lowest += [_lowest(each.before, clocks) for each in stream.activations if each.counts(epoch)]
    return max((us for us in lowest if us is not None), default=None)


def activated(before: Iterable[StreamState], was: StreamState, stream: StreamState, epoch: int) -> StreamState:
    """A stream after an entry that brought it tuples or a heartbeat; if that made it active, with the activation.

    `before` are all streams, also of quarantined rows, before that entry, and `was` this one.
    """
    active = was.clock_at is not None and not was.idle_since
    if active or stream.clock_us is None or not stream.event_time:
        return stream
    clocks = {other.id: other.clock_at for other in before if other.event_time and other.clock_at is not None}
    activations = [
        replace(each, until=epoch) if each.until is None and _dominates(clocks, each.before, stream.id) else each
        for each in stream.activations
    ]
    if any(clock.clock_us > stream.clock_us for clock in clocks.values()):
        activations.append(Activation(epoch, clocks))
    surplus = max(len(activations) - ACTIVATIONS_MAX, 0)
    gone = {each.epoch: each.until for each in activations if each.until is not None}
    gone = dict(list(gone.items())[:surplus])
    return replace(
        stream,
        activations=tuple(each for each in activations if each.epoch not in gone),
        now_from=max([stream.now_from, *gone.values()]),
    )


def may_become_idle(stream: StreamState) -> bool:
    """Whether the activation that ends its idleness would still be remembered."""
    return sum(each.until is None for each in stream.activations) < COUNTING_MAX


def _lowest(clocks: Mapping[int, ClockAt], streams: Collection[int]) -> int | None:
    """The lowest clock of the active streams among some; of the one that became idle last when none is active."""
    known = [clocks[stream] for stream in streams if stream in clocks]
    active = [clock.clock_us for clock in known if not clock.idle_since]
    if active or not known:
        return min(active, default=None)
    return max(known, key=lambda clock: clock.idle_since).clock_us


def _dominates(later: Mapping[int, ClockAt], earlier: Mapping[int, ClockAt], stream: int) -> bool:
    """Whether the lowest clock of every set that has this stream is as high later as it was earlier.

    One stream of a set gives its lowest clock earlier, one gives it later, and the set of these and this stream has the
    same two: so sets of three are enough. The later one was not active earlier, or else it was no higher then; and if
    it stayed idle, so did all of the set.
    """

    def stayed(other: int) -> bool:
        was = earlier.get(other)
        return was is not None and was.idle_since in (0, later[other].idle_since)

    moved = [other for other in later if not stayed(other)]
    return all(_reaches(later, earlier, {stream, one, other}) for other in moved for one in earlier if one in later)


def _reaches(later: Mapping[int, ClockAt], earlier: Mapping[int, ClockAt], streams: Collection[int]) -> bool:
    was, is_now = _lowest(earlier, streams), _lowest(later, streams)
    return was is None or (is_now is not None and is_now >= was)


def with_activations(streams: list[JsonFields]) -> list[JsonFields]:
    """The streams of a checkpoint that says of each only its first activation and who was ahead then, or nothing."""
    parts = [part for stream in streams for part in (stream, stream["quarantine"]) if part is not None]
    if all("activations" in part for part in parts):
        return streams
    first = {
        part["id"]: part.get("activation") or [0, []]
        for part in parts
        if part["clock_us"] is not None and part["schema"]["timestamp"] is not None
    }
    made: dict[int, list[JsonRow]] = {}
    for stream, (epoch, ahead) in first.items():
        # Whoever was active and not ahead was behind: how far does not matter.
        active = {other: FIRST_US for other, (earlier, _) in first.items() if earlier < epoch} | dict(ahead)
        before = {other: ClockAt(clock_us, 0) for other, clock_us in active.items()}
        made[stream] = [Activation(epoch, before).to_json()] if ahead else []

    def upgraded(part: JsonFields) -> JsonFields:
        kept = {name: value for name, value in part.items() if name != "activation"}
        return {**kept, "activations": made.get(part["id"], [])}

    return [{**upgraded(each), "quarantine": each["quarantine"] and upgraded(each["quarantine"])} for each in streams]
