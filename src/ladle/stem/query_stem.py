"""The Query SteM (PSoup section 4.2.2): all blocks that stand on one stream, probed by tiles of tuples.

Blocks are kept in *pages*, so that a query that comes or goes touches one page and no other. In a page each column has
a grouped filter that answers for all intervals on it; factors that are not intervals of one column are in the predicate
list, each distinct one evaluated once per segment. A block's rows are the AND of its terms. The eddy says in which
order they are visited, and a tuple visits only what some block that still wants it asks for. A factor that raises or
does not end leaves its blocks out of the answer, which makes them uncovered there and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.eddy import Account, Router
from ladle.evaluate import Failure, evaluate_factors
from ladle.json_values import JsonObject
from ladle.plan import Block, Factor, Function
from ladle.plan.keys import Key
from ladle.plan.ranges import Ranges
from ladle.stem.arrays import DamagedArrays, map_arrays, save_arrays
from ladle.stem.asking import Asking
from ladle.stem.column_keys import Keys, encode
from ladle.stem.grouped_filter import Arrangement, Cuts, GroupedFilter, cuts_of
from ladle.stem.masks import FALSE, TRUE
from ladle.stem.merging import fixed, merge_filters, merge_terms
from ladle.stem.results import ResultsWriter
from ladle.stem.tiles import SPARSE, TILE, WORDS, Array, Scratch, Terms

PAGE = 4_096
"""Ids of blocks that share a page: a block is on page `id // PAGE`."""

BlockIds = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PAYLOAD_WORDS = 1 << 17
"""Results are written in pieces; from 256 KiB on their size makes no difference."""
_SECONDS_PER_BLOCK = 1e-7
"""What it takes to find out which tuples of a tile a block still wants."""
_DEAR_SECONDS = 0.02
"""A predicate that is expected to take longer on a whole segment is evaluated only where it is still wanted."""
_TERMS_PER_VISIT = 512
"""How many terms are renumbered in the time in which a tile visits one grouped filter."""
_ALL_DROPPED = np.zeros(0, dtype=np.bool_)


class IndexPage:
    """Some blocks, indexed."""

    def __init__(self, blocks: BlockIds, filters: list[GroupedFilter], predicates: list[Factor], terms: Terms) -> None:
        self.blocks = blocks
        self.filters = filters
        self.predicates = predicates
        self.terms = terms
        self._operators = [each.column for each in filters]
        self._blocks_on: dict[int, Array] = {}
        self._scratch = threading.local()

    @property
    def columns(self) -> set[str]:
        """The columns that its blocks look at."""
        return {each.column for each in self.filters} | {name for each in self.predicates for name in each.columns}

    @cached_property
    def applied(self) -> dict[str, int]:
        """How many blocks have each predicate."""
        own = self.terms.source[self.terms.source < 0]
        counts = np.bincount(-1 - own, minlength=len(self.predicates)).tolist()
        return {factor.sql: count for factor, count in zip(self.predicates, counts, strict=True)}

    def blocks_with(self, predicate: str) -> BlockIds:
        """The ids of the blocks that have a predicate."""
        source = self._source(predicate)
        return self.blocks[:0] if source is None else self.blocks[self.blocks_on(source)]

    def blocks_on(self, source: int) -> Array:
        """The numbers of the blocks that have a term on a column or a predicate."""
        if source not in self._blocks_on:
            terms = np.flatnonzero(self.terms.source == source)
            numbers = np.unique(np.searchsorted(self.terms.first_term, terms, side="right") - 1)
            self._blocks_on[source] = numbers.astype(np.int32)
        return self._blocks_on[source]

    def visit(self, segment: SegmentKeys, start: int, rows: int, router: Router) -> None:
        """Arrange a tile by the grouped filters, in the order that the router says. One that costs more than to find
        out who still wants which tuple looks only at tuples that some block on it still wants.
        """
        scratch = self._get_scratch()
        scratch.visited[:] = False
        for number, factor in enumerate(self.predicates):
            mask = segment.masks.get(factor.sql)
            scratch.arrangement.predicate(number, None if mask is None else mask[start : start + rows])
            scratch.visited[len(self.filters) + number] = mask is not None
        explore = len(self.filters) > 1 and router.exploring()
        for operator in router.order(self._operators, explore=explore):
            number = self._operators.index(operator)
            wanted = None
            if scratch.visited.any() and (explore or self._pays(number, router.account(operator), rows)):
                wanted = self._wanted(number, rows)
            began = time.perf_counter()
            scratch.arrangement.arrange(number, segment.keys[operator], start, rows, wanted)
            seconds = time.perf_counter() - began
            scratch.visited[number] = True
            if explore:
                visited = rows if wanted is None else int(np.count_nonzero(wanted))
                kept = int(np.count_nonzero(self._wanted(number, rows)))
                applied = len(self.blocks_on(number))
                router.observe(operator, Account(rows, visited, visited - kept, seconds, applied))

    def wanted_by(self, predicate: str, segment: SegmentKeys, router: Router) -> Mask:
        """The tuples of a segment that some block with a predicate still wants."""
        wanted = np.zeros(len(segment.table), dtype=np.bool_)
        source = self._source(predicate)
        if source is not None:
            for start, rows in _tiles(segment.table):
                self.visit(segment, start, rows, router)
                wanted[start : start + rows] = self._wanted(source, rows)
        return wanted

    def probe(self, rows: int, results: ResultsWriter, counts: Array, offsets: Array) -> None:
        """Write the rows of each block in the tile that was visited, and note how many and where."""
        from ladle.stem import kernels

        work = self._get_scratch()
        work.visited[:] = True
        number = 0
        while number < len(self.blocks):
            number, used = kernels.probe(
                work.numbers, number, self.terms, work.arrangement.tile, work.visited, rows, work.scratch, counts,
                offsets, results.end, work.payload,
            )  # fmt: skip
            results.write(work.payload[:used])

    def _source(self, predicate: str) -> int | None:
        return next((-1 - number for number, factor in enumerate(self.predicates) if factor.sql == predicate), None)

    def _pays(self, number: int, account: Account, rows: int) -> bool:
        spared = account.seconds_per_tuple * rows * (1.0 - account.reached)
        return spared > len(self.blocks_on(number)) * _SECONDS_PER_BLOCK

    def _wanted(self, source: int, rows: int) -> Mask:
        from ladle.stem import kernels

        scratch = self._get_scratch()
        kernels.wanted(
            self.blocks_on(source),
            self.terms,
            scratch.arrangement.tile,
            scratch.visited,
            rows,
            scratch.scratch,
            scratch.bitmap,
        )
        return np.unpackbits(scratch.bitmap.view(np.uint8), count=rows, bitorder="little").view(np.bool_)

    def _get_scratch(self) -> _ProbeScratch:
        if not hasattr(self._scratch, "of_thread"):
            self._scratch.of_thread = _ProbeScratch(self)
        found: _ProbeScratch = self._scratch.of_thread
        return found


class _ProbeScratch:
    """What one thread works in."""

    def __init__(self, page: IndexPage) -> None:
        self.arrangement = Arrangement(page.filters, len(page.predicates))
        self.payload = np.zeros(_PAYLOAD_WORDS, dtype=np.uint64)
        self.numbers = np.arange(len(page.blocks), dtype=np.int32)
        operands = 2 * int(np.diff(page.terms.first_term).max(initial=0))
        self.scratch = Scratch(
            operands=np.zeros(operands, dtype=np.int64),
            flips=np.zeros(operands, dtype=np.uint64),
            lineage=np.zeros(WORDS, dtype=np.uint64),
            rows=np.zeros(WORDS, dtype=np.uint64),
            found=np.zeros(SPARSE, dtype=np.uint16),
        )
        self.visited = np.zeros(len(page.filters) + len(page.predicates), dtype=np.bool_)
        self.bitmap = np.zeros(WORDS, dtype=np.uint64)


@dataclass
class SegmentKeys:
    """A segment on its way: the keys of its columns, and the predicates that were evaluated."""

    table: pa.Table
    keys: Mapping[str, Keys]
    masks: dict[str, Mask]


class QueryStem:
    """Pages of blocks, in the order of their ids."""

    def __init__(self, pages: Sequence[IndexPage]) -> None:
        self._pages = list(pages)
        self._visits = 0
        self.blocks: BlockIds = np.concatenate([page.blocks for page in pages] or [np.zeros(0, dtype=np.int64)])

    @property
    def columns(self) -> set[str]:
        """What is read of a tuple."""
        return {name for page in self._pages for name in page.columns}

    def probe(
        self,
        segment: pa.Table,
        results: ResultsWriter,
        router: Router,
        asking: Asking | None = None,
        *,
        postponed: Collection[str] = (),
    ) -> dict[int, Failure]:
        """Add a segment's results. Blocks that could not be evaluated are returned with the reason.

        `asking` says how long dear predicates may take; blocks with those that are not done stay uncovered, without
        being failures. Blocks with `postponed` predicates get candidates.
        """
        if not len(self.blocks):
            return {}
        asking = asking or Asking()
        pages = self._pages
        columns = {each.column for page in pages for each in page.filters}
        chunk = SegmentKeys(segment, {name: encode(segment.column(name)) for name in columns}, {})
        for sql in postponed:
            chunk.masks[sql] = np.ones(len(segment), dtype=np.bool_)
            results.postpone(self._blocks_with(sql))
        failures: dict[int, Failure] = {}
        for sql, failure in self._evaluate(chunk, router, asking).items():
            failures |= dict.fromkeys(self._blocks_with(sql), failure)
        for sql in asking.unfinished:
            results.fail(self._blocks_with(sql))
        results.fail(failures)
        results.segment(len(segment))
        for start, rows in _tiles(segment):
            counts = np.empty(len(self.blocks), dtype=np.uint16)
            offsets = np.empty(len(self.blocks), dtype=np.uint32)
            first = 0
            for page in pages:
                last = first + len(page.blocks)
                page.visit(chunk, start, rows, router)
                page.probe(rows, results, counts[first:last], offsets[first:last])
                first = last
            results.tile(counts, offsets)
            self._visits += sum(len(page.filters) for page in pages)
        self._merge_if_due()
        return failures

    def to_postpone(self, late: Mapping[int, Sequence[str]], router: Router) -> list[str]:
        """The predicates that call functions and come after joins, by the router's choice.

        `late` has the blocks that only joins look at, with the names of those joins' SteMs.
        """
        found: list[str] = []
        if not late:
            return found
        for sql in dict.fromkeys(each.sql for page in self._pages for each in page.predicates if each.functions):
            blocks = self._blocks_with(sql)
            if late.keys() >= set(blocks):
                stems = dict.fromkeys(stem for block in blocks for stem in late[block])
                if router.comes_last(sql, list(stems)):
                    found.append(sql)
        return found

    def _blocks_with(self, predicate: str) -> list[int]:
        return [block for page in self._pages for block in page.blocks_with(predicate).tolist()]

    def _evaluate(self, chunk: SegmentKeys, router: Router, asking: Asking) -> dict[str, Failure]:
        """Evaluate the predicate list: cheap predicates together on all tuples, dear ones one by one on those tuples
        that some block still wants when they are reached, as far as their time goes.
        """
        pages, rows = self._pages, len(chunk.table)
        factors = {factor.sql: factor for page in pages for factor in page.predicates}
        pending = [factor for factor in factors.values() if factor.sql not in chunk.masks]
        dear = {factor.sql: factor for factor in pending if _is_dear(factor, router, asking, rows)}
        cheap = [factor for factor in pending if factor.sql not in dear]
        applied: Counter[str] = Counter()
        for page in pages:
            applied.update(page.applied)
        began = time.perf_counter()
        evaluated = evaluate_factors(chunk.table, cheap, seconds_max=asking.budget.slice_seconds_max)
        share = (time.perf_counter() - began) / max(len(cheap), 1)
        chunk.masks.update(evaluated.masks)
        failures: dict[str, Failure] = {}
        for factor in cheap:
            sql, mask = factor.sql, evaluated.masks.get(factor.sql, _ALL_DROPPED)
            failure = evaluated.failures.get(sql)
            if failure is not None and failure.slow:
                # Less time than it takes, but enough to know that it is dear.
                router.observe(sql, Account(rows, rows, 0, asking.budget.slice_seconds_max or 0.0, applied[sql]))
                dear[sql] = factor
                continue
            if failure is not None:
                failures[sql] = failure
            router.observe(sql, Account(rows, rows, rows - int(np.count_nonzero(mask)), share, applied[sql]))
        # Of predicates that call functions it is known what they said of segments before, should they become dear.
        states = {
            factor.sql: np.where(chunk.masks[factor.sql], np.uint8(TRUE), np.uint8(FALSE))
            for factor in cheap
            if factor.functions and factor.sql in evaluated.masks
        }
        for number, sql in enumerate(router.order(list(dear))):
            wanted = np.logical_or.reduce([page.wanted_by(sql, chunk, router) for page in pages])
            own = states[sql] = asking.begin(sql, rows, frozenset(self._blocks_with(sql)))
            seconds = asking.budget.seconds / (len(dear) - number)
            asking.ask(dear[sql], chunk.table, wanted, own, seconds, router, applied[sql])
            # Where it is unknown nobody has to ask others meanwhile.
            chunk.masks[sql] = own == TRUE
        asking.end(rows, states)
        return failures | {sql: failure for sql, failure in asking.stopped.items() if sql in dear}

    def _merge_if_due(self) -> None:
        """Make the pages one as soon as that would have paid: few tuples don't wait for it, nor do sets of queries that
        stand for one epoch only."""
        pages = self._pages
        if len(pages) > 1 and self._visits * _TERMS_PER_VISIT >= sum(len(page.terms.source) for page in pages):
            self._pages = [_merged(pages)]


def _is_dear(factor: Factor, router: Router, asking: Asking, rows: int) -> bool:
    """Whether a predicate is asked slice by slice: when it is known to take long, or calls functions that are not known
    to be quick.
    """
    account = router.account(factor.sql)
    unknown = bool(factor.functions) and not account.visited
    return unknown or factor.sql in asking.known or account.seconds_per_tuple * rows > _DEAR_SECONDS


def _tiles(table: pa.Table) -> Iterator[tuple[int, int]]:
    for start in range(0, len(table), TILE):
        yield start, min(TILE, len(table) - start)


def index_page(blocks: Mapping[int, Block]) -> IndexPage:
    """Build the grouped filters and the predicate list of some blocks."""
    ids = sorted(blocks)
    numbers: dict[str, int] = {}
    predicates: dict[str, int] = {}
    factors: list[Factor] = []
    ranges_of: list[list[Ranges]] = []
    drafts: list[list[tuple[int, Ranges | None]]] = []
    for block_id in ids:
        by_column: dict[str, Ranges] = {}
        draft: list[tuple[int, Ranges | None]] = []
        for factor in blocks[block_id].factors:
            if factor.ranges is not None:
                known = by_column.get(factor.ranges.column)
                by_column[factor.ranges.column] = factor.ranges if known is None else known.intersect(factor.ranges)
                continue
            if factor.sql not in predicates:
                predicates[factor.sql] = len(factors)
                factors.append(factor)
            draft.append((-1 - predicates[factor.sql], None))
        for column, ranges in by_column.items():
            number = numbers.setdefault(column, len(numbers))
            if number == len(ranges_of):
                ranges_of.append([])
            ranges_of[number].append(ranges)
            draft.append((number, ranges))
        drafts.append(draft)
    cuts = [cuts_of(ranges) for ranges in ranges_of]
    filters = [GroupedFilter(column, Cuts.of(cuts[number])) for column, number in numbers.items()]
    return IndexPage(np.array(ids, dtype=np.int64), filters, factors, _terms(drafts, cuts))


def _terms(drafts: list[list[tuple[int, Ranges | None]]], cuts: list[list[Key]]) -> Terms:
    first_cut = np.cumsum([0, *(len(each) + 2 for each in cuts)]).tolist()
    places = [{cut: place + 1 for place, cut in enumerate(each)} for each in cuts]
    first_term, first_interval = [0], [0]
    source: list[int] = []
    or_null: list[bool] = []
    low: list[int] = []
    high: list[int] = []
    for draft in drafts:
        for number, ranges in draft:
            source.append(number)
            or_null.append(ranges is not None and ranges.null)
            if ranges is not None:
                first, place = first_cut[number], places[number]
                top = len(place) + 1
                for begin, end in ranges.intervals:
                    low.append(first + (0 if begin is None else place[begin]))
                    high.append(first + (top if end is None else place[end]))
            first_interval.append(len(low))
        first_term.append(len(source))
    return Terms(
        fixed(first_term, np.int32),
        fixed(source, np.int32),
        fixed(or_null, np.bool_),
        fixed(first_interval, np.int32),
        fixed(low, np.int32),
        fixed(high, np.int32),
    )


def _merged(pages: Sequence[IndexPage]) -> IndexPage:
    filters, columns, cuts = merge_filters([page.filters for page in pages])
    factors = {factor.sql: factor for page in pages for factor in page.predicates}
    numbers = {sql: number for number, sql in enumerate(factors)}
    predicates = [np.array([numbers[each.sql] for each in page.predicates], dtype=np.int32) for page in pages]
    terms = merge_terms([page.terms for page in pages], columns, predicates, cuts)
    return IndexPage(np.concatenate([page.blocks for page in pages]), filters, list(factors.values()), terms)


# -- pages as files, which workers map --


def save_page(path: Path, page: IndexPage) -> None:
    """Write a page of blocks into a file that tasks map."""
    header: JsonObject = {
        "filters": [[each.column, each.cuts.offsets is not None] for each in page.filters],
        "predicates": [[each.sql, each.duckdb, list(each.columns), *_called(each)] for each in page.predicates],
    }
    arrays: dict[str, Array] = {"blocks": page.blocks, **page.terms._asdict()}
    for number, each in enumerate(page.filters):
        arrays[f"cuts{number}"] = each.cuts.keys
        if each.cuts.offsets is not None:
            arrays[f"offsets{number}"] = each.cuts.offsets
    save_arrays(path, header, arrays)


def _called(factor: Factor) -> list[JsonObject]:
    return [function.to_json() for function in factor.functions]


def load_stem(paths: Sequence[str]) -> QueryStem:
    """The pages of some files, each mapped once per worker process. One that is gone covers nothing, this time."""
    pages = []
    for path in paths:
        try:
            pages.append(_load_page(path))
        except (FileNotFoundError, DamagedArrays):
            Path(path).unlink(missing_ok=True)
    return _stem_of(tuple(pages))


def release_pages() -> None:
    """Let go of the files that are mapped; whoever needs one maps it again."""
    _stem_of.cache_clear()
    _load_page.cache_clear()


@lru_cache(maxsize=8)
def _stem_of(pages: tuple[IndexPage, ...]) -> QueryStem:
    return QueryStem(pages)


@lru_cache(maxsize=256)
def _load_page(path: str) -> IndexPage:
    header, arrays = map_arrays(Path(path))
    filters = [
        GroupedFilter(column, Cuts(arrays[f"cuts{number}"], arrays[f"offsets{number}"] if in_bytes else None))
        for number, (column, in_bytes) in enumerate(header["filters"])
    ]
    predicates = [
        Factor(sql, duckdb, tuple(columns), functions=tuple(map(Function.from_json, functions)))
        for sql, duckdb, columns, *functions in header["predicates"]
    ]
    terms = Terms(*(arrays[name] for name in Terms._fields))
    return IndexPage(arrays["blocks"], filters, predicates, terms)
