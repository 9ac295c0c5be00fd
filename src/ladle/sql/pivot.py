"""PIVOT, written as GROUP BY: every aggregate once for each value, over the rows that have it.

What neither an aggregate nor FOR names is grouped by. Where a group has no row with a value, its column is NULL, as in
Spark, also for counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.sql.position import SourceText
from ladle.sql.resolve import is_aggregate_call
from ladle.sql.scopes import Relation

Bind = Callable[[exp.Expression], exp.Expression]

_HINT = "write FOR column IN ('a', 'b'), or FOR (x, y) IN (('a', 1), ('b', 2) AS b)"


def pivoted(
    pivot: exp.Pivot, relation: Relation, below: exp.Subquery, bind: Bind, source: SourceText
) -> tuple[exp.Select, list[str]]:
    """The query over `below`, whose columns are those of `relation`, and its columns' names; `bind` binds to them."""
    position = source.of(pivot)
    field = pivot.fields[0] if len(pivot.fields) == 1 else None
    named_columns = parts_of_list(field.this) if isinstance(field, exp.In) else []
    if not isinstance(field, exp.In) or not all(isinstance(each, exp.Column) for each in named_columns):
        raise Unsupported("PIVOT is FOR columns IN (values).", hint=_HINT, position=position)
    if not named_columns or not field.expressions:
        raise SqlError("PIVOT takes a value at least.", hint=_HINT, position=position)
    columns = [bind(each) for each in named_columns]
    values = [_values(each, columns, source) for each in field.expressions]
    folds: list[tuple[str, exp.Expression]] = []
    for each in pivot.expressions:
        named = each.alias if isinstance(each, exp.Alias) else each.sql(dialect="spark").lower()
        folds.append((named, bind(each.this if isinstance(each, exp.Alias) else each)))
    for _, fold in folds:
        if not any(is_aggregate_call(node) for node in fold.walk()):
            raise SqlError("PIVOT takes aggregates, like sum(x).", position=position)
    used = {
        node.name.lower() for tree in (*columns, *(fold for _, fold in folds)) for node in tree.find_all(exp.Column)
    }
    rest = [item for item in relation.fields if item.column.lower() not in used]
    outputs: list[tuple[str, exp.Expression]] = [(item.name, relation.column(item)) for item in rest]
    for name, constants in values:
        for fold_name, fold in folds:
            each_same = (exp.NullSafeEQ(this=a.copy(), expression=b) for a, b in zip(columns, constants, strict=True))
            same = exp.and_(*each_same, copy=False)
            outputs.append((name if len(folds) == 1 else f"{name}_{fold_name}", _where(fold, same)))
    keys = [relation.column(item) for item in rest]
    select = exp.Select(
        expressions=[exp.Alias(this=tree, alias=exp.to_identifier(name, quoted=True)) for name, tree in outputs],
        from_=exp.From(this=below),
        group=exp.Group(expressions=keys) if keys else None,
    )
    return select, [name for name, _ in outputs]


def parts_of_list(node: exp.Expr) -> list[exp.Expression]:
    """What stands in parentheses, or the one without."""
    if isinstance(node, exp.Paren):
        return parts_of_list(node.this)
    parts = node.expressions if isinstance(node, exp.Tuple) else [node]
    return [each for each in parts if isinstance(each, exp.Expression)]


def _values(node: exp.Expr, columns: Sequence[exp.Expr], source: SourceText) -> tuple[str, list[exp.Expr]]:
    """The name of the columns that a value becomes, and what it is in each of the columns that PIVOT is for."""
    named = isinstance(node, exp.PivotAlias | exp.Alias)
    constants = parts_of_list(node.this if named else node)
    if len(constants) != len(columns) or not all(map(_is_constant, constants)):
        raise Unsupported("PIVOT takes one constant for each of its columns.", hint=_HINT, position=source.of(node))
    words = [each.name if isinstance(each, exp.Literal) else each.sql(dialect="spark").lower() for each in constants]
    name = words[0] if len(words) == 1 else f"{{{', '.join(words)}}}"
    return node.args["alias"].name if named else name, [each.copy() for each in constants]


def _is_constant(node: exp.Expr) -> bool:
    negative = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)
    return negative or isinstance(node, exp.Literal | exp.Boolean | exp.Null)


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
