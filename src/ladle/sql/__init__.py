"""Text to statements to bound plans. Only here is sqlglot known; trees of it never leave this package.

`parse` and `parse_one` take any statement, `bind` a SELECT; `split_script`, `is_complete` and `subscription` are for
shells.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from ladle.errors import LadleError
from ladle.plan import Plan
from ladle.sql.names import Names
from ladle.sql.statements import Statement

if TYPE_CHECKING:
    from ladle.sql.templates import Templates

__all__ = [
    "bind",
    "check_function_name",
    "is_complete",
    "parse",
    "parse_one",
    "parse_type",
    "split_script",
    "subscription",
]


def parse(text: str, names: Names) -> list[Statement]:
    """Every statement of a script, each bound against `names` as they are now."""
    from ladle.sql.lower import lower
    from ladle.sql.script import chunks

    return [lower(chunk, names) for chunk in chunks(text)]


def parse_one(text: str, names: Names) -> Statement:
    """The one statement that the text is."""
    from ladle.sql.lower import lower
    from ladle.sql.script import only_chunk

    return lower(only_chunk(text), names)


def subscription(text: str) -> tuple[str, int | None] | None:
    """The query that a statement subscribes to, and since which epoch; None for other statements."""
    from ladle.sql.drafts import SubscribeDraft
    from ladle.sql.script import draft, only_chunk

    match draft(only_chunk(text)):
        case SubscribeDraft(name, since):
            return name.name, since
        case _:
            return None


def bind(text: str, names: Names) -> Plan:
    """The plan of a SELECT. Of texts that differ in numbers alone only the first ones are parsed."""
    return _templates().bind(text, names)


def bind_each(texts: Mapping[str, str], names: Names) -> dict[str, Plan]:
    """The plans of queries by their names; of several, an error says which of them is meant."""
    plans = {}
    for name, text in texts.items():
        try:
            plans[name] = bind(text, names)
        except LadleError as error:
            if len(texts) > 1:
                error.message = f"In query '{name}': {error.message}"
            raise
    return plans


@cache
def _templates() -> Templates:
    from ladle.sql.templates import Templates

    return Templates(_bind)


def _bind(text: str, names: Names) -> Plan:
    from ladle.sql.lower import lower_select
    from ladle.sql.script import only_chunk

    return lower_select(only_chunk(text), names)


def parse_type(text: str) -> pa.DataType:
    """A type as SQL writes it."""
    from ladle.sql import functions

    return functions.parse_type(text)


def check_function_name(name: str) -> None:
    """Refuse a name that no call could have, or that Spark SQL has given already."""
    from ladle.sql import functions

    functions.check_function_name(name)


def split_script(text: str) -> list[str]:
    """The texts of a script's statements. A later one may need what an earlier one does, so run them one by one."""
    from ladle.sql import script

    return script.statements(text)


def is_complete(text: str) -> bool:
    """Whether a shell may run what was typed, or should ask for another line."""
    from ladle.sql import script

    return script.is_complete(text)
