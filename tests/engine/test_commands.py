"""A command is declared once, and every way to ask has it: Python, SQL, the socket and HTTP are adapters."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

import ladle
from ladle.access import Role, User
from ladle.command import Command
from ladle.engine import commands
from ladle.engine.commands import COMMANDS
from ladle.engine.database import Database
from ladle.errors import Denied
from ladle.sql import statement_types
from ladle.testing import connect_inline

PACKAGE = Path(ladle.__file__).parent
ADAPTERS = {
    "Python": (PACKAGE / "engine" / "python_calls.py", PACKAGE / "engine" / "database.py"),
    "Python elsewhere": (PACKAGE / "engine" / "python_calls.py", PACKAGE / "client" / "remote_database.py"),
    "SQL": (PACKAGE / "engine" / "statements.py",),
    "socket": (PACKAGE / "protocols" / "socket.py",),
    "HTTP": tuple(sorted((PACKAGE / "protocols" / "http").rglob("*.py"))),
}
BY_STATEMENT = {
    "Python": "AddColumn AddTableColumn AnswerOnce ChangeTable CreateSource CreateToken DropSource DropToken Grant "
    "ListTokens MakeBackup Revoke TableOf VerifyFiles",
    "Python elsewhere": "AddColumn AddTableColumn AnswerOnce ChangeTable CreateSource CreateToken DropSource DropToken "
    "Grant ListTokens MakeBackup Revoke TableOf VerifyFiles",
    "SQL": "",
    "socket": "AddColumn AddTableColumn AnswerOnce ChangeTable CreateSource CreateStream CreateToken DropSource "
    "DropStream DropToken Grant ListTokens MakeBackup Revoke SetIdleAfter SetLateness SetRetain TableOf VerifyFiles",
    "HTTP": "AddColumn AddTableColumn AnswerOnce ChangeTable CreateSource CreateToken DropSource DropToken ListTokens "
    "MakeBackup SetIdleAfter SetLateness SetRetain TableOf VerifyFiles",
}
"""What an adapter has no call of its own for: it is a statement, for which each of them has one."""
OTHERWISE = {
    ("SQL", "Invoke"): "SELECT ... FROM query",
    ("SQL", "Follow"): "SUBSCRIBE has no answer: the command line carries it out, others are told how to subscribe",
    ("Python elsewhere", "Register"): "texts are sent (`register_many`), and bound where the database is",
    ("socket", "Register"): "`Session.register_many` binds the texts",
    ("HTTP", "Register"): "`Session.register_many` binds the texts",
    ("socket", "Invoke"): "`Session.invoke`",
    ("HTTP", "Invoke"): "`Session.invoke`",
    ("socket", "Follow"): "`Session.changes`",
}
"""What an adapter has in other words, and which."""


def subclasses(of: type) -> set[type]:
    found = set(of.__subclasses__())
    return found | {each for one in found for each in subclasses(one)}


def named(files: Iterable[Path]) -> set[str]:
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}


def test_every_command_is_declared_once() -> None:
    ours = {each for each in subclasses(Command) if each.__module__.startswith("ladle.")}
    assert set(COMMANDS) == ours
    names = [declared.name for declared in COMMANDS.values()]
    assert len(set(names)) == len(names)


def test_commands_are_frozen_and_can_be_read_alone() -> None:
    for command in COMMANDS:
        assert command.__dataclass_params__.frozen, command  # type: ignore[attr-defined]
        assert command.__doc__
        assert COMMANDS[command].handler.__doc__


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_no_adapter_lacks_a_command(adapter: str) -> None:
    """One that is new is made by each adapter, or it is said here how else that adapter has it."""
    otherwise = {command for where, command in OTHERWISE if where == adapter} | set(BY_STATEMENT[adapter].split())
    made = named(ADAPTERS[adapter])
    assert {command.__name__ for command in COMMANDS} - made == otherwise


def test_what_adapters_leave_to_statements_is_one() -> None:
    left = {command for commands in BY_STATEMENT.values() for command in commands.split()}
    assert left <= named(ADAPTERS["SQL"])


def test_what_changes_something_is_noted_or_brings_rows() -> None:
    quiet = {command.__name__ for command, declared in COMMANDS.items() if declared.noted is None}
    asking = {"AnswerOnce", "Invoke", "Follow", "ListTokens", "VerifyFiles"}
    rows = {"Push", "Advance", "InsertTableValues", "ChangeTable"}
    assert quiet == asking | rows


def test_a_reader_is_refused_what_takes_more(tmp_path: Path) -> None:
    """Before anything is looked at: the fields are not what they should be."""
    with connect_inline(tmp_path / "warehouse") as db:
        assert isinstance(db, Database)
        session = db.session(User("eve", Role.READER), "10.0.0.1")
        for command, declared in COMMANDS.items():
            if declared.role is not Role.READER:
                with pytest.raises(Denied, match=declared.doing):
                    session.run(object.__new__(command))


def test_statements_and_commands_do_not_share_names() -> None:
    here = {name for name in commands.__all__ if isinstance(getattr(commands, name), type)}
    assert not here & set(vars(statement_types))
