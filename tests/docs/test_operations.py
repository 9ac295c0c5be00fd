"""The page on operations: its commands run, one after the other, and print what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import ladle
from ladle.cli import main
from ladle.testing import connect_inline

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


def said(text: str) -> str:
    """Without what differs from one run to the next: numbers, times, and where it is."""
    text = re.sub(r"\S+T\d\d:\S+", "TIME", text)
    text = re.sub(r"/\S*/(backups|restored)", r"/data/\1", text)
    return re.sub(r"\s*\d[\d,.]*", " N", re.sub(r"─+", "─", text))


def test_the_commands_of_the_page_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    db = connect_inline("warehouse", settings={"maintenance_seconds": 3_600.0})
    db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE)")
    db.register("SELECT symbol, price FROM trades WHERE price > 100", name="dear")
    db.push("trades", [{"symbol": "IBM", "price": 193.5}], wait=True)
    db.push("trades", [{"symbol": "KO", "price": 69.25}], wait=True)
    db.receive("trades", [{"symbol": "T", "price": 17.5}])
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.S)
    steps = [step for block in blocks for step in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.M)]
    assert len(steps) == 4
    for typed, shown in steps:
        assert main(shlex.split(typed)[1:]) == 0
        assert said(capsys.readouterr().out) == said(shown), typed
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(example, {"db": db})
    db.close()
    for number, backup in enumerate(("backups/ladle", "backups/tuesday")):
        ladle.restore(backup, f"again{number}")
        with connect_inline(f"again{number}") as again:
            again._ingest.drain(again.catalog.streams["trades"])
            assert again.sql("SELECT symbol FROM trades").table.column(0).to_pylist() == ["IBM", "KO", "T"]
