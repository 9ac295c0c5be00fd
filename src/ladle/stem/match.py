"""One block against tuples that nothing covers: the same ranges as in the Query SteM, without an index.

Intervals of integer keys are compared by NumPy, whole columns at a time; the rest is the predicate list's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.errors import EvaluationError
from ladle.evaluate import evaluate_factors
from ladle.plan import Block, Factor
from ladle.plan.ranges import Ranges
from ladle.stem.keys import Int64Keys, encode

Mask = npt.NDArray[np.bool_]

_INTERVALS_MAX = 8
"""A longer list of values is better looked up than compared one by one."""


def match(table: pa.Table, block: Block, *, seconds_max: float | None = None) -> Mask:
    """Which tuples satisfy a block; EvaluationError when that can't be told."""
    mask: Mask = np.ones(len(table), dtype=np.bool_)
    by_column: dict[str, Ranges] = {}
    others: list[Factor] = []
    for factor in block.factors:
        ranges = factor.ranges
        if ranges is None or len(ranges.intervals) > _INTERVALS_MAX or not _has_int64_keys(ranges):
            others.append(factor)
            continue
        known = by_column.get(ranges.column)
        by_column[ranges.column] = ranges if known is None else known.intersect(ranges)
    for column, ranges in by_column.items():
        keys = encode(table.column(column))
        assert isinstance(keys, Int64Keys)
        mask &= _inside(keys, ranges)
    if others:
        result = evaluate_factors(table, others, seconds_max=seconds_max)
        for failure in result.failures.values():
            raise EvaluationError(failure.reason, hint="no other query is harmed; change this one's WHERE")
        for factor in others:
            mask &= result.masks[factor.sql]
    return mask


def _has_int64_keys(ranges: Ranges) -> bool:
    ends = [key for interval in ranges.intervals for key in interval if key is not None]
    return bool(ends) and not isinstance(ends[0], bytes)


def _inside(keys: Int64Keys, ranges: Ranges) -> Mask:
    inside: Mask | None = None
    for low, high in ranges.intervals:
        assert not isinstance(low, bytes)
        assert not isinstance(high, bytes)
        part: Mask | None = None if low is None else keys.keys >= low
        if high is not None:
            below = keys.keys < high
            part = below if part is None else np.logical_and(part, below, out=part)
        if part is None:
            part = np.ones(len(keys.keys), dtype=np.bool_)
        inside = part if inside is None else np.logical_or(inside, part, out=inside)
    if inside is None:
        inside = np.zeros(len(keys.keys), dtype=np.bool_)
    if keys.valid is not None:
        inside &= keys.valid
        if ranges.null:
            inside |= ~keys.valid
    return inside
