"""Time windows in GROUP BY: `window(at, '10 minutes')` and `session_window(at, '5 minutes')`, as Spark has them.

A SELECT that groups by one may name it: `window.start` in its SELECT list, in HAVING and in ORDER BY is a field of what
was grouped by, unless a column has that name. In the bound text the SELECT list has the call, as GROUP BY has, and
HAVING and ORDER BY have the name: above the groups Spark knows the window by its name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.sql.resolve import in_aggregate
from ladle.sql.scopes import Scope

_TIME_WINDOWS = frozenset(("window", "session_window"))

Windows = Mapping[str, exp.Expression]
"""The call that `window` or `session_window` stands for, in a SELECT that groups by it."""


def grouped_windows(select: exp.Select) -> Windows:
    """The time windows that an unbound SELECT groups by, also by number or alias."""
    group = select.args.get("group")
    if group is None:
        return {}
    items = select.expressions if group.args.get("all") else group.iter_expressions()
    found: dict[str, exp.Expression] = {}
    for call in _direct(items, select):
        found[call.name.lower()] = call.copy()
    return found


def check_time_windows(select: exp.Select, scope: Scope, projections: Sequence[exp.Expression]) -> None:
    """Refuse two different time windows in one SELECT, which Spark could not compute, and window_time of its own."""
    clauses = [select.args[key] for key in ("group", "having") if select.args.get(key) is not None]
    found: dict[exp.Expr, exp.Expr] = {}
    for tree in (*clauses, *projections):
        for node in _own(tree):
            if _is_call(node):
                found.setdefault(node, node)
            elif _is_window_time(node) and clauses and not in_aggregate(node):
                raise SqlError(
                    "window_time takes the window of a subquery, and is not computed for groups.",
                    hint="write SELECT window_time(window) FROM (SELECT window, ... GROUP BY window(...))",
                    position=scope.source.of(node),
                )
    if len(found) > 1:
        raise Unsupported(
            "A SELECT has one time window, and this has several.",
            hint="put one of them into a subquery",
            position=scope.source.of(list(found)[-1]),
        )


def name_windows(tree: exp.Expression, windows: Windows, scope: Scope) -> None:
    """Put names in place of the windows that are grouped by, in a bound condition of HAVING or key of ORDER BY."""
    for node in list(_own(tree)):
        if not _is_call(node):
            continue
        if node != windows.get(node.name.lower()):
            raise Unsupported(
                "A time window of groups is not part of Spark's SQL: it stands in GROUP BY, and is named elsewhere.",
                hint="write GROUP BY window(at, '10 minutes'), and window.start",
                position=scope.source.of(node),
            )
        node.replace(exp.column(exp.to_identifier(node.name.lower(), quoted=True)))


def _meant(item: exp.Expr, select: exp.Select) -> exp.Expr:
    """The projection that an item of GROUP BY names by number or alias, else the item itself."""
    if isinstance(item, exp.Literal) and not item.is_string and item.name.isdecimal():
        number = int(item.name)
        return select.expressions[number - 1] if 1 <= number <= len(select.expressions) else item
    if isinstance(item, exp.Column) and not item.table:
        for each in select.expressions:
            if isinstance(each, exp.Alias) and each.alias.lower() == item.name.lower():
                return each
    return item


def _direct(items: Iterable[exp.Expr], select: exp.Select) -> Iterator[exp.Anonymous]:
    """The items that are time windows themselves, also inside ROLLUP, CUBE and GROUPING SETS."""
    for item in items:
        meant = _meant(item.unnest(), select)
        match meant.this.unnest() if isinstance(meant, exp.Alias) else meant:
            case exp.Rollup() | exp.Cube() | exp.GroupingSets() | exp.Tuple() as several:
                yield from _direct(several.expressions, select)
            case exp.Anonymous() as call if _is_call(call):
                yield call


def _own(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression, without those of subqueries in it."""
    return tree.walk(prune=lambda each: isinstance(each, exp.Query))


def _is_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in _TIME_WINDOWS


def _is_window_time(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "window_time"
