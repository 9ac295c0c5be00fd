"""A source that delivers what it was given, and stops where it is told: for tests of what happens in between.

Batches are taken in by the thread that attaches it, so a test is the same each time. As with Spark, a batch is noted
in the source's checkpoint *after* it was taken in: `ABORT` ends the source between the two, as a kill would. Attached
again it delivers that batch a second time, under the same number, and the log must not count it twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

import pyarrow as pa

from ladle.archive.files import write_durably
from ladle.errors import PipelineError, TypeMismatch
from ladle.pipeline import BatchRunner

_NEXT = "next"
"""The file of the checkpoint: the number of the batch to deliver next."""


_FIRST = "A source has at least one batch: its columns are those of the first."


class _Mark(Enum):
    ABORT = "abort"


class ScriptedSource:
    """Batches for `db.attach` on a database of `connect_inline`.

    Each is a list of dictionaries or an Arrow table; all have the same columns. `ScriptedSource.ABORT` between them
    ends the source after the batch before it, once: attached again, the same object goes on.
    """

    ABORT: Final = _Mark.ABORT

    def __init__(self, batches: Sequence[Sequence[Mapping[str, object]] | pa.Table | _Mark]) -> None:
        self._tables: list[pa.Table] = []
        self._aborts: set[int] = set()
        """Batches after which the source still has to end."""
        for batch in batches:
            if isinstance(batch, _Mark):
                if not self._tables:
                    raise TypeMismatch(
                        "ABORT comes after a batch.", hint="begin with a batch; an Arrow table may be empty"
                    )
                self._aborts.add(len(self._tables) - 1)
            else:
                self._tables.append(self._fitting(batch))
        if not self._tables:
            raise TypeMismatch(_FIRST, hint="to deliver nothing, give an Arrow table without rows")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the first batch."""
        return self._tables[0].schema

    def deliver(self, checkpoint: Path, run: BatchRunner) -> bool:
        """Have the batches taken in that the checkpoint does not have; whether those were all."""
        noted = checkpoint / _NEXT
        first = int(noted.read_text()) if noted.exists() else 0
        for number in range(first, len(self._tables)):
            run([self._tables[number]], number)
            if number in self._aborts:
                self._aborts.discard(number)
                return False
            write_durably(noted, str(number + 1).encode())
        return True

    def _fitting(self, batch: Sequence[Mapping[str, object]] | pa.Table) -> pa.Table:
        """With the columns of the first batch, if this is not the first."""
        rows = batch.to_pylist() if isinstance(batch, pa.Table) else list(batch)
        if not self._tables and isinstance(batch, pa.Table):
            return batch
        if not self._tables:
            if not rows:
                raise TypeMismatch(_FIRST, hint="begin with a batch that has rows, or an Arrow table")
            try:
                return pa.Table.from_pylist(rows)
            except pa.ArrowException as error:
                raise TypeMismatch(f"The first batch can't be an Arrow table: {error}.") from error
        extra = dict.fromkeys(name for row in rows for name in row if name not in self.schema.names)
        if extra:
            raise TypeMismatch(f"The first batch has no column {', '.join(map(repr, extra))}.")
        try:
            return pa.Table.from_pylist(rows, schema=self.schema)
        except pa.ArrowException as error:
            raise TypeMismatch(f"A batch does not fit the first one: {error}.") from error


class ScriptedRun:
    """What `db.attach` returns: the source has delivered all that it will."""

    restarts = 0

    def __init__(self, stream: str, source: str) -> None:
        self.stream = stream
        self.source = source
        self.state = "running"
        self.error: str | None = None

    def run(self, batches: ScriptedSource, checkpoint: Path, run: BatchRunner) -> None:
        """Take in the batches, from the one after the last that was committed."""
        try:
            self.state = "drained" if batches.deliver(checkpoint, run) else "stopped"
        except Exception as error:  # of whatever takes the batch in, as with Spark
            self.state, self.error = "failed", str(error)

    def await_drained(self, seconds: float | None = None) -> None:
        """Raise what the source failed of; it has ended already."""
        if self.error is not None:
            raise PipelineError(f"Source '{self.source}' of stream '{self.stream}' failed: {self.error}")

    def stop(self) -> None:
        """Nothing to do: it has ended already."""
