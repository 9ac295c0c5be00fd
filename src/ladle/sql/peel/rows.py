"""What rules work with: the rows that a part of a bound text gives, and the relations that it may name."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from sqlglot import exp

from ladle.plan.nodes import Node, OutputColumn, Project, StreamScan, TableScan
from ladle.plan.scalars import Scalar
from ladle.sql.trees import copied

INNER_JOINS = ("", "INNER", "CROSS")
NO_RELATION = "FROM reads something that is neither a stream, a table nor a query"


class NotUnderstood(Exception):
    """A rule sees what it can't peel: the block stays a fragment, which says why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


Qualified = tuple[str, str]
"""(alias, column)."""


@dataclass(frozen=True)
class NodeRows:
    """A node, and how the text around it names its columns: by (alias, column), in lower case."""

    node: Node
    labels: tuple[Qualified, ...]

    @cached_property
    def _positions(self) -> dict[Qualified, int]:
        return {label: at for at, label in enumerate(self.labels)}

    @cached_property
    def aliases(self) -> frozenset[str]:
        """The relations that its columns come from."""
        return frozenset(alias for alias, _ in self.labels)

    def find(self, alias: str, name: str) -> int | None:
        """The position of a column of a relation, or None."""
        return self._positions.get((alias.lower(), name.lower()))


@dataclass(frozen=True)
class NamedRelations:
    """The relations that a block may name, in lower case: scans, tables, common table expressions, derived tables."""

    relations: Mapping[str, Node]
    peel: Callable[[exp.Expression, NamedRelations], NodeRows]

    def with_relations(self, more: Mapping[str, Node]) -> NamedRelations:
        """These surroundings with more relations that may be named."""
        return replace(self, relations={**self.relations, **{name.lower(): node for name, node in more.items()}})


def outputs_of(node: Node) -> NodeRows:
    """The rows of a whole query: nothing qualifies its columns."""
    return labelled(node, "")


def labelled(node: Node, alias: str) -> NodeRows:
    """The rows of a relation that is read under an alias."""
    return NodeRows(node, tuple((alias.lower(), name.lower()) for name in node.names))


def renamed(node: Node, columns: tuple[OutputColumn, ...]) -> Node:
    """A node whose columns are called otherwise. A stream's and a table's are read by their names, and keep them."""
    names = tuple(column.name for column in columns)
    if not isinstance(node, StreamScan | TableScan) or names == node.names:
        return replace(node, columns=columns)
    return Project(columns, node, tuple(Scalar("{0}", ((0, at),), "{0}", each.type) for at, each in enumerate(columns)))


def fresh(name: str, taken: Container[str]) -> str:
    """A name that is none of those that are taken: people may call their relations anything."""
    number, found = 0, name
    while found in taken:
        number += 1
        found = f"{name}{number}"
    return found


def is_rows(query: exp.Expression) -> bool:
    """Whether a block is `SELECT *`: what is left when everything above FROM and WHERE was peeled. Bound texts have no
    star of their own.
    """
    return isinstance(query, exp.Select) and len(query.expressions) == 1 and isinstance(query.expressions[0], exp.Star)


def rows_below(select: exp.Select) -> exp.Select:
    """`SELECT *` over the FROM and WHERE of a block."""
    below = exp.Select(expressions=[exp.Star()])
    for key in ("from_", "joins", "where"):
        value = select.args.get(key)
        if value:
            below.set(key, [copied(each) for each in value] if isinstance(value, list) else copied(value))
    return below


def without(query: exp.Expression, *keys: str) -> exp.Expression:
    """A copy without some clauses."""
    rest = copied(query)
    for key in keys:
        rest.set(key, None)
    return rest


def sources(select: exp.Select) -> list[exp.Expression]:
    """What FROM reads, in order."""
    from_ = select.args.get("from_")
    return [] if from_ is None else [from_.this, *(join.this for join in select.args.get("joins") or ())]


def check_from(select: exp.Select, around: NamedRelations) -> None:
    """Refuse a FROM that reads anything but relations that are known."""
    read = sources(select)
    if not read:
        raise NotUnderstood("no relation is read")
    if select.args.get("laterals"):
        raise NotUnderstood("LATERAL VIEW makes rows of its own")
    for each in read:
        if not isinstance(each, exp.Table) or each.name.lower() not in around.relations:
            raise NotUnderstood(NO_RELATION)
        if any(value for key, value in each.args.items() if key not in ("this", "alias")):
            raise NotUnderstood("clauses of a relation in FROM")
        if each.args.get("alias") is not None and each.args["alias"].args.get("columns"):
            raise NotUnderstood("a relation whose columns are named anew")


def check_expressions(*trees: exp.Expr, but_for_subqueries: bool = False) -> None:
    """Refuse what is not computed of one row, or one group, alone."""
    for tree in trees:
        if not but_for_subqueries and tree.find(exp.Query) is not None:
            raise NotUnderstood("a subquery in an expression")
        if tree.find(exp.Window) is not None:
            raise NotUnderstood("a window function")


def kind_of(join: exp.Join) -> str:
    """The kind of a join as it is written, like LEFT or FULL OUTER."""
    return f"{join.side} {join.kind}".strip().upper()
