"""PIVOT, written as GROUP BY: every aggregate once for each value, over the rows that have it.

What neither an aggregate nor FOR names is grouped by. Where a group has no row with a value, its column is NULL, as in
Spark, also for counts.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.sql.position import SourceText
from ladle.sql.resolve import is_aggregate_call
from ladle.sql.scopes import Relation

Bind = Callable[[exp.Expression], exp.Expression]


def pivoted(
    pivot: exp.Pivot, relation: Relation, below: exp.Subquery, bind: Bind, source: SourceText
) -> tuple[exp.Select, list[str]]:
    """The query over `below`, whose columns are those of `relation`, and its columns' names; `bind` binds to them."""
    position = source.of(pivot)
    field = pivot.fields[0] if len(pivot.fields) == 1 else None
    if not isinstance(field, exp.In) or not isinstance(field.this, exp.Column) or not field.expressions:
        raise Unsupported(
            "PIVOT is FOR one column IN (values).", hint="write FOR column IN ('a', 'b')", position=position
        )
    values = [_value(each, source) for each in field.expressions]
    column = bind(field.this)
    folds: list[tuple[str, exp.Expression]] = []
    for each in pivot.expressions:
        named = each.alias if isinstance(each, exp.Alias) else each.sql(dialect="spark").lower()
        folds.append((named, bind(each.this if isinstance(each, exp.Alias) else each)))
    for _, fold in folds:
        if not any(is_aggregate_call(node) for node in fold.walk()):
            raise SqlError("PIVOT takes aggregates, like sum(x).", position=position)
    used = {node.name.lower() for tree in (column, *(fold for _, fold in folds)) for node in tree.find_all(exp.Column)}
    rest = [item for item in relation.fields if item.column.lower() not in used]
    outputs: list[tuple[str, exp.Expression]] = [(item.name, relation.column(item)) for item in rest]
    for name, value in values:
        for fold_name, fold in folds:
            same = exp.NullSafeEQ(this=column.copy(), expression=value)
            outputs.append((name if len(folds) == 1 else f"{name}_{fold_name}", _where(fold, same)))
    keys = [relation.column(item) for item in rest]
    select = exp.Select(
        expressions=[exp.Alias(this=tree, alias=exp.to_identifier(name, quoted=True)) for name, tree in outputs],
        from_=exp.From(this=below),
        group=exp.Group(expressions=keys) if keys else None,
    )
    return select, [name for name, _ in outputs]


def _value(node: exp.Expr, source: SourceText) -> tuple[str, exp.Expr]:
    """The name of a value's columns, and the value."""
    value = node.this if isinstance(node, exp.PivotAlias | exp.Alias) else node
    negative = isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal)
    if not negative and not isinstance(value, exp.Literal | exp.Boolean | exp.Null):
        raise Unsupported(
            "PIVOT takes one constant for each of its columns.",
            hint="write FOR column IN ('a', 'b')",
            position=source.of(node),
        )
    if isinstance(node, exp.PivotAlias | exp.Alias):
        alias = node.args["alias"]
        return alias.name, value.copy()
    return (value.name if isinstance(value, exp.Literal) else value.sql(dialect="spark").lower()), value.copy()


def _where(fold: exp.Expr, condition: exp.Expr) -> exp.Expression:
    """An expression of aggregates over the rows that satisfy a condition; NULL if there are none."""

    def filtered(call: exp.Expr) -> exp.Expr:
        return exp.Filter(this=call, expression=exp.Where(this=condition.copy()))

    copy = exp.Paren(this=fold.copy())
    for call in [node for node in copy.walk() if is_aggregate_call(node)]:
        if isinstance(call.parent, exp.Filter | exp.WithinGroup):
            raise Unsupported("FILTER and WITHIN GROUP are not part of PIVOT.", hint="write them with GROUP BY")
        holder = exp.Placeholder()
        call.replace(holder)
        holder.replace(filtered(call))
    some = filtered(exp.Anonymous(this="count", expressions=[exp.Star()]))
    there = exp.GT(this=some, expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=there, true=copy.this)])
