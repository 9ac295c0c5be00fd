"""The plan tree that EXPLAIN shows: of each node its update pattern, what answers it, and who shares it.

Trees are derived when somebody asks, from the bound query (`ladle.sql.tree_of`). Queries still run as scans and one
residual over them; what answers a node is told in those terms. Nodes are shared by identity: two queries share one when
their trees have it. Only queries that have a leaf in common with the one that is asked for can, and of those so many
trees are made as `_TREES_MAX` says; those made before are remembered.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ladle import sql
from ladle.catalog import Catalog, QueryState
from ladle.catalog.streams import StreamState
from ladle.plan import Engine, Factor, Plan, Window
from ladle.plan.drawing import detail, draw, title
from ladle.plan.nodes import (
    Fragment,
    GroupBy,
    Join,
    JoinKind,
    Node,
    Project,
    RelationJoin,
    StreamScan,
    TableScan,
    walk,
)
from ladle.plan.pattern import Label, StreamFacts, labels

_TREES_MAX = 50
"""Trees of other queries that one EXPLAIN makes to find out who shares a node."""
_REMEMBERED = 4_096
"""Queries whose nodes are remembered."""


@dataclass(frozen=True)
class Sharing:
    """How many other standing queries have each node, by its digest."""

    counts: Counter[str]
    exact: bool
    """False: there are queries that were not looked at."""


@dataclass(frozen=True)
class ExplainedNode:
    node: Node
    label: Label
    answered: str
    shared: int
    shared_exactly: bool
    children: tuple[ExplainedNode, ...]

    def to_json(self) -> dict[str, Any]:
        return self._told(set())

    def _told(self, told: set[str]) -> dict[str, Any]:
        """Of a sub-tree that comes again the children are told once."""
        again = bool(self.children) and self.node.digest in told
        told.add(self.node.digest)
        return {
            "node": title(self.node),
            "detail": detail(self.node),
            "columns": list(self.node.names),
            "digest": self.node.digest,
            "pattern": self.label.pattern.name.lower(),
            "premature": self.label.premature,
            "answered": self.answered,
            "shared": self.shared,
            "shared_exactly": self.shared_exactly,
            "again": again,
            "children": [] if again else [child._told(told) for child in self.children],
        }

    def lines(self, asked: QueryState | None) -> list[str]:
        """The tree as text; `asked` is the standing query that it is of."""
        notes: dict[int, str] = {}
        waiting = [self]
        while waiting:
            each = waiting.pop()
            if id(each.node) not in notes:
                notes[id(each.node)] = each._note(asked)
                waiting.extend(each.children)
        return draw(self.node, lambda node: f"  [{notes[id(node)]}]")

    def _note(self, asked: QueryState | None) -> str:
        notes = [str(self.label), self.answered]
        if self.shared:
            many = "" if self.shared_exactly else "at least "
            other = "" if asked is None else "other "
            notes.append(f"shared with {many}{self.shared} {other}standing quer{'y' if self.shared == 1 else 'ies'}")
        return "; ".join(notes)


def explain_tree(
    catalog: Catalog, plan: Plan, query: QueryState | None, others: Sequence[QueryState], *, folded: bool
) -> ExplainedNode:
    """The tree of a plan. `others` are the standing queries that may share with it; `folded` says whether partial
    aggregates answer it.
    """
    tree = sql.tree_of(plan, catalog)
    found = labels(tree, _facts(catalog, plan))
    blocks = query.blocks if query is not None else [catalog.block_id(scan.block) for scan in plan.scans]
    sharing = _sharing(tree, plan, blocks, others, catalog)

    done: dict[int, ExplainedNode] = {}

    def explained(node: Node) -> ExplainedNode:
        if id(node) not in done:
            label, shared = found[node.digest], sharing.counts[node.digest]
            children = tuple(explained(child) for child in node.children)
            answered = _answered(node, plan, folded=folded)
            exact = sharing.exact or isinstance(node, StreamScan | TableScan)
            done[id(node)] = ExplainedNode(node, label, answered, shared, exact, children)
        return done[id(node)]

    return explained(tree)


# What answers a node


def _answered(node: Node, plan: Plan, *, folded: bool) -> str:
    residual = plan.residual if plan.joined is None else plan.joined.residual
    kind = "fragment" if isinstance(node, Fragment) else "residual"
    match node:
        case StreamScan():
            return _scanned(node.factors)
        case TableScan():
            return "its newest version"
        case GroupBy() | Project() if folded:
            return "tree of aggregates"
        case Join() if _is_paired(node, plan):
            return "pairs of the SteMs"
        case Project() if residual.engine is Engine.PROJECTION:
            return "columns are picked"
    return f"{kind} on Spark: {residual.why_spark}" if residual.engine is Engine.SPARK else f"{kind} on DuckDB"


def _scanned(factors: tuple[Factor, ...]) -> str:
    indexed = sum(factor.ranges is not None for factor in factors)
    if not factors:
        return "every tuple"
    if indexed == len(factors):
        return "index"
    return "index and predicate list" if indexed else "predicate list"


def _is_paired(node: Join, plan: Plan) -> bool:
    """Whether the pairs of a shared join answer it."""
    if plan.joined is None or node.kind is not JoinKind.INNER or isinstance(node, RelationJoin):
        return False
    numbers = {scan.relation: number for number, scan in enumerate(plan.scans)}
    left, right = ({numbers[name] for name in _relations(child)} for child in node.children)
    edges = [(edge.left, edge.right) for join in plan.joined.joins for edge in join.edges]
    return any((one in left and other in right) or (one in right and other in left) for one, other in edges)


def _relations(node: Node) -> set[str]:
    """The scans that a tree of nothing but joins reads; none of any other."""
    below = list(walk(node))
    if not all(isinstance(each, StreamScan | Join) for each in below):
        return set()
    return {each.relation for each in below if isinstance(each, StreamScan)}


# What labels depend on


def _facts(catalog: Catalog, plan: Plan) -> StreamFacts:
    streams = {name.lower(): stream for name in plan.streams if (stream := catalog.stream(name)) is not None}
    return StreamFacts(
        late=frozenset(name for name, stream in streams.items() if _took_in_late_tuples(stream)),
        retain_us={name: stream.retain_us for name, stream in streams.items() if stream.retain_us is not None},
    )


def _took_in_late_tuples(stream: StreamState) -> bool:
    """Whether a segment has a tuple older than one of a segment before it. Tuples of one segment came together, or were
    merged since: between these nothing is known.
    """
    segments = stream.segments
    newest_before = np.maximum.accumulate(segments.ts_max_us)[:-1]
    return stream.event_time and bool((segments.ts_min_us[1:] < newest_before).any())


# Who shares a node

_nodes: OrderedDict[object, frozenset[str]] = OrderedDict()
_nodes_lock = threading.Lock()


def _sharing(
    tree: Node, plan: Plan, blocks: Sequence[int | None], others: Sequence[QueryState], catalog: Catalog
) -> Sharing:
    """Leaves are compared by block, window and table, of all queries; what is above them by the trees of some."""
    leaf_of = _leaves(tree, plan, blocks)
    inner = {node.digest for node in walk(tree) if node.digest not in leaf_of.values()}
    counts: Counter[str] = Counter()
    made, exact = 0, True
    for each in others:
        shared = {leaf_of[leaf] for leaf in _read(each) if leaf in leaf_of}
        counts.update(shared)
        if not shared or not inner:
            continue
        key = _key(each, catalog)
        digests = _remembered(key)
        if digests is None:
            if made == _TREES_MAX:
                exact = False
                continue
            made += 1
            digests = frozenset(node.digest for node in walk(sql.tree_of(each.plan, catalog)))
            _remember(key, digests)
        counts.update(inner & digests)
    return Sharing(counts, exact)


_Leaf = tuple[int | None, Window] | str
"""A block and a window, or a table."""


def _leaves(tree: Node, plan: Plan, blocks: Sequence[int | None]) -> dict[_Leaf, str]:
    """The digests of a tree's leaves, by what other queries say of theirs."""
    own = {scan.relation: block for scan, block in zip(plan.scans, blocks, strict=True)}
    found: dict[_Leaf, str] = {}
    for node in walk(tree):
        match node:
            case StreamScan():
                found[own[node.relation], node.window] = node.digest
            case TableScan():
                found[node.table] = node.digest
    return found


def _read(query: QueryState) -> Iterator[_Leaf]:
    shape = query.shape
    yield from zip(query.blocks, (scan.window for scan in shape.scans), strict=True)
    yield from (table.table for table in shape.tables)


def _key(query: QueryState, catalog: Catalog) -> object:
    """What a query's nodes follow from."""
    streams = tuple(catalog.stream_schema(name) for name in query.shape.streams)
    tables = tuple(catalog.table_schema(table.table) for table in query.shape.tables)
    factors = tuple(tuple(factor.sql for factor in own) for own in query.factors)
    return query.shape.text, factors, streams, tables


def _remembered(key: object) -> frozenset[str] | None:
    with _nodes_lock:
        found = _nodes.get(key)
        if found is not None:
            _nodes.move_to_end(key)
        return found


def _remember(key: object, digests: frozenset[str]) -> None:
    with _nodes_lock:
        _nodes[key] = digests
        if len(_nodes) > _REMEMBERED:
            _nodes.popitem(last=False)
