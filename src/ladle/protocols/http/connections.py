"""All connections of the server: how many there may be, and for how long each may keep its client waited for.

Whoever has no token can connect, and say nothing; so what a connection costs is bounded before anything is known of
its client. A connection is a *stranger's* until a request of a known user came over it. Strangers' are limited for each
address; when there is no place left for a new one, the oldest stranger's is closed, and then the longest idle. Users'
connections, with which subscribers stay for as long as they like, are limited in all.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from ladle.config import Settings

CONNECTION = "ladle.connection"
"""In a scope's state: the connection that a request came over."""
SPARE = 32
"""Connections beyond all places, over which only health and figures are told."""

_log = logging.getLogger(__name__)

_LOOK_SECONDS_MAX = 1.0
"""How often limits of time are looked at; more often when they are short."""


class Ended(StrEnum):
    """Why the server ended a connection by itself."""

    HEAD = "head"
    """The head of a request, or its TLS handshake, did not come in time."""
    IDLE = "idle"
    STALLED = "stalled"
    """The client did not read what it had asked for."""
    CROWDED_OUT = "crowded_out"
    """Another needed its place."""
    REFUSED = "refused"
    """There was no place."""


@dataclass(eq=False)
class Connection:
    """One connection, from its acceptance on; the transport is there after the TLS handshake."""

    table: Connections = field(repr=False)
    address: str
    spare: bool
    end: Callable[[], None] = lambda: None
    """Ends it at once."""
    expire: Callable[[], Ended | None] = lambda: None
    """Called when the deadline has passed; says why it was ended."""
    transport: asyncio.Transport | None = None
    known: bool = False
    """Whether a request of a known user came over it."""
    idle_since: float | None = None
    """Since when it waits for the next request."""
    deadline: float | None = None
    """When the client must have sent the head of a request; None while there is nothing to wait for."""
    written: int = 0
    """Bytes that the transport was given."""
    _mark: tuple[float, int] | None = field(default=None, repr=False)
    """When, and after how many bytes sent, the client was last seen to make progress."""

    def recognise(self) -> None:
        """A known user has sent a request over it."""
        if not self.known:
            self.known = True
            self.table.recognise(self)

    def lost(self) -> None:
        """It has ended. May be said twice."""
        self.table.forget(self)

    def stalls(self, now: float, settings: Settings) -> bool:
        """Whether there is something to read for the client that it does not read."""
        unsent = 0 if self.transport is None else self.transport.get_write_buffer_size()
        if not unsent:
            self._mark = None
            return False
        sent = self.written - unsent
        if self._mark is None or sent - self._mark[1] >= settings.progress_bytes_min:
            self._mark = now, sent
            return False
        return now - self._mark[0] >= settings.progress_seconds_max


class Connections:
    """The table of connections. Used by the event loop's thread only."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ended: Counter[Ended] = Counter()
        self._most = _places(settings.connections_max)
        self._all: dict[Connection, None] = {}
        """In the order of their acceptance, as all of these are."""
        self._strangers: dict[Connection, None] = {}
        self._spare: dict[Connection, None] = {}
        self._by_address: dict[str, dict[Connection, None]] = {}
        """Strangers' connections of each address."""
        self._looking: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at limits of time from now on. Called in the event loop."""
        limits = self.settings
        shortest = min(limits.head_seconds_max, limits.idle_seconds_max, limits.progress_seconds_max)
        self._look(asyncio.get_running_loop(), min(_LOOK_SECONDS_MAX, shortest / 4))

    def stop(self) -> None:
        """Stop looking after connections, and close those that nobody else knows of."""
        if self._looking is not None:
            self._looking.cancel()
        for connection in list(self._all):
            if connection.transport is None:  # nobody else knows of it
                connection.end()

    @property
    def known(self) -> int:
        """How many connections known users have."""
        return len(self._all) - len(self._strangers)

    @property
    def strangers(self) -> int:
        """How many connections there are over which no known user has asked anything yet."""
        return len(self._strangers)

    def admit(self, address: str) -> Connection | None:
        """A place for a new connection, or None."""
        of_address = self._by_address.get(address, {})
        if len(of_address) >= self.settings.connections_per_address_max:
            self._end(next(iter(of_address)), Ended.CROWDED_OUT)
        spare = len(self._all) - len(self._spare) >= self._most and not self.make_room()
        if spare and len(self._spare) >= SPARE:
            crowded_out = next((each for each in self._spare if not each.known), None)
            if crowded_out is None:
                self.ended[Ended.REFUSED] += 1
                return None
            self._end(crowded_out, Ended.CROWDED_OUT)
        connection = Connection(self, address, spare)
        self._all[connection] = self._strangers[connection] = None
        if spare:
            self._spare[connection] = None
        self._by_address.setdefault(address, {})[connection] = None
        return connection

    def make_room(self) -> bool:
        """End one that may be ended, for another to have its place; False if there is none."""
        crowded_out = next((each for each in self._strangers if not each.spare), None) or self._longest_idle()
        if crowded_out is not None:
            self._end(crowded_out, Ended.CROWDED_OUT)
        return crowded_out is not None

    def forget(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._all.pop(connection, None)
        self._spare.pop(connection, None)
        self.recognise(connection)

    def recognise(self, connection: Connection) -> None:
        """Note that a connection is a known user's."""
        self._strangers.pop(connection, None)
        of_address = self._by_address.get(connection.address)
        if of_address is not None:
            of_address.pop(connection, None)
            if not of_address:
                del self._by_address[connection.address]

    def _longest_idle(self) -> Connection | None:
        idle = [each for each in self._all if each.idle_since is not None and not each.spare]
        return min(idle, key=lambda each: each.idle_since or 0.0, default=None)

    def _end(self, connection: Connection, why: Ended) -> None:
        self.ended[why] += 1
        self.forget(connection)
        connection.end()

    def _look(self, loop: asyncio.AbstractEventLoop, every_seconds: float) -> None:
        self._looking = loop.call_later(every_seconds, self._look, loop, every_seconds)
        now = loop.time()
        for connection in list(self._all):
            if connection.stalls(now, self.settings):
                self._end(connection, Ended.STALLED)
            elif connection.deadline is not None and now >= connection.deadline:
                try:
                    why = connection.expire()
                except Exception:
                    # One that can't be told must not keep those after it open.
                    _log.exception("ending a connection")
                    connection.end()
                    why = Ended.HEAD
                if why is not None:
                    self.ended[why] += 1


def _places(connections_max: int) -> int:
    """As many connections as may be open: half of the files that the system allows are left to the database."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # some systems have another limit beside it
            pass
    if soft == resource.RLIM_INFINITY or soft // 2 >= connections_max:
        return connections_max
    _log.warning("at most %d connections: the system allows %d open files (ulimit -n)", soft // 2, soft)
    return soft // 2
