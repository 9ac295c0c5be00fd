"""What no rule peels: the text of a block over the relations that it reads, which are peeled themselves."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from ladle.errors import LadleError
from ladle.plan.as_of import NOW
from ladle.plan.nodes import Fragment, Node, OutputColumn
from ladle.sql.conform import NotConformant, translate_query
from ladle.sql.dialect import DIALECT
from ladle.sql.peel.rows import NamedRelations, NodeRows, Qualified, is_rows, kind_of, outputs_of, sources
from ladle.sql.trees import copied


def fragment(query: exp.Expression, around: NamedRelations, why: str) -> NodeRows:
    """A Fragment of a query that no rule understood, over the relations that it reads; `why` is shown by EXPLAIN."""
    tree = copied(query)
    labels = _spell_out(tree, around) if isinstance(tree, exp.Select) and is_rows(tree) else None
    inputs = _read(tree, around)
    _name_aliases(tree)
    _name_common_tables(tree)
    text = tree.sql(DIALECT)
    uses_now = any(node.name == NOW for node in tree.find_all(exp.Placeholder))
    duckdb, columns = _translated(tree, inputs)
    if labels is not None:
        columns = tuple(replace(column, name=name) for column, (_, name) in zip(columns, labels, strict=True))
    node = Fragment(columns, tuple(inputs), text, duckdb, why, uses_now)
    return outputs_of(node) if labels is None else NodeRows(node, labels)


def _spell_out(tree: exp.Select, around: NamedRelations) -> tuple[Qualified, ...]:
    """The star of a block that is left as rows, as the columns of what it reads; how the text around names these."""
    listed: list[Qualified] = []
    for source in sources(tree):
        if isinstance(source.parent, exp.Join) and kind_of(source.parent).endswith(("SEMI", "ANTI")):
            continue
        for name in around.relations[source.name.lower()].names:
            listed.append((source.alias_or_name, name))
    quoted = [[exp.to_identifier(part, quoted=True) for part in pair] for pair in listed]
    tree.set(
        "expressions",
        [exp.alias_(exp.column(name, table=alias), f"{at}", quoted=True) for at, (alias, name) in enumerate(quoted)],
    )
    return tuple((alias.lower(), name.lower()) for alias, name in listed)


def _read(tree: exp.Expression, around: NamedRelations) -> list[Node]:
    """The relations that a tree reads, which it then names by number."""
    numbers: dict[str, int] = {}
    inputs: list[Node] = []
    for table in tree.find_all(exp.Table):
        name = table.name.lower()
        if name not in around.relations:
            continue
        if table.args.get("alias") is None:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        if name not in numbers:
            numbers[name] = len(inputs)
            inputs.append(around.relations[name])
        table.set("this", exp.to_identifier(f"_c{numbers[name]}", quoted=True))
    return inputs


def _name_aliases(tree: exp.Expression) -> None:
    """Number the aliases: the names that people choose, and those of queries, tell no two fragments apart."""
    aliases = [alias.this for alias in tree.find_all(exp.TableAlias) if not isinstance(alias.parent, exp.CTE)]
    numbered: dict[str, str] = {}
    for alias in aliases:
        if alias is not None:
            numbered.setdefault(alias.name, f"_a{len(numbered)}")
    qualifiers = [column.parts[0] for column in tree.find_all(exp.Column) if len(column.parts) > 1]
    for identifier in [*aliases, *qualifiers]:
        if identifier is not None:
            identifier.set("this", numbered.get(identifier.name, identifier.name))


def _name_common_tables(tree: exp.Expression) -> None:
    """Number the common table expressions, whose names are unique in a bound text."""
    numbered: dict[str, str] = {}
    for cte in tree.find_all(exp.CTE):
        numbered[cte.alias] = f"_w{len(numbered)}"
        cte.args["alias"].set("this", exp.to_identifier(numbered[cte.alias], quoted=True))
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            table.this.set("this", numbered.get(table.name, table.name))


def _translated(tree: exp.Expression, inputs: list[Node]) -> tuple[str | None, tuple[OutputColumn, ...]]:
    """DuckDB's text, if it is proven equal, and the columns."""
    columns = [column for each in inputs for column in each.columns]
    if all(column.type is not None for column in columns):
        schemas = {
            f"_c{at}": pa.schema([pa.field(column.name, column.type) for column in each.columns])
            for at, each in enumerate(inputs)
        }
        try:
            translated = translate_query(copied(tree), schemas)
        except (NotConformant, LadleError):
            pass
        else:
            return translated.sql, tuple(OutputColumn(each.name, each.type) for each in translated.schema)
    top = tree
    while not isinstance(top, exp.Select):
        top = top.this
    return None, tuple(OutputColumn(each.alias_or_name) for each in top.expressions)
