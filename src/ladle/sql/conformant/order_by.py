"""ORDER BY, LIMIT and OFFSET, rendered for DuckDB: around a SELECT block, and around what stands in parentheses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from ladle.sql.conformant.casts import is_ordered
from ladle.sql.conformant.expressions import expression, normalized
from ladle.sql.conformant.parser_names import only
from ladle.sql.conformant.scope import Columns, Subquery, TypedScope, quoted
from ladle.sql.conformant.spark_types import NotConformant, Typed, is_fraction
from ladle.sql.conformant.windows import direction


def order_by(tree: exp.Select, outputs: Sequence[tuple[str, Typed]], scope: TypedScope) -> list[str]:
    """The keys of a block with ORDER BY."""
    keys = []
    for ordered in tree.args["order"].expressions:
        node = ordered.this
        if isinstance(node, exp.Literal) and not node.is_string:
            key = outputs[ordinal(node, len(outputs))][1]
        else:
            key = expression(node, scope)
        if not is_ordered(key.type):
            raise NotConformant("ORDER BY over this type is not proven equal in DuckDB")
        sql = normalized(key).sql
        if tree.args.get("distinct") is not None:
            positions = [i for i, (_, value) in enumerate(outputs, 1) if value.sql in (sql, key.sql)]
            if not positions:
                raise NotConformant("ORDER BY of something that DISTINCT does not select")
            sql = str(positions[0])
        elif key.constant is not None:
            # A constant orders nothing, but as a number it would be a position.
            continue
        keys.append(sql + direction(ordered))
    return keys


def ties(outputs: Sequence[Typed], *, zeros: bool) -> list[str]:
    """All outputs as last keys, by their positions, where rows are limited: which of those that tie are taken must not
    depend on the order in which they are found, or an answer computed again would be another. What may raise is not
    computed for rows that are not taken. With `zeros`, what has one value may still be 0.0 or -0.0, which comes last.
    """
    kept = [(at, value) for at, value in enumerate(outputs, 1) if not value.may_raise]
    signs = [f"signbit({value.sql})" for _, value in kept if zeros and is_fraction(value.type)]
    return [str(at) for at, _ in kept] + signs


def limits_of(tree: exp.Expr) -> Iterator[str]:
    """LIMIT and OFFSET, if there are any."""
    for part, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = tree.args.get(part)
        if clause is None:
            continue
        amount = clause.args.get("expression")
        only(clause, frozenset(("expression",)))
        if not isinstance(amount, exp.Literal) or amount.is_string or not str(amount.this).isdigit():
            raise NotConformant(f"{word} of something that is not a number")
        yield f"{word} {amount.this}"


def ordered_as(tree: exp.Expr, inner: Subquery) -> Subquery:
    """ORDER BY and LIMIT around a set operation or a parenthesised query: only its own columns can be named."""
    order = tree.args.get("order")
    limits = list(limits_of(tree))
    if order is None and not limits:
        return inner
    keys = []
    for ordered in order.expressions if order is not None else ():
        at = _position(ordered.this, inner.columns)
        type_ = inner.columns[at][1]
        if not is_ordered(type_):
            raise NotConformant("ORDER BY over this type is not proven equal in DuckDB")
        keys.append(normalized(Typed(f"q.c{at}", type_)).sql + direction(ordered))
    if limits and (keys or isinstance(tree, exp.SetOperation)):
        columns = [(f"q.c{i}", type_) for i, (_, type_) in enumerate(inner.columns)]
        keys += [column for column, _ in columns]
        keys += [f"signbit({column})" for column, type_ in columns if is_fraction(type_)]
    listed = ", ".join(f"q.c{i} AS {quoted(name)}" for i, (name, _) in enumerate(inner.columns))
    names = ", ".join(f"c{i}" for i in range(len(inner.columns)))
    clauses = ([f"ORDER BY {', '.join(keys)}"] if keys else []) + limits
    return replace(inner, sql=f"SELECT {listed} FROM ({inner.sql}) AS q({names}) {' '.join(clauses)}", one_row=False)


def _position(node: exp.Expr, columns: Columns) -> int:
    if isinstance(node, exp.Literal) and not node.is_string:
        return ordinal(node, len(columns))
    if isinstance(node, exp.Column):
        for i, (name, _) in enumerate(columns):
            if name.lower() == node.name.lower():
                return i
    raise NotConformant(f"ORDER BY {node.sql(dialect='spark')} around a set operation is not proven equal in DuckDB")


def ordinal(node: exp.Literal, count: int) -> int:
    """A position in a list of so many, counted from 0."""
    text = str(node.this)
    if not text.isdigit() or not 1 <= int(text) <= count:
        raise NotConformant(f"{text} is not a position of the select list")
    return int(text) - 1
