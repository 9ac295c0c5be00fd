"""What a query answers: an Arrow table, and which prefix of the streams it reflects."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from ladle.present import table_text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ResolvedWindow:
    """The window of one stream at an answer's NOW: `begin < ts <= end`; None is unbounded."""

    stream: str
    begin: datetime | None
    end: datetime | None
    rows: int | None = None
    """The size of a [ROWS n] window."""


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

    @property
    def window(self) -> ResolvedWindow | None:
        """The window of the first stream."""
        return self.windows[0] if self.windows else None

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def to_pandas(self) -> pd.DataFrame:
        return self.table.to_pandas()

    def to_pylist(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = self.table.to_pylist()
        return rows

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        if self.message is not None and self.table.num_columns == 0:
            return self.message
        rows = f"{len(self)} row{'' if len(self) == 1 else 's'}"
        when = f"epoch {self.epoch}, now {self.now:%Y-%m-%d %H:%M:%S} UTC"
        beside = f"{self.message}\n" if self.message is not None else ""
        return f"{table_text(self.table, footer=False)}\n{beside}{rows}, {when}"
