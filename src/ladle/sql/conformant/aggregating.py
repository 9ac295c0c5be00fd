"""Calls of aggregates: of groups, over windows, DISTINCT, with FILTER, and of values in an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from ladle.sql.conformant.casts import is_ordered, literal
from ladle.sql.conformant.expressions import condition, expression, name_of, normalized
from ladle.sql.conformant.parser_names import Call, call_of
from ladle.sql.conformant.scope import TypedScope
from ladle.sql.conformant.signatures import call
from ladle.sql.conformant.spark_types import BIGINT, STRING, NotConformant, Typed, is_fraction
from ladle.sql.conformant.the_list import BY_NAME
from ladle.sql.conformant.windows import direction
from ladle.sql.within_group import ARRAYS, FIRSTS, ORDERED, TEXTS

_WITH_CONSTANTS = frozenset(("listagg", "percentile"))
"""Aggregates whose arguments after the first are constants."""


def aggregate(
    called: Call,
    scope: TypedScope,
    *,
    tail: str = "",
    filter_: exp.Expr | None = None,
    order: Sequence[exp.Ordered] = (),
) -> Typed:
    """An aggregate of groups, or with `tail` (OVER) of a window; of rows, or where a window is over groups, of them."""
    if scope.keys is None and not tail:
        raise NotConformant(f"{called.name} outside a grouped query")
    rows = replace(scope, windows=False) if tail else replace(scope, keys=None, aliases={}, windows=False)
    entries = BY_NAME[called.name]
    if tail and not entries[0].over:
        raise NotConformant(f"{called.name} OVER is not proven equal in DuckDB")
    where = condition(filter_, rows) if filter_ is not None else None
    if called.star:
        sql = "count(*)" + (f" FILTER (WHERE {where.sql})" if where else "") + tail
        return Typed(sql, BIGINT, bool(where and where.may_raise))
    arguments = [expression(each, rows) for each in called.arguments]
    if called.distinct:
        if not entries[0].distinct or tail or any(not is_ordered(each.type) for each in arguments):
            raise NotConformant(f"{called.name}(DISTINCT) here is not proven equal in DuckDB")
        arguments = [normalized(each) for each in arguments]
    if where is not None:
        if called.name in ("max_by", "min_by") and len(arguments) > 2:
            raise NotConformant("FILTER beside an order by several keys")
        # Only rows that pass may be evaluated (they could raise), so the condition is part of the argument.
        arguments = [
            a
            if at and called.name in _WITH_CONSTANTS
            else Typed(f"(CASE WHEN {where.sql} THEN {a.sql} END)", a.type, a.may_raise or where.may_raise)
            for at, a in enumerate(arguments)
        ]
    if called.name == "listagg":
        arguments = _ordered_texts(arguments, order, rows, distinct=called.distinct)
        if where is not None and any(each.may_raise for each in arguments[1:]):
            raise NotConformant("FILTER on an order that may raise")
    for entry in entries:
        if entry.matches(arguments):
            return entry.render(arguments, distinct="DISTINCT " if called.distinct else "", tail=tail)
    return call((), called.name, arguments)


def _ordered_texts(
    arguments: list[Typed], order: Sequence[exp.Ordered], rows: TypedScope, *, distinct: bool
) -> list[Typed]:
    """Text, delimiter, and the keys of the order with their directions. Without an order it is that of the texts."""
    if not 1 <= len(arguments) <= 2 or arguments[0].type != STRING:
        raise NotConformant("listagg of this form is not proven equal in DuckDB")
    if len(arguments) == 1:
        arguments = [*arguments, literal("", STRING)]
    keys = []
    for each in order:
        key = normalized(expression(each.this, rows))
        if not is_ordered(key.type) or key.constant is not None or (distinct and key.sql != arguments[0].sql):
            raise NotConformant("listagg in this order is not proven equal in DuckDB")
        keys.append(Typed(key.sql + direction(each), STRING, key.may_raise))
    return [*arguments, *(keys if not distinct else keys[:1])]


def filtered_aggregate(node: exp.Filter, scope: TypedScope) -> Typed:
    """An aggregate with FILTER, typed and written for DuckDB."""
    if isinstance(node.this, exp.WithinGroup):
        return within_group(node.this, scope, filter_=node.expression.this)
    called = call_of(node.this)
    entries = BY_NAME.get(called.name) if called is not None else None
    if called is None or entries is None or not entries[0].aggregate:
        raise NotConformant(f"FILTER on {node.this.sql(dialect='spark')[:40]} is not proven equal in DuckDB")
    return aggregate(called, scope, filter_=node.expression.this)


def within_group(node: exp.WithinGroup, scope: TypedScope, *, filter_: exp.Expr | None = None) -> Typed:
    """An aggregate of ordered values: listagg, and percentile_cont."""
    called = call_of(node.this)
    order = node.expression
    if called is None or not isinstance(order, exp.Order) or called.star:
        raise NotConformant(f"{name_of(node)} is not proven equal in DuckDB")
    if called.name == "listagg":
        return aggregate(called, scope, filter_=filter_, order=tuple(order.expressions))
    if called.name == "percentile" and len(called.arguments) == 1 and len(order.expressions) == 1:
        key, share = order.expressions[0], called.arguments[0]
        if key.args.get("desc"):
            raise NotConformant("percentile_cont of a descending order")
        return aggregate(Call("percentile", (key.this, share)), scope, filter_=filter_)
    if called.name in ORDERED - TEXTS:
        return _ordered(called, scope, order.expressions, filter_)
    raise NotConformant(f"{called.name} WITHIN GROUP is not proven equal in DuckDB")


def _ordered(called: Call, scope: TypedScope, order: Sequence[exp.Ordered], filter_: exp.Expr | None) -> Typed:
    """An array of values in an order, or the first or last of them. Values whose keys tie are in their own order."""
    if scope.keys is None:
        raise NotConformant(f"{called.name} outside a grouped query")
    rows = replace(scope, keys=None, aliases={}, windows=False)
    node = called.arguments[0]
    skips = called.name in ARRAYS or isinstance(node, exp.IgnoreNulls)
    value = expression(node.this if isinstance(node, exp.IgnoreNulls) else node, rows)
    keys = [normalized(expression(each.this, rows)) for each in order]
    if any(not is_ordered(each.type) or each.constant is not None for each in (value, *keys)):
        raise NotConformant(f"{called.name} in this order is not proven equal in DuckDB")
    raises = any(each.may_raise for each in (value, *keys))
    kept = []
    if called.distinct:
        value = normalized(value)
    if filter_ is not None:
        where = condition(filter_, rows)
        if any(each.may_raise for each in keys):
            raise NotConformant("FILTER on an order that may raise")
        # Only rows that pass may be evaluated (they could raise), so the condition is part of the value too.
        value = replace(value, sql=f"(CASE WHEN {where.sql} THEN {value.sql} END)")
        raises |= where.may_raise
        kept.append(where.sql)
    kept += [f"{value.sql} IS NOT NULL"] if skips else []
    if called.distinct:
        found = f"DISTINCT {value.sql} ORDER BY {value.sql}{direction(order[0])}"
    else:
        by = [key.sql + direction(each) for key, each in zip(keys, order, strict=True)]
        by += [f"{value.sql} ASC NULLS FIRST", *([f"signbit({value.sql}) DESC"] if is_fraction(value.type) else [])]
        found = f"{value.sql} ORDER BY {', '.join(by)}"
    tail = f" FILTER (WHERE {' AND '.join(kept)})" if kept else ""
    if called.name in ARRAYS:
        return Typed(f"coalesce(list({found}){tail}, [])", pa.list_(value.type), raises)
    return Typed(f"{'first' if called.name in FIRSTS else 'last'}({found}){tail}", value.type, raises)
