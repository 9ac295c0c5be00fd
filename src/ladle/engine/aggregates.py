"""Answers from partial aggregates (PSoup section 6): one ranked tree for all queries with one select block.

Derived and lazy: a segment is folded when an invocation first needs it, from the covered results or by evaluating the
block, and kept while there is room. A window takes the nodes of the tree between its edges; of the segments at the
edges only the tiles that the edges cut are looked at row by row. Whatever this can't answer, DuckDB does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from typing import Any

import pyarrow as pa

from ladle.catalog import Catalog, StreamState
from ladle.engine.layout import Extent, Layout, newer
from ladle.engine.partials import Columns, Kept, Leaf, Tiles, Tree, leaf_key
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.errors import EvaluationError, InvocationTimeout
from ladle.plan import Plan
from ladle.stem.aggregates import (
    COMBINE,
    EMPTY,
    Number,
    RankedTree,
    Vector,
    finisher,
    fold_rows,
    fold_tiles,
)
from ladle.stem.groups import Grouping, Groups, TooManyGroups
from ladle.stem.matches import Matches, Rows
from ladle.stem.order import Part, Times, cut_range

_ATTEMPTS = 4
"""Beyond this many, other threads with other snapshots take the tree away each time."""
_PREPARED_MAX = 16_384
_AHEAD = 8
"""Who reads a window that ended in the past will soon read the next: so many segments behind it are folded with it."""

_Vectors = Mapping[str, Vector]
_Fold = Callable[[int, Matches, _Vectors], Tiles | Groups]
"""From a segment's number, the rows of it that match, and its columns."""
_GroupsKey = tuple[int, tuple[str, ...], tuple[str, ...]]
_Combine = Callable[[list[Number]], Number]
_TreeKey = tuple[int, str] | _GroupsKey


class Prepared:
    """What does not change from one invocation of a plan to the next."""

    def __init__(self, plan: Plan) -> None:
        aggregate, schema = plan.residual.aggregate, plan.schema
        assert aggregate is not None
        assert schema is not None
        self.plan = plan
        self.aggregate = aggregate
        self.schema = schema
        (self.scan,) = plan.scans
        self.folds = tuple(
            (partial.fold, name, partial.column, COMBINE[partial.fold], EMPTY[partial.fold])
            for partial, name in zip(aggregate.partials, aggregate.names, strict=True)
        )
        self.columns = tuple({partial.column: None for partial in aggregate.partials if partial.column is not None})
        self.needed = frozenset(self.columns)
        outputs = () if aggregate.groups else tuple(zip(aggregate.outputs, schema, strict=True))
        self.finishers = [finisher(aggregate, output, field.type) for output, field in outputs]
        self._block_ids: Mapping[str, int] | None = None
        self._block_id: int | None = None

    def block_id(self, catalog: Catalog, stream: StreamState) -> int | None:
        """The id under which the block's partials are kept; None when it does not stand."""
        if not self.scan.block.factors:
            # Ids of blocks and streams are of one sequence; every tuple of a stream is a block that need not stand.
            return stream.id
        if self._block_ids is not catalog.block_ids:
            self._block_id = catalog.block_id(self.scan.block)
            self._block_ids = catalog.block_ids
        return self._block_id


class _Ask:
    """One invocation: its window in a stream's layout, and what it lacks so far."""

    def __init__(self, prepared: Prepared, stream: StreamState, block_id: int, extent: Extent, layout: Layout) -> None:
        self.prepared = prepared
        self.stream = stream
        self.block_id = block_id
        self.extent = extent
        self.layout = layout
        self.cut = layout.cut(extent)
        self.runs, self.edges = self.cut.runs, self.cut.edges
        self.unknown: set[int] = set()
        """Segments whose leaves are not known."""
        self.lacking: set[int] = set()
        """Segments at the edges that lack something."""
        # What this invocation uses, though it be evicted meanwhile.
        self.trees: dict[_TreeKey, Tree[Any]] = {}
        self.columns: dict[int, Columns] = {}
        self.leaves: dict[int, Leaf] = {}


