"""QUALIFY and SORT BY, written as what the rest of the binder knows.

`SELECT a FROM t QUALIFY f` is `SELECT * EXCEPT (_qualify) FROM (SELECT a, f AS _qualify FROM t) WHERE _qualify`;
DISTINCT, ORDER BY, LIMIT and OFFSET come after it. SORT BY orders what each of Spark's tasks
gives, and an order of everything is one of those too.
"""

from __future__ import annotations

from sqlglot import exp

from ladle.errors import SqlError
from ladle.sql.position import SourceText

_KEPT = "_qualify"
_ORDER = "_order"


def without_qualify(node: exp.Select, source: SourceText) -> exp.Select:
    """The same query without QUALIFY."""
    condition = node.args["qualify"].this
    position = source.of(condition) or source.of(node)
    if not any(each.find(exp.Window) for each in (condition, *node.expressions)):
        raise SqlError(
            "QUALIFY keeps rows by a window function, and there is none.",
            hint="write WHERE, or HAVING after GROUP BY",
            position=position,
        )
    node.set("qualify", None)
    outer = exp.Select()
    for key in ("distinct", "order", "limit", "offset", "with_"):
        if (value := node.args.get(key)) is not None:
            node.set(key, None)
            outer.set(key, value)
    hidden = [_aliased(condition, _KEPT)]
    if outer.args.get("order") is not None and outer.args.get("distinct") is None:
        named = {each.alias.lower() for each in node.expressions if isinstance(each, exp.Alias)}
        for number, item in enumerate(outer.args["order"].expressions):
            if _is_output(item.this, named):
                continue
            name = f"{_ORDER}{number}"
            hidden.append(_aliased(item.this, name))
            item.set("this", exp.column(name))
    node.set("expressions", [*node.expressions, *hidden])
    star = exp.Star(except_=[exp.to_identifier(each.alias) for each in hidden])
    outer.set("expressions", [star])
    outer.set("from_", exp.From(this=exp.Subquery(this=node)))
    outer.set("where", exp.Where(this=exp.column(_KEPT)))
    return outer


def sorted_by(node: exp.Expression, source: SourceText) -> None:
    """SORT BY as ORDER BY, in place."""
    sort = node.args.get("sort")
    if sort is None:
        return
    if node.args.get("order") is not None:
        raise SqlError("ORDER BY and SORT BY are given together.", position=source.of(sort.expressions[0].this))
    node.set("sort", None)
    node.set("order", exp.Order(expressions=sort.expressions))


def _is_output(node: exp.Expr, named: set[str]) -> bool:
    """Whether ORDER BY means an output: by its position, or by the alias that it has."""
    if isinstance(node, exp.Literal) or (isinstance(node, exp.Var) and node.name.upper() == "ALL"):
        return True
    return isinstance(node, exp.Column) and not node.table and node.name.lower() in named


def _aliased(node: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=node.copy(), alias=exp.to_identifier(name, quoted=True))
