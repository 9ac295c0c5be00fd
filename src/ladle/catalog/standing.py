"""All standing queries of a snapshot, and what the engine asks of them, kept current entry by entry.

Everything is a persistent map (`immutables`): an entry that brings one query among a hundred thousand makes a new
snapshot in microseconds, and the old one stays as it was. What queries come to, once they are bound, is the *index*: it
is made when somebody asks for it, of the last one that was made and what came and went since. Blocks are kept by page,
as the Query SteM has them, so that whatever was derived from a page is good as long as the page is the same object.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from immutables import Map, MapMutation

from ladle.archive.layout import Int64s
from ladle.catalog.bindings import Bindings
from ladle.catalog.entries import Registering
from ladle.catalog.meaning import KnownNames
from ladle.catalog.queries import Factors, QueryState, Reading, Shape, Shaping
from ladle.catalog.streams import StreamState
from ladle.catalog.tables import TableState
from ladle.collector import uncollected
from ladle.json_values import JsonFields
from ladle.plan import Function, Window
from ladle.sql.statement_types import Materialize
from ladle.stem.blocks import NO_BLOCKS, BlockSet
from ladle.stem.query_stem import PAGE

_K = TypeVar("_K")
_V = TypeVar("_V")

_STEPS_MAX = 1_000
"""After so many entries that nobody asked about, the index is made in any case: what they let go is held until then."""


class KeptBlock(NamedTuple):
    """A block whose results are kept."""

    factors: Factors
    users: int


class View(NamedTuple):
    """Scans of many queries through one window: the stream, and all streams of their queries, which set NOW."""

    stream: str
    window: Window
    streams: tuple[str, ...]


class BlockPage(Generic[_V]):
    """Blocks whose ids share a page. Immutable: what is derived from it may be kept beside it."""

    def __init__(self, blocks: Map[int, _V]) -> None:
        self.blocks = blocks
        self._cut: BlockPage[_V] | None = None

    def cut(self, ids: Int64s) -> BlockPage[_V]:
        """The page with some of its blocks alone; asked again for the same, the same object."""
        if np.array_equal(ids, self.ids):
            return self
        last = self._cut
        if last is None or not np.array_equal(last.ids, ids):
            last = self._cut = BlockPage(Map({block: self.blocks[block] for block in ids.tolist()}))
        return last

    @cached_property
    def ids(self) -> Int64s:
        """The numbers of the blocks in this page, ascending."""
        ids = np.fromiter(self.blocks, dtype=np.int64, count=len(self.blocks))
        ids.sort()
        return ids


class BlockPages(Generic[_V]):
    """Pages by number."""

    def __init__(self, pages: Map[int, BlockPage[_V]]) -> None:
        self.pages = pages

    @cached_property
    def blocks(self) -> BlockSet:
        """The numbers of all blocks, ascending."""
        if not self.pages:
            return NO_BLOCKS
        return BlockSet(np.concatenate([page.ids for _, page in sorted(self.pages.items())]))

    def get(self, block: int) -> _V:
        """What is held for a block that is known to be there."""
        return self.pages[block // PAGE].blocks[block]

    def among(self, wanted: BlockSet) -> dict[int, BlockPage[_V]]:
        """The pages cut to some blocks; one that is wanted whole stays the object it is."""
        ids = (self.blocks & wanted).ids
        starts = np.flatnonzero(np.diff(ids // PAGE, prepend=-1))
        parts = np.split(ids, starts[1:]) if len(ids) else []
        return {number: self.pages[number].cut(part) for part in parts for number in [int(part[0]) // PAGE]}


_NO_KEPT: BlockPages[KeptBlock] = BlockPages(Map())


@dataclass(frozen=True, eq=False)
class Index:
    """What bound queries come to. Those that are broken have no part in it."""

    users: Map[int, int] = field(default_factory=Map)
    """How many queries have each block."""
    kept: Map[str, BlockPages[KeptBlock]] = field(default_factory=Map)
    """By stream, the blocks that have factors and whose results are kept."""
    views: Map[View, BlockPages[int]] = field(default_factory=Map)
    """The same blocks by the windows they are seen through, with the number of queries that do."""
    joining: Map[str, QueryState] = field(default_factory=Map)
    """Those that join streams and keep results."""


_NO_INDEX = Index()
_indexing = threading.RLock()


class _IndexStep:
    """The index of a snapshot, or how it follows from that of an earlier one."""

    def __init__(
        self,
        before: _IndexStep | None = None,
        came: tuple[QueryState, ...] = (),
        went: tuple[QueryState, ...] = (),
        steps: int = 0,
    ) -> None:
        self._index = _NO_INDEX if before is None else None
        self._before = before
        self._came = came
        self._went = went
        self._steps = steps

    @property
    def is_made(self) -> bool:
        return self._index is not None

    def then(self, came: tuple[QueryState, ...], went: tuple[QueryState, ...]) -> _IndexStep:
        step = _IndexStep(self, came, went, 0 if self._index is not None else self._steps + 1)
        if step._steps > _STEPS_MAX:
            step.index()
        return step

    def index(self) -> Index:
        if self._index is not None:
            return self._index
        with _indexing:
            steps: list[_IndexStep] = []
            step = self
            while step._index is None:
                assert step._before is not None
                steps.append(step)
                step = step._before
            if steps:
                with uncollected():
                    self._index = _indexed(step._index, steps[::-1])
                self._before, self._came, self._went = None, (), ()
            return self._index if self._index is not None else step._index


def _indexed(index: Index, steps: list[_IndexStep]) -> Index:
    """An index after some steps more. Queries that came and went meanwhile need not be bound."""
    went = {query for step in steps for query in step._went}
    came = [query for step in steps for query in step._came]
    fleeting = went.intersection(came)
    indexing = _Indexing(index)
    came = [query for query in came if query not in fleeting] if fleeting else came
    bindings = {query.bindings for query in came}
    for each in bindings:
        each.fill(came)
        each.numbering.hold()
    try:
        for query in came:  # each after those that it reads
            if query.broken is None:
                indexing.add(query)
    finally:
        for each in bindings:
            each.numbering.release()
    for step in steps:
        for query in step._went:
            if query not in fleeting and query.broken is None:
                indexing.remove(query)
    return indexing.finish()


@dataclass(frozen=True, eq=False)
class Queries(Mapping[str, QueryState]):
    """Standing queries by lower-case name, listed in the order in which they came."""

    by_name: Map[str, QueryState] = field(default_factory=Map)
    readers: Map[str, frozenset[str]] = field(default_factory=Map)
    """The queries that read each query as a relation."""
    complete: Map[str, QueryState] = field(default_factory=Map)
    step: _IndexStep = field(default_factory=_IndexStep)

    def __getitem__(self, name: str) -> QueryState:
        return self.by_name[name]

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in sorted(self.by_name.items(), key=lambda pair: pair[1].place)])

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def in_order(self) -> list[QueryState]:
        """The queries in the order in which they were registered."""
        return sorted(self.by_name.values(), key=lambda query: query.place)

    @property
    def index(self) -> Index:
        """What they come to; they are bound for it, if they are not yet."""
        return self.step.index()

    def stands(self, block: int) -> bool:
        """Whether a query has the block. As long as nobody needed the index it may also be one that no query has any
        more: what was derived of it is right all the same, and an answer need not wait until all queries are bound.
        """
        return block in self.users if self.step.is_made else True

    @property
    def users(self) -> Map[int, int]:
        """How many queries have each block."""
        return self.index.users

    @property
    def kept(self) -> Map[str, BlockPages[KeptBlock]]:
        """By stream, the blocks that have factors and whose results are kept."""
        return self.index.kept

    @property
    def views(self) -> Map[View, BlockPages[int]]:
        """The same blocks by the windows they are seen through, with the number of queries that do."""
        return self.index.views

    @property
    def joining(self) -> Map[str, QueryState]:
        """The queries that join streams and keep results."""
        return self.index.joining

    def kept_on(self, stream: str) -> BlockPages[KeptBlock]:
        """The blocks on one stream of which results may be kept."""
        return self.kept.get(stream.lower(), _NO_KEPT)


Writable = MapMutation[_K, _V] | dict[_K, _V]


def _writable(before: Map[_K, _V]) -> Writable[_K, _V]:
    """A map that begins empty is written faster as a dictionary."""
    return before.mutate() if before else {}


def _written(after: Writable[_K, _V]) -> Map[_K, _V]:
    return Map(after) if isinstance(after, dict) else after.finish()


class Changing:
    """The queries of the next snapshot, while an entry is applied."""

    def __init__(self, queries: Queries) -> None:
        self._before = queries
        self._by_name = _writable(queries.by_name)
        self._readers = _writable(queries.readers)
        self._complete = _writable(queries.complete)
        self._came: dict[QueryState, None] = {}
        self._went: dict[QueryState, None] = {}

    def get(self, name: str) -> QueryState | None:
        """The query of that name after the changes so far."""
        return self._by_name.get(name.lower())

    def add(self, query: QueryState) -> None:
        """Let a query stand, in the place of the one that has its name."""
        before = self.get(query.name)
        name = query.name.lower()
        self._by_name[name] = query
        self._came[query] = None
        for read in query.meaning.queries:
            self._readers[read] = self._readers.get(read, frozenset()) | {name}
        if query.materialize is Materialize.COMPLETE:
            self._complete[name] = query
        if before is not None:
            self.remove(before)

    def remove(self, query: QueryState) -> None:
        """Let a query go. Another may have its name by now."""
        name = query.name.lower()
        successor = self._by_name.get(name)
        if successor is query:
            successor = None
            del self._by_name[name]
        if query in self._came:
            del self._came[query]
        else:
            self._went[query] = None
        still_read = set() if successor is None else set(successor.meaning.queries)
        for read in set(query.meaning.queries) - still_read:
            left = self._readers[read] - {name}
            if left:
                self._readers[read] = left
            else:
                del self._readers[read]
        if query.materialize is Materialize.COMPLETE and (
            successor is None or successor.materialize is not Materialize.COMPLETE
        ):
            del self._complete[name]

    def finish(self) -> Queries:
        """The queries after all changes."""
        if not self._came and not self._went:
            return self._before
        step = self._before.step.then(tuple(self._came), tuple(self._went))
        return Queries(_written(self._by_name), _written(self._readers), _written(self._complete), step)


@dataclass(frozen=True)
class Arriving:
    """What names mean while an entry is applied: queries that it brings are there already."""

    before: KnownNames
    changing: Changing

    def stream(self, name: str) -> StreamState | None:
        """The stream of that name, or None."""
        return self.before.stream(name)

    def table(self, name: str) -> TableState | None:
        """The table of that name, or None."""
        return self.before.table(name)

    def query(self, name: str) -> QueryState | None:
        """The standing query of that name, also one that has just arrived."""
        return self.changing.get(name)

    def function(self, name: str) -> Function | None:
        """The function of that name, or None."""
        return self.before.function(name)


def stand(entry: JsonFields, arriving: Arriving, bindings: Bindings, next_query: int) -> int:
    """Let the queries of an entry stand; the id that the next one gets is returned."""
    reading = Reading(entry["references"], arriving)
    modes = {mode.value: mode for mode in Materialize}
    plans = entry.plans if isinstance(entry, Registering) else ()
    shaping = Shaping()
    for number, (name, mode, *rest) in enumerate(entry["queries"]):
        sql, meaning, told = reading.query(rest)
        before = arriving.changing.get(name)
        place = next_query if before is None else before.place
        query = QueryState(next_query, name, modes[mode], entry["created_us"], sql, meaning, bindings, place, told)
        plan = plans[number] if plans else None
        if plan is not None:
            query.take(shaping.bound(plan))
        arriving.changing.add(query)
        next_query += 1
    return next_query


class _Indexing:
    """The next index, while queries come and go."""

    def __init__(self, index: Index) -> None:
        self._users = _writable(index.users)
        self._kept = _OpenPages(index.kept)
        self._views = _OpenPages(index.views)
        self._joining = _writable(index.joining)
        self._places: dict[int, tuple[tuple[_Opening[KeptBlock], _Opening[int]], ...]] = {}
        """Where the blocks of a shape's scans are counted, by the identity of the shape: many queries share one."""

    def add(self, query: QueryState) -> None:
        users = self._users
        for block in _once(query.blocks):
            users[block] = users.get(block, 0) + 1
        if query.keeps_results:
            self._count(query, 1)
            if query.joins:
                self._joining[query.name.lower()] = query

    def remove(self, query: QueryState) -> None:
        for block in _once(query.blocks):
            count = self._users[block] - 1
            if count:
                self._users[block] = count
            else:
                del self._users[block]
        if query.keeps_results:
            self._count(query, -1)
        # Another may have its name by now.
        if self._joining.get(query.name.lower()) is query:
            del self._joining[query.name.lower()]

    def finish(self) -> Index:
        return Index(_written(self._users), self._kept.finish(), self._views.finish(), _written(self._joining))

    def _count(self, query: QueryState, by: int) -> None:
        shape, all_factors = query.bound
        counted: set[tuple[int, int]] = set()
        for block, places, factors in zip(query.blocks, self._placed(shape), all_factors, strict=True):
            if not factors:
                continue
            kept, views = places
            number = block // PAGE
            if len(all_factors) == 1 or _first(counted, kept, block):
                page = kept.page(number)
                known = page.get(block)
                users = by if known is None else known.users + by
                if users:
                    page[block] = KeptBlock(factors if known is None else known.factors, users)
                else:
                    del page[block]
            if len(all_factors) == 1 or _first(counted, views, block):
                counts = views.page(number)
                count = counts.get(block, 0) + by
                if count:
                    counts[block] = count
                else:
                    del counts[block]

    def _placed(self, shape: Shape) -> tuple[tuple[_Opening[KeptBlock], _Opening[int]], ...]:
        places = self._places.get(id(shape))
        if places is None:
            views = [View(scan.stream.lower(), scan.window, shape.streams) for scan in shape.scans]
            places = tuple((self._kept.under(view.stream), self._views.under(view)) for view in views)
            self._places[id(shape)] = places
        return places


