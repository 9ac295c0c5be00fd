"""What the footer of a data file says of its segments: the bytes of each column, and its least and greatest value.

Values are compared as keys (`ladle.plan.keys`). What the statistics leave open counts as "may be": they say nothing of
NaN, which is above all numbers, and nothing of types that are not numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ladle.plan.keys import NAN_KEY, float_key
from ladle.plan.ranges import Ranges


class _Stored(NamedTuple):
    """A column as it is stored: the first of its leaves, the one after the last, and its type."""

    first: int
    last: int
    type: pa.DataType


class _Content(NamedTuple):
    """What a column of a segment holds: whether there are NULLs, and the least and greatest value, if it has any."""

    nulls: bool
    values: tuple[int, int] | None


class Footer:
    """A file's footer, verified and parsed."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self.metadata = metadata
        self._contents: dict[tuple[int, str, pa.DataType], _Content | None] = {}
        """What was looked up, which takes Arrow longer than to compare it with a query's ranges. None: anything."""

    @cached_property
    def _stored(self) -> Mapping[str, _Stored]:
        found: dict[str, _Stored] = {}
        first = 0
        for field in self.metadata.schema.to_arrow_schema():
            last = first + _leaves(field.type)
            found[field.name] = _Stored(first, last, field.type)
            first = last
        return found

    @property
    def names(self) -> Collection[str]:
        """The columns that the file has."""
        return self._stored.keys()

    def bytes_of(self, row_group: int, columns: Iterable[str]) -> int:
        """What some columns of a segment take in the file, as they are stored."""
        group = self.metadata.row_group(row_group)
        stored = (self._stored[name] for name in columns if name in self._stored)
        return sum(group.column(leaf).total_compressed_size for each in stored for leaf in range(each.first, each.last))

    def may_hold(self, row_group: int, ranges: Ranges, type_: pa.DataType) -> bool:
        """Whether a value of a segment may be in the ranges; `type_` is that of the column today."""
        key = (row_group, ranges.column, type_)
        if key not in self._contents:
            self._contents[key] = self._read(*key)
        content = self._contents[key]
        if content is None or (ranges.null and content.nulls):
            return True
        if content.values is None:
            return False
        low, high = content.values
        return any(
            (begin is None or begin <= high) and (end is None or low < end)  # type: ignore[operator]
            for begin, end in ranges.intervals
        )

    def _read(self, row_group: int, column: str, type_: pa.DataType) -> _Content | None:
        """What Arrow tells of a column of a segment; None where it may hold anything."""
        stored = self._stored.get(column)
        if stored is None:  # the file is older than the column
            return _Content(True, None)
        statistics = self.metadata.row_group(row_group).column(stored.first).statistics
        if stored.type != type_ or statistics is None or not statistics.has_min_max:
            return None
        nulls = not statistics.has_null_count or statistics.null_count > 0
        if pa.types.is_floating(type_):
            return _Content(nulls, (float_key(statistics.min_raw), NAN_KEY))
        if pa.types.is_boolean(type_) or pa.types.is_signed_integer(type_) or pa.types.is_temporal(type_):
            return _Content(nulls, (int(statistics.min_raw), int(statistics.max_raw)))
        return None


def _leaves(type_: pa.DataType) -> int:
    """How many columns of Parquet's a column is stored in."""
    return sum(_leaves(type_.field(number).type) for number in range(type_.num_fields)) if type_.num_fields else 1
