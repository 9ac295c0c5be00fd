"""Tokens, owners of queries and grants as of one log entry. All names are compared without case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from immutables import Map

from ladle.access import PUBLIC, Role, Token, User
from ladle.json_values import JsonFields, JsonObject


@dataclass(frozen=True)
class Access:
    """Who may come in from elsewhere, who owns which query, and who else may read it."""

    tokens: Map[str, Token] = field(default_factory=Map)
    owners: Map[str, str] = field(default_factory=Map)
    """Of the queries that have one."""
    owned: Map[str, int] = field(default_factory=Map)
    """How many queries each owner has."""
    grants: Map[str, frozenset[str]] = field(default_factory=Map)
    """By query, who may read it beside its owner."""

    @cached_property
    def _by_digest(self) -> dict[str, Token]:
        return {token.digest: token for token in self.tokens.values()}

    def token(self, digest: str) -> Token | None:
        """The token with that digest, or None."""
        return self._by_digest.get(digest)

    def owner(self, query: str) -> str | None:
        """Who owns a query; None if it is everybody's."""
        return self.owners.get(query.lower())

    def sees(self, user: User | None, query: str) -> bool:
        """Whether a user may know of a query and read it; None is whoever holds the warehouse."""
        if self.owns(user, query):
            return True
        assert user is not None
        shared = self.grants.get(query.lower(), frozenset())
        return self.owner(query) is None or PUBLIC in shared or user.name.lower() in shared

    def owns(self, user: User | None, query: str) -> bool:
        """Whether a user may change, drop and grant a query."""
        return user is None or user.may(Role.ADMIN) or (self.owner(query) or "").lower() == user.name.lower()

    def as_owner(self, query: str) -> User | None:
        """Whoever owns a query, as a user; None: nobody does."""
        owner = self.owner(query)
        if owner is None:
            return None
        token = self.tokens.get(owner.lower())
        return User(owner, Role.READER) if token is None else token.user

    def unreadable(self, query: str, read: Iterable[str]) -> str | None:
        """One of the queries that a query reads and its owner may not, not any more."""
        owner = self.as_owner(query)
        return None if owner is None else next((name for name in read if not self.sees(owner, name)), None)

    # -- changes --

    def with_token(self, token: Token) -> Access:
        """These rights with one more token, or another of that name."""
        return replace(self, tokens=self.tokens.set(token.name.lower(), token))

    def without_token(self, name: str) -> Access:
        """Whoever has the name next is not who it was granted to."""
        access = replace(self, tokens=self.tokens.delete(name.lower()))
        for query in [query for query, names in self.grants.items() if name.lower() in names]:
            access = access.revoked(query, name)
        return access

    def with_owner(self, queries: Iterable[str], owner: str) -> Access:
        """New queries belong to whom they belong; one that replaces another stays its owner's."""
        owners, count = self.owners.mutate(), self.owned.get(owner.lower(), 0)
        for query in queries:
            if query.lower() not in owners:
                owners[query.lower()] = owner
                count += 1
        return replace(self, owners=owners.finish(), owned=self.owned.set(owner.lower(), count))

    def without_queries(self, queries: Iterable[str]) -> Access:
        """These rights without the owners and grants of some queries."""
        owners, owned, grants = self.owners.mutate(), self.owned.mutate(), self.grants.mutate()
        for query in (name.lower() for name in queries):
            owner = owners.pop(query, None)
            grants.pop(query, None)
            if owner is not None:
                left = owned[owner.lower()] - 1
                if left:
                    owned[owner.lower()] = left
                else:
                    del owned[owner.lower()]
        return replace(self, owners=owners.finish(), owned=owned.finish(), grants=grants.finish())

    def granted(self, query: str, name: str) -> Access:
        """These rights where somebody may also read a query."""
        key = query.lower()
        return replace(self, grants=self.grants.set(key, self.grants.get(key, frozenset()) | {name.lower()}))

    def revoked(self, query: str, name: str) -> Access:
        """These rights where somebody may not read a query any more."""
        key = query.lower()
        left = self.grants.get(key, frozenset()) - {name.lower()}
        if left:
            return replace(self, grants=self.grants.set(key, left))
        return replace(self, grants=self.grants.delete(key)) if key in self.grants else self

    # -- the log --

    def to_json(self) -> JsonObject:
        """Encode tokens, owners and grants for a checkpoint."""
        return {
            "tokens": [token_to_json(token) for token in self.tokens.values()],
            "owners": dict(self.owners),
            "grants": {query: sorted(names) for query, names in self.grants.items()},
        }

    @staticmethod
    def from_json(value: JsonFields) -> Access:
        """Decode tokens, owners and grants from a checkpoint."""
        tokens = [token_from_json(token) for token in value["tokens"]]
        access = Access(
            tokens=Map({token.name.lower(): token for token in tokens}),
            grants=Map({query: frozenset(names) for query, names in value["grants"].items()}),
        )
        by_owner: dict[str, list[str]] = {}
        for query, owner in value["owners"].items():
            by_owner.setdefault(owner, []).append(query)
        for owner, queries in by_owner.items():
            access = access.with_owner(queries, owner)
        return access


def token_to_json(token: Token) -> JsonObject:
    """Encode a token for a log entry. It holds the digest, never the token itself."""
    return {
        "name": token.name,
        "role": token.role.value,
        "digest": token.digest,
        "created_us": token.created_us,
    }


def token_from_json(value: JsonFields) -> Token:
    """Decode a token from a log entry."""
    return Token(value["name"], Role(value["role"]), value["digest"], value["created_us"])
