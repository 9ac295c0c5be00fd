"""Who may do what (STREAM section 4.2 names authorisation as part of the interface).

A *user* is whoever has a token: a name and a role. Readers ask, writers also hand over rows and register queries,
admins do everything. A query belongs to whoever registered it, and others don't see it unless it is granted to them. A
query that was registered without a user, in the process that holds the warehouse or on its machine, is everybody's to
read.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from enum import Enum

from ladle.errors import Denied, LadleError

PUBLIC = "public"
"""Whom a grant to everybody names."""
LOCAL = "local"
"""What a program on the server's own machine is called that has no token."""
_TOKEN_BYTES = 32
_TOKEN_PREFIX = "ladle_"


class Role(Enum):
    """In order: each may do what those before it may."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Its place among the roles: a higher one may do all that a lower one may."""
        return _RANKS[self]

    @staticmethod
    def of(text: str) -> Role:
        """The role of that name, or an error that lists the roles."""
        try:
            return Role(text.lower())
        except ValueError:
            raise LadleError(
                f"There is no role '{text}'.", hint=f"roles are {', '.join(role.value for role in Role)}"
            ) from None


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True)
class User:
    """Who asks: a name, and the role that says what they may do."""

    name: str
    role: Role
    local: bool = False
    """A program on the server's own machine that has no token: what it registers has no owner."""

    def may(self, role: Role) -> bool:
        """Whether somebody may do what the role may."""
        return self.role.rank >= role.rank

    def need(self, role: Role, what: str) -> None:
        """Refuse whoever may not do what the role may; `what` is said in the error."""
        if not self.may(role):
            raise Denied(
                f"'{self.name}' is a {self.role.value} and may not {what}.",
                hint=f"that takes a token with the role {role.value}",
            )


LOCAL_USER = User(LOCAL, Role.ADMIN, local=True)


@dataclass(frozen=True)
class Token:
    """What is kept of a token: not the token itself."""

    name: str
    role: Role
    digest: str
    created_us: int

    @property
    def user(self) -> User:
        """Who comes with this token."""
        return User(self.name, self.role)


def new_secret() -> str:
    """A token as its user has it."""
    return _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def secret_digest(secret: str) -> str:
    """By which a token is found. It is random and long, so nothing slower than this is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()
