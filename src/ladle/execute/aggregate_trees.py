"""Rows of nodes from partial aggregates (PSoup section 6): one ranked tree for all queries with one select block.

Derived and lazy: a segment is folded when an invocation first needs it, from the covered results or by evaluating the
block, and kept while there is room. A window takes the nodes of the tree between its edges; of the segments at the
edges only the strips that the edges cut are looked at row by row. Whatever this can't answer, DuckDB does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from operator import itemgetter
from weakref import WeakValueDictionary

import pyarrow as pa

from ladle.archive.layout import Extent, Layout, newer
from ladle.archive.order import Part
from ladle.catalog import Catalog, StreamState
from ladle.catalog.store import Store
from ladle.errors import EvaluationError, InvocationTimeout
from ladle.execute.partials import Columns, KeptPartials, KeyColumns, Leaf, Strips, Tree, TreeNode, leaf_key
from ladle.execute.prepared import Ask, Edge, GroupsKey, Prepared, TreeKey, key_of_all
from ladle.execute.reader import Reader
from ladle.operators.aggregates import (
    Number,
    Vector,
    fold_rows,
    fold_strips,
)
from ladle.operators.groups import Dictionary, Grouping, Groups, TooManyGroups, TooManyKeys
from ladle.operators.window_edges import Times, cut_range
from ladle.plan import Aggregate
from ladle.stem.matches import Matches, Rows

_ATTEMPTS = 4
"""Beyond this many, other threads with other snapshots take the tree away each time."""
_TOO_MANY_SECONDS = 60.0
_AHEAD = 8
"""Who reads a window that ended in the past will soon read the next: so many segments behind it are folded with it."""

_Vectors = Mapping[str, Vector]
_Fold = Callable[[int, Matches, _Vectors], Strips | Groups]
"""From a segment's number, the rows of it that match, and its columns."""
_Combine = Callable[[Sequence[Number]], Number]


