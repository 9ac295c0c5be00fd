"""Residuals of a simple shape, which need neither DuckDB nor Spark: picking columns, and folding them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from ladle.plan.aggregate import Aggregate, Fold, Make, Output, Partial
from ladle.plan.keys import KeyKind, key_kind
from ladle.schema import is_nested
from ladle.sql.conformant.nodes import call_of
from ladle.sql.conformant.spark_types import NotConformant
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
    """The same when a query only picks columns of one relation, which it reads itself."""
    if not isinstance(tree, exp.Select) or _has_more(tree, ("expressions", "from_")):
        return None
    from_ = tree.args.get("from_")
    if from_ is None or not isinstance(from_.this, exp.Table) or from_.this.name != relation:
        return None
    pairs = [(item.alias, _column(item.this, {name: name for name in schema.names})) for item in tree.expressions]
    return tuple((name, column) for name, column in pairs if column is not None) if all(c for _, c in pairs) else None


def aggregate(tree: exp.Expr, drafts: Sequence[ScanDraft]) -> Aggregate | None:
    """What a query folds that is nothing but COUNT, SUM, AVG, MIN, MAX of columns of its one scan, and their groups."""
    if not isinstance(tree, exp.Select) or _has_more(tree, ("expressions", "from_", "group")):
        return None
    columns = _columns(tree, drafts)
    if columns is None:
        return None
    group = tree.args.get("group")
    if group is not None and any(value for key, value in group.args.items() if key != "expressions"):
        return None
    types = drafts[0].schema.arrow
    groups: dict[str, int] = {}
    for node in group.expressions if group is not None else ():
        column = _column(node, columns)
        if column is None or not _is_group(types.field(column).type):
            return None
        groups.setdefault(column, len(groups))
    folding = _Folding(types, grouped=bool(groups))
    outputs: list[Output] = []
    for item in tree.expressions:
        column = _column(item.this, columns)
        if column is None:
            output = folding.output(item.this, columns)
        else:
            output = Output(Make.GROUP, groups[column]) if column in groups else None
        if output is None:
            return None
        outputs.append(output)
    if not groups and not folding.partials:
        return None
    return Aggregate(tuple(groups), tuple(folding.partials), tuple(outputs))


class _Folding:
    """Collects the partials of a query's aggregates, each once."""

    def __init__(self, types: pa.Schema, *, grouped: bool) -> None:
        self._types = types
        self._grouped = grouped
        self.partials: dict[Partial, int] = {}

    def output(self, node: exp.Expr, columns: Mapping[str, str]) -> Output | None:
        """An aggregate call as an output; None when it is something else, or more."""
        try:
            call = call_of(node)
        except NotConformant:
            return None
        if call is None or call.distinct:
            return None
        if call.name == "count" and (call.star or _is_literal(call.arguments)):
            return Output(Make.FOLDED, self._partial(Fold.ROWS, None))
        column = _column(call.arguments[0], columns) if len(call.arguments) == 1 else None
        if column is None:
            return None
        type_ = self._types.field(column).type
        match call.name:
            case "count":
                return Output(Make.FOLDED, self._partial(Fold.COUNT, column))
            case "min" | "max" if key_kind(type_) is KeyKind.INT64:
                return Output(Make.FOLDED, self._partial(Fold(call.name), column))
            case "sum" | "avg" if _is_number(type_):
                if call.name == "avg" and self._grouped and pa.types.is_decimal(type_):
                    return None
                total, count = self._partial(Fold.SUM, column), self._partial(Fold.COUNT, column)
                return Output(Make.AVERAGE if call.name == "avg" else Make.FOLDED, total, count)
            case _:
                return None

    def _partial(self, fold: Fold, column: str | None) -> int:
        return self.partials.setdefault(Partial(fold, column), len(self.partials))


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


def _is_literal(arguments: Sequence[exp.Expr]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], exp.Literal)


def _is_group(type_: pa.DataType) -> bool:
    # Floating groups have one zero and one NaN, which Arrow would tell apart.
    return not is_nested(type_) and not pa.types.is_floating(type_)


def _is_number(type_: pa.DataType) -> bool:
    number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    return number and key_kind(type_) is KeyKind.INT64
