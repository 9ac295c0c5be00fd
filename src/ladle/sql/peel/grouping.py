"""GROUP BY, aggregates and HAVING: groups of the rows below, a filter of groups, and what is computed of each.

Above the groups an expression has their keys and aggregates for columns; one that needs anything else is not peeled.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ladle.plan.nodes import Filter, GroupBy, OutputColumn
from ladle.plan.scalars import Scalar
from ladle.sql.conformant.window_structs import is_time_window
from ladle.sql.dialect import DIALECT
from ladle.sql.peel.joining import with_scalars
from ladle.sql.peel.projection import check_parts, projected
from ladle.sql.peel.rows import (
    NamedRelations,
    NodeRows,
    NotUnderstood,
    check_expressions,
    check_from,
    is_rows,
    rows_below,
)
from ladle.sql.peel.scalar_subqueries import aliases_of, taken_scalars
from ladle.sql.peel.scalar_text import scalar, unwrapped
from ladle.sql.peel.time_windows import windowed
from ladle.sql.resolve import has_aggregate, is_aggregate_call
from ladle.sql.split import conjuncts
from ladle.sql.trees import copied

_GROUPS = "groups"
_WINDOWS = ("window", "session_window")


def grouping(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take GROUP BY, HAVING and aggregates off."""
    if not isinstance(query, exp.Select) or is_rows(query) or not _is_grouped(query):
        return None
    check_parts(query, "group", "having")
    group, having = query.args.get("group"), query.args.get("having")
    if group is not None and _has_sets(group):
        raise NotUnderstood("GROUPING SETS, CUBE or ROLLUP")
    keys = [_meant(key, query) for key in (group.expressions if group is not None else ())]
    outputs = [copied(each) for each in query.expressions]
    conditions = [] if having is None else [copied(each) for each in conjuncts(having.this)]
    check_expressions(*keys)
    check_expressions(*outputs, *conditions, but_for_subqueries=True)
    if any(_reads_within(each) for tree in (*outputs, *conditions) for each in tree.find_all(exp.Expression)):
        raise NotUnderstood("a subquery inside of an aggregate")
    check_from(query, around)
    names = {*aliases_of(query), _GROUPS}
    taken, scalars = taken_scalars([*outputs, *conditions], names, around, "a subquery in an expression")
    outputs, conditions = taken[: len(outputs)], taken[len(outputs) :]
    groups = _BlockAggregates(keys, around.peel(rows_below(query), around))
    outputs, conditions = ([groups.over(each) for each in trees] for trees in (outputs, conditions))
    if groups.are_bare:
        raise NotUnderstood("HAVING without groups and aggregates")
    rows = with_scalars(groups.rows(), scalars)
    if conditions:
        filtered = Filter(rows.node.columns, rows.node, tuple(scalar(each, rows) for each in conditions))
        rows = NodeRows(filtered, rows.labels)
    return projected(outputs, rows)


class _BlockAggregates:
    """Collects the aggregates of a block, each once."""

    def __init__(self, keys: Sequence[exp.Expr], below: NodeRows) -> None:
        self._keys = list({each.sql(DIALECT): each for each in keys}.values())
        self._below = below
        self._aggregates: list[exp.Expression] = []
        self._windowed = windowed(self._keys, below)

    @property
    def are_bare(self) -> bool:
        """Whether there is nothing to know of a group but that it is there."""
        return not self._keys and not self._aggregates

    def rows(self) -> NodeRows:
        below = self._below.node if self._windowed is None else self._windowed
        keys = tuple(self._key(each) for each in self._keys)
        aggregates = tuple(scalar(each, self._below, folds=True) for each in self._aggregates)
        names = [below.names]
        columns = tuple(OutputColumn(each.over(names), each.type) for each in (*keys, *aggregates))
        node = GroupBy(columns, below, keys, aggregates)
        return NodeRows(node, tuple((_GROUPS, str(at)) for at in range(len(columns))))

    def _key(self, tree: exp.Expr) -> Scalar:
        if self._windowed is not None and is_time_window(tree):
            last = len(self._windowed.columns) - 1
            return Scalar("{0}", ((0, last),), "{0}", self._windowed.columns[last].type)
        return scalar(tree, self._below, folds=True)

    def over(self, tree: exp.Expression) -> exp.Expression:
        """An expression with the columns of groups in place of keys and aggregates."""
        holder = exp.Paren(this=tree)
        waiting: list[exp.Expression] = [tree]
        while waiting:
            node = waiting.pop()
            place = self._place(node)
            if place is not None:
                node.replace(_group_column(place))
            elif (window := self._window(node)) is not None:
                node.replace(window)
            else:
                waiting.extend(reversed(list(node.iter_expressions())))
        return holder.this

    def _place(self, node: exp.Expression) -> int | None:
        bare = unwrapped(node)
        if bare in self._keys:
            return self._keys.index(bare)
        if not _is_aggregate(node):
            return None
        call = _counting_rows(node)
        if call not in self._aggregates:
            self._aggregates.append(call)
        return len(self._keys) + self._aggregates.index(call)

    def _window(self, node: exp.Expression) -> exp.Expression | None:
        """`window.start` above groups, where the window is known by its name alone."""
        if not isinstance(node, exp.Column) or node.parts[0].name not in _WINDOWS:
            return None
        if node.parts[0].name in self._below.aliases:
            return None
        for at, key in enumerate(self._keys):
            if isinstance(key, exp.Anonymous) and key.name.lower() == node.parts[0].name:
                found: exp.Expression = _group_column(at)
                for field in node.parts[1:]:
                    found = exp.Dot(this=found, expression=field.copy())
                return found
        return None


def _group_column(at: int) -> exp.Column:
    return exp.column(exp.to_identifier(str(at), quoted=True), table=exp.to_identifier(_GROUPS, quoted=True))


def _is_grouped(query: exp.Select) -> bool:
    clauses = query.args.get("group") is not None or query.args.get("having") is not None
    return clauses or any(map(has_aggregate, query.expressions))


def _has_sets(group: exp.Group) -> bool:
    more = any(value for key, value in group.args.items() if key != "expressions")
    return more or any(
        isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple) for key in group.expressions
    )


def _is_aggregate(node: exp.Expression) -> bool:
    if isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        return _is_aggregate(node.this)
    return is_aggregate_call(node) or isinstance(node, exp.Any | exp.WithinGroup)


def _reads_within(node: exp.Expression) -> bool:
    """Whether a node is an aggregate of what a subquery gives."""
    return _is_aggregate(node) and node.find(exp.Query) is not None


def _counting_rows(call: exp.Expression) -> exp.Expression:
    """An aggregate on its own; COUNT(1) as COUNT(*)."""
    found = call.copy()
    if isinstance(found, exp.Anonymous) and found.name.lower() == "count":
        match found.expressions:
            case [exp.Literal()]:
                found.set("expressions", [exp.Star()])
    return found


def _meant(key: exp.Expr, query: exp.Select) -> exp.Expr:
    """A key; a number stands for an output."""
    if isinstance(key, exp.Literal) and not key.is_string:
        output = query.expressions[int(key.name) - 1]
        key = output.this if isinstance(output, exp.Alias) else output
    return unwrapped(key).copy()
