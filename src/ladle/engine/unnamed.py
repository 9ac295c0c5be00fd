"""Queries that are registered without a name: one is made for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

from ladle.catalog import Catalog
from ladle.engine.handles import Query
from ladle.errors import AlreadyExists, LadleError
from ladle.plan import Plan
from ladle.sql.statements import Materialize


class Registers(Protocol):
    """A database, or a session."""

    @property
    def catalog(self) -> Catalog: ...

    def register_plans(
        self,
        plans: Mapping[str, tuple[Plan, Materialize]],
        bound_to: Catalog,
        *,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> bool: ...


def register_unnamed(db: Registers, plan: Plan, mode: Materialize, bound_to: Catalog) -> str:
    """Let a plan stand under a name that was free; that name.

    It is numbered by the log, `query_17`, so that a name that was dropped does not come back for another query.
    """
    number = 0
    while True:
        number = max(number, db.catalog.seq) + 1
        name = f"query_{number}"
        try:
            db.register_plans({name: (plan, mode)}, bound_to)
        except AlreadyExists:
            continue  # somebody chose it, or was first
        return name


class QueryMaker(ABC):
    """Registering one query in Python, the same for every kind of database."""

    @abstractmethod
    def register_unnamed(self, text: str, *, materialize: str | Materialize = Materialize.AUTO) -> str:
        """Let a query stand under a name that is made for it; that name."""

    @abstractmethod
    def register_many(
        self,
        queries: Mapping[str, str],
        *,
        materialize: str | Materialize = Materialize.AUTO,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> list[Query]:
        """Let several queries stand: all of them, or none."""

    @abstractmethod
    def query(self, name: str) -> Query: ...

    def register(
        self,
        text: str,
        *,
        name: str | None = None,
        materialize: str | Materialize = Materialize.AUTO,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> Query:
        """Let a query stand. Its first answer already covers all retained data.

        Without a name it gets one, like `query_17`: see the handle's `name`. A query that has the name is kept with
        `if_not_exists`, changed with `replace`, and refused otherwise.
        """
        if name is not None:
            how = {"if_not_exists": if_not_exists, "replace": replace}
            return self.register_many({name: text}, materialize=materialize, **how)[0]
        if if_not_exists or replace:
            what = "if_not_exists" if if_not_exists else "replace"
            raise LadleError(f"A query without a name can't be registered with {what}.", hint="give it a name")
        return self.query(self.register_unnamed(text, materialize=materialize))
