"""Types as Spark SQL writes them, as Arrow types."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from ladle.errors import Position, TypeMismatch
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ

_T = exp.DType
_PLAIN: dict[exp.DType, pa.DataType] = {
    _T.BOOLEAN: pa.bool_(),
    _T.TINYINT: pa.int8(),
    _T.SMALLINT: pa.int16(),
    _T.INT: pa.int32(),
    _T.BIGINT: pa.int64(),
    _T.FLOAT: pa.float32(),
    _T.DOUBLE: pa.float64(),
    _T.TEXT: pa.string(),
    _T.BINARY: pa.binary(),
    _T.VARBINARY: pa.binary(),
    _T.DATE: pa.date32(),
    _T.TIMESTAMPTZ: TIMESTAMP,
    _T.TIMESTAMPLTZ: TIMESTAMP,
    _T.TIMESTAMP: TIMESTAMP,
    _T.TIMESTAMPNTZ: TIMESTAMP_NTZ,
}

SPARK_TYPES = frozenset(
    (*_PLAIN, _T.DECIMAL, _T.ARRAY, _T.MAP, _T.STRUCT, _T.CHAR, _T.VARCHAR, _T.INTERVAL, _T.VARIANT, _T.NULL)
)
"""Types of Spark's that the parser writes as it read them; of others, such as TIME, it makes another."""


def arrow_type(tree: exp.DataType) -> pa.DataType:
    """The Arrow type of a type in Spark's DDL; TypeMismatch for one that Ladle has not."""
    kind = tree.this
    if kind in _PLAIN and not tree.expressions:
        return _PLAIN[kind]
    if kind == _T.DECIMAL:
        return _decimal(tree)
    if kind == _T.ARRAY and len(tree.expressions) == 1:
        return pa.list_(arrow_type(tree.expressions[0]))
    if kind == _T.MAP and len(tree.expressions) == 2:
        return pa.map_(arrow_type(tree.expressions[0]), arrow_type(tree.expressions[1]))
    if kind == _T.STRUCT and tree.expressions:
        return pa.struct([_field(each, tree) for each in tree.expressions])
    raise unknown_type(tree, position_of(tree))


def unknown_type(tree: exp.DataType, position: Position | None) -> TypeMismatch:
    """The error for a type that Ladle has not, by the name it was read as: Spark may have another of it."""
    name = tree.this.value if isinstance(tree.this, exp.DType) else tree.sql(dialect="spark")
    return _mismatch(tree, f"{name} is not a type that Ladle knows.", position)


def _decimal(tree: exp.DataType) -> pa.DataType:
    digits = [int(each.name) for each in tree.expressions]
    precision, scale = (digits + [10, 0][len(digits) :])[:2]
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise _mismatch(tree, f"DECIMAL({precision},{scale}) has not 1 to 38 digits, the scale being part of them.")
    return pa.decimal128(precision, scale)


def _field(each: exp.Expr, tree: exp.DataType) -> pa.Field:
    kind = each.args.get("kind")
    if not isinstance(each, exp.ColumnDef) or not isinstance(kind, exp.DataType):
        raise unknown_type(tree, position_of(tree))
    return pa.field(each.name, arrow_type(kind))


def _mismatch(tree: exp.DataType, message: str, position: Position | None = None) -> TypeMismatch:
    return TypeMismatch(
        message,
        hint="use BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, BINARY, "
        "DATE, TIMESTAMP, TIMESTAMP_NTZ, or ARRAY, STRUCT and MAP of these",
        position=position or position_of(tree),
    )


def position_of(node: exp.Expr) -> Position | None:
    """Where the first token of a node, or of what is in it, starts; the parser notes where tokens end."""
    found = [
        Position(meta["line"], max(1, meta["col"] - (meta.get("end", 0) - meta.get("start", 0))))
        for meta in (part.meta for part in node.walk())
        if "line" in meta and "col" in meta
    ]
    return min(found, key=lambda position: (position.line, position.column)) if found else None
