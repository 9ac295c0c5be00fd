"""Time windows that groups have for a key: a node below the groups, which gives each row its windows or its session."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from ladle.plan.nodes import Node, OutputColumn, Sessions, TimeWindows
from ladle.plan.scalars import Scalar
from ladle.sql.conformant.spark_types import NotConformant
from ladle.sql.conformant.window_structs import gap_of, is_session, is_time_window, spans_of, window_type
from ladle.sql.peel.rows import NodeRows, NotUnderstood
from ladle.sql.peel.scalar_text import scalar


def windowed(keys: Sequence[exp.Expr], below: NodeRows) -> Node | None:
    """The rows below groups with their windows; None if no key is a window."""
    calls = [key for key in keys if is_time_window(key)]
    if not calls:
        return None
    if len(calls) > 1 or not calls[0].expressions:
        raise NotUnderstood("this form of a time window")
    (call,) = calls
    assert isinstance(call, exp.Anonymous)
    time = scalar(call.expressions[0], below)
    try:
        if is_session(call):
            gap_us = gap_of(call)
            others = tuple(scalar(key, below) for key in keys if key is not call)
            return Sessions(_columns(below, call, time), below.node, time, gap_us, others)
        spans = spans_of(call)
    except NotConformant:
        raise NotUnderstood("a time window whose lengths are not constant, or are months") from None
    return TimeWindows(_columns(below, call, time), below.node, time, spans.size_us, spans.slide_us, spans.offset_us)


def _columns(below: NodeRows, call: exp.Anonymous, time: Scalar) -> tuple[OutputColumn, ...]:
    moment: pa.DataType | None = time.type
    type_ = None if moment is None else window_type(moment)
    return (*below.node.columns, OutputColumn(call.name.lower(), type_))
