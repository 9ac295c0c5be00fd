"""Where a node stands in the text it was parsed from."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from ladle.errors import Position


@dataclass(frozen=True)
class SourceText:
    """The text that trees of one statement were parsed from."""

    text: str

    def at(self, offset: int) -> Position:
        """The line and column of a place in the text, counted from one."""
        before = self.text[:offset]
        return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    def of(self, node: exp.Expr | None) -> Position | None:
        """The first token known of a node; sqlglot keeps offsets for identifiers, literals, calls and stars."""
        if node is None:
            return None
        starts = [start for part in node.walk() if isinstance(start := part.meta.get("start"), int)]
        return self.at(min(starts)) if starts else None
