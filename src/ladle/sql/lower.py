"""Drafts to statements: names checked, types mapped, queries bound and split into scans and a residual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from ladle.errors import SqlError, unknown
from ladle.plan import Block, Joined, Plan, Residual, Scan
from ladle.schema import Column, StreamSchema, type_name
from ladle.sql import shapes
from ladle.sql.binder import Binder
from ladle.sql.bounds import interval_us
from ladle.sql.conform import NotConformant, arrow_type, check_functions, translate_query
from ladle.sql.dialect import (
    DIALECT,
    AddColumnDraft,
    Bounds,
    CreateFunctionDraft,
    CreateQueryDraft,
    CreateStreamDraft,
    DescribeDraft,
    DropDraft,
    ExplainQueryDraft,
    ExplainSelectDraft,
    InsertDraft,
    Query,
    SelectDraft,
    SetRetainDraft,
    ShowDraft,
    SubscribeDraft,
)
from ladle.sql.functions import resolve_functions
from ladle.sql.joins import shared_joins
from ladle.sql.names import Names
from ladle.sql.position import Source
from ladle.sql.resolve import NOW, fix_now
from ladle.sql.scopes import SCAN, Around, Field, ScanDraft
from ladle.sql.script import Chunk, draft, too_deep
from ladle.sql.sources import QUARANTINE
from ladle.sql.statements import (
    AddColumn,
    CreateFunction,
    CreateQuery,
    CreateStream,
    Describe,
    DropFunction,
    DropQuery,
    DropStream,
    ExplainQuery,
    ExplainSelect,
    Insert,
    Select,
    SetRetain,
    ShowFunctions,
    ShowQueries,
    ShowStreams,
    Statement,
    Subscribe,
)


def lower(chunk: Chunk, names: Names) -> Statement:
    """One statement of a script."""
    source = chunk.source
    match draft(chunk):
        case SelectDraft(query):
            return Select(_plan(query, names, source))
        case ExplainSelectDraft(query):
            return ExplainSelect(_plan(query, names, source))
        case CreateQueryDraft(name, query, materialize, if_not_exists, replace):
            return CreateQuery(name.name, _plan(query, names, source), materialize, if_not_exists, replace)
        case InsertDraft() as insert:
            return _insert(insert, names, source)
        case CreateStreamDraft() as create:
            return _create_stream(create, source)
        case AddColumnDraft(stream, column):
            return AddColumn(stream.name, _column(*column))
        case SetRetainDraft(stream, retain):
            return SetRetain(stream.name, None if retain is None else interval_us(retain, "RETAIN", source))
        case DropDraft(kind, name, cascade, if_exists):
            return _DROPS[kind](name.name, cascade=cascade, if_exists=if_exists)
        case CreateFunctionDraft() as create:
            return _create_function(create)
        case ShowDraft(kind):
            return _SHOWS[kind]()
        case DescribeDraft(parts, function):
            return Describe(".".join(part.name for part in parts), function)
        case ExplainQueryDraft(name):
            return ExplainQuery(name.name)
        case SubscribeDraft(name, since):
            return Subscribe(name.name, since)


_DROPS: dict[str, type[DropStream] | type[DropQuery] | type[DropFunction]] = {
    "STREAM": DropStream,
    "QUERY": DropQuery,
    "FUNCTION": DropFunction,
}
_SHOWS: dict[str, type[ShowStreams] | type[ShowQueries] | type[ShowFunctions]] = {
    "STREAMS": ShowStreams,
    "QUERIES": ShowQueries,
    "FUNCTIONS": ShowFunctions,
}


def lower_select(chunk: Chunk, names: Names) -> Plan:
    parsed = draft(chunk)
    if not isinstance(parsed, SelectDraft):
        raise SqlError("A standing query is a SELECT.", position=chunk.source.at(chunk.tokens[0].start))
    return _plan(parsed.query, names, chunk.source)


def _create_stream(create: CreateStreamDraft, source: Source) -> CreateStream:
    columns = tuple(_column(name, kind) for name, kind in create.columns)
    timestamp = create.timestamp
    if timestamp is not None and timestamp.name.lower() not in {column.name.lower() for column in columns}:
        raise unknown("column", timestamp.name, [column.name for column in columns], position=source.of(timestamp))
    return CreateStream(
        create.name.name,
        StreamSchema(columns, None if timestamp is None else timestamp.name),
        retain_us=None if create.retain is None else interval_us(create.retain, "RETAIN", source),
        max_ahead_us=None if create.max_ahead is None else interval_us(create.max_ahead, "MAX AHEAD", source),
        if_not_exists=create.if_not_exists,
    )


def _create_function(create: CreateFunctionDraft) -> CreateFunction:
    return CreateFunction(
        create.name.name,
        tuple(_column(name, kind) for name, kind in create.parameters),
        arrow_type(create.returns),
        create.source,
        if_not_exists=create.if_not_exists,
        replace=create.replace,
    )


def _column(name: exp.Identifier, kind: exp.DataType) -> Column:
    return Column(name.name, arrow_type(kind))


def _plan(query: Query, names: Names, source: Source) -> Plan:
    binder = Binder(names, source)
    tree, fields = _bound(binder, query)
    return _finish(query.sql, binder, tree, fields)


def _bound(binder: Binder, query: Query) -> tuple[exp.Expression, tuple[Field, ...]]:
    try:
        tree = fix_now(query.tree)
        check_functions(tree, binder.names.function_names())
        resolve_functions(tree, binder.names, binder.source, binder.functions)
        bound, fields = binder.query(tree, Around())
    except RecursionError:
        raise too_deep() from None
    stray = bound.find(Bounds)
    if stray is not None:
        raise SqlError("BEGIN ... END ... does not belong here.", position=binder.source.of(stray))
    return bound, fields


def _insert(insert: InsertDraft, names: Names, source: Source) -> Insert:
    """The query's columns, cast to the stream's types as Spark's INSERT would."""
    name = ".".join(part.name for part in insert.stream)
    found = names.stream_schema(name) if len(insert.stream) == 1 else None
    if found is None:
        if len(insert.stream) == 2 and insert.stream[1].name.lower() == QUARANTINE:
            raise SqlError(
                "Rows get into a quarantine by not fitting their stream, not by INSERT.",
                position=source.of(insert.stream[0]),
            )
        if len(insert.stream) == 1 and names.query_sql(name) is not None:
            raise SqlError(f"'{name}' is a query; rows go into streams.", position=source.of(insert.stream[0]))
        raise unknown("stream", name, names.stream_names(), position=source.of(insert.stream[0]))
    stream, schema = found
    targets = _targets(insert, schema, source)
    binder = Binder(names, source)
    tree, fields = _bound(binder, insert.query)
    if len(fields) != len(targets):
        listed = ", ".join(column.name for column in targets)
        raise SqlError(
            f"{len(fields)} values for {len(targets)} columns: {listed}.",
            hint="name the columns that are given: INSERT INTO stream (a, b) VALUES (1, 2)",
            position=source.of(insert.query.tree),
        )
    outer = exp.Select()
    for field, column in zip(fields, targets, strict=True):
        value = exp.column(exp.to_identifier(field.column, quoted=True), table=exp.to_identifier("_i", quoted=True))
        cast = exp.Cast(this=value, to=exp.DataType.build(type_name(column.type), dialect="spark"))
        outer.append("expressions", exp.Alias(this=cast, alias=exp.to_identifier(column.name, quoted=True)))
    inner = tree.this if isinstance(tree, exp.Subquery) else tree
    alias = exp.TableAlias(this=exp.to_identifier("_i", quoted=True))
    outer.set("from_", exp.From(this=exp.Subquery(this=inner, alias=alias)))
    outputs = tuple(Field(column.name, column.name) for column in targets)
    return Insert(stream, tuple(column.name for column in targets), _finish(insert.query.sql, binder, outer, outputs))


