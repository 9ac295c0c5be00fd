"""How a command is declared: who may, what the audit log says, and the handler. `COMMANDS` is the table of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ladle.access import Role, User
from ladle.command import Command, Result
from ladle.engine.parts import Parts

C = TypeVar("C")
Handler = Callable[[Parts, C, User | None], object]
"""Carries a command out, for a user or, with None, for the program that opened the warehouse."""


@dataclass(frozen=True)
class Declared(Generic[C]):
    """What there is to know of a command beside its fields."""

    name: str
    """What Python, the socket and HTTP call it."""
    role: Role
    """Who may: whoever has this role, or more."""
    doing: str
    """What a user without that role may not do, for the error."""
    noted: str | None
    """What the audit log calls it; None: it is not noted."""
    target: Callable[[C], str]
    """What it is about, for the audit log."""
    outcome: Callable[[C], str]
    """What the audit log says when it is done."""
    handler: Handler[C]


COMMANDS: dict[type, Declared[Any]] = {}
"""All commands, by their dataclass. Any: each is declared for its own."""


def declare(
    command: type[C],
    role: Role,
    doing: str,
    *,
    noted: str | None = None,
    target: Callable[[C], str] = lambda command: str(getattr(command, "name", "")),
    outcome: Callable[[C], str] = lambda _: "done",
) -> Callable[[Handler[C]], Handler[C]]:
    """Put a command into the table; its name is the handler's."""

    def put(handler: Handler[C]) -> Handler[C]:
        COMMANDS[command] = Declared(handler.__name__, role, doing, noted, target, outcome, handler)
        return handler

    return put


def carry_out(parts: Parts, command: Command[Result], by: User | None = None) -> Result:
    """Do what a command says. Whether the user may is for who calls this to find out."""
    done: Result = COMMANDS[type(command)].handler(parts, command, by)  # type: ignore[assignment]
    return done
