"""Expressions without parts: literals, the parameter NOW, and sums of constant intervals."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from ladle.plan.as_of import is_parameter
from ladle.schema import TIMESTAMP
from ladle.sql.conformant.casts import literal, number
from ladle.sql.conformant.spark_types import BINARY, STRING, NotConformant, Typed


def written(node: exp.Literal) -> Typed:
    """A literal of a string or a number."""
    return literal(str(node.this), STRING) if node.is_string else number(str(node.this))


def hexadecimal(node: exp.HexString) -> Typed:
    """A binary literal, `X'...'`."""
    digits = str(node.this)
    if len(digits) % 2:
        raise NotConformant("a binary literal with an odd number of digits")
    return Typed(f"unhex('{digits}')", BINARY)


def parameter(node: exp.Placeholder) -> Typed:
    """The parameter NOW, or that of NOW as of an entry; there is no other."""
    if not is_parameter(node.name):
        raise NotConformant(f"the parameter :{node.name}")
    return Typed(f"CAST(${node.name} AS TIMESTAMP)", TIMESTAMP)


def folded_intervals(symbol: str, left: Typed, right: Typed) -> Typed:
    """The sum or difference of two constant intervals."""
    if not isinstance(left.constant, int) or not isinstance(right.constant, int):
        raise NotConformant("arithmetic of intervals that are not constant")
    total = left.constant + right.constant if symbol == "+" else left.constant - right.constant
    return replace(left, sql=str(total), constant=total, days_only=left.days_only and right.days_only)
