"""Streams, tables and queries come and go. Each change is one log entry, checked against the newest catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext

from ladle import catalog as entries
from ladle import sql
from ladle.access import User
from ladle.catalog import Catalog, NewQuery, QueryState, StreamState, TableState
from ladle.catalog.dependents import queries_on, queries_over, queries_reading
from ladle.catalog.entry_types import Entry
from ladle.catalog.store import Store
from ladle.collector import uncollected
from ladle.define.column_defaults import Defaults
from ladle.errors import AlreadyExists, Denied, InUse, LadleError, LimitExceeded, Unsupported, listed, unknown
from ladle.execute.spark_analysis import renewed
from ladle.plan import Plan, WindowKind
from ladle.schema import Column, StreamSchema, TableSchema, require_time_column, type_name
from ladle.sql.statement_types import Materialize

_TAKEN = {
    "stream": "choose another name, drop it first, or keep it with IF NOT EXISTS",
    "table": "choose another name, drop it first, or keep it with IF NOT EXISTS",
    "query": "choose another name, keep it with IF NOT EXISTS, or change it with OR REPLACE",
}

_MANY = 1_000


class Definitions:
    """Makes, changes and drops streams, tables and queries, each with one log entry."""

    def __init__(self, store: Store, defaults: Defaults) -> None:
        self._store = store
        self._defaults = defaults

    # -- streams --

    def create_stream(
        self,
        name: str,
        schema: StreamSchema,
        *,
        retain_us: int | None,
        max_ahead_us: int | None,
        lateness_us: int | None,
        idle_after_us: int | None,
        if_not_exists: bool,
    ) -> bool:
        """Whether the stream is new: with `if_not_exists` it may have been there."""
        check_name("stream", name)
        if lateness_us is not None:
            require_time_column(name, schema, "LATENESS")
        if idle_after_us is not None:
            require_time_column(name, schema, "IDLE AFTER")
        schema = self._defaults.declared(schema, self._store.catalog)

        def make_entry(catalog: Catalog) -> Entry | None:
            if catalog.stream(name) is not None and if_not_exists:
                return None
            refuse_taken(catalog, name, "stream")
            return entries.create_stream(name, schema, retain_us, max_ahead_us, lateness_us, idle_after_us)

        return self._store.commit(make_entry) is not None

    def drop_stream(self, stream: StreamState, *, cascade: bool, attached: Sequence[str] = ()) -> None:
        """Drop a stream; with `cascade` its sources and the queries that stand on it too. `attached`: sources that run,
        and are known to no catalog.
        """

        def make_entry(catalog: Catalog) -> Entry | None:
            current = catalog.streams.get(stream.name.lower())
            if current is None or current.id != stream.id:
                return None
            gone = _with_readers(catalog, queries_on(catalog, stream.name))
            dependent = {
                "sources are attached to it": attached,
                "sources are defined for it": [source.name for source in catalog.sources_of(stream.name)],
                "queries stand on it": [catalog.queries[name].name for name in gone],
            }
            told = "; ".join(f"{what}: {listed(names)}" for what, names in dependent.items() if names)
            if told and not cascade:
                raise InUse(
                    f"Stream '{stream.name}' can't be dropped: {told}.",
                    hint=f"drop or stop them first, or all at once: DROP STREAM {stream.name} CASCADE",
                )
            return entries.drop_stream(stream.name, sorted(gone))

        self._store.commit(make_entry)

    def add_column(self, stream: str, column: Column) -> None:
        """Add a column to a stream. Tuples that came before have NULL there."""
        column = self._defaults.column(column, self._store.catalog, of_stream=True)

        def make_entry(catalog: Catalog) -> Entry:
            state = base_stream(catalog, stream)
            state.schema.with_column(column)
            return entries.add_column(state.name, column)

        self._store.commit(make_entry)

    def set_retain(self, stream: str, retain_us: int | None) -> None:
        """Change how long a stream keeps its tuples."""
        at_us = self._store.clock.now_us()
        self._store.commit(lambda catalog: entries.set_retain(base_stream(catalog, stream).name, retain_us, at_us))

    def set_lateness(self, stream: str, lateness_us: int | None) -> None:
        """Change how late tuples of a stream may be, from the next commit on."""
        self._store.commit(lambda catalog: entries.set_lateness(_timed(catalog, stream, "LATENESS"), lateness_us))

    def set_idle_after(self, stream: str, idle_after_us: int | None) -> None:
        """Change after which silence a stream becomes idle."""
        self._store.commit(lambda catalog: entries.set_idle_after(_timed(catalog, stream, "IDLE AFTER"), idle_after_us))

    # -- tables --

    def create_table(self, name: str, schema: TableSchema, *, if_not_exists: bool) -> bool:
        """Whether the table is new: with `if_not_exists` it may have been there."""
        check_name("table", name)
        if not schema.columns:
            raise LadleError(f"Table '{name}' needs a column at least.")
        schema = self._defaults.declared(schema, self._store.catalog)

        def make_entry(catalog: Catalog) -> Entry | None:
            if catalog.table(name) is not None and if_not_exists:
                return None
            refuse_taken(catalog, name, "table")
            return entries.create_table(name, schema, self._store.clock.now_us())

        return self._store.commit(make_entry) is not None

    def drop_table(self, name: str, *, cascade: bool, if_exists: bool) -> tuple[Catalog, TableState] | None:
        """The first snapshot without the table, and what it was; with `cascade` the queries that read it go too."""
        dropped: list[TableState] = []

        def make_entry(catalog: Catalog) -> Entry | None:
            if if_exists and catalog.table(name) is None:
                return None
            table = base_table(catalog, name)
            gone = _with_readers(catalog, queries_over(catalog, table.name))
            if gone and not cascade:
                names = listed(catalog.queries[name].name for name in gone)
                raise InUse(
                    f"Table '{table.name}' can't be dropped: queries read it: {names}.",
                    hint="drop them first, or use CASCADE",
                )
            dropped.append(table)
            return entries.drop_table(table.name, sorted(gone))

        after = self._store.commit(make_entry)
        return None if after is None else (after, dropped[0])

    # -- queries --

    def register(
        self,
        plans: Mapping[str, tuple[Plan, Materialize]],
        bound_to: Catalog,
        *,
        if_not_exists: bool = False,
        replace: bool = False,
        by: User | None = None,
    ) -> bool:
        """Let plans stand that were bound to a catalog. Binding is slow beside a commit, so it comes before it.

        Whether anything changed: with `if_not_exists` those whose names are taken by queries stay as they are.
        """
        if if_not_exists and replace:
            raise LadleError("A query that is there is either kept or replaced.", hint="say one of the two")
        names = Counter(name.lower() for name in plans)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise AlreadyExists(f"'{twice[0]}' is given twice.", hint="names are compared without case")
        for name in plans:
            check_name("query", name)

        owner = None if by is None or by.local else by.name

        def make_entry(catalog: Catalog) -> Entry | None:
            standing = {name for name in plans if catalog.query(name) is not None}
            for name in plans:
                _refuse_hidden(catalog, name, by)
                if name not in standing or not (if_not_exists or replace):
                    refuse_taken(catalog, name, "query")
                elif replace:
                    require_owner(catalog, name, by)
            self._check_share(catalog, len(plans) - len(standing), by)
            current = [
                (
                    name,
                    plan if still_holds(plan, bound_to, catalog) else sql.rebind(plan.sql, bound_to.renewed(catalog)),
                    mode,
                )
                for name, (plan, mode) in plans.items()
                if replace or name not in standing
            ]
            for _, plan, mode in current:
                _refuse_unbounded(catalog, plan, mode)
            now_us = self._store.clock.now_us()
            wanted = _wanted(catalog, current)
            if replace and standing:
                wanted = _with_readers_bound(catalog, wanted, now_us, by)
                return entries.register(wanted, now_us, replacing=True, owner=owner)
            return entries.register(wanted, now_us, owner=owner) if wanted else None

        with uncollected() if len(plans) > _MANY else nullcontext():
            return self._store.commit(make_entry) is not None

    def _check_share(self, catalog: Catalog, more: int, by: User | None) -> None:
        most = self._store.settings.queries_per_owner_max
        if by is not None and not by.local and catalog.access.owned.get(by.name.lower(), 0) + more > most:
            raise LimitExceeded(
                f"'{by.name}' would have more than {most:,} standing queries.",
                hint="drop some, or have the setting queries_per_owner_max raised",
            )

    def unregister(self, names: Sequence[str], *, cascade: bool, by: User | None = None) -> None:
        """Let queries go; with `cascade` those that read them too."""

        def make_entry(catalog: Catalog) -> Entry | None:
            meant = {name.lower() for name in names if catalog.query(name) is not None}
            gone = _with_readers(catalog, meant)
            for name in sorted(meant):
                # What others made of it goes with it.
                require_owner(catalog, name, by)
            if gone > meant and not cascade:
                raise InUse(
                    f"Query '{names[0]}' can't be dropped: others read it: {_told(catalog, gone - meant, by)}.",
                    hint="drop them first, or use CASCADE",
                )
            return entries.unregister(sorted(gone)) if gone else None

        self._store.commit(make_entry)


def require_owner(catalog: Catalog, query: str, by: User | None) -> None:
    """Refuse a change of a query by somebody who is neither its owner nor an admin."""
    if by is not None and not catalog.access.owns(by, query):
        # Of a query that is not shared nothing is said, not even whose it is.
        raise Denied(f"Query '{query}' is not yours to change.", hint="only its owner and admins may")


def base_stream(catalog: Catalog, name: str) -> StreamState:
    """A stream that people fill: not a quarantine."""
    stream = catalog.stream(name)
    if stream is None:
        if (table := catalog.table(name)) is not None:
            hint = "INSERT INTO, or db.insert(...)"
            raise LadleError(f"'{table.name}' is a table, not a stream: rows are inserted into it.", hint=hint)
        raise unknown("stream", name, catalog.stream_names())
    if "." in stream.name:
        raise LadleError(f"'{stream.name}' is filled by Ladle alone.")
    return stream


def _timed(catalog: Catalog, name: str, what: str) -> str:
    """The name of a stream that has a time column."""
    stream = base_stream(catalog, name)
    require_time_column(stream.name, stream.schema, what)
    return stream.name


def base_table(catalog: Catalog, name: str) -> TableState:
    """The table of that name, or an error that lists those there are."""
    table = catalog.table(name)
    if table is None:
        raise unknown("table", name, catalog.table_names())
    return table


def standing_query(catalog: Catalog, name: str) -> QueryState:
    """The standing query of that name, or an error that lists those there are."""
    query = catalog.query(name)
    if query is None:
        raise unknown("query", name, catalog.query_names())
    return query


def _with_readers(catalog: Catalog, names: Iterable[str]) -> set[str]:
    """Queries, and those that read them, and those that read these."""
    found = {name.lower() for name in names}
    waiting = list(found)
    while waiting:
        readers = {reader.lower() for reader in queries_reading(catalog, waiting.pop())} - found
        found |= readers
        waiting += readers
    return found


def _told(catalog: Catalog, readers: Iterable[str], by: User | None) -> str:
    """The names of queries, as far as a user may know of them."""
    named = [catalog.queries[name.lower()].name for name in readers if catalog.access.sees(by, name)]
    hidden = len(set(readers)) - len(named)
    return ", ".join([*([listed(named)] if named else []), *([f"{hidden} of other users"] if hidden else [])])


def _wanted(catalog: Catalog, plans: Iterable[tuple[str, Plan, Materialize]]) -> list[NewQuery]:
    """Plans as queries that are to stand; what the names in most of them mean is the same."""
    found: dict[object, NewQuery] = {}
    wanted = []
    for name, plan, mode in plans:
        shared = (id(plan.residual), id(plan.schema), id(plan.queries), id(plan.tables), id(plan.functions))
        key = (shared, tuple([scan.block.stream for scan in plan.scans]))
        like = found.get(key)
        if like is None:
            like = found[key] = catalog.wanted(name, plan, mode)
        wanted.append(NewQuery(name, plan.sql, like.meaning, mode, like.told, plan))
    return wanted


def _with_readers_bound(catalog: Catalog, wanted: Sequence[NewQuery], now_us: int, by: User | None) -> list[NewQuery]:
    """Queries that replace others, and those that read them, bound to what they read from now on: each after those."""
    own = {each.name.lower(): each for each in wanted}
    replaced = {name for name in own if catalog.query(name) is not None}
    for each in wanted:
        assert each.plan is not None
        _refuse_other_columns(catalog, each.name, each.plan, by)
    reads = {name: set(each.meaning.queries) for name, each in own.items()}
    reads |= {name: set(catalog.queries[name].meaning.queries) for name in _with_readers(catalog, replaced) - set(own)}
    for each in wanted:
        _refuse_cycle(each.name, reads)
    found = [each for name, each in own.items() if replaced.isdisjoint(reads[name])]
    following = catalog.apply(catalog.seq + 1, entries.register(found, now_us, replacing=True))
    waiting = {name: read for name, read in reads.items() if not replaced.isdisjoint(read)}
    while waiting:
        name = min(waiting, key=lambda each: (len(waiting[each] & waiting.keys()), each))
        del waiting[name]
        if name in own:
            again = sql.rebind(own[name].sql, following)
            each = following.wanted(own[name].name, again, own[name].materialize)
        else:
            each = renewed(catalog.queries[name], following)
            _refuse_other_answer(catalog.queries[name], each, catalog, by)
        following = following.apply(following.seq + 1, entries.register([each], now_us, replacing=True))
        found.append(each)
    return found


def _refuse_cycle(name: str, reads: Mapping[str, set[str]]) -> None:
    """Refuse a query that would read itself, maybe through others."""
    reached, waiting = set[str](), [name.lower()]
    while waiting:
        below = reads.get(waiting.pop(), set()) - reached
        reached |= below
        waiting += below
    if name.lower() in reached:
        raise InUse(f"Query '{name}' can't read itself.", hint="read the streams, or a query that does not read it")


def _refuse_other_answer(before: QueryState, after: NewQuery, catalog: Catalog, by: User | None) -> None:
    """A query that reads one that is replaced keeps its columns; of one that is broken nobody knows them."""
    if before.broken is None and (after.plan is None or after.plan.schema != before.plan.schema):
        told = _told(catalog, [before.name], by)
        raise InUse(f"A query that reads it would have other columns: {told}.", hint="drop that one first")


def _refuse_other_columns(catalog: Catalog, name: str, plan: Plan, by: User | None) -> None:
    """A query that others read may be replaced only by one that looks the same to them."""
    before, readers = catalog.query(name), queries_reading(catalog, name)
    if before is None or before.broken is not None or not readers:
        return
    old, new = before.plan.schema, plan.schema
    if old is not None and new is not None and old.equals(new):
        return
    others = f"others read it: {_told(catalog, readers, by)}"
    if old is None or new is None:
        why = "and its columns, which must stay the same, are known only when it runs, on Spark"
    else:
        columns = ", ".join(f"{field.name} {type_name(field.type)}" for field in old)
        why = f"and its columns must stay the same: {columns}"
    raise InUse(f"Query '{before.name}' can't be replaced: {others}, {why}.", hint="drop them first")


def _refuse_unbounded(catalog: Catalog, plan: Plan, mode: Materialize) -> None:
    """Pairs are kept for what is in a join's windows: of streams that grow without end they would too."""
    if plan.joined is None or mode is Materialize.NONE:
        return
    for number in sorted(plan.joined.scans):
        scan = plan.scans[number]
        # A quarantine is retained as long as its stream.
        stream = base_stream(catalog, scan.block.stream.partition(".")[0])
        if stream.retain_us is None and scan.window.kind in _GROWS:
            raise Unsupported(
                f"The state of this join is unbounded: it would keep pairs of all tuples that stream '{stream.name}' "
                "ever had.",
                hint=f"give it a window ({stream.name} [RANGE 1 HOUR]), the stream a RETAIN, or keep nothing: "
                "materialize = 'none'",
            )


