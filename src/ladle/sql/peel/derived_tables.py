"""What stands in FROM and is no name: each is peeled, once, and read by name from then on.

A query in FROM is peeled as any query. Anything else is handed to the rules as it stands: one of them is for it, or the
block that reads it stays a fragment.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from ladle.plan.nodes import Node
from ladle.sql.peel.rows import NamedRelations, NodeRows, fresh, renamed, sources, without
from ladle.sql.trees import copied


def derived_tables(query: exp.Expression, around: NamedRelations) -> NodeRows | None:
    """Take what is no name out of FROM: each becomes a node that is read by name."""
    if not isinstance(query, exp.Select) or not any(map(_is_derived, sources(query))):
        return None
    return around.peel(*by_name(query, around))


def by_name(query: exp.Select, around: NamedRelations) -> tuple[exp.Select, NamedRelations]:
    """A block that reads everything in its FROM by name, and what was no name."""
    rest = copied(query)
    found: dict[str, Node] = {}
    for source in sources(rest):
        if _is_derived(source):
            name = fresh("derived", {*around.relations, *found})
            alias = source.args["alias"]
            read = source.this if isinstance(source, exp.Subquery) else without(source, "alias")
            found[name] = _renamed(around.peel(read, around).node, alias)
            alias.set("columns", None)
            source.replace(exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias.copy()))
    return rest, around.with_relations(found)


def _is_derived(source: exp.Expression) -> bool:
    """Whether a part of FROM is more than a name. LATERAL is not: it sees what stands before it."""
    if isinstance(source, exp.Lateral) or (isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)):
        return False
    clauses = [key for key, value in source.args.items() if value and key not in ("this", "expressions")]
    return clauses == ["alias"]


def _renamed(node: Node, alias: exp.TableAlias) -> Node:
    """With the names of `AS q(a, b)`."""
    names = [column.name for column in alias.args.get("columns") or ()]
    if not names:
        return node
    columns = tuple(replace(column, name=name) for column, name in zip(node.columns, names, strict=True))
    return renamed(node, columns)
