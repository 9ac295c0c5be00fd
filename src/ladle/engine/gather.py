"""Rows of segments by their numbers, column by column: nothing is copied but the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.segments import CachedColumn
from ladle.columns import from_numpy

Numbers = npt.NDArray[np.intp]


class Pick(NamedTuple):
    """Rows of one segment: those with these numbers, or all from `start` to before `stop`."""

    columns: list[CachedColumn]
    numbers: Numbers | None
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start if self.numbers is None else len(self.numbers)


def collect(picks: Sequence[Pick], schema: pa.Schema) -> pa.Table:
    """The picked rows one after the other, as one table without chunks."""
    picks = [pick for pick in picks if pick.rows]
    if not picks:
        return schema.empty_table()
    total = sum(pick.rows for pick in picks)
    arrays = [
        _column([pick.columns[at] for pick in picks], picks, total, field.type) for at, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(columns: list[CachedColumn], picks: Sequence[Pick], total: int, type_: pa.DataType) -> pa.Array:
    first = columns[0].values
    if first is not None and all(column.values is not None for column in columns):
        gathered = np.empty(total, dtype=first.dtype)
        at = 0
        for column, pick in zip(columns, picks, strict=True):
            part = gathered[at : at + pick.rows]
            assert column.values is not None
            if pick.numbers is None:
                part[:] = column.values[pick.start : pick.stop]
            else:
                # Numbers are in range; only with another mode than "raise" is there no copy in between.
                column.values.take(pick.numbers, out=part, mode="clip")
            at += pick.rows
        return pa.Array.from_buffers(type_, total, [None, pa.py_buffer(gathered)])
    parts = [
        column.array.slice(pick.start, pick.rows)
        if pick.numbers is None
        else column.array.take(from_numpy(pick.numbers))
        for column, pick in zip(columns, picks, strict=True)
    ]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
