"""Users' functions in queries: calls of them become calls of the version that there is now, over cast arguments.

A call keeps the name people know it by for output columns; its arguments are cast to the declared types, as CAST does,
so that it means the same wherever it runs.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ladle.errors import LadleError, SqlError
from ladle.plan import Function
from ladle.plan.function import distinct_functions
from ladle.schema import type_name
from ladle.sql.conformant.datatypes import arrow_type
from ladle.sql.conformant.known import is_taken
from ladle.sql.conformant.parser_names import FUNCTION
from ladle.sql.dialect import DIALECT
from ladle.sql.drafts import SelectDraft
from ladle.sql.inlining import Inlining
from ladle.sql.names import Names
from ladle.sql.naming import output_name
from ladle.sql.position import SourceText
from ladle.sql.scopes import NAME
from ladle.sql.script import draft, only_chunk

_NOT_ARGUMENTS = (exp.Star, exp.Distinct, exp.Lambda, exp.Kwarg, exp.PropertyEQ, exp.Ordered)


def resolve_functions(
    tree: exp.Expression,
    names: Names,
    source: SourceText,
    found: dict[str, Function],
    inlining: Inlining | None = None,
) -> None:
    """Makes every call of a user's function one of its version; what was called is added to `found`, by symbol."""
    inlining = inlining or Inlining()
    # Inner calls first: what a call of a function in SQL becomes has its arguments, resolved, in many places.
    for node in reversed(list(tree.find_all(exp.Anonymous))):
        function = names.function(node.name)
        if function is None or FUNCTION in node.meta:
            continue
        _check_call(node, function, source)
        if function.inlined:
            found[function.symbol] = function
            made = inlining.inlined(function, node, names, source)
            node.replace(made)
            resolve_functions(made, names, SourceText(function.source), found, inlining)
            continue
        node.meta[NAME] = output_name(node)
        node.meta[FUNCTION] = function
        node.set("this", function.symbol)
        for argument, parameter in zip(list(node.expressions), function.parameters, strict=True):
            kind = exp.DataType.build(type_name(parameter.type), dialect="spark")
            holder = exp.Cast(to=kind)
            argument.replace(holder)
            holder.set("this", argument)
        found[function.symbol] = function


def functions_of(tree: exp.Expr) -> tuple[Function, ...]:
    """The users' functions that a resolved tree calls."""
    return distinct_functions(node.meta[FUNCTION] for node in tree.find_all(exp.Anonymous) if FUNCTION in node.meta)


def check_function_name(name: str) -> None:
    """Refuse names that a call in SQL could not have, or has already."""
    if not (name.isascii() and name.isidentifier()):
        raise LadleError(f"'{name}' can't name a function.", hint="use letters, digits and _, a letter first")
    try:
        parsed = draft(only_chunk(f"SELECT {name}(x)"))
    except (LadleError, SqlglotError):
        parsed = None
    call = parsed.query.tree.expressions[0] if isinstance(parsed, SelectDraft) else None
    if is_taken(name) or not isinstance(call, exp.Anonymous) or call.name != name:
        raise LadleError(
            f"'{name}' can't name a function: Spark SQL has that name already.", hint="choose another name"
        )


def parse_type(text: str) -> pa.DataType:
    """The Arrow type of a type in Spark's DDL."""
    try:
        return arrow_type(exp.DataType.build(text, dialect=DIALECT))
    except (SqlglotError, ValueError):
        raise SqlError(f"'{text}' is not a type.", hint="write it as in SQL, like DOUBLE or STRING") from None


def _check_call(node: exp.Anonymous, function: Function, source: SourceText) -> None:
    given: Iterable[exp.Expression] = node.expressions
    starred = any(isinstance(each, exp.Column) and isinstance(each.this, exp.Star) for each in given)
    if starred or any(isinstance(each, _NOT_ARGUMENTS) for each in given):
        raise SqlError(f"Function '{function.name}' takes expressions: {function.signature}.", position=source.of(node))
    if len(node.expressions) != len(function.parameters):
        raise SqlError(
            f"Function '{function.name}' takes {len(function.parameters)} arguments, not {len(node.expressions)}: "
            f"{function.signature}.",
            position=source.of(node),
        )
    if isinstance(node.parent, exp.Window | exp.Table | exp.Lateral | exp.Filter):
        raise SqlError(
            f"Function '{function.name}' gives one value for each row: it can't stand in FROM or before OVER.",
            position=source.of(node),
        )
