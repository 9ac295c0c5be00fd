"""Which pairs of data files joins need, and who finds them.

An epoch's tasks probe the other streams' files with their own. Pairs that its snapshot did not have yet (two streams'
epochs at the same time, tasks of one epoch in a self-join) are uncovered, and are found with the next epoch or by the
backfill, whichever comes first; and so is what a new query wants of old data. As with results there is no state but
what is uncovered.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ladle.archive.segments import DataFile
from ladle.catalog import Catalog, Factors, StreamState
from ladle.catalog.store import Store
from ladle.execute.reader import Reader
from ladle.ingest.troubles import Pause
from ladle.pipeline import Pipeline
from ladle.plan import PairJoin, Reach, Window
from ladle.plan.join import reach
from ladle.plan.query import calling
from ladle.plan.window import MAX_US
from ladle.stem.blocks import NO_BLOCKS, BlockSet
from ladle.stem.join_kernel import JoinProbe, JoinSide, JoinTask, Probed
from ladle.stem.moving import MovedPairs, move_pairs
from ladle.stem.pairs import Blocks, Cover, FoundPairs, JoinCoverage, owner_of, write_pairs

_log = logging.getLogger(__name__)

_TASKS_PER_JOB_MAX = 16
_JOB_SECONDS_MAX = 1.0
"""What functions that come after a join may take in one task of a job."""
_OWED_ROWS_MAX = 1 << 18
"""Tuples whose pairs an epoch finds for others, beside its own."""

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Combo = tuple[str, str]
"""The names of a left and a right data file."""


@dataclass(frozen=True)
class JoinDemand:
    """A pair join, and what the queries that share it want of it."""

    pair: PairJoin
    digest: str
    left: StreamState
    right: StreamState
    left_blocks: Blocks
    right_blocks: Blocks
    reach: Reach
    views: frozenset[tuple[Window, Window, tuple[str, ...]]]
    """The windows on both sides, and the streams of a query, which set its NOW."""
    late: Mapping[int, Factors]
    """Blocks on either side that call functions, and the factors that do."""


class _Want(NamedTuple):
    """What one query wants of a pair join."""

    pair: PairJoin
    left_window: Window
    right_window: Window
    streams: tuple[str, ...]
    left_block: int | None
    """None: it has no filter."""
    right_block: int | None
    late: Mapping[int, Factors]


class OwedPairs:
    """Finds the pairs of joins for data files that are not yet covered."""

    def __init__(self, store: Store, pipeline: Callable[[], Pipeline]) -> None:
        self._store = store
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._claimed: set[tuple[str, Combo]] = set()
        """Pairs of files that are being joined."""
        self.stuck = False
        """Whether the last job found pairs that could not be kept."""
        self.failing: dict[tuple[str, Combo], str] = {}
        """Pairs of files that could not be joined, with the reason: they are computed on invocation."""
        self._pauses: dict[str, Pause] = {}
        """Of joins that call functions and failed somewhere, by what they are known by: functions may begin to work."""
        self.covered = (0, 0)
        """Pairs of files that are covered, of those that are demanded, when housekeeping looked last."""

    # -- what is wanted --

    def demands(self, catalog: Catalog, left_out: BlockSet = NO_BLOCKS) -> list[JoinDemand]:
        """The joins of standing queries that keep results, but for those with blocks that are left out."""
        found: dict[str, list[_Want]] = {}
        for query in catalog.queries.joining.values():
            if not left_out.isdisjoint(BlockSet.of(query.blocks)):
                continue
            assert query.shape.joined is not None
            scans = query.shape.scans
            for edge in (edge for join in query.shape.joined.joins for edge in join.edges):
                left, right = catalog.streams.get(edge.pair.left.lower()), catalog.streams.get(edge.pair.right.lower())
                if left is None or right is None:  # a quarantine, which is joined when somebody asks
                    continue
                left_block, right_block = (
                    query.blocks[number] if query.factors[number] else None for number in (edge.left, edge.right)
                )
                windows = scans[edge.left].window, scans[edge.right].window
                late = {
                    query.blocks[number]: called
                    for number in (edge.left, edge.right)
                    if (called := calling(query.factors[number]))
                }
                want = _Want(edge.pair, *windows, query.shape.streams, left_block, right_block, late)
                found.setdefault(edge.pair.digest(left.id, right.id), []).append(want)
        return [_demand(catalog, digest, wants) for digest, wants in found.items()]

    def late(self, catalog: Catalog, stream: StreamState) -> dict[int, tuple[str, ...]]:
        """Blocks of a stream that call functions and that only joins look at, with the names of those joins' SteMs:
        the eddy may have the functions called after the joins.
        """
        stems: dict[int, set[str]] = {}
        users: Counter[int] = Counter()
        for query in catalog.queries.joining.values():
            if not query.shape.functions:
                continue
            assert query.shape.joined is not None
            joined: dict[int, set[str]] = {}
            for edge in (edge for join in query.shape.joined.joins for edge in join.edges):
                for number, left in ((edge.left, True), (edge.right, False)):
                    joined.setdefault(number, set()).add(edge.pair.operator(left=left))
            own: dict[int, set[str]] = {}
            for number, (block, scan, factors) in enumerate(
                zip(query.blocks, query.shape.scans, query.factors, strict=True)
            ):
                if scan.stream.lower() == stream.name.lower() and calling(factors):
                    # A scan beside the joins has no SteM, and wants its results at once.
                    own.setdefault(block, set()).update(joined.get(number, ("",)))
            for block, names in own.items():
                if "" not in names:
                    stems.setdefault(block, set()).update(names)
                    users[block] += 1
        kept = catalog.queries.kept_on(stream.name)
        return {block: tuple(sorted(names)) for block, names in stems.items() if kept.get(block).users == users[block]}

    def needed(self, catalog: Catalog, demand: JoinDemand) -> list[tuple[DataFile, DataFile]]:
        """The pairs of files that some query's windows have, had a moment ago, or are about to have."""
        wall_us = self._store.clock.now_us()
        reader = Reader(self._store, catalog, wall_us)
        lefts, rights = demand.left.files, demand.right.files
        if not lefts or not rights:
            return []
        wanted = np.zeros((len(lefts), len(rights)), dtype=np.bool_)
        for left_window, right_window, streams in demand.views:
            now_us = catalog.now_us(streams, wall_us)
            left = _touched(reader, demand.left, left_window, now_us)
            right = _touched(reader, demand.right, right_window, now_us)
            # Within reach of a window is what was in it with some NOW that an epoch may have passed over.
            either = demand.reach.is_bounded
            wanted |= (left[:, None] | right[None, :]) if either else (left[:, None] & right[None, :])
        (left_first, left_last), (right_first, right_last) = _spans(demand.left), _spans(demand.right)
        wanted &= right_last[None, :] - left_first[:, None] > demand.reach.low
        wanted &= right_first[None, :] - left_last[:, None] < demand.reach.high
        return [(lefts[left], rights[right]) for left, right in zip(*wanted.nonzero(), strict=True)]

    def missing(
        self, catalog: Catalog, demand: JoinDemand, *, retrying: bool = False
    ) -> list[tuple[DataFile, DataFile]]:
        """Those of them that are not covered; those that failed before only when they are to be tried again."""
        coverage = self._store.join_coverage(demand.digest)
        failing: Collection[tuple[str, Combo]] = () if retrying else self.failing
        with self._lock:
            return [
                (left, right)
                for left, right in self.needed(catalog, demand)
                if not _is_covered(coverage, demand, left.name, right.name)
                and (demand.digest, (left.name, right.name)) not in self._claimed
                and (demand.digest, (left.name, right.name)) not in failing
            ]

    # -- with an epoch --

    @contextmanager
    def with_epoch(
        self, catalog: Catalog, stream: StreamState, left_out: BlockSet
    ) -> Iterator[tuple[tuple[JoinProbe, ...], tuple[JoinTask, ...]]]:
        """The joins that new tuples of a stream take part in, and what was left to find of the same joins."""
        own = (
            [demand for demand in self.demands(catalog, left_out) if stream.id in (demand.left.id, demand.right.id)]
            if catalog.queries.joining
            else []
        )
        probes = tuple(self._probe(catalog, demand, stream) for demand in own)
        owed: list[JoinTask] = []
        rows = 0
        for demand in own:
            for task, task_rows in self._tasks(demand, self.missing(catalog, demand)):
                if rows and rows + task_rows > _OWED_ROWS_MAX:
                    break
                owed.append(task)
                rows += task_rows
        with self._claiming(owed):
            yield probes, tuple(owed)

    def visitors(self, catalog: Catalog, probes: Iterable[JoinProbe]) -> dict[str, int]:
        """Whose tuples visit the SteMs of some joins: the ids of streams."""
        pairs = [probe.task.pair for probe in probes]
        lefts = {pair.operator(left=True): catalog.streams[pair.left.lower()].id for pair in pairs}
        return lefts | {pair.operator(left=False): catalog.streams[pair.right.lower()].id for pair in pairs}

    def _probe(self, catalog: Catalog, demand: JoinDemand, stream: StreamState) -> JoinProbe:
        wall_us = self._store.clock.now_us()
        reader = Reader(self._store, catalog, wall_us)

        def probed(side: StreamState, other: StreamState, number: int) -> tuple[Probed, ...]:
            if side.id != stream.id:
                return ()
            touched = np.zeros(len(other.files), dtype=np.bool_)
            for left_window, right_window, streams in demand.views:
                window = (left_window, right_window)[number]
                touched |= _touched(reader, other, window, catalog.now_us(streams, wall_us))
            return tuple(Probed(other.files[at].name, _span(other.files[at])) for at in np.flatnonzero(touched))

        as_left, as_right = probed(demand.left, demand.right, 1), probed(demand.right, demand.left, 0)
        names = {each.name for each in (*as_left, *as_right)}
        sides = tuple(side for side, own in enumerate((demand.left, demand.right)) if own.id == stream.id)
        return JoinProbe(self._task(demand, "", (), names), as_left, as_right, sides)

    # -- by the backfill --

    def run_job(self, catalog: Catalog, left_out: BlockSet) -> bool:
        """One job for what is uncovered; whether to go on."""
        self.stuck = False
        if not catalog.queries.joining:
            return False
        for demand in self.demands(catalog, left_out):
            missing = self.missing(catalog, demand, retrying=self._is_due(demand))
            found = [task for task, _ in self._tasks(demand, missing)]
            tasks = found[:_TASKS_PER_JOB_MAX]
            if not tasks:
                continue
            began = time.monotonic()
            with self._claiming(tasks):
                joined = self._pipeline().run_joins(tasks)
            self._store.read_elsewhere.note("joins", joined.bytes_read)
            combos = sum(len(task.files) for task in tasks)
            self._store.rates.note("pairs", demand.digest, combos, time.monotonic() - began)
            progressed = self._note(demand, tasks, joined.failures) or joined.unfinished
            self.stuck = not progressed
            return progressed
        return False

    def _is_due(self, demand: JoinDemand) -> bool:
        """Whether pairs that failed are tried again: only those of functions can turn out otherwise."""
        pause = self._pauses.get(demand.digest)
        return bool(demand.late) and pause is not None and not pause.rests(self._store.clock.now_us())

    def _note(self, demand: JoinDemand, tasks: Sequence[JoinTask], failures: Mapping[str, str]) -> bool:
        """What a job has covered, and what it can't; whether it got anywhere."""
        coverage = self._store.join_coverage(demand.digest)
        progressed = False
        for task in tasks:
            reason = failures.get(task.owner)
            lacking = [files for files in task.files if not _is_covered(coverage, demand, *files)]
            progressed |= len(lacking) < len(task.files)
            for files in task.files:
                self.failing.pop((demand.digest, files), None)
            # What raises is computed on invocation. What is merely lacking was deleted meanwhile: another time.
            if reason is not None and lacking:
                self.failing |= {(demand.digest, files): reason for files in lacking}
                self._pauses.setdefault(demand.digest, Pause()).note(self._store.clock.now_us())
                progressed = True
                _log.warning("%s is joined on invocation where %s takes part: %s", demand.pair.text, task.owner, reason)
        return progressed

    # -- by compaction --

    def move(self, catalog: Catalog, stream: StreamState, run: Sequence[DataFile], merged: DataFile) -> None:
        """Let a file that has the tuples of others have their pairs too. What is not known of one of them stays
        uncovered, and the backfill finds it.
        """
        if not catalog.queries.joining:
            return
        for demand in self.demands(catalog):
            found: list[FoundPairs] = []
            is_left, is_right = demand.left.id == stream.id, demand.right.id == stream.id
            parts = {file.name for file in run}
            if is_left:
                others = [file for file in demand.right.files if file.name not in parts or not is_right]
                found += [moved for file in others if (moved := self._moved(demand, run, [file], merged, file))]
            if is_right:
                others = [file for file in demand.left.files if file.name not in parts or not is_left]
                found += [moved for file in others if (moved := self._moved(demand, [file], run, file, merged))]
            if is_left and is_right and (moved := self._moved(demand, run, run, merged, merged)):
                found.append(moved)
            if found:
                write_pairs(self._store.warehouse.joins / demand.digest, merged.name, found)

    def _moved(
        self, demand: JoinDemand, lefts: Sequence[DataFile], rights: Sequence[DataFile], left: DataFile, right: DataFile
    ) -> FoundPairs | None:
        """The pairs of two files from those of their parts."""
        coverage = self._store.join_coverage(demand.digest)
        parts: list[MovedPairs] = []
        left_start = 0
        for one in lefts:
            right_start = 0
            for other in rights:
                if demand.reach.allows(_span(one), _span(other)):
                    entry = coverage.find(one.name, other.name, demand.reach, demand.left_blocks, demand.right_blocks)
                    if entry is None:
                        return None
                    parts.append(MovedPairs(entry, left_start, right_start))
                right_start += other.rows
            left_start += one.rows
        cover = Cover(left.name, right.name, demand.reach, demand.left_blocks, demand.right_blocks)
        return move_pairs(cover, parts) if parts else None

    def count(self, catalog: Catalog) -> None:
        """Look at how many of the pairs of files that are demanded are covered now."""
        done = total = 0
        for demand in self.demands(catalog):
            coverage = self._store.join_coverage(demand.digest)
            wanted = {(left.name, right.name) for left, right in self.needed(catalog, demand)}
            done += sum(_is_covered(coverage, demand, *files) for files in wanted)
            total += len(wanted)
        self.covered = (done, total)

    # -- files nobody needs --

    def clean(self, catalog: Catalog, writing: Callable[[str], bool]) -> None:
        """Remove what belongs to joins, files and windows that are gone, and what another covers."""
        demands = {demand.digest: demand for demand in self.demands(catalog)}
        directories = [path for path in _listed(self._store.warehouse.joins) if not path.name.startswith(".")]
        done = total = 0
        for directory in directories:
            demand = demands.get(directory.name)
            if demand is None:
                shutil.rmtree(directory, ignore_errors=True)
                continue
            coverage = self._store.join_coverage(demand.digest)
            wanted = {(left.name, right.name) for left, right in self.needed(catalog, demand)}
            live = {file.name for stream in (demand.left, demand.right) for file in stream.files}
            useful = {
                id(entry)
                for left, right in wanted
                if (entry := coverage.find(left, right, demand.reach, demand.left_blocks, demand.right_blocks))
            }
            done, total = done + len(useful), total + len(wanted)
            for file in coverage.files():
                owner = owner_of(file.name) or ""
                if owner not in live and writing(owner):
                    continue
                combos = [(entry.cover.left, entry.cover.right) for entry in file.entries]
                covered = [combo for combo in combos if _is_covered(coverage, demand, *combo)]
                needed = any(id(entry) in useful for entry in file.entries)
                # One that covers some queries alone is good until the others are covered too.
                waits = any(combo in wanted and combo not in covered for combo in combos)
                if not needed and not waits:
                    coverage.remove([file.name])
        self.covered = (done, total)
        living = {name for stream in catalog.streams.values() for name in (file.name for file in stream.files)}
        with self._lock:
            self._pauses = {
                digest: pause
                for digest, pause in self._pauses.items()
                if digest in demands and any(digest == failing for failing, _ in self.failing)
            }
            self.failing = {
                key: why for key, why in self.failing.items() if key[0] in demands and living.issuperset(key[1])
            }

    # -- tasks --

    def _tasks(self, demand: JoinDemand, missing: Sequence[tuple[DataFile, DataFile]]) -> list[tuple[JoinTask, int]]:
        """What is missing, by the later file of each pair, newest first; and how many tuples that looks at."""
        owned: dict[str, list[tuple[DataFile, DataFile]]] = {}
        newest: dict[str, int] = {}
        for left, right in missing:
            owner = left if left.epoch_last >= right.epoch_last else right
            owned.setdefault(owner.name, []).append((left, right))
            newest[owner.name] = owner.epoch_last
        tasks = []
        for name in sorted(owned, key=lambda each: -newest[each]):
            combos = owned[name]
            files = {file.name: file.rows for combo in combos for file in combo}
            names = tuple((left.name, right.name) for left, right in combos)
            tasks.append((self._task(demand, name, names, files), sum(files.values())))
        return tasks

    def _task(self, demand: JoinDemand, owner: str, files: tuple[Combo, ...], read: Collection[str]) -> JoinTask:
        settings = self._store.settings
        return JoinTask(
            demand.pair,
            demand.reach,
            self._side(demand.left, demand.left_blocks, demand.late, read),
            self._side(demand.right, demand.right_blocks, demand.late, read),
            self._store.warehouse.joins / demand.digest,
            owner,
            files,
            settings.join_pairs_max,
            settings.factor_seconds_max,
            _JOB_SECONDS_MAX,
        )

    def _side(
        self, stream: StreamState, blocks: Blocks, late: Mapping[int, Factors], read: Collection[str]
    ) -> JoinSide:
        own = {block: factors for block, factors in late.items() if blocks is not None and block in blocks}
        files = {file.name: file for file in stream.files if file.name in read}
        results = self._store.warehouse.stream(stream.id).results
        return JoinSide(self._store.source(stream), results, blocks, own, files)

    @contextmanager
    def _claiming(self, tasks: Collection[JoinTask]) -> Iterator[None]:
        claimed = {(task.directory.name, combo) for task in tasks for combo in task.files}
        with self._lock:
            self._claimed |= claimed
        try:
            yield
        finally:
            with self._lock:
                self._claimed -= claimed


