"""A window after a standing query in FROM: `nat [RANGE 3 SECONDS]`.

The time of a row that a query gives is that of the newest tuple that it is made of. So such a window goes down to where
tuples are read: into the window of the one stream, or to a condition on the newest time of those that are joined. Rows
that are made of many others (groups, the first n, differences) have no such time, and a window on them is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from ladle.clock import to_datetime
from ladle.errors import SqlError, Unsupported
from ladle.plan import AsOf
from ladle.plan.window import Bound, TimeWindow, Window
from ladle.sql.as_of_clause import now_of
from ladle.sql.bounds import window_of_bracket
from ladle.sql.names import Names, mentioned_stream
from ladle.sql.position import SourceText
from ladle.sql.resolve import has_aggregate
from ladle.sql.scopes import Around, Field, Relation, ScanDraft, Within

_NOW = Bound(0, relative=True)
_INSIDE = "write the window inside of it, after the stream that it reads"


def window_on_rows(bracket: exp.Expression, source: SourceText) -> TimeWindow:
    """The window that is written after a standing query."""
    window = window_of_bracket(bracket, source)
    if not isinstance(window, TimeWindow):
        raise SqlError(
            "[ROWS n] counts the tuples of a stream, and this is a standing query.",
            hint="write [RANGE interval], or [ROWS n] inside of it",
            position=source.of(bracket),
        )
    return window


def refuse_rows_of_many(node: exp.Select) -> None:
    """Refuse a SELECT whose rows are not each made of one tuple, or of one of each joined stream."""
    group = node.args.get("group") is not None or node.args.get("having") is not None
    if group or any(has_aggregate(each) for each in node.expressions):
        raise no_time("it groups its rows")
    if node.args.get("limit") is not None or node.args.get("offset") is not None:
        raise no_time("which rows it gives depends on all others")
    if node.args.get("qualify") is not None or any(each.find(exp.Window) for each in node.expressions):
        raise no_time("it computes something of many rows")


def no_time(why: str) -> Unsupported:
    """The error for a window on rows without a time."""
    return Unsupported(f"its rows have no time that a window could bound: {why}.", hint=_INSIDE)


class Mentions:
    """What stands in the FROM of a SELECT whose rows are bounded by windows: how these are passed on."""

    def __init__(self, node: exp.Select, around: Around, names: Names) -> None:
        self._names = names
        self._around = around
        joins = node.args.get("joins") or []
        kinds = [(join.args.get("kind") or "").upper() for join in joins]
        sides = [(join.args.get("side") or "").upper() for join in joins]
        from_ = node.args.get("from_")
        parts = [] if from_ is None else [from_.this]
        parts += [join.this for join, kind in zip(joins, kinds, strict=True) if kind not in ("SEMI", "ANTI")]
        moving = [part for part in parts if not self._is_still(part)]
        inner = {id(join.this) for join, side in zip(joins, sides, strict=True) if side != "LEFT"}
        always = not {"RIGHT", "FULL"}.intersection(sides)
        self._into = None
        if not moving:
            raise no_time("it reads no stream")
        if len(moving) == 1 and always and (moving[0] is parts[0] or id(moving[0]) in inner):
            self._into = moving[0]
        elif not all(self._is_stream(part) for part in moving):
            raise no_time("it joins what subqueries give")

    def around(self, part: exp.Expression) -> Around:
        """What one relation sees around it."""
        passed = part is self._into and not self._is_stream(part)
        return self._around if passed else replace(self._around, within=())

    def conditions(
        self, relations: Sequence[Relation], drafts: Sequence[ScanDraft], nows: dict[str, AsOf]
    ) -> list[exp.Expression]:
        """Narrows the one stream's window, and gives what is to be said in WHERE."""
        scans = [(each, drafts[each.scan]) for each in relations if each.scan is not None]
        within: Sequence[Within] = self._around.within
        if self._into is not None:
            if not self._is_stream(self._into):
                return []
            within = _narrowed(scans[0][1], within)
        times = [each.column(Field("ts", draft.schema.timestamp_column, plain=True)) for each, draft in scans]
        newest = times[0] if len(times) == 1 else exp.Anonymous(this="greatest", expressions=times)
        return _conditions(newest, within, nows)

    def _is_still(self, part: exp.Expression) -> bool:
        """Whether a relation has no rows with a time."""
        if isinstance(part, exp.Table | exp.Subquery) and part.args.get("pivots"):
            raise no_time("it groups its rows")
        if isinstance(part, exp.Lateral) and isinstance(part.this, exp.Subquery):
            raise no_time("it joins what subqueries give")
        if isinstance(part, exp.Subquery):
            return False
        if not isinstance(part, exp.Table) or isinstance(part.this, exp.Func):
            return True
        names = [each.name for each in part.parts]
        return (
            len(names) == 1
            and names[0].lower() not in self._around.ctes
            and (self._names.stream_schema(names[0]) is None and self._names.table_schema(names[0]) is not None)
        )

    def _is_stream(self, part: exp.Expression) -> bool:
        if not isinstance(part, exp.Table):
            return False
        names = [each.name for each in part.parts]
        return names[0].lower() not in self._around.ctes and mentioned_stream(self._names, names) is not None


