"""Where the warehouse is on its machine is for admins to know: its path is taken out of what others are told.

Errors of the file system and of Spark, and reasons why something waits, name files in full. They stay as they are in
logs, for admins' status and for programs that opened the warehouse themselves.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ladle.status import Pulse, Status

_NAME = "warehouse"
_Told = TypeVar("_Told", Status, Pulse)


class Places:
    """The names of one warehouse's directory."""

    def __init__(self, root: Path) -> None:
        names = {str(root.absolute()), os.path.realpath(root)} - {os.sep}
        longest_first = sorted(names, key=len, reverse=True)
        # As whole components: /data/w is not in /data/warm.
        self._pattern = re.compile(f"(?:{'|'.join(map(re.escape, longest_first))})(?![^/\\s'\"`,;:)\\]}}])")

    def hidden(self, text: str) -> str:
        """A text with the names of files as they are called within the warehouse."""
        return self._pattern.sub(_NAME, text)

    def hidden_if(self, text: str | None) -> str | None:
        """A text without the place of the warehouse, or None."""
        return None if text is None else self.hidden(text)

    def hidden_in(self, told: _Told) -> _Told:
        """A status whose reasons don't say where the warehouse is."""
        streams = tuple(replace(stream, error=self.hidden_if(stream.error)) for stream in told.streams)
        if isinstance(told, Pulse):
            return replace(told, streams=streams)
        return replace(
            told,
            path=_NAME,
            spark=self.hidden(told.spark),
            streams=streams,
            queries=tuple(replace(query, error=self.hidden_if(query.error)) for query in told.queries),
            problems={task: self.hidden(reason) for task, reason in told.problems.items()},
        )
