"""The interactive shell, at a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from ladle.cli.shell import NameCompleter, is_runnable

WITHOUT_SPARK = """
import sys, ladle.client
from ladle.testing.inline import connect_inline
ladle.client.open_warehouse = lambda path, **_: connect_inline(path)
from ladle.cli import main
sys.exit(main(sys.argv[1:]))
"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>]")


class Terminal:
    """A program at a pseudo-terminal."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (40, 100))
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "100", **environment},
            start_new_session=True,
            close_fds=True,
        )
        os.close(slave)
        self.seen = ""
        self.read = 0

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """What was printed after the last wait, up to and including this text."""
        deadline = time.monotonic() + seconds
        while (found := _ESCAPES.sub("", self.seen).find(text, self.read)) < 0:
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"waited for {text!r}, saw {self.seen!r}"
            try:
                self.seen += os.read(self._master, 65_536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"the shell ended before {text!r}; saw {self.seen!r}") from None
        begin, self.read = self.read, found + len(text)
        return _ESCAPES.sub("", self.seen)[begin : self.read]

    def close(self) -> int:
        code = self.process.wait(30)
        os.close(self._master)
        return code


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Terminal]:
    argv = [sys.executable, "-c", WITHOUT_SPARK, "sql", "-w", str(tmp_path / "warehouse")]
    terminal = Terminal(argv, {"XDG_STATE_HOME": str(tmp_path)})
    terminal.wait_for("ladle>")
    yield terminal
    terminal.process.kill()
    terminal.process.wait()


def test_a_session(shell: Terminal, tmp_path: Path) -> None:
    shell.type("CREATE STREAM trades (symbol STRING, price DOUBLE);\r")
    shell.wait_for("stream trades created")
    shell.type("INSERT INTO trades VALUES ('IBM', 193.5), ('KO', 69.25);\r")
    shell.wait_for("2 rows inserted")
    shell.wait_for(" ms")
    # Several lines, and a semicolon inside a string does not end the statement.
    shell.type("SELECT symbol\rFROM trades\rWHERE symbol <> 'a;b'\rORDER BY price;\r")
    shown = shell.wait_for(" ms")
    assert shown.index("KO") < shown.index("IBM")
    assert re.search(r"epoch 1, [\d,]+ ms", shown)
    # An error shows where it is, and the shell goes on.
    shell.type("SELECT nope FROM trades;\r")
    shell.wait_for("error: ")
    shell.wait_for("^")
    shell.type("\\tables\r")
    assert "(0 rows)" in shell.wait_for(" ms")
    shell.type("\\d trades\r")
    assert "DOUBLE" in shell.wait_for(" ms")
    shell.type("\\nonsense\r")
    shell.wait_for("There is no command \\nonsense")
    for helping in ("\\?", "help", "HELP;"):
        shell.type(f"{helping}\r")
        shell.wait_for("ends with a semicolon")
    # What is no statement is told, and no continuation is asked for; the prompt comes back.
    shell.type("halp\r")
    shell.wait_for("error: ")
    shell.type("clear\r")
    deadline = time.monotonic() + 30
    while "\x1b[2J" not in shell.seen:
        assert time.monotonic() < deadline
        shell.wait_for("ladle>")
    shell.type("\\q\r")
    assert shell.close() == 0
    assert "CREATE STREAM trades" in (tmp_path / "ladle" / "history").read_text()


def test_tab_completes_names_and_control_c_clears_the_line(shell: Terminal) -> None:
    shell.type("CREATE STREAM connections (address STRING);\r")
    shell.wait_for("created")
    shell.wait_for("ladle>")
    shell.type("SELECT addr\t")
    shell.wait_for("ess")
    shell.type(" FROM conn\t")
    shell.wait_for("ections")
    shell.type(";\r")
    shell.wait_for("(0 rows)")
    shell.type("SELECT half a")
    shell.wait_for("half")
    shell.type("\x03\\q\r")
    assert shell.close() == 0


def test_control_d_leaves(shell: Terminal) -> None:
    shell.type("\x04")
    assert shell.close() == 0


def completions(completer: NameCompleter, text: str) -> list[str]:
    return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]


def test_completion_offers_names_first_and_keeps_the_case_of_keywords() -> None:
    completer = NameCompleter()
    completer.names = {"selections": "stream", "price": "column of trades"}
    assert completions(completer, "sel") == ["selections", "select"]
    assert completions(completer, "SEL") == ["selections", "SELECT"]
    assert completions(completer, "SELECT pri") == ["price"]
    assert completions(completer, "\\d sel") == []
    assert completions(completer, "SELECT 1\nFROM se") == ["selections"]
    assert completions(completer, "INSERT INTO p") == []
    assert completions(completer, "") == []


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", True),
        ("\\streams", True),
        ("quit", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT 1 -- ;", False),
        ("SELECT (1 -- ;", False),
        ("SELECT 1; -- done", True),
        ("-- only a comment", True),
        ("/* begun", False),
        ("SELECT 1; SELECT", False),
        ("with t AS (SELECT 1)", False),
        ("(SELECT 1)", False),
        ("backup", False),
        ("help", True),
        ("HELP;", True),
        ("clear", True),
        ("Exit ;", True),
        ("halp", True),
        ("ls -l", True),
        ("SELECT 1; halp", True),
        ("SELECT help", False),
    ],
)
def test_enter_runs_what_is_complete(text: str, runs: bool) -> None:
    assert is_runnable(text) is runs
