"""The tree of a bound query: rules peel nodes off its text, the outermost first, as long as they understand it.

A bound query is `Fragment(scans)`: a text over the rows of its scans. Each rule, one a file, takes one clause off a
block and leaves the rest to the others; `RULES` is their order. A block that none of them understands stays a
`Fragment` over the relations that it reads, and says why. So every query has a tree, and none a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlglot import exp

from ladle.errors import LadleError
from ladle.plan import Plan
from ladle.plan.nodes import Fragment, Node, OutputColumn, StreamScan, TableScan
from ladle.sql.conformant.parser_names import FUNCTION
from ladle.sql.limits import StatementLimits
from ladle.sql.names import Names
from ladle.sql.peel.common_tables import common_tables
from ladle.sql.peel.comparisons import comparisons
from ladle.sql.peel.derived_tables import derived_tables
from ladle.sql.peel.distinct import distinct
from ladle.sql.peel.fragments import fragment
from ladle.sql.peel.grouping import grouping
from ladle.sql.peel.joining import joining
from ladle.sql.peel.ordering import ordering
from ladle.sql.peel.parentheses import parentheses
from ladle.sql.peel.projection import projection
from ladle.sql.peel.rows import NO_RELATION, NamedRelations, NodeRows, NotUnderstood
from ladle.sql.peel.selection import selection
from ladle.sql.peel.set_operations import set_operations
from ladle.sql.peel.single_relation import single_relation
from ladle.sql.peel.subqueries import subqueries
from ladle.sql.peel.values_clause import values_clause
from ladle.sql.script import StatementTokens, bound_tree, only_chunk

Rule = Callable[[exp.Expression, NamedRelations], NodeRows | None]
"""The rows of a block if the rule is for it, else None; NotUnderstood if it is and can't be peeled."""

RULES: tuple[Rule, ...] = (
    common_tables,
    parentheses,
    ordering,
    set_operations,
    distinct,
    derived_tables,
    grouping,
    projection,
    comparisons,
    selection,
    subqueries,
    joining,
    single_relation,
    values_clause,
)


def tree_of(plan: Plan, names: Names) -> Node:
    """The tree of a bound query."""
    relations = relations_of(plan, names)
    try:
        chunk = only_chunk(plan.residual.spark_sql)
        return StatementLimits().run(chunk.tokens, partial(_tree, plan, relations, chunk))
    except LadleError as error:
        # What nests too deep, or takes too long: a text over the scans, under the names that it has for them.
        columns = () if plan.schema is None else tuple(OutputColumn(f.name, f.type) for f in plan.schema)
        nodes, residual = tuple(relations.values()), plan.residual
        return Fragment(columns, nodes, residual.spark_sql, residual.duckdb_sql, error.message, residual.uses_now)


def _tree(plan: Plan, relations: dict[str, Node], chunk: StatementTokens) -> Node:
    tree = bound_tree(chunk)
    functions = {function.symbol.lower(): function for function in plan.functions}
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() in functions:
            call.meta[FUNCTION] = functions[call.name.lower()]
    return _peel(tree, NamedRelations(relations, _peel)).node


def _peel(query: exp.Expression, around: NamedRelations) -> NodeRows:
    """A block, or a part of FROM. What no rule is for stays a fragment, if it can be one: a query is."""
    why = "no rule is for it" if isinstance(query, exp.Query) else NO_RELATION
    try:
        for rule in RULES:
            found = rule(query, around)
            if found is not None:
                return found
    except NotUnderstood as error:
        why = error.why
    if not isinstance(query, exp.Query):
        raise NotUnderstood(why)  # so that the block which reads it is a fragment
    return fragment(query, around, why)


def relations_of(plan: Plan, names: Names) -> dict[str, Node]:
    """The leaves, by the names that the bound text has for them."""
    relations: dict[str, Node] = {}
    for scan in plan.scans:
        stream = names.stream_schema(scan.block.stream)
        columns = (
            tuple(OutputColumn(name) for name in scan.columns)
            if stream is None
            else tuple(OutputColumn(field.name, field.type) for field in stream[1].arrow)
        )
        relations[scan.relation] = StreamScan(
            columns, scan.block.stream, scan.window, scan.block.factors, scan.relation, scan.as_of, scan.sample
        )
    for table in plan.tables:
        known = names.table_schema(table.table)
        columns = (
            tuple(OutputColumn(name) for name in table.columns)
            if known is None
            else tuple(OutputColumn(field.name, field.type) for field in known[1].arrow)
        )
        relations[table.relation] = TableScan(columns, table.table, table.as_of)
    return relations
