"""Plan trees for people: what each node is in a few words, and the tree as indented lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import singledispatch

from ladle.plan.nodes import (
    Filter,
    Fragment,
    Join,
    Limit,
    Node,
    Project,
    Sessions,
    SetOperation,
    StreamScan,
    TableScan,
    TimeWindows,
    TopK,
)
from ladle.plan.scalars import Comparison, Scalar, SortKey

_INDENT = "  "


def draw(node: Node, note: Callable[[Node], str] = lambda _: "") -> list[str]:
    """A line for each node, its children below it and further in; `note` is what else to say of each.

    What is below a node that comes again is drawn once: a query that reads another twice, which reads a third twice,
    and so on, would have more lines than anybody could read.
    """
    lines: list[str] = []
    waiting = [(node, 0)]
    drawn: set[str] = set()
    while waiting:
        each, depth = waiting.pop()
        again = bool(each.children) and each.digest in drawn
        said = f"{_INDENT * depth}{title(each)} {detail(each)}".rstrip()
        lines.append(f"{said}{note(each)}{' as above' if again else ''}")
        if not again:
            drawn.add(each.digest)
            waiting.extend((child, depth + 1) for child in reversed(each.children))
    return lines


def title(node: Node) -> str:
    """The node's name."""
    return type(node).__name__


@singledispatch
def detail(node: Node) -> str:
    """What there is to say of a node beside its name and its children: its parts, unless it says otherwise."""
    names = _names(node)
    return " | ".join(_said(each, names) for each in node.parts)


@detail.register
def _(node: StreamScan) -> str:
    factors = " AND ".join(factor.sql for factor in node.factors)
    moment = "" if node.as_of is None else f" {node.as_of}"
    sample = "" if node.sample is None else f" {node.sample}"
    return f"{node.stream}{moment}{sample} | {node.window}" + (f" | {factors}" if factors else "")


@detail.register
def _(node: TableScan) -> str:
    return node.table if node.as_of is None else f"{node.table} {node.as_of}"


@detail.register
def _(node: Filter) -> str:
    return " AND ".join(f"({each.over(_names(node))})" for each in node.conditions)


@detail.register
def _(node: Project) -> str:
    texts = [each.over(_names(node)) for each in node.outputs]
    return ", ".join(
        text if text == name else f"{text} AS {name}" for text, name in zip(texts, node.names, strict=True)
    )


@detail.register
def _(node: Join) -> str:
    names = _names(node)
    terms = [each.over(names) for each in node.comparisons]
    if node.condition is not None:
        terms.append(f"({node.condition.over(names)})")
    return f"{node.kind.value}" + (f" | {' AND '.join(terms)}" if terms else "")


@detail.register
def _(node: TimeWindows) -> str:
    every = "" if node.slide_us == node.size_us else f", every {_length(node.slide_us)}"
    offset = f", from {_length(node.offset_us)} on" if node.offset_us else ""
    return f"{node.time.over(_names(node))} | {_length(node.size_us)}{every}{offset}"


@detail.register
def _(node: Sessions) -> str:
    names = _names(node)
    keys = ", ".join(each.over(names) for each in node.keys)
    return f"{node.time.over(names)} | gap {_length(node.gap_us)}" + (f" | by {keys}" if keys else "")


@detail.register
def _(node: SetOperation) -> str:
    return "all" if node.all else "distinct"


@detail.register
def _(node: TopK) -> str:
    return f"{_said(node.keys, _names(node))}{_limit(node)}"


@detail.register
def _(node: Limit) -> str:
    return _limit(node).strip()


@detail.register
def _(node: Fragment) -> str:
    return f"{node.sql} -- {node.why}"


_LENGTHS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))


def _length(us: int) -> str:
    """Microseconds in the largest unit that there is a whole number of."""
    for unit, length in _LENGTHS:
        if us % length == 0:
            return f"{us // length} {unit}{'' if abs(us) == length else 's'}"
    return f"{us} microseconds"


def _said(part: object, names: list[list[str]]) -> str:
    """A part of a node, over the columns of its children."""
    match part:
        case Scalar() | Comparison() | SortKey():
            return part.over(names)
        case tuple():
            listed = [f"({_said(each, names)})" if isinstance(each, tuple) else _said(each, names) for each in part]
            return ", ".join(listed) or "-"
        case Enum():
            return str(part.value)
    return str(part)


def _limit(node: TopK | Limit) -> str:
    return ("" if node.limit is None else f" LIMIT {node.limit}") + (f" OFFSET {node.offset}" if node.offset else "")


def _names(node: Node) -> list[list[str]]:
    """The children's columns; of two children each says which it is of, and of two of one name the second is #2."""
    sides = ("left.", "right.") if len(node.children) == 2 else ("",) * len(node.children)
    return [_told_apart(child, side) for side, child in zip(sides, node.children, strict=True)]


def _told_apart(node: Node, side: str) -> list[str]:
    seen: Counter[str] = Counter()
    names = []
    for name in node.names:
        seen[name] += 1
        names.append(f"{side}{name}" + (f"#{seen[name]}" if seen[name] > 1 else ""))
    return names
