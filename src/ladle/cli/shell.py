"""The interactive shell of `ladle sql`: history, completion, highlighting, statements over several lines.

A statement ends with a semicolon. Commands of the shell itself begin with a backslash; help, clear and exit need none.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.shortcuts import clear
from prompt_toolkit.styles import Style, merge_styles
from prompt_toolkit.styles.pygments import style_from_pygments_cls
from pygments.lexer import inherit, words
from pygments.lexers.sql import SqlLexer
from pygments.styles import get_style_by_name
from pygments.token import Keyword

from ladle.cli.ask import run_script
from ladle.cli.output import write_answer
from ladle.cli.place import opened, opening_text, server_of, warehouse_of
from ladle.cli.terminal import patience, show_error
from ladle.errors import LadleError

if TYPE_CHECKING:
    from ladle.connection import OpenDatabase
    from ladle.handles import Stream, Table

# fmt: off
KEYWORDS = (
    "ADD", "ADVANCE", "AFTER", "AHEAD", "ALTER", "AND", "AS", "ASC", "BEGIN", "BETWEEN", "BY", "CASCADE", "CASE",
    "CAST", "COLUMN", "CREATE", "CROSS", "DAY", "DAYS", "DELETE", "DESC", "DESCRIBE", "DISTINCT", "DROP", "DSTREAM",
    "ELSE", "END", "EXCEPT", "EXISTS", "EXPLAIN", "FALSE", "FOREVER", "FROM", "FUNCTION", "FUNCTIONS", "GROUP",
    "HAVING", "HOUR", "HOURS", "IDLE", "IF", "IN", "INSERT", "INTERSECT", "INTERVAL", "INTO", "IS", "ISTREAM",
    "LANGUAGE", "LATENESS", "LIKE", "LIMIT",
    "MAX", "MINUTE", "MINUTES", "NEVER", "NOT", "NOW", "NULL", "OR", "ORDER", "PYTHON", "QUERIES", "QUERY",
    "RANGE", "REPLACE", "RETAIN", "RETURNS", "ROWS", "RSTREAM", "SECOND", "SECONDS", "SELECT", "SET", "SHOW", "SINCE",
    "STREAM", "STREAMS", "SUBSCRIBE", "TABLE", "TABLES", "THEN", "TIMESTAMP", "TO", "TRUE", "UNBOUNDED", "UNION",
    "UPDATE", "VALUES", "WHEN", "WHERE", "WITH",
)
FUNCTIONS = (
    "avg", "coalesce", "count", "date_trunc", "lower", "max", "min", "round", "sum", "upper",
)
TYPES = (
    "BIGINT", "BINARY", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "FLOAT", "INT", "SMALLINT",
    "STRING", "TIMESTAMP_NTZ", "TINYINT",
)
# fmt: on
_BEFORE_RELATION = frozenset({"FROM", "INTO", "UPDATE", "DESCRIBE"})
"""Words after which only the name of a stream, table or query can stand."""

_WORDS = frozenset({"help", "clear"})
_LEAVING = frozenset({"quit", "exit", "\\q"})

_QUERIES_OFFERED_MAX = 2_000
"""With more of them their names are not offered: they are asked for before each prompt, maybe from a server."""

HELP = r"""A statement ends with a semicolon and may span lines; Ctrl-C stops one that runs.
  help          this help (also \?)     clear     an empty screen
  \streams      the streams             \d NAME   columns of a stream, table or query
  \tables       the tables              \status   rates, sources, epochs
  \queries      the standing queries    exit      leave (also quit, \q, Ctrl-D)
Statements: CREATE STREAM, ALTER STREAM, DROP STREAM, SHOW STREAMS, DESCRIBE, CREATE TABLE, ALTER TABLE,
DROP TABLE, SHOW TABLES, CREATE QUERY, DROP QUERY, SHOW QUERIES, CREATE VIEW, CREATE FUNCTION, DROP FUNCTION,
SHOW FUNCTIONS, CREATE SOURCE, DROP SOURCE, SHOW SOURCES, CREATE TOKEN, DROP TOKEN, SHOW TOKENS, GRANT, REVOKE,
SHOW GRANTS, SHOW DERIVED, SHOW CREATE, SELECT, INSERT INTO, UPDATE, DELETE, MERGE, TRUNCATE TABLE, EXPLAIN, SUBSCRIBE,
BACKUP TO, VERIFY.  Example:
  SELECT symbol, max(price) FROM trades GROUP BY symbol BEGIN NOW - INTERVAL 1 MINUTE END NOW;"""


class LadleLexer(SqlLexer):  # type: ignore[misc]
    """SQL, with the words of streams and windows."""

    name = "Ladle SQL"
    tokens = {  # noqa: RUF012 - pygments reads a plain class attribute
        "root": [(words(KEYWORDS, prefix=r"(?i)\b", suffix=r"\b"), Keyword), inherit]
    }


class NameCompleter(Completer):
    """Keywords, functions, and the names that the warehouse has."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The names and keywords that the word before the cursor may become."""
        word = document.get_word_before_cursor(WORD=False)
        if not word or document.text_before_cursor.lstrip().startswith("\\"):
            return
        lowered = word.lower()
        before = document.text_before_cursor[: -len(word)].split()
        wants_relation = bool(before) and before[-1].upper() in _BEFORE_RELATION
        for name, kind in self.names.items():
            if name.lower().startswith(lowered) and not (wants_relation and kind.startswith("column")):
                yield Completion(name, -len(word), display_meta=kind)
        if wants_relation:
            return
        for text in (*KEYWORDS, *TYPES):
            if text.lower().startswith(lowered):
                # As it is being typed: lower case stays lower case.
                yield Completion(text.lower() if word.islower() else text, -len(word))
        for text in FUNCTIONS:
            if text.startswith(lowered):
                yield Completion(text, -len(word), display_meta="function")


