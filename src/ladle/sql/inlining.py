"""Functions whose body is SQL: a call of one is its body, with the arguments in the places of the parameters.

Arguments are cast to the declared types and the body to the type that it returns, as by CAST. Nothing is called when a
query runs, so what the body is made of is indexed, shared and run by DuckDB like everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from ladle.errors import LadleError, SqlError, Unsupported, unknown
from ladle.plan import Function
from ladle.schema import type_name
from ladle.sql.conform import check_functions
from ladle.sql.drafts import SelectDraft
from ladle.sql.names import Names
from ladle.sql.naming import output_name
from ladle.sql.position import SourceText
from ladle.sql.resolve import fix_now, has_aggregate
from ladle.sql.scopes import NAME
from ladle.sql.script import draft, only_chunk
from ladle.sql.trees import copied

_NODES_MAX = 20_000
"""Calls that become more nodes are refused: bodies that use a parameter twice double with each level."""


def body_of(function: Function) -> exp.Expression:
    """The body of a function as a tree; an error if it is none."""
    parsed = draft(only_chunk(f"SELECT {function.source}"))
    tree = parsed.query.tree if isinstance(parsed, SelectDraft) else exp.Select()
    if len(tree.expressions) != 1 or tree.args.get("from_"):
        raise SqlError(f"The body of function '{function.name}' is not one expression.")
    value: exp.Expression = tree.expressions[0]
    _refuse(value, function)
    return value.pop()


def _refuse(body: exp.Expression, function: Function) -> None:
    """Refuse what a body can't have, at its place in the SELECT of it."""
    what = f"The body of function '{function.name}' can't"
    if body.find(exp.Query) is not None:
        raise Unsupported(f"{what} read streams, tables or queries.", hint="give it what it needs as an argument")
    if body.find(exp.Lambda) is not None:
        raise Unsupported(f"{what} have a lambda.", hint="write that into the query")
    if has_aggregate(body) or body.find(exp.Window) is not None:
        raise Unsupported(f"{what} aggregate: it is about one row.", hint="aggregate what it gives: sum(f(x))")
    if isinstance(body, exp.Alias | exp.Aliases) or body.find(exp.Star) is not None:
        raise SqlError(f"The body of function '{function.name}' is not one expression.")


class Inlining:
    """Calls of one statement's functions as their bodies. What they become together is bounded."""

    def __init__(self) -> None:
        self._nodes = 0

    def inlined(self, function: Function, call: exp.Anonymous, names: Names, source: SourceText) -> exp.Expression:
        """What a call stands for; the columns that it is made of are those of the call."""
        body = body_of(function)
        check_functions(body, names.function_names())
        arguments = {
            parameter.name.lower(): _cast(argument, parameter.type)
            for parameter, argument in zip(function.parameters, call.expressions, strict=True)
        }
        made = exp.Paren(this=_cast(fix_now(substituted(body, function, arguments)), function.returns))
        self._nodes += sum(1 for _ in made.walk())
        if self._nodes > _NODES_MAX:
            raise SqlError(
                f"The functions of this statement become more than {_NODES_MAX:,} parts.",
                hint="name what is computed more than once in a subquery",
                position=source.of(call),
            )
        made.meta[NAME] = output_name(call)
        return made


def substituted(body: exp.Expression, function: Function, arguments: Mapping[str, exp.Expression]) -> exp.Expression:
    """A body with expressions in the places of its parameters; an error if it names anything else."""
    holder = exp.Tuple(expressions=[body])
    for column in list(holder.find_all(exp.Column)):
        parts = [part.name.lower() for part in column.parts]
        own = parts[1:] if parts[0] == function.name.lower() and len(parts) > 1 else parts
        argument = arguments.get(own[0]) if len(own) == 1 else None
        if argument is None:
            known = [parameter.name for parameter in function.parameters]
            raise unknown("parameter", ".".join(part.name for part in column.parts), known)
        column.replace(copied(argument))
    found: exp.Expression = holder.expressions[0].pop()
    return found


def called_names(function: Function) -> Sequence[str]:
    """The names of all functions that a body calls, Spark's among them."""
    return [node.name for node in body_of(function).find_all(exp.Anonymous)]


def probe(function: Function) -> str:
    """A query that calls a function with NULL: it binds if the body does."""
    nulls = ", ".join(f"CAST(NULL AS {type_name(each.type)})" for each in function.parameters)
    return f"SELECT {function.name}({nulls})"


def refuse_cycle(function: Function, functions: Mapping[str, Function]) -> None:
    """Refuse a function that would call itself, maybe through others."""
    reached, waiting = set[str](), [function]
    while waiting:
        for name in called_names(waiting.pop()):
            lowered = name.lower()
            if lowered == function.name.lower():
                raise LadleError(f"Function '{function.name}' can't call itself.", hint="a recursion needs Python")
            if lowered not in reached and (found := functions.get(lowered)) is not None and found.inlined:
                reached.add(lowered)
                waiting.append(found)


def _cast(value: exp.Expression, type_: pa.DataType) -> exp.Cast:
    return exp.Cast(this=exp.Paren(this=copied(value)), to=exp.DataType.build(type_name(type_), dialect="spark"))
