"""UNION, INTERSECT and EXCEPT, of bags (ALL) and of sets."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from ladle.errors import LadleError
from ladle.plan.nodes import Except, Intersect, OutputColumn, SetOperation, Union
from ladle.sql.conformant.spark_types import NotConformant, Typed, common_type
from ladle.sql.peel.rows import NamedRelations, NodeRows, NotUnderstood, outputs_of

_NODES: dict[type[exp.Expr], type[SetOperation]] = {exp.Union: Union, exp.Intersect: Intersect, exp.Except: Except}


def set_operations(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take UNION, INTERSECT or EXCEPT off."""
    node = _NODES.get(type(query))
    if node is None:
        return None
    if any(value for key, value in query.args.items() if key not in ("this", "expression", "distinct")):
        raise NotUnderstood("this form of a set operation")
    left, right = (around.peel(side, around).node for side in (query.this, query.expression))
    columns = tuple(
        OutputColumn(one.name, _common(one.type, other.type))
        for one, other in zip(left.columns, right.columns, strict=True)
    )
    return outputs_of(node(columns, left, right, not query.args.get("distinct")))


def _common(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None:
        return None
    try:
        return common_type([Typed("", one), Typed("", other)])
    except (NotConformant, LadleError):
        return None
