"""Users' functions come and go. Each change is one log entry, as with streams and queries.

A replaced function is a new version: in the same entry the queries that call it are bound anew, to blocks with new ids.
So nothing that was derived with the old version is read for the new one, and no answer mixes the two.
"""

from __future__ import annotations

from dataclasses import replace

from ladle import catalog as entries
from ladle import sql
from ladle.catalog import Catalog
from ladle.catalog.dependents import queries_calling
from ladle.catalog.entry_types import Entry
from ladle.catalog.store import Store
from ladle.define.function_source import Definition
from ladle.errors import AlreadyExists, InUse, LadleError, listed, unknown
from ladle.execute.spark_analysis import readers_wanted
from ladle.plan import Function


class Functions:
    """Makes, replaces and drops users' functions, each change with one log entry."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, definition: Definition, *, if_not_exists: bool, replace: bool) -> bool:
        """Whether anything changed: one that is there is kept with `if_not_exists`, and stays when it is the same."""
        if if_not_exists and replace:
            raise LadleError("A function that is there is either kept or replaced.", hint="say one of the two")

        def make_entry(catalog: Catalog) -> Entry | None:
            before = catalog.function(definition.name)
            function = definition.numbered(catalog.next_id)
            if before is None:
                _check_body(function, catalog)
                return entries.create_function(function)
            if not replace and not if_not_exists:
                raise AlreadyExists(
                    f"There is a function '{before.name}' already.",
                    hint="choose another name, keep it with IF NOT EXISTS, or change it with OR REPLACE",
                )
            # The same again is no new version: what was derived with it stays good.
            if if_not_exists or definition.numbered(before.id) == before:
                return None
            return self._replacing(catalog, before, function)

        return self._store.commit(make_entry) is not None

    def _replacing(self, catalog: Catalog, before: Function, function: Function) -> Entry:
        _check_body(function, catalog)
        callers = queries_calling(catalog, before.name)
        for what, names in (("queries", callers), ("functions", _functions_calling(before, catalog))):
            if names and not function.looks_like(before):
                raise InUse(
                    f"Function '{before.name}' can't take or return other types: {what} call it: {listed(names)}.",
                    hint="drop them first, or give the new function another name",
                )
        following = catalog.apply(catalog.seq + 1, entries.create_function(function))
        now_us = self._store.clock.now_us()
        return entries.create_function(function, readers_wanted(following, callers, now_us), now_us)

    def drop(self, name: str, *, cascade: bool) -> None:
        """Let a function go; with `cascade` the queries that call it too."""

        def make_entry(catalog: Catalog) -> Entry | None:
            function = catalog.function(name)
            if function is None:
                return None
            if others := _functions_calling(function, catalog):
                raise InUse(
                    f"Function '{function.name}' can't be dropped: functions call it: {', '.join(others)}.",
                    hint="drop or replace them first",
                )
            callers = queries_calling(catalog, name)
            if callers and not cascade:
                raise InUse(
                    f"Function '{function.name}' can't be dropped: queries call it: {', '.join(callers)}.",
                    hint="drop them first, or use CASCADE",
                )
            return entries.drop_function(function.name, callers)

        self._store.commit(make_entry)


def _check_body(function: Function, catalog: Catalog) -> None:
    """Refuse a function in SQL whose body does not bind to what there is."""
    if function.inlined:
        sql.check_sql_function(function, catalog)
        following = replace(catalog, functions={**catalog.functions, function.name.lower(): function})
        try:
            sql.rebind(sql.probe_of(function), following)
        except LadleError as error:
            raise type(error)(f"In the body of '{function.name}': {error.message}", hint=error.hint) from None


def _functions_calling(function: Function, catalog: Catalog) -> list[str]:
    name = function.name.lower()
    return [each.name for each in catalog.functions.values() if name in sql.called_by(each)]


def known_function(catalog: Catalog, name: str) -> Function:
    """A function by its name; the error if there is none."""
    found = catalog.function(name)
    if found is None:
        raise unknown("function", name, catalog.function_names())
    return found
