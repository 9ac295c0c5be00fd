"""Aggregates of values in an order: array_agg, string_agg, first and last.

There are two ways to write the order, `f(x ORDER BY y)` and `f(x) WITHIN GROUP (ORDER BY y)`. The parser makes the
second of the first, so everything behind it knows one form. Values whose keys tie are in their own order. Spark has
that form for string_agg alone: the others are given to it as arrays of structs, which it sorts by a lambda.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import sqlglot
from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.sql.dialect import DIALECT
from ladle.sql.limits import StatementLimits
from ladle.sql.position import SourceText
from ladle.sql.script import StatementTokens, bound_tree, only_chunk
from ladle.sql.within_group import ARRAYS, FIRSTS, LASTS, ORDERED, TEXTS

_OF_SPARK = frozenset(("percentile_cont", "percentile_disc", "mode"))
"""Other functions that WITHIN GROUP means something for."""


def check_ordered(tree: exp.Expression, source: SourceText) -> None:
    """Refuse an order where it means nothing, and arguments that an ordered aggregate does not take."""
    for node in tree.find_all(exp.WithinGroup):
        call = node.this
        name = call.name.lower()
        if not isinstance(call, exp.Anonymous) or name not in ORDERED | _OF_SPARK:
            raise Unsupported(
                f"WITHIN GROUP of {name or 'this'} is not part of Ladle's SQL.",
                hint="values have an order in array_agg, string_agg, first and last",
                position=source.of(node),
            )
        if name in ARRAYS | FIRSTS | LASTS:
            _check(node, call, name, source)


def _check(node: exp.WithinGroup, call: exp.Anonymous, name: str, source: SourceText) -> None:
    if len(call.expressions) != 1 or len(_values(call)) != 1 or isinstance(_values(call)[0], exp.Star):
        raise SqlError(f"{name} with ORDER BY takes one value: {name}(x ORDER BY y).", position=source.of(call))
    whole: exp.Expr = node
    while isinstance(whole.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls) and whole.arg_key == "this":
        whole = whole.parent
    if isinstance(whole.parent, exp.Window) and whole.arg_key == "this":
        raise Unsupported(
            f"An ORDER BY inside of {name} does not go with OVER.",
            hint="order the window: first_value(x) OVER (PARTITION BY k ORDER BY y)",
            position=source.of(call),
        )
    if any(isinstance(each, exp.IgnoreNulls | exp.RespectNulls) for each in (whole, whole.this)):
        why = "it has none" if name in ARRAYS else "they are said once"
        raise Unsupported(f"IGNORE NULLS and RESPECT NULLS don't go with this {name}: {why}.", position=source.of(call))
    distinct = isinstance(call.expressions[0], exp.Distinct)
    if distinct and name not in ARRAYS:
        raise Unsupported(f"DISTINCT does not go with {name}.", hint="leave it out", position=source.of(call))
    keys = [each.this for each in node.expression.expressions]
    if distinct and keys != _values(call):
        raise SqlError(
            f"{name}(DISTINCT x ...) is ordered by x itself.",
            hint="write ORDER BY with the same expression, or group in a subquery",
            position=source.of(keys[0]),
        )


def for_spark(text: str) -> str:
    """A bound text as Spark runs it."""
    if "WITHIN GROUP" not in text:
        return text
    chunk = only_chunk(text)
    return StatementLimits().run(chunk.tokens, partial(_for_spark, chunk))


def _for_spark(chunk: StatementTokens) -> str:
    tree = bound_tree(chunk)
    ordered = [node for node in tree.find_all(exp.WithinGroup) if node.this.name.lower() in ORDERED]
    for node in ordered:
        name = node.this.name.lower()
        if name in TEXTS:
            _end_ties(node)
        else:
            around = node.parent if isinstance(node.parent, exp.Filter) else None
            made = sqlglot.parse_one(_sorted(node, name, around), dialect=DIALECT)
            (around or node).replace(made)
    return tree.sql(DIALECT) if ordered else chunk.source.text


def _values(call: exp.Anonymous) -> list[exp.Expr]:
    """The arguments, without DISTINCT and IGNORE NULLS."""
    values: list[exp.Expr] = []
    for each in call.expressions:
        values.extend(each.expressions if isinstance(each, exp.Distinct) else [each])
    return [each.this if isinstance(each, exp.IgnoreNulls) else each for each in values]


def _end_ties(node: exp.WithinGroup) -> None:
    """Texts whose keys tie are in their own order."""
    value = node.this.expressions[0]
    if not isinstance(value, exp.Distinct) and all(each.this != value for each in node.expression.expressions):
        node.expression.append("expressions", exp.Ordered(this=value.copy(), nulls_first=True))


def _sorted(node: exp.WithinGroup, name: str, filter_: exp.Filter | None) -> str:
    """The expression for Spark: rows as structs of the keys and the value, sorted, and what is wanted of them."""
    value = _values(node.this)[0].sql(DIALECT)
    skips = name in ARRAYS or isinstance(node.this.expressions[0], exp.IgnoreNulls)
    conditions = [] if filter_ is None else [f"({filter_.expression.this.sql(DIALECT)})"]
    order = node.expression.expressions
    if isinstance(node.this.expressions[0], exp.Distinct):
        kept = f"collect_list(DISTINCT {value}){_filter(conditions)}"
        return f"sort_array({kept}, {'false' if order[0].args.get('desc') else 'true'})"
    fields = [f"'k{at}', {each.this.sql(DIALECT)}" for at, each in enumerate(order)]
    kept = _filter([*conditions, f"({value}) IS NOT NULL"] if skips else conditions)
    rows = f"collect_list(named_struct({', '.join(fields)}, 'v', {value})){kept}"
    found = f"array_sort({rows}, (l, r) -> {_comparison(order)})"
    if name in ARRAYS:
        return f"transform({found}, e -> e.v)"
    return f"try_element_at({found}, {1 if name in FIRSTS else -1}).v"


def _filter(conditions: list[str]) -> str:
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def _comparison(order: list[exp.Ordered]) -> str:
    """-1, 0 or 1 of two structs."""
    text = "0"
    for name, desc, nulls_first in reversed(list(_directions(order))):
        null, less = -1 if nulls_first else 1, 1 if desc else -1
        left, right = f"l.{name}", f"r.{name}"
        text = (
            f"CASE WHEN {left} <=> {right} THEN {text} WHEN {left} IS NULL THEN {null} WHEN {right} IS NULL "
            f"THEN {-null} WHEN {left} < {right} THEN {less} ELSE {-less} END"
        )
    return text


def _directions(order: list[exp.Ordered]) -> Iterator[tuple[str, bool, bool]]:
    """Fields, whether they descend, and whether their NULLs come first; the value itself is the last of them."""
    for at, each in enumerate(order):
        yield f"k{at}", bool(each.args.get("desc")), bool(each.args.get("nulls_first"))
    yield "v", False, True
