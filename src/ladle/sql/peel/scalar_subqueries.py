"""Scalar subqueries that give one row whatever they read: aggregates over all rows. It is joined with all other rows.

One that depends on the row around it gives another value for each, and is not peeled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlglot import exp

from ladle.sql.peel.rows import NamedRelations, NodeRows, NotUnderstood, fresh, labelled, sources
from ladle.sql.resolve import has_aggregate
from ladle.sql.trees import copied

INNER = "inner"
"""What the rows of a subquery are called, unless a relation around it is called that."""


def taken_scalars(
    trees: Sequence[exp.Expression], taken: Collection[str], around: NamedRelations, otherwise: str
) -> tuple[list[exp.Expression], list[NodeRows]]:
    """Expressions with columns in place of their scalar subqueries, and the one row that each of these gives.

    The names of relations that are `taken` are not used again; `otherwise` says what another subquery is.
    """
    names = set(taken)
    found: list[NodeRows] = []
    done = []
    for tree in trees:
        holder = exp.Paren(this=copied(tree))
        while (query := holder.find(exp.Query)) is not None:
            inner = _one_row(query)
            if inner is None:
                raise NotUnderstood(otherwise)
            if free(inner):
                raise NotUnderstood("a scalar subquery that depends on the row")
            alias = fresh(INNER, names)
            names.add(alias)
            found.append(labelled(around.peel(inner, around).node, alias))
            query.replace(column(found[-1].node.names[0], alias))
        done.append(holder.this)
    return done, found


def _one_row(found: exp.Query) -> exp.Select | None:
    """A scalar subquery that gives one row, whatever it reads: an aggregate over all rows."""
    inner = found.unnest()
    if not isinstance(found, exp.Subquery) or isinstance(found.parent, exp.In | exp.Exists):
        return None
    more = ("group", "having", "limit", "offset", "with_", "qualify")
    if not isinstance(inner, exp.Select) or any(inner.args.get(part) for part in more):
        return None
    return inner if all(map(has_aggregate, inner.expressions)) else None


def column(name: str, alias: str) -> exp.Column:
    """A column of a relation that has this alias."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def free(tree: exp.Expression) -> set[str]:
    """The relations that a tree names and does not read itself, where it names them."""
    named: Iterable[exp.Column] = tree.find_all(exp.Column)
    return {each.parts[0].name.lower() for each in named if len(each.parts) > 1 and not _is_bound(each, within=tree)}


def _is_bound(named: exp.Column, *, within: exp.Expression) -> bool:
    """Whether a SELECT around a column reads the relation that it names. A query in FROM does not see those beside it:
    one that is made of another's text may have the same names.
    """
    name, node, apart = named.parts[0].name.lower(), named.parent, False
    while node is not None:
        if isinstance(node, exp.Select):
            if not apart and name in aliases_of(node):
                return True
            apart = False
        if node is within:
            return False
        apart |= isinstance(node, exp.CTE) or (
            isinstance(node, exp.Subquery) and node.arg_key == "this" and isinstance(node.parent, exp.From | exp.Join)
        )
        node = node.parent
    return False


def aliases_of(select: exp.Select) -> set[str]:
    """The relations that a SELECT reads."""
    read = [*sources(select), *select.args.get("laterals", ())]
    return {each.alias_or_name.lower() for each in read}
