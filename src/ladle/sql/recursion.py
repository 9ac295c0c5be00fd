"""WITH RECURSIVE: `t(n) AS (anchor UNION ALL step)`, where the step reads as `t` the rows that the last step gave.

What may stand where is Spark's rule: the anchor does not read `t`, and the step reads it neither below an aggregate, a
window function or an order, nor on a side of an outer join that may be missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.sql.position import SourceText
from ladle.sql.resolve import has_aggregate
from ladle.sql.scopes import Around, Cte, Field, Recursion

if TYPE_CHECKING:
    from ladle.sql.binder import Binder

_FORM = "write WITH RECURSIVE t AS (SELECT ... UNION ALL SELECT ... FROM t ...), with t in the last SELECT alone"


def recursion_of(cte: exp.CTE, named: Callable[[str], str], source: SourceText, *, recursive: bool) -> Recursion | None:
    """The recursion that a common table expression is, if it reads itself; `named` gives the name in the bound text."""
    level = cte.args.get("level")
    if level is not None and not recursive:
        raise SqlError("MAX RECURSION LEVEL is for WITH RECURSIVE.", hint="write RECURSIVE", position=source.of(level))
    own = frozenset([cte.alias.lower()])
    if not recursive or not _mentions(cte.this, own):
        return None
    before = cte.this.args.get("with_")
    for inner in before.expressions if before is not None else ():
        if early := _mentions(inner.this, own):
            raise _invalid(f"'{cte.alias}' is read before its last UNION ALL.", early[0], source)
    return Recursion(named(cte.alias), cte.args["alias"])


def is_wrapped(node: exp.Expression) -> bool:
    """Whether a query only stands in parentheses."""
    return isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query) and node.is_wrapper


def bind_recursion(binder: Binder, node: exp.Expression, around: Around) -> tuple[exp.Expression, tuple[Field, ...]]:
    """The bound query of a recursion. The anchor gives the columns."""
    recursion = around.recursion
    assert recursion is not None
    written = recursion.alias.name
    inside = replace(around, recursion=None)
    own = frozenset([written.lower()])
    if not isinstance(node, exp.Union) or any(node.args.get(key) for key in ("order", "limit", "offset", "by_name")):
        first = next(iter(_mentions(node, own)), None)
        raise _invalid(f"'{written}' reads itself, but is no UNION ALL of two queries.", first, binder.source)
    if node.args.get("distinct"):
        raise Unsupported(
            "A recursion is a UNION ALL: Spark has no UNION there.",
            hint="write UNION ALL, DISTINCT in the step, and a column that counts the steps, to end by it",
            position=binder.source.of(node.expression),
        )
    if early := _mentions(node.this, own):
        raise _invalid(f"'{written}' is read before its last UNION ALL.", early[0], binder.source)
    _StepRules(written, binder.source).check(node.expression, own, None)
    anchor, fields = binder.query(node.this, inside)
    fields = binder._renamed(anchor, fields, recursion.alias)
    ctes = {**around.ctes, written.lower(): Cte(recursion.name, fields)}
    position = binder.source.of(node.expression)
    step, others = binder.query(node.expression, replace(inside, ctes=ctes))
    if len(others) != len(fields):
        raise SqlError(
            f"Both sides of UNION must have the same number of columns, not {len(fields)} and {len(others)}.",
            position=position,
        )
    node.set("this", anchor)
    node.set("expression", step)
    return node, fields


def _invalid(message: str, at: exp.Expression | None, source: SourceText) -> SqlError:
    return SqlError(message, hint=_FORM, position=source.of(at))


def _mentions(tree: exp.Expression, names: frozenset[str]) -> list[exp.Table]:
    """The relations of these names that a query reads; what a WITH inside of it calls so is another."""
    found: list[exp.Table] = []
    stack: list[tuple[exp.Expr, frozenset[str]]] = [(tree, names)]
    while stack:
        node, known = stack.pop()
        if isinstance(node, exp.Table) and node.name.lower() in known and len(node.parts) == 1:
            found.append(node)
        with_ = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            own = frozenset([cte.alias.lower()])
            stack.append((cte.this, known - own if cte.parent.args.get("recursive") else known))
            known -= own
        stack.extend((each, known) for each in node.iter_expressions() if each is not with_)
    return found


@dataclass(frozen=True)
class _StepRules:
    """Checks where the step of a recursion reads it."""

    written: str
    source: SourceText

    def check(self, node: exp.Expr, names: frozenset[str], refused: str | None) -> None:
        """Refuse a mention of one of `names` in a query; `refused` is what the whole of it stands in, if that may
        read none.
        """
        with_ = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            own = frozenset([cte.alias.lower()])
            seen = names - own if cte.parent.args.get("recursive") else names
            self.check(cte.this, seen, None)
            # What reads the recursion under another name is held to the same.
            names = names | own if _mentions(cte.this, seen) else names - own
        refused = refused or ("in an order" if node.args.get("order") or node.args.get("sort") else None)
        match node:
            case exp.Select():
                self._check_select(node, names, refused)
            case exp.Subquery() if node.args.get("pivots"):
                self.check(node.this, names, "in PIVOT")
            case exp.Subquery():
                self.check(node.this, names, refused)
            case exp.SetOperation():
                self.check(node.this, names, refused)
                self.check(node.expression, names, refused)
            case exp.Table():
                self._check_table(node, names, refused)
            case _:
                self._check_inside(node, names, refused)

    def _check_table(self, table: exp.Table, names: frozenset[str], refused: str | None) -> None:
        why = refused or ("in PIVOT" if table.args.get("pivots") else None)
        if why is not None and table.name.lower() in names and len(table.parts) == 1:
            raise Unsupported(
                f"'{self.written}' can't be read by its own query {why}.",
                hint="read it in joins that keep its rows, and aggregate or order what WITH RECURSIVE gives",
                position=self.source.of(table),
            )

    def _check_select(self, select: exp.Select, names: frozenset[str], refused: str | None) -> None:
        outputs = select.expressions
        if any(each.find(exp.Window) for each in (*outputs, *filter(None, [select.args.get("qualify")]))):
            refused = refused or "beside a window function"
        grouped = select.args.get("group") is not None or any(map(has_aggregate, outputs))
        below = refused or ("in an aggregate" if grouped or select.args.get("having") is not None else None)
        from_ = select.args.get("from_")
        if from_ is not None:
            self._check_joined(from_.this, select.args.get("joins") or [], names, below)
        for key, value in select.args.items():
            if key not in ("from_", "joins", "with_"):
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, exp.Expr):
                        self._check_inside(each, names, refused if key in ("having", "qualify") else below)

    def _check_joined(self, first: exp.Expr, joins: list[exp.Join], names: frozenset[str], refused: str | None) -> None:
        """Relations of one FROM, from left to right: some joins leave rows of the one side or the other out."""
        members = [(first, refused)]
        for join in joins:
            kind = f"{join.side} {join.kind}".strip().upper()
            left = right = None
            if kind.startswith("FULL"):
                left = right = "in a FULL JOIN"
            elif kind.startswith("RIGHT"):
                left = "on the left side of a RIGHT JOIN"
            elif kind.startswith("LEFT") or kind.endswith(("SEMI", "ANTI")):
                right = f"on the right side of a {kind} JOIN"
            members = [(each, why or left) for each, why in members]
            members.append((join.this, refused or right))
            if join.args.get("on") is not None:
                self._check_inside(join.args["on"], names, refused)
        for member, why in members:
            self.check(member, names, why)
            if isinstance(member, exp.Table) and member.args.get("joins"):
                self._check_joined(member.this, member.args["joins"], names, why)

    def _check_inside(self, node: exp.Expr, names: frozenset[str], refused: str | None) -> None:
        """The queries in an expression."""
        stack = [node]
        while stack:
            part = stack.pop()
            if isinstance(part, exp.Query | exp.Table):
                self.check(part, names, refused)
            else:
                stack.extend(part.iter_expressions())
