"""Drafts to statements: names checked, types mapped, queries bound and split into scans and a residual."""

from __future__ import annotations

from sqlglot import exp

from ladle.errors import SqlError, TypeMismatch, unknown
from ladle.plan import Plan
from ladle.schema import Column, Default, StreamSchema, TableSchema, require_time_column
from ladle.sql.bounds import constant_us, interval_us
from ladle.sql.changes import lower_delete, lower_insert, lower_update
from ladle.sql.conform import arrow_type
from ladle.sql.conformant.datatypes import position_of
from ladle.sql.defaults import check_default
from ladle.sql.drafts import (
    AddColumnDraft,
    AddTableColumnDraft,
    AdvanceDraft,
    BackupDraft,
    ColumnDraft,
    CreateFunctionDraft,
    CreateQueryDraft,
    CreateSourceDraft,
    CreateStreamDraft,
    CreateTableAsDraft,
    CreateTableDraft,
    CreateTokenDraft,
    DeleteDraft,
    DescribeDraft,
    DropDraft,
    ExplainQueryDraft,
    ExplainSelectDraft,
    GrantDraft,
    InsertDraft,
    MergeDraft,
    SelectDraft,
    SetIdleAfterDraft,
    SetLatenessDraft,
    SetRetainDraft,
    ShowCreateDraft,
    ShowDraft,
    SubscribeDraft,
    UpdateDraft,
    VerifyDraft,
)
from ladle.sql.merge_into import lower_merge
from ladle.sql.names import Names
from ladle.sql.planning import plan_of
from ladle.sql.position import SourceText
from ladle.sql.script import StatementTokens, draft
from ladle.sql.statement_types import (
    AddColumn,
    AddTableColumn,
    Advance,
    Backup,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateToken,
    Describe,
    DropFunction,
    DropQuery,
    DropSource,
    DropStream,
    DropTable,
    DropToken,
    ExplainQuery,
    ExplainSelect,
    Grant,
    Insert,
    Revoke,
    Select,
    SetIdleAfter,
    SetLateness,
    SetRetain,
    ShowCreate,
    ShowDerived,
    ShowFunctions,
    ShowGrants,
    ShowQueries,
    ShowSources,
    ShowStreams,
    ShowTables,
    ShowTokens,
    ShowViews,
    Statement,
    Subscribe,
    Verify,
)


def lower_tolerant_insert(chunk: StatementTokens, names: Names) -> Insert:
    """An INSERT into a stream whose plan tells what can't be cast instead of raising."""
    insert = draft(chunk)
    assert isinstance(insert, InsertDraft)
    lowered = lower_insert(insert, names, chunk.source, tolerant=True)
    assert isinstance(lowered, Insert)
    return lowered


def lower(chunk: StatementTokens, names: Names) -> Statement:
    """One statement of a script."""
    source = chunk.source
    match draft(chunk):
        case SelectDraft(query):
            return Select(plan_of(query, names, source))
        case ExplainSelectDraft(query, analyze):
            return ExplainSelect(plan_of(query, names, source), analyze)
        case CreateQueryDraft(name, query, materialize, if_not_exists, replace, view):
            known = None if name is None else name.name
            return CreateQuery(known, plan_of(query, names, source), materialize, if_not_exists, replace, view)
        case InsertDraft() as insert:
            return lower_insert(insert, names, source)
        case UpdateDraft() as update:
            return lower_update(update, names, source)
        case DeleteDraft() as delete:
            return lower_delete(delete, names, source)
        case MergeDraft() as merge:
            return lower_merge(merge, names, source)
        case CreateStreamDraft() as create:
            return _create_stream(create, names, source)
        case CreateTableDraft(name, columns, if_not_exists):
            schema = TableSchema(tuple(_declared(column, names, source) for column in columns))
            return CreateTable(name.name, schema, if_not_exists)
        case CreateTableAsDraft(name, query, if_not_exists):
            return CreateTableAs(name.name, plan_of(query, names, source), if_not_exists)
        case AddColumnDraft(stream, column):
            return AddColumn(stream.name, _declared(column, names, source))
        case AddTableColumnDraft(table, column):
            return AddTableColumn(table.name, _declared(column, names, source))
        case SetRetainDraft(stream, retain):
            return SetRetain(stream.name, _optional_us(retain, "RETAIN", source))
        case SetLatenessDraft(stream, lateness):
            _require_time(stream, "LATENESS", names, source)
            return SetLateness(stream.name, _optional_us(lateness, "LATENESS", source))
        case SetIdleAfterDraft(stream, idle_after):
            _require_time(stream, "IDLE AFTER", names, source)
            return SetIdleAfter(stream.name, _optional_us(idle_after, "IDLE AFTER", source))
        case AdvanceDraft(stream, to):
            _require_time(stream, "heartbeat", names, source)
            return Advance(stream.name, constant_us(to, "ADVANCE TO", source))
        case DropDraft("SOURCE" | "TOKEN" as kind, name, cascade, if_exists):
            if cascade:
                raise SqlError(f"DROP {kind} takes no CASCADE: nothing depends on it.", position=source.of(name))
            return (DropSource if kind == "SOURCE" else DropToken)(name.name, if_exists)
        case DropDraft("VIEW", name, cascade, if_exists):
            return DropQuery(name.name, cascade, if_exists, view=True)
        case DropDraft(kind, name, cascade, if_exists):
            return _DROPS[kind](name.name, cascade=cascade, if_exists=if_exists)
        case CreateSourceDraft(name, stream, form, options, if_not_exists):
            return CreateSource(name.name, stream.name, form.name.lower(), options, if_not_exists)
        case CreateTokenDraft(name, role, replace):
            return CreateToken(name.name, role, replace)
        case GrantDraft(query, to, revoke):
            return Revoke(query.name, to.name) if revoke else Grant(query.name, to.name)
        case CreateFunctionDraft() as create:
            return _create_function(create)
        case ShowDraft(kind):
            return _SHOWS[kind]()
        case ShowCreateDraft(kind, name):
            return ShowCreate(kind, name.name)
        case DescribeDraft(parts, function):
            return Describe(".".join(part.name for part in parts), function)
        case ExplainQueryDraft(name, analyze):
            return ExplainQuery(name.name, analyze)
        case BackupDraft(directory):
            return Backup(directory)
        case VerifyDraft():
            return Verify()
        case SubscribeDraft(name, how):
            return Subscribe(name.name, how)


