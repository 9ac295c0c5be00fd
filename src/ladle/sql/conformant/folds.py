"""The aggregates that a query computes itself."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from ladle.sql.conformant.parser_names import call_of
from ladle.sql.conformant.the_list import BY_NAME


def outputs_of(tree: exp.Select) -> Iterator[exp.Expr]:
    """What a SELECT computes of its rows: its list, and what it orders by."""
    yield from tree.expressions
    if tree.args.get("order") is not None:
        yield from tree.args["order"].expressions


def has_fold(node: exp.Expr) -> bool:
    """Whether an expression computes an aggregate itself."""
    return any(True for _ in _folds(node))


def _folds(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of this query itself: not those of subqueries or OVER."""
    for each in node.walk(prune=lambda n: isinstance(n, exp.Query | exp.Window)):
        if isinstance(each, exp.Window):
            for part in _computed_of(each):
                yield from _folds(part)
        pattern = isinstance(each, exp.Any) and isinstance(each.parent, exp.Like | exp.ILike)
        if isinstance(each, exp.Query | exp.Window) or pattern:
            continue
        called = call_of(each) if isinstance(each, exp.Anonymous | exp.Any) else None
        entries = BY_NAME.get(called.name) if called is not None else None
        if isinstance(each, exp.AggFunc | exp.WithinGroup) or (entries is not None and entries[0].aggregate):
            yield each


def _computed_of(window: exp.Window) -> Iterator[exp.Expr]:
    """What is over a window is no aggregate of the query itself; its arguments, and what is in OVER, may have some."""
    for inner in window.iter_expressions():
        if inner is not window.this:
            yield inner
            continue
        while isinstance(inner, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
            if inner.args.get("expression") is not None:
                yield inner.expression
            inner = inner.this
        yield from inner.iter_expressions()
