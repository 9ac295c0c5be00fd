"""Residuals that only pick columns, which need neither DuckDB nor Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from ladle.sql.scopes import ScanDraft


def projection(tree: exp.Expr, drafts: Sequence[ScanDraft]) -> tuple[tuple[str, str], ...] | None:
    """(output, column) pairs when a query only picks columns of its one scan, also through subqueries that do."""
    if not isinstance(tree, exp.Select) or _has_more(tree, ("expressions", "from_")):
        return None
    columns = _columns(tree, drafts)
    if columns is None:
        return None
    pairs: list[tuple[str, str]] = []
    for item in tree.expressions:
        column = _column(item.this, columns)
        if column is None:
            return None
        pairs.append((item.alias, column))
    return tuple(pairs)


def picked(tree: exp.Expr, relation: str, schema: pa.Schema) -> tuple[tuple[str, str], ...] | None:
    """The columns and their names, where a query only picks columns of one relation, which it reads itself."""
    if not isinstance(tree, exp.Select) or _has_more(tree, ("expressions", "from_")):
        return None
    from_ = tree.args.get("from_")
    if from_ is None or not isinstance(from_.this, exp.Table) or from_.this.name != relation:
        return None
    pairs = [(item.alias, _column(item.this, {name: name for name in schema.names})) for item in tree.expressions]
    return tuple((name, column) for name, column in pairs if column is not None) if all(c for _, c in pairs) else None


def _columns(tree: exp.Select, drafts: Sequence[ScanDraft]) -> Mapping[str, str] | None:
    """The column behind each name that FROM brings; None unless it brings columns of the one scan as they are."""
    from_ = tree.args.get("from_")
    if len(drafts) != 1 or from_ is None or _has_more(from_.this, ("this", "alias")):
        return None
    if isinstance(from_.this, exp.Subquery):
        below = projection(from_.this.this, drafts)
        return None if below is None else dict(below)
    if isinstance(from_.this, exp.Table) and from_.this.name == drafts[0].relation:
        return {name: name for name in drafts[0].schema.arrow.names}
    return None


def _column(node: exp.Expr, columns: Mapping[str, str]) -> str | None:
    """The column that a node is."""
    return columns.get(node.name) if isinstance(node, exp.Column) else None


def _has_more(tree: exp.Expr, parts: tuple[str, ...]) -> bool:
    return any(value for key, value in tree.args.items() if key not in parts)
