"""What the names in a query's text mean: which stream, table, query or function each is, and with which columns.

The log has a text as it was written, and beside it a small table of *references*: name, id, and of streams and tables
how many columns they had. That is as good as a text with its stars expanded and ids for names, and people still read
what they wrote: `SELECT *` has the columns of then, and a name can't come to mean something else. Ids are never used
again, columns come only at the end, and a version of a function or a query has an id of its own.

A `Meaning` is what the references come to as of the entry that had them, and what a text is bound to, whenever that is.
Thousands of queries share one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from ladle.json_values import JsonRow
from ladle.plan import Function, Plan
from ladle.schema import StreamSchema, TableSchema

if TYPE_CHECKING:
    from ladle.catalog.grants import Access
    from ladle.catalog.queries import QueryState
    from ladle.catalog.streams import StreamState
    from ladle.catalog.tables import TableState

References: TypeAlias = dict[str, list[JsonRow]]
"""As the log has them: by kind, lists of name, id, and of streams and tables the number of columns."""


class KnownNames(Protocol):
    """What is there, by name, as of some entry."""

    def stream(self, name: str) -> StreamState | None:
        """The stream of that name, or None."""
        ...

    def table(self, name: str) -> TableState | None:
        """The table of that name, or None."""
        ...

    def query(self, name: str) -> QueryState | None:
        """The standing query of that name, or None."""
        ...

    def function(self, name: str) -> Function | None:
        """The function of that name, or None."""
        ...


class _WithId(Protocol):
    @property
    def id(self) -> int: ...


_Thing = TypeVar("_Thing", bound=_WithId)


class StreamMeant(NamedTuple):
    """The stream that a name in a query's text means."""

    id: int
    name: str
    schema: StreamSchema
    """With the columns it had."""


class TableMeant(NamedTuple):
    """The table that a name in a query's text means."""

    id: int
    name: str
    schema: TableSchema


class Meaning:
    """Immutable; what the binder asks of it (`ladle.sql.names.Names`) are the names of one text, and nothing else."""

    def __init__(
        self,
        streams: Iterable[StreamMeant] = (),
        tables: Iterable[TableMeant] = (),
        queries: Iterable[QueryState] = (),
        functions: Iterable[Function] = (),
        missing: Iterable[str] = (),
    ) -> None:
        self.streams: Mapping[str, StreamMeant] = {each.name.lower(): each for each in streams}
        self.tables: Mapping[str, TableMeant] = {each.name.lower(): each for each in tables}
        self.queries: Mapping[str, QueryState] = {each.name.lower(): each for each in queries}
        """Those that are read, also by the ones that are."""
        self.functions: Mapping[str, Function] = {each.name.lower(): each for each in functions}
        """Those that are called, also by the queries that are read."""
        self.missing = tuple(missing)
        """What is not there, though it was meant; for people."""

    # -- what the binder asks --

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        """What a stream is called, and its columns as they were when the query was registered."""
        found = self.streams.get(name.lower())
        return None if found is None else (found.name, found.schema)

    def table_schema(self, name: str) -> tuple[str, TableSchema] | None:
        """What a table is called, and its columns."""
        found = self.tables.get(name.lower())
        return None if found is None else (found.name, found.schema)

    def query_sql(self, name: str) -> tuple[str, str] | None:
        """What a standing query is called, and its text."""
        found = self.queries.get(name.lower())
        return None if found is None else (found.name, found.sql)

    def inside(self, query: str) -> Meaning:
        """What the names in the text of a query that this one reads mean."""
        return self.queries[query.lower()].meaning

    def function(self, name: str) -> Function | None:
        """The function that a name means, or None."""
        return self.functions.get(name.lower())

    def function_names(self) -> Iterable[str]:
        """The functions that are called."""
        return [function.name for function in self.functions.values()]

    def stream_names(self) -> Iterable[str]:
        """The streams that are read."""
        return [each.name for each in self.streams.values()]

    def table_names(self) -> Iterable[str]:
        """The tables that are read."""
        return [each.name for each in self.tables.values()]

    def query_names(self) -> Iterable[str]:
        """The standing queries that are read."""
        return [each.name for each in self.queries.values()]

    # -- the rest --

    def stream_id(self, name: str) -> int:
        """The id of a stream that is read."""
        return self.streams[name.lower()].id

    @cached_property
    def stream_list(self) -> tuple[str, ...]:
        """The names of all streams that are read, also through queries; for people."""
        return tuple(each.name for each in self.streams.values())

    @cached_property
    def digest(self) -> str:
        """Names all that a text's plan follows from but the text itself."""
        parts = [
            *(f"{each.id} {each.name} {each.schema.to_json()}" for each in self.streams.values()),
            *(f"{each.id} {each.name} {each.schema.to_json()}" for each in self.tables.values()),
            *(f"{each.id} {each.name} {each.meaning.digest} {each.sql}" for each in self.queries.values()),
            *(json.dumps(each.to_json()) for each in self.functions.values()),
            *self.missing,
        ]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()

    @cached_property
    def references(self) -> References:
        """Encode the meaning for the log: names, ids, and how many columns there were."""
        return {
            "streams": [[each.name, each.id, len(each.schema.columns)] for each in self.streams.values()],
            "tables": [[each.name, each.id, len(each.schema.columns)] for each in self.tables.values()],
            "queries": [[each.name, each.id] for each in self.queries.values()],
            "functions": [[each.name, each.id] for each in self.functions.values()],
        }

    def renewed(self, known: KnownNames) -> Meaning:
        """The same names, with what there is now behind them; of streams the columns stay those they were."""
        return resolved(
            known,
            streams=[(each.name, len(each.schema.columns)) for each in self.streams.values()],
            tables=[(each.name, len(each.schema.columns)) for each in self.tables.values()],
            queries=self.queries,
            functions=self.functions,
        )


