"""Users' functions come and go. Each change is one log entry, as with streams and queries.

A replaced function is a new version: in the same entry the queries that call it are bound anew, to blocks with new ids.
So nothing that was derived with the old version is read for the new one, and no answer mixes the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from ladle import catalog as entries
from ladle.catalog import Catalog
from ladle.engine.analysis import bound_again
from ladle.engine.source import Definition, define
from ladle.engine.store import Store
from ladle.errors import AlreadyExists, InUse, LadleError, listed
from ladle.plan import Function

PythonFunction = TypeVar("PythonFunction", bound=Callable[..., Any])


class Functions:
    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, definition: Definition, *, if_not_exists: bool, replace: bool) -> bool:
        """Whether anything changed: one that is there is kept with `if_not_exists`, and stays when it is the same."""
        if if_not_exists and replace:
            raise LadleError("A function that is there is either kept or replaced.", hint="say one of the two")

        def make_entry(catalog: Catalog) -> dict[str, object] | None:
            before = catalog.function(definition.name)
            function = definition.numbered(catalog.next_id)
            if before is None:
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

    def _replacing(self, catalog: Catalog, before: Function, function: Function) -> dict[str, object]:
        callers = catalog.queries_calling(before.name)
        if callers and not function.looks_like(before):
            raise InUse(
                f"Function '{before.name}' can't take or return other types: queries call it: {listed(callers)}.",
                hint="drop them first, or give the new function another name",
            )
        following = catalog.apply(catalog.seq + 1, entries.create_function(function))
        bound = [
            (query.name, bound_again(query.plan, following), query.materialize)
            for query in (catalog.queries[name.lower()] for name in callers)
        ]
        return entries.create_function(function, bound, self._store.clock.now_us())

    def drop(self, name: str, *, cascade: bool) -> None:
        """Let a function go; with `cascade` the queries that call it too."""

        def make_entry(catalog: Catalog) -> dict[str, object] | None:
            function = catalog.function(name)
            if function is None:
                return None
            callers = catalog.queries_calling(name)
            if callers and not cascade:
                raise InUse(
                    f"Function '{function.name}' can't be dropped: queries call it: {', '.join(callers)}.",
                    hint="drop them first, or use CASCADE",
                )
            return entries.drop_function(function.name, callers)

        self._store.commit(make_entry)


class FunctionMaker(ABC):
    """`create_function` as people call it, on a database here or through the process that holds it."""

    @overload
    def create_function(
        self,
        function: None = None,
        name: str | None = None,
        *,
        arguments: Sequence[str],
        returns: str,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> Callable[[PythonFunction], PythonFunction]: ...

    @overload
    def create_function(
        self,
        function: Callable[..., Any] | str,
        name: str | None = None,
        *,
        arguments: Sequence[str],
        returns: str,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> Function: ...

    def create_function(
        self,
        function: Callable[..., Any] | str | None = None,
        name: str | None = None,
        *,
        arguments: Sequence[str],
        returns: str,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> Function | Callable[[PythonFunction], PythonFunction]:
        """Let queries call a Python function: one Arrow array per argument in, an array of the same length out.

        Types are as SQL writes them. Without a function this is a decorator. One that has the name is kept with
        `if_not_exists`, changed with `replace`, and refused otherwise.
        """
        if function is not None:
            definition = define(function, name, arguments, returns)
            return self.define_function(definition, replace=replace, if_not_exists=if_not_exists)

        def decorate(decorated: PythonFunction) -> PythonFunction:
            definition = define(decorated, name, arguments, returns)
            self.define_function(definition, replace=replace, if_not_exists=if_not_exists)
            return decorated

        return decorate

    @abstractmethod
    def define_function(self, definition: Definition, *, replace: bool, if_not_exists: bool) -> Function:
        """Let a function be there whose source was looked at; the one that is there then."""
