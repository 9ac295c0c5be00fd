"""What somebody can have a database do, as data.

A command is a frozen dataclass. `engine/commands/` declares each once: who may, what the audit log says, and the
handler. Python's methods, SQL's statements, the socket and HTTP are adapters: they make commands, and tell results.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Command(Generic[Result_co]):
    """What is asked of a database; `Result_co` is what its handler returns."""
