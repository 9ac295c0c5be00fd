"""ROLLUP, CUBE and GROUPING SETS: which keys a GROUP BY names, and its text for DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from ladle.sql.conformant.spark_types import NotConformant

SOME_ROW = "count(*) > 0"
"""Of no rows at all Spark makes no group, not even the one without keys."""

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


def has_sets(group: exp.Group | None) -> bool:
    """Whether GROUP BY has ROLLUP, CUBE or GROUPING SETS."""
    return group is not None and any(isinstance(each, _SETS) for each in group.expressions)


def keys_of(group: exp.Group) -> Iterator[exp.Expr]:
    """The keys, in the order of the text; one that is in several sets comes more than once."""
    for each in group.expressions:
        if isinstance(each, _SETS):
            for part in each.expressions:
                yield from _members(part)
        else:
            yield each


def grouped_by(group: exp.Group | None, keys: Sequence[str]) -> str:
    """The text after GROUP BY, of the rendered keys."""
    assert group is not None
    left = list(keys)

    def taken(count: int) -> str:
        part = ", ".join(left[:count])
        del left[:count]
        return part

    parts = []
    for each in group.expressions:
        if not isinstance(each, _SETS):
            parts.append(taken(1))
            continue
        word = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}[type(each)]
        inside = ", ".join(f"({taken(len(_members(part)))})" for part in each.expressions)
        parts.append(f"{word} ({inside})")
    return ", ".join(parts)


def _members(node: exp.Expr) -> list[exp.Expr]:
    """What is grouped by together: `(a, b)`, `(a)`, `()` or a single key."""
    if isinstance(node, _SETS):
        raise NotConformant("sets of groups inside of each other")
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this if isinstance(node, exp.Paren) else node]
