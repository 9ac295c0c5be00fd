"""Text to statements to bound plans. Only here is sqlglot known; trees of it never leave this package.

`parse` and `parse_one` take any statement, `bind` a SELECT; `statements` splits a script, `is_complete` is for shells.
"""

from __future__ import annotations

from ladle.plan import Plan
from ladle.sql.names import Names
from ladle.sql.statements import Statement

__all__ = ["bind", "is_complete", "parse", "parse_one", "statements"]


def parse(text: str, names: Names) -> list[Statement]:
    """Every statement of a script, each bound against `names` as they are now."""
    from ladle.sql.lower import lower
    from ladle.sql.parse import chunks

    return [lower(chunk, names) for chunk in chunks(text)]


def parse_one(text: str, names: Names) -> Statement:
    """The one statement that the text is."""
    from ladle.sql.lower import lower
    from ladle.sql.parse import only_chunk

    return lower(only_chunk(text), names)


def bind(text: str, names: Names) -> Plan:
    """The plan of a SELECT."""
    from ladle.sql.lower import lower_select
    from ladle.sql.parse import only_chunk

    return lower_select(only_chunk(text), names)


def statements(text: str) -> list[str]:
    """The texts of a script's statements. A later one may need what an earlier one does, so run them one by one."""
    from ladle.sql.parse import statements as split

    return split(text)


def is_complete(text: str) -> bool:
    """Whether a shell may run what was typed, or should ask for another line."""
    from ladle.sql.parse import is_complete as complete

    return complete(text)
