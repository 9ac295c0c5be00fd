"""All standing queries of a snapshot, and what the engine asks of them, kept current entry by entry.

Everything is a persistent map (`immutables`): an entry that brings one query among a hundred thousand makes a new
snapshot in microseconds, and the old one stays as it was. Blocks are kept by page, as the Query SteM has them, so that
whatever was derived from a page is good as long as the page is the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from immutables import Map, MapMutation

from ladle.catalog.queries import Factors, Parts, QueryState, Shape
from ladle.catalog.streams import Int64s
from ladle.plan import Block, Window
from ladle.sql.statements import Materialize
from ladle.stem.blocks import NO_BLOCKS, BlockSet
from ladle.stem.query_stem import PAGE

_K = TypeVar("_K")
_V = TypeVar("_V")

StreamId = Callable[[str], int]
"""The id of a stream by its name."""


def block_key(stream_id: int, block: Block) -> str:
    """What a block is known by."""
    return f"{stream_id}|{block.text}"


class Kept(NamedTuple):
    """A block whose results are kept."""

    factors: Factors
    users: int


class View(NamedTuple):
    """Scans of many queries through one window: the stream, and all streams of their queries, which set NOW."""

    stream: str
    window: Window
    streams: tuple[str, ...]


class Page(Generic[_V]):
    """Blocks whose ids share a page. Immutable: what is derived from it may be kept beside it."""

    def __init__(self, blocks: Map[int, _V]) -> None:
        self.blocks = blocks
        self._cut: Page[_V] | None = None

    def cut(self, ids: Int64s) -> Page[_V]:
        """The page with some of its blocks alone; asked again for the same, the same object."""
        if np.array_equal(ids, self.ids):
            return self
        last = self._cut
        if last is None or not np.array_equal(last.ids, ids):
            last = self._cut = Page(Map({block: self.blocks[block] for block in ids.tolist()}))
        return last

    @cached_property
    def ids(self) -> Int64s:
        ids = np.fromiter(self.blocks, dtype=np.int64, count=len(self.blocks))
        ids.sort()
        return ids


class Pages(Generic[_V]):
    """Pages by number."""

    def __init__(self, pages: Map[int, Page[_V]]) -> None:
        self.pages = pages

    @cached_property
    def blocks(self) -> BlockSet:
        if not self.pages:
            return NO_BLOCKS
        return BlockSet(np.concatenate([page.ids for _, page in sorted(self.pages.items())]))

    def get(self, block: int) -> _V:
        return self.pages[block // PAGE].blocks[block]

    def among(self, wanted: BlockSet) -> dict[int, Page[_V]]:
        """The pages cut to some blocks; one that is wanted whole stays the object it is."""
        ids = (self.blocks & wanted).ids
        starts = np.flatnonzero(np.diff(ids // PAGE, prepend=-1))
        parts = np.split(ids, starts[1:]) if len(ids) else []
        return {number: self.pages[number].cut(part) for part in parts for number in [int(part[0]) // PAGE]}


_NO_PAGES: Pages[Any] = Pages(Map())


@dataclass(frozen=True, eq=False)
class Queries(Mapping[str, QueryState]):
    """Standing queries by lower-case name, listed in the order in which they came."""

    by_name: Map[str, QueryState] = field(default_factory=Map)
    block_ids: Map[str, int] = field(default_factory=Map)
    """Ids of the blocks that standing queries have, by stream id and text."""
    users: Map[int, int] = field(default_factory=Map)
    """How many queries have each block."""
    kept: Map[str, Pages[Kept]] = field(default_factory=Map)
    """By stream, the blocks that have factors and whose results are kept."""
    views: Map[View, Pages[int]] = field(default_factory=Map)
    """The same blocks by the windows they are seen through, with the number of queries that do."""
    readers: Map[str, frozenset[str]] = field(default_factory=Map)
    """The queries that read each query as a relation."""
    complete: Map[str, QueryState] = field(default_factory=Map)
    joining: Map[str, QueryState] = field(default_factory=Map)
    """Those that join streams and keep results."""

    def __getitem__(self, name: str) -> QueryState:
        return self.by_name[name]

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in sorted(self.by_name.items(), key=lambda pair: pair[1].place)])

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def in_order(self) -> list[QueryState]:
        return sorted(self.by_name.values(), key=lambda query: query.place)

    def kept_on(self, stream: str) -> Pages[Kept]:
        return self.kept.get(stream.lower(), _NO_PAGES)


Writable = MapMutation[_K, _V] | dict[_K, _V]


def _writable(before: Map[_K, _V]) -> Writable[_K, _V]:
    """A map that begins empty is written faster as a dictionary."""
    return before.mutate() if before else {}


def _written(after: Writable[_K, _V]) -> Map[_K, _V]:
    return Map(after) if isinstance(after, dict) else after.finish()


class Changing:
    """The queries of the next snapshot, while an entry is applied."""

    def __init__(self, queries: Queries, stream_id: StreamId) -> None:
        self._stream_id = stream_id
        self._stream_ids: dict[str, int] = {}
        self._by_name = _writable(queries.by_name)
        self._block_ids = _writable(queries.block_ids)
        self._users = _writable(queries.users)
        self._kept = _Opened(queries.kept)
        self._views = _Opened(queries.views)
        self._readers = _writable(queries.readers)
        self._complete = _writable(queries.complete)
        self._joining = _writable(queries.joining)

    def get(self, name: str) -> QueryState | None:
        return self._by_name.get(name.lower())

    def stand(
        self, query_id: int, name: str, materialize: Materialize, created_us: int, parts: Parts, next_id: int
    ) -> int:
        """Let a query stand, in the place of the one that has its name. Blocks that nobody has get the next ids; the
        one after those is returned.
        """
        sql, shape, factors = parts
        blocks = []
        for key in self._keys(shape, factors):
            known = self._block_ids.get(key)
            if known is None:
                known = self._block_ids[key] = next_id
                next_id += 1
            blocks.append(known)
        before = self.get(name)
        place = query_id if before is None else before.place
        self._add(QueryState(query_id, name, materialize, created_us, sql, shape, factors, tuple(blocks), place))
        if before is not None:
            # A block that the new query has too keeps its id, and with it what is covered.
            self.remove(before)
        return next_id

    def _add(self, query: QueryState) -> None:
        name = query.name.lower()
        self._by_name[name] = query
        for block in set(query.blocks):
            self._users[block] = self._users.get(block, 0) + 1
        if query.keeps_results:
            self._count(query, 1)
        for read in query.shape.queries:
            self._readers[read.lower()] = self._readers.get(read.lower(), frozenset()) | {name}
        if query.materialize is Materialize.COMPLETE:
            self._complete[name] = query
        if query.joins:
            self._joining[name] = query

    def restore(self, query: QueryState) -> None:
        """Add a query as a checkpoint has it."""
        for key, block in zip(self._keys(query.shape, query.factors), query.blocks, strict=True):
            self._block_ids[key] = block
        self._add(query)

    def remove(self, query: QueryState) -> None:
        """Let a query go, and the blocks that nobody else has. Another may have its name by now."""
        name = query.name.lower()
        successor = self._by_name.get(name)
        if successor is query:
            successor = None
            del self._by_name[name]
        for block, key in dict(zip(query.blocks, self._keys(query.shape, query.factors), strict=True)).items():
            count = self._users[block] - 1
            if count:
                self._users[block] = count
            else:
                del self._users[block]
                del self._block_ids[key]
        if query.keeps_results:
            self._count(query, -1)
        still_read = set() if successor is None else {read.lower() for read in successor.shape.queries}
        for read in {read.lower() for read in query.shape.queries} - still_read:
            left = self._readers[read] - {name}
            if left:
                self._readers[read] = left
            else:
                del self._readers[read]
        if query.materialize is Materialize.COMPLETE and (
            successor is None or successor.materialize is not Materialize.COMPLETE
        ):
            del self._complete[name]
        if query.joins and (successor is None or not successor.joins):
            del self._joining[name]

    def finish(self) -> Queries:
        return Queries(
            _written(self._by_name),
            _written(self._block_ids),
            _written(self._users),
            self._kept.finish(),
            self._views.finish(),
            _written(self._readers),
            _written(self._complete),
            _written(self._joining),
        )

    def _keys(self, shape: Shape, factors: tuple[Factors, ...]) -> list[str]:
        """By which the block of each scan is known."""
        known = self._stream_ids
        keys = []
        for scan, own in zip(shape.scans, factors, strict=True):
            if scan.stream not in known:
                known[scan.stream] = self._stream_id(scan.stream)
            keys.append(block_key(known[scan.stream], Block(scan.stream, own)))
        return keys

    def _count(self, query: QueryState, by: int) -> None:
        streams = query.shape.streams
        rows = zip(query.blocks, query.shape.scans, query.factors, strict=True)
        seen: set[object] = set()
        for block, scan, factors in rows:
            if not factors:
                continue
            stream = scan.stream.lower()
            if block not in seen:
                seen.add(block)
                page = self._kept.page(stream, block // PAGE)
                known = page.get(block)
                if known is None:
                    page[block] = Kept(factors, by)
                elif known.users + by:
                    page[block] = Kept(known.factors, known.users + by)
                else:
                    del page[block]
            view = View(stream, scan.window, streams)
            if (view, block) not in seen:
                seen.add((view, block))
                counts = self._views.page(view, block // PAGE)
                count = counts.get(block, 0) + by
                if count:
                    counts[block] = count
                else:
                    del counts[block]


class _Opened(Generic[_K, _V]):
    """Pages under keys, of which those that are asked for may be written."""

    def __init__(self, whole: Map[_K, Pages[_V]]) -> None:
        self._whole = whole
        self._open: dict[_K, dict[int, Writable[int, _V]]] = {}

    def page(self, key: _K, number: int) -> Writable[int, _V]:
        opened = self._open.setdefault(key, {})
        if number not in opened:
            page = self._whole.get(key, _NO_PAGES).pages.get(number)
            opened[number] = {} if page is None else page.blocks.mutate()
        return opened[number]

    def finish(self) -> Map[_K, Pages[_V]]:
        whole = self._whole.mutate()
        for key, opened in self._open.items():
            pages = whole.get(key, _NO_PAGES).pages.mutate()
            for number, writing in opened.items():
                blocks = _written(writing)
                if blocks:
                    pages[number] = Page(blocks)
                else:
                    pages.pop(number, None)
            done = pages.finish()
            if done:
                whole[key] = Pages(done)
            else:
                whole.pop(key, None)
        return whole.finish()
