"""Text to statements to bound plans. Only here is sqlglot known; trees of it never leave this package.

`parse` and `parse_one` take any statement, `bind` a SELECT; `split_script`, `is_unfinished` and `subscription` are for
shells.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ladle.config import Settings
from ladle.errors import LadleError
from ladle.plan import Plan
from ladle.sql.names import Names
from ladle.sql.statements import Insert, Statement

if TYPE_CHECKING:
    from ladle.plan.nodes import Node
    from ladle.sql.templates import Templates

__all__ = [
    "bind",
    "check_function_name",
    "is_unfinished",
    "parse",
    "parse_one",
    "parse_type",
    "rebind",
    "split_script",
    "subscription",
    "tolerant_insert",
    "tree_of",
]


_DEFAULT = Settings()


def parse(text: str, names: Names, settings: Settings = _DEFAULT) -> list[Statement]:
    """Every statement of a script, each bound against `names` as they are now."""
    from ladle.sql.limits import Limits
    from ladle.sql.lower import lower
    from ladle.sql.script import chunks

    limits = Limits.of(settings)
    return [limits.run(chunk.tokens, partial(lower, chunk, names)) for chunk in chunks(text, limits)]


def parse_one(text: str, names: Names, settings: Settings = _DEFAULT) -> Statement:
    """The one statement that the text is, within the limits that settings say."""
    from ladle.sql.limits import Limits
    from ladle.sql.lower import lower
    from ladle.sql.script import only_chunk
    from ladle.sql.values import values_insert

    fast = values_insert(text, names)
    if fast is not None:
        return fast
    limits = Limits.of(settings)
    chunk = only_chunk(text, limits)
    return limits.run(chunk.tokens, partial(lower, chunk, names))


def tolerant_insert(text: str, names: Names) -> Insert:
    """An INSERT into a stream, such that rows which can't be cast raise nothing but are told."""
    from ladle.sql.limits import Limits
    from ladle.sql.lower import lower_tolerant_insert
    from ladle.sql.script import only_chunk

    chunk = only_chunk(text)
    return Limits().run(chunk.tokens, partial(lower_tolerant_insert, chunk, names))


def subscription(text: str) -> tuple[str, int | None] | None:
    """The query that a statement subscribes to, and since which epoch; None for other statements."""
    from ladle.sql.drafts import SubscribeDraft
    from ladle.sql.script import draft, only_chunk

    chunk = only_chunk(text)
    if chunk.tokens[0].text.upper() != "SUBSCRIBE":
        return None
    match draft(chunk):
        case SubscribeDraft(name, since):
            return name.name, since
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
    from ladle.sql.limits import Limits
    from ladle.sql.lower import lower_select
    from ladle.sql.script import only_chunk

    limits = None if settings is None else Limits.of(settings)
    chunk = only_chunk(text, limits)
    return (limits or Limits()).run(chunk.tokens, partial(lower_select, chunk, names))


def parse_type(text: str) -> pa.DataType:
    """A type as SQL writes it."""
    from ladle.sql import functions

    return functions.parse_type(text)


def check_function_name(name: str) -> None:
    """Refuse a name that no call could have, or that Spark SQL has given already."""
    from ladle.sql import functions

    functions.check_function_name(name)


def split_script(text: str, settings: Settings = _DEFAULT) -> list[str]:
    """The texts of a script's statements. A later one may need what an earlier one does, so run them one by one."""
    from ladle.sql import script
    from ladle.sql.limits import Limits

    return script.statements(text, Limits.of(settings))


def is_unfinished(text: str) -> bool:
    """Whether a shell should ask for another line, or run what was typed."""
    from ladle.sql import script

    return script.is_unfinished(text)
