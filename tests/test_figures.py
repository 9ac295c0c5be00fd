"""Figures of benchmarks: what is printed and kept of the samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks._figures import Comparison, Figure, write

SAMPLES = {"alone": [float(n) for n in range(1, 201)], "beside": [n + 0.5 for n in range(1, 201)]}


def test_a_difference_is_told_with_its_tails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = Figure("push", "s", SAMPLES, ("beside", "alone"), Comparison.DIFFERENCE)
    assert figure.tails["alone"] == {"p50": 100.5, "p99": 198.0, "max": 200.0}
    assert figure.differences == {"p50": 0.5, "p99": 0.5, "max": 0.5}
    write([figure, Figure("epoch", "s", SAMPLES, ("beside", "alone"))], "b", tmp_path, {})
    first, second, _ = capsys.readouterr().out.splitlines()
    assert "p99 198 s max 200 s" in first
    assert first.endswith("beside - alone: +0.5 s (p50), +0.5 s (p99), +0.5 s (max)")
    assert second.endswith("beside / alone = 1.00")
    kept = json.loads((tmp_path / "b.json").read_text())["figures"]
    assert kept[0]["comparison"] == "difference"
    assert kept[0]["tails"]["beside"]["max"] == 200.5
    assert "push" in (tmp_path / "b.svg").read_text()
