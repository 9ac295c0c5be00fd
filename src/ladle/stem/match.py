"""One block against tuples that nothing covers: the same ranges as in the Query SteM, without an index.

Intervals of integer keys are compared by NumPy, whole columns at a time; the rest is the predicate list's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.columns import from_numpy, to_numpy
from ladle.errors import EvaluationError
from ladle.evaluate import evaluate_factors
from ladle.plan import Block, Factor
from ladle.plan.ranges import Ranges
from ladle.stem.column_keys import Int64Keys, encode
from ladle.stem.masks import TRUE, UNKNOWN, States

Mask = npt.NDArray[np.bool_]

_INTERVALS_MAX = 8
"""A longer list of values is better looked up than compared one by one."""


def split(block: Block) -> tuple[dict[str, Ranges], list[Factor]]:
    """What is compared, by column, and the factors that have to be evaluated."""
    by_column: dict[str, Ranges] = {}
    others: list[Factor] = []
    for factor in block.factors:
        ranges = factor.ranges
        if ranges is None or len(ranges.intervals) > _INTERVALS_MAX or not _has_int64_keys(ranges):
            others.append(factor)
            continue
        known = by_column.get(ranges.column)
        by_column[ranges.column] = ranges if known is None else known.intersect(ranges)
    return by_column, others


def satisfying(
    table: pa.Table,
    factors: list[Factor],
    *,
    seconds_max: float | None = None,
    known: Mapping[str, States] | None = None,
) -> Mask:
    """Which tuples satisfy all of some factors, by the predicate list. A factor of which something is known is asked
    about the other tuples alone.
    """
    known = known or {}
    mask: Mask = np.ones(len(table), dtype=np.bool_)
    for states in known.values():
        mask &= (states == UNKNOWN) | (states == TRUE)
    new = [factor for factor in factors if factor.sql not in known]
    for asked, rows in [(new, mask.copy()), *(([f], known[f.sql] == UNKNOWN) for f in factors if f.sql in known)]:
        rows &= mask
        if not asked or not rows.any():
            continue
        some = table if rows.all() else table.filter(from_numpy(rows))
        result = evaluate_factors(some, asked, seconds_max=seconds_max)
        for failure in result.failures.values():
            raise EvaluationError(failure.reason, hint="no other query is harmed; change this one's WHERE")
        mask[rows] = np.logical_and.reduce([result.masks[factor.sql] for factor in asked])
    return mask


def inside(column: pa.Array | pa.ChunkedArray, ranges: Ranges) -> Mask:
    """Which values are in one of the ranges."""
    if pa.types.is_integer(column.type) and not column.null_count:
        # An integer is its own key, however narrow.
        return _within(to_numpy(column), ranges)
    keys = encode(column)
    assert isinstance(keys, Int64Keys)
    mask = _within(keys.keys, ranges)
    if keys.valid is not None:
        mask &= keys.valid
        if ranges.null:
            mask |= ~keys.valid
    return mask


def _has_int64_keys(ranges: Ranges) -> bool:
    ends = [key for interval in ranges.intervals for key in interval if key is not None]
    return bool(ends) and not isinstance(ends[0], bytes)


def _within(keys: npt.NDArray[np.signedinteger], ranges: Ranges) -> Mask:
    found: Mask | None = None
    for low, high in ranges.intervals:
        assert not isinstance(low, bytes)
        assert not isinstance(high, bytes)
        part: Mask | None = None if low is None else keys >= low
        if high is not None:
            below = keys < high
            part = below if part is None else np.logical_and(part, below, out=part)
        if part is None:
            part = np.ones(len(keys), dtype=np.bool_)
        found = part if found is None else np.logical_or(found, part, out=found)
    return np.zeros(len(keys), dtype=np.bool_) if found is None else found
