"""`GROUP BY window(at, '10 minutes', '1 minute')` and `session_window(at, '5 minutes')`, as structs of start and end.

Spark cuts time into windows from 1970 on, or from the offset given, and leaves out rows without a time. A row is in as
many windows as overlap: it is joined with their numbers. A session begins with a row that comes later than the gap
after the one before it, of rows with the same keys: window functions over these find where it begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from ladle.sql.conformant.casts import MOMENTS
from ladle.sql.conformant.intervals import interval
from ladle.sql.conformant.scope import TypedScope
from ladle.sql.conformant.spark_types import DURATION, NotConformant, Typed

NUMBERS = "_windows"
"""The relation of the numbers of windows that a row is in."""
SESSIONS = "_sessions"
"""The relation of rows with their sessions."""
_OVERLAPS_MAX = 10_000
"""Beyond that many windows for each row Spark, which can spill, is better."""


@dataclass(frozen=True)
class Spans:
    """The lengths of `window(at, size, slide, offset)`."""

    size_us: int
    slide_us: int
    offset_us: int

    @property
    def overlaps(self) -> int:
        """How many windows a row is in, at most."""
        return -(-self.size_us // self.slide_us)


def is_window(node: exp.Expr) -> bool:
    """Whether a node is a call of `window`."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == "window"


def is_session(node: exp.Expr) -> bool:
    """Whether a node is a call of `session_window`."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == "session_window"


def is_time_window(node: exp.Expr) -> bool:
    """Whether a node is a call that groups by time."""
    return is_window(node) or is_session(node)


def time_window(node: exp.Anonymous, scope: TypedScope, rendered: Callable[[exp.Expr], Typed]) -> Typed:
    """The window or the session of a row, in a query that groups by it; `rendered` makes the text of its time."""
    if scope.time_windows and is_window(node) and len(node.expressions) > 1:
        return windowed(node, rendered(node.expressions[0]))
    if scope.session is None or is_window(node):
        raise NotConformant("a time window that is not grouped by is not proven equal in DuckDB")
    return scope.session


def window_type(moment: pa.DataType) -> pa.DataType:
    """The type of a time window: a struct of its start and end."""
    return pa.struct([("start", moment), ("end", moment)])


def is_window_type(type_: pa.DataType) -> bool:
    """Whether a type is that of a time window."""
    return any(type_ == window_type(moment) for moment in MOMENTS)


def spans_of(node: exp.Anonymous) -> Spans:
    """The lengths that a call has, if they are constant and not of months."""
    if not 2 <= len(node.expressions) <= 4:
        raise NotConformant("this form of a time window")
    size, *rest = [_microseconds(each) for each in node.expressions[1:]]
    slide, offset = (*rest, *[size, 0][len(rest) :])[:2]
    if not 0 < slide <= size or abs(offset) >= slide:
        raise NotConformant("a time window of these lengths")
    return Spans(size, slide, offset)


def gap_of(node: exp.Anonymous) -> int:
    """The gap of a session, if it is constant."""
    if len(node.expressions) != 2:
        raise NotConformant("this form of a session window")
    gap = _microseconds(node.expressions[1])
    if gap <= 0:
        raise NotConformant("a session without a gap")
    return gap


def windowed(node: exp.Anonymous, at: Typed) -> Typed:
    """The window that a row is in, by its number if it may be in several."""
    _check_moment(at)
    spans = spans_of(node)
    start = _start(spans, at)
    pack = f'struct_pack("start" := make_timestamp({start}), "end" := make_timestamp({start} + {spans.size_us}))'
    return Typed(pack, window_type(at.type), at.may_raise)


def numbers(node: exp.Anonymous) -> str | None:
    """What is joined with rows that may be in several windows."""
    overlaps = spans_of(node).overlaps
    if overlaps > _OVERLAPS_MAX:
        raise NotConformant("a row is in more windows than DuckDB is given")
    return None if overlaps == 1 else f'CROSS JOIN range({overlaps}) AS "{NUMBERS}"("n")'


def inside(node: exp.Anonymous, at: Typed) -> str | None:
    """Whether a row is in the window of a number; None: it always is."""
    spans = spans_of(node)
    if spans.size_us % spans.slide_us == 0:
        return None
    return f"epoch_us({at.sql}) < {_start(spans, at)} + {spans.size_us}"


def _start(spans: Spans, at: Typed) -> str:
    us = f"epoch_us({at.sql})"
    # % has the sign of the moment, which may be before 1970
    slide = spans.slide_us
    last = f"{us} - ((({us} - {spans.offset_us}) % {slide}) + {slide}) % {slide}"
    return f"({last})" if spans.overlaps == 1 else f'({last} - "{NUMBERS}"."n" * {slide})'


def sessions(rows: str, gap_us: int, keys: Sequence[str]) -> str:
    """FROM: rows that have a time `t`, in microseconds, with begin `b` and last time `e` of their sessions."""
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    before = f"SELECT *, lag(t) OVER ({by}ORDER BY t) AS p FROM ({rows})"
    first = f"CASE WHEN p IS NULL OR t > p + {gap_us} THEN t END"
    begun = f"SELECT *, max({first}) OVER ({by}ORDER BY t) AS b FROM ({before})"
    return f'(SELECT *, max(t) OVER (PARTITION BY {", ".join([*keys, "b"])}) AS e FROM ({begun})) AS "{SESSIONS}"'


def session(at: Typed, gap_us: int) -> Typed:
    """The session of such a row."""
    _check_moment(at)
    start, end = f'make_timestamp("{SESSIONS}".b)', f'make_timestamp("{SESSIONS}".e + {gap_us})'
    return Typed(f'struct_pack("start" := {start}, "end" := {end})', window_type(at.type), at.may_raise)


def field(value: Typed, name: str) -> Typed:
    """`window.start` and `window.end`."""
    moments = [each for each in MOMENTS if value.type == window_type(each)]
    if not moments or name.lower() not in ("start", "end"):
        raise NotConformant("fields of a STRUCT are not proven equal in DuckDB")
    return Typed(f"struct_extract({value.sql}, '{name.lower()}')", moments[0], value.may_raise)


def _check_moment(at: Typed) -> None:
    if at.type not in MOMENTS:
        raise NotConformant("a window of something that is not a timestamp")


def _microseconds(node: exp.Expr) -> int:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise NotConformant("a window whose length is not a text")
    text = node.name.strip().lower().removeprefix("interval ")
    length = interval(exp.Interval(this=exp.Literal.string(text)))
    if length.type != DURATION or not isinstance(length.constant, int):
        raise NotConformant("a window of months")
    return length.constant
