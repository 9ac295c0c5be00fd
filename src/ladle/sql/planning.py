"""A query's tree to its plan: bound, and split into scans of streams, tables and a residual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from ladle.errors import SqlError
from ladle.plan import Block, JoinedForm, Plan, Residual, Scan, TableRead
from ladle.plan.as_of import NOW
from ladle.plan.query import ROW
from ladle.sql import shapes
from ladle.sql.binder import Binder
from ladle.sql.conform import NotConformant, check_functions, translate_query
from ladle.sql.dialect import DIALECT, Bounds
from ladle.sql.drafts import QueryDraft
from ladle.sql.folding import folding_of
from ladle.sql.from_clause import bind_shared
from ladle.sql.function_calls import resolve_functions
from ladle.sql.limits import too_deep
from ladle.sql.names import Names
from ladle.sql.ordered_aggregates import check_ordered
from ladle.sql.parenthesised import without_unread_columns
from ladle.sql.position import SourceText
from ladle.sql.resolve import fix_now
from ladle.sql.scopes import SCAN, TABLE, Around, Field, ScanDraft, TableDraft
from ladle.sql.shared_joins import shared_joins
from ladle.sql.sharing import queries_below
from ladle.sql.trees import copied

_LOOKED_AT_MAX = 20_000
"""How nodes answer a longer text is found out when it is first asked."""


def plan_of(query: QueryDraft, names: Names, source: SourceText) -> Plan:
    """Bind a query and split it into scans and a residual."""
    binder = Binder(names, source)
    tree, _ = bound(binder, query.tree)
    return finish(query.sql, binder, tree)


def bound(binder: Binder, query: exp.Expression) -> tuple[exp.Expression, tuple[Field, ...]]:
    """A query's tree, bound, and its columns."""
    try:
        tree = fix_now(query)
        check_functions(tree, binder.names.function_names())
        resolve_functions(tree, binder.names, binder.source, binder.functions)
        binder.below, often, first = queries_below(tree, binder.names, binder.source)
        binder.often = frozenset(often)
        for read in first:
            bind_shared(binder, read)
        done, fields = binder.query(tree, Around())
        if binder.before:
            before = done.args.get("with_") or exp.With(expressions=[])
            before.set("expressions", [*binder.before, *before.expressions])
            done.set("with_", before)
    except RecursionError:
        raise too_deep() from None
    check_ordered(done, binder.source)
    stray = done.find(Bounds)
    if stray is not None:
        raise SqlError("BEGIN ... END ... does not belong here.", position=binder.source.of(stray))
    return done, fields


def finish(sql: str, binder: Binder, tree: exp.Expression) -> Plan:
    """The plan of a bound tree."""
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:
        tree = tree.this
    without_unread_columns(tree)
    drafted: list[ScanDraft | TableDraft] = [*binder.scans, *binder.tables]
    _part_aliases_from_columns(tree, {name.lower() for each in drafted for name in each.schema.arrow.names})
    scans, tables = _scans(binder, tree), _tables(binder.tables, tree)
    # What is read beside a scan is not picked from it.
    alone = () if tables else binder.scans
    _count_exactly(tree)
    spark_sql = tree.sql(DIALECT)
    parameters = {node.name for node in tree.find_all(exp.Placeholder)}
    nows = tuple(as_of for name, as_of in binder.nows.items() if name in parameters)
    queries = tuple(binder.queries)
    projection = shapes.projection(tree, alone)
    duckdb_sql: str | None = None
    why_spark: str | None = None
    schema: pa.Schema | None = None
    read: list[Scan | TableRead] = [*scans, *tables]
    relations = {
        each.relation: pa.schema([draft.schema.arrow.field(name) for name in each.columns])
        for each, draft in zip(read, drafted, strict=True)
    }
    if projection is not None:
        source = binder.scans[0].schema.arrow
        schema = pa.schema([pa.field(name, source.field(column).type) for name, column in projection])
    try:
        translated = translate_query(copied(tree), relations)
        duckdb_sql = translated.sql
        schema = schema if schema is not None else translated.schema
    except NotConformant as error:
        why_spark = None if projection is not None else error.reason
    residual = Residual(spark_sql, duckdb_sql, projection, why_spark, NOW in parameters)
    joined = _joined(tree, binder.scans, relations) if duckdb_sql is not None else None
    plan = Plan(sql, scans, residual, schema, queries, tuple(binder.functions.values()), joined, tables, nows)
    if any(ROW in each.columns for each in tables):
        return replace(plan, residual=replace(residual, foldings=()))  # nodes know nothing of numbers of rows
    if len(spark_sql) > _LOOKED_AT_MAX:
        return plan
    folding = folding_of(plan, binder.names)
    return replace(plan, residual=replace(residual, foldings=() if folding is None else (folding,)))


