"""Sources as of one log entry: what flows into a stream, defined in SQL."""

from __future__ import annotations

from dataclasses import dataclass

from ladle.json_values import JsonFields, JsonObject


@dataclass(frozen=True)
class SourceState:
    """A defined source. It belongs to its stream, and goes with it."""

    id: int
    name: str
    stream: str
    format: str
    options: tuple[tuple[str, str], ...] = ()
    created_us: int = 0

    @property
    def key(self) -> str:
        """What its batches are known by. One that is dropped and defined anew begins anew, with batch 0; the name of
        an attached source has no @.
        """
        return f"{self.name}@{self.id}"

    def to_json(self) -> JsonObject:
        """Encode a source for the log."""
        return {
            "id": self.id,
            "name": self.name,
            "stream": self.stream,
            "format": self.format,
            "options": [list(option) for option in self.options],
            "created_us": self.created_us,
        }

    @staticmethod
    def from_json(value: JsonFields) -> SourceState:
        """Decode a source from the log."""
        return SourceState(**{**value, "options": tuple((key, text) for key, text in value["options"])})


def source_of_key(key: str) -> str:
    """The name of a source by what its batches are known by."""
    return key.partition("@")[0]