def _targets(insert: InsertDraft, schema: StreamSchema, source: Source) -> list[Column]:
    if insert.columns is None:
        return list(schema.columns)
    targets: list[Column] = []
    for identifier in insert.columns:
        column = schema.column(identifier.name)
        if column is None:
            known = [each.name for each in schema.columns]
            raise unknown("column", identifier.name, known, position=source.of(identifier))
        if column in targets:
            raise SqlError(f"Column '{column.name}' is given twice.", position=source.of(identifier))
        targets.append(column)
    return targets


# From the bound tree to the plan


def _finish(sql: str, binder: Binder, tree: exp.Expression, fields: Sequence[Field]) -> Plan:
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:
        tree = tree.this
    _part_aliases_from_columns(tree, binder.scans)
    scans = _scans(binder.scans, tree)
    spark_sql = tree.sql(DIALECT)
    uses_now = any(node.name == NOW for node in tree.find_all(exp.Placeholder))
    queries = tuple(binder.queries)
    projection = shapes.projection(tree, binder.scans)
    duckdb_sql: str | None = None
    why_spark: str | None = None
    schema: pa.Schema | None = None
    relations = {
        scan.relation: pa.schema([drafted.schema.arrow.field(name) for name in scan.columns])
        for scan, drafted in zip(scans, binder.scans, strict=True)
    }
    if projection is not None:
        source = binder.scans[0].schema.arrow
        schema = pa.schema([pa.field(name, source.field(column).type) for name, column in projection])
    try:
        translated = translate_query(tree.copy(), relations)
        duckdb_sql = translated.sql
        schema = schema if schema is not None else translated.schema
    except NotConformant as error:
        why_spark = None if projection is not None else error.reason
    # Whatever the tree can't answer, DuckDB does.
    aggregate = shapes.aggregate(tree, binder.scans) if duckdb_sql is not None else None
    residual = Residual(spark_sql, duckdb_sql, projection, why_spark, uses_now, aggregate)
    joined = _joined(tree, binder.scans, relations) if duckdb_sql is not None else None
    return Plan(sql, scans, residual, schema, queries, tuple(binder.functions.values()), joined)


