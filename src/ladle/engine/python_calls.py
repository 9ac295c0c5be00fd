"""Python's adapter of the commands: the calls that are the same on a database here and on one that is reached through
another process. Each makes a command, or writes a statement, and `run` or `sql` has it carried out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar, overload

from ladle.access import Role
from ladle.answer import Answer
from ladle.command import Command, Result
from ladle.define.function_source import define
from ladle.delta import ChangeOptions, Delta
from ladle.engine.commands import DefineFunction, Follow, Invoke, Push
from ladle.errors import LadleError
from ladle.handles import Query
from ladle.ingest.clocks import heartbeat_us
from ladle.plan import Function
from ladle.schema import StreamSchema, TableSchema, quoted
from ladle.sql import parse_column
from ladle.sql.statement_types import (
    Advance,
    CreateStream,
    CreateTable,
    DropFunction,
    DropQuery,
    DropStream,
    DropTable,
    InsertTableValues,
    Materialize,
    SetIdleAfter,
    SetLateness,
    SetRetain,
)

PythonFunction = TypeVar("PythonFunction", bound=Callable[..., object])


class PythonCalls(ABC):
    """What people call on a database, wherever it is."""

    @abstractmethod
    def run(self, command: Command[Result]) -> Result:
        """Have a command carried out."""

    @abstractmethod
    def sql(self, text: str) -> Answer:
        """Run one statement. A SELECT is answered once, without standing."""

    # -- queries --

    @abstractmethod
    def query(self, name: str) -> Query:
        """The handle of a standing query."""

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

    def unregister(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Let a query go; with `cascade` those that read it too."""
        self.run(DropQuery(name, cascade, if_exists))

    def invoke(self, name: str, *, now: datetime | str | None = None) -> Answer:
        """A standing query's answer; at another NOW, if one is given as a datetime or ISO text."""
        return self.run(Invoke(name, now))

    def changes(
        self,
        name: str,
        *,
        since: int | str | None = None,
        seconds: float = 0.0,
        snapshot: bool = False,
        options: ChangeOptions | None = None,
        upto: str | None = None,
    ) -> list[Delta]:
        """What changes in a query's answer after a position, if something does in time: `Query.subscribe`. The last
        delta says where to go on. With `upto`, a position told before, nothing is told beyond it.
        """
        return self.run(Follow(name, since, seconds, snapshot, options, upto))

    # -- rows --

    def push(self, stream: str, rows: object, *, wait: bool = False, key: str | None = None) -> int | None:
        """Hand rows over. They are durable when this returns; with `wait`, visible too, and the epoch is returned.

        Rows are a dictionary or a list of them, an Arrow table, or a DataFrame of pandas or Spark. Those that don't fit
        go to the stream's quarantine with the reason; the others go on. A push with the `key` of one before it is that
        one, sent again: it counts once, whatever happened to the first.
        """
        return self.run(Push(stream, rows, wait, key)).epoch

    def heartbeat(self, stream: str, at: datetime | str) -> int | None:
        """Say that a stream with a time column has reached a time, though no tuple says so: its clock advances. The
        epoch of that; None when the clock was there already.
        """
        return self.run(Advance(stream, heartbeat_us(at)))

    def insert(self, table: str, rows: object) -> int:
        """Add rows to a table, all or none, as `push` takes them. How many they were."""
        return self.run(InsertTableValues(table, rows))

    # -- streams --

    def create_stream(
        self,
        name: str,
        schema: StreamSchema,
        *,
        retain_us: int | None = None,
        max_ahead_us: int | None = None,
        lateness_us: int | None = None,
        idle_after_us: int | None = None,
        if_not_exists: bool = False,
    ) -> bool:
        """Make a stream; whether it is new: with `if_not_exists` it may have been there."""
        limits = (retain_us, max_ahead_us, lateness_us, idle_after_us)
        return self.run(CreateStream(name, schema, *limits, if_not_exists=if_not_exists))

    def drop_stream(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a stream that nothing stands on; with `cascade` whatever does goes too."""
        self.run(DropStream(name, cascade, if_exists))

    def set_retain(self, stream: str, retain_us: int | None) -> None:
        """Change how long a stream's tuples are kept; None is for ever."""
        self.run(SetRetain(stream, retain_us))

    def set_lateness(self, stream: str, lateness_us: int | None) -> None:
        """Change how far behind its stream's clock a tuple may come; None is however far."""
        self.run(SetLateness(stream, lateness_us))

    def set_idle_after(self, stream: str, idle_after_us: int | None) -> None:
        """Change after which silence a stream becomes idle; None is never."""
        self.run(SetIdleAfter(stream, idle_after_us))

    def create_source(
        self,
        name: str,
        *,
        stream: str,
        format: str,
        options: Mapping[str, object] | None = None,
        if_not_exists: bool = False,
    ) -> None:
        """Let data flow into a stream for as long as the source is there: see CREATE SOURCE."""
        given = ", ".join(f"{_text(key)} {_text(_value(value))}" for key, value in (options or {}).items())
        self.sql(
            f"CREATE SOURCE {'IF NOT EXISTS ' if if_not_exists else ''}{quoted(name)} FOR {quoted(stream)} "
            f"FORMAT {quoted(format)}{f' OPTIONS ({given})' if given else ''}"
        )

    def drop_source(self, name: str, *, if_exists: bool = False) -> None:
        """Stop a source and forget how far it was. Its tuples stay."""
        self.sql(f"DROP SOURCE {'IF EXISTS ' if if_exists else ''}{quoted(name)}")

    # -- tables --

    def create_table(self, name: str, columns: Mapping[str, str], *, if_not_exists: bool = False) -> bool:
        """Make a table with columns of these types, as SQL writes them. Whether it is new."""
        schema = TableSchema(tuple(parse_column(column, type_) for column, type_ in columns.items()))
        return self.run(CreateTable(name, schema, if_not_exists))

    def drop_table(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a table that no query reads; with `cascade` those that do go too."""
        self.run(DropTable(name, cascade, if_exists))

    # -- functions --

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
        function: Callable[..., object] | str,
        name: str | None = None,
        *,
        arguments: Sequence[str],
        returns: str,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> Function: ...

    def create_function(
        self,
        function: Callable[..., object] | str | None = None,
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
            return self.run(DefineFunction(define(function, name, arguments, returns), replace, if_not_exists))

        def decorate(decorated: PythonFunction) -> PythonFunction:
            self.run(DefineFunction(define(decorated, name, arguments, returns), replace, if_not_exists))
            return decorated

        return decorate

    def drop_function(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Let a function go that no query calls; with `cascade` those that do go too."""
        self.run(DropFunction(name, cascade, if_exists))

    # -- rights --

    def create_token(self, name: str, role: str = Role.READER.value, *, replace: bool = False) -> str:
        """Let somebody in who comes over the network, and return the token: it is shown this once."""
        made = self.sql(f"CREATE {'OR REPLACE ' if replace else ''}TOKEN {quoted(name)} ROLE {Role.of(role).value}")
        return str(made.table.column("token")[0].as_py())

    def drop_token(self, name: str, *, if_exists: bool = False) -> None:
        """Let nobody in with a token any more."""
        self.sql(f"DROP TOKEN {'IF EXISTS ' if if_exists else ''}{quoted(name)}")

    def grant(self, query: str, to: str) -> None:
        """Let the user with that token read a query; 'public' is everybody."""
        self.sql(f"GRANT SELECT ON QUERY {quoted(query)} TO {quoted(to)}")

    def revoke(self, query: str, to: str) -> None:
        """Take back that somebody may read a query."""
        self.sql(f"REVOKE SELECT ON QUERY {quoted(query)} FROM {quoted(to)}")

    # -- the whole warehouse --

    def backup(self, directory: str | Path) -> Answer:
        """Copy everything durable, as of now, into a directory; only what is new, if that has a backup already.

        Of a database that is reached through a server the directory is the server's. What was copied is returned.
        """
        return self.sql(f"BACKUP TO {_text(str(directory))}")

    def verify(self) -> Answer:
        """Read every file of the warehouse and compare it with its checksums; a row for each part of it."""
        return self.sql("VERIFY")


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
