"""What a query that groups may select: its groups and aggregates. Spark would say so too, but only when it runs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.sql.resolve import has_aggregate, is_aggregate_call
from ladle.sql.scopes import NAME, Scope
from ladle.sql.within_group import ARRAYS


def check_grouping(select: exp.Select, scope: Scope, projections: Sequence[exp.Expression]) -> None:
    """Raises for a column of FROM that is neither grouped by nor inside an aggregate."""
    group, having = select.args.get("group"), select.args.get("having")
    aggregated = any(has_aggregate(tree) for tree in projections)
    if group is None and having is None and not aggregated:
        return
    groups = _groups(group) if group is not None else set()
    own = {relation.alias.lower() for relation in scope.relations}
    for tree in [*projections, *([having.this] if having is not None else [])]:
        column = _ungrouped(tree, groups, own)
        if column is not None:
            name = column.meta.get(NAME, column.name)
            raise SqlError(
                f"Column '{name}' is neither in GROUP BY nor inside an aggregate.",
                hint=f"add it to GROUP BY, or write max({name}), any_value({name}), ...",
                position=scope.source.of(column),
            )


def check_distinct(projections: Sequence[exp.Expression], scope: Scope) -> None:
    """Refuse ordered DISTINCT texts beside another aggregate of DISTINCT values: Spark fails inside of itself."""
    every_order = (each for tree in projections for each in tree.find_all(exp.WithinGroup))
    ordered = [each for each in every_order if _is_distinct(each.this) and each.this.name.lower() not in ARRAYS]
    every = {each for tree in projections for each in tree.find_all(exp.Anonymous) if _is_distinct(each)}
    if ordered and len(every) > 1:
        raise Unsupported(
            f"{ordered[0].this.name.lower()}(DISTINCT ...) WITHIN GROUP can't stand beside another DISTINCT aggregate.",
            hint="compute one of them in a subquery",
            position=scope.source.of(ordered[0]),
        )


def _is_distinct(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and any(isinstance(each, exp.Distinct) for each in node.expressions)


def _groups(group: exp.Expression) -> set[exp.Expr]:
    """The grouping expressions, also those inside ROLLUP, CUBE and GROUPING SETS."""
    found: set[exp.Expr] = set()
    stack: list[exp.Expr] = list(group.iter_expressions())
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
            stack.extend(node.iter_expressions())
        else:
            found.add(node.unnest() if isinstance(node, exp.Paren) else node)
    return found


def _ungrouped(tree: exp.Expression, groups: set[exp.Expr], own: set[str]) -> exp.Column | None:
    stack: list[exp.Expr] = [tree]
    while stack:
        node = stack.pop()
        if node in groups or (isinstance(node, exp.Paren) and node.unnest() in groups):
            continue
        if isinstance(node, exp.Column) and node.table.lower() in own:
            return node
        if isinstance(node, exp.Window):
            # the function over a window reads what was grouped; its arguments are looked at like the rest
            stack.extend(child for child in node.iter_expressions() if child is not node.this)
            stack.extend(node.this.iter_expressions())
        elif not is_aggregate_call(node) and not isinstance(node, exp.Filter | exp.WithinGroup):
            stack.extend(node.iter_expressions())
    return None
