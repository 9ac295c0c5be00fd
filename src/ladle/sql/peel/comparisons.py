"""WHERE of inner joins: comparisons between two relations go to the join of these.

Only what can't raise is moved: it is evaluated before the conditions that stood in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ladle.plan.join import Relop
from ladle.plan.scalars import Comparison
from ladle.sql.peel.rows import INNER_JOINS, NamedRelations, NodeRows, is_rows, kind_of, labelled
from ladle.sql.peel.scalar_text import prove
from ladle.sql.split import conjuncts
from ladle.sql.trees import copied

RELOPS: dict[type[exp.Expr], Relop] = {
    exp.EQ: Relop.EQ,
    exp.LT: Relop.LT,
    exp.LTE: Relop.LE,
    exp.GT: Relop.GT,
    exp.GTE: Relop.GE,
}


def comparisons(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Move comparisons of two relations from WHERE to the inner join of these relations."""
    where, joins = query.args.get("where"), query.args.get("joins")
    if not is_rows(query) or where is None or not joins or not all(kind_of(join) in INNER_JOINS for join in joins):
        return None
    rest = copied(query)
    read = [source_rows(each, around) for each in (rest.args["from_"].this, *(j.this for j in rest.args["joins"]))]
    moved: list[list[exp.Expression]] = [[] for _ in joins]
    kept: list[exp.Expression] = []
    for conjunct in conjuncts(rest.args["where"].this):
        at = _join_of(conjunct, read)
        (kept if at is None else moved[at]).append(conjunct)
    if not any(moved):
        return None
    for join, terms in zip(rest.args["joins"], moved, strict=True):
        if terms:
            on = join.args.get("on")
            join.set("on", exp.and_(*((on,) if on is not None else ()), *terms))
            join.set("kind", None)
    rest.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)
    return around.peel(rest, around)


def source_rows(source: exp.Expression, around: NamedRelations) -> NodeRows:
    """The rows of a relation that FROM names."""
    return labelled(around.relations[source.name.lower()], source.alias_or_name)


def compared(conjunct: exp.Expression, left: NodeRows, right: NodeRows) -> list[Comparison]:
    """A conjunct as comparisons that can't raise, of one side's columns with the other's; none if it is more."""
    while isinstance(conjunct, exp.Paren):
        conjunct = conjunct.this
    found = []
    for one, relop, other in _parts(conjunct):
        if one.find(exp.Query) is not None or other.find(exp.Query) is not None:
            return []
        first, second = (_side(each, (left, right)) for each in (one, other))
        if {first, second} != {0, 1}:
            return []
        if first == 1:
            one, relop, other = other, relop.flipped, one
        lower, upper = prove(one, left, right), prove(other, left, right)
        if lower.may_raise or upper.may_raise:
            return []
        found.append(Comparison(lower.scalar, relop, upper.scalar))
    return found


def _parts(conjunct: exp.Expression) -> list[tuple[exp.Expression, Relop, exp.Expression]]:
    if isinstance(conjunct, exp.Between) and not conjunct.args.get("symmetric"):
        low, high = conjunct.args["low"], conjunct.args["high"]
        return [(conjunct.this, Relop.GE, low), (conjunct.this, Relop.LE, high)]
    relop = RELOPS.get(type(conjunct))
    return [] if relop is None else [(conjunct.this, relop, conjunct.expression)]


def _side(tree: exp.Expression, sides: Sequence[NodeRows]) -> int | None:
    """The side that all columns of an expression are of."""
    found = {
        next((at for at, rows in enumerate(sides) if column.parts[0].name.lower() in rows.aliases), None)
        for column in tree.find_all(exp.Column)
    }
    return found.pop() if len(found) == 1 else None


def _join_of(conjunct: exp.Expression, read: Sequence[NodeRows]) -> int | None:
    """The join that compares the two relations of a conjunct: the one that brings the later of them."""
    owners = {
        next((at for at, rows in enumerate(read) if column.parts[0].name.lower() in rows.aliases), -1)
        for column in conjunct.find_all(exp.Column)
    }
    if len(owners) != 2 or -1 in owners:
        return None
    first, second = sorted(owners)
    return second - 1 if compared(conjunct, read[first], read[second]) else None
