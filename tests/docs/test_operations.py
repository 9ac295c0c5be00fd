"""The page on operations: its commands run, one after the other, and print what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import ladle
from ladle.cli import main, parser
from ladle.config import Settings
from ladle.testing import connect_inline

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "operations.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return str(found)


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


def test_the_file_of_settings_is_read(tmp_path: Path) -> None:
    (tmp_path / "ladle.toml").write_text(block("toml"))
    settings = Settings.load({}, tmp_path / "ladle.toml")
    assert (settings.anonymous, settings.derived_memory_bytes_max) == ("nobody", 8_000_000_000)
    assert settings.spark_conf == {"spark.driver.memory": "4g"}


def test_the_unit_starts_a_command_that_there_is() -> None:
    (started,) = re.findall(r"ExecStart=\S*/ladle (.*)", block("ini"))
    assert parser().parse_args(shlex.split(started)).config == "/etc/ladle/ladle.toml"


def test_alerts_are_on_figures_that_there_are() -> None:
    figures = set(re.findall(r"`(ladle_\w+)`", (DOCS / "http.md").read_text(encoding="utf-8")))
    named = set(re.findall(r"ladle_\w+", block("yaml")))
    assert len(named) > 5
    assert named <= figures


def test_limits_are_settings_with_their_names() -> None:
    table = PAGE.partition("\n## Limits\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| [^|]+ \| `(\w+)` \|", table, re.M)
    assert len(named) > 8
    for name in named:
        assert hasattr(Settings, name)