def run_shell(args: argparse.Namespace) -> int:
    """Read statements until the user leaves."""
    title = _title(args)
    with patience(opening_text(args)):
        opening = opened(args, create=True)
        db = opening.__enter__()
        if server_of(args) is not None:
            db.pulse()  # a server that does not answer is told now, and not at the first statement
    try:
        Shell(db, form=args.format, rows_max=args.rows).run(title)
    finally:
        with patience("closing"):
            opening.__exit__(None, None, None)
    return 0


def _title(args: argparse.Namespace) -> str:
    server = server_of(args)
    if server is not None:
        return server.url
    from ladle.archive.folder import local_folder

    path = local_folder(warehouse_of(args))
    return f"'{path}'" + ("" if path.exists() else ", a new warehouse")


class Shell:
    """One open warehouse and the loop over it."""

    def __init__(self, db: OpenDatabase, *, form: str, rows_max: int) -> None:
        self._db = db
        self._form = form
        self._rows_max = rows_max
        self._completer = NameCompleter()
        self._commands: dict[str, Callable[[str], None]] = {
            "\\streams": lambda _: self._execute("SHOW STREAMS"),
            "\\tables": lambda _: self._execute("SHOW TABLES"),
            "\\queries": lambda _: self._execute("SHOW QUERIES"),
            "\\d": self._describe,
            "\\status": lambda _: self._status(),
            "\\?": lambda _: _say(HELP),
            "help": lambda _: _say(HELP),
            "clear": lambda _: clear(),
        }

    def run(self, title: str) -> None:
        """Read statements and show what they answer, until the user leaves."""
        _say(f"Ladle SQL on {title}. A statement ends with ';'. Help: help  Leave: exit")
        session = self._session()
        while True:
            # Ctrl-C may come at any step, and again while the first is heeded: none of them ends the shell.
            try:
                self._refresh_names()
                text = session.prompt("ladle> ").strip()
                if _word(text) in _LEAVING:
                    return
                self.handle(text)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return

    def handle(self, text: str) -> None:
        """Run one input; errors and Ctrl-C end that input, not the shell."""
        try:
            if text.startswith("\\") or _word(text) in _WORDS:
                name, _, rest = text.rstrip("; ").partition(" ")
                known = self._commands.get(name if text.startswith("\\") else name.lower())
                if known is None:
                    _say(f"There is no command {name}. Help: help")
                else:
                    known(rest.strip())
            elif text.strip("; \n\t"):
                self._execute(text)
        except LadleError as error:
            show_error(error, text)
        except KeyboardInterrupt:
            _say("stopped")

    def _execute(self, text: str) -> None:
        begin = time.perf_counter()
        for answer, follows in run_script(self._db, text):
            took_ms = (time.perf_counter() - begin) * 1_000
            write_answer(answer, form=self._form, rows_max=self._rows_max, header=not follows)
            _say(f"epoch {answer.epoch}, {took_ms:,.0f} ms")
            begin = time.perf_counter()

    def _describe(self, name: str) -> None:
        if not name:
            _say("\\d needs a name: \\d trades")
            return
        self._execute(f"DESCRIBE {name}")

    def _status(self) -> None:
        from ladle.cli.watch import status_text

        _say(status_text(self._db.status()))

    def _refresh_names(self) -> None:
        """What completion offers; a warehouse that can't tell now must not end the shell."""
        names: dict[str, str] = {}
        try:
            for kind, relations in (("stream", self._db.streams()), ("table", self._db.tables())):
                for relation in relations:
                    names[relation.name] = kind
                    names.update((column, f"column of {relation.name}") for column in _columns(relation))
            if self._db.pulse().queries <= _QUERIES_OFFERED_MAX:
                names.update((query.name, "query") for query in self._db.queries())
        except LadleError:
            return
        self._completer.names = names

    def _session(self) -> PromptSession[str]:
        base = style_from_pygments_cls(get_style_by_name("native"))
        return PromptSession(
            history=_history(),
            lexer=PygmentsLexer(LadleLexer),
            completer=self._completer,
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=lambda width, *_: " " * (width - 3) + "-> ",
            key_bindings=_keys(),
            style=merge_styles([base, Style.from_dict({"prompt": "bold"})]),
            enable_history_search=False,
        )


def _keys() -> KeyBindings:
    """Enter runs what is complete and starts a new line otherwise."""
    keys = KeyBindings()

    @Condition
    def runs() -> bool:
        from prompt_toolkit.application import get_app

        buffer = get_app().current_buffer
        return buffer.complete_state is None and is_runnable(buffer.text)

    @keys.add("enter", filter=runs)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys


def is_runnable(text: str) -> bool:
    """Whether Enter should run the input. A new line is begun only for a statement that is not at its end."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or _word(stripped) in _WORDS | _LEAVING:
        return True
    from ladle.sql import is_unfinished

    return not is_unfinished(stripped)


def _word(text: str) -> str:
    """What was typed if it may be a command of the shell."""
    return text.rstrip("; ").lower()


def _columns(stream: Stream | Table) -> Iterable[str]:
    return [column.name for column in stream.schema.columns]


def _history() -> History:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    try:
        (state / "ladle").mkdir(parents=True, exist_ok=True)
        return FileHistory(str(state / "ladle" / "history"))
    except OSError:
        return InMemoryHistory()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
