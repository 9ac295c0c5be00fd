"""The last rows of each key: what `[PARTITION BY k ROWS n]` has of a stream.

Keys are equal as GROUP BY has it: NULL is a key, NaN is one, and -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ladle.columns import to_numpy


def latest(columns: Sequence[pa.ChunkedArray], rows_max: int) -> npt.NDArray[np.bool_]:
    """Which rows have fewer than so many rows of their key behind them; a key is what the columns have in a row."""
    numbers = _numbers(columns[0])
    for column in columns[1:]:
        own = _numbers(column)
        # Numbered anew after each column, so that the product never passes 64 bits.
        _, numbers = np.unique(numbers * (own.max(initial=0) + 1) + own, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    keys = numbers[order]
    ends = np.append(np.flatnonzero(keys[1:] != keys[:-1]) + 1, len(keys))
    behind = np.repeat(ends, np.diff(ends, prepend=0)) - np.arange(len(keys)) - 1
    found = np.empty(len(keys), dtype=np.bool_)
    found[order] = behind < rows_max
    return found


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A number for each distinct value."""
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 becomes 0.0
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return to_numpy(encoded.indices).astype(np.int64)
