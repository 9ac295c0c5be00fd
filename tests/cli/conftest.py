"""Commands in this process, on a warehouse without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import ladle.client
from ladle.cli import main
from ladle.testing.inline import connect_inline


@dataclass
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


def told_change(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next row that SUBSCRIBE prints as JSON; its NOW has been."""
    assert process.stdout is not None
    row: dict[str, Any] = json.loads(process.stdout.readline())
    assert list(row)[:3] == ["_change", "_now", "_out"]
    now = row.pop("_now")
    assert now is None or datetime.fromisoformat(now) <= datetime.now(UTC)
    return row


def loaded_by_reading(where: Sequence[str], modules: Sequence[str]) -> list[str]:
    """What commands that read load of these modules, in a process of their own."""
    commands = [["invoke", "dear"], ["queries"], ["explain", "dear"], ["sql", "-c", "SELECT * FROM dear"]]
    code = (
        "import sys\nfrom ladle.cli import main\n"
        "loaded = [name for name in ('httpx',) if name in sys.modules]\n"
        f"for name, *rest in {commands!r}:\n"
        f"    assert main([name, *{list(where)!r}, *rest]) == 0\n"
        f"    loaded += [name for name in {list(modules)!r} if name in sys.modules]\n"
        "print('loaded', *loaded)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `ladle ARGUMENT...`, wherever it says."""

    def run(*argv: str) -> Ran:
        code = main(argv)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def run(warehouse: Path, monkeypatch: pytest.MonkeyPatch, ran: Run) -> Run:
    """The same on a warehouse."""

    def open_inline(path: str, **_: Any) -> Any:
        return connect_inline(path)

    monkeypatch.setattr(ladle.client, "open_warehouse", open_inline)
    monkeypatch.setenv("LADLE_WAREHOUSE", str(warehouse))
    monkeypatch.setenv("COLUMNS", "120")
    return ran


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
