"""What of Spark SQL (4.3, ANSI mode) DuckDB may run, with Spark's types, as exact DuckDB SQL.

Spark defines what an expression means. DuckDB runs one only when every function, operator and cast of it is on the
list (`conformant.functions`, `conformant.casts`) that the conformance test proves equal on random values; anything else
is NotConformant, and Spark runs it. Functions that neither Spark nor Ladle knows are refused, as are those that would
reach outside the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from ladle.schema import is_supported, type_name
from ladle.sql.conformant.datatypes import arrow_type
from ladle.sql.conformant.expressions import condition, expression
from ladle.sql.conformant.folds import has_fold
from ladle.sql.conformant.known import check_functions
from ladle.sql.conformant.relations import query, root_scope
from ladle.sql.conformant.scope import TypedScope, quoted
from ladle.sql.conformant.spark_types import NotConformant, Typed

__all__ = [
    "NotConformant",
    "Translated",
    "TranslatedFactor",
    "arrow_type",
    "check_functions",
    "translate_factor",
    "translate_query",
    "translate_scalar",
    "translate_value",
]


@dataclass(frozen=True)
class Translated:
    """A SELECT as DuckDB runs it, with the schema that Spark gives it."""

    sql: str
    schema: pa.Schema
    may_raise: bool
    """Whether evaluation can raise on some values."""


@dataclass(frozen=True)
class TranslatedFactor:
    """A factor as DuckDB evaluates it."""

    sql: str
    may_raise: bool


def translate_query(tree: exp.Expression, relations: Mapping[str, pa.Schema]) -> Translated:
    """A fully qualified query over these relations; NotConformant when Spark has to run it."""
    found = query(tree, root_scope(relations))
    for name, type_ in found.columns:
        if not is_supported(type_):
            raise NotConformant(f"column {name} of type {type_name(type_)}")
    schema = pa.schema([pa.field(name, type_) for name, type_ in found.columns])
    return Translated(found.sql, schema, found.may_raise)


def translate_factor(tree: exp.Expression, columns: Mapping[str, pa.DataType]) -> TranslatedFactor:
    """A boolean over unqualified columns; in the text they have their physical names, quoted."""
    found = condition(tree, _over(tree, columns))
    return TranslatedFactor(found.sql, found.may_raise)


def translate_value(tree: exp.Expression, columns: Mapping[str, pa.DataType]) -> Typed:
    """An expression of any type, as DuckDB evaluates it."""
    return expression(tree, _over(tree, columns))


def translate_scalar(
    tree: exp.Expression, relation: str, columns: Mapping[str, pa.DataType], *, folds: bool = False
) -> Typed:
    """An expression over the columns of one relation; with `folds` it may call aggregates, and the time windows that
    rows are grouped by.
    """
    if tree.find(exp.Query) is not None:
        raise NotConformant("a subquery in an expression")
    names = {name.lower(): Typed(quoted(name), type_) for name, type_ in columns.items()}
    scope = TypedScope({relation.lower(): names}, query=root_scope({}).query, time_windows=folds)
    return expression(tree, replace(scope, keys={}) if folds and has_fold(tree) else scope)


def _over(tree: exp.Expression, columns: Mapping[str, pa.DataType]) -> TypedScope:
    if tree.find(exp.Query) is not None:
        raise NotConformant("a subquery in a factor")
    names = {name.lower(): Typed(quoted(name), type_) for name, type_ in columns.items()}
    return TypedScope({}, query=root_scope({}).query, aliases=names)
