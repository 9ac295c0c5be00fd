"""The catalog as one user sees it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ladle.access import User
from ladle.catalog.meaning import OwnersMeaning
from ladle.catalog.queries import QueryState
from ladle.catalog.snapshot import Catalog
from ladle.sql.names import Names


@dataclass(frozen=True)
class Seen(Catalog):
    """A catalog as one user sees it: without the queries of others that are not shared."""

    user: User | None = None

    @staticmethod
    def by(user: User, catalog: Catalog) -> Seen:
        """A snapshot as a user sees it."""
        return Seen(**{each.name: getattr(catalog, each.name) for each in fields(Catalog)}, user=user)

    def renewed(self, newest: Catalog) -> Catalog:
        """A newer snapshot as the same user sees it."""
        return newest if self.user is None else Seen.by(self.user, newest)

    def query(self, name: str) -> QueryState | None:
        """The standing query of that name; None also if the user may not see it."""
        return super().query(name) if self.access.sees(self.user, name) else None

    def shared_with(self, query: str) -> list[str] | None:
        """Who else may read a query; None if the user is not told."""
        return super().shared_with(query) if self.access.owns(self.user, query) else None

    def inside(self, query: str) -> Names:
        """The names that the text of a query may use, for its owner."""
        return OwnersMeaning(self.queries[query.lower()], self.access)

    def why_broken(self, query: QueryState) -> str | None:
        """Why a query is broken, without naming queries that the user may not see."""
        hidden = any(self.query(name) is None for name in query.meaning.queries)
        return "It reads a query that is broken." if query.broken is not None and hidden else query.broken

    def standing(self) -> list[QueryState]:
        """The standing queries that the user may see."""
        return [query for query in super().standing() if self.access.sees(self.user, query.name)]
