"""What every command shares: how it is declared, tells what takes long, shows errors."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import dedent, indent
from typing import TextIO, TypeAlias

from ladle.errors import LadleError, Position

Run = Callable[[argparse.Namespace], int]
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What `add_subparsers` returns; argparse has no public name for it."""

_PATIENCE_SECONDS = 1.5
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def command(
    commands: Commands, name: str, run: Run, *, help: str, description: str, examples: str
) -> argparse.ArgumentParser:
    """A command's parser, with examples under its help."""
    added = commands.add_parser(
        name,
        help=help,
        description=dedent(description).strip(),
        epilog="examples:\n" + indent(dedent(examples).strip("\n"), "  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    added.set_defaults(run=run)
    return added


@contextmanager
def patience(text: str) -> Iterator[Callable[[str], None]]:
    """Says on stderr what is going on once it takes longer than a moment, and for how long.

    What the pipeline logs meanwhile ("starting Spark") replaces the text. The one who waits is given a function that
    says how far it is, where somebody watches.
    """
    spinner = _Spinner(text)
    logger = logging.getLogger("ladle.pipeline")
    level = logger.level
    logger.addHandler(spinner)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    thread = threading.Thread(target=spinner.spin, daemon=True)
    thread.start()
    try:
        yield spinner.say_how_far
    finally:
        spinner.done.set()
        thread.join()
        spinner.close()
        logger.removeHandler(spinner)
        logger.setLevel(level)


class _Spinner(logging.Handler):
    def __init__(self, text: str) -> None:
        super().__init__(logging.INFO)
        self.text = text
        self.done = threading.Event()
        self._own = text
        self._how_far = ""
        self._terminal = _own_stderr()

    def close(self) -> None:
        if self._terminal is not sys.stderr:
            self._terminal.close()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """`starting Spark` says what goes on; a message that something is done brings back our own text."""
        message = record.getMessage().splitlines()[0]
        self.text = message if message.partition(" ")[0].endswith("ing") else self._own

    def say_how_far(self, text: str) -> None:
        self._how_far = f", {text}"

    def spin(self) -> None:
        begin = time.monotonic()
        if self.done.wait(_PATIENCE_SECONDS):
            return
        if not self._terminal.isatty():
            self._plain()
            return
        frame = 0
        while True:
            seconds = time.monotonic() - begin
            self._say(f"\r{_FRAMES[frame % len(_FRAMES)]} {self.text} ... {seconds:.0f} s{self._how_far}\x1b[K")
            frame += 1
            if self.done.wait(0.1):
                self._say("\r\x1b[K")
                return

    def _plain(self) -> None:
        """Where nobody watches, one line for each thing that takes long."""
        said = None
        while True:
            if self.text != said:
                said = self.text
                self._say(f"{said} ...\n")
            if self.done.wait(1.0):
                return

    def _say(self, text: str) -> None:
        self._terminal.write(text)
        self._terminal.flush()


def _own_stderr() -> TextIO:
    """Standard error under a descriptor of our own: while Spark starts, number 2 leads elsewhere."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
    except (OSError, ValueError):
        return sys.stderr


@contextmanager
def about(text: str) -> Iterator[None]:
    """Errors raised inside are about this SQL text: shown with its line and a caret; the command ends."""
    try:
        yield
    except LadleError as error:
        show_error(error, text)
        raise SystemExit(1) from None


def show_error(error: LadleError, text: str | None = None) -> None:
    """Write an error to standard error; with the text of a statement, the place in it is marked."""
    sys.stderr.write(error_text(error, text) + "\n")
    sys.stderr.flush()


def error_text(error: LadleError, text: str | None = None) -> str:
    """`error: message (at line 1, column 8)`, the line with a caret under the position, and the hint."""
    where = f" (at {error.position})" if error.position else ""
    lines = [f"error: {error.message}{where}"]
    if text is not None and error.position is not None:
        lines += _caret(text, error.position)
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    return "\n".join(lines)


def _caret(text: str, position: Position) -> list[str]:
    lines = text.splitlines()
    if not 1 <= position.line <= len(lines):
        return []
    line = lines[position.line - 1].replace("\t", " ")
    begin = max(0, position.column - 80)
    shown = line[begin : begin + 110]
    return [f"  {shown}", "  " + " " * (position.column - 1 - begin) + "^"]
