"""Which translation of texts into plans this is.

What a text was bound to is derived, and so is all that was computed for it. Both are good only for the translation that
made them: another one throws them away and binds the texts again. So `TRANSLATION` is raised with every change of what
some text is bound to: of factors, of what they are true for, of residuals, of joins. `tests/sql/test_translation.py`
says when that was forgotten.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

TRANSLATION = 6


def translation() -> str:
    """Names the translation; the parser is part of it."""
    return f"{TRANSLATION}-{_parser()}"


@cache
def _parser() -> str:
    return version("sqlglot")
