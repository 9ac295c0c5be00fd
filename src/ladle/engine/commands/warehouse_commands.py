"""Commands about the whole warehouse: who is let in, backups, checks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ladle.access import Role, Token, User
from ladle.answer import Answer
from ladle.backup.copying import back_up
from ladle.backup.progress import Told
from ladle.backup.verifying import verify
from ladle.command import Command
from ladle.engine.commands.declaration import declare
from ladle.engine.parts import Parts
from ladle.errors import LadleError
from ladle.sql.statement_types import (
    CreateToken,
    DropToken,
)

# -- rights --


@declare(CreateToken, Role.ADMIN, "create tokens", noted="create token", outcome=lambda command: command.role.value)
def create_token(parts: Parts, command: CreateToken, _: User | None) -> str:
    """The token, which is shown this once."""
    return parts.rights.create_token(command.name, command.role, replace=command.replace)


@dataclass(frozen=True)
class ListTokens(Command[list[Token]]):
    """Say who is let in."""


@declare(ListTokens, Role.ADMIN, "list tokens")
def tokens(parts: Parts, _: ListTokens, __: User | None) -> list[Token]:
    """The oldest first."""
    return parts.rights.tokens()


@declare(DropToken, Role.ADMIN, "drop tokens", noted="drop token")
def drop_token(parts: Parts, command: DropToken, _: User | None) -> None:
    """Let nobody in with it any more."""
    parts.rights.drop_token(command.name, if_exists=command.if_exists)


# -- the whole warehouse --


@dataclass(frozen=True)
class MakeBackup(Command[Answer]):
    """Copy everything durable into a directory; `told` hears how far it is."""

    directory: str | Path
    told: Told | None = None


# It writes to the server's disk, and what it writes is everything.
@declare(
    MakeBackup,
    Role.ADMIN,
    "back the warehouse up",
    noted="backup",
    target=lambda command: str(command.directory),
)
def backup(parts: Parts, command: MakeBackup, by: User | None) -> Answer:
    """A table of what was copied."""
    if by is not None and not Path(command.directory).is_absolute():
        raise LadleError(
            f"'{command.directory}' is not a whole path, and the directory is the server's.",
            hint="name it from the root on: BACKUP TO '/...'",
        )
    return back_up(parts.store, command.directory, command.told)


@dataclass(frozen=True)
class VerifyFiles(Command[Answer]):
    """Compare every file with its checksums; `told` hears how far it is."""

    told: Told | None = None


# It reads everything, and says where damaged files are.
@declare(VerifyFiles, Role.ADMIN, "verify the warehouse")
def verify_files(parts: Parts, command: VerifyFiles, _: User | None) -> Answer:
    """A row for each part of the warehouse."""
    with parts.store.pin() as catalog:
        return verify(parts.store.warehouse, catalog, command.told)
