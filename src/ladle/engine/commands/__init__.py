"""The commands: each declared once, with who may, what the audit log says, and the handler.

`COMMANDS` is the table. `Database.run` carries a command out for the program that opened the warehouse, `Session.run`
for a user. What SQL can write is a dataclass of `sql/statement_types.py`; the others are here. Python's methods, SQL's
statements, the socket and HTTP are adapters: they make commands, and tell results.
"""

from ladle.engine.commands.declaration import COMMANDS, Declared, carry_out
from ladle.engine.commands.object_commands import DefineFunction, TableOf
from ladle.engine.commands.query_commands import (
    AnswerOnce,
    Follow,
    Invoke,
    Register,
    register_unnamed,
    seen_query,
)
from ladle.engine.commands.row_commands import ChangeTable, Push
from ladle.engine.commands.warehouse_commands import ListTokens, MakeBackup, VerifyFiles

__all__ = [
    "COMMANDS",
    "AnswerOnce",
    "ChangeTable",
    "Declared",
    "DefineFunction",
    "Follow",
    "Invoke",
    "ListTokens",
    "MakeBackup",
    "Push",
    "Register",
    "TableOf",
    "VerifyFiles",
    "carry_out",
    "register_unnamed",
    "seen_query",
]