class OwnersMeaning(Meaning):
    """What a text means to who reads its query by name: of other queries, what the query's owner may read today."""

    def __init__(self, query: QueryState, access: Access) -> None:
        meaning = query.meaning
        owner = access.as_owner(query.name)
        seen = [each for name, each in meaning.queries.items() if owner is None or access.sees(owner, name)]
        super().__init__(meaning.streams.values(), meaning.tables.values(), seen, meaning.functions.values())
        self._access = access

    def inside(self, query: str) -> Meaning:
        """What the names in the text of a query that this one reads mean, for its owner."""
        return OwnersMeaning(self.queries[query.lower()], self._access)


def meaning_of(plan: Plan, known: KnownNames) -> Meaning:
    """What the names in a plan's text mean now."""
    return resolved(
        known,
        streams=[(name, None) for name in plan.streams],
        tables=[(each.table, None) for each in plan.tables],
        queries=plan.queries,
        functions=[each.name for each in plan.functions],
    )


def resolved(
    known: KnownNames,
    streams: Iterable[tuple[str, int | None]],
    tables: Iterable[tuple[str, int | None]],
    queries: Iterable[str],
    functions: Iterable[str],
) -> Meaning:
    """What names mean, as of what is known; streams and tables have as many of their columns as are said, or all."""
    found = _MeaningFinder()
    for name, columns in streams:
        found.stream(name, known.stream(name), columns)
    for name, columns in tables:
        found.table(name, known.table(name), columns)
    for name in queries:
        found.query(name, known.query(name))
    for name in functions:
        found.function(name, known.function(name))
    return found.meaning()


def meaning_from(references: References, known: KnownNames) -> Meaning:
    """What references come to. Something of the same name with another id is not what was meant."""
    found = _MeaningFinder()
    for name, id_, columns in references["streams"]:
        found.stream(name, _with_id(known.stream(name), id_), columns)
    for name, id_, *columns in references["tables"]:
        # Before tables could get columns, nobody wrote down how many they had.
        found.table(name, _with_id(known.table(name), id_), columns[0] if columns else None)
    for name, id_ in references["queries"]:
        found.query(name, _with_id(known.query(name), id_))
    for name, id_ in references["functions"]:
        found.function(name, _with_id(known.function(name), id_))
    return found.meaning()


def _with_id(found: _Thing | None, id_: int) -> _Thing | None:
    return found if found is not None and found.id == id_ else None


class _MeaningFinder:
    """Gathers what names mean."""

    def __init__(self) -> None:
        self._streams: list[StreamMeant] = []
        self._tables: list[TableMeant] = []
        self._queries: list[QueryState] = []
        self._functions: list[Function] = []
        self._missing: list[str] = []

    def stream(self, name: str, state: StreamState | None, columns: int | None) -> None:
        if state is None or (columns is not None and len(state.schema.columns) < columns):
            self._missing.append(f"stream '{name}'")
        else:
            whole = columns is None or columns == len(state.schema.columns)
            schema = state.schema if whole or columns is None else state.schema.first(columns)
            self._streams.append(StreamMeant(state.id, state.name, schema))

    def table(self, name: str, state: TableState | None, columns: int | None) -> None:
        if state is None or (columns is not None and len(state.schema.columns) < columns):
            self._missing.append(f"table '{name}'")
        else:
            whole = columns is None or columns == len(state.schema.columns)
            schema = state.schema if whole or columns is None else state.schema.first(columns)
            self._tables.append(TableMeant(state.id, state.name, schema))

    def query(self, name: str, state: QueryState | None) -> None:
        if state is None:
            self._missing.append(f"query '{name}'")
        else:
            self._queries.append(state)

    def function(self, name: str, function: Function | None) -> None:
        if function is None:
            self._missing.append(f"function '{name}'")
        else:
            self._functions.append(function)

    def meaning(self) -> Meaning:
        """The one object with this content."""
        parts = (tuple(self._streams), tuple(self._tables), tuple(self._queries), tuple(self._functions))
        key = (
            tuple((each.id, id(each.schema)) for each in self._streams),
            tuple((each.id, id(each.schema)) for each in self._tables),
            tuple(map(id, (*self._queries, *self._functions))),
            tuple(self._missing),
        )
        made = _meanings.get(key)
        if made is None or not _is_made_of(made, parts):
            made = _meanings[key] = Meaning(*parts, missing=self._missing)
        return made


_meanings: WeakValueDictionary[tuple[object, ...], Meaning] = WeakValueDictionary()


def _is_made_of(made: Meaning, parts: tuple[tuple[object, ...], ...]) -> bool:
    """Whether a meaning has these very objects: its key has their addresses alone."""
    own: Iterator[Mapping[str, object]] = iter((made.streams, made.tables, made.queries, made.functions))
    return all(
        len(mine) == len(theirs)
        and all(
            one is other
            or (
                isinstance(one, StreamMeant | TableMeant)
                and isinstance(other, StreamMeant | TableMeant)
                and one[:2] == other[:2]
                and one[2] is other[2]
            )
            for one, other in zip(mine.values(), theirs, strict=True)
        )
        for mine, theirs in zip(own, parts, strict=True)
    )
