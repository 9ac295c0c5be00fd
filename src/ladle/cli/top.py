"""`ladle top`: what goes on, as a view that is drawn anew every second and heeds a few keys."""

from __future__ import annotations

import argparse
import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from ladle.cli.place import add_place, opened, opening_text, place_text
from ladle.cli.terminal import Commands, command, patience
from ladle.errors import LadleError

if TYPE_CHECKING:
    from ladle.cli.overview import Overview
    from ladle.connection import OpenDatabase

_EVERY_SECONDS = 1.0
_PLAIN_SIZE = (120, 40)

Typed = Callable[[float], str]
"""What is typed within so many seconds."""


def add(commands: Commands) -> None:
    """Declare the command `top`."""
    top = command(
        commands,
        "top",
        _top,
        help="a live view: rates of streams, queries asked most, tickets of the eddies",
        description="""
            Show streams, eddies and queries, again every second. Keys: q quits, s sorts the queries by
            invocations or by name, arrows, page keys, Home and End scroll them.
        """,
        examples="""
            ladle top
            ladle top --url http://127.0.0.1:8642
            ladle top --once
        """,
    )
    add_place(top)
    top.add_argument("--once", action="store_true", help="print one view as text and end (as when piped)")


def _top(args: argparse.Namespace) -> int:
    from ladle.cli.overview import Overview

    overview = Overview(place_text(args))
    with Looking(args) as looking:
        with patience(opening_text(args)):
            looking.look(overview)
        if args.once or not sys.stdout.isatty():
            _print(overview)
            return 0
        try:
            with _keyboard() as typed:
                _watch(looking, overview, typed)
        except KeyboardInterrupt:
            # One of the ways to end it, so not a failure.
            pass
    return 0


class Looking:
    """The database that is looked at: opened when it is needed, and again after it went away."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._opening: AbstractContextManager[OpenDatabase] | None = None
        self._db: OpenDatabase | None = None

    def look(self, overview: Overview) -> None:
        """Take one look at the database; one that can't be reached is opened again with the next look."""
        from ladle.cli.overview import QUERIES_MAX

        try:
            if self._db is None:
                opening = opened(self._args, read_only=True)
                self._db, self._opening = opening.__enter__(), opening
            pulse = self._db.pulse()
            queries = self._db.status().queries if pulse.queries <= QUERIES_MAX else None
        except LadleError:
            self.close()
            raise
        overview.take(pulse, queries, time.monotonic())

    def close(self) -> None:
        """Let go of the database."""
        opening, self._opening, self._db = self._opening, None, None
        if opening is not None:
            opening.__exit__(None, None, None)

    def __enter__(self) -> Looking:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _watch(looking: Looking, overview: Overview, typed: Typed) -> None:
    """Look and draw every second, and after each key; a database that is away for a while is told and waited for."""
    from rich.console import Console
    from rich.live import Live

    from ladle.cli.overview import Scroll, keys_of, pressed, render, share_out

    console, scroll = Console(), Scroll()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        due = time.monotonic()
        while True:
            if time.monotonic() >= due:
                try:
                    looking.look(overview)
                except LadleError as error:
                    overview.trouble = error.message
                due = time.monotonic() + _EVERY_SECONDS
            live.update(render(overview, scroll, width=console.width, height=console.height), refresh=True)
            for key in keys_of(typed(max(0.0, due - time.monotonic()))):
                page = share_out(overview, console.height).queries
                after = pressed(scroll, key, page=page, total=len(overview.queries or ()))
                if after is None:
                    return
                scroll = after


def _print(overview: Overview) -> None:
    from rich.console import Console

    from ladle.cli.overview import Scroll, render

    width, height = shutil.get_terminal_size(_PLAIN_SIZE)
    console = Console(file=sys.stdout, width=width, height=height, color_system=None, force_terminal=False)
    console.print(render(overview, Scroll(), width=width, height=height))


@contextmanager
def _keyboard() -> Iterator[Typed]:
    """Keys as they are pressed, without Enter; where nobody can type, only time passes."""
    if not sys.stdin.isatty():

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return
    import termios
    import tty

    number = sys.stdin.fileno()

    def read(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        # A terminal that is gone gives nothing, at once and for ever.
        return (os.read(number, 1024).decode(errors="replace") or "q") if ready else ""

    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield read
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
