"""Boolean factors over a chunk of tuples: each distinct factor once, however many queries share it (PSoup 4.2.2).

One projection evaluates all of them. If one raises or takes too long, the others are evaluated without it and it is
reported by its text, so that only its own queries stay uncovered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.columns import to_numpy
from ladle.errors import LadleError
from ladle.evaluate import duck
from ladle.plan import Factor, JoinKey
from ladle.plan.function import distinct_functions

_FACTORS_PER_STATEMENT = 512

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Failure:
    """Why a factor has no value on a chunk; a slow one should not be tried again with every chunk."""

    reason: str
    slow: bool = False


@dataclass
class FactorResult:
    """For each factor's text: which rows it is true for, or why it could not be evaluated."""

    masks: dict[str, Mask] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)


def evaluate_factors(table: pa.Table, factors: Iterable[Factor], *, seconds_max: float | None = None) -> FactorResult:
    """Evaluate factors over a chunk of tuples, each distinct one once. What takes too long is stopped."""
    distinct = list({factor.sql: factor for factor in factors}.values())
    result = FactorResult()
    for start in range(0, len(distinct), _FACTORS_PER_STATEMENT):
        _evaluate(table, distinct[start : start + _FACTORS_PER_STATEMENT], seconds_max, result)
    return result


def _evaluate(table: pa.Table, factors: list[Factor], seconds_max: float | None, result: FactorResult) -> None:
    columns = sorted({name for factor in factors for name in factor.columns})
    if not columns:
        # A factor without columns is a constant; any column carries the row count.
        columns = table.column_names[:1]
    select = ", ".join(f"coalesce(({factor.duckdb}), false) AS f{i}" for i, factor in enumerate(factors))
    try:
        answer = duck.run(
            f"SELECT {select} FROM chunk",
            {"chunk": table.select(columns)},
            seconds_max=seconds_max,
            in_order=True,
            functions=distinct_functions(function for factor in factors for function in factor.functions),
        )
    except duck.Interrupted as error:
        if len(factors) == 1:
            result.failures[factors[0].sql] = Failure(error.message, slow=True)
            return
        # Halving would wait out the limit at every level; alone, only the slow one waits.
        for factor in factors:
            _evaluate(table, [factor], seconds_max, result)
        return
    except LadleError as error:
        if len(factors) == 1:
            result.failures[factors[0].sql] = Failure(error.message)
            return
        middle = len(factors) // 2
        _evaluate(table, factors[:middle], seconds_max, result)
        _evaluate(table, factors[middle:], seconds_max, result)
        return
    for factor, column in zip(factors, answer.columns, strict=True):
        result.masks[factor.sql] = to_numpy(column)


def evaluate_keys(table: pa.Table, keys: Sequence[JoinKey], *, seconds_max: float | None = None) -> dict[str, pa.Array]:
    """The keys of joins, by their texts: columns as they are, and expressions in one projection."""
    found = {key.sql: table.column(key.columns[0]).combine_chunks() for key in keys if key.duckdb is None}
    computed = [key for key in keys if key.duckdb is not None]
    if computed:
        columns = sorted({name for key in computed for name in key.columns}) or table.column_names[:1]
        select = ", ".join(f"({key.duckdb}) AS k{number}" for number, key in enumerate(computed))
        answer = duck.run(
            f"SELECT {select} FROM chunk",
            {"chunk": table.select(columns)},
            seconds_max=seconds_max,
            in_order=True,
            functions=distinct_functions(function for key in computed for function in key.functions),
        )
        for key, column in zip(computed, answer.columns, strict=True):
            found[key.sql] = column.combine_chunks()
    return found
