"""The kernel of joins: new tuples probe old ones, in the epoch's task or in a backfill's.

Only tuples that some query of the join wants are looked at: a pair's lineage is the AND of both sides', so one that no
query wants on either side is no pair of anybody. Where the eddy put a join before a function, all candidates of its
blocks are looked at, and the function is called for those that have partners: what it says is kept beside the pairs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.files import MissingFile
from ladle.archive.scan import ArchiveSource, Batch, Counts, Request, scan
from ladle.archive.segments import DataFile
from ladle.columns import from_numpy
from ladle.eddy import Account, Router
from ladle.errors import EvaluationError, LadleError
from ladle.plan import Factor, JoinKey, PairJoin, Reach
from ladle.stem.asking import Asking, Budget
from ladle.stem.blocks import candidates
from ladle.stem.data_stem import DataStem, Pairs, join
from ladle.stem.masks import TRUE, read_masks, write_masks
from ladle.stem.pairs import Blocks, Cover, FoundPairs, write_pairs
from ladle.stem.results import DamagedResults, Results, data_file_of, file_names

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_log = logging.getLogger(__name__)

_STEM_ROWS_MAX = 1 << 21
"""Tuples in the SteMs that a worker keeps, of the files last probed."""


@dataclass(frozen=True)
class JoinSide:
    """One stream of a join, as a task needs to know it."""

    source: ArchiveSource
    results: Path
    blocks: Blocks
    """Those that queries of the join have on this side."""
    late: Mapping[int, tuple[Factor, ...]] = field(default_factory=dict)
    """Of these the ones with functions, and the factors that call them."""
    files: Mapping[str, DataFile] = field(default_factory=dict)
    """Those that are read, by name."""

    def with_file(self, file: DataFile) -> JoinSide:
        """This side with one more file that is read."""
        return replace(self, files={**self.files, file.name: file})

    def read(self, name: str, columns: Iterable[str], counts: Counts) -> list[Batch]:
        """All segments of a file."""
        return list(scan(Request(self.source, (self.files[name],), tuple(columns)), counts=counts))


@dataclass(frozen=True)
class JoinTask:
    """Pairs of data files to be joined, all of which one file owns."""

    pair: PairJoin
    reach: Reach
    left: JoinSide
    right: JoinSide
    directory: Path
    """Where the pairs go."""
    owner: str
    files: tuple[tuple[str, str], ...]
    pairs_max: int
    seconds_max: float
    functions_seconds_max: float
    """What functions that come after the join may take, beside an epoch."""


@dataclass(frozen=True)
class Probed:
    """A file of the other stream that may be probed, with its range of time."""

    name: str
    span: tuple[int, int]


@dataclass(frozen=True)
class JoinProbe:
    """What an epoch's task has to know of a join: its own file is not there yet."""

    task: JoinTask
    """Without an owner, and without files."""
    as_left: tuple[Probed, ...]
    """Files of the right stream, to be probed by new tuples of the left one."""
    as_right: tuple[Probed, ...]
    sides: tuple[int, ...]
    """Which sides new tuples are on (0: left); on both where a stream is joined with itself."""

    def of(self, file: DataFile) -> JoinTask:
        """The task for a file that was written."""
        name, span, reach = file.name, (file.ts_min_us, file.ts_max_us), self.task.reach
        files = [(name, other.name) for other in self.as_left if reach.allows(span, other.span)]
        files += [(other.name, name) for other in self.as_right if reach.allows(other.span, span)]
        files += [(name, name)] if len(self.sides) > 1 else []
        left, right = self.task.left.with_file(file), self.task.right.with_file(file)
        return replace(self.task, owner=name, files=tuple(files), left=left, right=right)

    def run(self, file: DataFile, router: Router, budget: Budget) -> int:
        """Join a file that was written; the bytes of data files that were read for it. The router learns what the SteMs
        did with its tuples.
        """
        joining = _RunningJoin(self.of(file), budget, router)
        joining.run()
        for side in (0, 1):
            # Where nothing is in reach, no tuple has a partner.
            visited = joining.visited(side, file.rows) if side in self.sides else 0
            dropped, seconds = visited - joining.partnered(side), joining.seconds if visited else 0.0
            account = Account(visited, visited, dropped, seconds, joining.predicates(side))
            router.observe(self.task.pair.operator(left=side == 0), account)
        return joining.counts.bytes_read


class Unfinished(LadleError):
    """A function that comes after a join has not said all yet; what it said is kept."""


