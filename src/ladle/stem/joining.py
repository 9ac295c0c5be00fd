"""The kernel of joins: new tuples probe old ones (DESIGN section 8), in the epoch's task or in a backfill's.

Only tuples that some query of the join wants are looked at: a pair's lineage is the AND of both sides', so one that no
query wants on either side is no pair of anybody.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.files import MissingFile
from ladle.archive.segments import read_file
from ladle.columns import from_numpy
from ladle.errors import LadleError
from ladle.plan import JoinKey, PairJoin, Reach
from ladle.stem.data_stem import DataStem, Pairs, join
from ladle.stem.pairs import Blocks, Cover, write_pairs
from ladle.stem.results import DamagedResults, Results, data_file_of, file_names

Ids = npt.NDArray[np.int64]

_log = logging.getLogger(__name__)

_STEM_ROWS_MAX = 1 << 21
"""Tuples in the SteMs that a worker keeps, of the files last probed."""


@dataclass(frozen=True)
class JoinSide:
    """One stream of a join, as a task needs to know it."""

    archive: Path
    results: Path
    schema: pa.Schema
    time_column: str
    blocks: Blocks
    """Those that queries of the join have on this side."""


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
    itself: bool
    """Whether the stream is joined with itself."""

    def of(self, name: str, span: tuple[int, int]) -> JoinTask | None:
        """The task for a file that was written; None when there is nothing in its reach."""
        reach = self.task.reach
        files = [(name, other.name) for other in self.as_left if reach.allows(span, other.span)]
        files += [(other.name, name) for other in self.as_right if reach.allows(other.span, span)]
        files += [(name, name)] if self.itself else []
        return replace(self.task, owner=name, files=tuple(files)) if files else None


def run_join(task: JoinTask) -> str | None:
    """Find and write the pairs; why not, if those of some files could not be found."""
    found: list[tuple[Cover, Pairs]] = []
    reason = None
    for names in task.files:
        try:
            found.append(_found(task, *names))
        except MissingFile:
            # Compacted or expired since the job was planned: nothing is left to cover.
            continue
        except LadleError as error:
            reason = error.message
        except Exception as error:  # whatever it is, it is this join's alone: the epoch goes on, and says so
            _log.warning("joining %s", task.pair.text, exc_info=True)
            reason = f"{type(error).__name__}: {error}"
    if found:
        write_pairs(task.directory, task.owner, found)
    return reason


def _found(task: JoinTask, left_name: str, right_name: str) -> tuple[Cover, Pairs]:
    left = _stem(task.left, left_name, task.pair.keys(left=True), task.seconds_max)
    right = _stem(task.right, right_name, task.pair.keys(left=False), task.seconds_max)
    places = join(left.stem, right.stem, task.pair, task.reach, pairs_max=task.pairs_max)
    cover = Cover(left_name, right_name, task.reach, left.blocks, right.blocks)
    return cover, Pairs(left.rows[places.left], right.rows[places.right])


def run_joins(tasks: Iterable[JoinTask]) -> dict[str, str]:
    """The same for several of one join; why a file's pairs could not be found, by its name."""
    failures = {}
    for task in tasks:
        reason = run_join(task)
        if reason is not None:
            failures[task.owner] = reason
    return failures


@dataclass(frozen=True)
class _Wanted:
    """The tuples of a file that some query wants."""

    stem: DataStem
    rows: Ids
    """Their numbers in the file."""
    blocks: Blocks


_stems: OrderedDict[object, _Wanted] = OrderedDict()
_stems_lock = threading.Lock()


def _stem(side: JoinSide, name: str, keys: tuple[JoinKey, ...], seconds_max: float) -> _Wanted:
    """The SteM of a file, kept for the next that probes it."""
    key = (side.archive, name, tuple(each.sql for each in keys), side.blocks)
    with _stems_lock:
        known = _stems.get(key)
        if known is not None:
            _stems.move_to_end(key)
            return known
    columns = list(dict.fromkeys([side.time_column, *(column for each in keys for column in each.columns)]))
    segments = read_file(side.archive / name, columns, side.schema)
    table = pa.concat_tables(segments).combine_chunks()
    mask = _wanted(side, name, [len(segment) for segment in segments])
    rows = np.arange(len(table)) if mask is None else np.flatnonzero(mask)
    if mask is not None:
        table = table.filter(from_numpy(mask))
    found = _Wanted(
        DataStem.of(table, side.time_column, keys, seconds_max=seconds_max),
        rows,
        None if mask is None else side.blocks,
    )
    with _stems_lock:
        _stems[key] = found
        while len(_stems) > 1 and sum(len(each.rows) for each in _stems.values()) > _STEM_ROWS_MAX:
            _stems.popitem(last=False)
    return found


def _wanted(side: JoinSide, name: str, segments: list[int]) -> npt.NDArray[np.bool_] | None:
    """Which tuples of a file are in one of the side's blocks; None: all are looked at."""
    if side.blocks is None:
        return None
    results = []
    for file in file_names(side.results):
        if data_file_of(file) == name:
            try:
                results.append(Results(side.results / file))
            except (OSError, DamagedResults):
                continue
    parts = [np.zeros(rows, dtype=np.bool_) for rows in segments]
    for block in side.blocks:
        of = next((each for each in results if each.covers(block)), None)
        if of is None or of.segment_rows.tolist() != segments:
            return None
        for number, part in enumerate(parts):
            mask = of.matches(block, number).mask
            if mask is None:
                part[:] = True
            else:
                part |= mask
    return np.concatenate(parts)
