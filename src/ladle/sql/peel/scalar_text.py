"""Expressions of a bound text as scalars: columns become holes, and DuckDB's text is made where it is proven equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from ladle.errors import LadleError
from ladle.plan.as_of import NOW
from ladle.plan.scalars import ColumnRef, Scalar
from ladle.sql.conform import NotConformant, translate_scalar
from ladle.sql.dialect import DIALECT
from ladle.sql.peel.rows import NodeRows, NotUnderstood
from ladle.sql.trees import copied

_MARK = "\x01"
"""Stands around the number of a hole; a text that has it itself is not peeled."""
_RELATION = "_r"
_SPARK_HOLE = re.compile(f"`{_RELATION}`\\.`{_MARK}(\\d+){_MARK}`")
_DUCKDB_HOLE = re.compile(f'"{_MARK}(\\d+){_MARK}"')


@dataclass(frozen=True)
class Proven:
    """A scalar, and whether evaluating it may raise: it may, unless it is proven that it can't."""

    scalar: Scalar
    may_raise: bool


def scalar(tree: exp.Expr, *rows: NodeRows, folds: bool = False) -> Scalar:
    """An expression over the rows of one child or several."""
    return prove(tree, *rows, folds=folds).scalar


def prove(tree: exp.Expr, *rows: NodeRows, folds: bool = False) -> Proven:
    """An expression as a scalar: Spark's text with holes for columns, and DuckDB's where it is proven equal."""
    tree = unwrapped(tree)
    if _MARK in tree.sql(DIALECT):
        raise NotUnderstood("a text with control characters")
    marked, columns = _marked(tree, rows)
    spark = _with_holes(marked.sql(DIALECT), _SPARK_HOLE)
    uses_now = any(node.name == NOW for node in marked.find_all(exp.Placeholder))
    types = _types(columns, rows)
    if types is not None:
        try:
            typed = translate_scalar(marked, _RELATION, types, folds=folds)
        except (NotConformant, LadleError):
            pass
        else:
            duckdb = _with_holes(typed.sql, _DUCKDB_HOLE)
            return Proven(Scalar(spark, columns, duckdb, typed.type, uses_now), typed.may_raise)
    if spark == "{0}":
        child, at = columns[0]
        return Proven(Scalar(spark, columns, spark, rows[child].node.columns[at].type), may_raise=False)
    return Proven(Scalar(spark, columns, uses_now=uses_now), may_raise=True)


def unwrapped(tree: exp.Expr) -> exp.Expr:
    """Without parentheses around the whole of it."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def column_of(tree: exp.Column, rows: Sequence[NodeRows]) -> tuple[ColumnRef, list[exp.Expr]]:
    """The column that a name means, and the fields of it that the rest of the name picks."""
    parts = tree.parts
    if len(parts) < 2 or not all(isinstance(part, exp.Identifier) for part in parts):
        raise NotUnderstood(f"the name {tree.sql(DIALECT)}")
    for child, each in enumerate(rows):
        at = each.find(parts[0].name, parts[1].name)
        if at is not None:
            return (child, at), list(parts[2:])
    raise NotUnderstood(f"the name {tree.sql(DIALECT)}")


def _marked(tree: exp.Expr, rows: Sequence[NodeRows]) -> tuple[exp.Expression, tuple[ColumnRef, ...]]:
    """The tree with a hole for each column, and the columns in order."""
    holder = exp.Paren(this=copied(tree))
    found: dict[ColumnRef, int] = {}
    for column in list(holder.find_all(exp.Column)):
        reference, fields = column_of(column, rows)
        number = found.setdefault(reference, len(found))
        hole: exp.Expr = exp.column(_quoted(f"{_MARK}{number}{_MARK}"), table=_quoted(_RELATION))
        for field in fields:
            hole = exp.Dot(this=hole, expression=field.copy())
        column.replace(hole)
    return holder.this, tuple(found)


def _types(columns: Sequence[ColumnRef], rows: Sequence[NodeRows]) -> dict[str, pa.DataType] | None:
    types: dict[str, pa.DataType] = {}
    for number, (child, at) in enumerate(columns):
        type_ = rows[child].node.columns[at].type
        if type_ is None:
            return None
        types[f"{_MARK}{number}{_MARK}"] = type_
    return types


def _with_holes(text: str, hole: re.Pattern[str]) -> str:
    return hole.sub(r"{\1}", text.replace("{", "{{").replace("}", "}}"))


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)
