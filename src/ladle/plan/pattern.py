"""Update patterns (UPA section 5.2): in which order, and how predictably, rows leave what a node gives.

The paper's five rules label every edge of a plan from its leaves up. Beside the pattern a label says whether rows may
be *premature*: leave before the end of their lifetime. The two differ above a group-by: rule 4 calls its output WEAK,
because a new value replaces the old one by key, but a HAVING, a join or a TopK above it sees the old value go.

The paper leaves out monotonic queries, late tuples, windows of unequal length, outer joins and orders; what is said of
them here is in the functions below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import singledispatch

from ladle.plan.nodes import (
    Distinct,
    Except,
    Filter,
    Fragment,
    GroupBy,
    Intersect,
    Join,
    JoinKind,
    Limit,
    Node,
    Project,
    RelationJoin,
    Sessions,
    Sort,
    StreamScan,
    TableScan,
    TimeWindows,
    TopK,
    Union,
    Values,
    reads_streams,
    scalars,
)
from ladle.plan.window import KeyedRowsWindow, RowsWindow, WindowKind


class Pattern(IntEnum):
    """Each is harder to maintain than those before it: `max` merges them."""

    MONOTONIC = 0
    """Rows never leave."""
    WEAKEST = 1
    """Rows leave in the order in which they came."""
    WEAK = 2
    """Rows leave in another order, at times that are known when they come."""
    STRICT = 3
    """Some rows leave at times that nobody knows before."""


@dataclass(frozen=True)
class StreamFacts:
    """What labels depend on beside the plan. Names are in lower case."""

    late: frozenset[str] = frozenset()
    """Streams that took in tuples older than some that they had."""
    retain_us: Mapping[str, int] = field(default_factory=dict)
    """For how long streams with RETAIN keep a tuple."""


@dataclass(frozen=True)
class Label:
    """What is known of how rows leave what a node gives."""

    pattern: Pattern
    premature: bool = False
    lifetime: tuple[object, ...] | None = None
    """How long rows live, if all of them live equally long; a union of equal ones stays WEAKEST."""

    def __str__(self) -> str:
        return self.pattern.name.lower() + (", premature" if self.premature else "")


_STRICT = Label(Pattern.STRICT, premature=True)
_NEVER_LEAVES = Label(Pattern.MONOTONIC)


def labels(tree: Node, facts: StreamFacts) -> dict[str, Label]:
    """The label of each node of a tree, by its digest."""
    found: dict[str, Label] = {}
    _collect(tree, facts, found)
    return found


def _collect(node: Node, facts: StreamFacts, found: dict[str, Label]) -> Label:
    if node.digest in found:
        return found[node.digest]
    below = tuple(_collect(child, facts, found) for child in node.children)
    label = label_of(node, below, facts)
    if any(scalar.uses_now for scalar in scalars(node)) and not isinstance(node, GroupBy):
        # What is computed of NOW changes with every moment, without a tuple that comes or leaves.
        label = _STRICT
    found[node.digest] = label
    return label


@singledispatch
def label_of(node: Node, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """The label of a node whose children have these."""
    raise TypeError(f"no rule labels {type(node).__name__}")


@label_of.register
def _(node: StreamScan, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """A window is WEAKEST while `ts` ascends. What has no end is MONOTONIC, unless the stream forgets; and so is what
    is read as of an entry, or at a NOW that stands still.
    """
    if node.as_of is not None and node.as_of.entry is not None:
        return _NEVER_LEAVES
    stream, window = node.stream.lower(), node.window
    if isinstance(window, KeyedRowsWindow):
        return Label(Pattern.STRICT)  # first in first out per key: when, nobody knows before
    retain_us = facts.retain_us.get(stream)
    by_arrival = isinstance(window, RowsWindow)
    slides = window.kind is WindowKind.SLIDING and node.as_of is None
    if not by_arrival and not slides and retain_us is None:
        return _NEVER_LEAVES
    if stream in facts.late and not (by_arrival and retain_us is None):
        return Label(Pattern.WEAK)
    # The n-th arrival after it ends the life of a tuple of [ROWS n]: those of another stream count differently.
    return Label(Pattern.WEAKEST, lifetime=(window, retain_us, stream if by_arrival else None))


@label_of.register
def _(node: TableScan, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """A table that is read retroactively changes when somebody changes it; as of an entry it does not."""
    return _STRICT if node.as_of is None or node.as_of.entry is None else _NEVER_LEAVES


@label_of.register
def _(node: Values, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """Constants stay what they are."""
    return _NEVER_LEAVES


@label_of.register(Filter)
@label_of.register(Project)
@label_of.register(Sort)
@label_of.register(TimeWindows)
def _(node: Node, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """Rule 1: unary operators without state give what they get."""
    return below[0]


@label_of.register
def _(node: Union, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """Rule 2; of lifetimes that differ, a row that came later may leave sooner. UNION DISTINCT also follows rule 3."""
    left, right = below
    merged = max(left.pattern, right.pattern)
    if merged is Pattern.WEAKEST and left.lifetime != right.lifetime:
        merged = Pattern.WEAK
    label = Label(merged, left.premature or right.premature, left.lifetime if merged is Pattern.WEAKEST else None)
    return label if node.all else _weak((label,))


@label_of.register(Distinct)
@label_of.register(Intersect)
def _(node: Node, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    return _weak(below)


@label_of.register
def _(node: Join, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """Rule 3 for inner and semi joins, rule 5 for anti joins. A row that an outer join fills up with NULLs goes when a
    partner comes, so outer joins are STRICT too.
    """
    return _weak(below) if node.kind in (JoinKind.INNER, JoinKind.SEMI) else _STRICT


@label_of.register
def _(node: GroupBy, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """Rule 4: always WEAK; the values that are replaced are premature."""
    return Label(Pattern.WEAK, premature=True)


@label_of.register
def _(node: RelationJoin, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """Rule 5: a table is read retroactively. What one as of an entry makes of a row is decided when that comes, and
    goes with it: rule 1, as for tables that are not retroactive.
    """
    left, right = below
    if node.kind is JoinKind.INNER and _is_fixed(node.left, left):
        return right
    if node.kind not in (JoinKind.RIGHT, JoinKind.FULL) and _is_fixed(node.right, right):
        return left
    return _STRICT


@label_of.register
def _(node: Except, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """Rule 5: negation."""
    return _STRICT


@label_of.register
def _(node: Sessions, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """A row that comes makes the sessions of others longer."""
    return _STRICT


@label_of.register(TopK)
@label_of.register(Limit)
def _(node: Node, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """A row goes when a better one comes."""
    return _STRICT


@label_of.register
def _(node: Fragment, below: tuple[Label, ...], facts: StreamFacts) -> Label:
    """Nothing is known of any SQL, but that constants stay what they are."""
    return _STRICT if node.children or node.uses_now else _NEVER_LEAVES


def _is_fixed(node: Node, label: Label) -> bool:
    """Whether these are rows of no stream, and always the same."""
    return label == _NEVER_LEAVES and not reads_streams(node)


def _weak(below: tuple[Label, ...]) -> Label:
    """Rule 3. Over inputs that never lose a row these operators never lose one either (UPA section 3.1)."""
    merged = max(label.pattern for label in below)
    if merged is not Pattern.MONOTONIC:
        merged = max(merged, Pattern.WEAK)
    return Label(merged, any(label.premature for label in below))
