"""Scalars of plan nodes: expressions over the columns of a node's children, as the binder proved them.

A scalar is a text with holes (`{0} > 5`) and, for each hole, the column that fills it: (child, position). So neither
the alias nor the column name that somebody chose is part of it, and two queries that compute the same have one scalar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ladle.plan.join import Relop

ColumnRef = tuple[int, int]
"""(child, position of the column in that child's rows)."""


@dataclass(frozen=True)
class Scalar:
    """An expression, or the call of an aggregate function. Braces that belong to the text itself are doubled."""

    spark: str
    columns: tuple[ColumnRef, ...]
    duckdb: str | None = field(default=None, compare=False)
    """None: it is not proven that DuckDB computes the same, or the types of its columns are not known."""
    type: pa.DataType | None = field(default=None, compare=False)
    uses_now: bool = field(default=False, compare=False)
    """Whether it mentions NOW, which is `:now` in Spark's text and `$now` in DuckDB's."""

    def over(self, names: Sequence[Sequence[str]]) -> str:
        """Spark's text over children whose columns have these names."""
        return self.spark.format(*(names[child][at] for child, at in self.columns))

    @property
    def column(self) -> ColumnRef | None:
        """The column that it is, if it is nothing else."""
        return self.columns[0] if self.spark == "{0}" else None


@dataclass(frozen=True)
class Comparison:
    """What joins two children: `left` is over the first one's columns alone, `right` over the second one's."""

    left: Scalar
    relop: Relop
    right: Scalar

    def over(self, names: Sequence[Sequence[str]]) -> str:
        """The comparison as text over columns of these names, a list for each child."""
        return f"{self.left.over(names)} {self.relop.value} {self.right.over(names)}"


@dataclass(frozen=True)
class SortKey:
    """A key of an order."""

    scalar: Scalar
    descending: bool = False
    nulls_first: bool = True

    def over(self, names: Sequence[Sequence[str]]) -> str:
        """The key as text over columns of these names, a list for each child."""
        way = "DESC" if self.descending else "ASC"
        return f"{self.scalar.over(names)} {way} NULLS {'FIRST' if self.nulls_first else 'LAST'}"