def _once(blocks: tuple[int, ...]) -> Collection[int]:
    return blocks if len(blocks) == 1 else set(blocks)


def _first(counted: set[tuple[int, int]], place: object, block: int) -> bool:
    """Whether a query's block was not counted there yet."""
    key = (id(place), block)
    if key in counted:
        return False
    counted.add(key)
    return True


class _Opening(Generic[_V]):
    """Pages, of which those that are asked for may be written."""

    def __init__(self, before: Map[int, BlockPage[_V]]) -> None:
        self._before = before
        self._open: dict[int, Writable[int, _V]] = {}

    def page(self, number: int) -> Writable[int, _V]:
        opened = self._open.get(number)
        if opened is None:
            page = self._before.get(number)
            opened = self._open[number] = {} if page is None else page.blocks.mutate()
        return opened

    def finish(self) -> Map[int, BlockPage[_V]]:
        pages = self._before.mutate()
        for number, writing in self._open.items():
            blocks = _written(writing)
            if blocks:
                pages[number] = BlockPage(blocks)
            else:
                pages.pop(number, None)
        return pages.finish()


class _OpenPages(Generic[_K, _V]):
    """Pages under keys; those under the keys that are asked for may be written."""

    def __init__(self, whole: Map[_K, BlockPages[_V]]) -> None:
        self._whole = whole
        self._open: dict[_K, _Opening[_V]] = {}

    def under(self, key: _K) -> _Opening[_V]:
        opening = self._open.get(key)
        if opening is None:
            before = self._whole.get(key)
            opening = self._open[key] = _Opening(Map() if before is None else before.pages)
        return opening

    def finish(self) -> Map[_K, BlockPages[_V]]:
        whole = self._whole.mutate()
        for key, opening in self._open.items():
            pages = opening.finish()
            if pages:
                whole[key] = BlockPages(pages)
            else:
                whole.pop(key, None)
        return whole.finish()
