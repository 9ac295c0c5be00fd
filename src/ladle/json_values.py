"""What can be written as JSON, and what is read back.

What is written is checked: nothing goes into the log or beside it that JSON has not. What is read was written by this
program, or is looked at by whoever takes it in: no value is looked at once more, so that opening a log stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
"""Any value that JSON has."""

JsonObject: TypeAlias = dict[str, Json]
"""An object that is written."""

JsonRow: TypeAlias = Sequence[Any]
"""A list that is read, whose places have each a type of their own. Any: Python has no type for such a list, and what
JSON gives is no tuple.
"""

JsonFields: TypeAlias = dict[str, Any]
"""An object that is read. Any: it depends on what was asked, or on the version that wrote it, which fields it has."""