def _joined(tree: exp.Expression, drafts: Sequence[ScanDraft], relations: Mapping[str, pa.Schema]) -> Joined | None:
    """The statement over joins that can be shared."""
    found = shared_joins(tree, drafts)
    if found is None:
        return None
    over, joins, schemas = found
    try:
        translated = translate_query(over.copy(), {**relations, **schemas})
    except NotConformant:
        return None
    uses_now = any(node.name == NOW for node in over.find_all(exp.Placeholder))
    projection = shapes.picked(over, joins[0].relation, schemas[joins[0].relation])
    return Joined(joins, Residual(over.sql(DIALECT), translated.sql, projection, None, uses_now))


def _part_aliases_from_columns(tree: exp.Expression, drafts: Sequence[ScanDraft]) -> None:
    """No alias is also the name of a column: in a subquery Spark would take `t.x` for a field of column `t`."""
    columns = {name.lower() for drafted in drafts for name in drafted.schema.arrow.names}
    columns |= {item.alias.lower() for item in tree.find_all(exp.Alias)}
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
    needed: dict[int, set[str]] = {}
    for column in tree.find_all(exp.Column):
        if (number := column.meta.get(SCAN)) is not None:
            needed.setdefault(number, set()).add(column.name)
    scans = []
    for number, drafted in enumerate(drafts):
        columns = needed.get(number) or {drafted.schema.timestamp_column}
        ordered = tuple(name for name in drafted.schema.arrow.names if name in columns)
        scans.append(Scan(drafted.relation, Block(drafted.stream, tuple(drafted.factors)), drafted.window, ordered))
    return tuple(scans)
