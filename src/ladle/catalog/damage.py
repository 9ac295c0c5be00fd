"""Data files that are damaged: each is named and refused, and everything else goes on.

A damaged file stays where it is, so that its backup can take its place: whoever reads it is told, compaction leaves it
out, the backfill gives it up, and retention lets go of it like of any other.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from pathlib import Path

from ladle.archive.checks import RESTORE, check_footer
from ladle.archive.files import MissingFile
from ladle.archive.segments import DataFile, verify_file
from ladle.errors import DamagedFile

_log = logging.getLogger(__name__)


class Damage:
    """What was found damaged while the database is open. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    @property
    def known(self) -> dict[str, str]:
        """What was said of each damaged file, by name."""
        return dict(self._known)

    def note(self, stream: str, name: str, error: DamagedFile) -> DamagedFile:
        """Remember that a data file is damaged; gives the error with the stream's name."""
        told = DamagedFile(f"Not all of stream '{stream}' can be read. {error.message}", hint=error.hint)
        if name not in self._known:
            _log.error("%s", told.message)
        self._known[name] = told.message
        return told

    def found(self, stream: str, directory: Path, file: DataFile) -> bool:
        """Whether a data file is damaged; unless that is known, it is read from end to end."""
        if file.name not in self._known:
            try:
                verify_file(directory / file.name, file)
            except DamagedFile as error:
                self.note(stream, file.name, error)
            except MissingFile:  # compacted or expired
                return False
        return file.name in self._known

    def name(self, stream: str, directory: Path, files: Iterable[DataFile]) -> None:
        """Raise DamagedFile if one of these is damaged: for errors that don't say which file they are of."""
        for file in files:
            if self.found(stream, directory, file):
                raise DamagedFile(self._known[file.name], hint=RESTORE)

    def check_footers(self, stream: str, directory: Path, files: Iterable[DataFile]) -> None:
        """Verify what Spark's reader does not, of files that it is going to read."""
        for file in files:
            try:
                if file.checks is not None:
                    check_footer(directory / file.name, file.checks)
            except DamagedFile as error:
                raise self.note(stream, file.name, error) from error

    def forget(self, living: Container[str]) -> None:
        """Forget the files that no stream has any more."""
        self._known = {name: told for name, told in self._known.items() if name in living}