class _RunningJoin:
    """One task at work: all pairs are found first, and then what was postponed is asked once for each file."""

    def __init__(self, task: JoinTask, budget: Budget, router: Router | None = None) -> None:
        self._task = task
        self._budget = budget
        self._sides = task.left, task.right
        self._router = router
        self._wanted: dict[tuple[int, str], _WantedTuples] = {}
        """By side and file."""
        self._partnered: dict[tuple[int, str], Mask] = {}
        """Which of a file's tuples have partners."""
        self._lineages: dict[tuple[int, str], dict[int, Mask] | LadleError] = {}
        self._reason: str | None = None
        self.unfinished = False
        """Whether a function needs more time."""
        self.seconds = 0.0
        """What the SteMs took."""
        self.counts = Counts()

    def run(self) -> str | None:
        """Why not all was found, if it was not."""
        joined: list[tuple[tuple[str, str], Pairs]] = []
        for names in self._task.files:
            with self._alone():
                joined.append((names, self._join(names)))
        found: list[FoundPairs] = []
        for names, pairs in joined:
            with self._alone():
                found.append(self._found(names, pairs))
        if found:
            write_pairs(self._task.directory, self._task.owner, found)
        return self._reason

    def visited(self, side: int, rows: int) -> int:
        """The owner's tuples that some query wants; of so many where that was not looked up."""
        wanted = self._wanted.get((side, self._task.owner))
        return rows if wanted is None else len(wanted.rows)

    def predicates(self, side: int) -> int:
        """How many blocks the join is one predicate of."""
        blocks = self._sides[side].blocks
        return 1 if blocks is None else max(len(blocks), 1)

    def partnered(self, side: int) -> int:
        """The tuples that had partners."""
        return sum(int(np.count_nonzero(mask)) for (at, _), mask in self._partnered.items() if at == side)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A pair of files that can't be joined spoils no other, and no epoch."""
        try:
            yield
        except MissingFile:
            # Compacted or expired since the job was planned: nothing is left to cover.
            pass
        except Unfinished:
            self.unfinished = True
        except LadleError as error:
            self._reason = error.message
        except Exception as error:
            _log.warning("joining %s", self._task.pair.text, exc_info=True)
            self._reason = f"{type(error).__name__}: {error}"

    def _join(self, names: tuple[str, str]) -> Pairs:
        """By their numbers in the files."""
        task, began = self._task, time.perf_counter()
        for at, name in enumerate(names):
            keys = task.pair.keys(left=at == 0)
            self._wanted[at, name] = _stem(self._sides[at], name, keys, task.seconds_max, self.counts)
        left, right = (self._wanted[at, name] for at, name in enumerate(names))
        places = join(left.stem, right.stem, task.pair, task.reach, pairs_max=task.pairs_max)
        pairs = Pairs(left.rows[places.left], right.rows[places.right])
        for at, name in enumerate(names):
            if (at, name) not in self._partnered:
                self._partnered[at, name] = np.zeros(len(self._wanted[at, name].sure), dtype=np.bool_)
            self._partnered[at, name][pairs[at]] = True
        self.seconds += time.perf_counter() - began
        return pairs

    def _found(self, names: tuple[str, str], pairs: Pairs) -> FoundPairs:
        left, right = (self._wanted[at, name] for at, name in enumerate(names))
        cover = Cover(*names, self._task.reach, left.blocks, right.blocks)
        lineages: dict[tuple[int, int], Ids] = {}
        keep = np.ones(len(pairs.left), dtype=np.bool_)
        for at, (name, wanted) in enumerate(zip(names, (left, right), strict=True)):
            if wanted.postponed:
                known = self._lineages_of(at, name)
                rows = np.unique(pairs[at])
                lineages |= {(at, block): rows[mask[rows]] for block, mask in known.items()}
                keep &= np.logical_or.reduce([wanted.sure, *known.values()])[pairs[at]]
        return FoundPairs(cover, pairs if keep.all() else Pairs(pairs.left[keep], pairs.right[keep]), lineages)

    def _lineages_of(self, at: int, name: str) -> dict[int, Mask]:
        """Of the tuples that have partners, those in each block whose functions were postponed."""
        known = self._lineages.get((at, name))
        if known is None:
            try:
                known = self._call(at, name)
            except LadleError as error:
                known = error
            self._lineages[at, name] = known
        if isinstance(known, LadleError):
            raise known
        return known

    def _call(self, at: int, name: str) -> dict[int, Mask]:
        side, wanted, partnered = self._sides[at], self._wanted[at, name], self._partnered[at, name]
        factors = {factor.sql: factor for block in wanted.postponed for factor in side.late[block]}
        columns = sorted({column for factor in factors.values() for column in factor.columns}) or [side.source.time]
        table = pa.concat_tables([batch.table for batch in side.read(name, columns, self.counts)])
        router = self._router if self._router is not None and name == self._task.owner else Router()
        asking = Asking(self._budget, read_masks(side.results, name))
        states = {}
        for number, (sql, factor) in enumerate(factors.items()):
            some = [block for block in wanted.postponed if factor in side.late[block]]
            asked = partnered & np.logical_or.reduce([wanted.postponed[block] for block in some])
            states[sql] = asking.begin(sql, len(table), frozenset(some))
            seconds = self._budget.seconds / (len(factors) - number)
            asking.ask(factor, table, asked, states[sql], seconds, router, len(some))
        asking.end(len(table), states)
        if asking.said:
            # Also when all is said: a tuple that has partners here may find others in a file to come.
            write_masks(side.results, name, asking.masks(states))
        for failure in asking.stopped.values():
            raise EvaluationError(failure.reason)
        if asking.unfinished:
            raise Unfinished(f"Functions need more time for {name}.")
        masks = {sql: own == TRUE for sql, own in states.items()}
        return {
            block: np.logical_and.reduce([own & partnered, *(masks[factor.sql] for factor in side.late[block])])
            for block, own in wanted.postponed.items()
        }


