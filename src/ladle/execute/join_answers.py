"""Answers of joins: pairs that are covered are read, the others are found now, by the same kernel.

Each scan is read once, cut to its window and its block. A pair counts when both of its tuples are among those, so the
lineage of a pair is the AND of both sides', and windows of different streams need not be alike. Joins of more than two
streams are put together from pairs. Functions that were not called before the join are called for tuples that have
partners; mostly that was done when the pairs were found, and is kept beside them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.gather import collect
from ladle.archive.layout import Extent
from ladle.catalog import Catalog
from ladle.catalog.store import Store
from ladle.columns import from_numpy, to_numpy
from ladle.evaluate import evaluate_keys
from ladle.execute.deadline import seconds_left
from ladle.execute.reader import Reader
from ladle.execute.said import said_of
from ladle.plan import Block, Edge, Factor, JoinKey, Plan, Scan, SharedJoin
from ladle.plan.join import reach
from ladle.stem.data_stem import NO_PAIRS, DataStem, Pairs, TooManyPairs, join
from ladle.stem.masks import States
from ladle.stem.match import satisfying
from ladle.stem.pairs import Blocks, JoinCoverage, Rows

Answers = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

_UNKNOWN, _NO, _YES = -1, 0, 1
"""What functions say of a row."""


@dataclass(frozen=True)
class _FileRows:
    """The rows that a scan has of one data file."""

    name: str
    rows: int
    """Of the file."""
    span: tuple[int, int]
    numbers: Places
    """The scan's, by their numbers in the file, in order."""
    first: int
    """The place of the first of them among all rows of the scan."""
    waiting: bool
    """Whether the functions of the scan's block were not called yet."""

    @property
    def last(self) -> int:
        return self.first + len(self.numbers)

    @cached_property
    def places(self) -> Places:
        """The place of each row of the file among those of the scan; -1 where it is not one of them."""
        places = np.full(self.rows, -1, dtype=np.int64)
        places[self.numbers] = np.arange(self.first, self.last)
        return places


class _Side:
    """One scan of a join: its rows in the window, and where they are."""

    def __init__(
        self,
        table: pa.Table,
        files: Sequence[_FileRows],
        time_column: str,
        late: Sequence[Factor],
        known: Mapping[str, States],
        seconds_max: float,
    ) -> None:
        self.table = table
        self.files = files
        self._time_column = time_column
        self._late = late
        self._known = known
        """What functions have said of rows before."""
        self._seconds_max = seconds_max
        self._keys: dict[str, pa.Array] = {}
        self._answers: Answers | None = None
        if any(file.waiting for file in files):
            self._answers = np.full(len(table), _YES, dtype=np.int8)
            for file in files:
                if file.waiting:
                    self._answers[file.first : file.last] = _UNKNOWN

    def learn(self, file: _FileRows, partnered: Places, lineage: Rows) -> None:
        """What is kept beside pairs of what the functions say of the tuples that have partners."""
        if self._answers is not None and file.waiting:
            self._answers[partnered] = _NO
            inside = file.places[lineage]
            self._answers[inside[inside >= 0]] = _YES

    def passing(self, places: Places) -> Mask | None:
        """For which rows the functions hold; None: for all. They are called for rows of which that is not known."""
        if self._answers is None:
            return None
        unknown = np.unique(places[self._answers[places] == _UNKNOWN])
        if len(unknown):
            rows = self.table.take(from_numpy(unknown))
            known = {sql: states[unknown] for sql, states in self._known.items()}
            self._answers[unknown] = satisfying(rows, list(self._late), seconds_max=self._seconds_max, known=known)
        mask: Mask = self._answers[places] == _YES
        return None if mask.all() else mask

    @cached_property
    def times(self) -> Places:
        return to_numpy(self.table.column(self._time_column).cast(pa.int64()))

    def stem(self, files: Sequence[_FileRows], keys: Sequence[JoinKey]) -> tuple[DataStem, Places]:
        """The rows of some files as a SteM, and their places."""
        missing = [key for key in keys if key.sql not in self._keys]
        if missing:
            self._keys |= evaluate_keys(self.table, missing, seconds_max=self._seconds_max)
        if len(files) == len(self.files):
            places = np.arange(len(self.table))
            return DataStem(self.times, {key.sql: self._keys[key.sql] for key in keys}), places
        places = np.concatenate([np.arange(file.first, file.last) for file in files])
        taken = from_numpy(places)
        return DataStem(self.times[places], {key.sql: self._keys[key.sql].take(taken) for key in keys}), places


