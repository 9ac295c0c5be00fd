"""The command line: `ladle demo, serve, sql, push, register, invoke, queries, explain, status, top, backup,
restore, verify`.

Each group of commands is a module with `add(commands)`, which declares arguments and nothing else: whatever
is heavy is imported by the command that runs. Exit codes: 0 done, 1 an error of the user's (one message, no
traceback), 2 wrong usage, 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from ladle.cli import ask, demo, feed, serve, top, watch
from ladle.cli import keep as backup
from ladle.cli.terminal import show_error
from ladle.errors import LadleError

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments. `register NAME --replace SELECT` too, of which argparse takes NAME for the SELECT, because a name
    may be left out.
    """
    whole = parser()
    args, rest = whole.parse_known_args(argv)
    if feed.is_register(args) and args.name is None and len(rest) == 1 and not rest[0].startswith("-"):
        args.name, args.sql = args.sql, rest.pop()
    if rest:
        whole.error(f"unrecognized arguments: {' '.join(rest)}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        args = _parsed(argv)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_ERROR
    except LadleError as error:
        show_error(error)
        return EXIT_ERROR
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; Python must not complain about it while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return EXIT_INTERRUPTED


def program() -> NoReturn:
    """Be the program `ladle`: run one command and exit. Python takes a moment to exit, in which Ctrl-C has nothing to
    stop any more.
    """
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def parser() -> argparse.ArgumentParser:
    """All commands, with their arguments and help."""
    root = argparse.ArgumentParser(
        prog="ladle",
        description="Data streams on Apache Spark: register a SQL query once, and it stands.",
        epilog="Start with `ladle demo`. `ladle COMMAND --help` shows examples.",
    )
    root.add_argument("--version", action=_Version, help="print the version and end")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in (demo, serve, ask, feed, watch, top, backup):
        group.add(commands)
    return root


class _Version(argparse.Action):
    """Looks the version up only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("ladle")
        except PackageNotFoundError:
            found = "(not installed)"
        print(f"ladle {found}")
        parser.exit()
