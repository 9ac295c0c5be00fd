"""Statements of SQL, carried out. Those that are not a SELECT answer with a small table or a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from ladle import sql
from ladle.access import Token
from ladle.answer import Answer
from ladle.archive.warehouse import archive_of
from ladle.catalog import Catalog
from ladle.clock import interval_text, to_datetime
from ladle.columns import from_numpy, from_strings
from ladle.engine.clocks import clock_text, idle_text, lateness_text
from ladle.engine.deadline import statement_time
from ladle.engine.defining import Source
from ladle.engine.source import define_in_sql
from ladle.engine.unnamed import register_unnamed
from ladle.errors import EvaluationError, LadleError, Position, TypeMismatch, Unsupported, unknown
from ladle.schema import ARRIVAL, StreamSchema, TableSchema, type_name
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
    Misfit,
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
            return db.select(plan, catalog)
        case Insert() as insert:
            return _insert(db, insert, text, catalog)
        case InsertValues(stream, rows, misfits):
            return _pushed(db, stream, with_rejections(rows, {each.row: _rejection(each) for each in misfits}))
        case InsertTableValues(table, rows):
            return _said(db, f"{_rows(db.insert(table, rows))} {_DONE[InsertRows]} {table}")
        case InsertRows(table) | UpdateRows(table) | DeleteRows(table) as change:
            count = db.change_table(change, text, catalog)
            return _said(db, f"{_rows(count)} {_DONE[type(change)]} {table}")
        case CreateQuery() as create:
            return _create_query(db, create, catalog)
        case DropQuery(name, cascade, if_exists):
            db.unregister(name, cascade=cascade, if_exists=if_exists)
            return _said(db, f"query {name} dropped" if catalog.query(name) else f"there was no query {name}")
        case CreateStream(name, schema) as create:
            created = db.create_stream(
                name,
                schema,
                retain_us=create.retain_us,
                max_ahead_us=create.max_ahead_us,
                lateness_us=create.lateness_us,
                idle_after_us=create.idle_after_us,
                if_not_exists=create.if_not_exists,
            )
            return _said(db, f"stream {name} created" if created else f"stream {name} is there already, unchanged")
        case DropStream(name, cascade, if_exists):
            db.drop_stream(name, cascade=cascade, if_exists=if_exists)
            return _said(db, f"stream {name} dropped" if catalog.stream(name) else f"there was no stream {name}")
        case CreateTable(name, schema, if_not_exists):
            created = db.define_table(name, schema, if_not_exists=if_not_exists)
            return _said(db, f"table {name} created" if created else f"table {name} is there already, unchanged")
        case DropTable(name, cascade, if_exists):
            db.drop_table(name, cascade=cascade, if_exists=if_exists)
            return _said(db, f"table {name} dropped" if catalog.table(name) else f"there was no table {name}")
        case AddColumn() | SetRetain() | SetLateness() | SetIdleAfter() | Advance() as change:
            return _alter_stream(db, change)
        case CreateFunction() as create:
            return _create_function(db, create, catalog)
        case DropFunction(name, cascade, if_exists):
            db.drop_function(name, cascade=cascade, if_exists=if_exists)
            return _said(db, f"function {name} dropped" if catalog.function(name) else f"there was no function {name}")
        case ShowFunctions():
            return _table(db, _functions(catalog))
        case ShowStreams():
            return _table(db, _streams(catalog))
        case ShowTables():
            return _table(db, _tables(catalog))
        case ShowQueries():
            return _table(db, _queries(catalog))
        case CreateSource() | DropSource() | ShowSources() as about:
            return _about_sources(db, about, catalog)
        case CreateToken(name, role, replace):
            made = pa.table({"token": [db.rights.create_token(name, role, replace=replace)]})
            return _table(db, made, f"token of {name}, a {role.value}; it is shown this once")
        case DropToken(name, if_exists):
            db.rights.drop_token(name, if_exists=if_exists)
            known = name.lower() in catalog.access.tokens
            return _said(db, f"token {name} dropped" if known else f"there was no token {name}")
        case Grant(query, to):
            db.rights.grant(query, to)
            return _said(db, f"{to} may read query {query}")
        case Revoke(query, to):
            db.rights.revoke(query, to)
            return _said(db, f"query {query} is not shared with {to}")
        case ShowTokens():
            return _table(db, _tokens(db.rights.tokens(), catalog))
        case ShowGrants():
            return _table(db, _grants(catalog))
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
            return db.back_up(directory)
        case Verify():
            return db.verify_all()
        case Subscribe(name, _):
            raise Unsupported(
                "SUBSCRIBE goes on for as long as somebody listens, so it has no answer.",
                hint=f"in Python db.query('{name}').subscribe(), at the command line ladle sql -c 'SUBSCRIBE {name}'",
            )


def _alter_stream(db: Db, change: AddColumn | SetRetain | SetLateness | SetIdleAfter | Advance) -> Answer:
    match change:
        case AddColumn(stream, column):
            db.add_column(stream, column)
            return _said(db, f"column {column.name} added to {stream}")
        case SetRetain(stream, retain_us):
            db.set_retain(stream, retain_us)
            kept = "for ever" if retain_us is None else f"for {interval_text(retain_us)}"
            return _said(db, f"stream {stream} is retained {kept}")
        case SetLateness(stream, lateness_us):
            db.set_lateness(stream, lateness_us)
            late = "however late they are" if lateness_us is None else f"less than {interval_text(lateness_us)} late"
            return _said(db, f"stream {stream} takes tuples {late}")
        case SetIdleAfter(stream, idle_after_us):
            db.set_idle_after(stream, idle_after_us)
            when = "no more" if idle_after_us is None else f"after {interval_text(idle_after_us)}"
            return _said(db, f"stream {stream} becomes idle {when}")
        case Advance(stream, to_us):
            epoch = db.heartbeat(stream, to_datetime(to_us))
            if epoch is None:
                return _said(db, f"the clock of stream {stream} was there already")
            return _said(db, f"stream {stream} advanced to {to_datetime(to_us)}, epoch {epoch}")


def _create_query(db: Db, create: CreateQuery, catalog: Catalog) -> Answer:
    if create.name is None:
        name = register_unnamed(db, create.plan, create.materialize or Materialize.AUTO, catalog)
        return _said(db, f"query {name} stands")
    changed = db.register_plans(
        {create.name: (create.plan, create.materialize or Materialize.AUTO)},
        catalog,
        if_not_exists=create.if_not_exists,
        replace=create.replace,
    )
    if not changed:
        return _said(db, f"query {create.name} stands already, unchanged")
    replaced = create.replace and catalog.query(create.name) is not None
    return _said(db, f"query {create.name} {'replaced' if replaced else 'stands'}")


def _create_function(db: Db, create: CreateFunction, catalog: Catalog) -> Answer:
    definition = define_in_sql(create.name, create.parameters, create.returns, create.text)
    before = catalog.function(create.name)
    function = db.define_function(definition, replace=create.replace, if_not_exists=create.if_not_exists)
    if before == function:
        return _said(db, f"function {function.name} is there already, unchanged")
    return _said(db, f"function {function.name} {'created' if before is None else 'replaced'}")


def _about_sources(db: Db, about: CreateSource | DropSource | ShowSources, catalog: Catalog) -> Answer:
    match about:
        case CreateSource(name):
            created = db.define_source(about)
            return _said(db, f"source {name} created" if created else f"source {name} is there already, unchanged")
        case DropSource(name, if_exists):
            db.undefine_source(name, if_exists=if_exists)
            return _said(db, f"source {name} dropped" if catalog.source(name) else f"there was no source {name}")
        case ShowSources():
            return _table(db, _sources(db.sources()))


def _insert(db: Db, insert: Insert, text: str, catalog: Catalog) -> Answer:
    """Rows that can't be cast to the stream's types go to its quarantine: they are looked for when there are some."""
    try:
        table = db.select(insert.plan, catalog).table
    except EvaluationError:
        insert = sql.tolerant_insert(text, catalog)
        table = db.select(insert.plan, catalog).table
    width = len(insert.columns)
    if table.num_columns != (2 * width if insert.tolerant else width):
        raise TypeMismatch(f"INSERT gives {table.num_columns} values for {width} columns: {', '.join(insert.columns)}.")
    rows = table.select(range(width)).rename_columns(list(insert.columns))
    if insert.tolerant:
        rows = with_rejections(rows, not_cast(rows, table.select(range(width, 2 * width))))
    return _pushed(db, insert.stream, rows)


def _pushed(db: Db, name: str, rows: pa.Table) -> Answer:
    epoch = db.push(name, rows, wait=True)
    said = f"{_rows(len(rows))} inserted into {name}" + (f", epoch {epoch}" if epoch is not None else "")
    stream = db.catalog.stream(name)
    if stream is not None and stream.quarantine is not None:
        rejected = sum(file.rows for file in stream.quarantine.files if file.epoch_first == epoch)
        if rejected:
            said += f"; {_rows(rejected)} of that epoch went to {name}.quarantine, with the reason"
    return _said(db, said)


def _rejection(misfit: Misfit) -> tuple[str, str]:
    return rejection(misfit.column.name, misfit.value, misfit.column.type, misfit.given)


_DONE = {InsertRows: "inserted into", UpdateRows: "updated in", DeleteRows: "deleted from"}


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _streams(catalog: Catalog) -> pa.Table:
    streams = list(catalog.streams.values())
    return _columns(
        name=[stream.name for stream in streams],
        columns=[", ".join(f"{c.name} {type_name(c.type)}" for c in stream.schema.columns) for stream in streams],
        timestamp=[stream.schema.timestamp or "on arrival" for stream in streams],
        retain=["forever" if s.retain_us is None else interval_text(s.retain_us) for s in streams],
        lateness=[lateness_text(stream) if stream.event_time else "" for stream in streams],
        idle=[idle_text(stream) if stream.event_time else "" for stream in streams],
        rows=[stream.rows for stream in streams],
        epochs=[stream.epochs for stream in streams],
        quarantined=[stream.quarantine.rows if stream.quarantine else 0 for stream in streams],
    )


def _tables(catalog: Catalog) -> pa.Table:
    tables = list(catalog.tables.values())
    return _columns(
        name=[table.name for table in tables],
        columns=[", ".join(f"{c.name} {type_name(c.type)}" for c in table.schema.columns) for table in tables],
        rows=[table.rows for table in tables],
        bytes=[table.bytes for table in tables],
        version=[table.version for table in tables],
        queries=[len(catalog.queries_over(table.name)) for table in tables],
    )


def _queries(catalog: Catalog) -> pa.Table:
    queries = catalog.standing()
    return _columns(
        name=[query.name for query in queries],
        materialize=[query.materialize.value for query in queries],
        window=[", ".join(dict.fromkeys(scan.window.kind.value for scan in q.plan.scans)) for q in queries],
        streams=[", ".join(query.plan.streams) for query in queries],
        sql=[query.sql for query in queries],
    )


def _sources(sources: Sequence[Source]) -> pa.Table:
    return _columns(
        name=[source.name for source in sources],
        stream=[source.stream for source in sources],
        format=[source.format for source in sources],
        state=[source.state for source in sources],
        restarts=[source.restarts for source in sources],
        error=[source.error or "" for source in sources],
        options=[", ".join(f"{name} '{value}'" for name, value in source.options.items()) for source in sources],
    )


def _tokens(tokens: Sequence[Token], catalog: Catalog) -> pa.Table:
    return _columns(
        name=[token.name for token in tokens],
        role=[token.role.value for token in tokens],
        created=[f"{to_datetime(token.created_us):%Y-%m-%d %H:%M:%S}" for token in tokens],
        queries=[catalog.access.owned.get(token.name.lower(), 0) for token in tokens],
    )


def _grants(catalog: Catalog) -> pa.Table:
    """Queries that have an owner, and with whom they are shared; for others than their owners NULL."""
    owned = [(query, catalog.access.owner(query.name)) for query in catalog.standing()]
    shown = [(query, owner) for query, owner in owned if owner is not None]
    shared = [catalog.shared_with(query.name) for query, _ in shown]
    return _columns(
        query=[query.name for query, _ in shown],
        owner=[owner for _, owner in shown],
        shared_with=[None if names is None else ", ".join(names) for names in shared],
    )


def _functions(catalog: Catalog) -> pa.Table:
    functions = list(catalog.functions.values())
    return _columns(
        name=[function.name for function in functions],
        arguments=[", ".join(function.arguments) for function in functions],
        returns=[type_name(function.returns) for function in functions],
        queries=[len(catalog.queries_calling(function.name)) for function in functions],
    )


def _is_function(catalog: Catalog, name: str) -> bool:
    """Streams, tables and queries come first: they may have a function's name."""
    others = (catalog.stream(name), catalog.table(name), catalog.query(name))
    return all(other is None for other in others) and catalog.function(name) is not None