class Aggregates:
    """Keeps partial aggregates of blocks in trees, and gives the groups of a window from them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept = KeptPartials(store.derived)
        self._layouts: dict[int, Layout] = {}
        self._too_many: dict[tuple[object, ...], float] = {}
        """Groups that were too many for a tree, and until when that is not tried again."""
        self._dictionaries: WeakValueDictionary[tuple[int, tuple[str, ...]], Dictionary] = WeakValueDictionary()
        """By stream and columns; a dictionary lives as long as a tree has numbers of it."""
        self._blocks = 0
        store.on_commit(self._forget)

    @property
    def bytes(self) -> int:
        """How many bytes the partial aggregates take."""
        return self._kept.bytes

    def rows(self, prepared: Prepared, catalog: Catalog, reader: Reader, extent: Extent) -> pa.Table | None:
        """The rows of a node over the tuples of an extent, or None when the tree can't give them."""
        ask = self._ask(prepared, catalog, extent)
        if ask is None:
            return None
        try:
            return self._grouped(ask, reader) if prepared.aggregate.is_grouped else self._one(ask, reader)
        except TooManyGroups:
            with self._lock:
                self._too_many[_asked_groups(ask)] = time.monotonic() + _TOO_MANY_SECONDS
            return None

    def kept(self, prepared: Prepared, catalog: Catalog, extent: Extent) -> tuple[int, int, int, int] | None:
        """Of how many segments of a window, among how many, there are leaves; how many partials these have, and how
        many bytes the trees take. None when no tree gives the node.
        """
        ask = self._ask(prepared, catalog, extent)
        if ask is None:
            return None
        aggregate = prepared.aggregate
        keys: list[TreeKey] = (
            [_groups_key(ask)] if aggregate.is_grouped else [(ask.block_id, name) for name in aggregate.names]
        )
        with self._lock:
            found = [tree for key in keys if isinstance(tree := self._kept.peek(key), Tree)]
            leaves = [tree.align(ask.layout)[at] for tree in found[:1] for at in ask.cut.numbers]
            size = sum(tree.nbytes for tree in found)
        known = [leaf for leaf in leaves if leaf is not None]
        rows = sum(len(leaf) if isinstance(leaf, Groups) else len(found) for leaf in known)
        return len(known), len(ask.cut.numbers), rows, size

    def segments(self, prepared: Prepared, catalog: Catalog, extent: Extent) -> int | None:
        """How many segments a tree answers a window over; None when it does not."""
        ask = self._ask(prepared, catalog, extent)
        return None if ask is None else len(ask.layout.cut(extent).numbers)

    def _ask(self, prepared: Prepared, catalog: Catalog, extent: Extent) -> Ask | None:
        """What is asked of a tree; None where none answers: of the last tuples of each key there are none."""
        stream = _stream(prepared, catalog)
        block_id = prepared.block_id(catalog, stream)
        if block_id is None or extent.keyed is not None:
            return None
        return Ask(prepared, stream, block_id, extent, self._layout(stream))

    # -- one row --

    def _one(self, ask: Ask, reader: Reader) -> pa.Table | None:
        prepared = ask.prepared
        for _ in range(_ATTEMPTS):
            with self._lock:
                numbers = self._numbers(ask)
            if numbers is not None:
                return pa.Table.from_arrays([finish(numbers) for finish in prepared.finishers], schema=prepared.schema)
            try:
                self._load(ask, reader, prepared.columns, partial(_folded_strips, prepared))
            except EvaluationError:
                # A tuple outside the window may be what raised; only those inside count.
                return None
        return None

    def _numbers(self, ask: Ask) -> list[Number] | None:
        """The window's partials; None when something is lacking, which then stands in `ask`."""
        edges = [self._edge(ask, at, ask.prepared.needed) for at, _, _ in ask.edges]
        wholes: list[list[Number]] = []
        for _, name, _, combine, empty in ask.prepared.folds:
            self._tree(ask, (ask.block_id, name), combine)
            wholes.append([empty, *self._nodes(ask, (ask.block_id, name))])
        if ask.unknown or ask.lacking:
            return None
        cuts = [self._cut(ask, cut, *edge) for cut, edge in zip(ask.edges, edges, strict=True) if edge]
        numbers: list[Number] = []
        for parts, (fold, name, column, combine, _) in zip(wholes, ask.prepared.folds, strict=True):
            for leaf, columns, whole, pieces in cuts:
                vector = None if column is None else columns.vectors[column]
                if whole:
                    strips = leaf.strips.get(name)
                    if strips is None:
                        strips = leaf.strips[name] = fold_strips([(name, fold, vector)], leaf.matches)[name]
                    parts += (
                        strips[whole.start : whole.stop] if isinstance(whole, range) else [strips[at] for at in whole]
                    )
                for rows in pieces:
                    parts.append(fold_rows(fold, vector, rows))
            numbers.append(combine(parts))
        return numbers

    def _cut(
        self, ask: Ask, cut: Edge, leaf: Leaf, columns: Columns
    ) -> tuple[Leaf, Columns, Sequence[int], list[Rows]]:
        """A segment at an edge: the strips wholly inside, and the rows inside of those that are not."""
        at, skip, until = cut
        known = ask.cut.strips.get(at) if until is None else None
        if known is None:
            rows = int(ask.layout.segments.rows[at])
            last = rows if until is None else until
            if columns.times is None:
                known = cut_range(skip, last, rows)
            else:
                known = columns.times.cut(ask.extent.begin_us, ask.extent.end_us, skip, last)
            if until is None and all(mask is None for _, _, mask in known[1]):
                ask.cut.strips[at] = known
        whole, parts = known
        return leaf, columns, whole, [_inside(leaf.matches, part) for part in parts]

    # -- by group --

    def _grouped(self, ask: Ask, reader: Reader) -> pa.Table | None:
        key = _groups_key(ask)
        if self._too_many.get(_asked_groups(ask), 0.0) > time.monotonic():
            return None
        has_begun_anew = False
        for _ in range(_ATTEMPTS):
            with self._lock:
                grouping = self._grouping(ask, key)
                parts: list[Groups] = self._nodes(ask, key)
                cuts = [(edge[0], cut) for edge in ask.edges if (cut := self._rows(ask, edge)) is not None]
            known = not ask.unknown and not ask.lacking
            try:
                if known:
                    parts += [self._folded(ask, reader, grouping, at, rows) for at, rows in cuts]
                else:
                    self._load(ask, reader, (), self._fold_whole(ask, reader, grouping))
            except EvaluationError:
                return None
            except TooManyKeys:
                if has_begun_anew:
                    raise TooManyGroups from None
                # Most of the keys may be of groups that are gone: it begins anew, with the keys of what is folded now.
                with self._lock:
                    self._begin_anew(ask, key)
                has_begun_anew = True
                continue
            if known:
                return grouping.answer(parts, ask.prepared.schema)
        return None

    def _fold_whole(self, ask: Ask, reader: Reader, grouping: Grouping) -> _Fold:
        names = tuple(dict.fromkeys((*ask.prepared.columns, *_read_by_keys(ask.prepared.aggregate))))

        def fold(at: int, matches: Matches, _: _Vectors) -> Groups:
            if names:
                # In one go, for all that ask for one of them: see _load.
                reader.columns(ask.stream, ask.layout.piece(at), names)
            return self._folded(ask, reader, grouping, at, matches.between(0, matches.rows))

        return fold

    def _grouping(self, ask: Ask, key: GroupsKey) -> Grouping:
        """Folds with the dictionary of the tree, which is made when there is none."""
        aggregate = ask.prepared.aggregate
        tree = ask.trees.get(key) or self._kept.get(key)
        if tree is None:
            columns = (ask.stream.id, aggregate.groups)
            dictionary = self._dictionaries.get(columns)
            if dictionary is None:
                dictionary = self._dictionaries[columns] = Dictionary(aggregate.groups)
            tree = Tree(Grouping(aggregate, dictionary).combined, ask.layout, dictionary)
            self._kept.put(key, tree)
            self._kept.settle()
        assert isinstance(tree, Tree)
        ask.trees[key] = tree
        return Grouping(aggregate, tree.dictionary)

    def _begin_anew(self, ask: Ask, key: GroupsKey) -> None:
        tree = ask.trees.pop(key)
        columns = (ask.stream.id, ask.prepared.aggregate.groups)
        if self._dictionaries.get(columns) is tree.dictionary:
            del self._dictionaries[columns]
        self._kept.drop(key)
        ask.unknown.clear()
        ask.lacking.clear()

    def _folded(self, ask: Ask, reader: Reader, grouping: Grouping, at: int, rows: Rows) -> Groups:
        """The groups of some rows of a segment."""
        aggregate = ask.prepared.aggregate
        vectors = {name: _vector(ask, reader, at, name) for name in ask.prepared.columns}
        columns = _key_columns(aggregate)
        with self._lock:
            kept = ask.columns.get(at) or self._kept.get(ask.layout.keys[at])
        known = kept.keys.get(columns) if isinstance(kept, Columns) else None
        if known is None or known.dictionary is not grouping.dictionary:
            segment = reader.segment(ask.stream, ask.layout.piece(at), _read_by_keys(aggregate))
            known = grouping.keys(segment)
            with self._lock:
                loaded = Columns(kept if isinstance(kept, Columns) else None)
                loaded.keys[columns] = known
                ask.columns[at] = loaded
                self._kept.put(ask.layout.keys[at], loaded)
            self._kept.settle()
        return grouping.folded(known, vectors, rows)

    def _rows(self, ask: Ask, edge: Edge) -> Rows | None:
        """The matches of a segment at an edge that are in the window."""
        at, skip, until = edge
        known = self._edge(ask, at, frozenset())
        if known is None:
            return None
        leaf, columns = known
        last = int(ask.layout.segments.rows[at]) if until is None else until
        part: Part = (skip, last, None)
        if columns.times is not None:
            part = columns.times.rows(ask.extent.begin_us, ask.extent.end_us, skip, last)
        return _inside(leaf.matches, part)

    # -- what is kept, and what is lacking --

    def _nodes(self, ask: Ask, key: TreeKey) -> list[TreeNode]:
        """The nodes of a tree for the segments wholly inside; leaves that are not known are noted."""
        tree = ask.trees[key].align(ask.layout)
        found: list[TreeNode] = []
        for first, last in ask.runs:
            nodes = tree.parts(first, last)
            if nodes is None:
                ask.unknown.update(tree.unknown(first, last))
            else:
                found += nodes
        return found

    def _tree(self, ask: Ask, key: TreeKey, combine: Callable[[list[TreeNode]], TreeNode]) -> None:
        if key not in ask.trees:
            found = self._kept.get(key)
            if found is None:
                found = Tree(combine, ask.layout)
                self._kept.put(key, found)
                self._kept.settle()
            assert isinstance(found, Tree)
            ask.trees[key] = found

    def _edge(self, ask: Ask, at: int, needed: frozenset[str]) -> tuple[Leaf, Columns] | None:
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

    def _load(self, ask: Ask, reader: Reader, needed: tuple[str, ...], fold: _Fold) -> None:
        """Get what is lacking, outside the lock: segments are read and factors evaluated."""
        limit = self._store.settings.invoke_seconds_max
        began = time.monotonic()
        deadline = began + limit
        time_column = ask.stream.schema.timestamp_column
        wanted = sorted(ask.unknown | ask.lacking)
        ahead = [] if ask.prepared.aggregate.is_grouped else self._ahead(ask, reader, wanted[-1] + 1)
        wanted += ahead
        edges = ask.lacking.union(ahead)
        with self._lock:
            known = {at: self._kept.get(ask.layout.keys[at]) for at in wanted}
        pieces = [ask.layout.piece(at) for at in wanted]
        columns: dict[int, Columns] = {}
        folded: dict[int, Strips | Groups] = {}
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
            # The strips of one row's folds are needed at edges, too; of groups whole segments only.
            if at in ask.unknown or not ask.prepared.aggregate.is_grouped:
                folded[at] = fold(at, matches, loaded.vectors)
            # A segment wholly inside is folded once and for all: only those at the edges are kept.
            if at in edges:
                columns[at] = loaded
                strips = folded.get(at, {})
                leaves[at] = Leaf(matches, {} if isinstance(strips, Groups) else strips)
            if time.monotonic() > deadline:
                raise InvocationTimeout(f"Evaluation took longer than {limit:g} s and was stopped.")
        with self._lock:
            self._put(ask, columns, leaves, folded, time.monotonic() - began)
        self._kept.settle()
        ask.unknown.clear()
        ask.lacking.clear()

    def _ahead(self, ask: Ask, reader: Reader, first: int) -> list[int]:
        """The covered segments from one on that are not folded yet."""
        last = min(first + _AHEAD, len(ask.layout.keys))
        with self._lock:
            folded = {at for tree in ask.trees.values() for at in range(first, last) if tree.knows(ask.layout, at)}
        following = list(takewhile(lambda at: at not in folded, range(first, last)))
        covered = reader.covered(ask.prepared.scan.block, [ask.layout.piece(at) for at in following])
        return [at for at, _ in takewhile(itemgetter(1), zip(following, covered, strict=True))]

    def _put(
        self,
        ask: Ask,
        columns: Mapping[int, Columns],
        leaves: Mapping[int, Leaf],
        folded: Mapping[int, Strips | Groups],
        seconds: float,
    ) -> None:
        """Keep what was loaded; what that took is shared out among the segments, and what is kept of each."""
        share = seconds / max(len(columns) + len(leaves) + len(folded) * len(ask.trees), 1)
        for at, loaded in columns.items():
            segment = ask.layout.keys[at]
            known = self._kept.get(segment)
            if isinstance(known, Columns):
                loaded.vectors = {**known.vectors, **loaded.vectors}
                loaded.keys = {**known.keys, **loaded.keys}
            ask.columns[at] = loaded
            self._kept.put(segment, loaded, share)
        for at, leaf in leaves.items():
            ask.leaves[at] = leaf
            self._kept.put(leaf_key(ask.block_id, ask.layout.keys[at]), leaf, share)
        folds: dict[TreeKey, tuple[str, _Combine]] = {
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
                self._kept.put(key, tree, share * len(folded))

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
        streams = {stream.id: key_of_all(stream) for stream in catalog.all_streams()}
        living = _Living(frozenset(streams.values()), catalog.queries.users)
        with self._lock:
            self._layouts = {number: layout for number, layout in self._layouts.items() if number in streams}
            self._kept.keep_blocks(living)
            self._too_many = {key: until for key, until in self._too_many.items() if key[0] in living}


@dataclass(frozen=True)
class _Living:
    """Streams, by what stands for all their tuples, and blocks that stand; nothing is gone through to know it."""

    streams: frozenset[int]
    blocks: Mapping[int, int]

    def __contains__(self, number: object) -> bool:
        return number in self.streams or number in self.blocks


def _stream(prepared: Prepared, catalog: Catalog) -> StreamState:
    stream = catalog.stream(prepared.scan.block.stream)
    assert stream is not None, "the stream of a bound plan"
    return stream


def _groups_key(ask: Ask) -> GroupsKey:
    aggregate = ask.prepared.aggregate
    return (ask.block_id, _key_columns(aggregate), aggregate.names)


def _folded_strips(prepared: Prepared, _: int, matches: Matches, vectors: _Vectors) -> Strips:
    wanted = [(name, fold, None if column is None else vectors[column]) for fold, name, column, *_ in prepared.folds]
    return fold_strips(wanted, matches)


def _asked_groups(ask: Ask) -> tuple[object, ...]:
    """A tree of groups, and what is made of it: windows of one size may be too many, and of another not."""
    return (*_groups_key(ask), ask.prepared.aggregate.windows)


def _key_columns(aggregate: Aggregate) -> KeyColumns:
    return aggregate.groups, None if aggregate.windows is None else aggregate.windows.panes


def _read_by_keys(aggregate: Aggregate) -> tuple[str, ...]:
    """The columns that tell the group of a row."""
    time_column = () if aggregate.windows is None else (aggregate.windows.column,)
    return tuple(dict.fromkeys((*aggregate.groups, *time_column)))


def _inside(matches: Matches, part: Part) -> Rows:
    first, last, mask = part
    return matches.between(first, last) if mask is None else matches.among(first, mask)


def _vector(ask: Ask, reader: Reader, at: int, name: str) -> Vector:
    return Vector(reader.columns(ask.stream, ask.layout.piece(at), (name,))[0].array)
