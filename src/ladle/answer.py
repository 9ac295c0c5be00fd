"""What a query answers: an Arrow table, and which prefix of the streams it reflects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from operator import index
from typing import TYPE_CHECKING, TypeAlias, overload

import pyarrow as pa

from ladle.columns import Value
from ladle.errors import EvaluationError
from ladle.present import html_text, table_html, table_text, whole_text

if TYPE_CHECKING:
    import pandas as pd

Row: TypeAlias = dict[str, Value]
"""A row of an answer: its values by the names of the columns."""

_ROWS_AT_A_TIME = 1_024


@dataclass(frozen=True)
class ResolvedWindow:
    """The window of one stream at an answer's NOW: `begin < ts <= end`; None is unbounded."""

    stream: str
    begin: datetime | None
    end: datetime | None
    rows: int | None = None
    """The size of a [ROWS n] window; of [PARTITION BY k ROWS n], how many rows each key has at most."""


@dataclass(frozen=True)
class Answer:
    """An answer as of one epoch. It is stream-prefix consistent: an epoch is wholly in or wholly out."""

    table: pa.Table
    epoch: int
    """The last epoch that is in."""
    now: datetime
    windows: tuple[ResolvedWindow, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    """Time the engine took."""
    message: str | None = None
    """What a statement that is not a SELECT did, or has to say beside its table."""
    entry: int = 0
    """The last entry of the log that is in: what VERSION AS OF reads the same answer by later."""

    @property
    def window(self) -> ResolvedWindow | None:
        """The window of the first stream."""
        return self.windows[0] if self.windows else None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.table.column_names)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a DataFrame of pandas."""
        return self.table.to_pandas()

    def to_pylist(self) -> list[Row]:
        """All rows, as dictionaries."""
        return _rows(self.table)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        """The rows, as dictionaries; a few at a time are converted."""
        for batch in self.table.to_batches(max_chunksize=_ROWS_AT_A_TIME):
            yield from _rows(batch)

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...

    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        """A row by its number, also from the end, or the rows of a slice."""
        if isinstance(at, slice):
            return _rows(self.table.take(pa.array(range(len(self))[at], pa.int64())))
        try:
            number = index(at)
        except TypeError:
            raise TypeError(f"rows have numbers, not {at!r}; a column is answer.table[{at!r}]") from None
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no row {number}: the answer has {self._rows()}")
        return _rows(self.table.slice(number % len(self), 1))[0]

    def __repr__(self) -> str:
        if self.message is not None and self.table.num_columns == 0:
            return self.message
        beside = f"{self.message}\n" if self.message is not None else ""
        text = whole_text(self.table)
        return f"{table_text(self.table, footer=False) if text is None else text}\n{beside}{self._footer()}"

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows as a table."""
        if self.message is not None and self.table.num_columns == 0:
            return f"<p>{html_text(self.message)}</p>"
        beside = f"<p>{html_text(self.message)}</p>" if self.message is not None else ""
        return f"{table_html(self.table)}{beside}<p>{self._footer()}</p>"

    def _footer(self) -> str:
        return f"{self._rows()}, epoch {self.epoch}, now {self.now:%Y-%m-%d %H:%M:%S} UTC"

    def _rows(self) -> str:
        return f"{len(self)} row{'' if len(self) == 1 else 's'}"


def _rows(table: pa.Table | pa.RecordBatch) -> list[Row]:
    try:
        rows: list[Row] = table.to_pylist()
    except (OverflowError, ValueError) as error:
        raise EvaluationError(
            f"A row has a value that Python has no form for: {error}.",
            hint="times outside the years 1 to 9999 are in answer.table, or cast them to STRING",
        ) from None
    return rows
