"""The plan tree that EXPLAIN shows: of each node its update pattern, what answers it, and who shares it.

Trees are derived when somebody asks, from the bound query (`ladle.sql.tree_of`). Queries still run as scans and one
residual over them; what answers a node is told in those terms. Nodes are shared by identity: two queries share one when
their trees have it. Only queries that have a leaf in common with the one that is asked for can, and of those so many
trees are made as `_TREES_MAX` says; those made before are remembered.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from ladle import sql
from ladle.catalog import Catalog, QueryState
from ladle.catalog.streams import StreamState
from ladle.execute.node_state import InMemory, Measured, NodeState
from ladle.handles import PlanTree
from ladle.plan import AsOf, Engine, Factor, Plan, Sample, Window
from ladle.plan.answering import FoldedNode, Folding
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
    TimeWindows,
    walk,
)
from ladle.plan.pattern import Label, StreamFacts, labels

_TREES_MAX = 50
"""Trees of other queries that one EXPLAIN makes to find out who shares a node."""
_REMEMBERED = 4_096
"""Queries whose nodes are remembered."""


@dataclass(frozen=True)
class NodeSharing:
    """How many other standing queries have each node, by its digest."""

    counts: Counter[str]
    exact: bool
    """False: there are queries that were not looked at."""


@dataclass(frozen=True)
class ExplainedNode:
    """A node of a plan with what EXPLAIN says of it."""

    node: Node
    label: Label
    answered: str
    shared: int
    shared_exactly: bool
    state: NodeState | None
    in_memory: InMemory | None
    measured: Measured | None
    children: tuple[ExplainedNode, ...]

    def to_json(self) -> PlanTree:
        """The tree as nested dictionaries. A sub-tree that was told before is only named."""
        return self._told(set())

    def _told(self, told: set[str]) -> PlanTree:
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
            "coverage": None if self.state is None else self.state.coverage,
            "kept": None if self.state is None else self.state.kept,
            "in_memory": None if self.in_memory is None else asdict(self.in_memory),
            "measured": None if self.measured is None else asdict(self.measured),
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
        return draw(self.node, lambda node: f"  {notes[id(node)]}")

    def _note(self, asked: QueryState | None) -> str:
        notes = [str(self.label), self.answered]
        if self.shared:
            many = "" if self.shared_exactly else "at least "
            other = "" if asked is None else "other "
            notes.append(f"shared with {many}{self.shared} {other}standing quer{'y' if self.shared == 1 else 'ies'}")
        held = [str(each) for each in (self.state, self.in_memory) if each is not None]
        kept = f" ({'; '.join(held)})" if held else ""
        took = "" if self.measured is None else f" took {self.measured}"
        return f"[{'; '.join(notes)}]{kept}{took}"


@dataclass(frozen=True)
class States:
    """What is known of nodes beside the tree: what is kept of them, and what they took."""

    folding: Folding | None = None
    """Which of them partial aggregates give."""
    scans: Mapping[int, NodeState] = field(default_factory=dict)
    folds: Mapping[int, NodeState] = field(default_factory=dict)
    """By place in the tree."""
    joins: Mapping[tuple[int, int], NodeState] = field(default_factory=dict)
    """By the numbers of both scans."""
    answer: InMemory | None = None
    """The answer that is held of the query."""
    rows: Mapping[int, InMemory] = field(default_factory=dict)
    """Rows that are held of scans, by number."""
    measured: Mapping[str, Measured] = field(default_factory=dict)
    """By digest."""


def explain_tree(
    catalog: Catalog, plan: Plan, tree: Node, query: QueryState | None, others: Sequence[QueryState], states: States
) -> ExplainedNode:
    """The tree of a plan. `others` are the standing queries that may share with it."""
    found = labels(tree, _facts(catalog, plan))
    blocks = query.blocks if query is not None else [catalog.block_id(scan.block) for scan in plan.scans]
    sharing = _sharing(tree, plan, blocks, others, catalog)

    given = given_nodes(tree, states.folding)
    done: dict[int, ExplainedNode] = {}

    def explained(node: Node) -> ExplainedNode:
        if id(node) not in done:
            label, shared = found[node.digest], sharing.counts[node.digest]
            children = tuple(explained(child) for child in node.children)
            held = _in_memory(node, tree, plan, states)
            is_kept = held is not None and held.is_answer
            answered = "kept answer" if is_kept else _answered(node, plan, states.folding, given)
            exact = sharing.exact or isinstance(node, StreamScan | TableScan)
            state, took = _state(node, plan, states, given), states.measured.get(node.digest)
            done[id(node)] = ExplainedNode(node, label, answered, shared, exact, state, held, took, children)
        return done[id(node)]

    return explained(tree)


# What answers a node


def _answered(node: Node, plan: Plan, folding: Folding | None, given: Mapping[int, FoldedNode]) -> str:
    residual = plan.residual if plan.joined is None else plan.joined.residual
    kind = "fragment" if isinstance(node, Fragment) else "residual"
    match node:
        case StreamScan():
            return _scanned(node.factors)
        case TableScan():
            return "its newest version" if node.as_of is None else "the version of that moment"
        case GroupBy() if id(node) in given:
            return "tree of aggregates"
        case TimeWindows() if id(node) in given:
            return "panes"
        case Project() if id(node) in given or (folding is not None and folding.above is None):
            return "tree of aggregates"
        case Join() if _edge(node, plan) is not None:
            return "pairs of the SteMs"
        case Project() if residual.engine is Engine.PROJECTION:
            return "columns are picked"
    return f"{kind} on Spark: {residual.why_spark}" if residual.engine is Engine.SPARK else f"{kind} on DuckDB"


def given_nodes(tree: Node, folding: Folding | None) -> dict[int, FoldedNode]:
    """The nodes of a tree that partial aggregates give, by the identity of the object: group-bys, and the time windows
    and projections between them and their scans that nothing else reads.
    """
    places = {} if folding is None else {each.place: each for each in folding.nodes}
    groups = [(node, places[at]) for at, node in enumerate(walk(tree)) if at in places]
    found = {id(below): each for node, each in groups for below in walk(node) if below.children}
    elsewhere = {id(child) for node in walk(tree) if id(node) not in found for child in node.children}
    elsewhere -= {id(node) for node, _ in groups}
    return {node: each for node, each in found.items() if node not in elsewhere}


def _state(node: Node, plan: Plan, states: States, given: Mapping[int, FoldedNode]) -> NodeState | None:
    """What is kept of a node."""
    match node:
        case StreamScan():
            return states.scans.get(_number(node, plan))
        case GroupBy() if id(node) in given:
            return states.folds.get(given[id(node)].place)
        case Join():
            edge = _edge(node, plan)
            return None if edge is None else states.joins.get(edge)
    return None


def _in_memory(node: Node, tree: Node, plan: Plan, states: States) -> InMemory | None:
    """What is held of a node because the answer of its query is demanded."""
    if node is tree and states.answer is not None:
        return states.answer
    return states.rows.get(_number(node, plan)) if isinstance(node, StreamScan) else None


def _number(node: StreamScan, plan: Plan) -> int:
    return next(number for number, scan in enumerate(plan.scans) if scan.relation == node.relation)


def _scanned(factors: tuple[Factor, ...]) -> str:
    indexed = sum(factor.ranges is not None for factor in factors)
    if not factors:
        return "every tuple"
    if indexed == len(factors):
        return "index"
    return "index and predicate list" if indexed else "predicate list"


def _edge(node: Join, plan: Plan) -> tuple[int, int] | None:
    """The scans of a shared join whose pairs answer it."""
    if plan.joined is None or node.kind is not JoinKind.INNER or isinstance(node, RelationJoin):
        return None
    numbers = {scan.relation: number for number, scan in enumerate(plan.scans)}
    left, right = ({numbers[name] for name in _relations(child)} for child in node.children)
    edges = [(edge.left, edge.right) for join in plan.joined.joins for edge in join.edges]
    meant = [
        (one, other) for one, other in edges if (one in left and other in right) or (one in right and other in left)
    ]
    return meant[0] if meant else None


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
) -> NodeSharing:
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
    return NodeSharing(counts, exact)


_Leaf = tuple[int | None, Window, AsOf | None, Sample | None] | tuple[str, AsOf | None]
"""A block and a window, or a table; and as of which moment they are read, and which sample."""


def _leaves(tree: Node, plan: Plan, blocks: Sequence[int | None]) -> dict[_Leaf, str]:
    """The digests of a tree's leaves, by what other queries say of theirs."""
    own = {scan.relation: block for scan, block in zip(plan.scans, blocks, strict=True)}
    found: dict[_Leaf, str] = {}
    for node in walk(tree):
        match node:
            case StreamScan():
                found[own[node.relation], node.window, node.as_of, node.sample] = node.digest
            case TableScan():
                found[node.table, node.as_of] = node.digest
    return found


def _read(query: QueryState) -> Iterator[_Leaf]:
    shape = query.shape
    scans = zip(query.blocks, shape.scans, strict=True)
    yield from ((block, scan.window, scan.as_of, scan.sample) for block, scan in scans)
    yield from ((table.table, table.as_of) for table in shape.tables)


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