class CoveredPairs(NamedTuple):
    """How many pairs of data files are covered, of how many, and how many pairs of tuples these have."""

    edge: Edge
    covered: int
    total: int
    pairs: int
    bytes: int


class Joins:
    """Gives the rows of joined scans: pairs that are kept are read, the others are found now."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._own = threading.local()

    @property
    def found(self) -> int:
        """Pairs of data files that had to be joined while the calling thread waited for an answer."""
        return getattr(self._own, "found", 0)

    def note(self, pairs: int) -> None:
        """Count pairs of data files that were joined while somebody waited."""
        self._own.found = self.found + pairs

    def relations(
        self, plan: Plan, catalog: Catalog, reader: Reader, extents: Sequence[Extent], *, keep_nothing: bool
    ) -> dict[str, pa.Table]:
        """The relations that a plan's joins make. Raises EvaluationError where they can't."""
        assert plan.joined is not None
        return {
            each.relation: self.relation(plan, catalog, reader, extents, each, keep_nothing=keep_nothing)
            for each in plan.joined.joins
        }

    def relation(
        self,
        plan: Plan,
        catalog: Catalog,
        reader: Reader,
        extents: Sequence[Extent],
        of: SharedJoin,
        *,
        keep_nothing: bool = False,
    ) -> pa.Table:
        """The relation that one of a plan's joins makes. Raises EvaluationError where it can't."""
        return _JoinAnswer(self, self._store, plan, catalog, reader, extents, keep_nothing).table(of)

    def covered(self, plan: Plan, catalog: Catalog, reader: Reader, extents: Sequence[Extent]) -> list[CoveredPairs]:
        """How far each pair join of a plan is covered in its windows."""
        assert plan.joined is not None
        found = []
        joining = _JoinAnswer(self, self._store, plan, catalog, reader, extents, keep_nothing=False)
        for edge in (edge for each in plan.joined.joins for edge in each.edges):
            scans = plan.scans[edge.left], plan.scans[edge.right]
            within = reach(scans[0].window, scans[1].window)
            coverage = joining.coverage(edge)
            assert coverage is not None
            lefts, rights = (
                {piece.file.name: piece.file for piece in reader.pieces(scan, extents[number])}.values()
                for scan, number in zip(scans, (edge.left, edge.right), strict=True)
            )
            pairs = [
                (left.name, right.name)
                for left in lefts
                for right in rights
                if within.allows((left.ts_min_us, left.ts_max_us), (right.ts_min_us, right.ts_max_us))
            ]
            blocks = [joining.blocks(scan) for scan in scans]
            entries = [entry for names in pairs if (entry := coverage.find(*names, within, *blocks)) is not None]
            size = sum(entry.left.nbytes + entry.right.nbytes for entry in entries)
            found.append(CoveredPairs(edge, len(entries), len(pairs), sum(len(each.left) for each in entries), size))
        return found


class _JoinAnswer:
    """One join for one answer."""

    def __init__(
        self,
        joins: Joins,
        store: Store,
        plan: Plan,
        catalog: Catalog,
        reader: Reader,
        extents: Sequence[Extent],
        keep_nothing: bool,
    ) -> None:
        self._joins = joins
        self._store = store
        self._plan = plan
        self._catalog = catalog
        self._reader = reader
        self._extents = extents
        self._keep_nothing = keep_nothing
        self._sides: dict[int, _Side] = {}

    def table(self, of: SharedJoin) -> pa.Table:
        for number in of.scans:
            self._sides[number] = self._side(number, of)
        places = self._combined(of.edges)
        if self._plan.joined is not None and self._plan.joined.residual.projection is not None:
            self._in_order(places)
        taken = {number: from_numpy(own) for number, own in places.items()}
        columns = [self._sides[scan].table.column(column).take(taken[scan]) for _, scan, column in of.columns]
        return pa.Table.from_arrays(columns, names=[name for name, _, _ in of.columns])

    def _combined(self, edges: Sequence[Edge]) -> dict[int, Places]:
        """The places of each scan's tuples in the results: pairs, put together where they have a tuple in common."""
        waiting = list(edges)
        found: dict[int, Places] = {}
        while waiting:
            # The edges connect all scans, so one of them always goes on from what is there.
            edge = next(each for each in waiting if not found or each.left in found or each.right in found)
            waiting.remove(edge)
            pairs = self._pairs(edge)
            found = (
                _extended(found, edge, pairs, self._store.settings.join_pairs_max)
                if found
                else {
                    edge.left: pairs.left,
                    edge.right: pairs.right,
                }
            )
        return found

    def _in_order(self, places: dict[int, Places]) -> None:
        """By the oldest timestamp of the parts (PSoup section 5.2)."""
        oldest = np.minimum.reduce([self._sides[number].times[own] for number, own in places.items()])
        order = np.argsort(oldest, kind="stable")
        for number, own in places.items():
            places[number] = own[order]

    def _side(self, number: int, of: SharedJoin) -> _Side:
        scan, extent = self._plan.scans[number], self._extents[number]
        stream = self._catalog.stream(scan.block.stream)
        assert stream is not None, "the stream of a bound plan"
        keys = [
            key
            for edge in of.edges
            for own, left in ((edge.left, True), (edge.right, False))
            if own == number
            for key in edge.pair.keys(left=left)
        ]
        time_column = stream.schema.timestamp_column
        columns = {time_column, *(column for key in keys for column in key.columns)}
        columns |= {column for _, own, column in of.columns if own == number}
        late = scan.block.calling
        columns |= {column for factor in late for column in factor.columns}
        names = tuple(name for name in stream.schema.arrow.names if name in columns)
        picks = list(self._reader.picked(scan, extent, names))
        files: list[_FileRows] = []
        place = 0
        numbers: list[Places] = []
        for at, (piece, pick, waiting) in enumerate(picks):
            before = sum(segment.rows for segment in piece.file.segments[: piece.row_group])
            own = np.arange(pick.start, pick.stop) if pick.numbers is None else pick.numbers
            numbers.append(own + before)
            if at + 1 == len(picks) or picks[at + 1][0].file is not piece.file:
                together = np.concatenate(numbers)
                if len(together):
                    span = (piece.file.ts_min_us, piece.file.ts_max_us)
                    files.append(_FileRows(piece.file.name, piece.file.rows, span, together, place, waiting))
                place += len(together)
                numbers = []
        table = collect([pick for _, pick, _ in picks], stream.schema.select(names))
        coverage, block = self._store.coverage(stream, at=self._catalog.seq), self._catalog.block_id(scan.block)
        known = said_of(coverage, block, late, [each[0] for each in picks], [each[1] for each in picks])
        return _Side(table, files, time_column, late, known, seconds_left(self._store.settings))

    def _pairs(self, edge: Edge) -> Pairs:
        """The pairs of two scans, by their places."""
        left, right = self._sides[edge.left], self._sides[edge.right]
        scans = self._plan.scans
        within = reach(scans[edge.left].window, scans[edge.right].window)
        coverage = self.coverage(edge)
        blocks = [self.blocks(scans[number]) for number in (edge.left, edge.right)]
        ids = [self._block_id(scans[number].block) for number in (edge.left, edge.right)]
        found: list[Pairs] = []
        uncovered: dict[tuple[str, ...], list[_FileRows]] = {}
        by_name = {file.name: file for file in right.files}
        now = self._store.derived.clock()
        for file in left.files:
            lacking = []
            for other in right.files:
                if not within.allows(file.span, other.span):
                    continue
                entry = None if coverage is None else coverage.find(file.name, other.name, within, *blocks)
                if entry is None or coverage is None:
                    lacking.append(other.name)
                else:
                    coverage.note_use(entry, now)
                    # Pairs are in order of the left file's rows: those before the window need no look.
                    start, stop = np.searchsorted(entry.left, (file.numbers[0], file.numbers[-1] + 1))
                    places = file.places[entry.left[start:stop]]
                    others = other.places[entry.right[start:stop]]
                    both = (places >= 0) & (others >= 0)
                    found.append(Pairs(places[both], others[both]))
                    for own, of, at in ((left, file, 0), (right, other, 1)):
                        lineage = entry.lineage(at, ids[at]) if of.waiting else None
                        if lineage is not None:
                            own.learn(of, found[-1][at], lineage)
            if lacking:
                uncovered.setdefault(tuple(lacking), []).append(file)
        for names, files in uncovered.items():
            found.append(self._join(edge, files, [by_name[name] for name in names]))
        if not found:
            return NO_PAIRS
        pairs = Pairs(*(np.concatenate([pairs[side] for pairs in found]) for side in (0, 1)))
        for own, at in ((left, 0), (right, 1)):
            mask = own.passing(pairs[at])
            if mask is not None:
                pairs = Pairs(pairs.left[mask], pairs.right[mask])
        return pairs

    def _join(self, edge: Edge, files: Sequence[_FileRows], others: Sequence[_FileRows]) -> Pairs:
        """Pairs that are not covered: found among the rows of this answer alone."""
        settings, scans = self._store.settings, self._plan.scans
        self._joins.note(len(files) * len(others))
        left, places = self._sides[edge.left].stem(files, edge.pair.keys(left=True))
        right, other_places = self._sides[edge.right].stem(others, edge.pair.keys(left=False))
        within = reach(scans[edge.left].window, scans[edge.right].window)
        pairs = join(left, right, edge.pair, within, pairs_max=settings.join_pairs_max)
        return Pairs(places[pairs.left], other_places[pairs.right])

    def coverage(self, edge: Edge) -> JoinCoverage | None:
        if self._keep_nothing:
            return None
        streams = [self._catalog.stream(name) for name in (edge.pair.left, edge.pair.right)]
        left, right = streams
        assert left is not None
        assert right is not None
        return self._store.join_coverage(edge.pair.digest(left.id, right.id))

    def blocks(self, scan: Scan) -> Blocks:
        """What has to be covered for a scan. One that does not stand is in no set."""
        number = self._block_id(scan.block)
        return None if number is None else frozenset((number,))

    def _block_id(self, block: Block) -> int | None:
        return self._catalog.block_id(block) if block.factors else None


