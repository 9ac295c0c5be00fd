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
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property

import pyarrow as pa

from ladle.json_values import Json
from ladle.plan.as_of import AsOf, as_of_to_json
from ladle.plan.query import Factor
from ladle.plan.sample import Sample, sample_to_json
from ladle.plan.scalars import Comparison, Scalar, SortKey
from ladle.plan.window import Window, window_to_json


class JoinKind(Enum):
    """The kinds of joins."""

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
        """The nodes whose rows it reads."""
        return ()

    @property
    def parts(self) -> tuple[object, ...]:
        """The values of its own fields, in order: all but its columns and its children."""
        return tuple(getattr(self, each.name) for each in fields(self) if each.name not in _NOT_PARTS)

    @property
    def content(self) -> list[Json]:
        """What its identity is made of, besides its children, as values that JSON has: its parts, unless it says
        otherwise.
        """
        return [_content(each) for each in self.parts]

    @cached_property
    def digest(self) -> str:
        """The identity of the sub-tree: equal ones have the same, whoever wrote them."""
        value = [type(self).__name__, self.content, [child.digest for child in self.children]]
        return hashlib.blake2b(json.dumps(value).encode(), digest_size=12).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, eq=False)
class StreamScan(Node):
    """The tuples of a stream in a window, or of a sample of them, for which every factor is true, with all columns of
    the stream.
    """

    stream: str
    window: Window
    factors: tuple[Factor, ...]
    relation: str
    """The scan of the bound query that this is; no part of its identity."""
    as_of: AsOf | None = None
    sample: Sample | None = None

    @property
    def content(self) -> list[Json]:
        """What its identity is made of, besides its children."""
        factors = sorted({factor.sql for factor in self.factors})
        sample = [] if self.sample is None else [{"sample": sample_to_json(self.sample)}]
        return [self.stream.lower(), window_to_json(self.window), factors, *_moment(self.as_of), *sample]


@dataclass(frozen=True, eq=False)
class TableScan(Node):
    """All rows of a table, as it stands when the answer is read, or as it stood at a moment."""

    table: str
    as_of: AsOf | None = None

    @property
    def content(self) -> list[Json]:
        """What its identity is made of, besides its children."""
        return [self.table.lower(), *_moment(self.as_of)]


@dataclass(frozen=True, eq=False)
class Values(Node):
    """Rows that the text of the query has itself."""

    rows: tuple[tuple[Scalar, ...], ...]


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """A node with one input."""

    child: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """The node whose rows it reads."""
        return (self.child,)


@dataclass(frozen=True, eq=False)
class Binary(Node):
    """A node with two inputs."""

    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes whose rows it reads."""
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """The rows for which every condition is true. One that may raise is looked at where those before it hold."""

    conditions: tuple[Scalar, ...]


@dataclass(frozen=True, eq=False)
class Project(Unary):
    """Computes columns of each row."""

    outputs: tuple[Scalar, ...]


@dataclass(frozen=True, eq=False)
class Join(Binary):
    """A join of what streams give: the pairs for which all comparisons and the condition are true, and for outer,
    semi and anti joins what these make of them.
    """

    kind: JoinKind
    comparisons: tuple[Comparison, ...]
    condition: Scalar | None

    @property
    def content(self) -> list[Json]:
        """What its identity is made of, besides its children."""
        return [self.kind.value, sorted(map(_content, self.comparisons), key=json.dumps), _content(self.condition)]


@dataclass(frozen=True, eq=False)
class RelationJoin(Join):
    """A join of which one side reads no stream: tables, or constants (UPA section 4.1). Tables are read retroactively:
    a change of one changes what was answered before.
    """


@dataclass(frozen=True, eq=False)
class GroupBy(Unary):
    """One row for each group: its keys, then its aggregates. Without keys there is one group, also of no rows."""

    keys: tuple[Scalar, ...]
    aggregates: tuple[Scalar, ...]


@dataclass(frozen=True, eq=False)
class TimeWindows(Unary):
    """Each row once for every window that its time is in, with the window as its last column; rows without a time are
    in none. Windows begin every `slide_us` from `offset_us` after 1970 on.
    """

    time: Scalar
    size_us: int
    slide_us: int
    offset_us: int


@dataclass(frozen=True, eq=False)
class Sessions(Unary):
    """Each row that has a time with its session as last column: rows with the same keys are in one while none comes
    later than `gap_us` after the one before it.
    """

    time: Scalar
    gap_us: int
    keys: tuple[Scalar, ...]


@dataclass(frozen=True, eq=False)
class Distinct(Unary):
    """Each row once."""


@dataclass(frozen=True, eq=False)
class Sort(Unary):
    """All rows, in an order."""

    keys: tuple[SortKey, ...]


@dataclass(frozen=True, eq=False)
class TopK(Unary):
    """The first `limit` rows (None: all) of an order, after `offset` of them."""

    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int


@dataclass(frozen=True, eq=False)
class Limit(Unary):
    """Any `limit` of the rows (None: all), after `offset` of them."""

    limit: int | None
    offset: int


@dataclass(frozen=True, eq=False)
class SetOperation(Binary):
    """`all` is for bags (UNION ALL), otherwise no row comes twice."""

    all: bool


@dataclass(frozen=True, eq=False)
class Union(SetOperation):
    """The rows of both inputs."""


@dataclass(frozen=True, eq=False)
class Intersect(SetOperation):
    """The rows that both inputs have."""


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
        """The nodes whose rows its text reads."""
        return self.inputs

    @property
    def content(self) -> list[Json]:
        """What its identity is made of: its text, and the names of its children's columns."""
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


def reads_streams(node: Node) -> bool:
    """Whether there is a stream among its leaves."""
    return any(isinstance(leaf, StreamScan) for leaf in leaves(node))


def scalars(node: Node) -> tuple[Scalar, ...]:
    """The expressions that a node itself evaluates: those among its parts."""
    return tuple(_scalars(node.parts))


_NOT_PARTS = ("columns", "child", "left", "right", "inputs")
"""What nodes call their columns and their children."""


def _scalars(part: object) -> Iterator[Scalar]:
    match part:
        case Scalar():
            yield part
        case SortKey():
            yield part.scalar
        case Comparison():
            yield from (part.left, part.right)
        case tuple():
            for each in part:
                yield from _scalars(each)


def _content(part: object) -> Json:
    """A part of a node as a value that JSON has."""
    match part:
        case Scalar():
            return [part.spark, [list(column) for column in part.columns]]
        case SortKey():
            return [_content(part.scalar), part.descending, part.nulls_first]
        case Comparison():
            return [_content(part.left), part.relop.value, _content(part.right)]
        case tuple():
            return [_content(each) for each in part]
        case Enum():
            return part.value
        case None | bool() | int() | str():
            return part
    raise TypeError(f"say what {type(part).__name__} is as JSON, here or in the node's content")


def _moment(as_of: AsOf | None) -> list[Json]:
    return [] if as_of is None else [as_of_to_json(as_of)]
