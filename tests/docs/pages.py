"""Examples of a page, run in order: SQL and Python, each with what it prints beside or below it."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ladle
from ladle.answer import Answer
from ladle.engine import Database

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r'^```(\w+)(?: title="(\w+)")?\n(.*?)^```$', re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its title where it has one, and its text."""

    language: str
    title: str
    text: str


def sections(page: str) -> dict[str, str]:
    """The text of each section of a page of docs/, by heading; what is before the first is not among them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(section: str) -> list[Block]:
    """The fenced blocks of a text, in order; none is passed over."""
    found = [Block(*match.groups(default="")) for match in _BLOCK.finditer(section)]
    assert 2 * len(found) == len(re.findall("^```", section, re.M))
    return found


def run(examples: list[Block], db: Database, names: dict[str, Any]) -> None:
    """Run Ladle's examples and compare what they print. Output that is promised and not there is a failure too."""
    printed: list[str] = []
    names |= {"db": db, "ladle": ladle}
    for example in examples:
        match example.language:
            case "sql":
                answers = db.execute(example.text)
                printed = [shown(answer) for answer in answers if answer.columns]
            case "python":
                out = io.StringIO()
                with redirect_stdout(out):
                    exec(compile(example.text, "example.py", "exec"), names)
                said = re.findall(r"print\(.*\)  # (.*)$", example.text, re.M)
                agree(out.getvalue().splitlines(), said)
            case "text":
                assert printed, "there is nothing that prints this"
                agree(printed[-1].splitlines(), example.text.splitlines())
            case other:
                raise AssertionError(f"a block of {other!r} is not run by anything")


def agree(printed: list[str], said: list[str]) -> None:
    """Fail, and show both, unless what is printed is what the page says."""
    lines = "\n".join(["the page says", *said, "and there is printed", *printed])
    assert printed == said, lines


def shown(answer: Answer) -> str:
    """An answer as a reader is shown it: without the line about epoch and NOW."""
    return "\n".join(line.rstrip() for line in repr(answer).splitlines()[:-1])
