"""Commands in this process, on a warehouse without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ladle.remote
from ladle.cli import main
from ladle.testing.inline import connect_inline


@dataclass
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def run(warehouse: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `ladle ARGUMENT...`."""

    def open_inline(path: str, **_: Any) -> Any:
        return connect_inline(path)

    monkeypatch.setattr(ladle.remote, "open_warehouse", open_inline)
    monkeypatch.setenv("LADLE_WAREHOUSE", str(warehouse))
    monkeypatch.setenv("COLUMNS", "120")

    def run_command(*argv: str) -> Ran:
        code = main(argv)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run_command


@pytest.fixture
def trades(run: Run) -> Run:
    """A warehouse with a stream of three trades and a standing query."""
    made = run(
        "sql",
        "-c",
        "CREATE STREAM trades (symbol STRING, price DOUBLE, size INT, at TIMESTAMP) TIMESTAMP BY at;"
        "CREATE QUERY dear AS SELECT symbol, price FROM trades WHERE price > 100 "
        "BEGIN NOW - INTERVAL 10 MINUTES END NOW;"
        "INSERT INTO trades VALUES ('IBM', 193.5, 100, TIMESTAMP '2026-01-30 14:30:00'),"
        "('KO', 69.25, 700, TIMESTAMP '2026-01-30 14:31:00'),"
        "('GS', 498.0, 10, TIMESTAMP '2026-01-30 14:45:00')",
    )
    assert made.code == 0, made.err
    return run
