"""What is going on, as plain data: for `db.status()`, `ladle status` and the demo's view."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

UNTOLD = "it failed; admins are told why"
"""What others than admins see of a source's error: it may have paths, addresses and names of files."""


@dataclass(frozen=True)
class StreamStatus:
    """How a stream is."""

    name: str
    rows: int
    """Tuples ever accepted."""
    retained_rows: int
    epochs: int
    rows_per_second: float
    """Over the last few seconds."""
    clock: datetime | None
    pending: int
    """Pushes received and not yet taken in."""
    quarantined: int
    files: int
    bytes: int
    error: str | None = None
    """Why pushes wait, when they do."""
    lateness_seconds: float | None = None
    """How far behind the clock tuples may come; None: however far."""
    idle: bool = False
    """Whether NOW does not wait for it, because nothing came for so long."""


@dataclass(frozen=True)
class SourceStatus:
    """How a source is."""

    stream: str
    name: str
    state: str
    """running, restarting, drained, stopped; of one that is defined also starting, and defined: not run here."""
    error: str | None
    restarts: int
    batch: int | None
    """The last batch committed."""

    def without_reason(self) -> SourceStatus:
        """This status without the text of the error, which may tell of the machine."""
        return replace(self, error=self.error and UNTOLD)


@dataclass(frozen=True)
class QueryStatus:
    """How a standing query is."""

    name: str
    sql: str
    materialize: str
    window: str
    """The window's kind; `broken` of a query whose text does not bind."""
    covered: int
    segments: int
    """Segments that the current window touches, and how many of them are covered."""
    invocations: int
    """In this process."""
    error: str | None = None
    """Why some segments stay uncovered, when they do; of a broken query, why it is."""
    kept_bytes: int = 0
    """Memory that a complete query's rows take here; 0 while it is swapped out."""
    mode: str = ""
    """What is kept now: that of `materialize`, or what auto has chosen."""

    @property
    def coverage(self) -> float:
        """How much of its window is covered, from 0 to 1."""
        return 1.0 if self.segments == 0 else self.covered / self.segments


@dataclass(frozen=True)
class BackfillStatus:
    """How far a backfill of a stream is."""

    stream: str
    done: int
    total: int


@dataclass(frozen=True)
class OperatorStatus:
    """What the eddy knows of an operator on a stream, over the last epochs."""

    name: str
    tickets: float
    """Its share of all tickets on the stream."""
    reached: float
    """The share of the tuples that had to look at it."""
    passes: float
    """The share of those that it lets pass; more than one where a join gives many pairs."""
    seconds_per_tuple: float


@dataclass(frozen=True)
class DerivedStatus:
    """What there is of one kind of derived state; all of it may go at any moment, and no answer depends on it."""

    kind: str
    place: str
    """memory or disk: whose budget it is held to."""
    things: int
    """What is kept, or dropped, as a whole: columns of segments, trees, answers, files."""
    coverage: float | None
    """The part that is covered of what standing queries demand; None of what is kept as it comes."""
    memory_bytes: int
    disk_bytes: int
    rebuild_seconds: float
    """What it would take to make all of it anew, by what it took."""
    last_used: datetime | None
    evictions: int
    """Things that were dropped for want of room, in this process."""
    rebuilt: str
    """Who makes anew what was dropped."""


@dataclass(frozen=True)
class Budgets:
    """What derived state may take, all kinds together."""

    memory_bytes_max: int = 0
    disk_bytes_max: int = 0


@dataclass(frozen=True)
class Pulse:
    """What changes all the time, told without a look at each query."""

    epoch: int
    queries: int
    invocations: int
    """In this process."""
    streams: tuple[StreamStatus, ...]
    sources: tuple[SourceStatus, ...]
    operators: dict[str, tuple[OperatorStatus, ...]]
    """By stream, in the order in which the eddy visits them."""
    cache_hits: int
    cache_misses: int
    derived: tuple[DerivedStatus, ...] = ()
    budgets: Budgets = Budgets()
    subscribers: int | None = None
    """Connected to the server, where one tells."""


@dataclass(frozen=True)
class Status:
    """Everything that is going on in a database."""

    path: str
    epoch: int
    read_only: bool
    spark: str
    """not started, running, or the error that keeps it from starting."""
    streams: tuple[StreamStatus, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    queries: tuple[QueryStatus, ...] = ()
    backfills: tuple[BackfillStatus, ...] = ()
    cache_hits: int = 0
    cache_misses: int = 0
    derived: tuple[DerivedStatus, ...] = ()
    budgets: Budgets = Budgets()
    problems: dict[str, str] = field(default_factory=dict)
    """Housekeeping that failed in its last round, and why the backfill pauses, by task."""
