"""Drafts to statements: names checked, types mapped, queries bound and split into scans and a residual."""

from __future__ import annotations

from sqlglot import exp

from ladle.errors import SqlError, unknown
from ladle.plan import Plan
from ladle.schema import Column, StreamSchema, TableSchema, require_time_column
from ladle.sql.bounds import constant_us, interval_us
from ladle.sql.changes import lower_delete, lower_insert, lower_update
from ladle.sql.conform import arrow_type
from ladle.sql.drafts import (
    AddColumnDraft,
    AdvanceDraft,
    BackupDraft,
    CreateFunctionDraft,
    CreateQueryDraft,
    CreateSourceDraft,
    CreateStreamDraft,
    CreateTableDraft,
    CreateTokenDraft,
    DeleteDraft,
    DescribeDraft,
    DropDraft,
    ExplainQueryDraft,
    ExplainSelectDraft,
    GrantDraft,
    InsertDraft,
    SelectDraft,
    SetIdleAfterDraft,
    SetLatenessDraft,
    SetRetainDraft,
    ShowDraft,
    SubscribeDraft,
    UpdateDraft,
    VerifyDraft,
)
from ladle.sql.names import Names
from ladle.sql.planning import plan_of
from ladle.sql.position import Source
from ladle.sql.script import Chunk, draft
from ladle.sql.statements import (
    AddColumn,
    Advance,
    Backup,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateStream,
    CreateTable,
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
    ShowFunctions,
    ShowGrants,
    ShowQueries,
    ShowSources,
    ShowStreams,
    ShowTables,
    ShowTokens,
    Statement,
    Subscribe,
    Verify,
)


def lower_tolerant_insert(chunk: Chunk, names: Names) -> Insert:
    """An INSERT into a stream whose plan tells what can't be cast instead of raising."""
    insert = draft(chunk)
    assert isinstance(insert, InsertDraft)
    lowered = lower_insert(insert, names, chunk.source, tolerant=True)
    assert isinstance(lowered, Insert)
    return lowered


def lower(chunk: Chunk, names: Names) -> Statement:
    """One statement of a script."""
    source = chunk.source
    match draft(chunk):
        case SelectDraft(query):
            return Select(plan_of(query, names, source))
        case ExplainSelectDraft(query, analyze):
            return ExplainSelect(plan_of(query, names, source), analyze)
        case CreateQueryDraft(name, query, materialize, if_not_exists, replace):
            known = None if name is None else name.name
            return CreateQuery(known, plan_of(query, names, source), materialize, if_not_exists, replace)
        case InsertDraft() as insert:
            return lower_insert(insert, names, source)
        case UpdateDraft() as update:
            return lower_update(update, names, source)
        case DeleteDraft() as delete:
            return lower_delete(delete, names, source)
        case CreateStreamDraft() as create:
            return _create_stream(create, source)
        case CreateTableDraft(name, columns, if_not_exists):
            schema = TableSchema(tuple(_column(*column) for column in columns))
            return CreateTable(name.name, schema, if_not_exists)
        case AddColumnDraft(stream, column):
            return AddColumn(stream.name, _column(*column))
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
        case DescribeDraft(parts, function):
            return Describe(".".join(part.name for part in parts), function)
        case ExplainQueryDraft(name, analyze):
            return ExplainQuery(name.name, analyze)
        case BackupDraft(directory):
            return Backup(directory)
        case VerifyDraft():
            return Verify()
        case SubscribeDraft(name, since):
            return Subscribe(name.name, since)


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
    | type[ShowFunctions]
    | type[ShowSources]
    | type[ShowTokens]
    | type[ShowGrants]
)
_SHOWS: dict[str, _Shows] = {
    "STREAMS": ShowStreams,
    "TABLES": ShowTables,
    "QUERIES": ShowQueries,
    "FUNCTIONS": ShowFunctions,
    "SOURCES": ShowSources,
    "TOKENS": ShowTokens,
    "GRANTS": ShowGrants,
}


def lower_select(chunk: Chunk, names: Names) -> Plan:
    parsed = draft(chunk)
    if not isinstance(parsed, SelectDraft):
        raise SqlError("A standing query is a SELECT.", position=chunk.source.at(chunk.tokens[0].start))
    return plan_of(parsed.query, names, chunk.source)


def _create_stream(create: CreateStreamDraft, source: Source) -> CreateStream:
    columns = tuple(_column(name, kind) for name, kind in create.columns)
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


def _optional_us(interval: exp.Expression | None, what: str, source: Source) -> int | None:
    return None if interval is None else interval_us(interval, what, source)


def _require_time(stream: exp.Identifier, what: str, names: Names, source: Source) -> None:
    """Of a stream that is there; whoever runs the statement refuses others."""
    known = names.stream_schema(stream.name)
    if known is not None:
        require_time_column(*known, what, source.of(stream))


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
