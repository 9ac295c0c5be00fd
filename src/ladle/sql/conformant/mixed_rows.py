"""Whether the rows that a query gives come in an order of their own, which a LIMIT without ORDER BY may go by.

What is grouped, joined or put together comes in an order that depends on how it was found. A LIMIT of such rows goes by
all their columns, so that it takes the same ones however they are found.
"""

from __future__ import annotations

from sqlglot import exp

from ladle.sql.conformant.folds import has_fold, outputs_of
from ladle.sql.conformant.parser_names import MIXED


def is_mixed(tree: exp.Expr | None) -> bool:
    """Whether rows come in an order that depends on how they were found, not in that of arrival or one asked for."""
    if tree is None or tree.args.get("order") is not None:
        return False
    match tree:
        case exp.Subquery():
            return is_mixed(tree.this)
        case exp.Select():
            parts = ("group", "having", "distinct", "joins")
            if any(tree.args.get(part) for part in parts) or any(map(has_fold, outputs_of(tree))):
                return True
            if _reads_subqueries(tree):
                return True
            clause = tree.args.get("from_")
            return clause is not None and is_mixed(clause.this)
        case exp.Table():
            return MIXED in tree.meta or is_mixed(_cte_of(tree))
    return isinstance(tree, exp.SetOperation)


def _reads_subqueries(tree: exp.Select) -> bool:
    """Whether conditions or outputs of a SELECT read subqueries, which are joined with its rows."""
    found = (tree.args.get("where"), tree.args.get("qualify"), *tree.expressions)
    return any(each is not None and each.find(exp.Query) is not None for each in found)


def _cte_of(table: exp.Table) -> exp.Expr | None:
    """The query that a name in FROM stands for, if it is that of a CTE: one that was defined before."""
    inside: exp.Expr = table
    around = table.parent
    while around is not None:
        clause = around if isinstance(around, exp.With) else around.args.get("with_")
        for cte in () if clause is None or clause is inside else clause.expressions:
            if cte is inside:
                break
            if cte.alias_or_name.lower() == table.name.lower():
                found: exp.Expr = cte.this
                return found
        inside, around = around, around.parent
    return None
