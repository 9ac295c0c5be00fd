"""IN and EXISTS as the last condition of WHERE: semi and anti joins.

`x NOT IN (query)` is true where `x = y` is false for every y, so a y for which it is NULL also keeps a row out: an anti
join on `coalesce(x = y, true)`. An EXISTS may compare with columns of the query around it, in its WHERE.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from sqlglot import exp

from ladle.plan.nodes import JoinKind
from ladle.sql.peel.comparisons import compared
from ladle.sql.peel.joining import joined
from ladle.sql.peel.rows import Around, NotUnderstood, Rows, check_from, is_rows, labelled, rows_below
from ladle.sql.resolve import has_aggregate, wrapped
from ladle.sql.split import conjuncts
from ladle.sql.trees import copied

_INNER = "inner"


def subqueries(query: exp.Expression, around: Around) -> Rows | None:
    where = query.args.get("where")
    if not is_rows(query) or where is None:
        return None
    rest = copied(query)
    left = conjuncts(rest.args["where"].this)
    last = left.pop()
    negated = isinstance(last, exp.Not)
    test = last.this if negated else last
    rest.set("where", exp.Where(this=exp.and_(*left)) if left else None)
    match test:
        case exp.In() if test.args.get("query") is not None:
            return _in(test, around.peel(rest, around), around, negated=negated)
        case exp.Exists(this=exp.Select() as inner):
            return _exists(inner, around.peel(rest, around), around, negated=negated)
    raise NotUnderstood("a subquery in an expression of WHERE")


def _in(test: exp.In, left: Rows, around: Around, *, negated: bool) -> Rows:
    inner = test.args["query"]
    if _free(inner):
        raise NotUnderstood("IN with a subquery that depends on the row")
    if test.this.find(exp.Query) is not None or isinstance(test.this, exp.Tuple):
        raise NotUnderstood("IN of more than one value")
    node = around.peel(inner, around).node
    right = labelled(node, _INNER)
    column = exp.column(exp.to_identifier(node.names[0], quoted=True), table=exp.to_identifier(_INNER, quoted=True))
    equal = exp.EQ(this=wrapped(copied(test.this)), expression=column)
    own = compared(equal, left, right)
    if not own or not _alike(own[0].left.type, own[0].right.type):
        raise NotUnderstood("IN that compares values of different types, or may raise")
    if not negated:
        return joined(JoinKind.SEMI, left, right, [equal])
    unless = exp.Anonymous(this="coalesce", expressions=[equal, exp.true()])
    return joined(JoinKind.ANTI, left, right, [unless])


def _alike(one: pa.DataType | None, other: pa.DataType | None) -> bool:
    """Whether `=` compares values of these types as IN does."""
    if one is None or other is None:
        return False
    return one == other or (pa.types.is_signed_integer(one) and pa.types.is_signed_integer(other))


def _exists(inner: exp.Select, left: Rows, around: Around, *, negated: bool) -> Rows:
    for part in ("group", "having", "limit", "offset", "with_", "laterals", "windows", "qualify"):
        if inner.args.get(part):
            raise NotUnderstood(f"EXISTS with {part.rstrip('_').upper()}")
    if any(map(has_aggregate, inner.expressions)):
        raise NotUnderstood("EXISTS with an aggregate, which is there for no rows too")
    if any(_free(each) - _aliases(inner) for each in inner.expressions):
        raise NotUnderstood("EXISTS whose SELECT list depends on the row")
    below = rows_below(inner)
    terms = conjuncts(below.args["where"].this) if below.args.get("where") is not None else []
    own = _aliases(inner)
    outer = [each for each in terms if _free(each) - own]
    plain = [each for each in terms if not _free(each) - own]
    below.set("where", exp.Where(this=exp.and_(*plain)) if plain else None)
    if _free(below) or any(each.find(exp.Query) is not None for each in outer):
        raise NotUnderstood("EXISTS that depends on the row in another place than its WHERE")
    if any(isinstance(each.this, exp.Subquery) for each in below.find_all(exp.From, exp.Join)):
        raise NotUnderstood("EXISTS over a query")
    check_from(below, around)
    kind = JoinKind.ANTI if negated else JoinKind.SEMI
    return joined(kind, left, around.peel(below, around), outer)


def _aliases(tree: exp.Expression) -> set[str]:
    return {node.alias_or_name.lower() for node in tree.find_all(exp.Table, exp.Subquery, exp.Values, exp.Lateral)}


def _free(tree: exp.Expression) -> set[str]:
    """The relations that a tree names and does not read itself."""
    named: Iterable[exp.Column] = tree.find_all(exp.Column)
    return {column.parts[0].name.lower() for column in named if len(column.parts) > 1} - _aliases(tree)