def _extended(found: Mapping[int, Places], edge: Edge, pairs: Pairs, rows_max: int) -> dict[int, Places]:
    """What was put together so far, joined with the pairs of one more edge."""
    if edge.left in found and edge.right in found:
        width = 1 + max((int(each.max()) for each in (pairs.right, found[edge.right]) if len(each)), default=0)
        kept = np.isin(found[edge.left] * width + found[edge.right], pairs.left * width + pairs.right)
        return {number: places[kept] for number, places in found.items()}
    at, known, new = edge.left, pairs.left, pairs.right
    if edge.left not in found:
        at, known, new = edge.right, pairs.right, pairs.left
    order = np.argsort(known, kind="stable")
    in_order = known[order]
    first = np.searchsorted(in_order, found[at], side="left")
    counts = np.searchsorted(in_order, found[at], side="right") - first
    total = int(counts.sum())
    if total > rows_max:
        raise TooManyPairs(
            f"The join gives more than {rows_max:,} rows at once.",
            hint="narrow the windows or add a condition, or raise join_pairs_max",
        )
    rows = np.repeat(np.arange(len(counts)), counts)
    others = np.arange(total) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    added = edge.right if at == edge.left else edge.left
    return {**{number: places[rows] for number, places in found.items()}, added: new[order[others]]}