def _narrowed(draft: ScanDraft, within: Sequence[Within]) -> list[Within]:
    """Narrow the window of a scan to others, as far as that is one window; those that are left to be conditions. NOW in
    the window of a scan is that of the scan, which may be read as of a moment of its own.
    """
    left = []
    for each in within:
        both = _both(draft.window, each.window) if each.past == draft.past else None
        if both is None:
            left.append(each)
        else:
            draft.window = both
    return left


def _conditions(newest: exp.Expression, within: Sequence[Within], nows: dict[str, AsOf]) -> list[exp.Expression]:
    """What says that a time is in windows."""
    found: list[exp.Expression] = []
    for each in within:
        begin, end = each.window.begin, each.window.end
        if begin is not None:
            found.append(exp.GT(this=newest.copy(), expression=_moment(begin, each.past, nows)))
        if end is not None:
            found.append(exp.LTE(this=newest.copy(), expression=_moment(end, each.past, nows)))
    return found


def _both(one: Window, other: TimeWindow) -> TimeWindow | None:
    """The window of tuples that are in both; None where no two bounds say it for every NOW."""
    if not isinstance(one, TimeWindow):
        return None
    if other == TimeWindow():
        return one
    begins = [each.begin for each in (one, other) if each.begin is not None]
    begin, end = _extreme(begins, last=True), _extreme([each.end or _NOW for each in (one, other)], last=False)
    if end is None or (begins and begin is None) or (begin is not None and begin.relative and not end.relative):
        return None
    return TimeWindow(begin, end)


def _extreme(bounds: Sequence[Bound], *, last: bool) -> Bound | None:
    """The last or first of some bounds at every NOW; None if that depends."""
    if len({(each.relative, each.months) for each in bounds}) != 1:
        return None
    return (max if last else min)(bounds, key=lambda each: each.us)


def _moment(bound: Bound, past: AsOf | None, nows: dict[str, AsOf]) -> exp.Expression:
    """A bound in an expression."""
    if not bound.relative:
        text = to_datetime(bound.us).isoformat(" ", "microseconds").removesuffix("+00:00")
        return exp.cast(exp.Literal.string(text), "timestamp")
    if bound.months:
        raise no_time("beside other windows, one in months can't be told for it; use days")
    now, us = now_of(past, nows), abs(bound.us)
    if not us:
        return now
    length = exp.Interval(this=exp.Literal.string(str(us)), unit=exp.Var(this="MICROSECOND"))
    return exp.Sub(this=now, expression=length) if bound.us < 0 else exp.Add(this=now, expression=length)
