"""Statements of SQL, carried out. Those that are not a SELECT answer with a small table or a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ladle import sql
from ladle.answer import Answer
from ladle.archive.warehouse import archive_of
from ladle.catalog import Catalog
from ladle.catalog.dependents import queries_calling
from ladle.clock import interval_text, to_datetime
from ladle.define.function_source import define_in_sql, define_inlined
from ladle.define.show_create import create_text
from ladle.define.views import require_view, views
from ladle.engine import listing
from ladle.engine.commands import (
    AnswerOnce,
    ChangeTable,
    DefineFunction,
    ListTokens,
    MakeBackup,
    Push,
    Register,
    TableOf,
    VerifyFiles,
    register_unnamed,
)
from ladle.engine.listing import columns
from ladle.engine.report import derived_table
from ladle.errors import EvaluationError, LadleError, Position, TypeMismatch, Unsupported, unknown
from ladle.execute.deadline import statement_time
from ladle.ingest.clocks import clock_text, heartbeat_us
from ladle.schema import ARRIVAL, StreamSchema, TableSchema, type_name
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
    DeleteRows,
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
    InsertRows,
    InsertTableValues,
    InsertValues,
    Materialize,
    MergeRows,
    Misfit,
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
    UpdateRows,
    Verify,
)
from ladle.stem.intake import not_cast, rejection, with_rejections

if TYPE_CHECKING:
    from ladle.engine.database import Database
    from ladle.engine.session import Session

    Db: TypeAlias = Database | Session
    """All of a database, or what a user may do with it."""


def run_script(db: Db, text: str) -> list[Answer]:
    """Carry out the statements of a script, one after the other; errors have positions in the whole text."""
    answers = []
    begin = 0
    for statement in sql.split_script(text, db.settings):
        begin = text.index(statement, begin)
        try:
            answers.append(run_statement(db, statement))
        except LadleError as error:
            error.position = _in_script(error.position, text[:begin])
            raise
        begin += len(statement)
    return answers


def _in_script(position: Position | None, before: str) -> Position | None:
    """A position in a statement as one in the script, given the text before the statement."""
    if position is None:
        return None
    column = position.column + len(before) - (before.rfind("\n") + 1) if position.line == 1 else position.column
    return Position(position.line + before.count("\n"), column)


def run_statement(db: Db, text: str) -> Answer:
    """Bind one statement to the newest catalog and carry it out, within its time."""
    with statement_time():
        return _run(db, text)


def _run(db: Db, text: str) -> Answer:
    catalog = db.catalog
    statement: Statement = sql.parse_one(text, catalog, db.settings)
    match statement:
        case Select(plan):
            return db.run(AnswerOnce(plan, catalog))
        case Insert() as insert:
            return _insert(db, insert, text, catalog)
        case InsertValues(stream, rows, misfits):
            return _pushed(db, stream, with_rejections(rows, {each.row: _rejection(each) for each in misfits}))
        case InsertTableValues(table) as insert:
            return _said(db, f"{_rows(db.run(insert))} {_DONE[InsertRows]} {table}")
        case InsertRows(table) | UpdateRows(table) | DeleteRows(table) | MergeRows(table) as change:
            count = db.run(ChangeTable(change, text, catalog))
            return _said(db, f"{_rows(count)} {_DONE[type(change)]} {table}")
        case CreateQuery() as create:
            return _create_query(db, create, catalog)
        case DropQuery() as drop:
            return _drop_query(db, drop, catalog)
        case CreateStream(name) as create:
            created = db.run(create)
            return _said(db, f"stream {name} created" if created else f"stream {name} is there already, unchanged")
        case DropStream(name) as drop:
            db.run(drop)
            return _said(db, f"stream {name} dropped" if catalog.stream(name) else f"there was no stream {name}")
        case CreateTable(name) as create:
            created = db.run(create)
            return _said(db, f"table {name} created" if created else f"table {name} is there already, unchanged")
        case CreateTableAs(name, plan, if_not_exists):
            rows = db.run(TableOf(name, plan, catalog, if_not_exists))
            made = "is there already, unchanged" if rows is None else f"created with {_rows(rows)}"
            return _said(db, f"table {name} {made}")
        case AddTableColumn(table, column) as change:
            db.run(change)
            return _said(db, f"column {column.name} added to {table}")
        case DropTable(name) as drop:
            db.run(drop)
            return _said(db, f"table {name} dropped" if catalog.table(name) else f"there was no table {name}")
        case AddColumn() | SetRetain() | SetLateness() | SetIdleAfter() | Advance() as change:
            return _alter_stream(db, change)
        case CreateFunction() as create:
            return _create_function(db, create, catalog)
        case DropFunction(name) as drop:
            db.run(drop)
            return _said(db, f"function {name} dropped" if catalog.function(name) else f"there was no function {name}")
        case ShowFunctions():
            return _table(db, listing.functions(catalog))
        case ShowStreams():
            return _table(db, listing.streams(catalog))
        case ShowTables():
            return _table(db, listing.tables(catalog))
        case ShowViews():
            return _table(db, columns(**views(catalog)))
        case ShowQueries():
            return _table(db, listing.queries(catalog))
        case CreateSource() | DropSource() | ShowSources() as about:
            return _about_sources(db, about, catalog)
        case CreateToken(name, role) as create:
            made = pa.table({"token": [db.run(create)]})
            return _table(db, made, f"token of {name}, a {role.value}; it is shown this once")
        case DropToken(name) as drop:
            db.run(drop)
            known = name.lower() in catalog.access.tokens
            return _said(db, f"token {name} dropped" if known else f"there was no token {name}")
        case Grant(query, to) as grant:
            db.run(grant)
            return _said(db, f"{to} may read query {query}")
        case Revoke(query, to) as revoke:
            db.run(revoke)
            return _said(db, f"query {query} is not shared with {to}")
        case ShowTokens():
            tokens = db.run(ListTokens())
            return _table(db, listing.tokens(tokens, catalog))
        case ShowGrants():
            return _table(db, listing.grants(catalog))
        case ShowDerived():
            return _table(db, derived_table(db.derived()))
        case ShowCreate(kind, name):
            return _table(db, columns(statement=[create_text(catalog, kind, name)]))
        case Describe(name, function):
            if function or _is_function(catalog, name):
                return _table(db, _describe_function(catalog, name))
            return _table(db, _describe(catalog, name), _about_stream(catalog, name))
        case ExplainSelect(plan, analyze):
            return _text(db, lambda: db.explain_plan(plan, catalog, analyze=analyze))
        case ExplainQuery(name, analyze):
            if catalog.query(name) is None:
                raise unknown("query", name, catalog.query_names())
            return _text(db, lambda: db.explain(name, analyze=analyze))
        case Backup(directory):
            return db.run(MakeBackup(directory))
        case Verify():
            return db.run(VerifyFiles())
        case Subscribe(name, _):
            raise Unsupported(
                "SUBSCRIBE goes on for as long as somebody listens, so it has no answer.",
                hint=f"in Python db.query('{name}').subscribe(), at the command line ladle sql -c 'SUBSCRIBE {name}'",
            )


def _alter_stream(db: Db, change: AddColumn | SetRetain | SetLateness | SetIdleAfter | Advance) -> Answer:
    match change:
        case AddColumn(stream, column):
            db.run(change)
            return _said(db, f"column {column.name} added to {stream}")
        case SetRetain(stream, retain_us):
            db.run(change)
            kept = "for ever" if retain_us is None else f"for {interval_text(retain_us)}"
            return _said(db, f"stream {stream} is retained {kept}")
        case SetLateness(stream, lateness_us):
            db.run(change)
            late = "however late they are" if lateness_us is None else f"less than {interval_text(lateness_us)} late"
            return _said(db, f"stream {stream} takes tuples {late}")
        case SetIdleAfter(stream, idle_after_us):
            db.run(change)
            when = "no more" if idle_after_us is None else f"after {interval_text(idle_after_us)}"
            return _said(db, f"stream {stream} becomes idle {when}")
        case Advance(stream, to_us):
            epoch = db.run(Advance(stream, heartbeat_us(to_datetime(to_us))))
            if epoch is None:
                return _said(db, f"the clock of stream {stream} was there already")
            return _said(db, f"stream {stream} advanced to {to_datetime(to_us)}, epoch {epoch}")


def _create_query(db: Db, create: CreateQuery, catalog: Catalog) -> Answer:
    if create.name is None:
        name = register_unnamed(db, create.plan, create.materialize or Materialize.AUTO, catalog)
        return _said(db, f"query {name} stands")
    if create.view:
        require_view(catalog, create.name, if_exists=True)
    plans = {create.name: (create.plan, create.materialize or Materialize.AUTO)}
    changed = db.run(Register(plans, catalog, create.if_not_exists, create.replace))
    replaced = create.replace and catalog.query(create.name) is not None
    if create.view:
        done = ("replaced" if replaced else "created") if changed else "is there already, unchanged"
        return _said(db, f"view {create.name} {done}")
    if not changed:
        return _said(db, f"query {create.name} stands already, unchanged")
    return _said(db, f"query {create.name} {'replaced' if replaced else 'stands'}")


def _drop_query(db: Db, drop: DropQuery, catalog: Catalog) -> Answer:
    name, kind = drop.name, "view" if drop.view else "query"
    if drop.view:
        require_view(catalog, name, if_exists=drop.if_exists)
    db.run(drop)
    return _said(db, f"{kind} {name} dropped" if catalog.query(name) else f"there was no {kind} {name}")


def _create_function(db: Db, create: CreateFunction, catalog: Catalog) -> Answer:
    define = define_inlined if create.inlined else define_in_sql
    definition = define(create.name, create.parameters, create.returns, create.text)
    before = catalog.function(create.name)
    function = db.run(DefineFunction(definition, create.replace, create.if_not_exists))
    if before == function:
        return _said(db, f"function {function.name} is there already, unchanged")
    return _said(db, f"function {function.name} {'created' if before is None else 'replaced'}")


def _about_sources(db: Db, about: CreateSource | DropSource | ShowSources, catalog: Catalog) -> Answer:
    match about:
        case CreateSource(name):
            created = db.run(about)
            return _said(db, f"source {name} created" if created else f"source {name} is there already, unchanged")
        case DropSource(name):
            db.run(about)
            return _said(db, f"source {name} dropped" if catalog.source(name) else f"there was no source {name}")
        case ShowSources():
            return _table(db, listing.sources(db.sources()))


def _insert(db: Db, insert: Insert, text: str, catalog: Catalog) -> Answer:
    """Rows that can't be cast to the stream's types go to its quarantine: they are looked for when there are some."""
    try:
        table = db.run(AnswerOnce(insert.plan, catalog)).table
    except EvaluationError:
        insert = sql.tolerant_insert(text, catalog)
        table = db.run(AnswerOnce(insert.plan, catalog)).table
    width = len(insert.columns)
    if table.num_columns != (2 * width if insert.tolerant else width):
        raise TypeMismatch(f"INSERT gives {table.num_columns} values for {width} columns: {', '.join(insert.columns)}.")
    rows = table.select(range(width)).rename_columns(list(insert.columns))
    if insert.tolerant:
        rows = with_rejections(rows, not_cast(rows, table.select(range(width, 2 * width))))
    return _pushed(db, insert.stream, rows)


def _pushed(db: Db, name: str, rows: pa.Table) -> Answer:
    epoch = db.run(Push(name, rows, wait=True)).epoch
    said = f"{_rows(len(rows))} inserted into {name}" + (f", epoch {epoch}" if epoch is not None else "")
    stream = db.catalog.stream(name)
    if stream is not None and stream.quarantine is not None:
        rejected = sum(file.rows for file in stream.quarantine.files if file.epoch_first == epoch)
        if rejected:
            said += f"; {_rows(rejected)} of that epoch went to {name}.quarantine, with the reason"
    return _said(db, said)


def _rejection(misfit: Misfit) -> tuple[str, str]:
    return rejection(misfit.column.name, misfit.value, misfit.column.type, misfit.given)


_DONE = {InsertRows: "inserted into", UpdateRows: "updated in", DeleteRows: "deleted from", MergeRows: "merged into"}


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _is_function(catalog: Catalog, name: str) -> bool:
    """Streams, tables and queries come first: they may have a function's name."""
    others = (catalog.stream(name), catalog.table(name), catalog.query(name))
    return all(other is None for other in others) and catalog.function(name) is not None


