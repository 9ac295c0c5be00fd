"""SHOW CREATE: the statement that makes what is there, as SQL that can be run again."""

from __future__ import annotations

from ladle.catalog import Catalog, QueryState, StreamState
from ladle.clock import interval_text
from ladle.define.views import require_view
from ladle.errors import unknown
from ladle.plan import Function
from ladle.schema import Column, TableSchema, quoted, type_name
from ladle.sql.statement_types import CreateStream, DropStream, SetIdleAfter, SetLateness, SetRetain

_SECOND_US = 1_000_000


def create_text(catalog: Catalog, kind: str, name: str) -> str:
    """The CREATE statement of a stream, table, query, view or function."""
    match kind:
        case "STREAM":
            stream = catalog.streams.get(name.lower())
            if stream is None:
                raise unknown("stream", name, catalog.stream_names())
            return stream_text(stream)
        case "TABLE":
            table = catalog.table(name)
            if table is None:
                raise unknown("table", name, catalog.table_names())
            return _table(table.name, table.schema)
        case "FUNCTION":
            function = catalog.function(name)
            if function is None:
                raise unknown("function", name, catalog.function_names())
            return _function(function)
        case "VIEW":
            require_view(catalog, name)
    query = catalog.query(name)
    if query is None:
        raise unknown("query", name, catalog.query_names())
    return f"CREATE VIEW {quoted(query.name)} AS\n{query.sql}" if kind == "VIEW" else _query(query)


def stream_text(stream: StreamState | CreateStream) -> str:
    """The CREATE STREAM of one that is there, or that is to be made."""
    clauses = [
        *([f"TIMESTAMP BY {quoted(stream.schema.timestamp)}"] if stream.schema.timestamp is not None else []),
        *_interval("RETAIN", stream.retain_us),
        *_interval("MAX AHEAD", stream.max_ahead_us),
        *_interval("LATENESS", stream.lateness_us),
        *_interval("IDLE AFTER", stream.idle_after_us),
    ]
    kept = "IF NOT EXISTS " if isinstance(stream, CreateStream) and stream.if_not_exists else ""
    return "\n  ".join([f"CREATE STREAM {kept}{quoted(stream.name)} ({_columns(stream.schema.columns)})", *clauses])


def _interval(clause: str, us: int | None) -> list[str]:
    if us is None:
        return []
    length = interval_text(us).upper() if us % _SECOND_US == 0 else f"{us} MICROSECONDS"
    return [f"{clause} INTERVAL {length}"]


def change_text(change: DropStream | SetRetain | SetLateness | SetIdleAfter) -> str:
    """The statement that changes or drops a stream."""
    match change:
        case DropStream(name, cascade, if_exists):
            kept = "IF EXISTS " if if_exists else ""
            return f"DROP STREAM {kept}{quoted(name)}{' CASCADE' if cascade else ''}"
        case SetRetain(name, us):
            said = _interval("SET RETAIN", us) or ["SET RETAIN FOREVER"]
        case SetLateness(name, us):
            said = _interval("SET LATENESS", us) or ["SET LATENESS UNBOUNDED"]
        case SetIdleAfter(name, us):
            said = _interval("SET IDLE AFTER", us) or ["SET IDLE NEVER"]
    return f"ALTER STREAM {quoted(name)} {said[0]}"


def _table(name: str, schema: TableSchema) -> str:
    return f"CREATE TABLE {quoted(name)} ({_columns(schema.columns)})"


def _query(query: QueryState) -> str:
    return f"CREATE QUERY {quoted(query.name)} WITH (materialize = '{query.materialize.value}') AS\n{query.sql}"


def _function(function: Function) -> str:
    head = f"CREATE FUNCTION {quoted(function.name)}({_columns(function.parameters)}) RETURNS "
    if function.inlined:
        return f"{head}{type_name(function.returns)} RETURN {function.source}"
    return f"{head}{type_name(function.returns)} LANGUAGE PYTHON AS {_source(function.source)}"


def _source(text: str) -> str:
    """Between $$, or as a string where the source has them itself."""
    if "$$" not in text:
        return f"$$\n{text}$$"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _columns(columns: tuple[Column, ...]) -> str:
    return ", ".join(
        f"{quoted(column.name)} {type_name(column.type)}"
        + ("" if column.default is None else f" DEFAULT {column.default.sql}")
        for column in columns
    )