class Aggregates:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept = Kept(store.settings.aggregates_bytes_max)
        self._layouts: dict[int, Layout] = {}
        self._prepared: dict[int, Prepared] = {}
        self._too_many: set[_GroupsKey] = set()
        self._blocks = len(store.catalog.block_ids)
        self.answered = 0
        """Invocations that were answered here."""
        store.on_commit(self._forget)

    @property
    def bytes(self) -> int:
        return self._kept.bytes

    def answer(self, plan: Plan, catalog: Catalog, reader: Reader, extent: Extent) -> pa.Table | None:
        """The answer, or None when the tree can't give it."""
        prepared = self._prepare(plan)
        stream = _stream(plan, catalog)
        block_id = prepared.block_id(catalog, stream)
        if block_id is None:
            return None
        ask = _Ask(prepared, stream, block_id, extent, self._layout(stream))
        try:
            table = self._grouped(ask, reader) if prepared.aggregate.groups else self._one(ask, reader)
        except TooManyGroups:
            with self._lock:
                self._too_many.add(_groups_key(ask))
            return None
        if table is not None:
            self.answered += 1
        return table

    def segments(self, plan: Plan, catalog: Catalog, extent: Extent) -> int | None:
        """How many segments a tree answers a window over; None when it does not."""
        stream = _stream(plan, catalog)
        if self._prepare(plan).block_id(catalog, stream) is None:
            return None
        return len(self._layout(stream).cut(extent).numbers)

    def _prepare(self, plan: Plan) -> Prepared:
        found = self._prepared.get(id(plan))
        if found is None:
            if len(self._prepared) >= _PREPARED_MAX:
                self._prepared.clear()
            # It holds the plan, so the plan's id stays its own.
            found = self._prepared[id(plan)] = Prepared(plan)
        return found

    # -- one row --

    def _one(self, ask: _Ask, reader: Reader) -> pa.Table | None:
        prepared = ask.prepared

        def fold(_: int, matches: Matches, vectors: _Vectors) -> Tiles:
            wanted = [
                (name, fold, None if column is None else vectors[column]) for fold, name, column, *_ in prepared.folds
            ]
            return fold_tiles(wanted, matches)

        for _ in range(_ATTEMPTS):
            with self._lock:
                numbers = self._numbers(ask)
            if numbers is not None:
                return pa.Table.from_arrays([finish(numbers) for finish in prepared.finishers], schema=prepared.schema)
            try:
                self._load(ask, reader, prepared.columns, fold)
            except EvaluationError:
                # A tuple outside the window may be what raised; only those inside count.
                return None
        return None

    def _numbers(self, ask: _Ask) -> list[Number] | None:
        """The window's partials; None when something is lacking, which then stands in `ask`."""
        edges = [self._edge(ask, at, ask.prepared.needed) for at, _ in ask.edges]
        wholes: list[list[Number]] = []
        for _, name, _, combine, empty in ask.prepared.folds:
            wholes.append([empty, *self._nodes(ask, (ask.block_id, name), combine)])
        if ask.unknown or ask.lacking:
            return None
        cuts = [self._cut(ask, at, skip, *edge) for (at, skip), edge in zip(ask.edges, edges, strict=True) if edge]
        numbers: list[Number] = []
        for parts, (fold, name, column, combine, _) in zip(wholes, ask.prepared.folds, strict=True):
            for leaf, columns, whole, pieces in cuts:
                vector = None if column is None else columns.vectors[column]
                if whole:
                    tiles = leaf.tiles.get(name)
                    if tiles is None:
                        tiles = leaf.tiles[name] = fold_tiles([(name, fold, vector)], leaf.matches)[name]
                    parts += (
                        tiles[whole.start : whole.stop] if isinstance(whole, range) else [tiles[at] for at in whole]
                    )
                for rows in pieces:
                    parts.append(fold_rows(fold, vector, rows))
            numbers.append(combine(parts))
        return numbers

    def _cut(
        self, ask: _Ask, at: int, skip: int, leaf: Leaf, columns: Columns
    ) -> tuple[Leaf, Columns, Sequence[int], list[Rows]]:
        """A segment at an edge: the tiles wholly inside, and the rows inside of those that are not."""
        known = ask.cut.tiles.get(at)
        if known is None:
            if columns.times is None:
                rows = int(ask.layout.segments.rows[at])
                known = cut_range(skip, rows, rows)
            else:
                known = columns.times.cut(ask.extent.begin_us, ask.extent.end_us, skip)
            if all(mask is None for _, _, mask in known[1]):
                ask.cut.tiles[at] = known
        whole, parts = known
        return leaf, columns, whole, [_inside(leaf.matches, part) for part in parts]

    # -- by group --

    def _grouped(self, ask: _Ask, reader: Reader) -> pa.Table | None:
        key = _groups_key(ask)
        if key in self._too_many:
            return None
        grouping = Grouping(ask.prepared.aggregate)

        def grouped(at: int, rows: Rows) -> Groups:
            vectors = {name: _vector(ask, reader, at, name) for name in ask.prepared.columns}
            segment = reader.segment(ask.stream, ask.layout.piece(at), ask.prepared.aggregate.groups)
            return grouping.of_rows(segment, vectors, rows)

        for _ in range(_ATTEMPTS):
            with self._lock:
                parts: list[Groups] = self._nodes(ask, key, grouping.combined)
                cuts = [(at, cut) for at, skip in ask.edges if (cut := self._rows(ask, at, skip)) is not None]
            if not ask.unknown and not ask.lacking:
                parts += [grouped(at, rows) for at, rows in cuts]
                return grouping.answer(parts, ask.prepared.schema)
            try:
                self._load(ask, reader, (), lambda at, matches, _: grouped(at, matches.between(0, matches.rows)))
            except EvaluationError:
                return None
        return None

    def _rows(self, ask: _Ask, at: int, skip: int) -> Rows | None:
        """The matches of a segment at an edge that are in the window."""
        edge = self._edge(ask, at, frozenset())
        if edge is None:
            return None
        leaf, columns = edge
        part: Part = (skip, int(ask.layout.segments.rows[at]), None)
        if columns.times is not None:
            part = columns.times.rows(ask.extent.begin_us, ask.extent.end_us, skip)
        return _inside(leaf.matches, part)

    # -- what is kept, and what is lacking --

    def _nodes(self, ask: _Ask, key: _TreeKey, combine: Callable[[list[Any]], Any]) -> list[Any]:
        """The nodes of a tree for the segments wholly inside; leaves that are not known are noted."""
        tree = self._tree(ask, key, combine)
        found: list[Any] = []
        for first, last in ask.runs:
            nodes = tree.parts(first, last)
            if nodes is None:
                ask.unknown.update(tree.unknown(first, last))
            else:
                found += nodes
        return found

    def _tree(self, ask: _Ask, key: _TreeKey, combine: Callable[[list[Any]], Any]) -> RankedTree[Any]:
        tree = ask.trees.get(key)
        if tree is None:
            found = self._kept.get(key)
            if found is None:
                found = Tree(combine, ask.layout)
                self._kept.put(key, found)
            assert isinstance(found, Tree)
            tree = ask.trees[key] = found
        return tree.align(ask.layout)

    def _edge(self, ask: _Ask, at: int, needed: frozenset[str]) -> tuple[Leaf, Columns] | None:
        """What a segment at an edge needs; noted as lacking when it is not all there."""
        segment = ask.layout.keys[at]
        leaf = ask.leaves.get(at) or self._kept.get(leaf_key(ask.block_id, segment))
        columns = ask.columns.get(at) or self._kept.get(segment)
        if isinstance(leaf, Leaf) and isinstance(columns, Columns):
            timed = columns.times is not None or ask.layout.order.is_inside(at, ask.extent.begin_us, ask.extent.end_us)
            if timed and columns.vectors.keys() >= needed:
                return leaf, columns
        ask.lacking.add(at)
        return None

    def _load(self, ask: _Ask, reader: Reader, needed: tuple[str, ...], fold: _Fold) -> None:
        """Get what is lacking, outside the lock: segments are read and factors evaluated."""
        limit = self._store.settings.invoke_seconds_max
        deadline = time.monotonic() + limit
        time_column = ask.stream.schema.timestamp_column
        wanted = sorted(ask.unknown | ask.lacking)
        ahead = [] if ask.prepared.aggregate.groups else self._ahead(ask, reader, wanted[-1] + 1)
        wanted += ahead
        edges = ask.lacking.union(ahead)
        with self._lock:
            known = {at: self._kept.get(ask.layout.keys[at]) for at in wanted}
        pieces = [ask.layout.piece(at) for at in wanted]
        columns: dict[int, Columns] = {}
        folded: dict[int, Tiles | Groups] = {}
        leaves: dict[int, Leaf] = {}
        for at, (piece, matches) in zip(wanted, reader.matches(ask.prepared.scan.block, pieces), strict=True):
            of = known[at]
            loaded = Columns(of if isinstance(of, Columns) else None)
            timed = at in edges and loaded.times is None
            missing = tuple(name for name in needed if name not in loaded.vectors)
            if missing or timed:
                # In one go: to open a file's columns takes longer than to read one more.
                names = tuple(dict.fromkeys((*missing, time_column))) if timed else missing
                read = dict(zip(names, reader.columns(ask.stream, piece, names), strict=True))
                loaded.vectors |= {name: Vector(read[name].array) for name in missing}
                if timed:
                    stamps = read[time_column].values
                    assert stamps is not None, "every tuple has a timestamp"
                    loaded.times = Times(stamps)
            # The tiles of one row's folds are needed at edges, too; of groups whole segments only.
            if at in ask.unknown or not ask.prepared.aggregate.groups:
                folded[at] = fold(at, matches, loaded.vectors)
            # A segment wholly inside is folded once and for all: only those at the edges are kept.
            if at in edges:
                columns[at] = loaded
                tiles = folded.get(at, {})
                leaves[at] = Leaf(matches, {} if isinstance(tiles, Groups) else tiles)
            if time.monotonic() > deadline:
                raise InvocationTimeout(f"Evaluation took longer than {limit:g} s and was stopped.")
        with self._lock:
            self._put(ask, columns, leaves, folded)
        ask.unknown.clear()
        ask.lacking.clear()

    def _ahead(self, ask: _Ask, reader: Reader, first: int) -> list[int]:
        """The covered segments from one on that are not folded yet."""
        last = min(first + _AHEAD, len(ask.layout.keys))
        with self._lock:
            folded = {at for tree in ask.trees.values() for at in range(first, last) if tree.knows(ask.layout, at)}
        following = list(takewhile(lambda at: at not in folded, range(first, last)))
        covered = reader.covered(ask.prepared.scan.block, [ask.layout.piece(at) for at in following])
        return [at for at, _ in takewhile(itemgetter(1), zip(following, covered, strict=True))]

    def _put(
        self,
        ask: _Ask,
        columns: Mapping[int, Columns],
        leaves: Mapping[int, Leaf],
        folded: Mapping[int, Tiles | Groups],
    ) -> None:
        for at, loaded in columns.items():
            segment = ask.layout.keys[at]
            known = self._kept.get(segment)
            if isinstance(known, Columns):
                loaded.vectors = {**known.vectors, **loaded.vectors}
            ask.columns[at] = loaded
            self._kept.put(segment, loaded)
        for at, leaf in leaves.items():
            ask.leaves[at] = leaf
            self._kept.put(leaf_key(ask.block_id, ask.layout.keys[at]), leaf)
        folds: dict[_TreeKey, tuple[str, _Combine]] = {
            (ask.block_id, name): (name, combine) for _, name, _, combine, _ in ask.prepared.folds
        }
        for key, tree in ask.trees.items():
            for at, value in folded.items():
                if isinstance(value, Groups):
                    tree.put(ask.layout, at, value)
                else:
                    name, combine = folds[key]
                    tree.put(ask.layout, at, combine(value[name]))
            if folded:
                self._kept.put(key, tree)

    def _layout(self, stream: StreamState) -> Layout:
        layout = self._store.layout(stream)
        known = self._layouts.get(stream.id)
        if layout is not known:
            with self._lock:
                if newer(layout, known):
                    self._layouts[stream.id] = layout
                    if known is not None and layout.lineage is not known.lineage:
                        self._kept.drop_segments(set(known.keys) - set(layout.keys))
        return layout

    def _forget(self, catalog: Catalog) -> None:
        """After a commit: let go of what belongs to blocks that no longer stand and streams that were dropped."""
        fewer = len(catalog.block_ids) < self._blocks
        self._blocks = len(catalog.block_ids)
        if not fewer and 2 * len(catalog.streams) >= len(self._layouts):
            return
        streams = {stream.id for stream in catalog.streams.values()}
        streams |= {stream.quarantine.id for stream in catalog.streams.values() if stream.quarantine is not None}
        living = _Living(streams, catalog.queries.users)
        with self._lock:
            self._layouts = {number: layout for number, layout in self._layouts.items() if number in streams}
            self._kept.keep_blocks(living)
            self._too_many = {key for key in self._too_many if key[0] in living}
            self._prepared.clear()


@dataclass(frozen=True)
class _Living:
    """Ids of streams and of blocks that stand; nothing is gone through to know it."""

    streams: set[int]
    blocks: Mapping[int, int]

    def __contains__(self, number: object) -> bool:
        return number in self.streams or number in self.blocks


def _stream(plan: Plan, catalog: Catalog) -> StreamState:
    stream = catalog.stream(plan.scans[0].block.stream)
    assert stream is not None, "the stream of a bound plan"
    return stream


def _groups_key(ask: _Ask) -> _GroupsKey:
    aggregate = ask.prepared.aggregate
    return (ask.block_id, aggregate.groups, aggregate.names)


def _inside(matches: Matches, part: Part) -> Rows:
    first, last, mask = part
    return matches.between(first, last) if mask is None else matches.among(first, mask)


def _vector(ask: _Ask, reader: Reader, at: int, name: str) -> Vector:
    return Vector(reader.columns(ask.stream, ask.layout.piece(at), (name,))[0].array)