def _describe_function(catalog: Catalog, name: str) -> pa.Table:
    function = catalog.function(name)
    if function is None:
        raise unknown("function", name, catalog.function_names())
    callers = queries_calling(catalog, function.name)
    facts = {
        "function": function.signature,
        "language": "SQL" if function.inlined else "Python",
        "queries": ", ".join(callers) or "none",
        "source": function.source,
    }
    return columns(name=list(facts), value=list(facts.values()))


def _describe(catalog: Catalog, name: str) -> pa.Table:
    stream = catalog.stream(name)
    if stream is not None:
        return _describe_columns(stream.schema)
    table = catalog.table(name)
    if table is not None:
        return _describe_columns(table.schema)
    query = catalog.query(name)
    if query is None:
        known = [*catalog.stream_names(), *catalog.table_names(), *catalog.query_names(), *catalog.function_names()]
        raise unknown("stream, table, query or function", name, known)
    schema = query.plan.schema
    if schema is None:
        facts = {"sql": query.sql, "columns": "known when it runs, on Spark"}
        return columns(name=list(facts), value=list(facts.values()))
    return columns(
        column=list(schema.names), type=[type_name(field.type) for field in schema], note=["" for _ in schema]
    )


def _describe_columns(schema: StreamSchema | TableSchema) -> pa.Table:
    time = schema.timestamp_column if isinstance(schema, StreamSchema) else None
    names = [column.name for column in schema.columns]
    types = [type_name(column.type) for column in schema.columns]
    defaults = ["" if column.default is None else f"default {column.default.sql}" for column in schema.columns]
    notes = [
        "; ".join(filter(None, ["the timestamp" if name == time else "", default]))
        for name, default in zip(names, defaults, strict=True)
    ]
    if time == ARRIVAL:
        names.append("ts" if "ts" not in {name.lower() for name in names} else ARRIVAL)
        types.append("TIMESTAMP")
        notes.append("arrival time; not in SELECT *")
    return columns(column=names, type=types, note=notes)


def _about_stream(catalog: Catalog, name: str) -> str | None:
    """Where other tools find a stream's tuples; its clock, or its time there when that has no name of its own."""
    stream = catalog.streams.get(name.lower())
    if stream is None:
        return None
    time = f"\n{clock_text(stream)}" if stream.event_time else f"; the arrival time is its column {ARRIVAL}"
    return f"Delta table: {archive_of(stream.id)}{time}"


def _table(db: Db, table: pa.Table, message: str | None = None) -> Answer:
    catalog = db.catalog
    return Answer(table, catalog.epoch, to_datetime(db.now_us()), message=message, entry=catalog.seq)


def _text(db: Db, make: Callable[[], str]) -> Answer:
    return _table(db, columns(plan=make().splitlines()))


def _said(db: Db, message: str) -> Answer:
    catalog = db.catalog
    return Answer(pa.table({}), catalog.epoch, to_datetime(db.now_us()), message=message, entry=catalog.seq)
