"""CACQ's experiments with selections: throughput (section 3.1), routing policies and tickets (section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks._cacq_workload import (
    ATTRIBUTES,
    CONSTANTS,
    STREAM,
    TOP,
    Counting,
    Eddy,
    Passed,
    RouterMaker,
    arriving,
    counts_by_duckdb,
    create,
    nested,
    on_all,
    random_conditions,
    segments_of,
    tuples,
)
from benchmarks._workload import check_counts
from ladle.eddy import Account, Policy, Router
from ladle.eddy.routing import merged
from ladle.engine import Database

SHARED, APART = "shared", "one eddy per query"


# -- throughput --


@dataclass(frozen=True)
class Throughput:
    """One point, with its samples."""

    x: int
    """Queries, or sources."""
    tuples: int
    """That arrived, over all sources."""
    output: int
    """Tuples that all queries gave."""
    seconds: dict[str, list[float]]
    """By system."""

    def rate(self, system: str) -> float:
        """Tuples that are given out each second."""
        return self.output / float(np.median(self.seconds[system]))


def over_queries(db: Database, scratch: Path, queries: int, *, rows: int, rounds: int) -> Throughput:
    return _throughput(db, scratch, queries, {STREAM: random_conditions(queries, seed=41)}, rows, rounds)


def over_sources(db: Database, scratch: Path, sources: int, *, queries: int, rows: int, rounds: int) -> Throughput:
    """Queries of one predicate each, spread over the sources at random."""
    conditions = random_conditions(queries, seed=42, predicates=1)
    chosen = np.random.default_rng(43).integers(0, sources, queries).tolist()
    streams: dict[str, list[str]] = {}
    for source, condition in zip(chosen, conditions, strict=True):
        streams.setdefault(f"{STREAM}{source}", []).append(condition)
    for stream in streams:
        if stream not in db.catalog.streams:
            create(db, stream)
    return _throughput(db, scratch, sources, streams, rows, rounds)


def _throughput(
    db: Database, scratch: Path, x: int, streams: Mapping[str, Sequence[str]], rows: int, rounds: int
) -> Throughput:
    """Both systems take turns over the same tuples."""
    shared = {stream: Eddy(db, texts, stream) for stream, texts in streams.items()}
    apart = {stream: [Eddy(db, [text], stream) for text in texts] for stream, texts in streams.items()}
    tables = {stream: tuples(rows, 5, number) for number, stream in enumerate(streams)}
    segments = {stream: segments_of(table) for stream, table in tables.items()}
    expected = {stream: counts_by_duckdb(tables[stream], texts) for stream, texts in streams.items()}
    seconds: dict[str, list[float]] = {SHARED: [], APART: []}
    for turn in range(rounds + 1):
        together = {stream: eddy.run(segments[stream], Router(), scratch) for stream, eddy in shared.items()}
        single = {
            stream: [eddy.run(segments[stream], Router(), scratch) for eddy in eddies]
            for stream, eddies in apart.items()
        }
        for stream, counts in expected.items():
            check_counts(SHARED, together[stream].counts, counts)
            check_counts(APART, [count for passed in single[stream] for count in passed.counts], counts)
        if turn:  # the first warms up
            seconds[SHARED].append(sum(passed.seconds for passed in together.values()))
            seconds[APART].append(sum(passed.seconds for each in single.values() for passed in each))
    output = sum(sum(counts) for counts in expected.values())
    return Throughput(x, rows * len(streams), output, seconds)


# -- filters per tuple --

OPTIMUM = "a, b, c, d, e"
"""The order that is best for the nested queries, fixed."""
REVERSED = "e, d, c, b, a"
TICKETS_SMALL = "tickets, small epochs"


@dataclass(frozen=True)
class Visits:
    """One policy: filters that a tuple visits, a sample for each run; and what a tuple takes with the plain router."""

    policy: str
    epoch: int
    per_tuple: list[float]
    by_filter: dict[str, float]
    ns_per_tuple: list[float]

    @property
    def mean(self) -> float:
        return float(np.median(self.per_tuple))


def hypothetical_optimum() -> float:
    """Expected visits if each tuple goes through the filters by selectivity, until one drops it (CACQ section 3.3)."""
    visits, passing = 0.0, 1.0
    for name in ATTRIBUTES:
        visits += passing
        passing *= 1 - CONSTANTS[name] / TOP
    return visits


def policies(db: Database, scratch: Path, *, epoch: int, small: int, epochs: int, runs: int) -> list[Visits]:
    """The five nested queries under every policy. Accounts go from epoch to epoch as in the engine."""
    eddy = Eddy(db, nested())
    whole = tuples(epoch * epochs, 6)
    thorough = Counting(Policy.RANDOM, learn_all=True)
    eddy.run(segments_of(whole), thorough, scratch).check("random order", whole, eddy.conditions)
    known = thorough.accounts

    def maker(policy: Policy, seed: int) -> RouterMaker:
        return lambda before: Counting(policy, before, seed)

    found = []
    for name, policy, size in (
        ("tickets", Policy.TICKETS, epoch),
        (TICKETS_SMALL, Policy.TICKETS, small),
        ("random", Policy.RANDOM, epoch),
        ("best", Policy.BEST, epoch),
        ("worst", Policy.WORST, epoch),
    ):
        start = known if policy in (Policy.BEST, Policy.WORST) else {}
        per_run = [_routed(eddy, scratch, whole, size, maker(policy, seed), start) for seed in range(runs)]
        plain = [_plain(eddy, scratch, whole, size, policy, start, seed) for seed in range(runs)]
        found.append(_visits(name, size, per_run, plain))
    for order in (OPTIMUM, REVERSED):
        found.append(_visits(order, epoch, [_routed(eddy, scratch, whole, epoch, _in_order(order), {})], []))
    return found


def _in_order(order: str) -> RouterMaker:
    return lambda _: Counting(given=order)


def _visits(policy: str, epoch: int, runs: Sequence[Mapping[str, float]], plain: Sequence[float]) -> Visits:
    by_filter = {name: float(np.median([run.get(name, 0.0) for run in runs])) for name in ATTRIBUTES}
    return Visits(policy, epoch, [sum(run.values()) for run in runs], by_filter, [1e9 * each for each in plain])


def _routed(
    eddy: Eddy, scratch: Path, whole: pa.Table, size: int, make: RouterMaker, known: Mapping[str, Account]
) -> dict[str, float]:
    """Visits of each filter by a tuple, over all epochs."""
    visits = dict.fromkeys(ATTRIBUTES, 0.0)
    counts = np.zeros(len(eddy.conditions), dtype=np.int64)
    for start in range(0, len(whole), size):
        router = make(known)
        counts += eddy.run(segments_of(whole.slice(start, size)), router, scratch).counts
        for name, visited in router.visits.items():
            visits[name] += visited / len(whole)
        if router.policy is Policy.TICKETS:
            known = merged(known, [router.accounts])
    Passed(0.0, counts.tolist()).check("routing", whole, eddy.conditions)
    return visits


def _plain(
    eddy: Eddy, scratch: Path, whole: pa.Table, size: int, policy: Policy, known: Mapping[str, Account], seed: int
) -> float:
    """Seconds per tuple with the router as the engine has it."""
    seconds = 0.0
    counts = np.zeros(len(eddy.conditions), dtype=np.int64)
    for start in range(0, len(whole), size):
        router = Router(policy, known, seed)
        passed = eddy.run(segments_of(whole.slice(start, size)), router, scratch)
        seconds += passed.seconds
        counts += passed.counts
        if policy is Policy.TICKETS:
            known = merged(known, [router.accounts])
    Passed(seconds, counts.tolist()).check(f"policy {policy.value}", whole, eddy.conditions)
    return seconds / len(whole)


# -- a flip of selectivities --

WITHIN = 1.2


@dataclass(frozen=True)
class Flip:
    """Visits per tuple, epoch by epoch, of tickets and of the order that is the best then."""

    before: int
    """Epochs before the flip."""
    tickets: list[float]
    best: list[float]

    @property
    def epochs(self) -> int:
        """Which epoch after the flip is the first within 1.2 x of the best; beyond the last if none is."""
        after = zip(self.tickets[self.before :], self.best[self.before :], strict=True)
        near = [number for number, (own, best) in enumerate(after, 1) if own <= WITHIN * best]
        return near[0] if near else len(self.tickets) - self.before + 1


def flip(db: Database, scratch: Path, *, epoch: int, before: int, after: int, seed: int) -> Flip:
    """Five queries on all attributes; then the most selective becomes the least, and so on."""
    eddy = Eddy(db, on_all())
    selective = [1 - CONSTANTS[name] / TOP for name in ATTRIBUTES]
    passing = dict(zip(ATTRIBUTES, reversed(selective), strict=True))
    known: Mapping[str, Account] = {}
    own: list[float] = []
    best: list[float] = []
    for number in range(before + after):
        flipped = number >= before
        table = tuples(epoch, 7, seed, number, passing=passing if flipped else None)
        segments = segments_of(table)
        router = Counting(Policy.TICKETS, known, seed)
        eddy.run(segments, router, scratch).check("flip", table, eddy.conditions)
        known = merged(known, [router.accounts])
        ideal = Counting(given=REVERSED if flipped else OPTIMUM)
        eddy.run(segments, ideal, scratch).check("flip, best order", table, eddy.conditions)
        own.append(sum(router.visits.values()) / epoch)
        best.append(sum(ideal.visits.values()) / epoch)
    return Flip(before, own, best)


# -- tickets over time --

EVERY_SECONDS = 5


@dataclass(frozen=True)
class Tickets:
    """Each filter's share of all tickets after each epoch; none before some query uses it."""

    workload: int
    conditions: list[str]
    shares: dict[str, list[float]]

    @property
    def steady(self) -> int:
        """The most epochs after an arrival until no share is further than ten points from where it was in the end."""
        values = np.array([self.shares[name] for name in ATTRIBUTES])
        worst = 0
        arrivals = range(0, values.shape[1], EVERY_SECONDS)
        for number, start in enumerate(arrivals):
            stop = values.shape[1] if number + 1 >= len(self.conditions) else start + EVERY_SECONDS
            off = np.abs(values[:, start:stop] - values[:, stop - 1 : stop]).max(axis=0) > 0.1
            worst = max(worst, int(np.flatnonzero(off).max(initial=-1)) + 1)
            if stop == values.shape[1]:
                break
        return worst


def tickets(db: Database, scratch: Path, workload: int, *, epoch: int, seconds: int) -> Tickets:
    """One epoch a second of stream time, and every five seconds one query more."""
    conditions = arriving(workload)
    shares: dict[str, list[float]] = {name: [] for name in ATTRIBUTES}
    known: Mapping[str, Account] = {}
    eddy = Eddy(db, conditions[:1])
    for second in range(seconds):
        standing = conditions[: second // EVERY_SECONDS + 1]
        if len(standing) > len(eddy.conditions):
            eddy = Eddy(db, standing)
        table = tuples(epoch, 8, second)
        router = Router(Policy.TICKETS, known)
        eddy.run(segments_of(table), router, scratch).check(f"workload {workload}", table, standing)
        known = merged(known, [router.accounts])
        held = {name: router.account(name).tickets for name in eddy.stem.columns}
        for name in ATTRIBUTES:
            shares[name].append(held.get(name, 0.0) / sum(held.values()))
    return Tickets(workload, conditions, shares)
