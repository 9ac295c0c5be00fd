"""What names mean at a place of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from ladle.sql.conformant.spark_types import Typed

Columns = tuple[tuple[str, pa.DataType], ...]


@dataclass(frozen=True)
class NamedTable:
    """A relation or CTE that FROM may name."""

    name: str
    columns: Columns
    may_raise: bool = False


@dataclass(frozen=True)
class Subquery:
    """A rendered query."""

    sql: str
    columns: Columns
    may_raise: bool
    one_row: bool = False
    """An aggregate without GROUP BY: a correlated scalar subquery must be one."""
    correlated: bool = False


@dataclass(frozen=True)
class TypedScope:
    """Relations by alias, the enclosing scope, and what GROUP BY makes of rows."""

    sources: Mapping[str, Mapping[str, Typed]]
    query: Callable[[exp.Expr, TypedScope], Subquery] = field(repr=False)
    """Renders a subquery that stands in this scope."""
    tables: Mapping[str, NamedTable] = field(default_factory=dict)
    parent: TypedScope | None = None
    aliases: Mapping[str, Typed] = field(default_factory=dict)
    """Projections by name, where a clause may use them."""
    keys: Mapping[str, Typed] | None = None
    """Row-wise text of each GROUP BY expression to its key; None where there are rows, not groups."""
    windows: bool = False
    """Whether OVER is allowed here."""
    conditional: bool = False
    """Whether a value may go unevaluated here, as in CASE: what can't be cast is no error before it is."""
    named_windows: Mapping[str, exp.Window] = field(default_factory=dict)
    time_windows: bool = False
    """Whether the query groups by a time window, so that rows without a time are left out."""
    session: Typed | None = None
    """The session window of a row, in a query that groups by it."""


def quoted(name: str) -> str:
    """A name as DuckDB quotes it."""
    return '"' + name.replace('"', '""') + '"'
