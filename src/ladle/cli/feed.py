"""Commands that change something: `push` and `register`."""

from __future__ import annotations

import argparse
import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from ladle.cli.place import add_place, add_spark, opened, opening_text, typed
from ladle.cli.terminal import Commands, about, command, patience
from ladle.errors import AlreadyExists, LadleError, UnknownName, unknown

if TYPE_CHECKING:
    from ladle.connection import OpenDatabase
    from ladle.schema import StreamSchema

_Table = TypeVar("_Table")

_MODES = ("auto", "none", "partial", "complete")


def add(commands: Commands) -> None:
    """Declare the commands `push` and `register`."""
    _add_push(commands)
    _add_register(commands)


def _add_push(commands: Commands) -> None:
    push = command(
        commands,
        "push",
        _push,
        help="push rows from files or standard input into a stream",
        description="""
            Push the rows of files into a stream: CSV with a header, JSON lines or Parquet, also packed by
            gzip (monday.csv.gz); `-` is standard input, and rows piped into it arrive as they come. The
            command ends when the rows are visible.
            Rows that don't fit go to the stream's quarantine (SELECT * FROM <stream>.quarantine) with file, line
            and reason; the others go on.
        """,
        examples="""
            ladle push trades monday.csv tuesday.csv
            ladle push trades history.parquet --no-wait
            tail -f events.jsonl | ladle push events - --format json
        """,
    )
    add_place(push)
    add_spark(push)
    push.add_argument("stream", metavar="STREAM", help="the stream's name")
    push.add_argument("files", nargs="+", metavar="FILE", help="files to read, - for standard input")
    push.add_argument("--format", choices=("csv", "json", "parquet"), help="by default told by the file's name")
    how = push.add_mutually_exclusive_group()
    how.add_argument(
        "--no-wait",
        action="store_true",
        help="end when the rows are safely received, before they are visible",
    )
    how.add_argument("--key", metavar="KEY", help="the same files pushed again with the same key count once")


def _add_register(commands: Commands) -> None:
    register = command(
        commands,
        "register",
        _register,
        help="register a standing query",
        description="""
            Register a standing query. From then on it stands: its answer covers what has arrived before and
            what arrives later. (For many, put CREATE QUERY statements into a file: ladle sql -f FILE.)
        """,
        examples="""
            ladle register dear "SELECT * FROM trades WHERE price > 100 BEGIN NOW - INTERVAL 1 HOUR END NOW"
            ladle register "SELECT symbol FROM trades WHERE size > 500"      # it is given a name
            ladle register total "SELECT count(*) AS n FROM trades" --materialize complete
            ladle register total "SELECT sum(size) AS n FROM trades" --replace
        """,
    )
    add_place(register)
    add_spark(register)
    register.add_argument("name", nargs="?", metavar="NAME", help="a name for the query; without it one is made")
    register.add_argument("sql", metavar="SELECT", help="the query")
    register.add_argument(
        "--materialize",
        choices=_MODES,
        help="what is kept ready: auto (as it is asked, the default), none, partial (results per segment), complete",
    )
    taken = register.add_mutually_exclusive_group()
    taken.add_argument("--if-not-exists", action="store_true", help="keep a query that has the name already")
    taken.add_argument("--replace", action="store_true", help="put this one in its place")


def is_register(args: argparse.Namespace) -> bool:
    """Whether the command line is that of `ladle register`."""
    return args.run is _register