def _describe_function(catalog: Catalog, name: str) -> pa.Table:
    function = catalog.function(name)
    if function is None:
        raise unknown("function", name, catalog.function_names())
    callers = catalog.queries_calling(function.name)
    facts = {
        "function": function.signature,
        "language": "Python",
        "queries": ", ".join(callers) or "none",
        "source": function.source,
    }
    return _columns(name=list(facts), value=list(facts.values()))


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
        return _columns(name=list(facts), value=list(facts.values()))
    return _columns(
        column=list(schema.names), type=[type_name(field.type) for field in schema], note=["" for _ in schema]
    )


def _describe_columns(schema: StreamSchema | TableSchema) -> pa.Table:
    time = schema.timestamp_column if isinstance(schema, StreamSchema) else None
    names = [column.name for column in schema.columns]
    types = [type_name(column.type) for column in schema.columns]
    notes = ["the timestamp" if name == time else "" for name in names]
    if time == ARRIVAL:
        names.append("ts" if "ts" not in {name.lower() for name in names} else ARRIVAL)
        types.append("TIMESTAMP")
        notes.append("arrival time; not in SELECT *")
    return _columns(column=names, type=types, note=notes)


def _about_stream(catalog: Catalog, name: str) -> str | None:
    """Where other tools find a stream's tuples; its clock, or its time there when that has no name of its own."""
    stream = catalog.streams.get(name.lower())
    if stream is None:
        return None
    time = f"\n{clock_text(stream)}" if stream.event_time else f"; the arrival time is its column {ARRIVAL}"
    return f"Delta table: {archive_of(stream.id)}{time}"


def _columns(**columns: list[Any]) -> pa.Table:
    arrays = [
        from_numpy(np.array(values, dtype=np.int64)) if values and isinstance(values[0], int) else from_strings(values)
        for values in columns.values()
    ]
    return pa.Table.from_arrays(arrays, names=list(columns))


def _table(db: Db, table: pa.Table, message: str | None = None) -> Answer:
    catalog = db.catalog
    return Answer(table, catalog.epoch, to_datetime(db.now_us()), message=message)


def _text(db: Db, make: Callable[[], str]) -> Answer:
    return _table(db, _columns(plan=make().splitlines()))


def _said(db: Db, message: str) -> Answer:
    return Answer(pa.table({}), db.catalog.epoch, to_datetime(db.now_us()), message=message)