@dataclass(frozen=True)
class TaskResults:
    """What became of some tasks."""

    failures: Mapping[str, str]
    """Why pairs of a file could not be found, by its name."""
    unfinished: bool
    """Whether functions need more time."""
    bytes_read: int = 0
    """Of data files, as they are stored."""


def run_joins(tasks: Iterable[JoinTask], budget: Budget | None = None) -> TaskResults:
    """Find and write the pairs of some tasks."""
    failures = {}
    unfinished = False
    bytes_read = 0
    for task in tasks:
        joining = _RunningJoin(task, budget or Budget(task.functions_seconds_max, task.seconds_max, patient=True))
        reason = joining.run()
        unfinished |= joining.unfinished
        bytes_read += joining.counts.bytes_read
        if reason is not None:
            failures[task.owner] = reason
    return TaskResults(failures, unfinished, bytes_read)


@dataclass(frozen=True)
class _WantedTuples:
    """The tuples of a file that some query wants."""

    stem: DataStem
    rows: Ids
    """Their numbers in the file."""
    blocks: Blocks
    sure: Mask
    """Which tuples of the file are in blocks that are wholly known."""
    postponed: Mapping[int, Mask]
    """The candidates of the other blocks."""


_stems: OrderedDict[object, _WantedTuples] = OrderedDict()
_stems_lock = threading.Lock()


def _stem(side: JoinSide, name: str, keys: tuple[JoinKey, ...], seconds_max: float, counts: Counts) -> _WantedTuples:
    """The SteM of a file, kept for the next that probes it."""
    key = (side.source.directory, name, tuple(each.sql for each in keys), side.blocks)
    with _stems_lock:
        known = _stems.get(key)
        if known is not None:
            _stems.move_to_end(key)
            return known
    time_column = side.source.time
    batches = side.read(
        name, dict.fromkeys([time_column, *(column for each in keys for column in each.columns)]), counts
    )
    table = pa.concat_tables([batch.table for batch in batches]).combine_chunks()
    known_of = _wanted(side, name, [batch.rows for batch in batches])
    sure, postponed = (np.ones(len(table), dtype=np.bool_), {}) if known_of is None else known_of
    mask = np.logical_or.reduce([sure, *postponed.values()])
    found = _WantedTuples(
        DataStem.of(table.filter(from_numpy(mask)), time_column, keys, seconds_max=seconds_max),
        np.flatnonzero(mask),
        None if known_of is None else side.blocks,
        sure,
        postponed,
    )
    with _stems_lock:
        _stems[key] = found
        while len(_stems) > 1 and sum(len(each.rows) for each in _stems.values()) > _STEM_ROWS_MAX:
            _stems.popitem(last=False)
    return found


def _wanted(side: JoinSide, name: str, segments: list[int]) -> tuple[Mask, dict[int, Mask]] | None:
    """Which tuples of a file are in one of the side's blocks, and the candidates of blocks whose functions were
    postponed; None: all tuples are looked at.
    """
    if side.blocks is None:
        return None
    results = []
    for file in file_names(side.results):
        if data_file_of(file) == name:
            try:
                results.append(Results(side.results / file))
            except (OSError, DamagedResults):
                continue
    results = [each for each in results if each.segment_rows.tolist() == segments]
    sure = np.zeros(sum(segments), dtype=np.bool_)
    postponed: dict[int, Mask] = {}
    for block in side.blocks:
        covered = next((each for each in results if _has(each, block)), None)
        if covered is not None:
            sure |= covered.mask(block)
            continue
        of = next((each for each in results if _has(each, candidates(block))), None)
        if of is None or block not in side.late:
            return None
        postponed[block] = of.mask(candidates(block))
    return sure, postponed


def _has(results: Results, block: int) -> bool:
    """Whether a block is covered; what is damaged covers nothing."""
    try:
        return results.has(block)
    except DamagedResults:
        return False
