"""`GROUP BY window(at, '10 minutes')`: windows that don't overlap, as a struct of start and end.

Spark cuts time into windows from 1970 on, or from the offset given, and leaves out rows without a time. Windows that
overlap make several rows of one, and sessions depend on the rows around: Spark runs those.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from sqlglot import exp

from ladle.sql.conformant.casts import MOMENTS
from ladle.sql.conformant.intervals import interval
from ladle.sql.conformant.spark_types import DURATION, NotConformant, Typed


def is_window(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "window"


def window_type(moment: pa.DataType) -> pa.DataType:
    return pa.struct([("start", moment), ("end", moment)])


def tumbling(node: exp.Anonymous, at: Typed) -> Typed:
    """The window that a moment is in."""
    if at.type not in MOMENTS:
        raise NotConformant("a window of something that is not a timestamp")
    length, *rest = [_microseconds(each) for each in node.expressions[1:]]
    slide, offset = (*rest, *[length, 0][len(rest) :])[:2]
    if length <= 0 or slide != length or len(rest) > 2:
        raise NotConformant("windows that overlap are not proven equal in DuckDB")
    us = f"epoch_us({at.sql})"
    # % has the sign of the moment, which may be before 1970
    start = f"({us} - ((({us} - {offset}) % {length}) + {length}) % {length})"
    pack = f'struct_pack("start" := make_timestamp({start}), "end" := make_timestamp({start} + {length}))'
    return Typed(pack, window_type(at.type), at.may_raise)


def field(value: Typed, name: str) -> Typed:
    """`window.start` and `window.end`."""
    moments = [each for each in MOMENTS if value.type == window_type(each)]
    if not moments or name.lower() not in ("start", "end"):
        raise NotConformant("fields of a STRUCT are not proven equal in DuckDB")
    return Typed(f"struct_extract({value.sql}, '{name.lower()}')", moments[0], value.may_raise)


def times(keys: Iterable[exp.Expr]) -> list[exp.Expr]:
    """The times of the windows that are grouped by."""
    return [each.expressions[0] for each in keys if is_window(each) and each.expressions]


def _microseconds(node: exp.Expr) -> int:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise NotConformant("a window whose length is not a text")
    text = node.name.strip().lower().removeprefix("interval ")
    length = interval(exp.Interval(this=exp.Literal.string(text)))
    if length.type != DURATION or not isinstance(length.constant, int):
        raise NotConformant("a window of months")
    return length.constant
