"""Rows of segments by their numbers, column by column: nothing is copied but the answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.archive.cache import CachedColumn
from ladle.archive.layout import Extent
from ladle.columns import from_numpy, to_numpy

Numbers = npt.NDArray[np.intp]

_FEW = 500
"""Fewer rows than that are taken without letting other threads run: `take` lets them each time, and the thread would
wait for its turn again and again. It is also where NumPy's own indexing begins to let them."""


class Pick(NamedTuple):
    """Rows of one segment: those with these numbers, or all from `start` to before `stop`."""

    columns: list[CachedColumn]
    numbers: Numbers | None
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many rows are picked."""
        return self.stop - self.start if self.numbers is None else len(self.numbers)

    @property
    def places(self) -> Numbers:
        """The rows' numbers in the segment."""
        return np.arange(self.start, self.stop) if self.numbers is None else self.numbers

    def values(self, column: CachedColumn) -> pa.Array:
        """The rows' values of a column of the segment."""
        if self.numbers is None:
            whole = self.stop - self.start == len(column.array)
            return column.array if whole else column.array.slice(self.start, self.stop - self.start)
        if column.values is None:
            return column.array.take(from_numpy(self.numbers))
        taken = column.values.take(self.numbers)
        return pa.Array.from_buffers(column.array.type, len(taken), [None, pa.py_buffer(taken)])

    def gathered(self) -> Pick:
        """The same rows, in columns that have no others, so that the segment's can be let go of."""
        return Pick([CachedColumn(self.values(column)) for column in self.columns], None, 0, self.rows)

    def narrowed(self, mask: npt.NDArray[np.bool_]) -> Pick:
        """Those of the rows for which the mask holds, without columns."""
        matched = mask.nonzero()[0]
        return Pick([], matched + self.start if self.numbers is None else self.numbers[matched], 0, 0)


NO_ROWS = Pick([], np.zeros(0, dtype=np.intp), 0, 0)


def collect(picks: Sequence[Pick], schema: pa.Schema) -> pa.Table:
    """The picked rows one after the other, as one table without chunks."""
    picks = [pick for pick in picks if pick.rows]
    if not picks:
        return schema.empty_table()
    ends = list(accumulate(pick.rows for pick in picks))
    places = [slice(end - pick.rows, end) for pick, end in zip(picks, ends, strict=True)]
    columns = zip(*(pick.columns for pick in picks), strict=True)
    arrays = [_column(column, picks, places, type_) for column, type_ in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(
    columns: Sequence[CachedColumn], picks: Sequence[Pick], places: Sequence[slice], type_: pa.DataType
) -> pa.Array:
    values = [column.values for column in columns]
    first = values[0]
    if first is None or any(each is None for each in values):
        arrays = [pick.values(column) for pick, column in zip(picks, columns, strict=True)]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    total = places[-1].stop
    gathered = np.empty(total, dtype=first.dtype)
    for source, pick, place in zip(values, picks, places, strict=True):
        assert source is not None
        if pick.numbers is None:
            gathered[place] = source[pick.start : pick.stop]
        elif len(pick.numbers) < _FEW:
            gathered[place] = source[pick.numbers]
        else:
            # Numbers are in range; only with another mode than "raise" is there no copy in between.
            source.take(pick.numbers, out=gathered[place], mode="clip")
    return pa.Array.from_buffers(type_, total, [None, pa.py_buffer(gathered)])


def cut_to(table: pa.Table, time: str, extent: Extent) -> pa.Table:
    """Rows with `begin < ts <= end`."""
    times = to_numpy(table.column(time).cast(pa.int64()))
    return table.filter(from_numpy((times > extent.begin_us) & (times <= extent.end_us)))