def _joined(tree: exp.Expression, drafts: Sequence[ScanDraft], relations: Mapping[str, pa.Schema]) -> JoinedForm | None:
    """The statement over joins that can be shared."""
    # Pairs are those of the present.
    found = None if any(each.past is not None for each in drafts) else shared_joins(tree, drafts)
    if found is None:
        return None
    over, joins, schemas = found
    try:
        translated = translate_query(copied(over), {**relations, **schemas})
    except NotConformant:
        return None
    uses_now = any(node.name == NOW for node in over.find_all(exp.Placeholder))
    projection = shapes.picked(over, joins[0].relation, schemas[joins[0].relation])
    return JoinedForm(joins, Residual(over.sql(DIALECT), translated.sql, projection, None, uses_now))


def _count_exactly(tree: exp.Expression) -> None:
    """`approx_count_distinct(x)` becomes `count(DISTINCT x)`, which is as precise as was asked for, in both engines."""
    for call in list(tree.find_all(exp.Anonymous)):
        around = call.parent.parent if isinstance(call.parent, exp.Filter) else call.parent
        plain = not isinstance(call.expressions[0] if call.expressions else None, exp.Distinct)
        if call.name.lower() == "approx_count_distinct" and plain and call.expressions:
            if isinstance(around, exp.Window) and call.find_ancestor(exp.Window) is around:
                continue  # Spark counts no DISTINCT values over a window
            call.set("this", "count")
            call.set("expressions", [exp.Distinct(expressions=[call.expressions[0]])])


def _part_aliases_from_columns(tree: exp.Expression, columns: set[str]) -> None:
    """No alias is also the name of a column: in a subquery Spark would take `t.x` for a field of column `t`."""
    columns = columns | {item.alias.lower() for item in tree.find_all(exp.Alias)}
    aliases = [node.this for node in tree.find_all(exp.TableAlias) if not isinstance(node.parent, exp.CTE)]
    taken = columns | {alias.name.lower() for alias in aliases}
    renamed: dict[str, str] = {}
    for alias in aliases:
        if alias.name.lower() in columns and alias.name not in renamed:
            number = 1
            while f"{alias.name}_r{number}".lower() in taken:
                number += 1
            renamed[alias.name] = f"{alias.name}_r{number}"
    if not renamed:
        return
    qualifiers = [column.args["table"] for column in tree.find_all(exp.Column) if column.args.get("table") is not None]
    for identifier in [*aliases, *qualifiers]:
        identifier.set("this", renamed.get(identifier.name, identifier.name))


def _scans(binder: Binder, tree: exp.Expression) -> tuple[Scan, ...]:
    needed = _needed(tree, SCAN)
    scans = []
    for number, drafted in enumerate(binder.scans):
        columns = needed.get(number) or {drafted.schema.timestamp_column}
        ordered = tuple(name for name in drafted.schema.arrow.names if name in columns)
        block = Block(drafted.stream, tuple(drafted.factors))
        scans.append(Scan(drafted.relation, block, drafted.window, ordered, drafted.past, drafted.sample))
    return tuple(scans)


def _tables(drafts: Sequence[TableDraft], tree: exp.Expression) -> tuple[TableRead, ...]:
    needed = _needed(tree, TABLE)
    tables = []
    for number, drafted in enumerate(drafts):
        # A relation without columns could not tell how many rows it has.
        columns = needed.get(number) or {drafted.schema.names[0]}
        ordered = tuple(name for name in drafted.schema.names if name in columns)
        tables.append(TableRead(drafted.relation, drafted.table, ordered, drafted.past))
    return tuple(tables)


def _needed(tree: exp.Expression, kind: str) -> dict[int, set[str]]:
    """The columns that a tree reads of each scan, or of each table."""
    needed: dict[int, set[str]] = {}
    for column in tree.find_all(exp.Column):
        if (number := column.meta.get(kind)) is not None:
            needed.setdefault(number, set()).add(column.name)
    return needed