def _push(args: argparse.Namespace) -> int:
    from ladle.formats.reading import format_of, read_rows

    forms = [format_of(name, args.format) for name in args.files]
    if args.key is not None and "-" in args.files:
        raise LadleError("Standard input has no --key: how its rows come together is not the same each time.")
    with opened(args) as db:
        schema = _schema(db, args.stream)
        for number, (name, form) in enumerate(zip(args.files, forms, strict=True)):
            pushed, epoch = 0, None
            rejected = _quarantined(db, args.stream)
            with patience(f"pushing {name}"), _opened_file(name) as file:
                live = name == "-"
                try:
                    place = "stdin" if live else name
                    tables = read_rows(file, form, schema, name=place, live=live)
                    for block, (table, last) in enumerate(_with_last(tables, live=live)):
                        if args.no_wait:
                            db.receive(args.stream, table)
                        else:
                            key = None if args.key is None else f"{args.key}/{number}/{block}"
                            epoch = db.push(args.stream, table, wait=last, key=key)
                        pushed += table.num_rows
                except KeyboardInterrupt:
                    _tell_interrupted(name, pushed, args.key)
                    raise
                except Exception as error:
                    raise _half_way(error, name, form, pushed) from error
            seen = f", visible in epoch {epoch}" if epoch is not None else ""
            rejected = _quarantined(db, args.stream) - rejected
            sys.stdout.write(f"pushed {pushed:,} row{'' if pushed == 1 else 's'} to {args.stream}{seen}\n")
            if rejected:
                reasons = typed(args, "sql", "-c", f'"SELECT reason, row FROM {args.stream}.quarantine"')
                sys.stdout.write(f"{rejected:,} of them did not fit; the reasons: {reasons}\n")
    return 0


def _tell_interrupted(name: str, pushed: int, key: str | None) -> None:
    if pushed:
        again = "the file again would double them" if key is None else "all again with the same key adds the rest"
        sys.stderr.write(f"{name}: at least {pushed:,} rows were received and will become visible; pushing {again}\n")


def _quarantined(db: OpenDatabase, name: str) -> int:
    counts = {stream.name.lower(): stream.quarantined for stream in db.pulse().streams}
    return int(counts.get(name.lower(), 0))


def _schema(db: OpenDatabase, name: str) -> StreamSchema:
    streams = {stream.name.lower(): stream.schema for stream in db.streams()}
    if name.lower() not in streams:
        raise unknown("stream", name, [stream.name for stream in db.streams()])
    found: StreamSchema = streams[name.lower()]
    return found


def _with_last(tables: Iterator[_Table], *, live: bool) -> Iterator[tuple[_Table, bool]]:
    """Each table, and whether to wait for it: the last one of a file, each one of a live input."""
    if live:
        yield from ((table, True) for table in tables)
        return
    held = next(tables, None)
    for table in tables:
        assert held is not None
        yield held, False
        held = table
    if held is not None:
        yield held, True


def _half_way(error: Exception, name: str, form: str, pushed: int) -> Exception:
    """The error with the file's name and what had been pushed; if it is not the input's fault, as it is."""
    import pyarrow as pa

    before = f" {pushed:,} rows before it were pushed." if pushed else " Nothing was pushed."
    if isinstance(error, LadleError):
        error.message = f"{name}: {error.message}{before}"
        return error
    if isinstance(error, gzip.BadGzipFile | zlib.error | EOFError):
        return LadleError(f"{name} can't be unpacked: {error}.{before}")
    if isinstance(error, pa.ArrowException):
        first = str(error).splitlines()[0].rstrip(".")
        return LadleError(f"{name} can't be read as {form}: {first}.{before}")
    return error


@contextmanager
def _opened_file(name: str) -> Iterator[BinaryIO]:
    from ladle.formats.reading import is_packed

    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        plain = Path(name).open("rb")  # noqa: SIM115 - an error of reading is another thing than of opening
    except OSError as error:
        raise LadleError(f"Can't read '{name}': {error.strerror}.") from None
    with plain:
        yield cast("BinaryIO", gzip.GzipFile(fileobj=plain)) if is_packed(name) else plain


def _stands(db: OpenDatabase, name: str) -> bool:
    try:
        db.query(name)
    except UnknownName:
        return False
    return True


def _register(args: argparse.Namespace) -> int:
    how = {} if args.materialize is None else {"materialize": args.materialize}
    with patience(opening_text(args)), opened(args) as db, about(args.sql):
        stood = args.name is not None and _stands(db, args.name)
        try:
            query = db.register(args.sql, name=args.name, if_not_exists=args.if_not_exists, replace=args.replace, **how)
        except AlreadyExists as error:
            if stood:
                error.hint = "choose another name, keep it with --if-not-exists, or change it with --replace"
            raise
    done = f"registered {query.name}"
    if stood:
        done = f"replaced {query.name}" if args.replace else f"{query.name} stands already, unchanged"
    sys.stdout.write(f"{done}; its answer: {typed(args, 'invoke', query.name)}\n")
    return 0
