"""Joins in parentheses, written without them where that means the same, else as derived tables.

The first ones of FROM: `(a JOIN b ON p) JOIN c ON q` is read from left to right anyway. Later ones, where all are
inner: `a JOIN (b JOIN c ON p) ON q` is `a CROSS JOIN b JOIN c ON p AND q`. Others, beside outer joins and USING, are
`(SELECT b.x AS x, c.x AS x_1 FROM b JOIN c ON p) AS _b`, and `b.x` and `c.x` mean its columns.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from ladle.schema import unique_names
from ladle.sql.scopes import Field, Relation, Scope

_WHOLE = "ladle_whole"
"""Key in the `meta` of a derived table that has all columns of a join."""


def without_parentheses(node: exp.Select) -> None:
    """Takes joins of a SELECT out of their parentheses, in place."""
    clause = node.args.get("from_")
    if clause is None:
        return
    while (inner := _joined(clause.this)) is not None:
        joins = inner.args.get("joins") or []
        inner.set("joins", None)
        clause.set("this", inner)
        node.set("joins", [*joins, *(node.args.get("joins") or [])])
    joins = []
    for join in node.args.get("joins") or ():
        joins.extend(_flat(join))
    if joins:
        node.set("joins", joins)


def _flat(join: exp.Join) -> list[exp.Join]:
    inner = _joined(join.this)
    if inner is None:
        return [join]
    inside = inner.args.get("joins") or []
    if not inside:
        join.set("this", inner)
        return [join]
    if not all(map(_is_inner, (join, *inside))):
        return [join]
    inner.set("joins", None)
    on = join.args.get("on")
    flat = [exp.Join(this=inner, kind="CROSS"), *inside]
    if on is not None:
        last = inside[-1]
        both = on if last.args.get("on") is None else exp.and_(last.args["on"], on, copy=False)
        last.set("on", both)
        last.set("kind", None)
    return [each for part in flat for each in _flat(part)]


def _joined(node: exp.Expr) -> exp.Table | None:
    """The first relation in parentheses that have no name."""
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Table):
        return None
    others = [key for key, value in node.args.items() if value and key != "this"]
    return None if others else node.this


def _is_inner(join: exp.Join) -> bool:
    kind = (join.args.get("kind") or "").upper()
    others = any(join.args.get(key) for key in ("side", "method", "using"))
    return kind in ("", "INNER", "CROSS") and not others


def as_derived_table(node: exp.Subquery, select: exp.Select, inner: Scope, alias: str) -> list[Relation]:
    """Put a bound join, whose columns `inner` knows, into the place of its parentheses; the relations that it then is.

    With a name of its own it is one. Without, its relations keep their names, and what USING merged is one more.
    """
    name = node.alias
    every = [(relation, item) for relation in inner.relations for item in (*relation.fields, *relation.hidden)]
    merged = [] if name else list(inner.merged)
    listed = inner.star() if name else [(item.name, relation.column(item)) for relation, item in every]
    listed += [(inner.merged_names[each], inner.merged[each].copy()) for each in merged]
    columns = unique_names([named for named, _ in listed])
    select.set(
        "expressions",
        [exp.alias_(tree, column, quoted=True) for (_, tree), column in zip(listed, columns, strict=True)],
    )
    rendered = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    derived = exp.Subquery(this=select, alias=rendered)
    derived.meta[_WHOLE] = True
    node.replace(derived)
    fields = [Field(named, column) for (named, _), column in zip(listed, columns, strict=True)]
    if name:
        return [Relation(alias, ((name.lower(),),), tuple(fields))]
    plain = {id(item): field for (_, item), field in zip(every, fields, strict=False)}
    found = [_renamed(relation, alias, plain, frozenset(merged)) for relation in inner.relations]
    if merged:
        found.insert(0, Relation(alias, ((alias.lower(),),), tuple(fields[len(every) :])))
    return found


def _renamed(relation: Relation, alias: str, fields: dict[int, Field], merged: frozenset[str]) -> Relation:
    """A relation of a join, as columns of the derived table."""
    names = {item.name.lower() for item in relation.fields}
    return Relation(
        alias,
        relation.qualifiers,
        tuple(replace(fields[id(item)], plain=item.plain) for item in relation.fields),
        tuple(replace(fields[id(item)], plain=item.plain) for item in relation.hidden),
        unlisted=relation.unlisted | (merged & names),
    )


def without_unread_columns(tree: exp.Expression) -> None:
    """Leave out of joins that became derived tables what nothing reads, from the outside in."""
    for derived in tree.find_all(exp.Subquery):
        around = derived.find_ancestor(exp.Select)
        if _WHOLE not in derived.meta or around is None:
            continue
        read = {column.name for column in around.find_all(exp.Column) if column.table == derived.alias}
        every = derived.this.expressions
        derived.this.set("expressions", [each for each in every if each.alias in read] or every[:1])