_GROWS = (WindowKind.EVERYTHING, WindowKind.LANDMARK, WindowKind.KEYED_ROWS)
"""Windows with no end to what they hold, unless the stream has a RETAIN."""


def mode_of(materialize: str | Materialize) -> Materialize:
    """The mode that `materialize` names."""
    if isinstance(materialize, Materialize):
        return materialize
    try:
        return Materialize(materialize)
    except ValueError:
        modes = ", ".join(mode.value for mode in Materialize)
        raise LadleError(f"There is no mode '{materialize}'. Modes: {modes}.") from None


def still_holds(plan: Plan, bound_to: Catalog, catalog: Catalog) -> bool:
    """Whether what a plan was bound to is what there is now."""
    if bound_to is catalog:
        return True
    streams = ((bound_to.stream(name), catalog.stream(name)) for name in plan.streams)
    tables = ((bound_to.table(each.table), catalog.table(each.table)) for each in plan.tables)
    queries = ((bound_to.query(name), catalog.query(name)) for name in plan.queries)
    if any(catalog.function(function.name) != function for function in plan.functions):
        return False
    return all(
        a is not None and b is not None and a.id == b.id and a.schema == b.schema for a, b in (*streams, *tables)
    ) and all(a is not None and b is not None and a.id == b.id for a, b in queries)


def _refuse_hidden(catalog: Catalog, name: str, by: User | None) -> None:
    """Names are shared by all users, so a name that is taken can't be kept a secret; what has it can."""
    if catalog.query(name) is not None and not catalog.access.sees(by, name):
        raise AlreadyExists(f"The name '{name}' is not free.", hint="choose another name")


def refuse_taken(catalog: Catalog, name: str, wanted: str) -> None:
    """Refuse a name that a stream, a table or a query has already."""
    known = {"stream": catalog.stream(name), "table": catalog.table(name), "query": catalog.query(name)}
    for kind, found in known.items():
        if found is not None:
            hint = _TAKEN[kind] if kind == wanted else f"choose another name, or drop the {kind} first"
            raise AlreadyExists(f"There is a {kind} '{found.name}' already.", hint=hint)


def check_name(kind: str, name: str) -> None:
    """Refuse a name that could not be written in SQL, files and addresses alike."""
    if not name or not name.replace("_", "a").replace("-", "a").isalnum():
        raise LadleError(f"'{name}' can't name a {kind}.", hint="use letters, digits, _ and -")
