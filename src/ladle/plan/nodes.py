"""The algebra: a query as a tree of immutable nodes (cudf_polars and Calcite have theirs the same way).

A node has `children`, `columns` (names are for people, types are what is known) and an identity by content, its
`digest`: equal sub-trees are one node, whoever wrote them and whatever they call their relations and columns.
`Fragment` is any SQL over its children's rows, so that every query has a tree. Nothing here is in the log: a tree is
derived from the bound query when somebody asks for it (`ladle.sql.tree_of`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import pyarrow as pa

from ladle.plan.query import Factor
from ladle.plan.scalars import Comparison, Scalar, SortKey
from ladle.plan.window import Window, window_to_json


class JoinKind(Enum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def keeps_right(self) -> bool:
        """Whether the right side's columns are in the result."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI)


@dataclass(frozen=True)
class OutputColumn:
    """A column of a node's rows; `type` is None where only Spark can tell."""

    name: str
    type: pa.DataType | None = None


@dataclass(frozen=True, eq=False)
class Node:
    """What all nodes have. Two nodes are equal when their digests are."""

    columns: tuple[OutputColumn, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    @property
    def content(self) -> list[Any]:
        """What this node is beside its children, as values that JSON has."""
        return []

    @cached_property
    def digest(self) -> str:
        value = [type(self).__name__, self.content, [child.digest for child in self.children]]
        return hashlib.blake2b(json.dumps(value).encode(), digest_size=12).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, eq=False)
class StreamScan(Node):
    """The tuples of a stream in a window for which every factor is true, with all columns of the stream."""

    stream: str
    window: Window
    factors: tuple[Factor, ...]
    relation: str
    """The scan of the bound query that this is; no part of its identity."""

    @property
    def content(self) -> list[Any]:
        factors = sorted({factor.sql for factor in self.factors})
        return [self.stream.lower(), window_to_json(self.window), factors]


@dataclass(frozen=True, eq=False)
class TableScan(Node):
    """All rows of a table, as it stands when the answer is read."""

    table: str

    @property
    def content(self) -> list[Any]:
        return [self.table.lower()]


@dataclass(frozen=True, eq=False)
class Unary(Node):
    child: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)


@dataclass(frozen=True, eq=False)
class Binary(Node):
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """The rows for which every condition is true. One that may raise is looked at where those before it hold."""

    conditions: tuple[Scalar, ...]

    @property
    def content(self) -> list[Any]:
        return [_scalar(each) for each in self.conditions]


@dataclass(frozen=True, eq=False)
class Project(Unary):
    outputs: tuple[Scalar, ...]

    @property
    def content(self) -> list[Any]:
        return [_scalar(each) for each in self.outputs]


@dataclass(frozen=True, eq=False)
class Join(Binary):
    """A join of what streams give: the pairs for which all comparisons and the condition are true, and for outer,
    semi and anti joins what these make of them.
    """

    kind: JoinKind
    comparisons: tuple[Comparison, ...]
    condition: Scalar | None

    @property
    def content(self) -> list[Any]:
        comparisons = sorted([_scalar(c.left), c.relop.value, _scalar(c.right)] for c in self.comparisons)
        return [self.kind.value, comparisons, None if self.condition is None else _scalar(self.condition)]


@dataclass(frozen=True, eq=False)
class RelationJoin(Join):
    """A join of which one side is made of tables alone (UPA section 4.1). Tables are read retroactively: a change of
    one changes what was answered before.
    """


@dataclass(frozen=True, eq=False)
class GroupBy(Unary):
    """One row for each group: its keys, then its aggregates. Without keys there is one group, also of no rows."""

    keys: tuple[Scalar, ...]
    aggregates: tuple[Scalar, ...]

    @property
    def content(self) -> list[Any]:
        return [[_scalar(each) for each in self.keys], [_scalar(each) for each in self.aggregates]]


@dataclass(frozen=True, eq=False)
class Distinct(Unary):
    pass


@dataclass(frozen=True, eq=False)
class Sort(Unary):
    keys: tuple[SortKey, ...]

    @property
    def content(self) -> list[Any]:
        return [_sort_key(each) for each in self.keys]


@dataclass(frozen=True, eq=False)
class TopK(Unary):
    """The first `limit` rows (None: all) of an order, after `offset` of them."""

    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int

    @property
    def content(self) -> list[Any]:
        return [[_sort_key(each) for each in self.keys], self.limit, self.offset]


@dataclass(frozen=True, eq=False)
class Limit(Unary):
    """Any `limit` of the rows (None: all), after `offset` of them."""

    limit: int | None
    offset: int

    @property
    def content(self) -> list[Any]:
        return [self.limit, self.offset]


@dataclass(frozen=True, eq=False)
class SetOperation(Binary):
    """`all` is for bags (UNION ALL), otherwise no row comes twice."""

    all: bool

    @property
    def content(self) -> list[Any]:
        return [self.all]


@dataclass(frozen=True, eq=False)
class Union(SetOperation):
    pass


@dataclass(frozen=True, eq=False)
class Intersect(SetOperation):
    pass


@dataclass(frozen=True, eq=False)
class Except(SetOperation):
    """For bags this is UPA's negation."""


@dataclass(frozen=True, eq=False)
class Fragment(Node):
    """SQL that no rule peels, over its children's rows: relations `_c0`, `_c1`, ... with their columns' names."""

    inputs: tuple[Node, ...]
    sql: str
    duckdb: str | None
    why: str
    """What no rule understands, for people."""
    uses_now: bool = False

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def content(self) -> list[Any]:
        # A fragment's text names the columns of its children.
        return [self.sql, [list(child.names) for child in self.inputs]]


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, each before its children, and once however many read it."""
    waiting, seen = [node], {id(node)}
    while waiting:
        each = waiting.pop()
        yield each
        new = [child for child in reversed(each.children) if id(child) not in seen]
        seen.update(map(id, new))
        waiting.extend(new)


def leaves(node: Node) -> Iterator[Node]:
    """The nodes below which there is nothing."""
    return (each for each in walk(node) if not each.children)


def scalars(node: Node) -> tuple[Scalar, ...]:
    """The expressions that a node itself evaluates."""
    match node:
        case Filter():
            return node.conditions
        case Project():
            return node.outputs
        case GroupBy():
            return (*node.keys, *node.aggregates)
        case Sort() | TopK():
            return tuple(key.scalar for key in node.keys)
        case Join():
            sides = [side for each in node.comparisons for side in (each.left, each.right)]
            return (*sides, *(() if node.condition is None else (node.condition,)))
    return ()


def _scalar(scalar: Scalar) -> list[Any]:
    return [scalar.spark, [list(column) for column in scalar.columns]]


def _sort_key(key: SortKey) -> list[Any]:
    return [_scalar(key.scalar), key.descending, key.nulls_first]
