"""QUALIFY, SORT BY, CLUSTER BY and DISTRIBUTE BY, written as what the rest of the binder knows.

`SELECT a FROM t QUALIFY f` is `SELECT * EXCEPT (_qualify) FROM (SELECT a, f AS _qualify FROM t) WHERE _qualify`;
DISTINCT, ORDER BY, LIMIT and OFFSET come after it. SORT BY and CLUSTER BY order what each of
Spark's tasks gives, and an order of everything is one of those too. DISTRIBUTE BY changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.sql.position import SourceText
from ladle.sql.resolve import has_aggregate
from ladle.sql.trees import aliased, wrapped

_KEPT = "_qualify"
_ORDER = "_order"
_CLAUSES = {"distribute": "DISTRIBUTE BY", "order": "ORDER BY", "sort": "SORT BY", "cluster": "CLUSTER BY"}


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
    outer = wrapped(node)
    hidden = [aliased(condition.copy(), _KEPT)]
    if outer.args.get("order") is not None and outer.args.get("distinct") is None:
        named = {each.alias.lower() for each in node.expressions if isinstance(each, exp.Alias)}
        for number, item in enumerate(outer.args["order"].expressions):
            if _is_output(item.this, named):
                continue
            name = f"{_ORDER}{number}"
            hidden.append(aliased(item.this.copy(), name))
            item.set("this", exp.column(name))
    node.set("expressions", [*node.expressions, *hidden])
    star = exp.Star(except_=[exp.to_identifier(each.alias) for each in hidden])
    outer.set("expressions", [star])
    outer.set("from_", exp.From(this=exp.Subquery(this=node)))
    outer.set("where", exp.Where(this=exp.column(_KEPT)))
    return outer


def sorted_by(node: exp.Expression, source: SourceText) -> None:
    """SORT BY and CLUSTER BY as ORDER BY, in place."""
    given = [name for name in _CLAUSES if node.args.get(name) is not None]
    if len(given) > 1 and given != ["distribute", "sort"]:
        words = [_CLAUSES[name] for name in given]
        position = source.of(node.args[given[-1]].expressions[0])
        raise SqlError(f"{words[-2]} and {words[-1]} are given together.", position=position)
    if (cluster := node.args.get("cluster")) is not None:
        node.set("cluster", None)
        node.set(
            "order", exp.Order(expressions=[exp.Ordered(this=each, nulls_first=True) for each in cluster.expressions])
        )
    elif (sort := node.args.get("sort")) is not None:
        node.set("sort", None)
        node.set("order", exp.Order(expressions=sort.expressions))


def without_places(node: exp.Expression, bind: Callable[[exp.Expression], exp.Expression], source: SourceText) -> None:
    """Take DISTRIBUTE BY off, which says where rows are, once what it names is known to be there."""
    distribute = node.args.get("distribute")
    if distribute is None:
        return
    node.set("distribute", None)
    for each in distribute.expressions:
        if each.find(exp.Query, exp.Window) is not None or has_aggregate(each):
            raise Unsupported(
                "DISTRIBUTE BY takes no subqueries, window functions or aggregates.",
                hint="put it into the SELECT list, give it a name with AS, and write that",
                position=source.of(each),
            )
        bind(each)


def _is_output(node: exp.Expr, named: set[str]) -> bool:
    """Whether ORDER BY means an output: by its position, or by the alias that it has."""
    if isinstance(node, exp.Literal) or (isinstance(node, exp.Var) and node.name.upper() == "ALL"):
        return True
    return isinstance(node, exp.Column) and not node.table and node.name.lower() in named
