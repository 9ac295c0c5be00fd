"""Errors and progress on standard error."""

from __future__ import annotations

import io
import logging
import time

import pytest
from tests.waiting import wait_until

from ladle.cli import terminal
from ladle.cli.terminal import error_text, patience
from ladle.errors import Position, SqlError


def test_the_caret_stands_under_the_position() -> None:
    error = SqlError("Unexpected 'FORM'.", hint="write FROM", position=Position(2, 3))
    assert error_text(error, "SELECT *\n\tFORM x").splitlines() == [
        "error: Unexpected 'FORM'. (at line 2, column 3)",
        "   FORM x",
        "    ^",
        "  hint: write FROM",
    ]


def test_of_a_long_line_the_part_around_the_position_is_shown() -> None:
    text = "x" * 300 + "!" + "y" * 300
    _, line, caret = error_text(SqlError("no", position=Position(1, 301)), text).splitlines()
    assert line[caret.index("^")] == "!"
    assert len(line) < 120


def test_a_position_beyond_the_text_shows_no_line() -> None:
    assert error_text(SqlError("no", position=Position(9, 1)), "one line") == "error: no (at line 9, column 1)"


def test_what_takes_long_is_told_and_what_is_quick_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "_PATIENCE_SECONDS", 0.05)
    with patience("being quick"):
        pass
    assert capsys.readouterr().err == ""
    with patience("working"):
        logging.getLogger("ladle.pipeline.lazy").info("starting Spark")
        time.sleep(0.2)
    assert capsys.readouterr().err == "starting Spark ...\n"
    assert logging.getLogger("ladle.pipeline").handlers == []


class Terminal(io.StringIO):
    """Somebody watches, also what was written before it is closed."""

    written = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written += text
        return len(text)


def test_how_far_it_is_is_told_where_somebody_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "_PATIENCE_SECONDS", 0.0)
    watched = Terminal()
    monkeypatch.setattr(terminal, "_own_stderr", lambda: watched)
    with patience("backing up") as say:
        say("42% of 7.0 MB")
        wait_until(lambda: "backing up ... 0 s, 42% of 7.0 MB" in watched.written, "how far it is is not told")
    monkeypatch.undo()
    monkeypatch.setattr(terminal, "_PATIENCE_SECONDS", 0.0)
    with patience("backing up") as say:
        say("42% of 7.0 MB")
    assert capsys.readouterr().err in ("", "backing up ...\n"), "a log has one line for it"
