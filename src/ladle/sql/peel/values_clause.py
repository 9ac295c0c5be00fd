"""VALUES in FROM: rows of expressions that read no columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from ladle.errors import LadleError
from ladle.plan.nodes import OutputColumn, Values
from ladle.plan.scalars import Scalar
from ladle.sql.conformant.spark_types import NotConformant, Typed, common_type
from ladle.sql.peel.rows import NamedRelations, NodeRows, check_expressions, outputs_of
from ladle.sql.peel.scalar_text import scalar


def values_clause(part: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take VALUES, which is a part of FROM."""
    if not isinstance(part, exp.Values):
        return None
    texts = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in part.expressions]
    for row in texts:
        check_expressions(*row)
    rows = tuple(tuple(scalar(each) for each in row) for row in texts)
    types = [_common(column) for column in zip(*rows, strict=True)]
    return outputs_of(Values(tuple(OutputColumn(f"col{at}", type_) for at, type_ in enumerate(types, 1)), rows))


def _common(column: Sequence[Scalar]) -> pa.DataType | None:
    """The type of a column, which all its values are cast to; None where only Spark can tell."""
    types = [each.type for each in column if each.type is not None]
    if len(types) < len(column):
        return None
    try:
        return common_type([Typed("", type_) for type_ in types], strings=False)
    except (NotConformant, LadleError):
        return None