def _demand(catalog: Catalog, digest: str, wants: Sequence[_Want]) -> JoinDemand:
    """All that the queries of one pair join want."""
    pair = wants[0].pair
    views = frozenset((want.left_window, want.right_window, want.streams) for want in wants)
    reaches = [reach(left, right) for left, right, _ in views]
    return JoinDemand(
        pair,
        digest,
        catalog.streams[pair.left.lower()],
        catalog.streams[pair.right.lower()],
        _all_blocks(want.left_block for want in wants),
        _all_blocks(want.right_block for want in wants),
        Reach(min(each.low for each in reaches), max(each.high for each in reaches)),
        views,
        {block: factors for want in wants for block, factors in want.late.items()},
    )


def _all_blocks(blocks: Iterable[int | None]) -> Blocks:
    found = set(blocks)
    return None if None in found else frozenset(block for block in found if block is not None)


def _is_covered(coverage: JoinCoverage, demand: JoinDemand, left: str, right: str) -> bool:
    return coverage.find(left, right, demand.reach, demand.left_blocks, demand.right_blocks) is not None


def _touched(reader: Reader, stream: StreamState, window: Window, now_us: int | None) -> Mask:
    """Which files have tuples of a window, or of where it will be when its streams have caught up with each other."""
    extent = reader.extent_of(window, stream, now_us, (stream.name,))._replace(end_us=MAX_US)
    touched = np.zeros(len(stream.files), dtype=np.bool_)
    touched[reader.files_in(stream, extent)] = True
    return touched


def _spans(stream: StreamState) -> tuple[Int64s, Int64s]:
    """The first and the last time of each file."""
    segments = stream.segments
    starts = np.searchsorted(segments.file, np.arange(len(stream.files)))
    return np.minimum.reduceat(segments.ts_min_us, starts), np.maximum.reduceat(segments.ts_max_us, starts)


def _span(file: DataFile) -> tuple[int, int]:
    return file.ts_min_us, file.ts_max_us


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return []
