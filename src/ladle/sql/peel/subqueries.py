"""IN, EXISTS and scalar subqueries in the last condition of WHERE: semi and anti joins.

`x NOT IN (query)` is true where `x = y` is false for every y, so a y for which it is NULL also keeps a row out: an anti
join on `coalesce(x = y, true)`. Several values are compared together. A subquery may compare with columns of the query
around it, in its WHERE. An aggregate over all rows is one row, with which all others are compared.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from ladle.plan.nodes import JoinKind
from ladle.sql.peel.comparisons import compared
from ladle.sql.peel.derived_tables import by_name
from ladle.sql.peel.joining import joined, with_scalars
from ladle.sql.peel.rows import (
    NamedRelations,
    NodeRows,
    NotUnderstood,
    check_from,
    fresh,
    is_rows,
    labelled,
    rows_below,
    sources,
)
from ladle.sql.peel.scalar_subqueries import INNER, aliases_of, column, free, taken_scalars
from ladle.sql.resolve import has_aggregate, wrapped
from ladle.sql.split import conjuncts
from ladle.sql.trees import copied


def subqueries(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take a subquery in the last condition of WHERE off, as a semi or anti join."""
    where = query.args.get("where")
    if not isinstance(query, exp.Select) or not is_rows(query) or where is None:
        return None
    rest = copied(query)
    left = conjuncts(rest.args["where"].this)
    last = left.pop()
    test, negated = _tested(last)
    rest.set("where", exp.Where(this=exp.and_(*left)) if left else None)
    match test:
        case exp.In() if test.args.get("query") is not None:
            return _in(test, around.peel(rest, around), around, negated=negated)
        case exp.Exists(this=exp.Select() as inner):
            return _exists(inner, around.peel(rest, around), around, negated=negated)
    taken = aliases_of(query)
    (condition,), found = taken_scalars([last], taken, around, "a subquery in an expression of WHERE")
    if not found:
        raise NotUnderstood("a condition of WHERE")
    return joined(JoinKind.SEMI, around.peel(rest, around), with_scalars(found[0], found[1:]), [condition])


def _tested(condition: exp.Expression) -> tuple[exp.Expression, bool]:
    """What a condition tests, and whether it is to be false."""
    negated = False
    while isinstance(condition, exp.Not | exp.Paren):
        negated ^= isinstance(condition, exp.Not)
        condition = condition.this
    return condition, negated


def _in(test: exp.In, left: NodeRows, around: NamedRelations, *, negated: bool) -> NodeRows:
    if test.this.find(exp.Query) is not None:
        raise NotUnderstood("IN of the value of a subquery")
    inner = test.args["query"].unnest()
    values = test.this.expressions if isinstance(test.this, exp.Tuple) else [test.this]
    outer: list[exp.Expression] = []
    if free(inner):
        if not isinstance(inner, exp.Select):
            raise NotUnderstood("IN with a set operation that depends on the row")
        right, outer = _read(inner, around, "IN")
        columns = [copied(each.unalias()) for each in inner.expressions]
    else:
        alias = fresh(INNER, left.aliases)
        right = labelled(around.peel(inner, around).node, alias)
        columns = [column(name, alias) for name in right.node.names]
    equal = [
        exp.EQ(this=wrapped(copied(value)), expression=wrapped(each))
        for value, each in zip(values, columns, strict=True)
    ]
    for each in equal:
        own = compared(each, left, right)
        if not own or not _alike(own[0].left.type, own[0].right.type):
            raise NotUnderstood("IN that compares values of different types, or may raise")
    if not negated:
        return joined(JoinKind.SEMI, left, right, [*outer, *equal])
    unless = exp.Anonymous(this="coalesce", expressions=[exp.and_(*equal), exp.true()])
    return joined(JoinKind.ANTI, left, right, [*outer, unless])


def _alike(one: pa.DataType | None, other: pa.DataType | None) -> bool:
    """Whether `=` compares values of these types as IN does."""
    if one is None or other is None:
        return False
    return one == other or (pa.types.is_signed_integer(one) and pa.types.is_signed_integer(other))


def _exists(inner: exp.Select, left: NodeRows, around: NamedRelations, *, negated: bool) -> NodeRows:
    right, outer = _read(inner, around, "EXISTS")
    return joined(JoinKind.ANTI if negated else JoinKind.SEMI, left, right, outer)


def _read(inner: exp.Select, around: NamedRelations, what: str) -> tuple[NodeRows, list[exp.Expression]]:
    """The rows that a subquery reads, and the conditions on them that depend on the row around."""
    if any(free(each) for each in sources(inner)):
        raise NotUnderstood(f"{what} over a query that depends on the row")
    inner, around = by_name(inner, around)
    for part in ("group", "having", "limit", "offset", "with_", "laterals", "windows", "qualify"):
        if inner.args.get(part):
            raise NotUnderstood(f"{what} with {part.rstrip('_').upper()}")
    if any(map(has_aggregate, inner.expressions)):
        raise NotUnderstood(f"{what} with an aggregate, which is there for no rows too")
    if any(free(each) - aliases_of(inner) for each in inner.expressions):
        raise NotUnderstood(f"{what} whose SELECT list depends on the row")
    below = rows_below(inner)
    terms = conjuncts(below.args["where"].this) if below.args.get("where") is not None else []
    own = aliases_of(inner)
    outer = [each for each in terms if free(each) - own]
    plain = [each for each in terms if not free(each) - own]
    below.set("where", exp.Where(this=exp.and_(*plain)) if plain else None)
    if free(below) or any(each.find(exp.Query) is not None for each in outer):
        raise NotUnderstood(f"{what} that depends on the row in another place than its WHERE")
    check_from(below, around)
    return around.peel(below, around), outer