_DROPS: dict[str, type[DropStream] | type[DropTable] | type[DropQuery] | type[DropFunction]] = {
    "STREAM": DropStream,
    "TABLE": DropTable,
    "QUERY": DropQuery,
    "FUNCTION": DropFunction,
}
_Shows = (
    type[ShowStreams]
    | type[ShowTables]
    | type[ShowQueries]
    | type[ShowViews]
    | type[ShowFunctions]
    | type[ShowSources]
    | type[ShowTokens]
    | type[ShowGrants]
    | type[ShowDerived]
)
_SHOWS: dict[str, _Shows] = {
    "STREAMS": ShowStreams,
    "TABLES": ShowTables,
    "QUERIES": ShowQueries,
    "VIEWS": ShowViews,
    "FUNCTIONS": ShowFunctions,
    "SOURCES": ShowSources,
    "TOKENS": ShowTokens,
    "GRANTS": ShowGrants,
    "DERIVED": ShowDerived,
}


def lower_select(chunk: StatementTokens, names: Names) -> Plan:
    """The plan of a text that must be one SELECT."""
    parsed = draft(chunk)
    if not isinstance(parsed, SelectDraft):
        raise SqlError("A standing query is a SELECT.", position=chunk.source.at(chunk.tokens[0].start))
    return plan_of(parsed.query, names, chunk.source)


def _create_stream(create: CreateStreamDraft, names: Names, source: SourceText) -> CreateStream:
    columns = tuple(_declared(column, names, source) for column in create.columns)
    timestamp = create.timestamp
    if timestamp is not None and timestamp.name.lower() not in {column.name.lower() for column in columns}:
        raise unknown("column", timestamp.name, [column.name for column in columns], position=source.of(timestamp))
    schema = StreamSchema(columns, None if timestamp is None else timestamp.name)
    for clause, what in ((create.lateness, "LATENESS"), (create.idle_after, "IDLE AFTER")):
        if clause is not None:
            require_time_column(create.name.name, schema, what, source.of(clause))
    return CreateStream(
        create.name.name,
        schema,
        retain_us=_optional_us(create.retain, "RETAIN", source),
        max_ahead_us=_optional_us(create.max_ahead, "MAX AHEAD", source),
        lateness_us=_optional_us(create.lateness, "LATENESS", source),
        idle_after_us=_optional_us(create.idle_after, "IDLE AFTER", source),
        if_not_exists=create.if_not_exists,
    )


def _optional_us(interval: exp.Expression | None, what: str, source: SourceText) -> int | None:
    return None if interval is None else interval_us(interval, what, source)


def _require_time(stream: exp.Identifier, what: str, names: Names, source: SourceText) -> None:
    """Of a stream that is there; whoever runs the statement refuses others."""
    known = names.stream_schema(stream.name)
    if known is not None:
        require_time_column(*known, what, source.of(stream))


def _create_function(create: CreateFunctionDraft) -> CreateFunction:
    return CreateFunction(
        create.name.name,
        tuple(_column(name, kind) for name, kind in create.parameters),
        arrow_type(create.returns),
        create.source if isinstance(create.source, str) else create.source.sql,
        inlined=not isinstance(create.source, str),
        if_not_exists=create.if_not_exists,
        replace=create.replace,
    )


_NOT_KEPT = {
    exp.DType.INTERVAL: (
        "an INTERVAL can be computed with, not kept: Delta tables, which streams are, have none.",
        "keep where it begins and ends, or its length as a number: BIGINT, DECIMAL(18,6)",
    ),
    exp.DType.VARIANT: (
        "a VARIANT can be computed with on Spark, not kept: Arrow, in which segments are read, has none.",
        "keep the JSON as STRING, and read it by parse_json, from_json or get_json_object; or use STRUCT",
    ),
}


def _declared(draft: ColumnDraft, names: Names, source: SourceText) -> Column:
    """A column of a stream or table; what its default comes to is not computed here."""
    for kind in draft.type.find_all(exp.DataType):
        form = exp.DType.INTERVAL if isinstance(kind.this, exp.Interval) else kind.this
        if form in _NOT_KEPT:
            message, hint = _NOT_KEPT[form]
            raise TypeMismatch(f"Column '{draft.name.name}': {message}", hint=hint, position=position_of(draft.type))
    column = _column(draft.name, draft.type)
    if draft.default is None:
        return column
    check_default(draft.default, column, names, source)
    return Column(column.name, column.type, Default(draft.default.sql))


def _column(name: exp.Identifier, kind: exp.DataType) -> Column:
    return Column(name.name, arrow_type(kind))
