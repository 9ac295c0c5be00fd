"""UNPIVOT, written as a join with the names of its columns: a row for each name, with the values that it stands for.

So the relation is read once. A value is that of one column, `CASE number WHEN 0 THEN a END`, or the greatest of several
such, of which all but one are NULL: for GREATEST, as for UNPIVOT, no text becomes a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.sql.pivot import parts_of_list
from ladle.sql.position import SourceText
from ladle.sql.scopes import Relation

Bind = Callable[[exp.Expression], exp.Expression]

_HINT = "write UNPIVOT (value FOR name IN (a, b)), or UNPIVOT ((x, y) FOR name IN ((a, b), (c, d) AS cd))"


def unpivoted(
    pivot: exp.Pivot, relation: Relation, below: exp.Subquery, bind: Bind, source: SourceText
) -> tuple[exp.Select, list[str]]:
    """The query over `below`, whose columns are those of `relation`, and its columns' names; `bind` binds to them."""
    field = pivot.fields[0] if len(pivot.fields) == 1 else None
    position = source.of(field) or source.of(pivot)
    if not isinstance(field, exp.In) or not isinstance(field.this, exp.Identifier) or not field.expressions:
        raise Unsupported("UNPIVOT is FOR one name IN (columns).", hint=_HINT, position=position)
    values = [_bare(each) for item in pivot.expressions for each in parts_of_list(item)]
    if len(pivot.expressions) != 1 or not all(isinstance(each, exp.Identifier) for each in values):
        raise Unsupported("UNPIVOT names what its values are called.", hint=_HINT, position=position)
    labels, sources = [], []
    for item in field.expressions:
        parts = parts_of_list(item.this if isinstance(item, exp.PivotAlias) else item)
        if not all(isinstance(each, exp.Column) and isinstance(each.this, exp.Identifier) for each in parts):
            raise SqlError("UNPIVOT takes columns.", hint="compute them in a subquery", position=source.of(item))
        if len(parts) != len(values):
            raise SqlError(
                f"UNPIVOT names {len(values)} of its values, and here are {len(parts)} columns.",
                hint=_HINT,
                position=source.of(item),
            )
        label = item.alias if isinstance(item, exp.PivotAlias) else "_".join(each.name for each in parts)
        labels.append(label)
        sources.append([_column(each, bind, source) for each in parts])
    used = {column.name.lower() for row in sources for column in row}
    rest = [item for item in relation.fields if item.column.lower() not in used]
    outputs: list[tuple[str, exp.Expression]] = [(item.name, relation.column(item)) for item in rest]
    outputs.append((field.this.name, exp.column("name", table="_u")))
    for value, columns in zip(values, zip(*sources, strict=True), strict=True):
        outputs.append((value.name, _value(columns)))
    select = exp.Select(
        expressions=[exp.Alias(this=tree, alias=exp.to_identifier(name, quoted=True)) for name, tree in outputs],
        from_=exp.From(this=below),
        joins=[exp.Join(this=_names(labels), kind="CROSS")],
    )
    if not pivot.args.get("include_nulls"):
        select.set("where", exp.Where(this=_there(sources)))
    return select, [name for name, _ in outputs]


def _bare(node: exp.Expr) -> exp.Expr:
    """The name that a column without a qualifier is."""
    return node.this if isinstance(node, exp.Column) and len(node.parts) == 1 else node


def _column(node: exp.Expression, bind: Bind, source: SourceText) -> exp.Column:
    bound = bind(node)
    if not isinstance(bound, exp.Column):
        raise SqlError("UNPIVOT takes columns.", hint="compute them in a subquery", position=source.of(node))
    return bound


def _names(labels: Sequence[str]) -> exp.Values:
    """The names of the rows, and their numbers."""
    rows = [
        exp.Tuple(expressions=[exp.Literal.number(at), exp.Literal.string(label)]) for at, label in enumerate(labels)
    ]
    columns = [exp.to_identifier("number"), exp.to_identifier("name")]
    return exp.Values(expressions=rows, alias=exp.TableAlias(this=exp.to_identifier("_u"), columns=columns))


def _number() -> exp.Column:
    return exp.column("number", table="_u")


def _value(columns: Sequence[exp.Column]) -> exp.Expression:
    """The value of the column that a row is about."""
    cases = [
        exp.Case(this=_number(), ifs=[exp.If(this=exp.Literal.number(at), true=column.copy())])
        for at, column in enumerate(columns)
    ]
    return cases[0] if len(cases) == 1 else exp.Anonymous(this="greatest", expressions=cases)


def _there(sources: Sequence[Sequence[exp.Column]]) -> exp.Expression:
    """Whether any value of a row is not NULL."""
    ifs = [
        exp.If(
            this=exp.Literal.number(at),
            true=exp.or_(*(exp.Not(this=exp.Is(this=each.copy(), expression=exp.Null())) for each in row), copy=False),
        )
        for at, row in enumerate(sources)
    ]
    return exp.Case(this=_number(), ifs=ifs)
