"""Commands that ask: `sql`, `invoke`, `explain`, `queries`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ladle.cli.output import add_format, write_answer
from ladle.cli.place import add_place, add_spark, opened, opening_text, typed
from ladle.cli.terminal import Commands, about, command, patience
from ladle.errors import LadleError, Position

if TYPE_CHECKING:
    from ladle.answer import Answer
    from ladle.connection import OpenDatabase

_READS = frozenset({"SELECT", "WITH", "VALUES", "(", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "SUBSCRIBE"})
"""First words of statements that change nothing: a script of these alone needs no right to write."""

_WRITES = frozenset({"CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE"})


def add(commands: Commands) -> None:
    """Declare the commands `sql`, `invoke`, `explain` and `queries`."""
    _add_sql(commands)
    _add_invoke(commands)
    _add_explain(commands)
    _add_queries(commands)


def _add_sql(commands: Commands) -> None:
    sql = command(
        commands,
        "sql",
        _sql,
        help="an interactive shell; or run statements given with -c, in a file or on standard input",
        description="""
            Run SQL statements, separated by semicolons. Without -c or a file, on a terminal, this is an
            interactive shell with history (arrow keys), completion (tab) and multi-line input: a statement
            ends with a semicolon.
        """,
        examples="""
            ladle sql
            ladle sql -c "SHOW STREAMS"
            ladle sql -c "SELECT symbol, count(*) AS n FROM trades GROUP BY symbol" --format csv
            ladle sql queries.sql           # also: ladle sql -f queries.sql
            echo "SHOW QUERIES" | ladle sql
        """,
    )
    add_place(sql)
    add_spark(sql)
    given = sql.add_mutually_exclusive_group()
    given.add_argument("-c", "--command", metavar="TEXT", help="statements to run")
    given.add_argument("-f", "--file", metavar="FILE", help="a file with statements")
    given.add_argument("script", nargs="?", metavar="FILE", help="the same as -f FILE")
    add_format(sql)


def _add_invoke(commands: Commands) -> None:
    invoke = command(
        commands,
        "invoke",
        _invoke,
        help="the current answer of a standing query",
        description="Print the current answer of a standing query, or its answer as of another time.",
        examples="""
            ladle invoke expensive
            ladle invoke expensive --format json
            ladle invoke expensive --now "2026-01-31 09:30:00"
        """,
    )
    add_place(invoke)
    add_spark(invoke)
    invoke.add_argument("name", metavar="NAME", help="the query's name")
    invoke.add_argument(
        "--now",
        metavar="TIMESTAMP",
        type=_moment,
        help="answer as it would be at this time: YYYY-MM-DD HH:MM:SS, UTC unless it has an offset",
    )
    add_format(invoke)


def _add_explain(commands: Commands) -> None:
    explain = command(
        commands,
        "explain",
        _explain,
        help="how a query is answered: standing part, residual, window, coverage",
        description="Show how a standing query, or any SELECT, is answered.",
        examples="""
            ladle explain expensive
            ladle explain --analyze expensive
            ladle explain expensive --format json
            ladle explain "SELECT * FROM trades WHERE price > 100 BEGIN NOW - INTERVAL 1 MINUTE END NOW"
        """,
    )
    add_place(explain)
    add_spark(explain)
    explain.add_argument("--analyze", action="store_true", help="also invoke it, and say what that took")
    explain.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: all of it, for people (default); json: the tree of its plan, null where it has none",
    )
    explain.add_argument("query", metavar="NAME|SELECT", help="a standing query's name, or the text of a query")


def _add_queries(commands: Commands) -> None:
    queries = command(
        commands,
        "queries",
        _queries,
        help="list the standing queries",
        description="List the standing queries.",
        examples="""
            ladle queries
            ladle queries --format json
        """,
    )
    add_place(queries)
    add_format(queries)


def _sql(args: argparse.Namespace) -> int:
    text = _statements(args)
    if text is None:
        from ladle.cli.shell import run_shell

        return run_shell(args)
    with about(text):
        with patience("reading"):
            texts = _split(text)
        words = {statement.split(None, 1)[0].upper() for statement in texts}
        _print_answers(args, text, read_only=words <= _READS, create="CREATE" in words)
    return 0


def _print_answers(args: argparse.Namespace, text: str, *, read_only: bool, create: bool) -> None:
    with opened(args, read_only=read_only, create=create) as db:
        for number, (answer, follows) in enumerate(run_script(db, text)):
            if number and args.format == "table":
                sys.stdout.write("\n")
            write_answer(answer, form=args.format, rows_max=args.rows, header=not follows)
            sys.stdout.flush()  # the next may be long in coming


def _split(text: str) -> list[str]:
    from ladle.sql import script

    return script.statements(text)


def run_script(db: OpenDatabase, text: str) -> Iterator[tuple[Answer, bool]]:
    """The answers of a script's statements, each as it comes, and whether it goes on from the one before, as the next
    change that a subscriber is told does; errors have positions in the whole text.
    """
    end = 0
    for statement in _split(text):
        begin = text.index(statement, end)
        end = begin + len(statement)
        try:
            if statement.split(None, 1)[0].upper() == "SUBSCRIBE":
                for number, change in enumerate(_subscribed(db, statement)):
                    yield change, number > 0
            else:
                with patience("running"):
                    answer = db.sql(statement)
                yield answer, False
        except LadleError as error:
            if error.position is not None:
                error.position = _moved(error.position, text[:begin])
            raise


def _subscribed(db: OpenDatabase, statement: str) -> Iterator[Answer]:
    """The changes of a query as they come, until Ctrl-C."""
    from datetime import UTC

    from ladle.answer import Answer
    from ladle.delta import change_rows
    from ladle.sql import subscription

    asked = subscription(statement)
    assert asked is not None, "the word says so"
    how = asked.how
    with db.query(asked.name).subscribe(
        how.since,
        snapshot=how.snapshot,
        expirations=how.options.expirations.value,
        relation=how.options.relation.value,
        progress=how.progress,
    ) as changes:
        for delta in changes:
            now = delta.now or datetime.now(UTC)
            yield Answer(change_rows(delta), delta.epoch, now, message=f"position {delta.position}")


def _moved(position: Position, before: str) -> Position:
    """A position in a statement as one in the script that has `before` in front of it."""
    column = position.column + (len(before) - before.rfind("\n") - 1 if position.line == 1 else 0)
    return Position(position.line + before.count("\n"), column)


def _statements(args: argparse.Namespace) -> str | None:
    """The text to run, or None when a person is at the keyboard."""
    if args.command is not None:
        return str(args.command)
    name = args.file or args.script
    if name is None:
        return None if sys.stdin.isatty() else sys.stdin.read()
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        statement = isinstance(error, OSError) and _is_statement(name)
        hint = f"to run a statement: {typed(args, 'sql', '-c', shlex.quote(name))}" if statement else None
        raise LadleError(f"Can't read '{name}': {reason}.", hint=hint) from None


def _is_statement(text: str) -> bool:
    """Whether what was given as a file's name looks like SQL."""
    first, _, rest = text.strip().partition(" ")
    return bool(rest) and first.upper() in _READS | _WRITES


def _invoke(args: argparse.Namespace) -> int:
    with patience(f"invoking {args.name}"), opened(args, read_only=True) as db:
        answer = db.query(args.name).invoke(now=args.now)
    write_answer(answer, form=args.format, rows_max=args.rows)
    return 0


def _explain(args: argparse.Namespace) -> int:
    with patience(opening_text(args)), opened(args, read_only=True) as db:
        # A single word is a name, so that a misspelt one is answered with the names there are.
        is_name = len(args.query.split()) == 1
        with about(args.query):
            name = db.query(args.query).name if is_name else args.query
            if args.format == "json":
                text = json.dumps(db.explain_tree(name, analyze=args.analyze))
            else:
                text = db.explain(name, analyze=args.analyze)
    sys.stdout.write(f"{text}\n")
    return 0


def _queries(args: argparse.Namespace) -> int:
    with patience(opening_text(args)), opened(args, read_only=True) as db:
        write_answer(db.sql("SHOW QUERIES"), form=args.format, rows_max=args.rows)
    return 0


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time like 2026-01-31 09:30:00") from None
