"""Queries in FROM: each is peeled, once, and read by name from then on."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from ladle.plan.nodes import Node
from ladle.sql.peel.rows import NamedRelations, NodeRows, fresh, sources
from ladle.sql.trees import copied


def derived_tables(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take queries out of FROM: each becomes a node that is read by name."""
    if not isinstance(query, exp.Select) or not any(map(_is_derived, sources(query))):
        return None
    return around.peel(*by_name(query, around))


def by_name(query: exp.Select, around: NamedRelations) -> tuple[exp.Select, NamedRelations]:
    """A block that reads the queries in its FROM by name, and what they are."""
    rest = copied(query)
    found: dict[str, Node] = {}
    for source in sources(rest):
        if _is_derived(source):
            name = fresh("derived", {*around.relations, *found})
            alias = source.args["alias"]
            found[name] = _renamed(around.peel(source.this, around).node, alias)
            alias.set("columns", None)
            source.replace(exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias.copy()))
    return rest, around.with_relations(found)


def _is_derived(source: exp.Expression) -> bool:
    if not isinstance(source, exp.Subquery) or source.args.get("alias") is None:
        return False
    return not any(value for key, value in source.args.items() if key not in ("this", "alias"))


def _renamed(node: Node, alias: exp.TableAlias) -> Node:
    """With the names of `AS q(a, b)`."""
    names = [column.name for column in alias.args.get("columns") or ()]
    if not names:
        return node
    columns = tuple(replace(column, name=name) for column, name in zip(node.columns, names, strict=True))
    return replace(node, columns=columns)
