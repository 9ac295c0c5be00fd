"""Text to statements to bound plans. Only here is sqlglot known; trees of it never leave this package.

`parse` and `parse_one` take any statement, `bind` a SELECT; `split_script`, `is_unfinished` and `subscription` are for
shells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ladle.config import Settings
from ladle.errors import LadleError
from ladle.plan import Function, Plan
from ladle.schema import Column, Default
from ladle.sql.names import Names
from ladle.sql.statement_types import Insert, Statement, Subscribe

if TYPE_CHECKING:
    from ladle.plan.answering import Folding
    from ladle.plan.nodes import Node
    from ladle.sql.templates import Templates

__all__ = [
    "bind",
    "called_by",
    "check_function_name",
    "check_sql_function",
    "default_plan",
    "folding_of",
    "is_unfinished",
    "node_statement",
    "parse",
    "parse_column",
    "parse_one",
    "parse_type",
    "probe_of",
    "rebind",
    "split_script",
    "subscription",
    "tolerant_insert",
    "tree_of",
]


_DEFAULT = Settings()


def parse(text: str, names: Names, settings: Settings = _DEFAULT) -> list[Statement]:
    """Every statement of a script, each bound against `names` as they are now."""
    from ladle.sql.limits import StatementLimits
    from ladle.sql.lower import lower
    from ladle.sql.script import chunks

    limits = StatementLimits.of(settings)
    return [limits.run(chunk.tokens, partial(lower, chunk, names)) for chunk in chunks(text, limits)]


def parse_one(text: str, names: Names, settings: Settings = _DEFAULT) -> Statement:
    """The one statement that the text is, within the limits that settings say."""
    from ladle.sql.limits import StatementLimits
    from ladle.sql.lower import lower
    from ladle.sql.script import only_chunk
    from ladle.sql.values import values_insert

    fast = values_insert(text, names)
    if fast is not None:
        return fast
    limits = StatementLimits.of(settings)
    chunk = only_chunk(text, limits)
    return limits.run(chunk.tokens, partial(lower, chunk, names))


def tolerant_insert(text: str, names: Names) -> Insert:
    """An INSERT into a stream, such that rows which can't be cast raise nothing but are told."""
    from ladle.sql.limits import StatementLimits
    from ladle.sql.lower import lower_tolerant_insert
    from ladle.sql.script import only_chunk

    chunk = only_chunk(text)
    return StatementLimits().run(chunk.tokens, partial(lower_tolerant_insert, chunk, names))


def subscription(text: str) -> Subscribe | None:
    """The query that a statement subscribes to, and how; None for other statements."""
    from ladle.sql.drafts import SubscribeDraft
    from ladle.sql.script import draft, only_chunk

    chunk = only_chunk(text)
    if chunk.tokens[0].text.upper() != "SUBSCRIBE":
        return None
    match draft(chunk):
        case SubscribeDraft(name, how):
            return Subscribe(name.name, how)
        case _:
            return None


def bind(text: str, names: Names, settings: Settings = _DEFAULT) -> Plan:
    """The plan of a SELECT. Of texts that differ in numbers alone only the first ones are parsed."""
    return _templates().bind(text, names, settings)


def rebind(text: str, names: Names) -> Plan:
    """The plan of a SELECT that was accepted before, whatever the limits are now."""
    return _templates().bind(text, names, None)


def tree_of(plan: Plan, names: Names) -> Node:
    """The tree of nodes that a bound query is; what no rule understands of it is a Fragment."""
    from ladle.sql import peel

    return peel.tree_of(plan, names)


def folding_of(plan: Plan, names: Names) -> Folding | None:
    """Which nodes of a bound query partial aggregates give, and the statement above them; None: its residual runs."""
    known = plan.residual.foldings
    if known is not None:
        return known[0] if known else None
    from ladle.sql import folding

    return folding.folding_of(plan, names)


def node_statement(
    plan: Plan, node: Node, inputs: Sequence[tuple[Mapping[int, str], pa.Schema]]
) -> tuple[str, Mapping[int, str]] | None:
    """DuckDB's text of one node of a plan's tree over its children's rows, and its columns; None: Spark runs it."""
    from ladle.sql import folding

    return folding.node_statement(plan, node, inputs)


def bind_each(texts: Mapping[str, str], names: Names, settings: Settings) -> dict[str, Plan]:
    """The plans of queries by their names; of several, an error says which of them is meant."""
    plans = {}
    for name, text in texts.items():
        try:
            plans[name] = bind(text, names, settings)
        except LadleError as error:
            if len(texts) > 1:
                error.message = f"In query '{name}': {error.message}"
            raise
    return plans


@cache
def _templates() -> Templates:
    from ladle.sql.templates import Templates

    return Templates(_bind)


def _bind(text: str, names: Names, settings: Settings | None = _DEFAULT) -> Plan:
    from ladle.sql.limits import StatementLimits
    from ladle.sql.lower import lower_select
    from ladle.sql.script import only_chunk

    limits = None if settings is None else StatementLimits.of(settings)
    chunk = only_chunk(text, limits)
    return (limits or StatementLimits()).run(chunk.tokens, partial(lower_select, chunk, names))


def parse_type(text: str) -> pa.DataType:
    """A type as SQL writes it."""
    from ladle.sql import function_calls as functions

    return functions.parse_type(text)


def parse_column(name: str, text: str) -> Column:
    """A column by its type as SQL writes it, maybe with a DEFAULT."""
    from ladle.sql import function_calls as functions
    from ladle.sql.defaults import split_default

    kind, default = split_default(text)
    return Column(name, functions.parse_type(kind), None if default is None else Default(default))


def default_plan(column: Column, names: Names) -> Plan:
    """A plan whose answer is the default of a column."""
    from ladle.sql import defaults

    return defaults.default_plan(column, names)


def check_sql_function(function: Function, names: Names) -> None:
    """Refuse a function whose body does not bind, or that would call itself."""
    from ladle.sql import inlining

    seen = {each.lower(): known for each in names.function_names() if (known := names.function(each)) is not None}
    inlining.refuse_cycle(function, seen)


def called_by(function: Function) -> frozenset[str]:
    """The names, in lower case, of what the body of a function in SQL calls."""
    from ladle.sql import inlining

    return frozenset(name.lower() for name in inlining.called_names(function)) if function.inlined else frozenset()


def probe_of(function: Function) -> str:
    """A query that binds if the body of a function in SQL does."""
    from ladle.sql import inlining

    return inlining.probe(function)


def check_function_name(name: str) -> None:
    """Refuse a name that no call could have, or that Spark SQL has given already."""
    from ladle.sql import function_calls as functions

    functions.check_function_name(name)


def split_script(text: str, settings: Settings = _DEFAULT) -> list[str]:
    """The texts of a script's statements. A later one may need what an earlier one does, so run them one by one."""
    from ladle.sql import script
    from ladle.sql.limits import StatementLimits

    return script.statements(text, StatementLimits.of(settings))


def is_unfinished(text: str) -> bool:
    """Whether a shell should ask for another line, or run what was typed."""
    from ladle.sql import script

    return script.is_unfinished(text)
