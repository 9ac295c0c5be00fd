"""A query's tree to its plan: bound, and split into scans of streams, tables and a residual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from ladle.errors import SqlError
from ladle.plan import Block, Joined, Plan, Residual, Scan, TableScan
from ladle.sql import shapes
from ladle.sql.binder import Binder
from ladle.sql.conform import NotConformant, check_functions, translate_query
from ladle.sql.dialect import DIALECT, Bounds
from ladle.sql.drafts import Query
from ladle.sql.functions import resolve_functions
from ladle.sql.joins import shared_joins
from ladle.sql.limits import too_deep
from ladle.sql.names import Names
from ladle.sql.position import Source
from ladle.sql.resolve import NOW, fix_now
from ladle.sql.scopes import SCAN, TABLE, Around, Field, ScanDraft, TableDraft
from ladle.sql.sharing import queries_below
from ladle.sql.sources import bind_shared
from ladle.sql.trees import copied


def plan_of(query: Query, names: Names, source: Source) -> Plan:
    binder = Binder(names, source)
    tree, _ = bound(binder, query.tree)
    return finish(query.sql, binder, tree)


def bound(binder: Binder, query: exp.Expression) -> tuple[exp.Expression, tuple[Field, ...]]:
    """A query's tree, bound, and its columns."""
    try:
        tree = fix_now(query)
        check_functions(tree, binder.names.function_names())
        resolve_functions(tree, binder.names, binder.source, binder.functions)
        binder.below, shared = queries_below(tree, binder.names)
        ctes = [bind_shared(binder, name) for name in shared]
        done, fields = binder.query(tree, Around())
        if ctes:
            before = done.args.get("with_")
            done.set("with_", exp.With(expressions=[*ctes, *(before.expressions if before is not None else ())]))
    except RecursionError:
        raise too_deep() from None
    stray = done.find(Bounds)
    if stray is not None:
        raise SqlError("BEGIN ... END ... does not belong here.", position=binder.source.of(stray))
    return done, fields


def finish(sql: str, binder: Binder, tree: exp.Expression) -> Plan:
    """The plan of a bound tree."""
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:
        tree = tree.this
    drafted: list[ScanDraft | TableDraft] = [*binder.scans, *binder.tables]
    _part_aliases_from_columns(tree, {name.lower() for each in drafted for name in each.schema.arrow.names})
    scans, tables = _scans(binder.scans, tree), _tables(binder.tables, tree)
    # What is read beside a scan is not folded or picked from it.
    alone = () if tables else binder.scans
    spark_sql = tree.sql(DIALECT)
    uses_now = any(node.name == NOW for node in tree.find_all(exp.Placeholder))
    queries = tuple(binder.queries)
    projection = shapes.projection(tree, alone)
    duckdb_sql: str | None = None
    why_spark: str | None = None
    schema: pa.Schema | None = None
    read: list[Scan | TableScan] = [*scans, *tables]
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
    # Whatever the tree can't answer, DuckDB does.
    aggregate = shapes.aggregate(tree, alone) if duckdb_sql is not None else None
    residual = Residual(spark_sql, duckdb_sql, projection, why_spark, uses_now, aggregate)
    joined = _joined(tree, binder.scans, relations) if duckdb_sql is not None else None
    return Plan(sql, scans, residual, schema, queries, tuple(binder.functions.values()), joined, tables)


def _joined(tree: exp.Expression, drafts: Sequence[ScanDraft], relations: Mapping[str, pa.Schema]) -> Joined | None:
    """The statement over joins that can be shared."""
    found = shared_joins(tree, drafts)
    if found is None:
        return None
    over, joins, schemas = found
    try:
        translated = translate_query(copied(over), {**relations, **schemas})
    except NotConformant:
        return None
    uses_now = any(node.name == NOW for node in over.find_all(exp.Placeholder))
    projection = shapes.picked(over, joins[0].relation, schemas[joins[0].relation])
    return Joined(joins, Residual(over.sql(DIALECT), translated.sql, projection, None, uses_now))


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


def _scans(drafts: Sequence[ScanDraft], tree: exp.Expression) -> tuple[Scan, ...]:
    needed = _needed(tree, SCAN)
    scans = []
    for number, drafted in enumerate(drafts):
        columns = needed.get(number) or {drafted.schema.timestamp_column}
        ordered = tuple(name for name in drafted.schema.arrow.names if name in columns)
        scans.append(Scan(drafted.relation, Block(drafted.stream, tuple(drafted.factors)), drafted.window, ordered))
    return tuple(scans)


def _tables(drafts: Sequence[TableDraft], tree: exp.Expression) -> tuple[TableScan, ...]:
    needed = _needed(tree, TABLE)
    tables = []
    for number, drafted in enumerate(drafts):
        # A relation without columns could not tell how many rows it has.
        columns = needed.get(number) or {drafted.schema.names[0]}
        ordered = tuple(name for name in drafted.schema.names if name in columns)
        tables.append(TableScan(drafted.relation, drafted.table, ordered))
    return tuple(tables)


def _needed(tree: exp.Expression, kind: str) -> dict[int, set[str]]:
    """The columns that a tree reads of each scan, or of each table."""
    needed: dict[int, set[str]] = {}
    for column in tree.find_all(exp.Column):
        if (number := column.meta.get(kind)) is not None:
            needed.setdefault(number, set()).add(column.name)
    return needed
