"""Tokens and grants: who is let in from elsewhere, and who reads whose queries. Each change is one log entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladle import catalog as entries
from ladle.access import LOCAL, PUBLIC, Role, Token, User, new_secret, secret_digest
from ladle.catalog import Catalog, Seen
from ladle.catalog.entry_types import Entry
from ladle.catalog.store import Store
from ladle.define.definitions import check_name, require_owner, standing_query
from ladle.errors import AlreadyExists, LadleError, UnknownName, unknown

if TYPE_CHECKING:
    pass


class Rights:
    """Makes and drops tokens, grants and revokes, each change with one log entry."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.audit = store.audit

    def create_token(self, name: str, role: Role, *, replace: bool) -> str:
        """Let somebody in. The token is returned, and its digest is what is kept."""
        check_name("token", name)
        if name.lower() in (PUBLIC, LOCAL):
            meant = "everybody" if name.lower() == PUBLIC else "programs on the server's own machine"
            raise LadleError(f"'{name}' can't name a token: it stands for {meant}.")
        secret = new_secret()

        def make_entry(catalog: Catalog) -> Entry:
            if name.lower() in catalog.access.tokens and not replace:
                raise AlreadyExists(f"There is a token '{name}'.", hint="CREATE OR REPLACE TOKEN makes a new one")
            return entries.create_token(Token(name, role, secret_digest(secret), self._store.clock.now_us()))

        self._store.commit(make_entry)
        return secret

    def tokens(self) -> list[Token]:
        """The tokens, the oldest first."""
        return sorted(self._store.catalog.access.tokens.values(), key=lambda token: token.created_us)

    def drop_token(self, name: str, *, if_exists: bool) -> None:
        """Let nobody in with that token any more. Queries stay with their owner's name."""

        def make_entry(catalog: Catalog) -> Entry | None:
            tokens = catalog.access.tokens
            if name.lower() in tokens:
                return entries.drop_token(name)
            if not if_exists:
                raise unknown("token", name, [token.name for token in tokens.values()])
            return None

        self._store.commit(make_entry)

    def grant(self, query: str, to: str, *, by: User | None = None) -> None:
        """Let somebody read a query."""

        def make_entry(catalog: Catalog) -> Entry:
            tokens = catalog.access.tokens
            if to.lower() != PUBLIC and to.lower() not in tokens:
                if by is None or by.may(Role.ADMIN):
                    raise unknown("token", to, [token.name for token in tokens.values()])
                raise UnknownName(f"Token '{to}' not found.", hint="an admin knows which there are: SHOW TOKENS")
            return entries.grant(_owned(catalog, query, by), to)

        self._store.commit(make_entry)

    def revoke(self, query: str, to: str, *, by: User | None = None) -> None:
        """Take back that somebody may read a query."""
        self._store.commit(lambda catalog: entries.revoke(_owned(catalog, query, by), to))


def _owned(catalog: Catalog, query: str, by: User | None) -> str:
    """A query's name, if the user sees it and may change it."""
    name = standing_query(catalog if by is None else Seen.by(by, catalog), query).name
    require_owner(catalog, name, by)
    return name
