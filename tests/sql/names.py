"""Catalogs for the tests of the SQL front."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from ladle.plan import Function
from ladle.schema import TIMESTAMP, Column, StreamSchema, TableSchema

RESERVED = ("end", "order", "begin", "now", "range", "rows", "timestamp", "query", "stream", "at")


def _schema(by: str | None = None, /, **columns: pa.DataType) -> StreamSchema:
    return StreamSchema(tuple(Column(name, type_) for name, type_ in columns.items()), by)


class Names:
    """What the binder asks, of these streams, queries, functions and tables."""

    def __init__(
        self,
        streams: Mapping[str, StreamSchema],
        queries: Mapping[str, str] | None = None,
        functions: Sequence[Function] = (),
        tables: Mapping[str, TableSchema] | None = None,
    ) -> None:
        self.streams = dict(streams)
        self.queries = dict(queries or {})
        self.functions = list(functions)
        self.tables = dict(tables or {})

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        return next(((key, value) for key, value in self.streams.items() if key.lower() == name.lower()), None)

    def table_schema(self, name: str) -> tuple[str, TableSchema] | None:
        return next(((key, value) for key, value in self.tables.items() if key.lower() == name.lower()), None)

    def query_sql(self, name: str) -> tuple[str, str] | None:
        return next(((key, value) for key, value in self.queries.items() if key.lower() == name.lower()), None)

    def inside(self, query: str) -> Names:
        """With the streams and tables that it reads, also through other queries."""
        words, waiting, queries = (
            set[str](),
            [query.lower()],
            {name.lower(): text for name, text in self.queries.items()},
        )
        while waiting:
            found = set(re.findall(r"[\w.]+", queries[waiting.pop()].lower())) - words
            words |= found
            waiting += found & queries.keys()
        streams = {name: schema for name, schema in self.streams.items() if name.lower() in words}
        tables = {name: schema for name, schema in self.tables.items() if name.lower() in words}
        return Names(streams, self.queries, self.functions, tables)

    def function(self, name: str) -> Function | None:
        return next((function for function in self.functions if function.name.lower() == name.lower()), None)

    def function_names(self) -> Iterable[str]:
        return [function.name for function in self.functions]

    def stream_names(self) -> Iterable[str]:
        return self.streams

    def table_names(self) -> Iterable[str]:
        return self.tables

    def query_names(self) -> Iterable[str]:
        return self.queries


class Catalog(Names):
    """A few streams, a quarantine, a table, two standing queries and a function."""

    def __init__(self) -> None:
        streams = {
            "trades": _schema("at", symbol=pa.string(), Price=pa.float64(), size=pa.int32(), at=TIMESTAMP),
            "PTb": _schema("timestamp", saddr=pa.string(), daddr=pa.string(), length=pa.int64(), timestamp=TIMESTAMP),
            "sensors": _schema(
                room=pa.string(),
                t=pa.float64(),
                tags=pa.list_(pa.string()),
                s=pa.struct([pa.field("f", pa.int32())]),
            ),
            "odd": _schema(**{name: pa.int32() for name in RESERVED}),
            "stamped": _schema(ts=pa.string(), v=pa.int32()),
            "trades.quarantine": _schema(reason=pa.string(), row=pa.string()),
        }
        queries = {
            "Expensive": "SELECT symbol, price FROM trades WHERE price > 100 BEGIN NOW - INTERVAL 10 MINUTES END NOW",
            "Nested": "SELECT symbol FROM expensive WHERE symbol <> 'x'",
        }
        columns = (Column("Symbol", pa.string()), Column("name", pa.string()), Column("listed", pa.date32()))
        tables = {"Companies": TableSchema(columns)}
        source = "def is_spike(price, symbol):\n    return pc.greater(price, 100)\n"
        parameters = (Column("price", pa.float64()), Column("symbol", pa.string()))
        super().__init__(streams, queries, [Function(7, "is_spike", parameters, pa.bool_(), source)], tables)
